//! URLs as the whole server sees them: absolute http or https, normalised as browsers do.
//!
//! A [`Url`] cannot be wrong once it exists. Its host is the key of politeness: lower case,
//! punycode, no trailing dot, no port, so that http, https and every port of a name are one host.
//! In queues a URL is kept without its host's name, as a [`Tail`].

mod normal;

use std::fmt;
use thiserror::Error;

/// Longest URL, after normalisation, in bytes.
pub const URL_MAX: usize = 16 * 1024;

/// A URL that a spider can be given: printable ASCII, no space, no fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    text: Box<str>,
    host: HostPart,
}

/// Where the host's name is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum HostPart {
    /// Right after `scheme://`, this many bytes.
    Inline(u8),
    /// The text says it in another way: user name before it, or a trailing dot.
    Apart(Box<str>),
}

/// Why a text is not a URL for us.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum UrlError {
    /// No URL at all.
    #[error("not an absolute URL: {0}")]
    Syntax(#[from] url::ParseError),
    /// Another scheme.
    #[error("not an http or https URL")]
    Scheme,
    /// More than [`URL_MAX`] bytes.
    #[error("URL longer than {URL_MAX} bytes")]
    TooLong,
    /// A name that no DNS can know.
    #[error("host name longer than 253 bytes")]
    HostTooLong,
}

impl Url {
    /// Reads and normalises `text`.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        match normal::host_len(text.as_bytes()) {
            Some(len) if text.len() <= URL_MAX => Ok(Url { text: text.into(), host: HostPart::Inline(len) }),
            Some(_) | None => Self::parse_any(text),
        }
    }

    /// The same for any text, in normal form or not.
    fn parse_any(text: &str) -> Result<Url, UrlError> {
        if text.len() > URL_MAX {
            return Err(UrlError::TooLong);
        }
        let mut url = url::Url::parse(text)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UrlError::Scheme);
        }
        url.set_fragment(None);
        let host = url.host_str().ok_or(url::ParseError::EmptyHost)?;
        let key = host.strip_suffix('.').unwrap_or(host);
        if key.is_empty() {
            return Err(url::ParseError::EmptyHost.into());
        }
        if key.len() > 253 {
            return Err(UrlError::HostTooLong);
        }
        let inline = key.len() == host.len() && url.as_str()[url.scheme().len() + 3..].starts_with(key);
        let plain = inline && url.username().is_empty() && url.password().is_none();
        let host = if plain { HostPart::Inline(key.len() as u8) } else { HostPart::Apart(key.into()) };
        let text: String = url.into();
        if text.len() > URL_MAX {
            return Err(UrlError::TooLong);
        }
        Ok(Url { text: text.into(), host })
    }

    /// The whole URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The key of politeness.
    pub fn host(&self) -> &str {
        match &self.host {
            HostPart::Inline(len) => {
                let start = self.scheme_len();
                &self.text[start..start + usize::from(*len)]
            }
            HostPart::Apart(host) => host,
        }
    }

    /// The URL without its host.
    pub fn tail(&self) -> Tail<'_> {
        match &self.host {
            HostPart::Apart(_) => Tail { scheme: Scheme::Whole, rest: &self.text },
            HostPart::Inline(len) => {
                let start = self.scheme_len();
                let scheme = if start == HTTP.len() { Scheme::Http } else { Scheme::Https };
                Tail { scheme, rest: &self.text[start + usize::from(*len)..] }
            }
        }
    }

    /// The URL that `tail` was taken from. Not for strangers: nothing is checked here.
    pub(crate) fn from_tail(host: &str, tail: Tail<'_>) -> Url {
        let text = tail.parts(host).concat().into();
        let host = match tail.scheme {
            Scheme::Http | Scheme::Https => HostPart::Inline(host.len() as u8),
            Scheme::Whole => HostPart::Apart(host.into()),
        };
        Url { text, host }
    }

    fn scheme_len(&self) -> usize {
        if self.text.starts_with(HTTPS) { HTTPS.len() } else { HTTP.len() }
    }
}

/// A host as URLs spell it, so that both are found equal; `None` if no URL could have it.
pub fn host_name(text: &str) -> Option<String> {
    let host = url::Host::parse(text).ok()?.to_string();
    let name = host.strip_suffix('.').unwrap_or(&host);
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains('*') && name.len() <= 253;
    plain.then(|| name.to_owned())
}

const HTTP: &str = "http://";
const HTTPS: &str = "https://";

/// What comes before a tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// `http://` and the host.
    Http = 0,
    /// `https://` and the host.
    Https = 1,
    /// Nothing: the tail is the whole URL.
    Whole = 2,
}

impl Scheme {
    /// The scheme with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<Scheme> {
        match number {
            0 => Some(Scheme::Http),
            1 => Some(Scheme::Https),
            2 => Some(Scheme::Whole),
            _ => None,
        }
    }
}

/// A URL without its host's name: what queues hold. `rest` begins with the port or the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail<'a> {
    /// What stands before the host.
    pub scheme: Scheme,
    /// What stands behind it.
    pub rest: &'a str,
}

/// The same as bytes that nobody has looked at since they were put away: all that a line needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TailBytes<'a> {
    /// What stands before the host.
    pub scheme: Scheme,
    /// What stands behind it.
    pub rest: &'a [u8],
}

