//! The outside auditor: told what spiders saw and did, it finds broken promises.
//!
//! It knows the limits and nothing else of the server. It never raises a false alarm, at the price of
//! passing over what it cannot prove:
//!
//! - **Concurrency.** A send counts from when its line is *read*, and ends when our DONE is *handed to
//!   the socket*. The server counts from before it writes the line until after it has read the DONE, so
//!   what is in flight here is always a part of what is in flight there.
//! - **Gaps.** When a line was written is known as a window: not before `since` (the socket was empty
//!   then), not after `at` (we had read it). Two sends are too close only if no choice within their
//!   windows, widened by [`Slack::jitter`], is far enough apart.
//! - **Hung URLs.** The server takes a URL back when no status came for `status_timeout`; the clock runs
//!   from the moment it wrote the line or read a WORKING. It is released here at the earliest such
//!   moment, not before. A status near that moment leaves its document in doubt: sent again or not, both are right.
//! - **Lost connections.** A DONE written shortly before the connection ended may not have been read:
//!   doubt again. And when the server closes, its next send may reach another spider before
//!   the end reaches ours: what looks broken because of URLs on other connections is held back for
//!   [`Slack::settle`], and forgotten if one of those connections ends.
//!
//! Memory: live sends, gates that are owed something, a few bytes per document.

mod docs;
mod gate;
mod grouping;
mod limits;

pub use crate::violation::{GateKey, Violation};
pub use gate::{GateLimit, Rest};
pub use grouping::Grouping;
pub use limits::{Extremes, Kind, Limits, Slack};

use crate::event::{Event, Sent, is_final};
use crate::wait::RETRY_AFTER_MAX;
use docs::{Docs, Fate};
use gate::{Gate, Window};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use urlserver::document::{Done, Outcome};
use urlserver::ids::{DocId, TransId};
use urlserver::time::{Duration, Instant, micros_rounded_up};

/// Violations kept as values; more are only counted.
pub const VIOLATIONS_KEPT: usize = 1000;

/// A send in flight, as far as one can tell.
#[derive(Debug)]
struct Live {
    spider: usize,
    doc: DocId,
    read_at: Instant,
    /// When the server may take it back at the earliest.
    deadline: Instant,
    hard_deadline: Instant,
    /// How much later than `deadline` the server's own can be.
    doubt: Duration,
    gates: Vec<GateKey>,
}

/// A send that the server may have taken back, or not yet.
#[derive(Clone, Copy, Debug)]
struct Lapsed {
    doc: DocId,
    /// A status read by then may still have counted.
    until: Instant,
}

/// Looks broken, unless one of these spiders turns out to have lost its connection.
#[derive(Debug)]
struct Suspicion {
    violation: Violation,
    spiders: Vec<usize>,
    until: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Auditor {
    limits: Limits,
    slack: Slack,
    groups: HashMap<Box<str>, Vec<GateKey>>,
    grouping: Grouping,
    overrides: HashMap<GateKey, GateLimit>,
    gates: HashMap<GateKey, Gate>,
    live: HashMap<TransId, Live>,
    deadlines: BTreeSet<(Instant, TransId)>,
    lapsed: HashMap<TransId, Lapsed>,
    docs: Docs,
    /// Final DONEs of each spider that may not have been read yet, oldest first.
    unsettled: HashMap<usize, VecDeque<(Instant, Live)>>,
    suspicions: Vec<Suspicion>,
    violations: Vec<Violation>,
    violation_count: u64,
    extremes: [Extremes; 3],
    /// Number of gates and lapsed sends at which the idle ones are swept out.
    sweep_at: usize,
}

impl Auditor {
    /// An auditor that has seen nothing.
    pub fn new(limits: Limits, slack: Slack) -> Auditor {
        Auditor {
            limits,
            slack,
            groups: HashMap::new(),
            grouping: Grouping::default(),
            overrides: HashMap::new(),
            gates: HashMap::new(),
            live: HashMap::new(),
            deadlines: BTreeSet::new(),
            lapsed: HashMap::new(),
            docs: Docs::default(),
            unsettled: HashMap::new(),
            suspicions: Vec::new(),
            violations: Vec::new(),
            violation_count: 0,
            extremes: [Extremes::default(); 3],
            sweep_at: SWEEP_FROM,
        }
    }

