//! Claims: where an index is shared, a gate lets nothing pass that is not claimed.
//!
//! Every gate with a limit needs a claim on its key before the first send, and all claims must be good at the moment of
//! sending: [`Scheduler::handle_claims_renewed`] says until when they are. A slot that is stopped by that waits at the gate like
//! any other. A key that another server holds is not fought for: the host goes there, its documents that are not in
//! flight leave without a report, and its claim is given back once nothing is in flight. A claim that no host here needs is
//! given back at once, with what its gate owes. One that is needed, but under which nothing is in flight, rests (`quiet`).
//!
//! All of it is beside the hosts and gates, in maps that are empty where nothing is shared.
//!
//! Not here: when claims expire, and what becomes of those that are given back (`index::postgres`).

use super::Scheduler;
use super::gates::GateOwner;
use super::leases::{GateSet, LeaseState};
use super::quiet::Quiet;
use crate::claim::{ClaimAction, ClaimKey, ClaimNews, OwedClock, Wish};
use crate::ids::{DocId, GateId, HostId, LeaseId, SlotId};
use crate::time::Instant;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Everything about claims.
#[derive(Default)]
pub(super) struct Claims {
    pub(super) on: bool,
    good_until: Instant,
    pub(super) keys: HashMap<GateId, Claim>,
    pub(super) quiet: Quiet,
    /// Which gates are needed by hosts with something to send.
    pub(super) needs: HashMap<HostId, GateSet>,
    /// Hosts that end here what is in flight, and nothing more; and whose holder shall have them then.
    leaving: HashMap<HostId, Option<ClaimKey>>,
    /// Hosts that are to leave as soon as nobody looks.
    to_leave: VecDeque<(HostId, ClaimKey)>,
    pub(super) actions: VecDeque<ClaimAction>,
}

/// The claim of one gate.
#[derive(Clone, Copy, Default)]
pub(super) struct Claim {
    pub(super) state: ClaimState,
    /// Hosts that need it.
    pub(super) users: u32,
    /// Since when nothing is in flight under it, if nothing is.
    pub(super) quiet_since: Instant,
    pub(super) in_quiet_line: bool,
}

/// Where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum ClaimState {
    /// Not asked for.
    #[default]
    No,
    /// Asked for; exactly one answer will come.
    Asked,
    /// Ours.
    Good,
    /// Ours, but the index takes it that nothing is in flight under it: nothing is before it was asked again.
    Resting,
    /// Ours, but somebody needs it more: nothing new under it.
    Ceding,
}

impl ClaimState {
    fn is_ours(self) -> bool {
        match self {
            ClaimState::No | ClaimState::Asked => false,
            ClaimState::Good | ClaimState::Resting | ClaimState::Ceding => true,
        }
    }
}

impl Claims {
    pub(super) fn new(on: bool) -> Claims {
        Claims { on, ..Claims::default() }
    }

    pub(super) fn of(&self, gate: GateId) -> Claim {
        self.keys.get(&gate).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, gate: GateId, state: ClaimState) {
        self.keys.entry(gate).or_default().state = state;
    }

    /// Whether something is known, or expected, about the claim of `gate`: it must not be forgotten.
    pub(super) fn knows(&self, gate: GateId) -> bool {
        self.keys.contains_key(&gate)
    }

    pub(super) fn is_leaving(&self, host: HostId) -> bool {
        self.leaving.contains_key(&host)
    }

    /// Whether nothing may go by our claims as a whole.
    pub(super) fn have_lapsed(&self, now: Instant) -> bool {
        self.on && now >= self.good_until
    }
}

impl Scheduler {
    /// What is to be done about claims. To be polled after [`Scheduler::poll_report`] has come to its end: a claim is
    /// given back after the last report under it.
    #[must_use]
    pub fn poll_claim(&mut self, now: Instant) -> Option<ClaimAction> {
        while let Some((host, key)) = self.claims.to_leave.pop_front() {
            if self.hosts.table.get(host).is_some() && self.claims.needs.contains_key(&host) {
                self.leave(now, host, Some(key));
            }
        }
        self.claims.actions.pop_front()
    }

    /// Claims are good until `until`.
    pub fn handle_claims_renewed(&mut self, now: Instant, until: Instant) {
        let had_lapsed = self.claims.have_lapsed(now);
        self.claims.good_until = self.claims.good_until.max(until);
        self.rest_claims(now);
        if !had_lapsed || self.claims.have_lapsed(now) {
            return;
        }
        let mut gates: Vec<GateId> = self.slots.iter().filter_map(|(_, slot)| slot.gate()).collect();
        gates.sort_unstable();
        gates.dedup();
        for gate in gates {
            self.settle(now, gate);
        }
    }

