//! How long an answer may be believed (RFC 9111), as far as it matters for a robots.txt.

use crate::time::Duration;
use hyper::header::{self, HeaderMap};
use std::time::SystemTime;

/// What `Cache-Control` says, else `Expires`, less the age that the answer already has. `None`: they are silent.
/// `unix_now`: time since 1970, for web servers that do not say theirs.
pub(super) fn max_age(headers: &HeaderMap, unix_now: Duration) -> Option<Duration> {
    let age = text(headers, &header::AGE).and_then(seconds).unwrap_or_default();
    if let Some(lifetime) = cache_control(headers) {
        return Some(lifetime.saturating_sub(age));
    }
    // A date that cannot be read, as `0` or `-1`, is in the past.
    let expires =
        headers.get(header::EXPIRES).map(|_| date(headers, &header::EXPIRES).unwrap_or_default())?;
    let sent = date(headers, &header::DATE).unwrap_or(unix_now);
    Some(expires.saturating_sub(sent).saturating_sub(age))
}

/// The shortest lifetime that any directive gives.
fn cache_control(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).filter_map(directive).min()
}

fn directive(text: &str) -> Option<Duration> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    match name.trim().to_ascii_lowercase().as_str() {
        "no-cache" | "no-store" => Some(Duration::ZERO),
        // A lifetime that cannot be read has passed.
        "max-age" => Some(seconds(value.trim().trim_matches('"')).unwrap_or_default()),
        _ => None,
    }
}

/// Whole seconds; more than a number can hold are very many.
fn seconds(digits: &str) -> Option<Duration> {
    let digits = digits.trim();
    let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    number.then(|| Duration::from_secs(digits.parse().unwrap_or(u64::MAX)))
}

fn date(headers: &HeaderMap, name: &header::HeaderName) -> Option<Duration> {
    let date = httpdate::parse_http_date(text(headers, name)?).ok()?;
    date.duration_since(SystemTime::UNIX_EPOCH).ok()
}

fn text<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};

    const NOW: Duration = Duration::from_secs(784_111_777);

    #[track_caller]
    fn check(lines: &[&str], expected: Option<u64>) {
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a header");
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        assert_eq!(max_age(&headers, NOW), expected.map(Duration::from_secs), "{lines:?}");
    }

    #[test]
    fn silence_is_none() {
        check(&[], None);
        check(&["Cache-Control: public, must-revalidate", "Age: 7"], None);
    }

    #[test]
    fn max_age_counts_from_when_the_answer_was_made() {
        check(&["Cache-Control: public, Max-Age=600"], Some(600));
        check(&["Cache-Control: max-age=600", "Age: 100"], Some(500));
        check(&["Cache-Control: max-age=600", "Age: 1000"], Some(0));
        check(&["Cache-Control: max-age=600", "Age: old"], Some(600));
        check(&["Cache-Control: max-age=\"600\""], Some(600));
        check(&["Cache-Control: s-maxage=5, x-max-age=6, max-age=600"], Some(600));
        check(&["Cache-Control: max-age=99999999999999999999999"], Some(u64::MAX));
    }

    #[test]
    fn the_shortest_directive_wins() {
        check(&["Cache-Control: max-age=600", "Cache-Control: max-age=60"], Some(60));
        check(&["Cache-Control: max-age=600, no-cache"], Some(0));
        check(&["Cache-Control: no-store"], Some(0));
        check(&["Cache-Control: max-age=-5"], Some(0));
        check(&["Cache-Control: max-age"], Some(0));
    }

    #[test]
    fn expires_is_heard_if_cache_control_is_silent() {
        check(&["Expires: Sun, 06 Nov 1994 08:51:17 GMT"], Some(100));
        check(&["Expires: Sun, 06 Nov 1994 08:51:17 GMT", "Date: Sun, 06 Nov 1994 08:51:07 GMT"], Some(10));
        check(&["Expires: Sun, 06 Nov 1994 08:51:17 GMT", "Age: 30"], Some(70));
        check(&["Expires: Sun, 06 Nov 1994 08:51:17 GMT", "Cache-Control: max-age=5"], Some(5));
        check(&["Expires: Sat, 05 Nov 1994 08:51:17 GMT"], Some(0));
        check(&["Expires: 0"], Some(0));
        check(&["Expires: -1"], Some(0));
    }
}
