//! The HTTP interface: one file per call, or per family of calls.
//!
//! Every wait has an end and every size a bound: connections, heads, silences, readers that do not read. Handlers look
//! at the hub through [`Desk::call`], a bounded part at a time.

mod control;
mod explain;
mod feed;
mod guard;
mod hosts;
mod ips;
mod metrics;
mod patient;
mod query;
mod reservations;
mod stats;

use super::hub::{Event, Hub};
use crate::index::Adder;
use crate::time::Duration;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use patient::Patient;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;

/// HTTP connections at the same time: none of them may cost a spider its place.
const CONNECTIONS_MAX: usize = 256;
/// Longest wait for a request's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest head, with the longest URL as a parameter in it; and most headers.
const HEAD_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 64;
/// Longest time without any progress in writing an answer.
const READER_STALL_MAX: Duration = Duration::from_secs(10);
/// Wait before accepting again after the system refused to.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for the hub, which answers in microseconds if it is well.
const HUB_TIMEOUT: Duration = Duration::from_secs(2);

struct Desk {
    events: mpsc::Sender<Event>,
    adder: Adder,
    /// Places for those who add URLs.
    feeders: Semaphore,
    token: Option<String>,
}

type Shared = State<Arc<Desk>>;

impl Desk {
    /// Does something between two turns of the hub, where everything is at hand; `None` if it is stopping. It must
    /// be short: nothing is sent meanwhile.
    async fn call<T: Send + 'static>(&self, task: impl FnOnce(&mut Hub) -> T + Send + 'static) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let call = Event::Call(Box::new(move |hub: &mut Hub| drop(reply.send(task(hub)))));
        self.events.send(call).await.ok()?;
        tokio::time::timeout(HUB_TIMEOUT, answer).await.ok()?.ok()
    }
}

/// Answers for ever.
pub(super) async fn serve(
    listener: TcpListener,
    events: mpsc::Sender<Event>,
    adder: Adder,
    token: Option<String>,
) {
    let feeders = Semaphore::new(feed::FEEDERS_MAX);
    let desk = Arc::new(Desk { events, adder, feeders, token });
    let app = Router::new()
        .route("/", get(|| async { Html(include_str!("front.html")) }))
        .route("/healthz", get(|| async { Json(json!({"status": "alive"})) }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics::metrics))
        .route("/api/stats", get(stats::stats))
        .route("/api/urls", post(feed::urls))
        .route("/api/hosts", get(hosts::list))
        .route("/api/hosts/{host}", get(hosts::one))
        .route("/api/ips/{ip}", get(ips::one))
        .route("/api/explain", get(explain::url))
        .merge(control::routes())
        .merge(reservations::routes())
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "not with this method")
        })
        .layer(from_fn_with_state(Arc::clone(&desk), guard::guard))
        .with_state(desk);
    let mut door = Door::default();
    loop {
        let Some(place) = door.place().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let asked = Arc::new(AtomicBool::new(false));
                let task = tokio::spawn(answer(stream, app.clone(), Arc::clone(&asked), place));
                door.arrivals.push_back((asked, task.abort_handle()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Who is in, in order of arrival, and whether they have asked for anything yet.
struct Door {
    places: Arc<Semaphore>,
    arrivals: VecDeque<(Arc<AtomicBool>, AbortHandle)>,
}

impl Default for Door {
    fn default() -> Self {
        Door { places: Arc::new(Semaphore::new(CONNECTIONS_MAX)), arrivals: VecDeque::new() }
    }
}

impl Door {
    /// A place for one more. When all are taken, whoever has been silent longest makes room; if nobody is silent, the
    /// next one waits in the socket.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        self.arrivals.retain(|(_, task)| !task.is_finished());
        if let Some(silent) = self.arrivals.iter().position(|(asked, _)| !asked.load(Ordering::Relaxed))
            && let Some((_, task)) = self.arrivals.remove(silent)
        {
            task.abort();
        }
        Arc::clone(&self.places).acquire_owned().await.ok()
    }
}

/// One connection. It must say a whole request soon, and the next one soon after.
async fn answer(stream: TcpStream, app: Router, asked: Arc<AtomicBool>, _place: OwnedSemaphorePermit) {
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |request| {
        asked.store(true, Ordering::Relaxed);
        app.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream, READER_STALL_MAX)), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "an HTTP connection ended badly");
    }
}

async fn ready(State(desk): Shared) -> Response {
    match desk.call(|hub: &mut Hub| hub.stats().index_up).await {
        Some(true) => Json(json!({"status": "ready"})).into_response(),
        Some(false) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the document index cannot be reached"),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping"),
    }
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({"error": why}))).into_response()
}

/// Why a request gets no answer.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    why: String,
}

impl Refusal {
    fn new(status: StatusCode, why: impl Into<String>) -> Refusal {
        Refusal { status, why: why.into() }
    }

    /// The request makes no sense.
    fn bad(why: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, why)
    }

    /// What is asked for is not known.
    fn unknown(why: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, why)
    }

    /// The hub does not answer.
    fn stopping() -> Refusal {
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server is stopping, or has too much to do to answer",
        )
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        refuse(self.status, &self.why)
    }
}

/// A time in JSON: seconds, to the millisecond.
fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1_000.0
}