    /// Whether other servers use the same index.
    pub fn shares_its_index(&self) -> bool {
        self.claims.on
    }

    /// Whether the time is over in which anything may be sent, written or not.
    pub fn claims_have_lapsed(&self, now: Instant) -> bool {
        self.claims.have_lapsed(now)
    }

    /// What the index says about claims.
    pub fn handle_claim_news(&mut self, now: Instant, news: &ClaimNews) {
        match news {
            ClaimNews::Good { key, clock } => self.handle_good(now, key, *clock),
            ClaimNews::Elsewhere { key, younger } => self.handle_elsewhere(now, key, *younger),
            ClaimNews::Lost(key) => self.handle_lost(now, key),
            ClaimNews::WantedElsewhere(key) => self.handle_wanted_elsewhere(key),
            ClaimNews::AllLost => self.handle_all_lost(now),
            ClaimNews::Ordered { host, standing } => self.handle_ordered(now, host, *standing),
            ClaimNews::PauseAll(paused) => self.orders.all_paused = *paused,
            ClaimNews::Held { key, held_for, strikes } => self.handle_held(now, key, *held_for, *strikes),
            // Has a clock of its own: see `handle_claims_renewed`.
            ClaimNews::Renewed(_) => {}
            // For whoever has given the order.
            ClaimNews::Obeyed { .. } => {}
        }
    }

    /// The end: gives back all that is ours. Nothing may be sent any more.
    pub fn give_all_back(&mut self, now: Instant) {
        self.claims.good_until = Instant::ZERO;
        if self.claims.on {
            self.note_all_in_flight();
        }
        let mut gates: Vec<GateId> = self.claims.keys.keys().copied().collect();
        gates.sort_unstable();
        for gate in gates {
            if self.claims.of(gate).state.is_ours() {
                let (key, clock) = (self.claim_key(gate), self.owed_clock(now, gate));
                let action = ClaimAction::GiveBack { key, clock: Some(clock), to_holder_of: None };
                self.claims.actions.push_back(action);
            }
        }
    }

    /// Whether the claim of `gate` keeps everything from passing it.
    pub(super) fn lacks_claim(&self, now: Instant, gate: GateId) -> bool {
        self.claims.on
            && (self.claims.have_lapsed(now)
                || !self.gates[gate].is_free() && self.claims.of(gate).state != ClaimState::Good)
    }

    /// The host has something to send: asks for the claims that it needs and nobody has asked for.
    pub(super) fn want_claims(&mut self, now: Instant, host: HostId, gates: GateSet) {
        if !self.claims.on {
            return;
        }
        let before = self.claims.needs.insert(host, gates);
        for gate in gates.iter().filter(|&gate| before.is_none_or(|set| !set.contains(gate))) {
            self.claims.keys.entry(gate).or_default().users += 1;
        }
        for gate in before.into_iter().flat_map(GateSet::iter).filter(|&gate| !gates.contains(gate)) {
            self.drop_user(gate);
            self.mind_claim(now, gate);
        }
        for gate in gates.iter() {
            match self.claims.of(gate).state {
                _ if self.gates[gate].is_free() => {}
                ClaimState::No => self.ask_for_claim(gate, Wish::Plain),
                ClaimState::Ceding => {
                    let key = self.claim_key(gate);
                    self.claims.to_leave.push_back((host, key));
                }
                // Woken when nothing else keeps the host from going.
                ClaimState::Asked | ClaimState::Good | ClaimState::Resting => {}
            }
        }
    }

    pub(super) fn ask_for_claim(&mut self, gate: GateId, wish: Wish) {
        let key = self.claim_key(gate);
        let wish = match self.gates[gate].owner() {
            GateOwner::Host(host) if self.hosts[host].pending() == 0 => Wish::Errand,
            GateOwner::Host(_) | GateOwner::Ip(_) | GateOwner::Group(_) => wish,
        };
        self.claims.set(gate, ClaimState::Asked);
        self.claims.actions.push_back(ClaimAction::Want { key, wish });
    }

    /// One host less needs the claim. It is given back when the last send under it has ended, too: see
    /// [`Scheduler::mind_claim`].
    fn drop_user(&mut self, gate: GateId) {
        if let Some(claim) = self.claims.keys.get_mut(&gate) {
            claim.users -= 1;
        }
    }

