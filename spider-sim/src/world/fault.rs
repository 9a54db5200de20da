//! What can be found wrong in a world, beside what the auditor finds.

use crate::violation::GateKey;
use std::net::IpAddr;
use thiserror::Error;
use urlserver::document::Report;
use urlserver::ids::{DocId, TransId};
use urlserver::scheduler::Stats;
use urlserver::time::Instant;

/// One thing that should not be.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// More in flight than allowed.
    #[error("{0} has more in flight than allowed")]
    TooMany(GateKey),
    /// The gap was not kept.
    #[error("{0} was asked again too soon")]
    TooSoon(GateKey),
    /// It was to be left alone.
    #[error("{0} was to be left alone until {1:?}")]
    Closed(GateKey, Instant),
    /// The rules of its origin were not known.
    #[error("{0} was sent before its robots.txt was known")]
    NoRules(String),
    /// The rules of its origin deny it.
    #[error("{0} was sent though its robots.txt denies it")]
    Denied(String),
    /// An address that no one has named.
    #[error("{0} was not known to be at {1}")]
    NotThere(Box<str>, IpAddr),
    /// A TRANS_ID of an earlier send.
    #[error("TRANS_ID {0} was given before")]
    TransTwice(TransId),
    /// A status counted that should not, or the other way round.
    #[error("a status of {0} was taken for what it is not")]
    Miscounted(TransId),
    /// Sent more often than `max_attempts`.
    #[error("document {0} was sent for the {1}. time")]
    TooOften(DocId, u32),
    /// Admitted, sent or ended while it was in flight or pending.
    #[error("document {0} is in two places")]
    Twice(DocId),
    /// Of no document that is pending.
    #[error("document {0} is not pending")]
    Unknown(DocId),
    /// A second report.
    #[error("`{0}` is a second report")]
    ReportedTwice(Report),
    /// Never reported.
    #[error("document {0} was never reported")]
    Lost(DocId),
    /// A law of the scheduler.
    #[error("{0}")]
    Law(String),
    /// Healed, and not drained in all that time.
    #[error("healed long ago, and still not drained: {0:?}")]
    Stuck(Box<Stats>),
    /// Drained, and something is not free.
    #[error("drained, but not free: {0:?}")]
    NotFree(Box<Stats>),
    /// Something is always due, and nothing comes of it.
    #[error("time does not pass")]
    StandStill,
}

/// Faults kept as values; more are only counted.
const KEPT: usize = 20;

/// What was found, and when.
#[derive(Default, Debug)]
pub struct Faults {
    list: Vec<(Instant, Fault)>,
    count: u64,
}

impl Faults {
    pub(super) fn add(&mut self, at: Instant, fault: Fault) {
        self.count += 1;
        if self.list.len() < KEPT {
            self.list.push((at, fault));
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first ones, in words.
    pub fn texts(&self) -> impl Iterator<Item = String> + '_ {
        self.list.iter().map(|(at, fault)| format!("at {at:?}, {fault}"))
    }
}
