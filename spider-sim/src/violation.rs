//! The ways in which a server can break its promises, as values with times.

use crate::line::Fault;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use thiserror::Error;
use urlserver::ids::{DocId, TransId};
use urlserver::time::{Duration, Instant};

/// What a limit is counted for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GateKey {
    /// One host name.
    Host(Arc<str>),
    /// One address, over all hosts on it.
    Ip(IpAddr),
    /// One alias or group.
    Group(Arc<str>),
}

impl fmt::Display for GateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateKey::Host(name) => write!(f, "host {name}"),
            GateKey::Ip(ip) => write!(f, "ip {ip}"),
            GateKey::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// A broken promise. `Display` says in one sentence what happened.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    /// More in flight than allowed.
    #[error("at {at:?}, {gate} had {in_flight} URLs in flight with document {doc}, {limit} allowed")]
    TooMany {
        /// When the last of them arrived.
        at: Instant,
        /// Where.
        gate: GateKey,
        /// The document that was too much.
        doc: DocId,
        /// How many.
        in_flight: u32,
        /// How many may be.
        limit: u32,
    },
    /// Two sends closer than allowed.
    #[error("at {at:?}, {gate} was sent document {doc} {seen:?} after another, {allowed:?} is the least")]
    TooSoon {
        /// When the second arrived.
        at: Instant,
        /// Where.
        gate: GateKey,
        /// The document that came too soon.
        doc: DocId,
        /// The longest that the gap can have been.
        seen: Duration,
        /// The shortest allowed.
        allowed: Duration,
    },
    /// Sent although the place was to be left alone after a DONE.
    #[error("at {at:?}, {gate} was sent document {doc} although it was to rest until {until:?}")]
    NoRest {
        /// When it arrived.
        at: Instant,
        /// Where.
        gate: GateKey,
        /// The document.
        doc: DocId,
        /// End of the rest or hold.
        until: Instant,
    },
    /// One TRANS_ID for two sends in flight.
    #[error("at {at:?}, TRANS_ID {trans} came for document {doc} while in flight for document {other}")]
    TransInFlight {
        /// When the second arrived.
        at: Instant,
        /// The TRANS_ID.
        trans: TransId,
        /// The document of the second.
        doc: DocId,
        /// The document of the first.
        other: DocId,
    },
    /// One TRANS_ID for two sends shortly after each other on one connection.
    #[error("at {at:?}, TRANS_ID {trans} of a finished send came again for document {doc}")]
    TransRepeated {
        /// When it came again.
        at: Instant,
        /// The TRANS_ID.
        trans: TransId,
        /// The document.
        doc: DocId,
    },
    /// One document in flight twice.
    #[error("at {at:?}, document {doc} was sent while it was in flight")]
    DocInFlight {
        /// When the second arrived.
        at: Instant,
        /// The document.
        doc: DocId,
    },
    /// Sent again although finished.
    #[error("at {at:?}, document {doc} was sent again after it had ended for good at {ended:?}")]
    SentAfterEnd {
        /// When it arrived.
        at: Instant,
        /// The document.
        doc: DocId,
        /// When it had ended.
        ended: Instant,
    },
    /// Sent more often than `max_attempts`.
    #[error("at {at:?}, document {doc} was sent for the {sends}. time, {max} are the most")]
    TooOften {
        /// When it arrived.
        at: Instant,
        /// The document.
        doc: DocId,
        /// How often by now.
        sends: u32,
        /// How often it may.
        max: u32,
    },
    /// A line that the protocol does not know.
    #[error("at {at:?}, the server sent {line:?}, but {fault}")]
    BadLine {
        /// When it arrived.
        at: Instant,
        /// The line, shortened, bytes outside ASCII escaped.
        line: String,
        /// What is wrong.
        fault: Fault,
    },
    /// An ERROR that no line of ours deserved.
    #[error("at {at:?}, the server sent an ERROR that nothing had deserved: {reason}")]
    UndeservedError {
        /// When it arrived.
        at: Instant,
        /// What the server says.
        reason: String,
    },
    /// No ERROR for a line that deserved one.
    #[error("at {at:?}, a line said at {said:?} that makes no sense had got no ERROR yet")]
    MissingError {
        /// When patience ended.
        at: Instant,
        /// When the line was said.
        said: Instant,
    },
    /// More lines than GET asked for.
    #[error("at {at:?}, document {doc} came beyond the {credit} that GET had asked for")]
    BeyondCredit {
        /// When it arrived.
        at: Instant,
        /// The document.
        doc: DocId,
        /// Asked for on this connection.
        credit: u64,
    },
    /// Expected, and never sent.
    #[error("by {at:?}, document {doc} had never been sent")]
    NeverSent {
        /// The end of the audit.
        at: Instant,
        /// The document.
        doc: DocId,
    },
    /// Sent, and never brought to an end.
    #[error("by {at:?}, document {doc} had been sent, but not brought to an end")]
    NeverEnded {
        /// The end of the audit.
        at: Instant,
        /// The document.
        doc: DocId,
    },
}

impl Violation {
    /// True for a document that was lost, false for a rule that was broken.
    pub fn is_loss(&self) -> bool {
        matches!(self, Violation::NeverSent { .. } | Violation::NeverEnded { .. })
    }
}