    /// Puts `host` into an alias or group, beside those it is in.
    pub fn assign(&mut self, host: &str, group: &str) {
        self.groups.entry(host.into()).or_default().push(GateKey::Group(Arc::from(group)));
    }

    /// Groups hosts and addresses by the server's own rules, with their limits.
    pub fn set_grouping(&mut self, grouping: Grouping) {
        self.overrides.extend(grouping.limits());
        self.grouping = grouping;
    }

    /// Gives one host, address or group limits of its own. A group without has none.
    pub fn set_limit(&mut self, gate: GateKey, limit: GateLimit) {
        self.overrides.insert(gate, limit);
    }

    /// Takes in what `spider` saw or did. Events of one spider come in order; times never go back by more
    /// than the jitter.
    pub fn handle(&mut self, spider: usize, event: Event) {
        match event {
            Event::Sent(sent) => self.handle_sent(spider, &sent),
            Event::Working { at, trans } => self.handle_working(at, trans),
            Event::Done { at, trans, done } => self.handle_done(spider, at, trans, done),
            Event::Closed { at } => self.handle_closed(spider, at),
            Event::Broken(violation) => self.record(violation),
        }
    }

    /// The index was told the end of `doc`: whatever spiders saw of it, it must not be sent again.
    pub fn handle_reported(&mut self, at: Instant, doc: DocId) {
        self.docs.set(doc, Fate::Ended(at));
    }

    /// Lets time pass: URLs without status are taken back, suspicions become violations.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire(now);
        let (due, waiting) = std::mem::take(&mut self.suspicions).into_iter().partition(|s| s.until <= now);
        self.suspicions = waiting;
        let due: Vec<Suspicion> = due;
        due.into_iter().for_each(|s| self.record(s.violation));
    }

    /// The audit is over, and every document in `expected` should have come to an end.
    pub fn finish(&mut self, now: Instant, expected: &[DocId]) {
        self.handle_timeout(now);
        // Nobody will hear any more of the connections that these hang on: not proved.
        self.suspicions.clear();
        self.expire(Instant::FAR);
        for &doc in expected {
            match self.docs.look(doc) {
                None => self.record(Violation::NeverSent { at: now, doc }),
                Some(seen) if !docs::is_end(seen.fate) => self.record(Violation::NeverEnded { at: now, doc }),
                Some(_) => {}
            }
        }
    }

    /// What was found, at most [`VIOLATIONS_KEPT`] of it.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How much was found.
    pub fn violation_count(&self) -> u64 {
        self.violation_count
    }

    /// Documents that were sent at least once.
    pub fn documents_seen(&self) -> u64 {
        self.docs.seen()
    }

    /// Documents that have come to an end.
    pub fn documents_ended(&self) -> u64 {
        self.docs.ended()
    }

    /// Sends in flight, as far as one can tell.
    pub fn in_flight(&self) -> usize {
        self.live.len()
    }

    /// The nearest that any gate of this kind came to its limits.
    pub fn extremes(&self, kind: Kind) -> Extremes {
        self.extremes[kind as usize]
    }

