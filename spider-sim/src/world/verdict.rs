//! What became of a world.

use super::World;
use crate::machine::Counts;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use urlserver::document::Report;
use urlserver::ids::{DocId, SpiderId};
use urlserver::scheduler::{Stats, Work};
use urlserver::time::Instant;

/// A send as decided, for tests that look closely.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendSeen {
    /// When.
    pub at: Instant,
    /// To whom.
    pub spider: SpiderId,
    /// Which document.
    pub doc: DocId,
    /// Whose host.
    pub host: Box<str>,
    /// At which address.
    pub ip: IpAddr,
}

impl SendSeen {
    pub(super) fn new(at: Instant, work: &Work<'_>) -> SendSeen {
        SendSeen { at, spider: work.spider, doc: work.doc, host: work.host.into(), ip: work.ip }
    }
}

/// What became of a world.
#[derive(Debug)]
pub struct Verdict {
    /// What was wrong, in words; nothing, if all is well.
    pub wrongs: Vec<String>,
    /// How much was wrong.
    pub wrong_count: u64,
    /// How long it took, in virtual time.
    pub ended_at: Instant,
    /// Steps it took.
    pub steps: u64,
    /// Documents that were accepted.
    pub documents: u64,
    /// The same number for the same trace.
    pub trace: u64,
    /// The scheduler's last word.
    pub stats: Stats,
    /// What each spider did.
    pub counts: Vec<Counts>,
    /// Every send, if the plan says so.
    pub sends: Vec<SendSeen>,
    /// Every report, if the plan says so.
    pub reports: Vec<(Instant, Report)>,
}

impl Verdict {
    pub(super) fn new(world: World) -> Verdict {
        let violations = world.auditor.violations().iter().map(ToString::to_string);
        Verdict {
            wrongs: world.ledger.faults.texts().chain(violations).collect(),
            wrong_count: world.wrongs(),
            ended_at: world.now,
            steps: world.steps,
            documents: world.library.accepted(),
            trace: world.trace.value(),
            stats: world.scheduler.stats(),
            counts: world.seats.iter().map(|seat| seat.spider.counts().clone()).collect(),
            sends: world.sends,
            reports: world.reports,
        }
    }

    /// True if nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.wrong_count == 0
    }
}

/// All that happened, as one number.
#[derive(Default)]
pub(super) struct Trace(DefaultHasher);

impl Trace {
    pub(super) fn note(&mut self, what: &str, now: Instant, number: u64) {
        (what, now, number).hash(&mut self.0);
    }

    pub(super) fn note_bytes(&mut self, what: &str, now: Instant, bytes: &[u8]) {
        (what, now, bytes).hash(&mut self.0);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.finish()
    }
}