    /// Nothing is pending for `host` any more: it needs no claims.
    pub(super) fn drop_claims(&mut self, now: Instant, host: HostId) {
        if !self.claims.on {
            return;
        }
        let Some(gates) = self.claims.needs.remove(&host) else {
            // It was ours, though we never got so far as to send anything.
            if !self.claims.knows(self.hosts[host].gate) {
                self.give_host_back(now, host, None);
            }
            return;
        };
        for gate in gates.iter() {
            self.drop_user(gate);
            self.mind_claim(now, gate);
        }
    }

    fn give_host_back(&mut self, now: Instant, host: HostId, clock: Option<OwedClock>) {
        let to_holder_of = self.claims.leaving.remove(&host).flatten();
        self.forget_orders(now, host);
        let key = ClaimKey::Host(self.hosts.name(host).into());
        self.claims.actions.push_back(ClaimAction::GiveBack { key, clock, to_holder_of });
    }

    /// Gives the claim of `gate` back if nobody needs it and nothing is in flight under it.
    pub(super) fn mind_claim(&mut self, now: Instant, gate: GateId) {
        let Some(&claim) = self.claims.keys.get(&gate) else { return };
        self.note_quiet(now, gate);
        if claim.users > 0 || claim.state == ClaimState::Asked || self.gates[gate].in_flight > 0 {
            return;
        }
        self.claims.keys.remove(&gate);
        let ours = claim.state.is_ours();
        let clock = ours.then(|| self.owed_clock(now, gate));
        if let GateOwner::Host(host) = self.gates[gate].owner() {
            self.give_host_back(now, host, clock);
        } else if ours {
            let key = self.claim_key(gate);
            self.claims.actions.push_back(ClaimAction::GiveBack { key, clock, to_holder_of: None });
        }
    }

    fn handle_good(&mut self, now: Instant, key: &ClaimKey, clock: OwedClock) {
        let Some(gate) = self.gate_of(key) else { return };
        if self.claims.of(gate).state != ClaimState::Asked {
            return;
        }
        self.claims.set(gate, ClaimState::Good);
        self.keep_clock(now, gate, clock);
        self.note_gap_change(now, gate, clock.gap);
        self.mind_claim(now, gate);
        if self.gates.table.get(gate).is_some() {
            self.settle(now, gate);
        }
    }

    /// Another server has the key: the hosts that wait for it go there. A host that needs other keys, too, might find
    /// one of them here, and go to and fro for ever: it stays with whoever came first.
    fn handle_elsewhere(&mut self, now: Instant, key: &ClaimKey, younger: bool) {
        let Some(gate) = self.gate_of(key) else { return };
        if self.claims.of(gate).state != ClaimState::Asked {
            return;
        }
        self.claims.set(gate, ClaimState::No);
        let waiting: Vec<SlotId> = self.slots.line(&self.gates[gate].waiters).collect();
        let mut hosts: Vec<HostId> = waiting.iter().filter_map(|&slot| self.slots[slot].host).collect();
        if let GateOwner::Host(host) = self.gates[gate].owner() {
            hosts = vec![host];
        }
        let mut stays = false;
        for host in hosts {
            if younger && self.needs_other_keys(host, gate) {
                stays = true;
            } else {
                let heir = Some(key.clone()).filter(|key| !matches!(key, ClaimKey::Host(_)));
                self.leave(now, host, heir);
            }
        }
        if stays {
            self.ask_for_claim(gate, Wish::Urgent);
        } else {
            self.mind_claim(now, gate);
        }
    }

    /// Whether a host shares more with others than `gate`.
    fn needs_other_keys(&self, host: HostId, gate: GateId) -> bool {
        let Some(gates) = self.claims.needs.get(&host) else { return false };
        gates.iter().any(|other| other != gate && other != gates.host && !self.gates[other].is_free())
    }

    /// The claim is another's now. Whoever needs it asks again; a host that is another's finds out by that.
    fn handle_lost(&mut self, now: Instant, key: &ClaimKey) {
        let Some(gate) = self.gate_of(key) else { return };
        if !self.claims.of(gate).state.is_ours() {
            return;
        }
        self.claims.set(gate, ClaimState::No);
        if let GateOwner::Host(host) = self.gates[gate].owner() {
            self.leave(now, host, None);
        } else if self.claims.of(gate).users > 0 {
            self.ask_for_claim(gate, Wish::Plain);
        } else {
            self.mind_claim(now, gate);
        }
    }

