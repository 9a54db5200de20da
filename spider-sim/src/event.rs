//! What one spider saw and did, as values for the auditor.

use crate::violation::Violation;
use std::net::IpAddr;
use urlserver::document::{Done, Outcome};
use urlserver::ids::{DocId, TransId};
use urlserver::time::Instant;
use urlserver::url::Url;

/// Something that happened at one spider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A URL was read.
    Sent(Sent),
    /// A WORKING was handed to the driver.
    Working {
        /// When.
        at: Instant,
        /// For which send.
        trans: TransId,
    },
    /// A DONE was handed to the driver; the server reads it later than that, or never.
    Done {
        /// When.
        at: Instant,
        /// For which send.
        trans: TransId,
        /// What it says.
        done: Done,
    },
    /// The connection is gone, and with it everything in flight on it.
    Closed {
        /// When we closed it, or noticed that the server had.
        at: Instant,
    },
    /// The server broke the protocol on this connection.
    Broken(Violation),
}

/// A URL as it arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// When its line was complete.
    pub at: Instant,
    /// The server cannot have written it before.
    pub since: Instant,
    /// The send.
    pub trans: TransId,
    /// The document.
    pub doc: DocId,
    /// Where to connect.
    pub ip: IpAddr,
    /// What to ask for.
    pub url: Url,
}

/// True if a document whose fetch ended so must not be sent again.
pub fn is_final(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Unsaid => true,
        Outcome::Status(code) => !matches!(code, 408 | 429 | 500..=599),
        Outcome::ConnectFailed
        | Outcome::Timeout
        | Outcome::TlsFailed
        | Outcome::DnsFailed
        | Outcome::Aborted => false,
    }
}
