//! What spiders say, and what their silence says.

use super::Scheduler;
use super::gates::{Gate, GateOwner};
use super::leases::{Flight, GateSet, LeaseState};
use super::send::APPROACHED;
use crate::document::{Done, End, FailReason, Outcome};
use crate::ids::{IpId, LeaseId, SpiderId, TransId};
use crate::time::{Duration, Instant, scaled};

/// Longest hold without a word of the web server how long it should be.
const HOLD_MAX: Duration = Duration::from_secs(3600);
/// Longest hold that a web server can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Shortest such hold.
const HOLD_MIN: Duration = Duration::from_secs(1);
/// Such holds last up to this fraction longer, so that they do not all end at once.
const JITTER: f64 = 0.25;

impl Scheduler {
    /// A spider is here. In push mode, with room, until it says otherwise.
    pub fn handle_spider_connected(&mut self) -> SpiderId {
        self.spiders.add(self.slots.bound_count())
    }

    /// A spider asks for `lines` more, and from now on gets no more than it asks for.
    pub fn handle_credit(&mut self, spider: SpiderId, lines: u64) {
        if let Some(spider) = self.spiders.get_mut(spider) {
            spider.credit = Some(spider.credit.unwrap_or(0).saturating_add(lines));
        }
    }

    /// A spider's buffer is full, or has room again.
    pub fn handle_choked(&mut self, spider: SpiderId, choked: bool) {
        if let Some(spider) = self.spiders.get_mut(spider) {
            spider.choked = choked;
        }
    }

    /// The next `lines` lines for `spider` have been written to its socket: their clocks start.
    pub fn handle_written(&mut self, now: Instant, spider: SpiderId, lines: usize) {
        self.start_clocks(now, spider, lines);
    }

    /// Looks at all that the ends of these fetches will need, of the first few of them. It lies far apart, and is had sooner together.
    pub fn approach(&self, sends: impl Iterator<Item = TransId>) {
        let mut leases = [None; APPROACHED];
        leases.iter_mut().zip(sends).for_each(|(lease, trans)| *lease = self.slots.lease_at(trans));
        let leases = || leases.iter().flatten().map(|&lease| &self.leases[lease]);
        // All leases first, and then what they name: nothing waits for anything of its own round.
        let found = leases().fold(0, |seen, lease| seen ^ lease.attempts ^ lease.host.number());
        let near = leases().filter_map(|lease| Some((lease.host, lease.flight()?))).fold(
            0,
            |seen, (host, flight)| {
                let gates = self.gates[flight.gates.host].in_flight ^ self.gates[flight.gates.ip].in_flight;
                let host = &self.hosts[host];
                seen ^ gates ^ host.in_flight ^ u32::from(host.unanswered) ^ self.ips[flight.ip].host_count
            },
        );
        std::hint::black_box(found ^ near);
    }

    /// A spider has ended a fetch. False if it has no such send in flight; then nothing changes.
    pub fn handle_done(&mut self, now: Instant, spider: SpiderId, trans: TransId, done: Done) -> bool {
        self.trust(now, spider);
        let Some((lease, flight, written)) = self.find(spider, trans) else {
            self.counters.stale_status += 1;
            return false;
        };
        self.end_flight(lease, &flight);
        self.leases.stop_clocks(lease);
        self.timings.fetch.observe(now.micros_since(written));
        self.rest(now, flight.gates, now.micros_since(written), went_well(done.outcome));
        self.conclude_fetch(now, lease, &flight, written, done);
        self.settle_all(now, flight.gates);
        if is_refusal(done.outcome) {
            self.make_way(now, flight.gates.holder());
        }
        true
    }

    /// What the end of a fetch that was `sent` then means for its address, its host and its document.
    pub(super) fn conclude_fetch(
        &mut self,
        now: Instant,
        lease: LeaseId,
        flight: &Flight,
        sent: Instant,
        done: Done,
    ) {
        if is_unreachable(done.outcome) {
            self.ips[flight.ip].port = self.leases[lease].url.tail().port();
        }
        self.note_health(now, flight.ip, done.outcome);
        self.note_refusal(now, flight.gates, sent, done);
        match done.outcome {
            Outcome::DnsFailed => {
                self.distrust_name(now, self.leases[lease].host);
                self.retry(now, lease, FailReason::Outcome(done.outcome));
            }
            outcome if is_final(outcome) => self.finish(now, lease, End::Done(outcome)),
            outcome => self.retry(now, lease, FailReason::Outcome(outcome)),
        }
    }

