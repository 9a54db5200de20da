//! Reservations: a host with a few of its documents, for a worker that asks instead of being sent to.
//!
//! A reservation is to the gates what a line is that is not written yet, for as long as it lasts: one more in
//! flight at each of them, and nothing else through any that keeps a gap. The gap counts from its end, since the worker
//! may have fetched until then; how it spaces its own fetches is left to the worker, which is told the gap. Nothing else
//! of its host is sent meanwhile, whatever the host's limit.
//!
//! It ends when it is released, or when it is not renewed in time; what was not spoken of by then is pending again.

use super::Scheduler;
use super::leases::{Flight, GateSet, LeaseState};
use super::lists::List;
use super::permission::Step;
use super::spiders::NOBODY;
use super::status::{is_refusal, went_well};
use super::table::Table;
use super::timers::Timers;
use crate::document::{Done, FailReason};
use crate::ids::{DocId, GateId, HostId, LeaseId, ReservationId, SlotId};
use crate::time::{Duration, Instant};
use hashbrown::HashMap;
use std::fmt;
use std::net::IpAddr;
use thiserror::Error;

/// What a worker names its reservation by. Drawn by the caller, and not to be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u128);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What a worker gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// The host's name.
    pub host: Box<str>,
    /// It must be renewed or released before this has passed.
    pub expires_in: Duration,
    /// Least time from one fetch to the next.
    pub gap: Duration,
    /// What to fetch, in order.
    pub urls: Vec<ReservedUrl>,
}

/// One document of a reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedUrl {
    /// Which document.
    pub doc: DocId,
    /// Where to connect to.
    pub ip: IpAddr,
    /// The whole URL.
    pub url: String,
}

/// Why a release changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReleaseError {
    /// It was released, has run out, or never was.
    #[error("no such reservation: it was released, has run out, or never was")]
    Gone,
    /// A document that is not part of it.
    #[error("document {0} is not part of this reservation")]
    NotPart(DocId),
}

pub(super) struct Reservation {
    pub(super) token: Token,
    pub(super) host: HostId,
    pub(super) flight: Flight,
    pub(super) docs: List,
    pub(super) count: u32,
    pub(super) since: Instant,
}

/// All reservations, found by token. There are no more than slots.
#[derive(Default)]
pub(super) struct Reservations {
    pub(super) table: Table<ReservationId, Reservation>,
    by_token: HashMap<Token, ReservationId>,
    /// When each runs out.
    pub(super) timers: Timers<ReservationId>,
    /// Gates that nothing else passes meanwhile, and until when at the latest.
    pub(super) gates: HashMap<GateId, Instant>,
}

impl Scheduler {
    /// Reserves the next host that may go, with up to `urls` of its documents. A spider would have been sent the
    /// first of them.
    #[must_use]
    pub fn poll_reservation(&mut self, now: Instant, token: Token, urls: u32) -> Option<Reserved> {
        if self.orders.all_paused || self.reservations.by_token.contains_key(&token) {
            return None;
        }
        while let Some(slot) = self.slots.ready.front::<SlotId>() {
            let host = self.slots[slot].host?;
            if self.may_go(now, slot, host, Step::Send) {
                return self.reserve(now, token, slot, host, urls);
            }
            self.leave_line(now, slot);
            self.look_at(now, host);
        }
        None
    }

    fn reserve(
        &mut self,
        now: Instant,
        token: Token,
        slot: SlotId,
        host: HostId,
        urls: u32,
    ) -> Option<Reserved> {
        let (gates, ip) = (self.gate_set(host)?, self.hosts[host].ip?);
        gates.iter().for_each(|gate| self.gates[gate].enter());
        let may_go = self.slots[slot].may_go;
        // What is in flight of a host is in its slot.
        let room = self.config.queue_len.saturating_sub(self.hosts[host].in_flight);
        let first = self.take_reserved(host);
        let trans = self.slots.use_cell(slot, first);
        let (mut docs, mut count) = (List::default(), 1);
        self.leases.links.push_back(&mut docs, first);
        while count < urls.min(room) && self.next_step(now, host) == Some(Step::Send) {
            let lease = self.take_reserved(host);
            self.leases.links.push_back(&mut docs, lease);
            count += 1;
        }
        self.hosts[host].in_flight += 1;
        self.hosts[host].reserved = true;
        self.in_flight += u64::from(count);
        self.counters.sent += u64::from(count);
        self.counters.reservations += 1;
        let flight = Flight { trans, spider: NOBODY, ip, gates, may_go };
        let id = self.reservations.table.insert(Reservation { token, host, flight, docs, count, since: now });
        self.reservations.by_token.insert(token, id);
        self.slots.draw_ticket(slot);
        self.leave_line(now, slot);
        let expires_in = self.restart_reservation(now, id);
        Some(self.reserved(id, expires_in))
    }

    fn take_reserved(&mut self, host: HostId) -> LeaseId {
        let lease = self.take_lease(host);
        self.note_sent(host, lease);
        self.leases[lease].attempts += 1;
        self.leases[lease].state = LeaseState::Reserved;
        lease
    }

