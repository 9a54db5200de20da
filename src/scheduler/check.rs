//! The laws: what must hold after every call. Numbered, written once, and run by the tests and by the
//! simulator after every step. Walks everything: not for a running server.

use super::Scheduler;
use super::addresses::Probe;
use super::claims::ClaimState;
use super::gates::{Closed, GateOwner};
use super::hosts::{Place, Question};
use super::leases::{Lease, LeaseState};
use super::origins::Want;
use super::reservations::Reservation;
use super::slots::{Lines, Wait};
use crate::ids::{GateId, HostId, IpId, LeaseId, SlotId};
use crate::time::Instant;
use hashbrown::{HashMap, HashSet};

/// Returns from the check with a law and the facts that broke it.
macro_rules! law {
    ($law:literal, $holds:expr, $($facts:tt)*) => {
        if !$holds {
            return Err(format!("{} is broken: {}", $law, format_args!($($facts)*)));
        }
    };
}

impl Scheduler {
    /// Checks all laws; the error names the law and the facts.
    ///
    /// - L1: a gate counts exactly the leases that passed it, and no more than its limit unless the limit
    ///   was lowered under them.
    /// - L2: every pending document is in one place: its host's queue or one lease; all counts agree.
    /// - L3: a slot has one host and a host at most one slot; a host has as many used cells as sends in flight.
    /// - L4: a slot waits in exactly one place, and a parked slot has a reason to be parked.
    /// - L5: no wake-up is lost: a gate with waiters is closed with its timer set if it opens by time, or has
    ///   woken someone.
    /// - L6: written leases, and only they, are on the status clock, in order; those that were heard of have a timer for
    ///   the end of their life.
    /// - L7: no slot is free while a host waits for one.
    /// - L8: a spider counts exactly the leases that are with it.
    /// - L9: an address knows its hosts and what is pending for them; the reject lists agree.
    /// - L10: a host with work and without an address is being asked for, or is on its way out, or is stopped.
    /// - L11: a host that an operator has stopped stands in no line, and in a slot only for what is in flight; one
    ///   that stands aside is stopped, or its time has come.
    /// - L12: a reservation counts as one in flight of its host, has its documents to itself and its timer set, and
    ///   its host is in no line.
    /// - L13: whatever is in flight was allowed by the rules of its origin, or nobody had to be asked.
    /// - L14: rules that are asked for are asked for once: by a request that waits at one host, or is under way.
    /// - L15: a claim is needed by exactly the hosts that say so, and one that is not is asked for or has sends in flight;
    ///   one that rests has none.
    pub fn check(&self, now: Instant) -> Result<(), String> {
        self.check_gates(now)?;
        self.check_hosts()?;
        self.check_orders(now)?;
        self.check_slots()?;
        self.check_clocks()?;
        self.check_spiders()?;
        self.check_reservations()?;
        self.check_addresses()?;
        self.check_origins()?;
        self.check_claims()
    }

