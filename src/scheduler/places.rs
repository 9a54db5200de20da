//! Where hosts stand: slot, leftover, bench, idle; and what follows when something about a host changes.

use super::Scheduler;
use super::addresses::Probe;
use super::gates::Closed;
use super::hosts::{Place, Question};
use super::slots::Wait;
use crate::hostdb::records::Record;
use crate::ids::{GateId, HostId, IpId, SlotId};
use crate::time::{Duration, Instant};

/// A host that cannot send for longer than this lets others have its slot.
const BENCH_AFTER: Duration = Duration::from_secs(30);
/// Hosts on the bench, per slot, at most: beyond that they keep their slots and no more is asked for.
const BENCH_PER_SLOT: usize = 16;
/// Hosts with nothing pending that are kept for their address alone.
const IDLE_HOSTS_MAX: usize = 100_000;
/// Idle hosts and addresses looked at per call, so that forgetting keeps up with arriving.
const SWEEP_STEPS: usize = 2;

impl Scheduler {
    /// Something about a host has changed: finds it the right place, and sends its slot on its way.
    pub(super) fn look_at(&mut self, now: Instant, host: HostId) {
        self.drop_idle_wants(host);
        if !self.hosts[host].has_work() {
            return self.retire(now, host);
        }
        if let Some(until) = self.stopped_until(now, host) {
            return self.stand_aside(now, host, until);
        }
        match self.hosts[host].place {
            Place::Idle => {
                self.place_links.remove(&mut self.idle, host);
                self.idle_hosts -= 1;
                self.enter_leftover(host);
                self.fill_slots(now);
            }
            Place::Stopped => {
                self.stopped_hosts -= 1;
                self.enter_leftover(host);
                self.fill_slots(now);
            }
            Place::Slot(slot) => self.look_at_slot(now, slot, host),
            Place::Leftover | Place::Benched => {}
        }
        self.wait_on_bench(now, host);
        if self.hosts[host].place == Place::Benched {
            self.fill_slots(now);
        }
        self.mind_name(now, host);
    }

    /// Gives free slots to the hosts that have waited longest.
    pub(super) fn fill_slots(&mut self, now: Instant) {
        while let Some(host) = self.leftover.front() {
            let Some(slot) = self.slots.bind(host) else { return };
            self.place_links.remove(&mut self.leftover, host);
            self.leftover_hosts -= 1;
            self.hosts[host].place = Place::Slot(slot);
            self.in_slots += self.share_in_slot(host);
            self.look_at_slot(now, slot, host);
            self.wait_on_bench(now, host);
            self.mind_name(now, host);
        }
    }

    fn enter_leftover(&mut self, host: HostId) {
        self.hosts[host].place = Place::Leftover;
        self.place_links.push_back(&mut self.leftover, host);
        self.leftover_hosts += 1;
    }

    /// Lets others have the slot of a host that cannot send before `until`. False if it must keep it.
    pub(super) fn bench(&mut self, now: Instant, host: HostId, until: Instant) -> bool {
        let Place::Slot(slot) = self.hosts[host].place else { return false };
        if !self.may_sit_down(now, host, until) {
            return false;
        }
        self.sit_down(slot, host);
        self.host_timers.set(host, until);
        true
    }

    /// If all that is left of `host` waits for its time, and for long, others have its slot. Going by the
    /// wait that began last is good enough: the end of any wait brings the host back.
    fn wait_on_bench(&mut self, now: Instant, host: HostId) {
        let until = self.hosts[host].last_wait;
        if !self.hosts[host].wants_to_go() && self.may_sit_down(now, host, until) {
            self.stop_waiting(now, host);
            self.bench(now, host, until);
        }
    }

    fn may_sit_down(&self, now: Instant, host: HostId, until: Instant) -> bool {
        !self.bench_is_full() && self.hosts[host].in_flight == 0 && until > now + BENCH_AFTER
    }

    /// A gate stays closed for long: lets others have the slots that wait there.
    pub(super) fn make_way(&mut self, now: Instant, gate: GateId) {
        let Some(Closed::Until(until, _)) = self.gates[gate].closed(now) else { return };
        if until <= now + BENCH_AFTER {
            return;
        }
        let waiting = self.slots.line(&self.gates[gate].waiters);
        let hosts: Vec<HostId> = waiting.filter_map(|slot| self.slots[slot].host).collect();
        for host in hosts {
            self.give_way(now, host);
        }
    }

    /// The same for one host, if that is where it waits.
    pub(super) fn give_way(&mut self, now: Instant, host: HostId) {
        let Some(Wait::Gate(gate)) = self.hosts[host].slot().map(|slot| self.slots[slot].wait) else {
            return;
        };
        if let Some(Closed::Until(until, _)) = self.gates[gate].closed(now)
            && self.may_sit_down(now, host, until)
        {
            self.stop_waiting(now, host);
            self.bench(now, host, until);
            self.fill_slots(now);
        }
    }

    /// Lets others have the slot of a host that waits for an answer; whoever brings it brings the host back.
    pub(super) fn bench_without_answer(&mut self, now: Instant, host: HostId) {
        let Place::Slot(slot) = self.hosts[host].place else { return };
        if self.hosts[host].in_flight == 0 && !self.bench_is_full() {
            self.stop_waiting(now, host);
            self.sit_down(slot, host);
            self.fill_slots(now);
        }
    }

    fn sit_down(&mut self, slot: SlotId, host: HostId) {
        self.leave_slot(slot, host);
        self.hosts[host].place = Place::Benched;
        self.benched += 1;
    }

