//! How documents end, or wait to be sent again.

use super::leases::LeaseState;
use super::status::doubled;
use super::{Rest, Scheduler};
use crate::document::{DenyReason, End, FailReason, Report};
use crate::hostdb::records::{Advice, Record};
use crate::ids::{DocId, GateId, HostId, LeaseId};
use crate::time::{Duration, Instant};

/// Longest wait before a retry, unless `retry_delay` is longer.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(3600);

impl Scheduler {
    /// The next document that has ended. Documents of hosts that do not exist, and those that may not be
    /// fetched, end one at a time, so that a host with a million of them stalls nobody. To be polled to its end before [`Scheduler::poll_send`] and
    /// [`Scheduler::poll_lookup`]: a host whose last such document has ended may have new ones, and its name
    /// be worth another question.
    #[must_use]
    pub fn poll_report(&mut self, now: Instant) -> Option<Report> {
        while self.reports.is_empty() && (self.drain_one(now) || self.deny_one(now)) {}
        self.reports.pop_front()
    }

    /// Ends a lease that is in no list.
    pub(super) fn finish(&mut self, now: Instant, lease: LeaseId, end: End) {
        let (host, doc) = (self.leases[lease].host, self.leases[lease].url.doc);
        self.leases.forget(lease);
        self.hosts[host].leases -= 1;
        self.report(host, doc, end);
        self.look_at(now, host);
    }

    fn report(&mut self, host: HostId, doc: DocId, end: End) {
        self.drop_pending(host);
        self.push_report(doc, end);
    }

    /// Reports a document that is pending no more.
    pub(super) fn push_report(&mut self, doc: DocId, end: End) {
        if let Some(docs) = &mut self.pending_docs {
            docs.remove(&doc);
        }
        match end {
            End::Done(_) => self.counters.done += 1,
            End::Failed(_) => self.counters.failed += 1,
            End::Denied(_) => self.counters.denied += 1,
        }
        self.reports.push_back(Report { doc, end });
    }

    /// Sends a document again after a while, unless it has had its chances.
    pub(super) fn retry(&mut self, now: Instant, lease: LeaseId, reason: FailReason) {
        let attempts = self.leases[lease].attempts;
        if self.has_had_its_chances(attempts) {
            return self.finish(now, lease, End::Failed(reason));
        }
        let wait = doubled(self.config.retry_delay, attempts.saturating_sub(1), RETRY_DELAY_MAX);
        self.note_tried(lease, wait);
        if self.claims.is_leaving(self.leases[lease].host) {
            return self.let_lease_go(now, lease);
        }
        self.counters.retried += 1;
        let due = now + wait;
        let host = self.leases[lease].host;
        self.leases[lease].state = LeaseState::Waiting;
        self.leases.waits.set(lease, due);
        self.hosts[host].last_wait = due;
        self.look_at(now, host);
    }

    /// Puts a document whose spider was lost at the head of its host, unless it has had its chances.
    pub(super) fn send_again(&mut self, now: Instant, lease: LeaseId) {
        let Scheduler { leases, .. } = self;
        let (attempts, lost) = (leases[lease].attempts, leases[lease].lost);
        if self.has_had_its_chances(attempts) && attempts > 0 {
            let reason = if lost == attempts { FailReason::Poison } else { FailReason::ConnectionLost };
            return self.finish(now, lease, End::Failed(reason));
        }
        self.counters.retried += u64::from(attempts > 0);
        self.note_tried(lease, Duration::ZERO);
        self.go_first(now, lease);
    }

    /// A document's wait is over.
    pub(super) fn end_wait(&mut self, now: Instant, lease: LeaseId) {
        self.go_first(now, lease);
    }

    pub(super) fn go_first(&mut self, now: Instant, lease: LeaseId) {
        let host = self.leases[lease].host;
        if self.claims.is_leaving(host) {
            return self.let_lease_go(now, lease);
        }
        self.leases[lease].state = LeaseState::Front;
        self.put_first(host, lease);
        self.unbench(now, host);
        self.look_at(now, host);
    }

    fn has_had_its_chances(&self, attempts: u32) -> bool {
        self.config.max_attempts > 0 && attempts >= self.config.max_attempts
    }

    /// The spider's own look-up failed: ask again before the next send.
    pub(super) fn distrust_name(&mut self, now: Instant, host: HostId) {
        if let Record::Known { expires, .. } = &mut self.hosts[host].record
            && *expires != Instant::FAR
        {
            *expires = now;
        }
    }

    /// The rule by which an alias or group rests.
    pub(super) fn rest_rule(&self, gate: GateId) -> Option<Rest> {
        let alias = self.alias_gates.iter().position(|&other| other == gate);
        let group = || self.group_gates.iter().position(|&other| other == gate);
        match alias {
            Some(number) => self.config.aliases[number].rest,
            None => group().and_then(|number| self.config.groups[number].rest),
        }
    }

    /// All that is pending for `host` is to end without being sent, but for what is in flight.
    pub(super) fn start_draining(&mut self, now: Instant, host: HostId) {
        if self.hosts[host].draining || !self.hosts[host].wants_to_go() {
            return;
        }
        self.withdraw_question(host);
        self.hosts[host].draining = true;
        self.errand_links.push_back(&mut self.draining, host);
        self.stop_waiting(now, host);
    }

    /// Ends one document, or one errand, of a host without an address, or finds that the host has none left. False if no
    /// host is draining.
    fn drain_one(&mut self, now: Instant) -> bool {
        let Some(host) = self.errand_links.pop_front(&mut self.draining) else { return false };
        let entry = &self.hosts[host];
        let end = match entry.record.advice(now, &self.config.ttl, false) {
            Advice::Fail => Some(End::Failed(FailReason::Dns)),
            Advice::Deny => Some(End::Denied(DenyReason::PrivateAddress)),
            Advice::Use | Advice::UseAndRefresh | Advice::Ask => None,
        };
        let Some(end) = end.filter(|_| entry.wants_to_go()) else {
            self.hosts[host].draining = false;
            self.look_at(now, host);
            return true;
        };
        self.errand_links.push_front(&mut self.draining, host);
        if let Some(lease) = self.leases.links.pop_front(&mut self.hosts[host].front) {
            self.finish(now, lease, end);
            return true;
        }
        if self.hosts[host].urls.is_empty() {
            self.end_errand(now, host);
            return true;
        }
        let url = self.take_first(host);
        self.report(host, url.doc, end);
        self.look_at(now, host);
        true
    }
}