    fn check_gates(&self, now: Instant) -> Result<(), String> {
        let mut passed: HashMap<GateId, u32> = HashMap::new();
        let reserved = self.reservations.table.iter().map(|(_, reservation)| &reservation.flight);
        for flight in self.leases.table.iter().filter_map(|(_, lease)| lease.flight()).chain(reserved) {
            flight.gates.iter().for_each(|gate| *passed.entry(gate).or_default() += 1);
        }
        for fetch in self.origins.fetches.values() {
            fetch.gates.iter().for_each(|gate| *passed.entry(gate).or_default() += 1);
        }
        let woken = self.slots.iter().filter_map(|(id, slot)| Some((slot.woken_by?, id)));
        let woken: HashMap<GateId, SlotId> = woken.collect();
        for (id, gate) in self.gates.table.iter() {
            let count = passed.get(&id).copied().unwrap_or(0);
            law!("L1", gate.in_flight == count, "{id:?} counts {}, {count} hold it", gate.in_flight);
            law!("L1", gate.suspect.is_some() || count <= gate.limit(), "{id:?} lets {count} pass");
            law!("L5", gate.woken == woken.get(&id).copied(), "{id:?} has woken {:?}", gate.woken);
            if gate.waiters.is_empty() {
                continue;
            }
            match self.closed(now, id) {
                None => law!(
                    "L5",
                    gate.woken.is_some() || self.timer_is_due(now, id),
                    "{id:?} is open and sleeps"
                ),
                Some(Closed::Until(at, _)) if at != Instant::FAR => {
                    let timer = self.gates.timer(id);
                    law!("L5", timer.is_some_and(|t| t <= at), "{id:?} opens at {at:?}, timer {timer:?}");
                }
                Some(Closed::OnTrial) => {
                    let tried = match gate.owner() {
                        GateOwner::Ip(ip) => self.ips[ip].probe != Probe::No,
                        GateOwner::Host(_) | GateOwner::Group(_) => false,
                    };
                    law!("L5", tried || self.timer_is_due(now, id), "{id:?} is on trial and not tried");
                }
                Some(Closed::Claim) => {
                    let claim = self.claims.of(id).state;
                    let asleep = matches!(claim, ClaimState::No | ClaimState::Resting);
                    let hope = self.claims.have_lapsed(now) || !asleep || self.timer_is_due(now, id);
                    law!("L5", hope, "{id:?} lacks a claim that nobody asks for");
                }
                Some(Closed::Until(..) | Closed::Full | Closed::Writing) => {}
            }
        }
        Ok(())
    }

    fn timer_is_due(&self, now: Instant, gate: GateId) -> bool {
        self.gates.timer(gate).is_some_and(|at| at <= now)
    }

    fn check_hosts(&self) -> Result<(), String> {
        let mut leases: HashMap<HostId, (u32, u32)> = HashMap::new();
        for (_, lease) in self.leases.table.iter() {
            let count = leases.entry(lease.host).or_default();
            count.0 += 1;
            count.1 += u32::from(lease.flight().is_some());
        }
        for (_, reservation) in self.reservations.table.iter() {
            leases.entry(reservation.host).or_default().1 += 1;
        }
        let (mut pending, mut in_slots, mut unresolved) = (0, 0, 0);
        let (mut idle, mut leftover, mut stopped) = (0, 0, 0);
        for (id, host) in self.hosts.table.iter() {
            let counted = leases.get(&id).copied().unwrap_or((0, 0));
            law!("L2", (host.leases, host.in_flight) == counted, "{id:?} has {counted:?} leases");
            pending += host.pending() as u64;
            unresolved += u64::from(host.question != Question::No);
            match host.place {
                Place::Idle => idle += 1,
                Place::Leftover => leftover += 1,
                Place::Stopped => stopped += 1,
                Place::Benched => law!("L3", host.in_flight == 0, "{id:?} is benched in flight"),
                Place::Slot(slot) => {
                    in_slots += self.share_in_slot(id);
                    law!("L3", self.slots[slot].host == Some(id), "{id:?} is not in {slot:?}");
                    let used = self.slots.used_cells(slot) as u32;
                    law!("L3", used == host.in_flight, "{slot:?} uses {used} cells");
                }
            }
            law!("L2", (host.place == Place::Idle) != host.has_work(), "{id:?} at {:?}", host.place);
            law!("L9", host.full == (host.pending() >= self.config.queue_len as usize), "{id:?} full");
            let hopeless = host.ip.is_none() && host.place != Place::Idle && host.wants_to_go();
            law!(
                "L10",
                !hopeless || host.draining || host.question != Question::No || host.stopped,
                "{id:?} is not asked for"
            );
        }
        law!("L2", (pending, in_slots) == (self.pending, self.in_slots), "counted {pending}, {in_slots}");
        let lists = (self.idle_hosts, self.leftover_hosts);
        law!("L2", (idle, leftover) == lists, "{idle} idle, {leftover} in the leftover");
        law!("L2", stopped == self.stopped_hosts, "{stopped} stopped");
        let docs = self.pending_docs.as_ref().map(|docs| docs.len() as u64);
        law!("L2", docs.is_none_or(|docs| docs == pending), "{docs:?} ids for {pending} documents");
        law!("L10", unresolved == self.unresolved, "{unresolved} questions, not {}", self.unresolved);
        let waits = !self.leftover.is_empty() && self.slots.free_count() > 0;
        law!("L7", !waits, "a slot is free while hosts wait");
        Ok(())
    }

