//! What the server decided, wrote, heard and reported, kept by a bookkeeper who is dull and exact.
//!
//! The auditor sees what spiders see, later than it happened. The ledger stands beside the server: it
//! counts a send from the decision on, measures gaps between writes and rests from what was heard, to the
//! microsecond, and knows every document from its admission to its one report. It knows the rules and
//! nothing of how the scheduler keeps them.

use super::fault::{Fault, Faults};
use super::robots::{Asked, AskedById};
use crate::audit::{GateLimit, Grouping, Kind};
use crate::violation::GateKey;
use crate::wait::RETRY_AFTER_MAX;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use urlserver::document::{Done, Outcome, Report};
use urlserver::hostdb::Resolution;
use urlserver::ids::{DocId, FetchId, SpiderId, TransId};
use urlserver::scheduler::{Admission, Config, Rest, Work};
use urlserver::time::{Duration, Instant, scaled};

/// What is owed to a host, an address or a group.
#[derive(Default)]
struct Gate {
    in_flight: u32,
    last_write: Option<Instant>,
    closed_until: Instant,
}

struct Send {
    spider: SpiderId,
    doc: DocId,
    gates: Vec<GateKey>,
    written: Option<Instant>,
    status: Instant,
}

/// A document that has not ended.
#[derive(Default)]
struct Pending {
    attempts: u32,
    in_flight: bool,
}

/// A Crawl-delay that has become known.
#[derive(Clone, Copy)]
struct Delay {
    gap: Duration,
    /// The server may have forgotten it after this; then it asks for it again before it sends.
    until: Instant,
}

/// See the module.
pub(super) struct Ledger {
    config: Config,
    grouping: Grouping,
    gates: HashMap<GateKey, Gate>,
    sends: HashMap<TransId, Send>,
    deadlines: BTreeSet<(Instant, TransId)>,
    names_given: HashSet<TransId>,
    pending: HashMap<DocId, Pending>,
    reported: HashSet<DocId>,
    /// Where each host may be: the last answer for its name, and what the index said.
    answers: HashMap<Box<str>, Vec<IpAddr>>,
    given: HashMap<Box<str>, Vec<IpAddr>>,
    /// Crawl-delays that have become known.
    delays: HashMap<Arc<str>, Delay>,
    /// Requests for a robots.txt under way.
    asked: AskedById,
    pub(super) faults: Faults,
}

impl Ledger {
    pub(super) fn new(config: &Config) -> Ledger {
        Ledger {
            config: config.clone(),
            grouping: Grouping::new(&config.aliases, &config.groups),
            gates: HashMap::new(),
            sends: HashMap::new(),
            deadlines: BTreeSet::new(),
            names_given: HashSet::new(),
            pending: HashMap::new(),
            reported: HashSet::new(),
            answers: HashMap::new(),
            given: HashMap::new(),
            delays: HashMap::new(),
            asked: AskedById::new(),
            faults: Faults::default(),
        }
    }

    pub(super) fn is_pending(&self, doc: DocId) -> bool {
        self.pending.contains_key(&doc)
    }

    pub(super) fn is_reported(&self, doc: DocId) -> bool {
        self.reported.contains(&doc)
    }

    pub(super) fn reported(&self) -> u64 {
        self.reported.len() as u64
    }

    pub(super) fn in_flight(&self) -> usize {
        self.sends.len()
    }

    /// An answer for a name has been handed over.
    pub(super) fn handle_resolved(&mut self, host: &str, resolution: &Resolution) {
        match resolution {
            Resolution::Addresses { addresses, .. } => {
                self.answers.insert(host.into(), addresses.clone());
            }
            Resolution::Nothing { .. } => drop(self.answers.remove(host)),
            Resolution::Unavailable => {}
        }
    }

    /// A candidate has been handed over.
    pub(super) fn handle_admitted(
        &mut self,
        now: Instant,
        doc: DocId,
        given: Option<(&str, IpAddr)>,
        admission: Admission,
    ) {
        if let Some((host, ip)) = given {
            self.given.entry(host.into()).or_default().push(ip);
        }
        let known = self.pending.contains_key(&doc);
        match admission {
            Admission::Pending | Admission::Refused => {
                self.pending.entry(doc).or_default();
                self.expect(!known, now, || Fault::Twice(doc));
            }
            Admission::Duplicate => self.expect(known, now, || Fault::Unknown(doc)),
            // Of hosts that go to another server: there is none here.
            Admission::Elsewhere => self.expect(false, now, || Fault::Unknown(doc)),
        }
    }

