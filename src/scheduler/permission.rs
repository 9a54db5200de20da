//! Permission: no document goes before the robots.txt of its origin is known, and none that it forbids.
//!
//! The first document of a host in a slot is judged. Where rules are missing, the host's next way through its
//! gates is a request for them: it is counted there, and rests after, like any send. Redirects are followed
//! through the gates of the host they lead to; the rules belong to the origin that was asked first. What may not
//! be fetched ends one at a time, in [`Scheduler::poll_report`].
//!
//! Not here: what a robots.txt means (`crate::robots`), and what is remembered of it (`origins`).

use super::Scheduler;
use super::gates::GateOwner;
use super::hosts::Place;
use super::leases::LeaseState;
use super::origins::{Ask, Fetch, LIFETIME, LIFETIME_MIN, OriginKey, UNASKED, Want};
use super::slots::Wait;
use super::status::{doubled, is_refusal, is_unreachable, went_well};
use crate::document::{DenyReason, Done, End, FailReason, Outcome};
use crate::ids::{FetchId, HostId, LeaseId, SlotId};
use crate::robots::{Answer, Rules, Verdict};
use crate::time::{Duration, Instant, scaled};
use crate::url::Url;
use crate::url_queue::QueuedUrl;
use std::net::IpAddr;

/// Redirects that are followed; one more is as good as no robots.txt.
const HOPS_MAX: u8 = 5;
/// Requests in a row without an answer that counts, after which the documents that wait are given up.
const FAILURES_MAX: u8 = 10;
/// Wait before such a request is repeated: at least, and at most.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(300);
/// The wait is up to this fraction longer, so that hosts that failed together do not come back together.
const JITTER: f64 = 0.25;
/// A host that waits for its rules for longer than this lets others have its slot.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request for a robots.txt: exactly one [`Scheduler::handle_fetched`] must follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RobotsFetch {
    /// To be given back with the answer.
    pub id: FetchId,
    /// What to ask for. No redirect is to be followed.
    pub url: Url,
    /// Where to connect to.
    pub ip: IpAddr,
}

/// What a host would do next if its gates were open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Send its first document, which is allowed.
    Send,
    /// Ask for a robots.txt.
    Fetch,
}

/// What may become of a document.
enum Judgement {
    Allowed,
    Ends(End),
    /// Its rules are not known.
    Open,
}

impl Scheduler {
    /// The next request for a robots.txt that may go; it counts as gone. The caller bounds how many are under way.
    #[must_use]
    pub fn poll_fetch(&mut self, now: Instant) -> Option<RobotsFetch> {
        if self.orders.all_paused {
            return None;
        }
        while let Some(slot) = self.slots.to_fetch.front::<SlotId>() {
            let host = self.slots[slot].host?;
            if !self.may_go(now, slot, host, Step::Fetch) {
                self.leave_line(now, slot);
                self.look_at(now, host);
                continue;
            }
            return self.fetch(now, slot, host);
        }
        None
    }

    /// Whether documents are to end that [`Scheduler::poll_report`] has not been asked for.
    pub fn has_denied(&self) -> bool {
        !self.origins.denying.is_empty()
    }

    /// The answer to a [`RobotsFetch`].
    pub fn handle_fetched(&mut self, now: Instant, id: FetchId, answer: Answer) {
        let Some(fetch) = self.origins.fetches.remove(&id) else { return };
        let Fetch { want, at, ip, gates } = fetch;
        let done = done_of(&answer);
        gates.iter().for_each(|gate| self.gates[gate].leave());
        self.rest(now, gates, now.micros_since(at), went_well(done.outcome));
        if is_unreachable(done.outcome) {
            self.ips[ip].port = want.url.tail().port();
        }
        self.note_health(now, ip, done.outcome);
        self.note_refusal(now, gates, at, done);
        self.conclude(now, want, answer);
        self.settle_all(now, gates);
        if is_refusal(done.outcome) {
            self.make_way(now, gates.holder());
        }
    }

