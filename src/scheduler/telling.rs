//! What servers that share an index are told of each other's doings: what a key is owed, when it is told to stay away
//! though nobody claims it, and how often a document was sent.

use super::Scheduler;
use super::claims::ClaimState;
use super::gates::GateOwner;
use super::leases::LeaseState;
use crate::claim::{ClaimAction, ClaimKey, OwedClock};
use crate::document::Tried;
use crate::ids::{GateId, LeaseId};
use crate::time::{Duration, Instant};

impl Scheduler {
    /// What the key of `gate` is owed is to be known, should we be lost. A key without limits is nobody's: all are to know
    /// of its hold now.
    pub(super) fn note_clock(&mut self, now: Instant, gate: GateId) {
        if !self.claims.on {
            return;
        }
        let clock = self.owed_clock(now, gate);
        if self.gates[gate].is_free() {
            let OwedClock { held_for, strikes, .. } = clock;
            let key = self.claim_key(gate);
            self.claims.actions.push_back(ClaimAction::Hold { key, held_for, strikes });
        } else if self.claims.of(gate).state == ClaimState::Good {
            let key = self.claim_key(gate);
            self.claims.actions.push_back(ClaimAction::Note { key, clock });
        }
    }

    /// A host's gap may be longer than was `known`, and than the settings say: whoever finds no word of its last send must
    /// know how long to wait.
    pub(super) fn note_gap_change(&mut self, now: Instant, gate: GateId, known: Duration) {
        let longer = self.gates[gate].gap() > known.max(self.config.host.gap);
        if self.claims.on && longer && matches!(self.gates[gate].owner(), GateOwner::Host(_)) {
            self.note_clock(now, gate);
        }
    }

    pub(super) fn owed_clock(&self, now: Instant, id: GateId) -> OwedClock {
        let gate = &self.gates[id];
        // That an address is down is found out by everybody for himself.
        let held = if matches!(gate.owner(), GateOwner::Ip(_)) { Instant::ZERO } else { gate.held_until() };
        let until = match self.reservations.gates.get(&id) {
            // The worker goes on whatever becomes of us.
            Some(&end) => end + gate.gap(),
            None if gate.is_writing() => now + gate.gap(),
            None => Instant::ZERO,
        };
        OwedClock {
            opens_in: gate.owes_until().max(until).since(now),
            held_for: held.since(now),
            strikes: gate.strikes(),
            gap: gate.gap(),
            dark_since: None,
        }
    }

    /// Goes on where the last holder has left the clock. If he has left no word of his last send, it was as late as it
    /// can have been, and its fetch asks for the longest rest.
    pub(super) fn keep_clock(&mut self, now: Instant, gate: GateId, clock: OwedClock) {
        let mut opens_in = clock.opens_in;
        if let Some(ago) = clock.dark_since {
            let rest = match self.gates[gate].owner() {
                GateOwner::Host(_) => self.config.rest.longest(),
                GateOwner::Group(_) => self.rest_rule(gate).map_or(Duration::ZERO, |rest| rest.longest()),
                GateOwner::Ip(_) => Duration::ZERO,
            };
            let gap = self.gates[gate].gap().max(clock.gap);
            opens_in = opens_in.max(gap.max(rest).saturating_sub(ago));
        }
        self.gates[gate].restore(now, now + opens_in, now + clock.held_for, clock.strikes);
    }

    /// Somebody else was told to stay away from a key that nobody claims.
    pub(super) fn handle_held(&mut self, now: Instant, key: &ClaimKey, held_for: Duration, strikes: u8) {
        let Some(gate) = self.gate_of(key) else { return };
        self.gates[gate].restore(now, Instant::ZERO, now + held_for, strikes);
        self.settle(now, gate);
        self.make_way(now, gate);
    }

    /// A document was sent, and will be again after `wait`, by us or by others.
    pub(super) fn note_tried(&mut self, lease: LeaseId, wait: Duration) {
        let lease = &self.leases[lease];
        if self.claims.on && lease.attempts > 0 {
            let tried = Tried { sends: lease.attempts, lost: lease.lost };
            self.claims.actions.push_back(ClaimAction::Tried { doc: lease.url.doc, tried, wait });
        }
    }

    /// The end: what is in flight was sent.
    pub(super) fn note_all_in_flight(&mut self) {
        let in_flight = self.leases.table.iter().filter(|(_, lease)| match lease.state {
            LeaseState::Written { .. } | LeaseState::Reserved => true,
            LeaseState::Unwritten(_) | LeaseState::Waiting | LeaseState::Front => false,
        });
        for lease in in_flight.map(|(id, _)| id).collect::<Vec<LeaseId>>() {
            self.note_tried(lease, Duration::ZERO);
        }
    }
}