    /// A line has been decided on.
    pub(super) fn handle_decided(&mut self, now: Instant, work: &Work<'_>) {
        let Work { spider, trans, doc, ip, host, .. } = *work;
        let gates = self.enter(now, host, ip);
        for key in &gates {
            let last = self.gates.get(key).and_then(|gate| gate.last_write);
            self.expect_gap(now, key, last);
        }
        let new = self.names_given.insert(trans);
        self.expect(new, now, || Fault::TransTwice(trans));
        match self.pending.get_mut(&doc) {
            None => self.faults.add(now, Fault::Unknown(doc)),
            Some(pending) => {
                let twice = std::mem::replace(&mut pending.in_flight, true);
                self.expect(!twice, now, || Fault::Twice(doc));
            }
        }
        self.sends.insert(trans, Send { spider, doc, gates, written: None, status: now });
    }

    /// A robots.txt is asked for: as good as a send that is written at once.
    pub(super) fn handle_fetch(&mut self, now: Instant, id: FetchId, host: &str, ip: IpAddr) {
        let gates = self.enter(now, host, ip);
        for key in &gates {
            let last = self.gates.entry(key.clone()).or_default().last_write.replace(now);
            self.expect_gap_of_fetch(now, key, last);
        }
        self.asked.insert(id, Asked { gates, at: now });
    }

    /// It is answered.
    pub(super) fn handle_fetched(&mut self, now: Instant, id: FetchId, done: Done) {
        let Some(Asked { gates, at }) = self.asked.remove(&id) else { return };
        for key in &gates {
            self.gates.entry(key.clone()).or_default().in_flight -= 1;
        }
        self.rest(now, &gates, now.since(at));
        self.hold(now, &gates, done);
    }

    /// The host asks for this much time between two sends, and is known to until then.
    pub(super) fn set_delay(&mut self, host: &str, gap: Duration, until: Instant) {
        self.delays.insert(host.into(), Delay { gap, until });
    }

    /// One more in flight at all gates, which must be open.
    fn enter(&mut self, now: Instant, host: &str, ip: IpAddr) -> Vec<GateKey> {
        let mut gates = vec![GateKey::Host(Arc::from(host)), GateKey::Ip(ip)];
        gates.extend(self.grouping.of(host, ip));
        for key in &gates {
            let limit = self.limit(key);
            let gate = self.gates.entry(key.clone()).or_default();
            gate.in_flight += 1;
            let (count, until) = (gate.in_flight, gate.closed_until);
            self.expect(limit.concurrent.is_none_or(|most| count <= most), now, || {
                Fault::TooMany(key.clone())
            });
            self.expect(until <= now, now, || Fault::Closed(key.clone(), until));
        }
        let known = |at: &HashMap<Box<str>, Vec<IpAddr>>| at.get(host).is_some_and(|ips| ips.contains(&ip));
        let literal = host.parse() == Ok(ip);
        let at_home = known(&self.answers) || known(&self.given) || literal;
        self.expect(at_home, now, || Fault::NotThere(host.into(), ip));
        gates
    }

    /// Its line has been written.
    pub(super) fn handle_written(&mut self, now: Instant, trans: TransId) {
        let Some(send) = self.sends.get_mut(&trans) else { return };
        send.written = Some(now);
        send.status = now;
        let (doc, gates) = (send.doc, send.gates.clone());
        self.deadlines.insert((self.deadline(now, now), trans));
        for key in &gates {
            let last = self.gates.entry(key.clone()).or_default().last_write.replace(now);
            self.expect_gap(now, key, last);
        }
        let most = self.config.max_attempts;
        if let Some(pending) = self.pending.get_mut(&doc) {
            pending.attempts += 1;
            let attempts = pending.attempts;
            self.expect(most == 0 || attempts <= most, now, || Fault::TooOften(doc, attempts));
        }
    }

    /// The server has heard a DONE. `counted` if the scheduler says that it ended a send.
    pub(super) fn handle_done(
        &mut self,
        now: Instant,
        spider: SpiderId,
        trans: TransId,
        done: Done,
        counted: bool,
    ) {
        let send = self.sends.get(&trans).filter(|send| send.spider == spider);
        let written = send.and_then(|send| send.written);
        self.expect(written.is_some() == counted, now, || Fault::Miscounted(trans));
        let Some(written) = written else { return };
        let Some(send) = self.end(trans) else { return };
        self.rest(now, &send.gates, now.since(written));
        self.hold(now, &send.gates, done);
    }

    /// A refusal says how long to stay away.
    fn hold(&mut self, now: Instant, gates: &[GateKey], done: Done) {
        if let (Outcome::Status(429 | 503), Some(wait)) = (done.outcome, done.retry_after) {
            let first = |kind| gates.iter().find(|key| Kind::of(key) == kind);
            if let Some(holder) = first(Kind::Group).or_else(|| first(Kind::Host)) {
                self.close(holder, now + wait.min(RETRY_AFTER_MAX));
            }
        }
    }

    /// The server has heard a WORKING.
    pub(super) fn handle_working(&mut self, now: Instant, spider: SpiderId, trans: TransId, counted: bool) {
        let send = self.sends.get_mut(&trans).filter(|send| send.spider == spider);
        let written = send.as_ref().and_then(|send| send.written);
        if let Some((written, send)) = written.zip(send) {
            let before = std::mem::replace(&mut send.status, now);
            self.deadlines.remove(&(self.deadline(written, before), trans));
            self.deadlines.insert((self.deadline(written, now), trans));
        }
        self.expect(written.is_some() == counted, now, || Fault::Miscounted(trans));
    }

