//! Claims under which nothing is in flight. The index is told so, that others need not wait long for them should we be
//! lost; and is told again before anything more is sent under them.
//!
//! A claim rests when nothing was in flight under it from one renewal to the next, so that what is told in a cycle
//! are claims that changed, each at most once. Nothing passes a gate whose claim rests: that the index
//! knows of the next send is not a matter of time. A claim is woken when it alone keeps somebody from going.
//!
//! A host that only waits for its turn, for a spider or at an address that is busy with others, does not rest: nobody could
//! use it without the address, and a crowd would be told of with every send.

use super::Scheduler;
use super::claims::ClaimState;
use super::gates::GateOwner;
use super::slots::Wait;
use crate::claim::{ClaimAction, Wish};
use crate::ids::{GateId, SlotId};
use crate::time::Instant;
use std::collections::VecDeque;

/// Gates in the order in which nothing was in flight under them any more.
#[derive(Default)]
pub(super) struct Quiet {
    line: VecDeque<(Instant, GateId)>,
    /// When claims were last renewed.
    renewed: Instant,
}

impl Scheduler {
    /// A send under the claim of `gate` has ended, or the claim is new: if nothing is in flight it may rest soon.
    pub(super) fn note_quiet(&mut self, now: Instant, gate: GateId) {
        if self.gates[gate].in_flight > 0 {
            return;
        }
        let Some(claim) = self.claims.keys.get_mut(&gate) else { return };
        if claim.state == ClaimState::Good {
            claim.quiet_since = now;
            if !std::mem::replace(&mut claim.in_quiet_line, true) {
                self.claims.quiet.line.push_back((now, gate));
            }
        }
    }

    /// Claims were renewed: those that were quiet since the last time rest.
    pub(super) fn rest_claims(&mut self, now: Instant) {
        let since = std::mem::replace(&mut self.claims.quiet.renewed, now);
        // Some stand in line again.
        for _ in 0..self.claims.quiet.line.len() {
            let Some(&(_, gate)) = self.claims.quiet.line.front().filter(|(at, _)| *at <= since) else {
                break;
            };
            self.claims.quiet.line.pop_front();
            // A gate that was forgotten, and perhaps is another's by now, stands in line for itself.
            let Some(claim) = self.claims.keys.get_mut(&gate) else { continue };
            claim.in_quiet_line = false;
            if claim.state != ClaimState::Good || self.gates[gate].in_flight > 0 {
                continue;
            }
            let quiet_since = claim.quiet_since;
            if quiet_since > since {
                self.stand_in_quiet_line(quiet_since, gate);
                continue;
            }
            if self.waits_for_its_turn(gate, since) {
                self.stand_in_quiet_line(now, gate);
                continue;
            }
            self.claims.set(gate, ClaimState::Resting);
            let (key, clock) = (self.claim_key(gate), self.owed_clock(now, gate));
            self.claims.actions.push_back(ClaimAction::Rest { key, clock });
            // Somebody may be about to go.
            self.settle(now, gate);
        }
    }

    fn stand_in_quiet_line(&mut self, at: Instant, gate: GateId) {
        if let Some(claim) = self.claims.keys.get_mut(&gate) {
            (claim.quiet_since, claim.in_quiet_line) = (at, true);
            self.claims.quiet.line.push_back((at, gate));
        }
    }

    /// Whether the gate is that of a host which could go if it were its turn, at a place that was busy since.
    fn waits_for_its_turn(&self, gate: GateId, since: Instant) -> bool {
        let GateOwner::Host(host) = self.gates[gate].owner() else { return false };
        match self.hosts[host].slot().map(|slot| self.slots[slot].wait) {
            None | Some(Wait::Parked) => false,
            Some(Wait::Ready | Wait::Fetch) => true,
            Some(Wait::Gate(other)) if other == gate => false,
            Some(Wait::Gate(other)) => {
                self.gates[other].in_flight > 0 || self.claims.of(other).quiet_since > since
            }
        }
    }

    /// Nothing but its claim keeps the gate closed: it is woken, and so are the others that the first in line needs.
    pub(super) fn wake_claims(&mut self, now: Instant, gate: GateId, first: SlotId) {
        if !self.claims.on || self.claims.have_lapsed(now) {
            return;
        }
        let needs = self.slots[first].host.and_then(|host| self.claims.needs.get(&host)).copied();
        for gate in needs.into_iter().flat_map(super::leases::GateSet::iter).chain([gate]) {
            if self.claims.of(gate).state == ClaimState::Resting {
                self.ask_for_claim(gate, Wish::Plain);
            }
        }
    }
}
