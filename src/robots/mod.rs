//! Permission: what a web server's robots.txt says (RFC 9309).
//!
//! [`Rules`] are parsed once and asked for every URL; [`Fetcher`] makes one request and says what it came to.
//! Only the fetcher does I/O. Not here: when to ask, whom to ask next after a redirect, how long rules are
//! kept, what holds when nobody answers. Those belong to the scheduler, which is told each [`Answer`].

mod body;
mod delay;
mod fetch;
mod freshness;
mod parse;
mod pattern;
mod rules;

pub use fetch::{FetchLimits, Fetcher};
pub use rules::{Rules, Verdict};

use crate::document::Outcome;
use crate::time::Duration;
use crate::url::Url;

/// Only this much of a robots.txt is read, in bytes, after decompression: 500 KiB, the least that RFC 9309 asks for.
pub const BODY_MAX: usize = 500 * 1024;

/// What one request for a robots.txt came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// 2xx.
    Rules {
        /// What it says to us.
        rules: Rules,
        /// How long it may be believed, if the web server said so; without our bounds.
        max_age: Option<Duration>,
    },
    /// 4xx but 429, or a redirect to nowhere: everything is allowed.
    Missing {
        /// The HTTP status.
        status: u16,
    },
    /// 3xx to an http or https URL. It is not followed here: the next request must pass the gates of its own
    /// host.
    Moved {
        /// Where to.
        to: Url,
    },
    /// 429, 5xx and what is beyond.
    Refused {
        /// The HTTP status.
        status: u16,
        /// How long the web server asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// No answer that can be believed: [`Outcome::ConnectFailed`], [`Outcome::Timeout`] or
    /// [`Outcome::TlsFailed`]. A connection that breaks in the middle, or speaks no HTTP, is a failed one.
    Unreachable(Outcome),
}