    fn reserved(&self, id: ReservationId, expires_in: Duration) -> Reserved {
        let Reservation { host, flight, docs, .. } = &self.reservations.table[id];
        let (name, ip) = (self.hosts.name(*host), self.ips[flight.ip].address);
        let urls = self.leases.links.iter(docs).map(|lease| {
            let url = &self.leases[lease].url;
            ReservedUrl { doc: url.doc, ip, url: url.tail().parts(name).concat() }
        });
        Reserved { host: name.into(), expires_in, gap: self.longest_gap(flight.gates), urls: urls.collect() }
    }

    fn longest_gap(&self, gates: GateSet) -> Duration {
        gates.iter().map(|gate| self.gates[gate].gap()).max().unwrap_or_default()
    }

    /// The worker is at it: its time starts again, but not for ever.
    fn restart_reservation(&mut self, now: Instant, id: ReservationId) -> Duration {
        let end = self.config.lease_max.map(|max| self.reservations.table[id].since + max);
        let at = (now + self.config.status_timeout).min(end.unwrap_or(Instant::FAR));
        self.reservations.timers.set(id, at);
        let Flight { gates, .. } = self.reservations.table[id].flight;
        for gate in gates.iter() {
            if gate == gates.host || self.gates[gate].is_writing() {
                self.reservations.gates.insert(gate, at);
                self.note(gate);
            }
        }
        at.since(now)
    }

    /// A worker needs longer: how long it has from now on; `None` if there is no such reservation. It gets no more time
    /// while it is not known whether the host is still ours.
    pub fn handle_renewed(&mut self, now: Instant, token: Token) -> Option<Duration> {
        let id = self.reservations.by_token.get(&token).copied()?;
        let host = self.reservations.table[id].host;
        if self.claims.have_lapsed(now) || self.claims.is_leaving(host) {
            return self.reservations.timers.at(id).map(|at| at.since(now));
        }
        Some(self.restart_reservation(now, id))
    }

    /// A worker is done with a host, and says how its fetches ended. Documents it says nothing of were not fetched: they
    /// are pending again, and it was no attempt.
    pub fn handle_released(
        &mut self,
        now: Instant,
        token: Token,
        outcomes: &[(DocId, Done)],
    ) -> Result<(), ReleaseError> {
        let id = self.reservations.by_token.get(&token).copied().ok_or(ReleaseError::Gone)?;
        let mut said: HashMap<DocId, Done> = outcomes.iter().copied().collect();
        let leases: Vec<LeaseId> = self.leases.links.iter(&self.reservations.table[id].docs).collect();
        let part = |doc: DocId| leases.iter().any(|&lease| self.leases[lease].url.doc == doc);
        if let Some(&(stray, _)) = outcomes.iter().find(|(doc, _)| !part(*doc)) {
            return Err(ReleaseError::NotPart(stray));
        }
        let all_went_well = !outcomes.is_empty() && outcomes.iter().all(|(_, done)| went_well(done.outcome));
        let Reservation { flight, since, .. } = self.end_reservation(now, id, all_went_well);
        for lease in leases {
            match said.remove(&self.leases[lease].url.doc) {
                Some(done) => self.conclude_fetch(now, lease, &flight, since, done),
                None => {
                    self.leases[lease].attempts -= 1;
                    self.go_first(now, lease);
                }
            }
        }
        self.settle_all(now, flight.gates);
        if outcomes.iter().any(|(_, done)| is_refusal(done.outcome)) {
            self.make_way(now, flight.gates.holder());
        }
        Ok(())
    }

    /// Takes back what was not renewed in time.
    pub(super) fn expire_reservations(&mut self, now: Instant) {
        while let Some(id) = self.reservations.timers.pop_due(now) {
            let leases: Vec<LeaseId> = self.leases.links.iter(&self.reservations.table[id].docs).collect();
            let Reservation { flight, .. } = self.end_reservation(now, id, false);
            self.counters.expired += leases.len() as u64;
            for lease in leases {
                self.retry(now, lease, FailReason::Expired);
            }
            self.settle_all(now, flight.gates);
        }
    }

    /// Frees what a reservation has held. Its documents are in no list now, and in the care of the caller.
    fn end_reservation(&mut self, now: Instant, id: ReservationId, went_well: bool) -> Reservation {
        self.reservations.timers.cancel(id);
        let reservation = self.reservations.table.remove(id);
        self.reservations.by_token.remove(&reservation.token);
        let Flight { gates, trans, .. } = reservation.flight;
        for gate in gates.iter() {
            self.gates[gate].leave();
            self.gates[gate].stamp(now);
            self.reservations.gates.remove(&gate);
            self.note(gate);
        }
        self.slots.free_cell(trans);
        self.hosts[reservation.host].in_flight -= 1;
        self.hosts[reservation.host].reserved = false;
        self.in_flight -= u64::from(reservation.count);
        self.rest(now, gates, now.micros_since(reservation.since), went_well);
        reservation
    }
}