    /// What the host would do next. Its first document is judged for it.
    pub(super) fn next_step(&mut self, now: Instant, host: HostId) -> Option<Step> {
        let may_send = self.hosts[host].has_sendable() && (!self.obeys(host) || self.permits_head(now, host));
        let own_turn = || self.origins.get(host).is_some_and(|entry| entry.was_for_another);
        match (may_send, self.hosts[host].errand) {
            (true, false) => Some(Step::Send),
            (true, true) if own_turn() => Some(Step::Send),
            (_, true) => Some(Step::Fetch),
            (false, false) => None,
        }
    }

    /// Whether robots.txt means something to us on this host.
    pub(super) fn obeys(&self, host: HostId) -> bool {
        let group = self.hosts[host].group.map(|gate| self.gates[gate].owner());
        let said = match group {
            Some(GateOwner::Group(number)) => {
                self.config.groups[number as usize - self.config.aliases.len()].robots
            }
            Some(GateOwner::Host(_) | GateOwner::Ip(_)) | None => None,
        };
        said.unwrap_or(self.config.robots)
    }

    /// Whether the host's first document may be sent. If it is to end, it will; if that is not known, it is asked.
    fn permits_head(&mut self, now: Instant, host: HostId) -> bool {
        let lease = self.head(host);
        match self.judge(now, host, lease) {
            Judgement::Allowed => {
                self.origins.timers.cancel(host);
                return true;
            }
            Judgement::Ends(_) => {
                if !std::mem::replace(&mut self.origins.of(host).denying, true) {
                    self.origins.deny_links.push_back(&mut self.origins.denying, host);
                }
            }
            Judgement::Open => {
                let key = OriginKey::of(self.leases[lease].url.tail());
                let again = self.origins.find(host, key).and_then(|origin| origin.asks_at());
                if let Some(at) = again.or_else(|| self.patience(now, host)) {
                    self.origins.timers.set(host, at);
                }
            }
        }
        false
    }

    /// When a host that waits for an answer has waited too long, if that is not known already.
    fn patience(&self, now: Instant, host: HostId) -> Option<Instant> {
        self.origins.timers.at(host).is_none().then_some(now + PATIENCE)
    }

    /// The first document of a host that has one, out of its queue.
    fn head(&mut self, host: HostId) -> LeaseId {
        if let Some(lease) = self.hosts[host].front.front() {
            return lease;
        }
        self.origins.of(host);
        let url = self.take_first(host);
        let lease = self.leases.add(host, url);
        self.hosts[host].leases += 1;
        let turn = self.origins.of(host).taken;
        self.leases[lease].permit.turn = turn;
        self.leases[lease].permit.fresh = true;
        self.leases.links.push_back(&mut self.hosts[host].front, lease);
        lease
    }

    /// The first document of a host's queue, which must not be empty.
    pub(super) fn take_first(&mut self, host: HostId) -> QueuedUrl {
        let mut url = self.leases.buffer();
        self.store.pop(&mut self.hosts[host].urls, &mut url);
        if let Some(entry) = self.origins.get_mut(host) {
            entry.taken += 1;
        }
        url
    }

    /// The turn of a document that comes after all that are queued.
    fn turn_behind_all(&self, host: HostId) -> u64 {
        self.origins.get(host).map_or(0, |entry| entry.taken) + self.hosts[host].urls.len() as u64 + 1
    }

    /// Puts a document that was sent before, or has had to wait, in front of one that is there only to be judged.
    pub(super) fn put_first(&mut self, host: HostId, lease: LeaseId) {
        if let Some(entry) = self.origins.get_mut(host)
            && self.leases[lease].permit.turn == 0
        {
            // It has waited for its time, and never was in the queue.
            entry.taken += 1;
            self.leases[lease].permit.turn = entry.taken;
        }
        let front = &mut self.hosts[host].front;
        let fresh = front.back::<LeaseId>().filter(|&last| self.leases[last].permit.fresh);
        if let Some(fresh) = fresh {
            self.leases.links.remove(front, fresh);
        }
        self.leases.links.push_back(front, lease);
        if let Some(fresh) = fresh {
            self.leases.links.push_back(front, fresh);
        }
    }

