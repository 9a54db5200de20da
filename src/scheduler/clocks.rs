//! Clocks that outlive the process: what is owed for long is noted for whoever writes it down, and what was owed in
//! an earlier life is kept in this one.
//!
//! A gate is noted when it owes more than [`CLOCK_MIN`], each once until the note is polled. What it owes less is not
//! worth a write per send: after a death that nothing was noted of, every gate stays closed for as long as it could
//! owe such a thing. The note of a send must be polled, and written down, before the line is: [`Scheduler::note_unwritten`]
//! comes first, then [`Scheduler::poll_note`] to its end, then the socket. Times are given as what is left of them, so
//! that they mean the same in any life.
//!
//! Not here: files and wall clocks, and the health of addresses, which is found out anew.

use super::Scheduler;
use super::gates::GateOwner;
use super::leases::{GateSet, LeaseState};
use super::orders::Standing;
use crate::ids::{GateId, HostId, IpId, SpiderId};
use crate::time::{Duration, Instant};
use indexmap::IndexMap;
use std::hash::Hash;
use std::net::IpAddr;

/// What is owed for less is not noted.
pub const CLOCK_MIN: Duration = Duration::from_secs(1);
/// A line is taken to be written within this time from its note. If that took longer, it is noted again.
const WRITE_MAX: Duration = Duration::from_secs(1);
/// Strikes are forgotten this long after a hold.
const QUIET: Duration = super::gates::QUIET;

/// Whose clock it is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ClockKey {
    /// A host, by name.
    Host(Box<str>),
    /// An address.
    Ip(IpAddr),
    /// An alias of the settings.
    Alias(Box<str>),
    /// A group of the settings.
    Group(Box<str>),
}

/// Something to be remembered over the end of the process. Times are what is left of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// What a gate owes.
    Clock {
        /// Whose gate.
        key: ClockKey,
        /// Gap and rest.
        owed: Duration,
        /// Hold after 429 or 503.
        held: Duration,
        /// Refusals without a success or a long quiet between them.
        strikes: u8,
    },
    /// What an operator has ordered for a host.
    Order {
        /// Its name.
        host: Box<str>,
        /// All of it; nothing is the end of it.
        standing: Standing,
    },
    /// Everything is paused, or not.
    PauseAll(bool),
}

impl Note {
    /// The same after some time; `None` once it says nothing any more.
    pub fn later(&self, time: Duration) -> Option<Note> {
        match self {
            Note::Clock { key, owed, held, strikes } => {
                let quiet = if *strikes > 0 { QUIET } else { Duration::ZERO };
                let lifetime = (*owed).max(held.saturating_add(quiet));
                (lifetime > time).then(|| Note::Clock {
                    key: key.clone(),
                    owed: owed.saturating_sub(time),
                    held: held.saturating_sub(time),
                    strikes: *strikes,
                })
            }
            Note::Order { host, standing } => {
                let blocked_for = standing.blocked_for.saturating_sub(time);
                let standing = Standing { blocked_for, ..*standing };
                (standing != Standing::default()).then(|| Note::Order { host: host.clone(), standing })
            }
            Note::PauseAll(paused) => paused.then_some(Note::PauseAll(true)),
        }
    }
}

/// A clock of an earlier life whose gate is not there yet.
#[derive(Clone, Copy)]
struct Saved {
    owed: Instant,
    held: Instant,
    strikes: u8,
}

impl Saved {
    fn is_over(self, now: Instant) -> bool {
        let quiet = if self.strikes > 0 { QUIET } else { Duration::ZERO };
        self.owed.max(self.held + quiet) <= now
    }
}

/// Clocks by name, forgotten a few at a time when they are over.
struct SavedClocks<K> {
    map: IndexMap<K, Saved, hashbrown::DefaultHashBuilder>,
    sweep_at: usize,
}

impl<K> Default for SavedClocks<K> {
    fn default() -> Self {
        SavedClocks { map: IndexMap::default(), sweep_at: 0 }
    }
}

impl<K: Hash + Eq> SavedClocks<K> {
    fn sweep(&mut self, now: Instant) {
        if self.sweep_at >= self.map.len() {
            self.sweep_at = 0;
        }
        match self.map.get_index(self.sweep_at) {
            Some((_, saved)) if saved.is_over(now) => drop(self.map.swap_remove_index(self.sweep_at)),
            Some(_) => self.sweep_at += 1,
            None => {}
        }
    }
}