impl<'a> TailBytes<'a> {
    /// The tail that these are the bytes of. They are checked again, which costs less than an `unsafe` would.
    pub fn read(self) -> Tail<'a> {
        Tail { scheme: self.scheme, rest: std::str::from_utf8(self.rest).unwrap_or_default() }
    }
}

impl fmt::Debug for TailBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl<'a> Tail<'a> {
    /// Its bytes.
    pub fn bytes(self) -> TailBytes<'a> {
        TailBytes { scheme: self.scheme, rest: self.rest.as_bytes() }
    }
}

impl Tail<'_> {
    /// The port to connect to.
    pub fn port(&self) -> u16 {
        let default = match self.scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
            Scheme::Whole => {
                return url::Url::parse(self.rest)
                    .ok()
                    .and_then(|url| url.port_or_known_default())
                    .unwrap_or(80);
            }
        };
        let digits = |rest: &str| rest.split(['/', '?']).next().and_then(|digits| digits.parse().ok());
        self.rest.strip_prefix(':').and_then(digits).unwrap_or(default)
    }

    /// Whether it is https.
    pub fn is_secure(&self) -> bool {
        match self.scheme {
            Scheme::Http => false,
            Scheme::Https => true,
            Scheme::Whole => self.rest.starts_with(HTTPS),
        }
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        let authority = match self.scheme {
            Scheme::Http | Scheme::Https => self.rest,
            Scheme::Whole => self.rest.split_once("://").map_or(self.rest, |(_, authority)| authority),
        };
        authority.find('/').map_or("/", |start| &authority[start..])
    }

    /// The parts of the whole URL, to be written one after another.
    pub fn parts<'a>(&'a self, host: &'a str) -> [&'a str; 3] {
        match self.scheme {
            Scheme::Http => [HTTP, host, self.rest],
            Scheme::Https => [HTTPS, host, self.rest],
            Scheme::Whole => ["", "", self.rest],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, normal: &str, host: &str) {
        let url = Url::parse(text).expect(text);
        assert_eq!((url.as_str(), url.host()), (normal, host));
        assert_eq!(url.tail().parts(url.host()).concat(), normal);
        assert_eq!(Url::from_tail(url.host(), url.tail()), url);
        assert!(normal.bytes().all(|b| b.is_ascii_graphic()), "{normal}");
    }

    #[test]
    fn one_host_whatever_case_port_scheme_user_or_dot() {
        check("http://Example.COM", "http://example.com/", "example.com");
        check("HTTPS://example.com:443/a", "https://example.com/a", "example.com");
        check("http://example.com:8080/a?b#c", "http://example.com:8080/a?b", "example.com");
        check("http://example.com./a", "http://example.com./a", "example.com");
        check("http://u:p@example.com/a", "http://u:p@example.com/a", "example.com");
        check("http://blåbær.no/å b", "http://xn--blbr-roah.no/%C3%A5%20b", "xn--blbr-roah.no");
        check("http://[0:0::1]:81/", "http://[::1]:81/", "[::1]");
        check("http://0x7f.1/", "http://127.0.0.1/", "127.0.0.1");
    }

    #[test]
    fn a_user_named_like_the_host_is_no_host() {
        check("http://example.com@example.com/", "http://example.com@example.com/", "example.com");
        check("http://a.example:b@a.example/", "http://a.example:b@a.example/", "a.example");
    }

    #[test]
    fn the_port_is_the_one_to_connect_to() {
        for (text, port) in [
            ("http://a.example/", 80),
            ("https://a.example/:81", 443),
            ("http://a.example:8080/x", 8080),
            ("https://a.example:80", 80),
            ("http://u@a.example:81/", 81),
            ("https://a.example./", 443),
        ] {
            assert_eq!(Url::parse(text).expect(text).tail().port(), port, "{text}");
        }
    }

    #[test]
    fn the_path_is_what_rules_are_asked_about() {
        for (text, secure, path) in [
            ("http://a.example", false, "/"),
            ("https://a.example:81/x?y=/z", true, "/x?y=/z"),
            ("http://a.example?x", false, "/?x"),
            ("https://u:p@a.example:81/x/", true, "/x/"),
            ("http://a.example./x", false, "/x"),
        ] {
            let url = Url::parse(text).expect(text);
            assert_eq!((url.tail().is_secure(), url.tail().path()), (secure, path), "{text}");
        }
    }

    #[test]
    fn refusals_are_named() {
        assert_eq!(Url::parse("ftp://a/"), Err(UrlError::Scheme));
        assert_eq!(Url::parse("http://."), Err(url::ParseError::EmptyHost.into()));
        assert!(matches!(Url::parse("/relative"), Err(UrlError::Syntax(_))));
        assert_eq!(Url::parse(&format!("http://a/{}", "x".repeat(URL_MAX))), Err(UrlError::TooLong));
        assert_eq!(Url::parse(&format!("http://a/{}", "å".repeat(URL_MAX / 3))), Err(UrlError::TooLong));
        let long = format!("http://{}/", vec!["abcdefgh"; 32].join("."));
        assert_eq!(Url::parse(&long), Err(UrlError::HostTooLong));
    }
}