    fn handle_sent(&mut self, spider: usize, sent: &Sent) {
        self.expire(sent.at);
        self.forget_idle(sent.at);
        let written = earlier(sent.since, self.slack.jitter);
        let gates = self.gates_of(sent);
        let window = Window { since: sent.since, at: sent.at };
        gates.iter().for_each(|key| self.check_clock(spider, key, window, sent.doc));
        let hard_deadline = self.limits.lease_max.map_or(Instant::FAR, |max| written + max);
        let deadline = (written + self.limits.status_timeout).min(hard_deadline);
        let doubt = sent.at.since(written) + self.slack.jitter;
        if deadline <= sent.at {
            // It lay unread for so long that the server may have taken it back already, and sent it to another.
            self.check_sends(sent);
            self.lapse(sent.trans, sent.doc, deadline + doubt);
            return;
        }
        self.check_doc(spider, sent);
        self.check_sends(sent);
        self.check_trans(spider, sent);
        let live = Live { spider, doc: sent.doc, read_at: sent.at, deadline, hard_deadline, doubt, gates };
        self.enter(sent.trans, live);
    }

    fn gates_of(&self, sent: &Sent) -> Vec<GateKey> {
        let host = sent.url.host();
        let mut gates = vec![GateKey::Host(host.into()), GateKey::Ip(sent.ip)];
        gates.extend(self.groups.get(host).into_iter().flatten().cloned());
        gates.extend(self.grouping.of(host, sent.ip));
        gates
    }

    fn limit(&self, key: &GateKey) -> GateLimit {
        self.overrides.get(key).copied().unwrap_or(match key {
            GateKey::Host(_) => self.limits.host,
            GateKey::Ip(ip) if self.grouping.is_exempt(*ip) => GateLimit::NONE,
            GateKey::Ip(_) => self.limits.ip,
            GateKey::Group(_) => GateLimit::NONE,
        })
    }

    /// Gap and rest.
    fn check_clock(&mut self, spider: usize, key: &GateKey, window: Window, doc: DocId) {
        let (at, jitter) = (window.at, self.slack.jitter);
        let allowed = self.limit(key).gap;
        let gate = self.gates.entry(key.clone()).or_default();
        let broken_hold = gate.broken_hold(window, jitter);
        let seen = gate.handle_sent(window);
        if let Some(seen) = seen {
            let smallest = &mut self.extremes[Kind::of(key) as usize].smallest_gap;
            *smallest = Some(smallest.map_or(seen, |s| s.min(seen)));
            if seen + jitter < allowed {
                self.record(Violation::TooSoon { at, gate: key.clone(), doc, seen, allowed });
            }
        }
        if let Some(hold) = broken_hold {
            let violation = Violation::NoRest { at, gate: key.clone(), doc, until: hold.until };
            self.suspect(spider, vec![hold.spider], at, violation);
        }
    }

    fn check_doc(&mut self, spider: usize, sent: &Sent) {
        let (at, doc) = (sent.at, sent.doc);
        match self.docs.look(doc).map(|d| d.fate) {
            Some(Fate::Live(trans)) => {
                let others = self.live.get(&trans).map(|live| live.spider).into_iter().collect();
                self.suspect(spider, others, at, Violation::DocInFlight { at, doc });
            }
            Some(Fate::Ended(ended)) => self.record(Violation::SentAfterEnd { at, doc, ended }),
            Some(Fate::Pending | Fate::Doubtful | Fate::Spent) | None => {}
        }
    }

    fn check_sends(&mut self, sent: &Sent) {
        let (at, doc) = (sent.at, sent.doc);
        let sends = self.docs.count_send(doc);
        match self.limits.max_attempts {
            Some(max) if sends > max => self.record(Violation::TooOften { at, doc, sends, max }),
            Some(_) | None => {}
        }
    }

    fn check_trans(&mut self, spider: usize, sent: &Sent) {
        let Some(first) = self.leave(sent.trans) else { return };
        let violation =
            Violation::TransInFlight { at: sent.at, trans: sent.trans, doc: sent.doc, other: first.doc };
        self.suspect(spider, vec![first.spider], sent.at, violation);
    }

