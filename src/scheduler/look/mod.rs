//! How things stand, for people: read-only views of hosts, addresses and single URLs.
//!
//! Nothing here decides anything, and nothing that decides looks here. All that is walked is bounded by the constants
//! below, so that a look never keeps a send waiting; what is larger is walked in parts ([`HostPage`], [`UrlSearch`]).
//! Times are given as what is left of them: whoever looks needs no clock.

mod views;
mod walk;

pub use views::{
    AddressView, GateView, HealthView, HostBrief, HostState, HostView, IpView, Owner, RobotsView, Standing,
    UrlPlace,
};
pub use walk::{HostPage, UrlSearch};

use super::Scheduler;
use super::gates::{Closed, GateOwner, Why};
use super::hosts::{Place, Question};
use super::opinion::Opinion;
use super::orders::Standing as Orders;
use super::slots::Wait;
use crate::hostdb::health::HealthState;
use crate::hostdb::records::Advice;
use crate::ids::{GateId, HostId, IpId, SlotId};
use crate::time::{Duration, Instant};
use crate::url::Url;
use std::net::IpAddr;

/// URLs of one host that are walked in search of one.
pub const QUEUE_WALK_MAX: usize = 100_000;
/// Hosts in the leftover, and slots in a gate's line, that are counted before one.
pub const LINE_WALK_MAX: usize = 10_000;
/// Hosts of one address that are named.
pub const HOSTS_OF_IP_MAX: usize = 100;

impl Scheduler {
    /// One host, if it is known.
    pub fn host(&self, now: Instant, name: &str) -> Option<HostView> {
        self.hosts.find(name).map(|host| self.host_view(now, host))
    }

    /// A host that nobody has heard of, if there are orders for it.
    pub fn ordered_host(&self, now: Instant, name: &str) -> Option<HostView> {
        let orders = self.standing(now, name);
        let left = (!orders.paused).then_some(orders.blocked_for);
        let standing = if left == Some(Duration::ZERO) { Standing::Idle } else { Standing::Stopped { left } };
        (orders != Orders::default()).then(|| HostView {
            brief: HostBrief {
                name: name.into(),
                state: self.state_of(&standing),
                slot: None,
                queued: 0,
                leftover: 0,
                in_flight: 0,
                ip: None,
            },
            addresses: Vec::new(),
            alias: None,
            group: None,
            next_send_in: None,
            gap: self.config.host.gap.max(orders.delay),
            holds: Vec::new(),
            orders,
            standing: standing.map(|gate| self.gate_view(gate, None)),
        })
    }

    /// The same in short, without a walk along any line.
    pub fn host_brief(&self, now: Instant, name: &str) -> Option<HostBrief> {
        self.hosts.find(name).map(|host| self.brief(host, self.state_of(&self.what_stops(now, host))))
    }

    /// One address, if it is known.
    pub fn ip(&self, now: Instant, address: IpAddr) -> Option<IpView> {
        let ip = &self.ips[self.ips.find(address)?];
        let gate = &self.gates[ip.gate];
        let hosts = self.ip_links.iter(&ip.hosts).take(HOSTS_OF_IP_MAX);
        Some(IpView {
            address,
            host_count: ip.host_count,
            hosts: hosts.map(|host| self.hosts.name(host).into()).collect(),
            pending: ip.pending.into(),
            in_flight: gate.in_flight,
            health: health_view(now, ip.health.state(now)),
            next_send_in: match gate.closed(now) {
                None => Some(Duration::ZERO),
                Some(Closed::Until(until, _)) => Some(until.since(now)),
                Some(Closed::Full | Closed::Writing | Closed::OnTrial | Closed::Claim) => None,
            },
            gap: gate.gap(),
        })
    }

    /// What robots.txt says of `url`.
    pub fn robots(&self, now: Instant, url: &Url) -> RobotsView {
        match self.opinion(now, url) {
            Opinion::Unasked => RobotsView::Ignored,
            Opinion::Unknown { .. } if !self.config.robots && self.hosts.find(url.host()).is_none() => {
                RobotsView::Ignored
            }
            Opinion::Unknown { .. } => RobotsView::Unknown,
            Opinion::Allowed { .. } => RobotsView::Allowed,
            Opinion::Denied { line, rule } => {
                RobotsView::Denied { line, rule: format!("Disallow: {rule}").into() }
            }
            Opinion::TooSlow { delay } => RobotsView::TooSlow { delay },
        }
    }

    /// Most sends of one document; 0 is any number.
    pub fn max_attempts(&self) -> u32 {
        self.config.max_attempts
    }

    fn brief(&self, id: HostId, state: HostState) -> HostBrief {
        let host = &self.hosts[id];
        let in_slot = if host.slot().is_some() { self.share_in_slot(id) } else { 0 };
        HostBrief {
            name: self.hosts.name(id).into(),
            state,
            slot: host.slot(),
            queued: in_slot.saturating_sub(host.in_flight.into()),
            leftover: host.pending() as u64 - in_slot,
            in_flight: host.in_flight,
            ip: host.ip.map(|ip| self.ips[ip].address),
        }
    }

