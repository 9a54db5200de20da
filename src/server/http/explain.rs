//! `GET /api/explain?url=…`: why a URL has, or has not, been sent.

use super::query::Query;
use super::{Desk, Refusal, Shared, hosts, seconds};
use crate::document::End;
use crate::index::Known;
use crate::observe::explain::{self, UrlFacts};
use crate::scheduler::look::{RobotsView, UrlPlace, UrlSearch};
use crate::server::clock::Clock;
use crate::server::hub::Hub;
use crate::time::Duration;
use crate::url::Url;
use axum::Json;
use axum::extract::{RawQuery, State};
use serde_json::{Map, Value, json};

/// Leases looked at between two turns of the hub.
const LOOKS_PER_CALL: usize = 10_000;
/// Longest wait for the index, which may have other things to do.
const INDEX_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn url(State(desk): Shared, RawQuery(query): RawQuery) -> Result<Json<Value>, Refusal> {
    let query = Query::parse(query.as_deref(), &["url"])?;
    let text = query.text("url").ok_or_else(|| Refusal::bad("which URL? ?url=…"))?;
    let url = Url::parse(text).map_err(|error| Refusal::bad(error.to_string()))?;
    // The index first: what it gives out meanwhile is found here then.
    let known = tokio::time::timeout(INDEX_TIMEOUT, desk.adder.look_up(url.clone())).await;
    let known = known.map_or(Known::Unsaid, |known| known.unwrap_or(Known::Unsaid));
    let facts = gather(&desk, &url, known).await?;
    Ok(Json(shown(&url, &facts)))
}

async fn gather(desk: &Desk, url: &Url, known: Known) -> Result<UrlFacts, Refusal> {
    let mut search = UrlSearch::new(url.clone());
    loop {
        let url = url.clone();
        let part = desk.call(move |hub: &mut Hub| {
            let place = hub.scheduler.search(hub.now(), &mut search, LOOKS_PER_CALL);
            match place {
                Some(place) => Ok(facts(hub, &url, place, known)),
                None => Err(search),
            }
        });
        match part.await.ok_or_else(Refusal::stopping)? {
            Ok(facts) => return Ok(facts),
            Err(unfinished) => search = unfinished,
        }
    }
}

fn facts(hub: &Hub, url: &Url, place: UrlPlace, known: Known) -> UrlFacts {
    let now = hub.now();
    let spider = match &place {
        UrlPlace::InFlight { spider, .. } => hub.by_spider.get(spider),
        _ => None,
    };
    // What was given out may not have been taken in yet.
    let arriving = place == UrlPlace::Absent && hub.is_arriving(url);
    UrlFacts {
        spider: spider.and_then(|id| hub.connections.get(id)).map(|connection| connection.peer),
        host: hub.scheduler.host(now, url.host()).or_else(|| hub.scheduler.ordered_host(now, url.host())),
        known: if arriving { Known::Given } else { known },
        robots: hub.scheduler.robots(now, url),
        max_attempts: hub.scheduler.max_attempts(),
        since_1970: Clock::since_1970().as_secs(),
        place,
    }
}

fn shown(url: &Url, facts: &UrlFacts) -> Value {
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
    put("url", url.as_str().into());
    put("why", explain::url(facts).into());
    put("state", state(facts).into());
    put("index", known_word(facts.known).into());
    put("robots", robots(&facts.robots));
    if let Known::Ended { end, at } = facts.known {
        put("end", end_words(end).into());
        put("ended_at", at.into());
    }
    match &facts.place {
        UrlPlace::Absent | UrlPlace::NotSeen => {}
        UrlPlace::Queued { doc, ahead } => {
            put("doc_id", doc.0.into());
            put("ahead", (*ahead).into());
        }
        UrlPlace::Again { doc, attempts } => {
            put("doc_id", doc.0.into());
            put("attempts", (*attempts).into());
        }
        UrlPlace::Reserved { doc, attempts } => {
            put("doc_id", doc.0.into());
            put("attempts", (*attempts).into());
        }
        UrlPlace::Later { doc, attempts, left } => {
            put("doc_id", doc.0.into());
            put("attempts", (*attempts).into());
            put("not_before_in", seconds(*left).into());
        }
        UrlPlace::InFlight { doc, attempts, ip, written, .. } => {
            put("doc_id", doc.0.into());
            put("attempts", (*attempts).into());
            put("ip", ip.to_string().into());
            put("spider", facts.spider.map(|spider| spider.to_string()).into());
            put("in_flight_for", written.map(seconds).into());
        }
    }
    put("host", facts.host.as_ref().map(hosts::whole).into());
    Value::Object(all)
}

/// Where the URL is, in one word.
fn state(facts: &UrlFacts) -> &'static str {
    match (&facts.place, facts.known) {
        (UrlPlace::Queued { .. } | UrlPlace::Again { .. }, _) => "queued",
        (UrlPlace::Later { .. }, _) => "delayed",
        (UrlPlace::InFlight { .. } | UrlPlace::Reserved { .. }, _) => "in_flight",
        (UrlPlace::Absent | UrlPlace::NotSeen, known) => known_word(known),
    }
}

fn known_word(known: Known) -> &'static str {
    match known {
        Known::Unknown => "unknown",
        Known::Waiting => "waiting",
        Known::Given => "given",
        Known::GivenOrEnded => "given_or_ended",
        Known::Ended { end: End::Done(_), .. } => "done",
        Known::Ended { end: End::Failed(_), .. } => "failed",
        Known::Ended { end: End::Denied(_), .. } => "denied",
        Known::Unsaid => "unsaid",
    }
}

fn end_words(end: End) -> String {
    match end {
        End::Done(outcome) => outcome.to_string(),
        End::Failed(reason) => reason.to_string(),
        End::Denied(reason) => reason.to_string(),
    }
}

fn robots(view: &RobotsView) -> Value {
    match view {
        RobotsView::Ignored => "ignored".into(),
        RobotsView::Unknown => "unknown".into(),
        RobotsView::Allowed => "allowed".into(),
        RobotsView::Denied { line, rule } => json!({"line": line, "rule": rule}),
        RobotsView::TooSlow { delay } => json!({"crawl_delay": delay.as_secs_f64()}),
    }
}