    /// The server knows that a connection has ended.
    pub(super) fn handle_gone(&mut self, spider: SpiderId) {
        let mut lost: Vec<TransId> =
            self.sends.iter().filter(|(_, send)| send.spider == spider).map(|(&trans, _)| trans).collect();
        lost.sort_unstable();
        lost.into_iter().for_each(|trans| drop(self.end(trans)));
    }

    /// The server must take back by now what nothing was said of for too long: all that, and nothing else.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(deadline, trans)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            let Some(send) = self.end(trans) else {
                self.deadlines.remove(&(deadline, trans));
                continue;
            };
            if let Some(written) = send.written {
                self.rest(now, &send.gates, now.since(written));
            }
        }
    }

    /// The end of a document is reported.
    pub(super) fn handle_report(&mut self, now: Instant, report: Report) {
        let doc = report.doc;
        match self.pending.remove(&doc) {
            None => self.faults.add(now, Fault::Unknown(doc)),
            Some(pending) => self.expect(!pending.in_flight, now, || Fault::Twice(doc)),
        }
        let new = self.reported.insert(doc);
        self.expect(new, now, || Fault::ReportedTwice(report));
    }

    /// Everything should have come to its end.
    pub(super) fn handle_end(&mut self, now: Instant) {
        let mut lost: Vec<DocId> = self.pending.keys().copied().collect();
        lost.sort_unstable();
        lost.into_iter().for_each(|doc| self.faults.add(now, Fault::Lost(doc)));
    }

    fn deadline(&self, written: Instant, status: Instant) -> Instant {
        let oldest = self.config.lease_max.map_or(Instant::FAR, |max| written + max);
        oldest.min(status + self.config.status_timeout)
    }

    fn limit(&self, key: &GateKey) -> GateLimit {
        match key {
            GateKey::Host(_) => self.config.host.into(),
            GateKey::Ip(ip) if self.grouping.is_exempt(*ip) => GateLimit::NONE,
            GateKey::Ip(_) => self.config.ip.into(),
            GateKey::Group(_) => self.grouping.rule(key).map_or(GateLimit::NONE, |rule| rule.pace.into()),
        }
    }

    fn end(&mut self, trans: TransId) -> Option<Send> {
        let send = self.sends.remove(&trans)?;
        if let Some(written) = send.written {
            self.deadlines.remove(&(self.deadline(written, send.status), trans));
        }
        for key in &send.gates {
            self.gates.entry(key.clone()).or_default().in_flight -= 1;
        }
        if let Some(pending) = self.pending.get_mut(&send.doc) {
            pending.in_flight = false;
        }
        Some(send)
    }

    fn rest(&mut self, now: Instant, gates: &[GateKey], took: Duration) {
        for key in gates {
            let rule = match key {
                GateKey::Host(_) => Some(self.config.rest),
                GateKey::Ip(_) => None,
                GateKey::Group(_) => self.grouping.rule(key).and_then(|rule| rule.rest),
            };
            if let Some(Rest { factor, min, max }) = rule {
                self.close(key, now + scaled(took, factor).min(max).max(min));
            }
        }
    }

    fn close(&mut self, key: &GateKey, until: Instant) {
        let gate = self.gates.entry(key.clone()).or_default();
        gate.closed_until = gate.closed_until.max(until);
    }

    /// The gap of a send, with the Crawl-delay that must be known by then.
    fn expect_gap(&mut self, now: Instant, key: &GateKey, last: Option<Instant>) {
        let gap = self.limit(key).gap.max(self.delay(key).map_or(Duration::ZERO, |delay| delay.gap));
        self.expect(last.is_none_or(|last| last + gap <= now), now, || Fault::TooSoon(key.clone()));
    }

    /// The gap of a request for rules, with the Crawl-delay that cannot be forgotten yet.
    fn expect_gap_of_fetch(&mut self, now: Instant, key: &GateKey, last: Option<Instant>) {
        let known = self.delay(key).filter(|delay| now < delay.until);
        let gap = self.limit(key).gap.max(known.map_or(Duration::ZERO, |delay| delay.gap));
        self.expect(last.is_none_or(|last| last + gap <= now), now, || Fault::TooSoon(key.clone()));
    }

    fn delay(&self, key: &GateKey) -> Option<Delay> {
        match key {
            GateKey::Host(host) => self.delays.get(host).copied(),
            GateKey::Ip(_) | GateKey::Group(_) => None,
        }
    }

    fn expect(&mut self, holds: bool, now: Instant, fault: impl FnOnce() -> Fault) {
        if !holds {
            self.faults.add(now, fault());
        }
    }
}
