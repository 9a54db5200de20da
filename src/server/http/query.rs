//! What a request asks for: parameters, and names in paths. Each is refused by name if it makes no sense.

use super::Refusal;
use crate::url;
use std::fmt::Display;
use std::str::FromStr;

/// The parameters of a request, none of them twice.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads `name=value&…`; only the names in `allowed` may occur.
    pub(super) fn parse(query: Option<&str>, allowed: &[&str]) -> Result<Query, Refusal> {
        let mut all: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if !allowed.contains(&&*name) {
                let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                let hint = "write & as %26 where it belongs to a value";
                return Err(Refusal::bad(format!(
                    "no such parameter here: {name:?}; there are: {allowed} ({hint})"
                )));
            }
            if all.iter().any(|(other, _)| *other == name) {
                return Err(Refusal::bad(format!("{name} is given twice")));
            }
            all.push((name, value));
        }
        Ok(Query(all))
    }

    /// The value of a parameter, if it is given.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A number between two bounds, both allowed.
    pub(super) fn number<T>(&self, name: &str, min: T, max: T) -> Result<Option<T>, Refusal>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && (&min..=&max).contains(&number));
        match number {
            Some(number) => Ok(Some(number)),
            None => {
                Err(Refusal::bad(format!("{name} must be a whole number from {min} to {max}, not {text:?}")))
            }
        }
    }
}

/// `%41` is `A`, `+` is a space. What is not UTF-8 then, or no escape at all, is refused.
fn decode(text: &str) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = (rest.next().and_then(hex), rest.next().and_then(hex));
                let (Some(high), Some(low)) = digits else {
                    return Err(Refusal::bad("a % must be followed by two hexadecimal digits"));
                };
                high << 4 | low
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| Refusal::bad("the query is not UTF-8"))
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// A host's name as it is in URLs: lower case, punycode, no trailing dot.
pub(super) fn host_name(text: &str) -> Result<Box<str>, Refusal> {
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    let name = if bare_v6 { url::host_name(&format!("[{text}]")) } else { url::host_name(text) };
    name.map(Into::into).ok_or_else(|| Refusal::bad(format!("not a host name: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, Refusal> {
        Query::parse(Some(text), &["url", "limit"])
    }

    #[test]
    fn parameters_are_decoded_and_none_may_come_twice() {
        let all = query("url=http%3A%2F%2Fa%2F%C3%A5+b&limit=7").expect("a query");
        assert_eq!(all.text("url"), Some("http://a/å b"));
        assert_eq!(all.number("limit", 1, 10).expect("a number"), Some(7));
        assert!(Query::parse(None, &[]).expect("nothing").0.is_empty());
        for bad in ["url=a&url=b", "url=%zz", "url=%4", "url=%ff", "u%72l=a&url=a", "url=a&x=1", "=", "%00"] {
            assert!(query(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_have_bounds_and_no_other_form() {
        for bad in ["0", "-1", "11", "1e9", "+1", " 1", "", "99999999999999999999", "0x1", "1.0"] {
            let query = query(&format!("limit={}", bad.replace('+', "%2B"))).expect("a query");
            assert!(query.number("limit", 1, 10).is_err(), "{bad}");
        }
    }

    #[test]
    fn host_names_are_those_of_urls() {
        for (text, name) in [
            ("WWW.Example.COM.", "www.example.com"),
            ("blåbær.no", "xn--blbr-roah.no"),
            ("192.0.2.7", "192.0.2.7"),
            ("[::1]", "[::1]"),
            ("::1", "[::1]"),
            ("a%2eexample", "a.example"),
        ] {
            assert_eq!(host_name(text).ok().as_deref(), Some(name), "{text}");
        }
        for bad in
            ["", ".", "a/b", "a:80", "a:8080", "[::1]:80", "u@a", "a?b", "a#b", "a b", "a\\b", "a\n", "\0"]
        {
            assert!(host_name(bad).is_err(), "{bad:?}");
        }
    }
}