    fn host_view(&self, now: Instant, id: HostId) -> HostView {
        let host = &self.hosts[id];
        let standing = match self.what_stops(now, id) {
            Standing::Leftover { .. } => Standing::Leftover { ahead: self.ahead_in_leftover(id) },
            standing => standing,
        };
        let gates = self.gate_set(id);
        let all = || gates.iter().flat_map(|gates| gates.iter());
        let health = |&ip: &IpId| AddressView {
            address: self.ips[ip].address,
            health: health_view(now, self.ips[ip].health.state(now)),
        };
        let holds = all().filter(|&gate| self.gates[gate].held_until() > now);
        HostView {
            brief: self.brief(id, self.state_of(&standing)),
            addresses: host.record.addresses().iter().map(health).collect(),
            alias: host.alias.map(|gate| self.group_name(gate)),
            group: host.group.map(|gate| self.group_name(gate)),
            next_send_in: self.next_send_in(now, id, &standing),
            gap: all().map(|gate| self.gates[gate].gap()).max().unwrap_or(self.gates[host.gate].gap()),
            holds: holds.map(|gate| (self.owner(gate), self.gates[gate].held_until().since(now))).collect(),
            orders: self.standing(now, self.hosts.name(id)),
            standing: standing.map(|gate| self.gate_view(gate, host.slot())),
        }
    }

    /// What keeps a host from sending, in the order in which the host finds out; who comes first in the leftover is not
    /// counted.
    fn what_stops(&self, now: Instant, id: HostId) -> Standing<GateId> {
        let host = &self.hosts[id];
        if let Some(until) = self.stopped_until(now, id) {
            return stopped(now, until);
        }
        if host.reserved {
            return Standing::Reserved;
        }
        if host.pending() == 0 {
            return Standing::Idle;
        }
        if !host.has_sendable() {
            let left = host.last_wait.since(now);
            return if host.in_flight > 0 { Standing::InFlight } else { Standing::Delayed(left) };
        }
        match self.advice(now, id) {
            Advice::Fail => return Standing::NoSuchName,
            Advice::Deny => return Standing::Private,
            Advice::Ask if host.ip.is_none() || host.place != Place::Leftover => {
                return self.resolving(now, id);
            }
            Advice::Ask | Advice::Use | Advice::UseAndRefresh => {}
        }
        let Some(gates) = self.gate_set(id) else { return self.resolving(now, id) };
        if host.place == Place::Leftover {
            return Standing::Leftover { ahead: None };
        }
        if let Some(standing) = self.stopped_by(now, gates.iter()) {
            return standing;
        }
        match host.slot().map(|slot| self.slots[slot].wait) {
            Some(Wait::Gate(gate)) => Standing::Turn(gate),
            Some(Wait::Fetch) if self.is_paused() => Standing::AllPaused,
            Some(Wait::Fetch) => Standing::Asking { again_in: None },
            Some(Wait::Parked) if self.obeys(id) => {
                Standing::Asking { again_in: self.origins.timers.at(id).map(|at| at.since(now)) }
            }
            Some(Wait::Ready | Wait::Parked) | None if self.is_paused() => Standing::AllPaused,
            Some(Wait::Ready | Wait::Parked) | None => Standing::Ready,
        }
    }

    fn resolving(&self, now: Instant, id: HostId) -> Standing<GateId> {
        let back_off = self.hosts[id].question == Question::BackOff;
        let again = back_off.then(|| self.host_timers.at(id)).flatten();
        Standing::Resolving { again_in: again.map(|at| at.since(now)) }
    }

    /// Of all closed gates the one that matters most: a hold, then one that opens with an end, then the last clock.
    fn stopped_by(&self, now: Instant, gates: impl Iterator<Item = GateId>) -> Option<Standing<GateId>> {
        let closed = gates.filter_map(|gate| self.closed(now, gate).map(|closed| (gate, closed)));
        let weight = |closed: &Closed| match *closed {
            Closed::Claim => (4, Instant::ZERO),
            Closed::Until(until, Why::Hold) => (3, until),
            Closed::OnTrial => (2, Instant::ZERO),
            Closed::Full | Closed::Writing => (1, Instant::ZERO),
            Closed::Until(until, Why::Gap | Why::Rest) => (0, until),
        };
        let (gate, closed) = closed.max_by_key(|(_, closed)| weight(closed))?;
        Some(match closed {
            Closed::Full | Closed::Writing => Standing::Full(gate),
            Closed::OnTrial => Standing::OnTrial(gate),
            Closed::Claim => Standing::Unclaimed(gate),
            Closed::Until(until, why) => Standing::Clock { gate, left: until.since(now), why },
        })
    }

