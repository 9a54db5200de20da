//! From a slot to a spider: gates, waiting, and the decision to send.

use super::Scheduler;
use super::gates::{Closed, GateOwner};
use super::leases::{Flight, GateSet, LeaseState};
use super::permission::Step;
use super::slots::{MayGo, Wait};
use crate::ids::{DocId, GateId, HostId, LeaseId, SlotId, SpiderId, TransId};
use crate::time::Instant;
use crate::url::TailBytes;
use std::net::IpAddr;

/// URLs that are looked at together before they are sent, or their fetches ended, one by one.
pub const APPROACHED: usize = 16;

/// Whatever is seen, together: it is of no meaning.
fn look_at_each(hosts: &[Option<HostId>], look: impl Fn(HostId) -> u32) -> u32 {
    hosts.iter().flatten().fold(0, |seen, &host| seen ^ look(host))
}

/// A line for a spider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work<'a> {
    /// Who gets it.
    pub spider: SpiderId,
    /// The name of this send.
    pub trans: TransId,
    /// Which document.
    pub doc: DocId,
    /// Where to connect to.
    pub ip: IpAddr,
    /// The host's name.
    pub host: &'a str,
    /// The URL without it.
    pub tail: TailBytes<'a>,
}

impl Scheduler {
    /// The next line that may go, and to whom. The caller writes it, and says so with
    /// [`Scheduler::handle_written`].
    #[must_use]
    pub fn poll_send(&mut self, now: Instant) -> Option<Work<'_>> {
        if self.orders.all_paused || !self.spiders.any_room() {
            return None;
        }
        self.approach_ready();
        while let Some(slot) = self.slots.ready.front::<SlotId>() {
            let host = self.slots[slot].host?;
            if !self.may_go(now, slot, host, Step::Send) {
                self.leave_line(now, slot);
                self.look_at(now, host);
                continue;
            }
            let spider = self.spiders.pick(now, self.slots[slot].spider)?;
            let lease = self.send(now, slot, host, spider);
            return self.work(lease);
        }
        None
    }

    /// Looks at the next few URLs that may go, every few calls. They lie far apart, and are had sooner together.
    fn approach_ready(&mut self) {
        if self.approached > 0 {
            self.approached -= 1;
            return;
        }
        let mut hosts = [None; APPROACHED];
        let ready = self.slots.line(&self.slots.ready);
        self.approached =
            hosts.iter_mut().zip(ready).map(|(host, slot)| *host = self.slots[slot].host).count() as u32;
        // Each round looks at what the one before has found the way to, so that nothing waits within a round.
        let found =
            look_at_each(&hosts, |host| self.hosts[host].in_flight ^ u32::from(self.hosts[host].unanswered));
        let near = look_at_each(&hosts, |host| {
            let host = &self.hosts[host];
            let ip = host.ip.map_or(0, |ip| self.ips[ip].host_count);
            ip ^ self.gates[host.gate].in_flight ^ u32::from(self.store.approach(&host.urls))
        });
        let far = look_at_each(&hosts, |host| {
            let name = self.hosts.name(host).as_bytes().first().copied().unwrap_or_default();
            let ip = self.hosts[host].ip.map_or(0, |ip| self.gates[self.ips[ip].gate].in_flight);
            ip ^ u32::from(name ^ self.store.approach_next(&self.hosts[host].urls))
        });
        std::hint::black_box((found ^ near ^ far, self.leases.approach_buffers(APPROACHED)));
    }

    pub(super) fn may_go(&mut self, now: Instant, slot: SlotId, host: HostId, step: Step) -> bool {
        self.hosts[host].wants_to_go()
            && !self.hosts[host].draining
            && self.has_address(now, host)
            && self.next_step(now, host) == Some(step)
            && self.gate_set(host).is_some_and(|gates| {
                self.first_closed(now, gates).is_none() && self.first_owed(slot, gates).is_none()
            })
    }

    fn send(&mut self, now: Instant, slot: SlotId, host: HostId, spider: SpiderId) -> LeaseId {
        let lease = self.take_lease(host);
        let trans = self.slots.use_cell(slot, lease);
        let may_go = self.slots[slot].may_go;
        if let (Some(gates), Some(ip)) = (self.gate_set(host), self.hosts[host].ip) {
            gates.iter().for_each(|gate| self.gates[gate].enter());
            self.leases[lease].state = LeaseState::Unwritten(Flight { trans, spider, ip, gates, may_go });
        }
        self.note_sent(host, lease);
        self.leases[lease].attempts += 1;
        self.hosts[host].in_flight += 1;
        self.in_flight += 1;
        self.counters.sent += 1;
        self.charge(spider, lease);
        self.stay_with(slot, spider);
        self.slots.draw_ticket(slot);
        self.leave_line(now, slot);
        if !self.waits_for_itself(slot, host) {
            self.look_at_slot(now, slot, host);
        }
        lease
    }

    /// The short way of nearly every slot that has sent: to its host's own gate, if nothing but that is to be asked.
    fn waits_for_itself(&mut self, slot: SlotId, host: HostId) -> bool {
        let (entry, slots, gates) = (&self.hosts[host], &mut self.slots, &mut self.gates);
        let short = gates[entry.gate].waits_for_end()
            && entry.has_sendable()
            && !(entry.errand || entry.stopped || self.claims.on)
            && !self.config.robots
            && entry.group.is_none();
        if short {
            slots.wait_at(gates, entry.gate, slot);
        }
        short
    }

    /// The next document of a host that has one.
    pub(super) fn take_lease(&mut self, host: HostId) -> LeaseId {
        if let Some(lease) = self.leases.links.pop_front(&mut self.hosts[host].front) {
            return lease;
        }
        let url = self.take_first(host);
        self.hosts[host].leases += 1;
        self.leases.add(host, url)
    }

    fn charge(&mut self, spider: SpiderId, lease: LeaseId) {
        let Some(spider) = self.spiders.get_mut(spider) else { return };
        spider.in_flight += 1;
        spider.credit = spider.credit.map(|credit| credit - 1);
        spider.first_unwritten.get_or_insert(lease);
        self.leases.links.push_back(&mut spider.sends, lease);
    }

    fn stay_with(&mut self, slot: SlotId, spider: SpiderId) {
        let before = std::mem::replace(&mut self.slots[slot].spider, spider);
        if before == spider {
            return;
        }
        if let Some(before) = self.spiders.get_mut(before) {
            before.hosts -= 1;
        }
        if let Some(spider) = self.spiders.get_mut(spider) {
            spider.hosts += 1;
        }
    }

    fn work(&self, lease: LeaseId) -> Option<Work<'_>> {
        let lease = &self.leases[lease];
        let flight = lease.flight()?;
        Some(Work {
            spider: flight.spider,
            trans: flight.trans,
            doc: lease.url.doc,
            ip: self.ips[flight.ip].address,
            host: self.hosts.name(lease.host),
            tail: lease.url.tail_bytes(),
        })
    }

    /// The gates a send of this host must pass now.
    pub(super) fn gate_set(&self, host: HostId) -> Option<GateSet> {
        let host = &self.hosts[host];
        let ip = self.ips[host.ip?].gate;
        Some(GateSet { host: host.gate, ip, alias: host.alias, group: host.group })
    }

    pub(super) fn first_closed(&self, now: Instant, gates: GateSet) -> Option<(GateId, Closed)> {
        gates.iter().find_map(|gate| self.closed(now, gate).map(|closed| (gate, closed)))
    }

    /// Why `gate` is closed, if it is; also by what it does not know of itself.
    pub(super) fn closed(&self, now: Instant, gate: GateId) -> Option<Closed> {
        let claim = || self.lacks_claim(now, gate).then_some(Closed::Claim);
        self.gates[gate].closed(now).or_else(claim)
    }

    /// Sends a parked slot on its way: to the ready line, to the gate that stops it, or to the bench.
    pub(super) fn look_at_slot(&mut self, now: Instant, slot: SlotId, host: HostId) {
        if self.slots[slot].wait != Wait::Parked || self.slots[slot].host != Some(host) {
            return;
        }
        let entry = &self.hosts[host];
        if entry.draining || entry.reserved || !entry.wants_to_go() {
            return;
        }
        if self.stopped_until(now, host).is_some() || !self.has_address(now, host) {
            return;
        }
        let Some(step) = self.next_step(now, host) else {
            return self.bench_without_rules(now, host);
        };
        let Some(gates) = self.gate_set(host) else { return };
        self.want_claims(now, host, gates);
        if let Some((gate, closed)) = self.first_closed(now, gates) {
            if let Closed::Until(until, _) = closed
                && self.bench(now, host, until)
            {
                return;
            }
            self.slots.wait_at(&mut self.gates, gate, slot);
            self.settle_closed(now, gate, closed);
            return self.refresh_in_line(now, host);
        }
        match self.first_owed(slot, gates) {
            Some(gate) => self.wait_at(now, slot, host, gate),
            None => self.line_up(slot, Some(step), MayGo::since(now, false)),
        }
    }

    /// The first gate at which somebody has waited longer. As all lines go by the same tickets, the slot
    /// that has waited longest of all never stands back, and somebody always goes.
    fn first_owed(&self, slot: SlotId, gates: GateSet) -> Option<GateId> {
        let ticket = self.slots[slot].ticket;
        gates.iter().find(|&gate| {
            let first = self.gates[gate].first_in_line();
            first.is_some_and(|first| self.slots[first].ticket < ticket)
        })
    }

    /// A slot that no gate stops waits for its turn.
    fn line_up(&mut self, slot: SlotId, step: Option<Step>, may_go: MayGo) {
        match step {
            Some(Step::Fetch) => self.slots.wait_to_fetch(slot),
            // Without a step it finds out when its turn comes.
            Some(Step::Send) | None => self.slots.wait_ready(slot, may_go),
        }
    }

    fn wait_at(&mut self, now: Instant, slot: SlotId, host: HostId, gate: GateId) {
        self.slots.wait_at(&mut self.gates, gate, slot);
        self.settle(now, gate);
        self.refresh_in_line(now, host);
    }

    /// Wakes the first waiter of an open gate, or sets the timer of one that opens by time. Must be called
    /// after whatever may have opened or closed a gate.
    pub(super) fn settle(&mut self, now: Instant, gate: GateId) {
        if !self.gates[gate].is_settled() {
            self.settle_opened(now, gate, None);
        }
    }

    /// The same, for a gate whose clock ran out at `opened`, which may have been noticed late.
    pub(super) fn settle_opened(&mut self, now: Instant, gate: GateId, opened: Option<Instant>) {
        let entry = &self.gates[gate];
        let Some(first) = entry.waiters.front::<SlotId>() else {
            return self.gates.cancel_timer(gate);
        };
        match self.closed(now, gate) {
            None if entry.woken.is_some() => {}
            None => {
                self.gates[gate].woken = Some(first);
                self.slots.park(&mut self.gates, first);
                self.slots[first].woken_by = Some(gate);
                let opened = opened.or_else(|| self.gates.timer(gate).filter(|&at| at <= now));
                let since = opened.map_or(now, |at| at.max(self.gates[gate].opened_at()).min(now));
                let may_go = MayGo::since(since, opened.is_some());
                let step = self.slots[first].host.and_then(|host| self.next_step(now, host));
                self.line_up(first, step, may_go);
            }
            Some(closed) => self.settle_closed(now, gate, closed),
        }
    }

    /// The same, for a gate that somebody waits at and that is closed.
    fn settle_closed(&mut self, now: Instant, gate: GateId, closed: Closed) {
        match closed {
            Closed::Until(at, _) => self.gates.set_timer(gate, at),
            Closed::Full | Closed::Writing => self.gates.cancel_timer(gate),
            Closed::Claim => {
                self.gates.cancel_timer(gate);
                if let Some(first) = self.gates[gate].waiters.front() {
                    self.wake_claims(now, gate, first);
                }
            }
            Closed::OnTrial => {
                if let GateOwner::Ip(ip) = self.gates[gate].owner() {
                    self.want_probe(ip);
                }
            }
        }
    }

    /// Takes a slot from wherever it waits; if a gate had woken it, that gate may wake the next.
    pub(super) fn leave_line(&mut self, now: Instant, slot: SlotId) {
        let line = self.slots[slot].wait;
        self.slots.park(&mut self.gates, slot);
        if let Some(gate) = self.slots[slot].woken_by.take() {
            self.gates[gate].woken = None;
            self.settle(now, gate);
        }
        if let Wait::Gate(gate) = line {
            self.settle(now, gate);
        }
    }

    /// Takes the host's slot from wherever it waits, if it has one.
    pub(super) fn stop_waiting(&mut self, now: Instant, host: HostId) {
        if let Some(slot) = self.hosts[host].slot() {
            self.leave_line(now, slot);
        }
    }

    /// The first `lines` lines of `spider` that were not written yet are written now.
    pub(super) fn start_clocks(&mut self, now: Instant, spider: SpiderId, lines: usize) {
        for _ in 0..lines {
            let Some(entry) = self.spiders.get_mut(spider) else { return };
            let (Some(lease), noted) = (entry.first_unwritten, entry.noted) else { return };
            entry.first_unwritten = self.leases.links.next(lease);
            let LeaseState::Unwritten(flight) = self.leases[lease].state else { return };
            self.leases.start_clocks(now, lease, flight);
            let delay = now.micros_since(flight.may_go.instant());
            self.timings.send_delay.observe(delay);
            if flight.may_go.by_clock() {
                self.timings.gap_error.observe(delay);
            }
            for gate in flight.gates.iter() {
                self.gates[gate].stamp(now);
                self.settle(now, gate);
            }
            self.note_late_write(now, noted, flight.gates);
        }
    }
}