    fn bench_is_full(&self) -> bool {
        self.benched >= self.config.queue_count as usize * BENCH_PER_SLOT
    }

    /// The host may be able to send again: it waits for a slot like others, if it has something to send.
    pub(super) fn unbench(&mut self, now: Instant, host: HostId) {
        if self.hosts[host].place == Place::Benched && self.hosts[host].wants_to_go() {
            self.benched -= 1;
            self.enter_leftover(host);
            self.fill_slots(now);
        }
    }

    /// There is nothing to do for it any more.
    fn retire(&mut self, now: Instant, host: HostId) {
        match self.hosts[host].place {
            Place::Idle => return,
            Place::Leftover => {
                self.place_links.remove(&mut self.leftover, host);
                self.leftover_hosts -= 1;
            }
            Place::Benched => self.benched -= 1,
            Place::Stopped => self.stopped_hosts -= 1,
            Place::Slot(slot) => {
                self.leave_line(now, slot);
                self.leave_slot(slot, host);
            }
        }
        self.hosts[host].place = Place::Idle;
        self.place_links.push_back(&mut self.idle, host);
        self.idle_hosts += 1;
        self.drop_claims(now, host);
        self.fill_slots(now);
        self.sweep(now);
    }

    pub(super) fn leave_slot(&mut self, slot: SlotId, host: HostId) {
        self.in_slots -= self.share_in_slot(host);
        if let Some(spider) = self.spiders.get_mut(self.slots[slot].spider) {
            spider.hosts -= 1;
        }
        self.slots.unbind(slot);
    }

    /// URLs of a host that count as being in its slot.
    pub(super) fn share_in_slot(&self, host: HostId) -> u64 {
        self.hosts[host].pending().min(self.config.queue_len as usize) as u64
    }

    /// One more document is pending for `host`; it has been queued already.
    pub(super) fn add_pending(&mut self, host: HostId) {
        self.pending += 1;
        let (pending, len) = (self.hosts[host].pending(), self.config.queue_len as usize);
        if self.hosts[host].slot().is_some() && pending <= len {
            self.in_slots += 1;
        }
        if pending >= len && !self.hosts[host].full {
            self.hosts[host].full = true;
            self.full_links.push_back(&mut self.full, host);
        }
        if let Some(ip) = self.hosts[host].ip {
            self.add_pending_on(ip, 1);
        }
    }

    /// One document less is pending for `host`; it has been taken out already.
    pub(super) fn drop_pending(&mut self, host: HostId) {
        self.pending -= 1;
        let (pending, len) = (self.hosts[host].pending(), self.config.queue_len as usize);
        if self.hosts[host].slot().is_some() && pending < len {
            self.in_slots -= 1;
        }
        if pending < len && self.hosts[host].full {
            self.hosts[host].full = false;
            self.full_links.remove(&mut self.full, host);
            self.demand.handle_change();
        }
        if let Some(ip) = self.hosts[host].ip {
            self.drop_pending_on(ip, 1);
        }
    }

    pub(super) fn add_pending_on(&mut self, ip: IpId, count: u32) {
        let max = self.config.ip_max_urls;
        let entry = &mut self.ips[ip];
        entry.pending += count;
        if max > 0 && entry.pending > max && !entry.crowded {
            entry.crowded = true;
            self.crowd_links.push_back(&mut self.crowded, ip);
        }
    }

    pub(super) fn drop_pending_on(&mut self, ip: IpId, count: u32) {
        let max = self.config.ip_max_urls;
        let entry = &mut self.ips[ip];
        entry.pending -= count;
        if entry.crowded && entry.pending <= max {
            entry.crowded = false;
            self.crowd_links.remove(&mut self.crowded, ip);
            self.demand.handle_change();
        }
    }

    /// Forgets a few hosts and addresses that nothing is owed to and nothing is known of.
    pub(super) fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEEP_STEPS {
            self.sweep_host(now);
            self.sweep_ip(now);
        }
        self.sweep_order(now);
        self.sweep_saved(now);
    }

    fn sweep_host(&mut self, now: Instant) {
        let Some(host) = self.place_links.pop_front(&mut self.idle) else { return };
        let entry = &self.hosts[host];
        let crowded = self.idle_hosts > IDLE_HOSTS_MAX;
        let end_of_use = entry.record.end_of_use(&self.config.ttl);
        let useless = crowded
            || (now >= end_of_use || end_of_use == Instant::FAR) && !self.origins.has_fresh_rules(now, host);
        let asking = entry.question != Question::No
            || entry.draining
            || self.origins.awaits_answer(host)
            || self.claims.knows(entry.gate);
        if !useless || asking || !self.gates[entry.gate].owes_nothing(now) {
            return self.place_links.push_back(&mut self.idle, host);
        }
        self.idle_hosts -= 1;
        self.replace_record(now, host, Record::Unknown);
        self.host_timers.cancel(host);
        self.origins.forget(host);
        let host = self.hosts.forget(host);
        self.gates.forget(host.gate);
    }

    fn sweep_ip(&mut self, now: Instant) {
        let Some(ip) = self.idle_ip_links.pop_front(&mut self.idle_ips) else { return };
        let probing = self.ips[ip].probe != Probe::No || self.claims.knows(self.ips[ip].gate);
        if probing || !self.gates[self.ips[ip].gate].owes_nothing(now) {
            return self.idle_ip_links.push_back(&mut self.idle_ips, ip);
        }
        if self.ips[ip].unwell {
            self.unwell_links.remove(&mut self.unwell, ip);
        }
        let ip = self.ips.forget(ip);
        self.gates.forget(ip.gate);
    }
}
