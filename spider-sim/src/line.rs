//! Lines from the server, read strictly: whatever the protocol does not promise is a fault.
//!
//! Deliberately not the server's own encoder read backwards: the same slip in both would be silent.

use std::net::IpAddr;
use thiserror::Error;
use urlserver::ids::{DocId, TransId};
use urlserver::url::{URL_MAX, Url, UrlError};

/// Longest line a server can have reason to send: two numbers, an address, a URL.
pub const LINE_MAX: usize = URL_MAX + 20 + 20 + 46 + 3;

/// What the server can say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// A URL to fetch.
    Work(Work),
    /// A line of ours was not understood; its reason.
    Error(String),
}

/// A URL to fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Work {
    /// The send.
    pub trans: TransId,
    /// The document.
    pub doc: DocId,
    /// Where to connect.
    pub ip: IpAddr,
    /// What to ask for.
    pub url: Url,
}

/// How a line breaks the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// A byte outside printable ASCII and space.
    #[error("byte {0:#04x} is not printable ASCII")]
    NotPrintable(u8),
    /// Neither a digit nor `ERROR`.
    #[error("it begins with neither a digit nor ERROR")]
    Beginning,
    /// An `ERROR` without a reason.
    #[error("ERROR comes without a reason")]
    NoReason,
    /// Less than four fields.
    #[error("it has {0} fields instead of 4")]
    Fields(usize),
    /// Not a decimal number below 2^64.
    #[error("its {0} is not a decimal number below 2^64")]
    Number(&'static str),
    /// `[::1]`.
    #[error("its address stands in brackets")]
    Brackets,
    /// Not an address.
    #[error("its address is none")]
    Address,
    /// A space in the URL, or something behind it.
    #[error("there is a space in or behind its URL")]
    Space,
    /// `#` in the URL.
    #[error("its URL has a fragment")]
    Fragment,
    /// Not a URL for a spider.
    #[error("its URL is unusable: {0}")]
    Url(#[from] UrlError),
    /// Not as browsers write it.
    #[error("its URL is not normalised: it should be {0}")]
    NotNormalised(String),
    /// The URL names one address, the line another.
    #[error("its URL names the address {0}")]
    OtherAddress(IpAddr),
    /// Longer than [`LINE_MAX`].
    #[error("it is longer than {LINE_MAX} bytes")]
    TooLong,
}

/// Reads one line, without its LF.
pub fn parse(line: &[u8]) -> Result<Line, Fault> {
    if let Some(&byte) = line.iter().find(|&&b| b != b' ' && !b.is_ascii_graphic()) {
        return Err(Fault::NotPrintable(byte));
    }
    let text = std::str::from_utf8(line).map_err(|_| Fault::NotPrintable(0x80))?;
    if let Some(reason) = text.strip_prefix("ERROR") {
        let reason = reason.strip_prefix(' ').filter(|r| !r.is_empty()).ok_or(Fault::NoReason)?;
        return Ok(Line::Error(reason.to_owned()));
    }
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Fault::Beginning);
    }
    work(text).map(Line::Work)
}

fn work(text: &str) -> Result<Work, Fault> {
    let fields: Vec<&str> = text.splitn(4, ' ').collect();
    let &[trans, doc, ip, url] = fields.as_slice() else { return Err(Fault::Fields(fields.len())) };
    let trans = TransId(number(trans, "TRANS_ID")?);
    let doc = DocId(number(doc, "DOC_ID")?);
    let ip = address(ip)?;
    let url = normalised(url)?;
    match literal(url.host()) {
        Some(named) if named != ip => Err(Fault::OtherAddress(named)),
        Some(_) | None => Ok(Work { trans, doc, ip, url }),
    }
}

fn number(text: &str, name: &'static str) -> Result<u64, Fault> {
    // `parse` alone would take `+1`.
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fault::Number(name));
    }
    text.parse().map_err(|_| Fault::Number(name))
}

fn address(text: &str) -> Result<IpAddr, Fault> {
    if text.starts_with('[') {
        return Err(Fault::Brackets);
    }
    text.parse().map_err(|_| Fault::Address)
}

fn normalised(text: &str) -> Result<Url, Fault> {
    if text.contains(' ') {
        return Err(Fault::Space);
    }
    if text.contains('#') {
        return Err(Fault::Fragment);
    }
    let url = Url::parse(text)?;
    if url.as_str() == text { Ok(url) } else { Err(Fault::NotNormalised(url.as_str().to_owned())) }
}

/// The address that a host written as one names. v4-mapped ones are their IPv4 address.
fn literal(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn fault(line: &str, expected: Fault) {
        assert_eq!(parse(line.as_bytes()), Err(expected), "{line}");
    }

    #[test]
    fn good_lines_are_read() {
        let Line::Work(work) = parse(b"18446744073709551615 7 ::1 http://a.example/x?y").unwrap() else {
            panic!("work expected")
        };
        assert_eq!((work.trans, work.doc), (TransId(u64::MAX), DocId(7)));
        assert_eq!((work.ip, work.url.host()), ("::1".parse().unwrap(), "a.example"));
        assert_eq!(parse(b"ERROR unknown verb"), Ok(Line::Error("unknown verb".into())));
        assert!(parse(b"1 2 127.0.0.1 http://127.0.0.1/").is_ok());
        assert!(parse(b"1 2 ::1 http://[::1]:81/").is_ok());
    }

    #[test]
    fn every_deviation_has_its_name() {
        fault("hello", Fault::Beginning);
        fault("", Fault::Beginning);
        fault("ERROR", Fault::NoReason);
        fault("ERROR ", Fault::NoReason);
        fault("1 2 192.0.2.1", Fault::Fields(3));
        fault("1x 2 192.0.2.1 http://a/", Fault::Number("TRANS_ID"));
        fault("1 +2 192.0.2.1 http://a/", Fault::Number("DOC_ID"));
        fault("1 18446744073709551616 192.0.2.1 http://a/", Fault::Number("DOC_ID"));
        fault("1 2 [::1] http://a/", Fault::Brackets);
        fault("1 2 a.example http://a/", Fault::Address);
        fault("1  2 192.0.2.1 http://a/", Fault::Number("DOC_ID"));
        fault("1 2 192.0.2.1 http://a/ ", Fault::Space);
        fault("1 2 192.0.2.1 http://a/#b", Fault::Fragment);
        fault("1 2 192.0.2.1 ftp://a/", Fault::Url(UrlError::Scheme));
        fault("1 2 192.0.2.1 http://A/", Fault::NotNormalised("http://a/".into()));
        fault("1 2 192.0.2.1 http://a/\r", Fault::NotPrintable(b'\r'));
        fault("1 2 192.0.2.1 http://å/", Fault::NotPrintable(0xc3));
        fault("1 2 192.0.2.1 http://127.0.0.1/", Fault::OtherAddress("127.0.0.1".parse().unwrap()));
    }
}
