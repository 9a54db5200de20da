//! `GET /metrics`: for Prometheus.

use super::{Refusal, Shared};
use crate::observe::metrics::{self, Snapshot};
use crate::server::hub::Hub;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

pub(super) async fn metrics(State(desk): Shared, headers: HeaderMap) -> Result<Response, Refusal> {
    let snapshot = desk.call(|hub: &mut Hub| snapshot(hub)).await.ok_or_else(Refusal::stopping)?;
    let accepted = headers.get_all(header::ACCEPT).iter();
    let open = accepted.filter_map(|accepted| accepted.to_str().ok()).any(|a| a.contains("openmetrics-text"));
    let (kind, text) = if open {
        (metrics::OPEN, metrics::open(snapshot))
    } else {
        (metrics::CLASSIC, metrics::classic(snapshot))
    };
    let text = text.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn snapshot(hub: &Hub) -> Snapshot {
    let stats = hub.stats();
    Snapshot {
        scheduler: stats.scheduler,
        timings: *hub.scheduler.timings(),
        index: hub.around.index.counters().all().collect(),
        index_up: stats.index_up,
        malformed_lines: stats.malformed_lines,
        faulty_candidates: stats.faulty_candidates,
        politeness_failures: hub.politeness_failures(),
        uptime: stats.uptime,
    }
}