    /// The document goes.
    pub(super) fn note_sent(&mut self, host: HostId, lease: LeaseId) {
        self.leases[lease].permit.fresh = false;
        if !self.obeys(host) {
            self.leases[lease].permit.version = UNASKED;
        } else if let Some(entry) = self.origins.get_mut(host) {
            entry.was_for_another = false;
        }
    }

    fn judge(&mut self, now: Instant, host: HostId, lease: LeaseId) -> Judgement {
        let Scheduler { origins, leases, config, .. } = self;
        let (tail, permit) = (leases[lease].url.tail(), leases[lease].permit);
        let key = OriginKey::of(tail);
        let origin = origins.origin(host, key);
        let ask = !origin.is_fresh(now) && origin.may_ask(now);
        let Some(known) = origin.rules(now) else {
            if permit.turn < origin.doomed_before {
                return Judgement::Ends(End::Failed(FailReason::Robots));
            }
            if ask {
                self.want(host, key);
            }
            return Judgement::Open;
        };
        // Nothing ends by rules that may be about to change.
        let is_final = origin.is_fresh(now) || origin.failures > 0;
        let version = known.version;
        let delay = known.rules.delay().unwrap_or_default();
        let verdict = if permit.version == version {
            Judgement::Allowed
        } else if config.crawl_delay_max.is_some_and(|max| delay > max) {
            Judgement::Ends(End::Denied(DenyReason::CrawlDelay))
        } else {
            match known.rules.verdict(tail.path()) {
                Verdict::Allowed => Judgement::Allowed,
                Verdict::Denied { .. } => Judgement::Ends(End::Denied(DenyReason::Robots)),
            }
        };
        if let Judgement::Allowed = verdict {
            leases[lease].permit.version = version;
        }
        if ask {
            self.want(host, key);
        }
        match verdict {
            Judgement::Ends(_) if !is_final => Judgement::Open,
            Judgement::Allowed | Judgement::Ends(_) | Judgement::Open => verdict,
        }
    }

    /// The host's own rules are to be asked for.
    fn want(&mut self, host: HostId, key: OriginKey) {
        self.origins.set_ask(host, key, Ask::Wanted);
        let url = key.robots_url(self.hosts.name(host));
        self.add_want(host, Want { host, key, url, hops: 0 });
    }

    fn add_want(&mut self, through: HostId, want: Want) {
        self.origins.of(through).wants.push_back(want);
        self.hosts[through].errand = true;
    }

    fn take_want(&mut self, through: HostId) -> Option<Want> {
        let entry = self.origins.get_mut(through)?;
        let want = entry.wants.pop_front();
        self.hosts[through].errand = !entry.wants.is_empty();
        want
    }

    /// Rules are not asked for any more when nothing waits for them.
    pub(super) fn drop_idle_wants(&mut self, through: HostId) {
        while self.hosts[through].errand
            && let Some(want) = self.origins.get(through).and_then(|entry| entry.wants.front())
            && self.hosts[want.host].pending() == 0
        {
            let Some(want) = self.take_want(through) else { return };
            self.origins.set_ask(want.host, want.key, Ask::No);
        }
    }

    fn fetch(&mut self, now: Instant, slot: SlotId, host: HostId) -> Option<RobotsFetch> {
        let (gates, ip) = (self.gate_set(host)?, self.hosts[host].ip?);
        let want = self.take_want(host)?;
        let url = want.url.clone();
        self.origins.of(host).was_for_another = want.host != host;
        for gate in gates.iter() {
            self.gates[gate].enter();
            self.gates[gate].stamp(now);
            self.note_if_long(now, gate);
        }
        let id = self.origins.add_fetch(Fetch { want, at: now, ip, gates });
        self.counters.robots_fetches += 1;
        self.slots.draw_ticket(slot);
        self.leave_line(now, slot);
        self.look_at(now, host);
        gates.iter().for_each(|gate| self.settle(now, gate));
        Some(RobotsFetch { id, url, ip: self.ips[ip].address })
    }

