//! Who is let in: not a foreign name, not a foreign page, and nobody without the token.

use super::{Shared, refuse};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;

/// Lets in who has the token, and no page of another origin: a browser that was led here by a foreign name
/// (`Host`) or page (`Origin`) gets nothing.
pub(super) async fn guard(State(desk): Shared, request: Request, next: Next) -> Response {
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
    said.is_some_and(|said| crate::server::same(said.as_bytes(), token.as_bytes()))
}