    /// Counts a send as in flight, at all its gates.
    fn enter(&mut self, trans: TransId, live: Live) {
        for key in &live.gates {
            let limit = self.limit(key).concurrent;
            let gate = self.gates.entry(key.clone()).or_default();
            gate.in_flight += 1;
            let in_flight = gate.in_flight;
            let most = &mut self.extremes[Kind::of(key) as usize].most_in_flight;
            *most = (*most).max(in_flight);
            if let Some(limit) = limit.filter(|&limit| in_flight > limit) {
                let others = self.spiders_at(key);
                let (at, doc) = (live.read_at, live.doc);
                let violation = Violation::TooMany { at, gate: key.clone(), doc, in_flight, limit };
                self.suspect(live.spider, others, at, violation);
            }
        }
        self.docs.set(live.doc, Fate::Live(trans));
        self.deadlines.insert((live.deadline, trans));
        self.live.insert(trans, live);
    }

    /// Takes a send out of all counts.
    fn leave(&mut self, trans: TransId) -> Option<Live> {
        let live = self.live.remove(&trans)?;
        self.deadlines.remove(&(live.deadline, trans));
        for key in &live.gates {
            if let Some(gate) = self.gates.get_mut(key) {
                gate.in_flight = gate.in_flight.saturating_sub(1);
            }
        }
        Some(live)
    }

    fn handle_working(&mut self, at: Instant, trans: TransId) {
        self.expire(at);
        let timeout = self.limits.status_timeout;
        if let Some(lapsed) = self.lapsed.get_mut(&trans).filter(|lapsed| at <= lapsed.until) {
            lapsed.until = at + timeout + self.slack.jitter;
        }
        let Some(live) = self.live.get_mut(&trans) else { return };
        // Too near the end: it may come too late, so the earliest end stays what it was.
        if live.deadline.since(at) <= self.slack.jitter {
            return;
        }
        self.deadlines.remove(&(live.deadline, trans));
        live.deadline = (at + timeout).min(live.hard_deadline);
        self.deadlines.insert((live.deadline, trans));
    }

    fn handle_done(&mut self, spider: usize, at: Instant, trans: TransId, done: Done) {
        self.expire(at);
        if let Some(lapsed) = self.lapsed.remove(&trans) {
            let pending = self.docs.look(lapsed.doc).is_some_and(|d| d.fate == Fate::Pending);
            if at <= lapsed.until && pending && is_final(done.outcome) {
                self.docs.set(lapsed.doc, Fate::Doubtful);
            }
            return;
        }
        let Some(live) = self.leave(trans) else { return };
        let in_time = live.deadline.since(at) > self.slack.jitter;
        match (is_final(done.outcome), in_time) {
            (false, _) => self.end_unfinished(live.doc),
            (true, true) => self.docs.set(live.doc, Fate::Ended(at)),
            (true, false) => self.docs.set(live.doc, Fate::Doubtful),
        }
        if in_time {
            self.hold(at, &live, done);
            self.unsettled.entry(spider).or_default().push_back((at, live));
            self.settle(spider, at);
        }
    }

    /// What a DONE asks for: the host rests, and a group with a rest of its own; and after a 429 or 503 with `retry-after` its first group does
    /// (the alias, if it has one), or the host if it is in none.
    fn hold(&mut self, at: Instant, live: &Live, done: Done) {
        let took = at.since(live.read_at);
        let retry_after = done.retry_after.filter(|_| matches!(done.outcome, Outcome::Status(429 | 503)));
        let first = |kind| live.gates.iter().find(|key| Kind::of(key) == kind);
        let holder = first(Kind::Group).or_else(|| first(Kind::Host));
        for key in &live.gates {
            let Some(gate) = self.gates.get_mut(key) else { continue };
            let rest = match key {
                GateKey::Host(_) => Some(self.limits.rest),
                GateKey::Ip(_) => None,
                GateKey::Group(_) => self.grouping.rule(key).and_then(|rule| rule.rest).map(Rest::from),
            };
            if let Some(rest) = rest {
                gate.hold(live.spider, at, at + rest.after(took));
            }
            if let Some(wait) = retry_after.filter(|_| Some(key) == holder) {
                gate.hold(live.spider, at, at + wait.min(RETRY_AFTER_MAX));
            }
        }
    }