    /// A spider is still at it. False if it has no such send in flight.
    pub fn handle_working(&mut self, now: Instant, spider: SpiderId, trans: TransId) -> bool {
        self.trust(now, spider);
        match self.find(spider, trans) {
            Some((lease, ..)) => self.leases.restart_status_clock(now, lease, self.config.lease_max),
            None => {
                self.counters.stale_status += 1;
                return false;
            }
        }
        true
    }

    /// A connection has ended: all that was in flight on it is pending again, at the head of its host.
    pub fn handle_spider_gone(&mut self, now: Instant, id: SpiderId) {
        let Some(spider) = self.spiders.remove(id) else { return };
        let leases: Vec<LeaseId> = self.leases.links.iter(&spider.sends).collect();
        for &lease in &leases {
            let Some(&flight) = self.leases[lease].flight() else { continue };
            self.free_gates_and_cell(lease, &flight);
            match self.leases[lease].state {
                LeaseState::Written { .. } => {
                    self.leases.stop_clocks(lease);
                    self.leases[lease].lost += 1;
                }
                // It never saw this one: no attempt, though its host's clock runs as if it had.
                LeaseState::Unwritten(_) => {
                    self.leases[lease].attempts -= 1;
                    for gate in flight.gates.iter() {
                        self.gates[gate].stamp(now);
                        self.note_if_long(now, gate);
                    }
                }
                LeaseState::Waiting | LeaseState::Front | LeaseState::Reserved => {}
            }
            self.send_again(now, lease);
            self.settle_all(now, flight.gates);
        }
    }

    /// Takes back what nothing was said of for too long, and what has lasted too long.
    pub(super) fn expire_leases(&mut self, now: Instant) {
        let timeout = self.silence_max();
        while let Some((lease, _)) = self.leases.most_silent().filter(|&(_, since)| since + timeout <= now) {
            self.expire(now, lease);
        }
        while let Some(lease) = self.leases.lives.pop_due(now) {
            self.expire(now, lease);
        }
    }

    /// Longest silence about a send: a life that is shorter than that ends in silence, too.
    pub(super) fn silence_max(&self) -> Duration {
        self.config.lease_max.map_or(self.config.status_timeout, |max| max.min(self.config.status_timeout))
    }

    fn expire(&mut self, now: Instant, lease: LeaseId) {
        let LeaseState::Written { flight, at, .. } = self.leases[lease].state else { return };
        self.counters.expired += 1;
        self.end_flight(lease, &flight);
        self.leases.stop_clocks(lease);
        self.rest(now, flight.gates, now.micros_since(at), false);
        if self.has_spoken_since(flight.spider, at) {
            self.ips[flight.ip].port = self.leases[lease].url.tail().port();
            self.handle_unreachable(now, flight.ip);
        } else {
            self.distrust(now, flight.spider);
        }
        self.retry(now, lease, FailReason::Expired);
        self.settle_all(now, flight.gates);
    }

    /// Whether silence about a send says something of its web server, since there was word of others. A
    /// spider that says nothing at all hangs itself: it must not take down all addresses it was given.
    fn has_spoken_since(&mut self, spider: SpiderId, at: Instant) -> bool {
        self.spiders.get_mut(spider).and_then(|spider| spider.spoke).is_some_and(|spoke| spoke >= at)
    }

    /// A spider that says nothing is the last to be given more, for a while or until it speaks.
    fn distrust(&mut self, now: Instant, spider: SpiderId) {
        if let Some(spider) = self.spiders.get_mut(spider) {
            spider.silent_until = now + self.config.status_timeout;
        }
    }

    fn trust(&mut self, now: Instant, spider: SpiderId) {
        if let Some(spider) = self.spiders.get_mut(spider) {
            spider.spoke = Some(now);
            spider.silent_until = Instant::ZERO;
        }
    }

    /// The send that `trans` names, if it is in flight with `spider`, and when it was written.
    fn find(&self, spider: SpiderId, trans: TransId) -> Option<(LeaseId, Flight, Instant)> {
        let lease = self.slots.lease_at(trans)?;
        match self.leases[lease].state {
            LeaseState::Written { flight, at, .. } if flight.trans == trans && flight.spider == spider => {
                Some((lease, flight, at))
            }
            LeaseState::Written { .. }
            | LeaseState::Unwritten(_)
            | LeaseState::Waiting
            | LeaseState::Reserved
            | LeaseState::Front => None,
        }
    }