    /// Nothing of what we had is ours: everything is asked for anew. What hosts are not ours any more is said in the
    /// answers.
    fn handle_all_lost(&mut self, now: Instant) {
        self.claims.actions.clear();
        let mut gates: Vec<GateId> = self.claims.keys.keys().copied().collect();
        gates.sort_unstable();
        for gate in gates {
            self.claims.set(gate, ClaimState::No);
            if self.claims.of(gate).users > 0 {
                if !self.gates[gate].is_free() {
                    self.ask_for_claim(gate, Wish::Plain);
                }
            } else {
                self.mind_claim(now, gate);
            }
        }
    }

    /// Somebody needs the key more: all that is under it goes there.
    fn handle_wanted_elsewhere(&mut self, key: &ClaimKey) {
        let Some(gate) = self.gate_of(key) else { return };
        if !matches!(self.claims.of(gate).state, ClaimState::Good | ClaimState::Resting) {
            return;
        }
        self.claims.set(gate, ClaimState::Ceding);
        let needs = self.claims.needs.iter();
        let mut hosts: Vec<HostId> =
            needs.filter(|(_, gates)| gates.contains(gate)).map(|(&host, _)| host).collect();
        hosts.sort_unstable();
        self.claims.to_leave.extend(hosts.into_iter().map(|host| (host, key.clone())));
    }

    /// The host goes to another server: what is not in flight leaves without a report, and is that one's to send.
    fn leave(&mut self, now: Instant, host: HostId, to_holder_of: Option<ClaimKey>) {
        if !self.hosts[host].has_work() || self.claims.is_leaving(host) {
            return;
        }
        self.claims.leaving.insert(host, to_holder_of);
        self.counters.handed_over += 1;
        self.stop_waiting(now, host);
        self.withdraw_question(host);
        while let Some(lease) = self.leases.links.pop_front(&mut self.hosts[host].front) {
            self.forget_lease(lease);
        }
        while !self.hosts[host].urls.is_empty() {
            let url = self.take_first(host);
            self.let_go(host, url.doc);
        }
        if self.hosts[host].leases > self.hosts[host].in_flight {
            self.let_waiting_go(host);
        }
        while self.hosts[host].errand {
            self.end_errand(now, host);
        }
        self.look_at(now, host);
    }

    /// Documents that wait for their time are on no list of their host; they are few, and so are such hosts.
    fn let_waiting_go(&mut self, host: HostId) {
        let of_host = self.leases.table.iter().filter(|(_, lease)| lease.host == host);
        let waiting = of_host.filter(|(_, lease)| matches!(lease.state, LeaseState::Waiting));
        for lease in waiting.map(|(id, _)| id).collect::<Vec<LeaseId>>() {
            self.leases.waits.cancel(lease);
            self.forget_lease(lease);
        }
    }

    /// A send of a host that is leaving has ended without an end: others will send it again.
    pub(super) fn let_lease_go(&mut self, now: Instant, lease: LeaseId) {
        let host = self.leases[lease].host;
        self.forget_lease(lease);
        self.look_at(now, host);
    }

    fn forget_lease(&mut self, lease: LeaseId) {
        let (host, doc) = (self.leases[lease].host, self.leases[lease].url.doc);
        self.leases.forget(lease);
        self.hosts[host].leases -= 1;
        self.let_go(host, doc);
    }

    fn let_go(&mut self, host: HostId, doc: DocId) {
        self.drop_pending(host);
        if let Some(docs) = &mut self.pending_docs {
            docs.remove(&doc);
        }
    }

    pub(super) fn claim_key(&self, gate: GateId) -> ClaimKey {
        match self.gates[gate].owner() {
            GateOwner::Host(host) => ClaimKey::Host(self.hosts.name(host).into()),
            GateOwner::Ip(ip) => ClaimKey::Ip(self.ips[ip].address),
            GateOwner::Group(number) => {
                let (number, aliases) = (number as usize, self.config.aliases.len());
                match number.checked_sub(aliases) {
                    None => ClaimKey::Alias(self.config.aliases[number].name.clone()),
                    Some(number) => ClaimKey::Group(self.config.groups[number].name.clone()),
                }
            }
        }
    }

    pub(super) fn gate_of(&self, key: &ClaimKey) -> Option<GateId> {
        match key {
            ClaimKey::Host(name) => self.hosts.find(name).map(|host| self.hosts[host].gate),
            ClaimKey::Ip(address) => self.ips.find(*address).map(|ip| self.ips[ip].gate),
            ClaimKey::Alias(name) => {
                let number = self.config.aliases.iter().position(|alias| alias.name == *name)?;
                Some(self.alias_gates[number])
            }
            ClaimKey::Group(name) => {
                let number = self.config.groups.iter().position(|group| group.name == *name)?;
                Some(self.group_gates[number])
            }
        }
    }
}