/// What is known of earlier lives, and whether a later one will want to know of this.
#[derive(Default)]
pub(super) struct Clocks {
    /// Somebody writes notes down.
    pub(super) on: bool,
    hosts: SavedClocks<Box<str>>,
    ips: SavedClocks<IpAddr>,
    /// Orders, and the pause of everything, to be noted.
    orders: indexmap::IndexSet<Box<str>>,
    pause: bool,
    /// After a death, gates owe what was not noted as if it had been owed from here on.
    since: Option<Instant>,
}

impl Scheduler {
    /// Takes over what an earlier life has noted, and notes from now on what a later one will want to know. `died`: the
    /// earlier life did not come to its end in peace, so that what was not noted may be owed, too.
    pub fn restore(&mut self, now: Instant, notes: impl IntoIterator<Item = Note>, died: bool) {
        self.clocks.on = true;
        self.clocks.since = died.then_some(now);
        for number in 0..self.config.aliases.len() + self.config.groups.len() {
            self.owe_the_unnoted(now, self.group_gate(number));
        }
        for note in notes {
            match note {
                Note::Clock { key, owed, held, strikes } => {
                    let saved = Saved { owed: now + owed, held: now + held, strikes };
                    self.save(now, key, saved);
                }
                Note::Order { host, standing } => self.orders.restore(now, &host, standing),
                Note::PauseAll(paused) => self.orders.all_paused = paused,
            }
        }
    }

    fn save(&mut self, now: Instant, key: ClockKey, saved: Saved) {
        let (aliases, groups) = (&self.config.aliases, &self.config.groups);
        let number = match key {
            ClockKey::Host(name) => {
                self.clocks.hosts.map.insert(name, saved);
                return;
            }
            ClockKey::Ip(address) => {
                self.clocks.ips.map.insert(address, saved);
                return;
            }
            ClockKey::Alias(name) => aliases.iter().position(|rule| rule.name == name),
            ClockKey::Group(name) => {
                groups.iter().position(|rule| rule.name == name).map(|number| aliases.len() + number)
            }
        };
        if let Some(number) = number {
            let gate = self.group_gate(number);
            self.gates[gate].restore(now, saved.owed, saved.held, saved.strikes);
        }
    }

    /// The gate of an alias or group, by its number among both.
    fn group_gate(&self, number: usize) -> GateId {
        match number.checked_sub(self.alias_gates.len()) {
            None => self.alias_gates[number],
            Some(number) => self.group_gates[number],
        }
    }

    /// A host's gate is new: it goes on where an earlier life has left it.
    pub(super) fn restore_host(&mut self, now: Instant, host: HostId) {
        let gate = self.hosts[host].gate;
        self.owe_the_unnoted(now, gate);
        if !self.clocks.hosts.map.is_empty()
            && let Some(saved) = self.clocks.hosts.map.swap_remove(self.hosts.name(host))
        {
            self.gates[gate].restore(now, saved.owed, saved.held, saved.strikes);
        }
    }

    /// The same for an address.
    pub(super) fn restore_ip(&mut self, now: Instant, ip: IpId) {
        let gate = self.ips[ip].gate;
        self.owe_the_unnoted(now, gate);
        if !self.clocks.ips.map.is_empty()
            && let Some(saved) = self.clocks.ips.map.swap_remove(&self.ips[ip].address)
        {
            self.gates[gate].restore(now, saved.owed, saved.held, saved.strikes);
        }
    }

    /// After a death a gate stays closed for as long as it can owe something that was not noted.
    fn owe_the_unnoted(&mut self, now: Instant, gate: GateId) {
        let Some(since) = self.clocks.since.filter(|&since| now < since + CLOCK_MIN) else { return };
        let rest = match self.gates[gate].owner() {
            GateOwner::Host(_) => Some(self.config.rest),
            GateOwner::Ip(_) => None,
            GateOwner::Group(_) => self.rest_rule(gate),
        };
        let rest = rest.map_or(Duration::ZERO, |rest| rest.longest());
        let owed = self.gates[gate].gap().max(rest).min(CLOCK_MIN);
        self.gates[gate].restore(now, since + owed, Instant::ZERO, 0);
    }