    fn check_orders(&self, now: Instant) -> Result<(), String> {
        for (id, host) in self.hosts.table.iter() {
            let until = self.stopped_until(now, id);
            match host.place {
                Place::Stopped => {
                    let due = self.host_timers.at(id).is_some_and(|at| at <= now);
                    law!("L11", until.is_some() || due, "{id:?} stands aside for nothing");
                    let timer = self.host_timers.at(id).unwrap_or(Instant::FAR);
                    law!("L11", until.is_none_or(|until| timer <= until), "{id:?} stays aside");
                }
                Place::Slot(slot) if until.is_some() => {
                    law!("L11", self.slots[slot].wait == Wait::Parked, "{id:?} is stopped and in a line");
                    law!("L11", host.in_flight > 0, "{id:?} is stopped and keeps its slot");
                }
                Place::Idle | Place::Leftover | Place::Benched | Place::Slot(_) => {
                    law!("L11", until.is_none() || host.pending() == 0, "{id:?} is stopped and waits");
                }
            }
            let noted = host.stopped || self.orders.stopped(now).all(|name| *name != *self.hosts.name(id));
            law!("L11", noted, "{id:?} does not know that it is stopped");
        }
        Ok(())
    }

    fn check_slots(&self) -> Result<(), String> {
        let mut seen: HashSet<SlotId> = HashSet::new();
        let Lines { ready, robots, host, ip, group } = self.slots.lines;
        let lines = self.gates.table.iter().map(|(id, gate)| (Wait::Gate(id), &gate.waiters));
        for (wait, list) in
            lines.chain([(Wait::Ready, &self.slots.ready), (Wait::Fetch, &self.slots.to_fetch)])
        {
            for slot in self.slots.line(list) {
                law!("L4", seen.insert(slot), "{slot:?} waits twice");
                law!("L4", self.slots[slot].wait == wait, "{slot:?} does not wait at {wait:?}");
            }
        }
        law!("L4", ready + robots + host + ip + group == seen.len() as u64, "{} wait", seen.len());
        for (id, slot) in self.slots.iter() {
            law!("L4", seen.contains(&id) == (slot.wait != Wait::Parked), "{id:?} at {:?}", slot.wait);
            let Some(host) = slot.host else {
                law!("L4", slot.wait == Wait::Parked, "free {id:?} waits");
                continue;
            };
            let entry = &self.hosts[host];
            law!("L3", entry.place == Place::Slot(id), "{id:?} has {host:?} at {:?}", entry.place);
            let reason = !entry.wants_to_go()
                || entry.draining
                || entry.question != Question::No
                || entry.stopped
                || entry.reserved
                || self.waits_for_rules(host);
            law!("L4", slot.wait != Wait::Parked || reason, "{id:?} is parked for nothing");
            law!(
                "L4",
                slot.woken_by.is_none() || matches!(slot.wait, Wait::Ready | Wait::Fetch),
                "{id:?} woken, not ready"
            );
        }
        Ok(())
    }