    fn end_flight(&mut self, lease: LeaseId, flight: &Flight) {
        if let Some(spider) = self.spiders.get_mut(flight.spider) {
            spider.in_flight -= 1;
            self.leases.links.remove(&mut spider.sends, lease);
        }
        self.free_gates_and_cell(lease, flight);
    }

    fn free_gates_and_cell(&mut self, lease: LeaseId, flight: &Flight) {
        flight.gates.iter().for_each(|gate| self.gates[gate].leave());
        self.slots.free_cell(flight.trans);
        let host = self.leases[lease].host;
        self.hosts[host].in_flight -= 1;
        self.in_flight -= 1;
    }

    pub(super) fn settle_all(&mut self, now: Instant, gates: GateSet) {
        for gate in gates.iter() {
            if self.gates.table.get(gate).is_some() {
                self.mind_claim(now, gate);
                self.settle(now, gate);
            }
        }
        if let Some(GateOwner::Host(host)) = self.gates.table.get(gates.host).map(Gate::owner) {
            self.give_way(now, host);
        }
    }

    /// The host, and its alias and group, rest after a fetch.
    pub(super) fn rest(&mut self, now: Instant, gates: GateSet, took_micros: u64, went_well: bool) {
        let rest = self.config.rest.after(took_micros);
        self.gates[gates.host].rest(now, rest, went_well);
        self.note_if_long(now, gates.host);
        for gate in [gates.alias, gates.group].into_iter().flatten() {
            if let Some(rule) = self.rest_rule(gate) {
                self.gates[gate].rest(now, rule.after(took_micros), went_well);
                self.note_if_long(now, gate);
            }
        }
    }

    pub(super) fn note_health(&mut self, now: Instant, ip: IpId, outcome: Outcome) {
        match outcome {
            Outcome::ConnectFailed | Outcome::TlsFailed | Outcome::Timeout => {
                self.handle_unreachable(now, ip)
            }
            Outcome::Unsaid | Outcome::Status(_) => self.handle_reachable(now, ip),
            Outcome::DnsFailed | Outcome::Aborted => {}
        }
    }

    /// How long to stay away when the web server does not say: longer with each strike.
    fn own_hold(&mut self, strikes: u8) -> Duration {
        let base = self.config.retry_delay.max(HOLD_MIN);
        let hold = doubled(base, strikes.into(), HOLD_MAX);
        hold.saturating_add(scaled(hold, JITTER * self.rng.f64()))
    }

    /// 429 and 503 hold the host, or its alias or group: as long as the web server asks, or longer each time.
    pub(super) fn note_refusal(&mut self, now: Instant, gates: GateSet, sent: Instant, done: Done) {
        let holder = gates.holder();
        if !is_refusal(done.outcome) {
            if went_well(done.outcome) {
                self.gates[holder].forgive(sent);
            }
            return;
        }
        let strike = self.gates[holder].strike(now, sent);
        let asked = done.retry_after.map(|delay| delay.min(RETRY_AFTER_MAX));
        let Some(hold) = asked.or_else(|| strike.map(|strikes| self.own_hold(strikes))) else { return };
        self.gates[holder].hold(now + hold);
        self.note(holder);
        self.note_clock(now, holder);
        self.counters.holds += 1;
    }
}

/// `delay` doubled `times` times, at most `max`, at least `delay` itself.
pub(super) fn doubled(delay: Duration, times: u32, max: Duration) -> Duration {
    delay.saturating_mul(1u32.checked_shl(times).unwrap_or(u32::MAX)).min(max.max(delay))
}

fn is_final(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Unsaid => true,
        Outcome::Status(code) => !matches!(code, 408 | 429 | 500..=599),
        Outcome::ConnectFailed
        | Outcome::Timeout
        | Outcome::TlsFailed
        | Outcome::DnsFailed
        | Outcome::Aborted => false,
    }
}

/// Nobody was reached.
pub(super) fn is_unreachable(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::ConnectFailed | Outcome::TlsFailed | Outcome::Timeout)
}

/// The web server asks to be left alone.
pub(super) fn is_refusal(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Status(429 | 503))
}

pub(super) fn went_well(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Unsaid | Outcome::Status(100..=399))
}
