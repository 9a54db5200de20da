//! `GET /api/ips/IP`.

use super::hosts::health_word;
use super::query::Query;
use super::{Refusal, Shared, seconds};
use crate::hostdb::normalised;
use crate::scheduler::look::HealthView;
use crate::server::hub::Hub;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use serde_json::{Value, json};
use std::net::IpAddr;

pub(super) async fn one(
    State(desk): Shared,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::parse(query.as_deref(), &[])?;
    let text = path.map_err(|_| Refusal::bad("the path is not UTF-8"))?.0;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(&text);
    let address: IpAddr = bare.parse().map_err(|_| Refusal::bad(format!("not an IP address: {text:?}")))?;
    let address = normalised(address);
    let view = desk.call(move |hub: &mut Hub| hub.scheduler.ip(hub.now(), address));
    let Some(view) = view.await.ok_or_else(Refusal::stopping)? else {
        return Err(Refusal::unknown(format!("no such address is known: {address}")));
    };
    let until = match view.health {
        HealthView::Down(left) => Some(seconds(left)),
        HealthView::Up | HealthView::Suspect => None,
    };
    Ok(Json(json!({
        "ip": view.address,
        "host_count": view.host_count,
        "hosts": view.hosts,
        "pending": view.pending,
        "in_flight": view.in_flight,
        "health": health_word(view.health),
        "until": until,
        "next_send_in": view.next_send_in.map(seconds),
        "gap": seconds(view.gap),
    })))
}
