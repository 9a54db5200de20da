//! When to ask the index for more, and what it should not send.

use super::Scheduler;
use crate::hostdb::health::HealthState;
use crate::ids::{HostId, IpId};
use crate::time::{Duration, Instant};

/// Most candidates asked for at once.
const CANDIDATES_MAX: usize = 10_000;
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// A question for candidates: exactly one [`Scheduler::handle_answered`] must follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Most candidates wanted.
    pub count: usize,
    /// Hosts that none are wanted of, sorted, each once.
    pub reject: Vec<Box<str>>,
}

/// Where the conversation with the index stands.
#[derive(Default)]
pub(super) struct Demand {
    asked: bool,
    /// Candidates of the answer so far that were of some use.
    usable: usize,
    /// Something would make the next answer differ from the last one.
    changed: bool,
    not_before: Instant,
    back_off: Duration,
}

impl Demand {
    /// When to ask, unless something changes first.
    pub(super) fn not_before(&self) -> Option<Instant> {
        (!self.asked).then_some(self.not_before)
    }

    /// A host is not to be rejected any more, or the index has something new.
    pub(super) fn handle_change(&mut self) {
        self.changed = true;
        self.not_before = Instant::ZERO;
    }

    pub(super) fn handle_usable(&mut self) {
        self.usable += 1;
    }

    fn handle_answered(&mut self, now: Instant) {
        self.asked = false;
        if self.usable > 0 {
            self.back_off = Duration::ZERO;
        } else if !self.changed {
            self.back_off = (self.back_off * 2).clamp(BACK_OFF_MIN, BACK_OFF_MAX);
            self.not_before = now + self.back_off;
        }
    }
}

impl Scheduler {
    /// A question for the index, if one is due: a slot is empty, and nothing in the leftover can fill it.
    #[must_use]
    pub fn poll_request(&mut self, now: Instant) -> Option<Request> {
        if self.demand.asked || !self.wants_candidates() || now < self.demand.not_before {
            return None;
        }
        self.demand.asked = true;
        self.demand.changed = false;
        self.demand.usable = 0;
        self.counters.index_requests += 1;
        let room = self.slots.free_count().saturating_mul(self.config.queue_len as usize);
        Some(Request { count: room.min(CANDIDATES_MAX), reject: self.reject_list(now) })
    }

    /// All candidates of the answer have been handled, or none will come.
    pub fn handle_answered(&mut self, now: Instant) {
        self.demand.handle_answered(now);
    }

    /// The index has something new: ask, even if the last answer was empty.
    pub fn handle_index_news(&mut self) {
        self.demand.back_off = Duration::ZERO;
        self.demand.handle_change();
    }

    pub(super) fn wants_candidates(&self) -> bool {
        self.slots.free_count() > 0 && self.leftover.is_empty()
    }

    fn reject_list(&self, now: Instant) -> Vec<Box<str>> {
        let down = |ip: &IpId| matches!(self.ips[*ip].health.state(now), HealthState::Down { .. });
        let crowded = self.crowd_links.iter(&self.crowded);
        let ips = crowded.chain(self.unwell_links.iter(&self.unwell).filter(down));
        let on_ips = ips.flat_map(|ip| self.ip_links.iter(&self.ips[ip].hosts));
        let full = self.full_links.iter(&self.full);
        let mut hosts: Vec<HostId> = full.chain(on_ips).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let mut names: Vec<Box<str>> = hosts.into_iter().map(|host| self.hosts.name(host).into()).collect();
        names.extend(self.orders.stopped(now).map(Box::from));
        names.sort_unstable();
        names.dedup();
        names
    }
}
