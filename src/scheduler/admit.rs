//! Candidates come in.

use super::Scheduler;
use super::gates::GateOwner;
use super::leases::LeaseState;
use super::names::literal;
use crate::document::{Candidate, DenyReason, End, FailReason};
use crate::hostdb::records::Record;
use crate::ids::HostId;
use crate::time::{Duration, Instant};

/// What became of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Admission {
    /// It is pending now, and gets exactly one report.
    Pending,
    /// A document of this id is pending already; this one gets no report of its own.
    Duplicate,
    /// It is reported at once: its given address may not be used, or far too many of its host are pending,
    /// which the index was told.
    Refused,
    /// Its host is on its way to another server, and so is this: it gets no report here.
    Elsewhere,
}

/// Documents that are kept for a full host beyond its slot. An index that listens never gets near.
const OVERFLOW_MAX: usize = 100_000;

impl Scheduler {
    /// A document that the index would like to have fetched.
    pub fn handle_candidate(&mut self, now: Instant, candidate: &Candidate) -> Admission {
        if let Some(docs) = &mut self.pending_docs
            && !docs.insert(candidate.doc)
        {
            self.counters.duplicates += 1;
            return Admission::Duplicate;
        }
        if self.claims.on && self.is_leaving(candidate) {
            return Admission::Elsewhere;
        }
        if candidate.ip.is_some_and(|ip| !self.may_use(ip)) {
            return self.refuse(candidate, End::Denied(DenyReason::PrivateAddress));
        }
        let name = candidate.url.host();
        let host = self.host_named(now, name);
        let unwanted = self.hosts[host].full || self.stopped_until(now, host).is_some();
        if !unwanted {
            self.demand.handle_usable();
        } else if self.hosts[host].pending() >= self.config.queue_len as usize + OVERFLOW_MAX {
            return self.refuse(candidate, End::Failed(FailReason::Surplus));
        }
        let had_sendable = self.hosts[host].has_sendable();
        self.queue(now, host, candidate);
        self.add_pending(host);
        if !had_sendable {
            self.unbench(now, host);
        }
        match candidate.ip {
            Some(address) => self.handle_given_address(now, host, address),
            None => self.mind_literal(now, host),
        }
        self.look_at(now, host);
        Admission::Pending
    }

    /// A name that is an address needs no name server.
    pub(super) fn mind_literal(&mut self, now: Instant, host: HostId) {
        if self.hosts[host].record == Record::Unknown
            && let Some(address) = literal(self.hosts.name(host))
        {
            self.handle_given_address(now, host, address);
        }
    }

    /// Whether the candidate's host is leaving; then it is not pending here.
    fn is_leaving(&mut self, candidate: &Candidate) -> bool {
        let host = self.hosts.find(candidate.url.host());
        let leaving = host.is_some_and(|host| self.claims.is_leaving(host));
        if let Some(docs) = self.pending_docs.as_mut().filter(|_| leaving) {
            docs.remove(&candidate.doc);
        }
        leaving
    }

    fn refuse(&mut self, candidate: &Candidate, end: End) -> Admission {
        self.push_report(candidate.doc, end);
        Admission::Refused
    }

    pub(super) fn host_named(&mut self, now: Instant, name: &str) -> HostId {
        if let Some(host) = self.hosts.find(name) {
            return host;
        }
        let gate = self.gates.add(GateOwner::Host(HostId::new(0)), self.config.host);
        let alias = self.aliases.of(name, None).map(|number| self.alias_gates[number as usize]);
        let host = self.hosts.add(name, gate, alias);
        self.gates[gate].set_owner(GateOwner::Host(host));
        self.place_links.push_back(&mut self.idle, host);
        self.idle_hosts += 1;
        self.obey_orders(now, host);
        self.restore_host(now, host);
        host
    }

    fn queue(&mut self, now: Instant, host: HostId, candidate: &Candidate) {
        if candidate.wait == Duration::ZERO && candidate.tried.sends == 0 {
            self.store.push(&mut self.hosts[host].urls, candidate.doc, candidate.url.tail());
            return;
        }
        let mut url = self.leases.buffer();
        url.set(candidate.doc, candidate.url.tail());
        let lease = self.leases.add(host, url);
        self.leases[lease].state = LeaseState::Waiting;
        (self.leases[lease].attempts, self.leases[lease].lost) =
            (candidate.tried.sends, candidate.tried.lost);
        self.leases.waits.set(lease, now + candidate.wait);
        self.hosts[host].leases += 1;
        self.hosts[host].last_wait = now + candidate.wait;
    }
}