    /// What an answer means for the origin that was asked first.
    fn conclude(&mut self, now: Instant, want: Want, answer: Answer) {
        match answer {
            Answer::Rules { rules, max_age } => {
                let lifetime = max_age.map_or(LIFETIME, |age| age.clamp(LIFETIME_MIN, LIFETIME));
                self.share(now, &want, &rules, lifetime);
                self.learn(now, want.host, want.key, rules, lifetime);
            }
            Answer::Missing { .. } => {
                let rules = Rules::everything_allowed();
                self.share(now, &want, &rules, LIFETIME);
                self.learn(now, want.host, want.key, rules, LIFETIME);
            }
            Answer::Moved { to } if want.hops < HOPS_MAX => self.follow(now, want, to),
            Answer::Moved { .. } => {
                self.learn(now, want.host, want.key, Rules::everything_allowed(), LIFETIME);
            }
            Answer::Refused { .. } | Answer::Unreachable(_) => self.fail(now, &want),
        }
    }

    fn learn(&mut self, now: Instant, host: HostId, key: OriginKey, rules: Rules, lifetime: Duration) {
        self.origins.set_ask(host, key, Ask::No);
        self.origins.set_rules(now, host, key, rules, lifetime);
        self.renew_gap(now, host);
        self.look_at_rules(now, host);
    }

    /// Where a redirect has led to another origin's own robots.txt, that one need not be asked again.
    fn share(&mut self, now: Instant, want: &Want, rules: &Rules, lifetime: Duration) {
        let Some((host, key)) = self.origin_at(&want.url) else { return };
        let known =
            self.origins.find(host, key).is_some_and(|origin| origin.is_wanted() || origin.is_fresh(now));
        if (host, key) != (want.host, want.key) && !known {
            self.learn(now, host, key, rules.clone(), lifetime);
        }
    }

    /// The origin whose robots.txt this is, if its host is known.
    fn origin_at(&self, url: &Url) -> Option<(HostId, OriginKey)> {
        let key = OriginKey::of(url.tail());
        (key.robots_url(url.host()) == *url).then_some((self.hosts.find(url.host())?, key))
    }

    /// The next request is made through the gates of the host it leads to, like a send; unless it leads to rules
    /// that are known.
    fn follow(&mut self, now: Instant, want: Want, to: Url) {
        let there = self.origin_at(&to).and_then(|(host, key)| self.origins.find(host, key));
        if let Some((rules, left)) = there.and_then(|origin| origin.fresh_rules(now)) {
            return self.learn(now, want.host, want.key, rules, left);
        }
        let (first, next) = (want.host, self.host_named(now, to.host()));
        self.add_want(next, Want { url: to, hops: want.hops + 1, ..want });
        self.mind_literal(now, next);
        self.unbench(now, next);
        self.look_at(now, next);
        // Where slots are scarce, whoever waits for one must not wait for who holds it in vain.
        if next != first && self.hosts[next].place == Place::Leftover {
            self.bench_without_answer(now, first);
        }
    }

    /// There is no knowing what the rules are: older ones count for a while, else nothing is allowed.
    fn fail(&mut self, now: Instant, want: &Want) {
        self.counters.robots_failures += 1;
        let (host, key) = (want.host, want.key);
        let doomed_before = self.turn_behind_all(host);
        let origin = self.origins.origin(host, key);
        origin.failures = origin.failures.saturating_add(1);
        let failures = origin.failures;
        let hopeless = origin.rules(now).is_none() && failures >= FAILURES_MAX;
        if hopeless && self.config.max_attempts > 0 {
            origin.failures = 0;
            origin.doomed_before = doomed_before;
            self.origins.set_ask(host, key, Ask::No);
        } else {
            let base = self.config.retry_delay.max(BACK_OFF_MIN);
            let wait = doubled(base, u32::from(failures) - 1, BACK_OFF_MAX);
            let wait = wait.saturating_add(scaled(wait, JITTER * self.rng.f64()));
            self.origins.set_ask(host, key, Ask::BackOff(now + wait));
        }
        self.look_at_rules(now, host);
    }

    /// What a host waits for may be another thing now.
    fn look_at_rules(&mut self, now: Instant, host: HostId) {
        self.origins.timers.cancel(host);
        self.stop_waiting(now, host);
        self.unbench(now, host);
        if self.hosts[host].has_work() {
            self.look_at(now, host);
        }
    }

