//! `GET /api/hosts` and `GET /api/hosts/HOST`.
//!
//! A page costs one pass over all known hosts, in parts between which the hub does its work: some 60 ms of its time per
//! million hosts, a fraction of a millisecond each time, and no memory per host. An index by name would make pages cheap, but would cost every
//! host some fifty bytes and every new one a look-up, for a list that people seldom read to its end.

use super::query::{Query, host_name};
use super::{Desk, Refusal, Shared, seconds};
use crate::observe::explain;
use crate::scheduler::look::{AddressView, HealthView, HostBrief, HostPage, HostState, HostView, Owner};
use crate::server::hub::Hub;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use serde_json::{Value, json};

const LIMIT_MAX: usize = 1_000;
const LIMIT_DEFAULT: usize = 100;
/// Hosts looked at between two turns of the hub, and hosts of a page that are described.
const LOOKS_PER_CALL: usize = 4_000;
const VIEWS_PER_CALL: usize = 100;

pub(super) async fn list(State(desk): Shared, RawQuery(query): RawQuery) -> Result<Json<Value>, Refusal> {
    let query = Query::parse(query.as_deref(), &["state", "limit", "after"])?;
    let limit = query.number("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let state = query.text("state").map(host_state).transpose()?;
    let page = HostPage::new(query.text("after").unwrap_or_default(), state, limit);
    let (names, more) = fill(&desk, page).await?.finish();
    let next = names.last().filter(|_| more).cloned();
    let mut hosts = Vec::with_capacity(names.len());
    for names in names.chunks(VIEWS_PER_CALL) {
        let names = names.to_vec();
        let views = desk.call(move |hub: &mut Hub| {
            let now = hub.now();
            // One that is gone by now is not known any more.
            names.iter().filter_map(|name| hub.scheduler.host_brief(now, name)).collect::<Vec<HostBrief>>()
        });
        hosts.extend(views.await.ok_or_else(Refusal::stopping)?.iter().map(brief));
    }
    Ok(Json(json!({"hosts": hosts, "next": next})))
}

async fn fill(desk: &Desk, mut page: HostPage) -> Result<HostPage, Refusal> {
    loop {
        let part = desk.call(move |hub: &mut Hub| {
            let more = hub.scheduler.fill_page(hub.now(), &mut page, LOOKS_PER_CALL);
            (page, more)
        });
        let (filled, more) = part.await.ok_or_else(Refusal::stopping)?;
        if !more {
            return Ok(filled);
        }
        page = filled;
    }
}

fn host_state(word: &str) -> Result<HostState, Refusal> {
    let known = HostState::ALL.iter().find(|state| state.word() == word);
    known.copied().ok_or_else(|| {
        let words: Vec<&str> = HostState::ALL.iter().map(|state| state.word()).collect();
        Refusal::bad(format!("state must be one of {}, not {word:?}", words.join(", ")))
    })
}

pub(super) async fn one(
    State(desk): Shared,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    Query::parse(query.as_deref(), &[])?;
    let name = host_name(&path.map_err(|_| Refusal::bad("the path is not UTF-8"))?.0)?;
    let asked = name.clone();
    let view = desk.call(move |hub: &mut Hub| {
        let now = hub.now();
        hub.scheduler.host(now, &asked).or_else(|| hub.scheduler.ordered_host(now, &asked))
    });
    match view.await.ok_or_else(Refusal::stopping)? {
        Some(view) => Ok(Json(whole(&view))),
        None => Err(Refusal::unknown(format!("no such host is known: {name}"))),
    }
}

fn brief(view: &HostBrief) -> Value {
    json!({
        "host": view.name,
        "state": view.state.word(),
        "slot": view.slot.map(|slot| slot.number()),
        "queued": view.queued,
        "leftover": view.leftover,
        "in_flight": view.in_flight,
        "ip": view.ip,
    })
}

/// All that is known of a host.
pub(super) fn whole(view: &HostView) -> Value {
    let held = |(owner, left): &(Owner, _)| json!({"on": owner_word(owner), "for": seconds(*left)});
    let HostView { brief, .. } = view;
    json!({
        "host": brief.name,
        "state": brief.state.word(),
        "why": explain::host(view),
        "next_send_in": view.next_send_in.map(seconds),
        "slot": brief.slot.map(|slot| slot.number()),
        "queued": brief.queued,
        "leftover": brief.leftover,
        "in_flight": brief.in_flight,
        "ip": brief.ip,
        "addresses": view.addresses.iter().map(address).collect::<Vec<Value>>(),
        "alias": view.alias,
        "group": view.group,
        "gap": seconds(view.gap),
        "paused": view.orders.paused,
        "blocked_for": seconds(view.orders.blocked_for),
        "delay": seconds(view.orders.delay),
        "holds": view.holds.iter().map(held).collect::<Vec<Value>>(),
    })
}

fn address(view: &AddressView) -> Value {
    let mut value = json!({"ip": view.address, "health": health_word(view.health)});
    if let HealthView::Down(left) = view.health {
        value["until"] = seconds(left).into();
    }
    value
}

pub(super) fn health_word(health: HealthView) -> &'static str {
    match health {
        HealthView::Up => "up",
        HealthView::Down(_) => "down",
        HealthView::Suspect => "suspect",
    }
}

fn owner_word(owner: &Owner) -> String {
    match owner {
        Owner::Host => "host".to_owned(),
        Owner::Ip { address, .. } => format!("ip {address}"),
        Owner::Alias(name) => format!("alias {name}"),
        Owner::Group(name) => format!("group {name}"),
    }
}
