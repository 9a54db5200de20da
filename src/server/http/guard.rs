//! Who is let in: not a foreign name, not a foreign page, and nobody without the token.

use super::{Shared, refuse};
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, StatusCode, Version};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;

/// Lets in who has the token, and no page of another origin: a browser that was led here by a foreign name
/// (`Host`) or page (`Origin`) gets nothing.
pub(super) async fn guard(State(desk): Shared, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let (Ok(host), Ok(origin)) = (only(headers, header::HOST), only(headers, header::ORIGIN)) else {
        return refuse(StatusCode::BAD_REQUEST, "a Host or Origin header that makes no sense");
    };
    // Who speaks the first version of HTTP need not name anybody; a browser always does.
    if host.is_none() && request.version() >= Version::HTTP_11 {
        return refuse(StatusCode::BAD_REQUEST, "the Host header is missing");
    }
    let named = request.uri().authority().map(|authority| authority.as_str());
    if !host.into_iter().chain(named).all(is_our_name) {
        return refuse(
            StatusCode::FORBIDDEN,
            "the Host header must name this server by address or as localhost",
        );
    }
    let own = format!("http://{}", host.unwrap_or_default());
    if origin.is_some_and(|origin| origin != own) {
        return refuse(StatusCode::FORBIDDEN, "not from pages of another origin");
    }
    let open = request.uri().path() == "/healthz";
    if !open && !has_token(headers, desk.token.as_deref()) {
        return refuse(StatusCode::UNAUTHORIZED, "Authorization: Bearer TOKEN is needed");
    }
    next.run(request).await
}

/// More than one, or no text.
struct Odd;

/// The value of a header that may come once.
fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Odd> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Odd),
        (Some(_), Some(_)) => Err(Odd),
    }
}

/// A name that a foreign DNS cannot have led here: an address, or localhost.
fn is_our_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

fn has_token(headers: &HeaderMap, token: Option<&str>) -> bool {
    let Some(token) = token else { return true };
    let said = only(headers, header::AUTHORIZATION).ok().flatten().and_then(|said| said.split_once(' '));
    let said = said.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
    said.is_some_and(|said| crate::server::same(said.as_bytes(), token.as_bytes()))
}