    pub(super) fn sweep_saved(&mut self, now: Instant) {
        self.clocks.hosts.sweep(now);
        self.clocks.ips.sweep(now);
    }

    /// The lines that wait to be written to `spider` are about to be: notes what will be owed for them.
    pub fn note_unwritten(&mut self, now: Instant, spider: SpiderId) {
        if !self.clocks.on {
            return;
        }
        let Some(entry) = self.spiders.get_mut(spider) else { return };
        entry.noted = now;
        let mut next = entry.first_unwritten;
        while let Some(lease) = next {
            next = self.leases.links.next(lease);
            if let LeaseState::Unwritten(flight) = self.leases[lease].state {
                flight.gates.iter().for_each(|gate| self.note_gap(gate));
            }
        }
    }

    fn note_gap(&mut self, gate: GateId) {
        if self.gates[gate].gap() > CLOCK_MIN {
            self.note(gate);
        }
    }

    /// Lines were written long after they were noted: notes them again, as it is now.
    pub(super) fn note_late_write(&mut self, now: Instant, noted: Instant, gates: GateSet) {
        if self.clocks.on && now > noted + WRITE_MAX {
            gates.iter().for_each(|gate| self.note_gap(gate));
        }
    }

    /// Notes a gate if it owes something for long.
    pub(super) fn note_if_long(&mut self, now: Instant, gate: GateId) {
        if self.clocks.on && self.gates[gate].owes_until() > now + CLOCK_MIN {
            self.note(gate);
        }
    }

    /// Notes a gate, whatever it owes: an earlier note may have said more.
    pub(super) fn note(&mut self, gate: GateId) {
        if self.clocks.on {
            self.gates.mark_to_note(gate);
        }
    }

    pub(super) fn note_order(&mut self, host: &str) {
        if self.clocks.on {
            self.clocks.orders.insert(host.into());
        }
    }

    pub(super) fn note_pause(&mut self) {
        self.clocks.pause = self.clocks.on;
    }

    /// The next thing to be remembered over the end of the process.
    #[must_use]
    pub fn poll_note(&mut self, now: Instant) -> Option<Note> {
        if let Some(gate) = self.gates.next_to_note() {
            return Some(self.clock_note(now, gate));
        }
        if let Some(host) = self.clocks.orders.pop() {
            let standing = self.standing(now, &host);
            return Some(Note::Order { host, standing });
        }
        std::mem::take(&mut self.clocks.pause).then_some(Note::PauseAll(self.orders.all_paused))
    }

    /// All that is still owed, however short: the last words of a life that ends in peace. Walks everything.
    pub fn last_notes(&self, now: Instant) -> Vec<Note> {
        let owes = |(id, gate): (GateId, &super::gates::Gate)| {
            (self.is_reserved(id) || gate.is_writing() || gate.owes_until() > now || gate.held_until() > now)
                .then_some(id)
        };
        self.gates.table.iter().filter_map(owes).map(|gate| self.clock_note(now, gate)).collect()
    }

    fn is_reserved(&self, gate: GateId) -> bool {
        self.reservations.gates.contains_key(&gate)
    }

    fn clock_note(&self, now: Instant, id: GateId) -> Note {
        let gate = &self.gates[id];
        let (key, holds) = match gate.owner() {
            GateOwner::Host(host) => (ClockKey::Host(self.hosts.name(host).into()), true),
            // The health of an address is found out anew.
            GateOwner::Ip(ip) => (ClockKey::Ip(self.ips[ip].address), false),
            GateOwner::Group(number) => (self.group_key(number as usize), true),
        };
        let until = match self.reservations.gates.get(&id) {
            // The worker goes on whatever becomes of us.
            Some(&end) => end + gate.gap(),
            None if gate.is_writing() => now + gate.gap() + WRITE_MAX,
            None => Instant::ZERO,
        };
        let owed = gate.owes_until().max(until).since(now);
        let held = if holds { gate.held_until().since(now) } else { Duration::ZERO };
        Note::Clock { key, owed, held, strikes: if holds { gate.strikes() } else { 0 } }
    }

    fn group_key(&self, number: usize) -> ClockKey {
        match number.checked_sub(self.config.aliases.len()) {
            None => ClockKey::Alias(self.config.aliases[number].name.clone()),
            Some(number) => ClockKey::Group(self.config.groups[number].name.clone()),
        }
    }
}
