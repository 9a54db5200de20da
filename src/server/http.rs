//! The HTTP interface.

use super::hub::{Event, ServerStats};
use crate::time::Duration;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use std::net::IpAddr;
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

/// Answers for ever.
pub(super) async fn serve(listener: TcpListener, events: mpsc::Sender<Event>, token: Option<String>) {
    let desk = Arc::new(Desk { events, token });
    let app = Router::new()
        .route("/healthz", get(|| async { Json(json!({"status": "alive"})) }))
        .route("/readyz", get(ready))
        .route("/api/stats", get(stats))
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "not with this method")
        })
        .layer(from_fn_with_state(Arc::clone(&desk), guard))
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
    match ask(&desk).await {
        Some(stats) if stats.index_up => Json(json!({"status": "ready"})).into_response(),
        Some(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the document index cannot be reached"),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping"),
    }
}

async fn stats(State(desk): Shared) -> Response {
    let Some(stats) = ask(&desk).await else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping");
    };
    let (now, counted) = (stats.scheduler, stats.scheduler.counters);
    Json(json!({
        "queued": now.queued,
        "leftover": now.leftover,
        "in_flight": now.in_flight,
        "slots": now.slots,
        "slots_bound": now.slots_bound,
        "spiders": now.spiders,
        "hosts": now.hosts,
        "addresses": now.addresses,
        "sent": counted.sent,
        "done": counted.done,
        "failed": counted.failed + stats.faulty_candidates,
        "denied": counted.denied,
        "retried": counted.retried,
        "expired": counted.expired,
        "stale_status": counted.stale_status,
        "malformed_lines": stats.malformed_lines,
        "duplicate_candidates": counted.duplicates,
        "faulty_candidates": stats.faulty_candidates,
        "index_requests": counted.index_requests,
        "index_up": stats.index_up,
        "lookups": counted.lookups,
        "lookups_unanswered": counted.lookups_unanswered,
        "addresses_down": counted.addresses_down,
        "holds": counted.holds,
        "waiting": {
            "spider": now.waiting.ready,
            "host": now.waiting.host,
            "ip": now.waiting.ip,
            "group": now.waiting.group,
            "address": now.unresolved,
            "time": now.waiting_documents,
            "benched": now.benched,
        },
        "urls_per_sec": stats.urls_per_sec,
        "uptime": stats.uptime.as_secs_f64(),
    }))
    .into_response()
}

async fn ask(desk: &Desk) -> Option<ServerStats> {
    let (reply, answer) = oneshot::channel();
    desk.events.send(Event::Stats(reply)).await.ok()?;
    tokio::time::timeout(HUB_TIMEOUT, answer).await.ok()?.ok()
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({"error": why}))).into_response()
}

/// Lets in who has the token, and no page of another origin: a browser that was led here by a foreign name
/// (`Host`) or page (`Origin`) gets nothing.
async fn guard(State(desk): Shared, request: Request, next: Next) -> Response {
    if !is_our_name(request.headers()) {
        return refuse(
            StatusCode::FORBIDDEN,
            "the Host header must name this server by address or as localhost",
        );
    }
    if !is_our_page(request.headers()) {
        return refuse(StatusCode::FORBIDDEN, "not from pages of another origin");
    }
    let open = request.uri().path() == "/healthz";
    if !open && !has_token(request.headers(), desk.token.as_deref()) {
        return refuse(StatusCode::UNAUTHORIZED, "Authorization: Bearer TOKEN is needed");
    }
    next.run(request).await
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// A name that a foreign DNS cannot have led here: an address, or localhost.
fn is_our_name(headers: &HeaderMap) -> bool {
    let Some(host) = text(headers, header::HOST) else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

fn is_our_page(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let host = text(headers, header::HOST).unwrap_or_default();
    origin.to_str().is_ok_and(|origin| origin == format!("http://{host}"))
}

fn has_token(headers: &HeaderMap, token: Option<&str>) -> bool {
    let Some(token) = token else { return true };
    let said = text(headers, header::AUTHORIZATION).and_then(|said| said.split_once(' '));
    let said = said.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
    said.is_some_and(|said| super::same(said.as_bytes(), token.as_bytes()))
}
