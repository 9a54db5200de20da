//! Operators' orders: `POST /api/hosts/HOST/pause`, `/resume`, `/block?seconds=`, `/delay?seconds=`, and the same
//! for everything: `POST /api/pause`, `/api/resume`.

use super::query::host_name;
use super::{Desk, Refusal, Shared, refuse};
use crate::order::{Order, Standing, Subject};
use crate::server::claims::Obedience;
use crate::server::hub::Hub;
use crate::settings::{DURATION_MAX, duration};
use crate::time::Duration;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::json;
use std::sync::Arc;

/// What may stand behind `seconds=`.
const SECONDS: &str = "a number of seconds from 0 to 3153600000, or one with a unit (`500ms`, `2m`, `1h`)";

pub(super) fn routes() -> Router<Arc<Desk>> {
    Router::new()
        .route("/api/hosts/{host}/{order}", post(order))
        .route("/api/pause", post(|desk: Shared, query: RawQuery| pause_all(desk, query, true)))
        .route("/api/resume", post(|desk: Shared, query: RawQuery| pause_all(desk, query, false)))
}

async fn order(
    State(desk): Shared,
    Path((host, order)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let host = match host_name(&host) {
        Ok(host) => host,
        Err(refusal) => return refusal.into_response(),
    };
    let order = match read_order(&order, query.as_deref().unwrap_or_default()) {
        Ok(Some(order)) => order,
        Ok(None) => {
            let why = "no such order; there are pause, resume, block and delay";
            return refuse(StatusCode::NOT_FOUND, why);
        }
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    match obey(&desk, Subject::Host { host: host.clone(), order }).await {
        Ok(standing) => Json(shown(&host, standing)).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn pause_all(State(desk): Shared, RawQuery(query): RawQuery, paused: bool) -> Response {
    if let Err(why) = no_parameters(query.as_deref().unwrap_or_default()) {
        return refuse(StatusCode::BAD_REQUEST, &why);
    }
    match obey(&desk, Subject::All { paused }).await {
        Ok(Standing { paused, .. }) => Json(json!({"paused": paused})).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Has an order obeyed, and says what stands then.
async fn obey(desk: &Desk, subject: Subject) -> Result<Standing, Refusal> {
    let unavailable = |why: &str| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
    let stopping = || unavailable("the server is stopping");
    match desk.call(move |hub: &mut Hub| hub.obey_operator(subject)).await.ok_or_else(stopping)? {
        Obedience::Now(result) => {
            result.map_err(|full| Refusal::new(StatusCode::INSUFFICIENT_STORAGE, full.to_string()))
        }
        Obedience::Later(answer) => {
            answer.await.map_err(|_| stopping())?.map_err(|not| unavailable(&not.to_string()))
        }
    }
}

fn shown(host: &str, standing: Standing) -> serde_json::Value {
    json!({
        "host": host,
        "paused": standing.paused,
        "blocked_for": standing.blocked_for.as_secs_f64(),
        "delay": standing.delay.as_secs_f64(),
    })
}

/// The order that the path and the query spell; `None` if there is no such one.
fn read_order(order: &str, query: &str) -> Result<Option<Order>, String> {
    Ok(Some(match order {
        "pause" => no_parameters(query).map(|()| Order::Pause)?,
        "resume" => no_parameters(query).map(|()| Order::Resume)?,
        "block" => Order::Block(seconds(query)?),
        "delay" => Order::Delay(seconds(query)?),
        _ => return Ok(None),
    }))
}

fn no_parameters(query: &str) -> Result<(), String> {
    match query {
        "" => Ok(()),
        _ => Err(format!("`{query}` means nothing here; there are no parameters")),
    }
}

/// The only parameter there is, exactly once.
fn seconds(query: &str) -> Result<Duration, String> {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    match (pairs.next(), pairs.next()) {
        (Some((name, value)), None) if name == "seconds" => {
            let time = duration(&value).filter(|&time| time <= DURATION_MAX);
            time.ok_or(format!("seconds={value}: must be {SECONDS}"))
        }
        _ => Err(format!("`?{query}`: must be `?seconds=` once, with {SECONDS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_and_everything_else_is_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(read_order("pause", ""), Ok(Some(Order::Pause)));
        assert_eq!(read_order("resume", ""), Ok(Some(Order::Resume)));
        assert_eq!(read_order("block", "seconds=1"), Ok(Some(Order::Block(second))));
        assert_eq!(read_order("block", "seconds=0"), Ok(Some(Order::Block(Duration::ZERO))));
        assert_eq!(read_order("delay", "seconds=0.5"), Ok(Some(Order::Delay(second / 2))));
        assert_eq!(read_order("delay", "seconds=3153600000"), Ok(Some(Order::Delay(DURATION_MAX))));
        assert_eq!(read_order("stop", ""), Ok(None));
        for bad in ["", "seconds", "seconds=", "seconds=x", "seconds=-1", "seconds=NaN", "seconds=inf"] {
            assert!(read_order("block", bad).is_err(), "{bad}");
        }
        for bad in
            ["seconds=1&seconds=2", "second=1", "seconds=1&x=2", "seconds=3153600000.1", "seconds=1e300"]
        {
            assert!(read_order("delay", bad).is_err(), "{bad}");
        }
        assert!(read_order("pause", "seconds=1").is_err());
    }
}
