//! `GET /api/stats`: how things stand, in one object.

use super::{Shared, refuse};
use crate::server::hub::Hub;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

pub(super) async fn stats(State(desk): Shared) -> Response {
    let look = |hub: &mut Hub| (hub.stats(), hub.politeness_failures());
    let Some((stats, politeness_failures)) = desk.call(look).await else {
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
        "robots": {
            "fetches": counted.robots_fetches,
            "failures": counted.robots_failures,
            "in_flight": now.robots_in_flight,
            "waiting": now.robots_waiting,
        },
        "handed_over": counted.handed_over,
        "waiting": {
            "spider": now.waiting.ready,
            "host": now.waiting.host,
            "ip": now.waiting.ip,
            "group": now.waiting.group,
            "address": now.unresolved,
            "robots": now.robots_waiting,
            "time": now.waiting_documents,
            "benched": now.benched,
            "stopped": now.stopped,
        },
        "paused": now.paused,
        "politeness_failures": politeness_failures,
        "urls_per_sec": stats.urls_per_sec,
        "uptime": stats.uptime.as_secs_f64(),
    }))
    .into_response()
}