    fn check_clocks(&self) -> Result<(), String> {
        let by_status: Vec<LeaseId> = self.leases.status_links.iter(&self.leases.by_status).collect();
        let clocks = |id: &LeaseId| match self.leases[*id].state {
            LeaseState::Written { at, status, .. } => Some((at, status)),
            LeaseState::Waiting | LeaseState::Front | LeaseState::Reserved | LeaseState::Unwritten(_) => None,
        };
        let statuses: Vec<_> = by_status.iter().filter_map(clocks).map(|(_, status)| status).collect();
        law!("L6", statuses.is_sorted(), "out of order");
        let all = self.leases.table.iter().filter(|(id, _)| clocks(id).is_some()).count();
        let lens = (by_status.len(), statuses.len());
        law!("L6", lens == (all, all), "{all} written, {lens:?} on the clock");
        for (id, _) in self.leases.table.iter() {
            let worked = clocks(&id).filter(|(at, status)| at < status);
            let end = worked.zip(self.config.lease_max).map(|((at, _), max)| at + max);
            let timer = self.leases.lives.at(id).filter(|_| worked.is_some() || clocks(&id).is_none());
            law!("L6", timer == end, "{id:?} lives until {timer:?}, not {end:?}");
        }
        for (id, lease) in self.leases.table.iter() {
            let waits = matches!(lease.state, LeaseState::Waiting);
            law!("L6", waits == self.leases.waits.at(id).is_some(), "{id:?} {:?}", lease.state);
        }
        Ok(())
    }

    fn check_spiders(&self) -> Result<(), String> {
        let reserved = self.reservations.table.iter().map(|(_, reservation)| u64::from(reservation.count));
        let mut total: u64 = reserved.sum();
        for (id, spider) in self.spiders.iter() {
            let sends: Vec<LeaseId> = self.leases.links.iter(&spider.sends).collect();
            law!("L8", sends.len() == spider.in_flight as usize, "{id:?} has {}", sends.len());
            let its_own = |lease: &&LeaseId| self.leases[**lease].flight().is_some_and(|f| f.spider == id);
            law!("L8", sends.iter().filter(its_own).count() == sends.len(), "{id:?} has another's");
            let unwritten = |lease: &&LeaseId| matches!(self.leases[**lease].state, LeaseState::Unwritten(_));
            let first = sends.iter().find(unwritten).copied();
            law!("L8", spider.first_unwritten == first, "{id:?} first unwritten");
            let hosts = self.slots.iter().filter(|(_, slot)| slot.spider == id).count();
            law!("L8", spider.hosts as usize == hosts, "{id:?} has {hosts} hosts, not {}", spider.hosts);
            total += u64::from(spider.in_flight);
        }
        law!("L8", total == self.in_flight, "{total} in flight, counted {}", self.in_flight);
        Ok(())
    }

    fn check_reservations(&self) -> Result<(), String> {
        let mut docs = 0;
        for (id, reservation) in self.reservations.table.iter() {
            let Reservation { host, count, .. } = *reservation;
            let entry = &self.hosts[host];
            law!("L12", entry.reserved, "{host:?} does not know of {id:?}");
            law!("L12", self.reservations.timers.at(id).is_some(), "{id:?} lasts for ever");
            let slot = entry.slot().map(|slot| self.slots[slot].wait);
            law!("L12", slot == Some(Wait::Parked), "{host:?} is reserved and at {slot:?}");
            let leases: Vec<LeaseId> = self.leases.links.iter(&reservation.docs).collect();
            law!("L12", leases.len() == count as usize, "{id:?} has {} documents", leases.len());
            for lease in leases {
                let Lease { host: owner, state, .. } = &self.leases[lease];
                law!("L12", *owner == host && matches!(state, LeaseState::Reserved), "{lease:?} {state:?}");
            }
            docs += count as usize;
        }
        let reserved = |lease: &Lease| matches!(lease.state, LeaseState::Reserved);
        let all = self.leases.table.iter().filter(|(_, lease)| reserved(lease)).count();
        law!("L12", docs == all, "{all} documents are reserved, {docs} in reservations");
        let hosts = self.hosts.table.iter().filter(|(_, host)| host.reserved).count();
        law!("L12", hosts == self.reservations.table.len(), "{hosts} hosts are reserved");
        Ok(())
    }

