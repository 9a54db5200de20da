//! A limit as seen from outside: how many are in flight, when the last was sent, until when to rest.

use urlserver::time::{Duration, Instant, scaled};

/// What is allowed at one host, address or group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateLimit {
    /// Most in flight; `None` = no limit.
    pub concurrent: Option<u32>,
    /// Least time between two sends; zero = no limit.
    pub gap: Duration,
}

impl GateLimit {
    /// No limit at all.
    pub const NONE: GateLimit = GateLimit { concurrent: None, gap: Duration::ZERO };
}

/// How long a host rests after a DONE: `factor` × the time of the fetch, within bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rest {
    /// Times the fetch took.
    pub factor: f64,
    /// At least this.
    pub min: Duration,
    /// At most this.
    pub max: Duration,
}

impl From<urlserver::scheduler::Rest> for Rest {
    fn from(rest: urlserver::scheduler::Rest) -> Rest {
        let urlserver::scheduler::Rest { factor, min, max } = rest;
        Rest { factor, min, max }
    }
}

impl Rest {
    /// The rest after a fetch that took `took`.
    pub fn after(&self, took: Duration) -> Duration {
        scaled(took, self.factor).max(self.min).min(self.max)
    }
}

/// When a line was written, as well as one can tell from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub(super) since: Instant,
    pub(super) at: Instant,
}

impl Window {
    /// The longest time that can lie between the two, whichever came first.
    pub(super) fn longest_gap(self, other: Window) -> Duration {
        self.at.since(other.since).max(other.at.since(self.since))
    }
}

/// To be left alone for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// The spider whose DONE asked for it.
    pub(super) spider: usize,
    from: Instant,
    pub(super) until: Instant,
}

#[derive(Default, Debug)]
pub(super) struct Gate {
    pub(super) in_flight: u32,
    last: Option<Window>,
    hold: Option<Hold>,
}

impl Gate {
    /// A send was read: the longest that the gap to the one before can have been.
    pub(super) fn handle_sent(&mut self, window: Window) -> Option<Duration> {
        let gap = self.last.map(|last| last.longest_gap(window));
        // The one known to be the latest is the one to measure the next against: a line that lay in
        // the socket of a stalled spider for a minute says nothing of now.
        if self.last.is_none_or(|last| last.since <= window.since) {
            self.last = Some(window);
        }
        gap
    }

    /// Leave it alone from `from` until `until`; never shortens a hold.
    pub(super) fn hold(&mut self, spider: usize, from: Instant, until: Instant) {
        if until > from && self.hold.is_none_or(|hold| hold.until < until) {
            self.hold = Some(Hold { spider, from, until });
        }
    }

    /// The DONE that `spider` said at `from` may never have been read.
    pub(super) fn doubt_hold(&mut self, spider: usize, from: Instant) {
        self.hold = self.hold.filter(|hold| (hold.spider, hold.from) != (spider, from));
    }

    /// The hold that a line read at `window` breaks, if its DONE was read: the server wrote the line after it
    /// could know of the hold, and before the hold's end.
    pub(super) fn broken_hold(&self, window: Window, tolerance: Duration) -> Option<Hold> {
        let hold = self.hold?;
        let broken = window.since > hold.from + tolerance && window.at + tolerance < hold.until;
        broken.then_some(hold)
    }

    /// True once nothing can be measured against this gate any more.
    pub(super) fn is_idle(&self, now: Instant, gap: Duration) -> bool {
        let keep = gap.max(Duration::from_secs(1));
        self.in_flight == 0
            && self.last.is_none_or(|last| last.at + keep <= now)
            && self.hold.is_none_or(|hold| hold.until <= now)
    }
}