    fn handle_closed(&mut self, spider: usize, at: Instant) {
        self.expire(at);
        self.suspicions.retain(|s| !s.spiders.contains(&spider));
        self.settle(spider, at);
        for (done, live) in self.unsettled.remove(&spider).unwrap_or_default() {
            if self.docs.look(live.doc).is_some_and(|d| d.fate == Fate::Ended(done)) {
                self.docs.set(live.doc, Fate::Doubtful);
            }
            for key in &live.gates {
                if let Some(gate) = self.gates.get_mut(key) {
                    gate.doubt_hold(spider, done);
                }
            }
        }
        let mut lost: Vec<TransId> =
            self.live.iter().filter(|(_, live)| live.spider == spider).map(|(&t, _)| t).collect();
        lost.sort_unstable();
        for trans in lost {
            if let Some(live) = self.leave(trans) {
                self.end_unfinished(live.doc);
            }
        }
    }

    /// DONEs written long enough before `at` have been read.
    fn settle(&mut self, spider: usize, at: Instant) {
        let Some(dones) = self.unsettled.get_mut(&spider) else { return };
        while dones.front().is_some_and(|(done, _)| *done + self.slack.settle < at) {
            dones.pop_front();
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(deadline, trans)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            let Some(live) = self.leave(trans) else { break };
            self.end_unfinished(live.doc);
            self.lapse(trans, live.doc, deadline + live.doubt);
        }
    }

    fn lapse(&mut self, trans: TransId, doc: DocId, until: Instant) {
        self.lapsed.insert(trans, Lapsed { doc, until });
    }

    fn end_unfinished(&mut self, doc: DocId) {
        let Some(seen) = self.docs.look(doc) else { return };
        if let Fate::Ended(_) = seen.fate {
            return;
        }
        let spent = self.limits.max_attempts.is_some_and(|max| seen.sends >= max);
        self.docs.set(doc, if spent { Fate::Spent } else { Fate::Pending });
    }

    /// A violation that the loss of one of the `others` would explain.
    fn suspect(&mut self, spider: usize, mut others: Vec<usize>, at: Instant, violation: Violation) {
        others.retain(|&other| other != spider);
        if others.is_empty() || self.slack.settle.is_zero() {
            self.record(violation);
        } else {
            self.suspicions.push(Suspicion { violation, spiders: others, until: at + self.slack.settle });
        }
    }

    /// Spiders with something in flight at this gate. Walks all that is in flight: only for suspicions.
    fn spiders_at(&self, key: &GateKey) -> Vec<usize> {
        let mut spiders: Vec<usize> =
            self.live.values().filter(|live| live.gates.contains(key)).map(|live| live.spider).collect();
        spiders.sort_unstable();
        spiders.dedup();
        spiders
    }

    fn record(&mut self, violation: Violation) {
        self.violation_count += 1;
        if self.violations.len() < VIOLATIONS_KEPT {
            self.violations.push(violation);
        }
    }

    /// Keeps memory within a small multiple of what is owed something.
    fn forget_idle(&mut self, now: Instant) {
        if self.gates.len() + self.lapsed.len() < self.sweep_at {
            return;
        }
        self.lapsed.retain(|_, lapsed| lapsed.until >= now);
        let mut gates = std::mem::take(&mut self.gates);
        gates.retain(|key, gate| !gate.is_idle(now, self.limit(key).gap));
        self.gates = gates;
        self.sweep_at = 2 * (self.gates.len() + self.lapsed.len()) + SWEEP_FROM;
    }
}

/// Below this many entries nothing is swept.
const SWEEP_FROM: usize = 1024;

fn earlier(at: Instant, by: Duration) -> Instant {
    Instant::from_micros(at.as_micros().saturating_sub(micros_rounded_up(by)))
}

#[cfg(test)]
mod tests;
