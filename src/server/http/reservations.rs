//! Hosts for workers that ask instead of being sent to: `POST /api/reservations?urls=N`,
//! `POST /api/reservations/TOKEN/renew`, `DELETE /api/reservations/TOKEN`.

use super::{Desk, Shared, refuse};
use crate::document::Done;
use crate::ids::DocId;
use crate::scheduler::{ReleaseError, Reserved, Token};
use crate::server::clock::Clock;
use crate::server::hub::Hub;
use crate::wire::{command, number};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post};
use axum::{Json, Router};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// URLs of one reservation at most.
const URLS_MAX: u32 = 100;
/// Bytes of the outcomes of one reservation at most.
const BODY_MAX: usize = 64 * 1024;

pub(super) fn routes() -> Router<Arc<Desk>> {
    let release = delete(release).layer(DefaultBodyLimit::max(BODY_MAX));
    Router::new()
        .route("/api/reservations", post(reserve))
        .route("/api/reservations/{token}", release)
        .route("/api/reservations/{token}/renew", post(renew))
}

async fn reserve(State(desk): Shared, RawQuery(query): RawQuery) -> Response {
    let urls = match urls_wanted(query.as_deref().unwrap_or_default()) {
        Ok(urls) => urls,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    let Some(token) = random_token() else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the system gives no random numbers");
    };
    let reserve = move |hub: &mut Hub| {
        let reserved = hub.scheduler.poll_reservation(hub.now(), token, urls);
        hub.save_notes();
        reserved
    };
    match desk.call(reserve).await {
        Some(Some(reserved)) => Json(shown(token, &reserved)).into_response(),
        Some(None) => StatusCode::NO_CONTENT.into_response(),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping"),
    }
}

async fn renew(State(desk): Shared, Path(token): Path<String>) -> Response {
    let Some(token) = read_token(&token) else { return gone() };
    let renew = move |hub: &mut Hub| {
        let renewed = hub.scheduler.handle_renewed(hub.now(), token);
        hub.save_notes();
        renewed
    };
    match desk.call(renew).await {
        Some(Some(time)) => Json(json!({"expires_in": time.as_secs_f64()})).into_response(),
        Some(None) => gone(),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping"),
    }
}

async fn release(
    State(desk): Shared,
    Path(token): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return refuse(rejection.status(), &rejection.body_text()),
    };
    let outcomes = match read_outcomes(&body) {
        Ok(outcomes) => outcomes,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    let Some(token) = read_token(&token) else { return gone() };
    let release = move |hub: &mut Hub| hub.scheduler.handle_released(hub.now(), token, &outcomes);
    match desk.call(release).await {
        Some(Ok(())) => Json(json!({"released": true})).into_response(),
        Some(Err(ReleaseError::Gone)) => gone(),
        Some(Err(error @ ReleaseError::NotPart(_))) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping"),
    }
}

fn gone() -> Response {
    refuse(StatusCode::NOT_FOUND, &ReleaseError::Gone.to_string())
}

fn shown(token: Token, reserved: &Reserved) -> serde_json::Value {
    let urls = reserved.urls.iter();
    let urls = urls.map(|url| json!({"doc_id": url.doc.0, "ip": url.ip, "url": url.url}));
    json!({
        "token": token.to_string(),
        "host": reserved.host,
        "expires_in": reserved.expires_in.as_secs_f64(),
        "gap": reserved.gap.as_secs_f64(),
        "urls": urls.collect::<Vec<_>>(),
    })
}

/// `urls=N`, or nothing for one.
fn urls_wanted(query: &str) -> Result<u32, String> {
    if query.is_empty() {
        return Ok(1);
    }
    let count = query.strip_prefix("urls=").and_then(|count| number(count.as_bytes()));
    let count =
        count.and_then(|count| u32::try_from(count).ok()).filter(|count| (1..=URLS_MAX).contains(count));
    count.ok_or(format!("`?{query}`: must be `?urls=` once, with a number from 1 to {URLS_MAX}"))
}

/// `{"DOC_ID": "OUTCOME", …}`, or nothing.
fn read_outcomes(body: &[u8]) -> Result<Vec<(DocId, Done)>, String> {
    if body.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let said: BTreeMap<String, String> = serde_json::from_slice(body)
        .map_err(|error| format!("the body must be {{\"DOC_ID\": \"OUTCOME\", …}}: {error}"))?;
    let read = |(doc, text): (&String, &String)| {
        let id = number(doc.as_bytes()).ok_or(format!("`{doc}` is no DOC_ID"))?;
        let said = command::outcome(text)
            .ok_or(format!("document {id}: `{text}` is no outcome of the spider protocol"))?;
        Ok((DocId(id), said.at(Clock::since_1970())))
    };
    said.iter().map(read).collect()
}

fn random_token() -> Option<Token> {
    let mut bytes = [0; 16];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(Token(u128::from_be_bytes(bytes)))
}

/// Exactly as it was given.
fn read_token(text: &str) -> Option<Token> {
    let plain = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| plain).map(Token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Outcome;

    #[test]
    fn counts_are_read_and_everything_else_is_refused() {
        assert_eq!(urls_wanted(""), Ok(1));
        assert_eq!(urls_wanted("urls=1"), Ok(1));
        assert_eq!(urls_wanted("urls=100"), Ok(100));
        for bad in
            ["urls=0", "urls=101", "urls=-1", "urls=", "urls=x", "url=1", "urls=1&urls=2", "urls=4294967297"]
        {
            assert!(urls_wanted(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn outcomes_are_read_and_everything_else_is_refused() {
        let done = |outcome: Outcome| Done::from(outcome);
        assert_eq!(read_outcomes(b""), Ok(vec![]));
        assert_eq!(read_outcomes(b" {} "), Ok(vec![]));
        let both = read_outcomes(br#"{"7": "200", "8": "aborted"}"#);
        assert_eq!(
            both,
            Ok(vec![(DocId(7), done(Outcome::Status(200))), (DocId(8), done(Outcome::Aborted))])
        );
        for bad in [r#"{"7": "fine"}"#, r#"{"x": "200"}"#, r#"{"7": 200}"#, "[]", "{", "7", "\u{fe}"] {
            assert!(read_outcomes(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn tokens_are_read_as_they_were_written_and_differ() {
        let tokens = [random_token().expect("random"), random_token().expect("random")];
        assert_ne!(tokens[0], tokens[1]);
        for token in tokens {
            assert_eq!(read_token(&token.to_string()), Some(token));
        }
        for bad in ["", "7", "+0000000000000000000000000000000", "0000000000000000000000000000000G"] {
            assert_eq!(read_token(bad), None, "{bad}");
        }
    }
}
