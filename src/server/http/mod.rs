//! The HTTP interface.

mod control;
mod guard;
mod reservations;
mod stats;

use super::hub::{Event, Hub};
use crate::time::Duration;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// HTTP connections at the same time: none of them may cost a spider its place.
const CONNECTIONS_MAX: usize = 64;
/// Longest wait for a request's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait before accepting again after the system refused to.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for the hub, which answers in microseconds if it is well.
const HUB_TIMEOUT: Duration = Duration::from_secs(2);

struct Desk {
    events: mpsc::Sender<Event>,
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
pub(super) async fn serve(listener: TcpListener, events: mpsc::Sender<Event>, token: Option<String>) {
    let desk = Arc::new(Desk { events, token });
    let app = Router::new()
        .route("/healthz", get(|| async { Json(json!({"status": "alive"})) }))
        .route("/readyz", get(ready))
        .route("/api/stats", get(stats::stats))
        .merge(control::routes())
        .merge(reservations::routes())
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "not with this method")
        })
        .layer(from_fn_with_state(Arc::clone(&desk), guard::guard))
        .with_state(desk);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Who comes when all places are taken waits in the socket.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer(stream, app.clone(), place))),
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection. It must say a whole request soon, and the next one soon after.
async fn answer(stream: TcpStream, app: Router, _place: OwnedSemaphorePermit) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
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