    fn state_of(&self, standing: &Standing<GateId>) -> HostState {
        match standing {
            Standing::Idle => HostState::Idle,
            Standing::Ready => HostState::Ready,
            Standing::Turn(_)
            | Standing::Unclaimed(_)
            | Standing::Clock { why: Why::Gap | Why::Rest, .. } => HostState::Waiting,
            Standing::Clock { gate, why: Why::Hold, .. } => match self.gates[*gate].owner() {
                GateOwner::Ip(_) => HostState::Down,
                GateOwner::Host(_) | GateOwner::Group(_) => HostState::Held,
            },
            Standing::OnTrial(_) => HostState::Down,
            Standing::Full(_) | Standing::InFlight | Standing::Reserved => HostState::Busy,
            Standing::Stopped { left: None } | Standing::AllPaused => HostState::Paused,
            Standing::Stopped { left: Some(_) } => HostState::Blocked,
            Standing::Resolving { .. } => HostState::Resolving,
            Standing::Asking { .. } => HostState::Asking,
            Standing::Leftover { .. } => HostState::Leftover,
            Standing::Delayed(_) => HostState::Delayed,
            Standing::NoSuchName | Standing::Private => HostState::Draining,
        }
    }

    /// How long until the host sends, at the earliest: all its clocks have run out, and whoever comes first at a gate
    /// has had a gap of it. Not said where it depends on what others do.
    fn next_send_in(&self, now: Instant, id: HostId, standing: &Standing<GateId>) -> Option<Duration> {
        let clocks = || {
            let gates = self.gate_set(id).into_iter().flat_map(|gates| gates.iter());
            let left = |gate| match self.closed(now, gate) {
                None => Some(Duration::ZERO),
                Some(Closed::Until(until, _)) => Some(until.since(now)),
                Some(Closed::Full | Closed::Writing | Closed::OnTrial | Closed::Claim) => None,
            };
            gates.map(left).try_fold(Duration::ZERO, |longest, left| Some(longest.max(left?)))
        };
        match standing {
            Standing::Ready => Some(Duration::ZERO),
            Standing::Turn(gate) | Standing::Clock { gate, .. } => {
                let ahead = self.ahead_at(*gate, self.hosts[id].slot());
                Some(clocks()?.saturating_add(self.gates[*gate].gap().saturating_mul(ahead)))
            }
            Standing::Delayed(left) => clocks().map(|clocks| clocks.max(*left)),
            Standing::Stopped { left } => *left,
            Standing::Idle
            | Standing::AllPaused
            | Standing::Reserved
            | Standing::Full(_)
            | Standing::OnTrial(_)
            | Standing::Unclaimed(_)
            | Standing::Resolving { .. }
            | Standing::Asking { .. }
            | Standing::Leftover { .. }
            | Standing::InFlight
            | Standing::NoSuchName
            | Standing::Private => None,
        }
    }

    fn ahead_in_leftover(&self, id: HostId) -> Option<u32> {
        let mut line = self.place_links.iter(&self.leftover).take(LINE_WALK_MAX);
        line.position(|host| host == id).map(|ahead| ahead as u32)
    }

    /// Slots that come before `slot` at `gate`, as far as they are counted; none if it does not wait there.
    fn ahead_at(&self, gate: GateId, slot: Option<SlotId>) -> u32 {
        let Some(slot) = slot.filter(|&slot| self.slots[slot].wait == Wait::Gate(gate)) else { return 0 };
        let line = self.slots.line(&self.gates[gate].waiters).take(LINE_WALK_MAX);
        let woken = u32::from(self.gates[gate].woken.is_some());
        woken + line.take_while(|&first| first != slot).count() as u32
    }

    fn gate_view(&self, gate: GateId, slot: Option<SlotId>) -> GateView {
        let entry = &self.gates[gate];
        GateView {
            owner: self.owner(gate),
            in_flight: entry.in_flight,
            limit: entry.limit(),
            gap: entry.gap(),
            ahead: self.ahead_at(gate, slot),
        }
    }

    fn owner(&self, gate: GateId) -> Owner {
        match self.gates[gate].owner() {
            GateOwner::Host(_) => Owner::Host,
            GateOwner::Ip(ip) => Owner::Ip { address: self.ips[ip].address, hosts: self.ips[ip].host_count },
            GateOwner::Group(number) if (number as usize) < self.config.aliases.len() => {
                Owner::Alias(self.group_name(gate))
            }
            GateOwner::Group(_) => Owner::Group(self.group_name(gate)),
        }
    }

    fn group_name(&self, gate: GateId) -> Box<str> {
        let GateOwner::Group(number) = self.gates[gate].owner() else { return Box::default() };
        let rules = self.config.aliases.iter().chain(&self.config.groups);
        rules.map(|rule| &rule.name).nth(number as usize).cloned().unwrap_or_default()
    }
}

/// What keeps a host from sending that is stopped until then.
fn stopped(now: Instant, until: Instant) -> Standing<GateId> {
    Standing::Stopped { left: (until != Instant::FAR).then(|| until.since(now)) }
}

fn health_view(now: Instant, state: HealthState) -> HealthView {
    match state {
        HealthState::Up => HealthView::Up,
        HealthState::Down { until } => HealthView::Down(until.since(now)),
        HealthState::Suspect => HealthView::Suspect,
    }
}