    fn check_origins(&self) -> Result<(), String> {
        for (id, lease) in self.leases.table.iter().filter(|(_, lease)| lease.flight().is_some()) {
            law!("L13", lease.permit.version != 0, "{id:?} was never allowed");
        }
        let mut wanted = Vec::new();
        let (mut asking, mut asked) = (0, 0);
        for (id, entry) in self.origins.iter() {
            let host = self.hosts.table.get(id);
            law!("L14", host.is_some(), "{id:?} is gone, its origins are not");
            let errand = host.is_some_and(|host| host.errand);
            law!("L14", errand != entry.wants.is_empty(), "{id:?} has {} wants", entry.wants.len());
            wanted.extend(entry.wants.iter());
            asking += entry.list.iter().filter(|origin| origin.is_asking()).count() as u64;
            asked += entry.list.iter().filter(|origin| origin.is_wanted()).count();
        }
        wanted.extend(self.origins.fetches.values().map(|fetch| &fetch.want));
        law!("L14", asking == self.origins.asking, "{asking} origins ask, not {}", self.origins.asking);
        law!("L14", asked == wanted.len(), "{asked} origins want {} answers", wanted.len());
        let known = |want: &&&Want| self.origins.find(want.host, want.key).is_some_and(|o| o.is_wanted());
        law!("L14", wanted.iter().filter(known).count() == asked, "somebody else's want");
        Ok(())
    }

    fn check_claims(&self) -> Result<(), String> {
        let mut users: HashMap<GateId, u32> = HashMap::new();
        for (&host, gates) in &self.claims.needs {
            law!("L15", self.hosts[host].has_work(), "{host:?} needs claims for nothing");
            gates.iter().for_each(|gate| *users.entry(gate).or_default() += 1);
        }
        for (id, gate) in self.gates.table.iter().filter(|(id, _)| self.claims.knows(*id)) {
            let claim = self.claims.of(id);
            let count = users.remove(&id).unwrap_or(0);
            law!("L15", claim.users == count, "{id:?} is needed by {count}, not {}", claim.users);
            let needed = count > 0 || gate.in_flight > 0 || claim.state == ClaimState::Asked;
            law!("L15", needed, "{id:?} is held for nothing: {:?}", claim.state);
            let rests = claim.state == ClaimState::Resting;
            law!("L15", !rests || gate.in_flight == 0, "{id:?} rests with {} in flight", gate.in_flight);
        }
        law!("L15", users.is_empty(), "claims without gates: {users:?}");
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), String> {
        let mut pending: HashMap<IpId, u32> = HashMap::new();
        let mut records: HashMap<IpId, u32> = HashMap::new();
        for (_, host) in self.hosts.table.iter() {
            if let Some(ip) = host.ip {
                *pending.entry(ip).or_default() += host.pending() as u32;
            }
            host.record.addresses().iter().for_each(|&ip| *records.entry(ip).or_default() += 1);
        }
        for (id, ip) in self.ips.table.iter() {
            let expected = pending.get(&id).copied().unwrap_or(0);
            law!("L9", ip.pending == expected, "{} counts {}, not {expected}", ip.address, ip.pending);
            let named = records.get(&id).copied().unwrap_or(0);
            law!("L9", ip.records == named, "{} is in {named} records", ip.address);
            let mut hosts = 0;
            for host in self.ip_links.iter(&ip.hosts) {
                law!("L9", self.hosts[host].ip == Some(id), "{host:?} is not on {}", ip.address);
                hosts += 1;
            }
            law!("L9", ip.host_count == hosts, "{} counts {}, not {hosts}", ip.address, ip.host_count);
            let max = self.config.ip_max_urls;
            law!("L9", ip.crowded == (max > 0 && ip.pending > max), "{} crowded", ip.address);
        }
        Ok(())
    }
}