    /// How far apart sends to a host must be: as the settings say, or more if its rules or an operator ask for it.
    pub(super) fn renew_gap(&mut self, now: Instant, host: HostId) {
        let robots = self.origins.get(host).map(|entry| entry.delay(self.config.crawl_delay_max));
        let gate = self.hosts[host].gate;
        let ordered = self.orders.delay_of(self.hosts.name(host));
        let (before, gap) = (self.gates[gate].owes_until(), self.gates[gate].gap());
        self.gates[gate].set_gap(self.config.host.gap.max(robots.unwrap_or_default()).max(ordered));
        if before > now {
            self.note(gate);
        }
        self.note_if_long(now, gate);
        self.note_gap_change(now, gate, gap);
        let lines = self.hosts[host].slot().into_iter().flat_map(|slot| self.slots.leases_of(slot));
        if lines.into_iter().any(|lease| matches!(self.leases[lease].state, LeaseState::Unwritten(_))) {
            self.gates[gate].await_write();
        }
        self.settle(now, gate);
    }

    /// A host's timer: its rules may be asked for again, or the answer has taken long.
    pub(super) fn handle_origin_timer(&mut self, now: Instant, host: HostId) {
        if self.hosts[host].has_work() {
            self.look_at(now, host);
        }
        let parked = self.hosts[host].slot().is_some_and(|slot| self.slots[slot].wait == Wait::Parked);
        if parked && self.origins.awaits_answer(host) && self.waits_for_rules(host) {
            self.bench_without_answer(now, host);
        }
    }

    /// If rules may be asked for only after a while, others have the slot.
    pub(super) fn bench_without_rules(&mut self, now: Instant, host: HostId) {
        if let Some(until) = self.origins.timers.at(host) {
            self.bench(now, host, until);
        }
    }

    /// Whether the host's first document is not judged, or judged to end.
    pub(super) fn waits_for_rules(&self, host: HostId) -> bool {
        let Some(entry) = self.origins.get(host) else { return false };
        let head = self.hosts[host].front.front::<LeaseId>();
        let key = head.map(|lease| OriginKey::of(self.leases[lease].url.tail()));
        let asking =
            key.and_then(|key| self.origins.find(host, key)).is_some_and(|origin| origin.is_asking());
        entry.denying || asking
    }

    /// Ends one document that may not be fetched. False if there is none.
    pub(super) fn deny_one(&mut self, now: Instant) -> bool {
        let Some(host) = self.origins.deny_links.pop_front(&mut self.origins.denying) else { return false };
        self.origins.of(host).denying = false;
        let here = self.hosts[host].slot().is_some() && !self.hosts[host].draining;
        if !here || !self.hosts[host].has_sendable() || !self.obeys(host) {
            return true;
        }
        let lease = self.head(host);
        match self.judge(now, host, lease) {
            Judgement::Ends(end) => {
                self.leases.links.remove(&mut self.hosts[host].front, lease);
                self.finish(now, lease, end);
            }
            Judgement::Allowed | Judgement::Open => self.look_at(now, host),
        }
        true
    }

    /// A host without an address makes one of its requests no more.
    pub(super) fn end_errand(&mut self, now: Instant, host: HostId) {
        let Some(want) = self.take_want(host) else { return };
        if want.host == host && want.hops == 0 {
            // Its documents end for want of an address.
            self.origins.set_ask(host, want.key, Ask::No);
        } else {
            self.fail(now, &want);
        }
        self.look_at(now, host);
    }
}

fn done_of(answer: &Answer) -> Done {
    match answer {
        Answer::Rules { .. } => Outcome::Status(200).into(),
        Answer::Moved { .. } => Outcome::Status(302).into(),
        Answer::Missing { status } => Outcome::Status(*status).into(),
        Answer::Refused { status, retry_after } => {
            Done { outcome: Outcome::Status(*status), retry_after: *retry_after }
        }
        Answer::Unreachable(outcome) => (*outcome).into(),
    }
}
