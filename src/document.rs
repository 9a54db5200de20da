//! The life of a document: the index offers it as a candidate, a spider says how its fetch ended, and
//! the index is told the end of it.

use crate::ids::DocId;
use crate::time::Duration;
use crate::url::Url;
use std::fmt;
use std::net::IpAddr;

/// A document that the index would like to have fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its name in the index.
    pub doc: DocId,
    /// What to fetch.
    pub url: Url,
    /// Use this address, ask no DNS.
    pub ip: Option<IpAddr>,
    /// Not before this much time has passed.
    pub wait: Duration,
    /// How often it was sent before, by others.
    pub tried: Tried,
}

/// Sends of a document that did not end it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tried {
    /// All of them.
    pub sends: u32,
    /// Those that ended with the loss of the spider.
    pub lost: u32,
}

/// How a fetch ended, in the spider's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The spider says nothing of success, as in the original protocol.
    Unsaid,
    /// HTTP status, three digits.
    Status(u16),
    /// No TCP connection.
    ConnectFailed,
    /// Connected, or trying to, but no answer in time.
    Timeout,
    /// No TLS session.
    TlsFailed,
    /// The spider's own look-up failed.
    DnsFailed,
    /// The spider gave up for reasons of its own.
    Aborted,
}

impl fmt::Display for Outcome {
    /// The word of the protocol; empty for [`Outcome::Unsaid`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Unsaid => Ok(()),
            Outcome::Status(code) => write!(f, "{code:03}"),
            Outcome::ConnectFailed => f.write_str("connect-failed"),
            Outcome::Timeout => f.write_str("timeout"),
            Outcome::TlsFailed => f.write_str("tls-failed"),
            Outcome::DnsFailed => f.write_str("dns-failed"),
            Outcome::Aborted => f.write_str("aborted"),
        }
    }
}

/// A DONE with all that was said beside it. Dates are already turned into delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// How the fetch ended.
    pub outcome: Outcome,
    /// How long the web server asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl From<Outcome> for Done {
    fn from(outcome: Outcome) -> Self {
        Done { outcome, retry_after: None }
    }
}

/// Why a document was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailReason {
    /// `max_attempts` sends, and this is how the last one ended.
    Outcome(Outcome),
    /// `max_attempts` sends, and no status came in time for the last one.
    Expired,
    /// `max_attempts` sends, and the last connection was lost.
    ConnectionLost,
    /// Every one of its sends ended with the loss of the spider.
    Poison,
    /// Its host has no address.
    Dns,
    /// The robots.txt of its origin could not be had, however often it was asked for.
    Robots,
    /// The index gave more candidates than it was asked for.
    Surplus,
    /// Not an http or https URL that a spider could fetch.
    BadUrl,
}

impl FailReason {
    /// All but the outcomes of fetches.
    pub const PLAIN: &[FailReason] = &[
        FailReason::Expired,
        FailReason::ConnectionLost,
        FailReason::Poison,
        FailReason::Dns,
        FailReason::Surplus,
        FailReason::BadUrl,
        FailReason::Robots,
    ];
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailReason::Outcome(outcome) => outcome.fmt(f),
            FailReason::Expired => f.write_str("expired"),
            FailReason::ConnectionLost => f.write_str("connection-lost"),
            FailReason::Poison => f.write_str("poison"),
            FailReason::Dns => f.write_str("dns"),
            FailReason::Robots => f.write_str("robots"),
            FailReason::Surplus => f.write_str("surplus"),
            FailReason::BadUrl => f.write_str("bad-url"),
        }
    }
}

/// Why a document may not be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DenyReason {
    /// Its address is not public, and `allow_private` is off.
    PrivateAddress,
    /// The robots.txt of its origin says so.
    Robots,
    /// Its origin asks for a longer Crawl-delay than `crawl_delay_max`.
    CrawlDelay,
}

impl DenyReason {
    /// All of them.
    pub const ALL: &[DenyReason] = &[DenyReason::PrivateAddress, DenyReason::Robots, DenyReason::CrawlDelay];
}

impl fmt::Display for DenyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DenyReason::PrivateAddress => f.write_str("private-address"),
            DenyReason::Robots => f.write_str("robots"),
            DenyReason::CrawlDelay => f.write_str("crawl-delay"),
        }
    }
}

/// The end of a document, told to the index once per candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Which document.
    pub doc: DocId,
    /// How it ended.
    pub end: End,
}

/// How a document ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Fetched, with or without success.
    Done(Outcome),
    /// Given up.
    Failed(FailReason),
    /// Not allowed.
    Denied(DenyReason),
}

impl fmt::Display for Report {
    /// The line of the index protocol, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doc = self.doc;
        match self.end {
            End::Done(Outcome::Unsaid) => write!(f, "{doc} DONE"),
            End::Done(outcome) => write!(f, "{doc} DONE {outcome}"),
            End::Failed(reason) => write!(f, "{doc} FAILED {reason}"),
            End::Denied(reason) => write!(f, "{doc} DENIED {reason}"),
        }
    }
}
