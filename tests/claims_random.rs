//! Several schedulers that share one index, in virtual time: claims are asked for, answered late, lost, insisted on, rested
//! and given back at random, servers stop and go on, addresses move, and operators change their minds. Whatever
//! happens, no host, address, alias or group is asked too often over all of them; nothing is sent under a claim that
//! the index does not know to be in use, nor against an order that the server was told; attempts are counted on from
//! server to server; the laws hold after every step, and in the end every document was reported once.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use urlserver::claim::{ClaimAction, ClaimKey, ClaimNews, OwedClock, Wish};
use urlserver::document::{Candidate, Done, End, FailReason, Outcome, Report, Tried};
use urlserver::hostdb::Resolution;
use urlserver::ids::{DocId, SpiderId, TransId};
use urlserver::order::Standing;
use urlserver::scheduler::{Admission, Config, GroupRule, IpRange, Pace, Rest, Scheduler};
use urlserver::time::{Duration, Instant};
use urlserver::url::Url;

const EXPIRY_1: Duration = Duration::from_millis(1000);
const EXPIRY_2: Duration = Duration::from_millis(3000);
const MARGIN: Duration = Duration::from_millis(100);
const HOSTS: usize = 14;
/// Hosts of a group without limits.
const FREE: [usize; 4] = [1, 4, 6, 7];
const ATTEMPTS: u32 = 4;
const PACE: Pace = Pace { concurrent: 1, gap: Duration::from_millis(200) };

fn host(n: usize) -> String {
    format!("h{n}.example")
}

fn rule(name: &str, hosts: &[usize], ranges: Vec<IpRange>) -> GroupRule {
    let hosts = hosts.iter().map(|&n| host(n).into()).collect();
    GroupRule { name: name.into(), hosts, domains: vec![], ranges, pace: PACE, rest: None, robots: None }
}

fn config(seed: u64) -> Config {
    let range = IpRange { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 4)), bits: 30 };
    Config {
        queue_count: 5,
        queue_len: 4,
        host: PACE,
        ip: PACE,
        ip_max_urls: 0,
        rest: Rest { factor: 0.0, min: Duration::ZERO, max: Duration::ZERO },
        max_attempts: ATTEMPTS,
        retry_delay: Duration::from_millis(50),
        allow_private: true,
        aliases: vec![rule("alias", &[0, 3, 6], vec![])],
        groups: vec![
            rule("range", &[], vec![range]),
            GroupRule { pace: Pace::FREE, ..rule("free", &FREE, vec![]) },
        ],
        claims: true,
        seed,
        ..Config::default()
    }
}

/// One server.
struct Server {
    scheduler: Scheduler,
    spider: SpiderId,
    epoch: u64,
    stopped: bool,
    /// What was taken from it, and it does not know yet.
    lost: Vec<ClaimKey>,
    /// What it has told the index, and the index has not done yet.
    told: VecDeque<Told>,
    /// Documents whose fetch has just failed.
    failed: Vec<DocId>,
    /// How often documents were sent, by this server and before they came here.
    sends: HashMap<DocId, u32>,
    /// Holds of the group without limits that it knows of.
    told_hold: Instant,
    in_flight: BTreeMap<TransId, (DocId, Vec<ClaimKey>)>,
}

enum Told {
    Report(Report),
    Claim(ClaimAction),
}

/// What the database knows of a server.
#[derive(Clone, Copy)]
struct Instance {
    server: usize,
    expires_1: Instant,
    expires_2: Instant,
}

#[derive(Default)]
struct Row {
    holder: Option<u64>,
    in_flight: bool,
    affinity: Option<u64>,
    wanted_by: Option<u64>,
    opens_at: Instant,
    held_until: Instant,
    dark_until: Option<Instant>,
    /// What is ordered, and whether whoever holds it was told.
    paused: bool,
    delay: Duration,
    told: bool,
    /// The delay that was known at the last send.
    delay_kept: Duration,
}

struct World {
    rng: fastrand::Rng,
    now: Instant,
    servers: Vec<Server>,
    instances: BTreeMap<u64, Instance>,
    rows: BTreeMap<ClaimKey, Row>,
    /// Open documents by host.
    open: Vec<Vec<DocId>>,
    ended: HashMap<DocId, u32>,
    tried: HashMap<DocId, Tried>,
    /// The hold of the group without limits, by the database.
    hold: Instant,
    /// Claims that were taken after the first expiry although there had been sends under them.
    taken_from_rest: u32,
    used: std::collections::HashSet<ClaimKey>,
    addresses: Vec<u8>,
    last_epoch: u64,
    last_send: HashMap<ClaimKey, Instant>,
    flying: HashMap<ClaimKey, u32>,
    waiting: Vec<(usize, ClaimKey, bool)>,
}

impl World {
    fn new(seed: u64, count: usize) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let servers = (0..count)
            .map(|n| {
                let mut scheduler = Scheduler::new(config(seed * 10 + n as u64));
                let spider = scheduler.handle_spider_connected();
                Server {
                    scheduler,
                    spider,
                    epoch: 0,
                    stopped: false,
                    lost: vec![],
                    told: VecDeque::new(),
                    failed: vec![],
                    sends: HashMap::new(),
                    told_hold: Instant::ZERO,
                    in_flight: BTreeMap::new(),
                }
            })
            .collect();
        let mut doc = 0;
        let open: Vec<Vec<DocId>> = (0..HOSTS)
            .map(|_| {
                let list = (0..rng.u64(1..9)).map(|_| {
                    doc += 1;
                    DocId(doc)
                });
                list.collect()
            })
            .collect();
        World {
            addresses: (0..HOSTS).map(|_| rng.u8(1..8)).collect(),
            rng,
            now: Instant::ZERO,
            servers,
            instances: BTreeMap::new(),
            rows: (0..HOSTS).map(|n| (ClaimKey::Host(host(n).into()), Row::default())).collect(),
            open,
            ended: HashMap::new(),
            tried: HashMap::new(),
            hold: Instant::ZERO,
            taken_from_rest: 0,
            used: Default::default(),
            last_epoch: 0,
            last_send: HashMap::new(),
            flying: HashMap::new(),
            waiting: vec![],
        }
    }

    fn documents(&self) -> usize {
        self.open.iter().map(Vec::len).sum::<usize>() + self.ended.len()
    }

    fn step(&mut self, faults: bool) {
        self.now = self.now + Duration::from_millis(self.rng.u64(..120));
        self.free_late();
        let n = self.rng.usize(..self.servers.len());
        if faults && self.rng.u8(..40) == 0 {
            self.servers[n].stopped = !self.servers[n].stopped;
        }
        if faults && self.rng.u8(..60) == 0 {
            let host = self.rng.usize(..HOSTS);
            self.addresses[host] = self.rng.u8(1..8);
        }
        if faults && self.rng.u8(..30) == 0 {
            self.order();
        }
        for n in 0..self.servers.len() {
            if !self.servers[n].stopped {
                self.turn(n, faults);
            }
        }
    }

    /// An operator says something of a host, somewhere.
    fn order(&mut self) {
        let name = host(self.rng.usize(..HOSTS));
        let row = self.rows.get_mut(&ClaimKey::Host(name.as_str().into())).unwrap();
        if self.rng.bool() {
            row.paused = !row.paused;
        } else {
            row.delay = Duration::from_millis(self.rng.u64(..600));
        }
        row.told = false;
    }

    /// All orders are lifted.
    fn lift_orders(&mut self) {
        for row in self.rows.values_mut() {
            (row.paused, row.delay, row.told) = (false, Duration::ZERO, false);
        }
    }

    /// What the hub does.
    fn turn(&mut self, n: usize, faults: bool) {
        let now = self.now;
        if self.rng.u8(..3) == 0 {
            self.renew(n);
        }
        self.servers[n].scheduler.handle_timeout(now);
        if self.rng.bool() {
            self.end_some(n);
        }
        let server = &mut self.servers[n];
        while let Some(report) = server.scheduler.poll_report(now) {
            if let Report { doc, end: End::Failed(FailReason::Outcome(_)) } = report {
                assert_eq!(server.sends[&doc], ATTEMPTS, "{doc} is given up too early");
            }
            server.told.push_back(Told::Report(report));
        }
        while let Some(action) = server.scheduler.poll_claim(now) {
            if let ClaimAction::Tried { doc, tried, .. } = action {
                server.failed.retain(|failed| *failed != doc);
                assert_eq!(tried.sends, server.sends[&doc], "{doc} is counted wrong");
            }
            server.told.push_back(Told::Claim(action));
        }
        let unsaid = server.failed.drain(..).find(|doc| server.sends[doc] < ATTEMPTS);
        assert_eq!(unsaid, None, "server {n} at {now:?}: nobody is told of an attempt");
        let mut patience = if faults { self.rng.usize(..6) } else { usize::MAX };
        while patience > 0
            && let Some(told) = self.servers[n].told.pop_front()
        {
            patience -= 1;
            match told {
                Told::Report(report) => self.report(n, report),
                Told::Claim(action) => self.act(n, action),
            }
        }
        self.answer_later(n);
        self.send(n);
        while let Some(lookup) = self.servers[n].scheduler.poll_lookup() {
            let number = number(lookup.name);
            let ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, self.addresses[number]));
            let (id, ttl) = (lookup.host, Duration::from_secs(2));
            let resolution = Resolution::Addresses { addresses: vec![ip], ttl };
            self.servers[n].scheduler.handle_resolved(now, id, resolution);
        }
        self.ask(n);
        if let Err(broken) = self.servers[n].scheduler.check(now) {
            panic!("server {n} at {now:?}: {broken}");
        }
    }

    fn renew(&mut self, n: usize) {
        let now = self.now;
        let (epoch, until) = (self.servers[n].epoch, now + (EXPIRY_1 - MARGIN));
        let mut news = Vec::new();
        if let Some(instance) = self.instances.get_mut(&epoch) {
            (instance.expires_1, instance.expires_2) = (now + EXPIRY_1, now + EXPIRY_2);
            news.extend(self.servers[n].lost.drain(..).map(ClaimNews::Lost));
            let wanted =
                self.rows.iter().filter(|(_, row)| row.holder == Some(epoch) && row.wanted_by.is_some());
            news.extend(wanted.map(|(key, _)| ClaimNews::WantedElsewhere(key.clone())));
            for (key, row) in self.rows.iter_mut().filter(|(_, row)| row.holder == Some(epoch) && !row.told) {
                row.told = true;
                news.extend(ordered(key, row));
            }
        } else {
            self.last_epoch += 1;
            self.servers[n].epoch = self.last_epoch;
            self.servers[n].lost.clear();
            self.servers[n].told.retain(|told| matches!(told, Told::Report(_)));
            self.waiting.retain(|(server, _, _)| *server != n);
            let instance = Instance { server: n, expires_1: now + EXPIRY_1, expires_2: now + EXPIRY_2 };
            self.instances.insert(self.last_epoch, instance);
            news.push(ClaimNews::AllLost);
        }
        if self.hold > now {
            let key = ClaimKey::Group("free".into());
            news.push(ClaimNews::Held { key, held_for: self.hold.since(now), strikes: 1 });
            self.servers[n].told_hold = self.hold;
        }
        for news in news {
            self.servers[n].scheduler.handle_claim_news(now, &news);
        }
        self.servers[n].scheduler.handle_claims_renewed(now, until);
    }

    fn free_late(&mut self) {
        let now = self.now;
        let late: Vec<(u64, Instance)> =
            self.instances.iter().filter(|(_, i)| i.expires_1 < now).map(|(&e, &i)| (e, i)).collect();
        for (epoch, instance) in late {
            let dead = instance.expires_2 < now;
            for (key, row) in &mut self.rows {
                if row.holder != Some(epoch) || row.in_flight && !dead {
                    continue;
                }
                if row.in_flight {
                    row.dark_until = Some(instance.expires_1);
                } else {
                    let server = &self.servers[instance.server];
                    let busy = server.in_flight.values().any(|(_, keys)| keys.contains(key));
                    assert!(!busy, "{key} is taken while something is in flight under it");
                    self.taken_from_rest += u32::from(self.used.contains(key));
                }
                (row.holder, row.in_flight, row.wanted_by) = (None, false, None);
                self.servers[instance.server].lost.push(key.clone());
            }
            if dead {
                self.instances.remove(&epoch);
                self.rows.values_mut().filter(|r| r.affinity == Some(epoch)).for_each(|r| r.affinity = None);
                // What its spiders still fetch has lasted as long as anything may.
                for (_, keys) in std::mem::take(&mut self.servers[instance.server].in_flight).values() {
                    keys.iter().for_each(|key| *self.flying.get_mut(key).unwrap() -= 1);
                }
            }
        }
    }

    fn act(&mut self, n: usize, action: ClaimAction) {
        let (now, epoch) = (self.now, self.servers[n].epoch);
        match action {
            ClaimAction::Want { key, wish } => self.want(n, key, wish == Wish::Urgent),
            ClaimAction::Note { key, clock } => {
                if let Some(row) = self.rows.get_mut(&key).filter(|row| row.holder == Some(epoch)) {
                    row.held_until = now + clock.held_for;
                }
            }
            ClaimAction::Rest { key, clock } => {
                if let Some(row) = self.rows.get_mut(&key).filter(|row| row.holder == Some(epoch)) {
                    (row.in_flight, row.dark_until) = (false, None);
                    (row.opens_at, row.held_until) = (now + clock.opens_in, now + clock.held_for);
                }
            }
            ClaimAction::Hold { key, held_for, .. } => {
                assert_eq!(key, ClaimKey::Group("free".into()));
                self.hold = self.hold.max(now + held_for);
            }
            ClaimAction::Tried { doc, tried, .. } => {
                if self.holds_host_of(doc) == Some(epoch) {
                    let known = self.tried.entry(doc).or_default();
                    known.sends = known.sends.max(tried.sends);
                }
            }
            ClaimAction::GiveBack { key, clock, to_holder_of } => {
                let because = to_holder_of.and_then(|key| self.rows.get(&key));
                let heir = because.and_then(|row| row.holder.filter(|&h| h != epoch).or(row.wanted_by));
                let heir = heir.filter(|heir| self.instances.contains_key(heir));
                let Some(row) = self.rows.get_mut(&key).filter(|row| row.holder == Some(epoch)) else {
                    return;
                };
                (row.holder, row.in_flight, row.wanted_by) = (None, false, None);
                row.affinity = heir;
                if let Some(clock) = clock {
                    row.opens_at = now + clock.opens_in;
                    row.held_until = now + clock.held_for;
                    row.dark_until = None;
                }
            }
        }
    }

    fn want(&mut self, n: usize, key: ClaimKey, insist: bool) {
        let (now, epoch) = (self.now, self.servers[n].epoch);
        let is_host = matches!(key, ClaimKey::Host(_));
        let row = self.rows.entry(key.clone()).or_default();
        let free = row.holder == Some(epoch) || row.holder.is_none() && !is_host;
        let mut orders = None;
        let news = if free && self.instances.contains_key(&epoch) {
            (row.holder, row.in_flight, row.told) = (Some(epoch), true, true);
            orders = ordered(&key, row);
            let clock = OwedClock {
                opens_in: row.opens_at.since(now),
                held_for: row.held_until.since(now),
                strikes: 0,
                gap: Duration::ZERO,
                dark_since: row.dark_until.map(|until| now.since(until)),
            };
            ClaimNews::Good { key, clock }
        } else if is_host {
            ClaimNews::Elsewhere { key, younger: false }
        } else {
            let holder = row.holder;
            let alive =
                holder.and_then(|holder| self.instances.get(&holder)).is_some_and(|i| i.expires_1 > now);
            let younger = holder > Some(epoch);
            if insist && younger {
                row.wanted_by = Some(row.wanted_by.map_or(epoch, |by| by.min(epoch)));
            }
            if !alive || insist && younger {
                return self.waiting.push((n, key, insist));
            }
            ClaimNews::Elsewhere { key, younger }
        };
        for news in orders.into_iter().chain([news]) {
            self.servers[n].scheduler.handle_claim_news(now, &news);
        }
    }

    fn answer_later(&mut self, n: usize) {
        let (mine, others) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(server, _, _)| *server == n);
        self.waiting = others;
        let mine: Vec<(usize, ClaimKey, bool)> = mine;
        for (_, key, insist) in mine {
            self.want(n, key, insist);
        }
    }

    fn ask(&mut self, n: usize) {
        let now = self.now;
        if !self.instances.contains_key(&self.servers[n].epoch) {
            return;
        }
        let Some(request) = self.servers[n].scheduler.poll_request(now) else { return };
        let epoch = self.servers[n].epoch;
        let mut room = request.count.min(self.rng.usize(1..12));
        for number in 0..HOSTS {
            let name = host(number);
            let row = self.rows.get_mut(&ClaimKey::Host(name.as_str().into())).unwrap();
            let fits = row.holder.is_none() && row.affinity.is_none_or(|affinity| affinity == epoch);
            if !fits || row.paused || self.open[number].is_empty() || room == 0 {
                continue;
            }
            (row.holder, row.in_flight, row.affinity, row.told) = (Some(epoch), false, None, false);
            for &doc in &self.open[number] {
                let url = Url::parse(&format!("http://{name}/{doc}")).unwrap();
                let tried = self.tried.get(&doc).copied().unwrap_or_default();
                let candidate = Candidate { doc, url, ip: None, wait: Duration::ZERO, tried };
                if self.servers[n].scheduler.handle_candidate(now, &candidate) == Admission::Pending {
                    self.servers[n].sends.insert(doc, tried.sends);
                }
                room = room.saturating_sub(1);
            }
        }
        self.servers[n].scheduler.handle_answered(now);
        self.servers[n].scheduler.handle_index_news();
    }

    fn send(&mut self, n: usize) {
        let (now, epoch) = (self.now, self.servers[n].epoch);
        while let Some(work) = self.servers[n].scheduler.poll_send(now) {
            let (trans, doc, ip) = (work.trans, work.doc, work.ip);
            let number = number(work.host);
            let name = ClaimKey::Host(work.host.into());
            let mut keys = vec![name.clone(), ClaimKey::Ip(ip)];
            if [0, 3, 6].contains(&number) {
                keys.push(ClaimKey::Alias("alias".into()));
            }
            if config(0).groups[0].ranges[0].contains(ip) {
                keys.push(ClaimKey::Group("range".into()));
            } else if FREE.contains(&number) {
                let hold = self.servers[n].told_hold;
                assert!(hold <= now, "server {n} at {now:?}: {name} on hold until {hold:?}");
            }
            let row = self.rows.get_mut(&name).unwrap();
            assert!(!row.paused || !row.told, "server {n} at {now:?}: {name} is paused");
            let sends = self.servers[n].sends.get_mut(&doc).unwrap();
            *sends += 1;
            assert!(*sends <= ATTEMPTS, "{doc} has had its chances");
            // A delay holds from the first send that was made knowing of it, wherever the next one is made.
            let delay = row.delay_kept.min(row.delay);
            row.delay_kept = if row.told { row.delay } else { Duration::ZERO };
            for key in &keys {
                self.count_send(n, key, if *key == name { PACE.gap.max(delay) } else { PACE.gap });
                let row = &self.rows[key];
                assert!(
                    row.holder == Some(epoch) && row.in_flight,
                    "server {n} at {now:?}: sent under {key}, which is {:?}'s, in flight: {}",
                    row.holder,
                    row.in_flight
                );
                self.used.insert(key.clone());
            }
            let server = &mut self.servers[n];
            server.in_flight.insert(trans, (doc, keys));
            let spider = server.spider;
            server.scheduler.handle_written(now, spider, 1);
        }
    }

    fn count_send(&mut self, n: usize, key: &ClaimKey, gap: Duration) {
        let now = self.now;
        let since = self.last_send.insert(key.clone(), now).map(|last| now.since(last));
        assert!(since.is_none_or(|since| since >= gap), "server {n} at {now:?}: {key} after {since:?}");
        let flying = self.flying.entry(key.clone()).or_default();
        *flying += 1;
        assert!(*flying <= 1, "server {n} at {now:?}: {flying} in flight at {key}");
    }

    fn end_some(&mut self, n: usize) {
        let server = &mut self.servers[n];
        let Some((&trans, _)) = server.in_flight.iter().next() else { return };
        let (doc, keys) = server.in_flight.remove(&trans).unwrap();
        keys.iter().for_each(|key| *self.flying.get_mut(key).unwrap() -= 1);
        let outcome = match self.rng.u8(..20) {
            0..4 => Outcome::Status(500),
            4 => Outcome::Status(429),
            _ => Outcome::Status(200),
        };
        if outcome != Outcome::Status(200) {
            server.failed.push(doc);
        }
        let retry_after = (outcome == Outcome::Status(429)).then_some(Duration::from_millis(700));
        server.scheduler.handle_done(self.now, server.spider, trans, Done { outcome, retry_after });
    }

    /// Who holds the host of an open document.
    fn holds_host_of(&self, doc: DocId) -> Option<u64> {
        let number = self.open.iter().position(|list| list.contains(&doc))?;
        self.rows[&ClaimKey::Host(host(number).into())].holder
    }

    /// Counts, and ends the document, if the host is claimed by whoever reports.
    fn report(&mut self, n: usize, report: Report) {
        let doc = report.doc;
        if self.holds_host_of(doc) != Some(self.servers[n].epoch) {
            return;
        }
        self.open.iter_mut().for_each(|list| list.retain(|other| *other != doc));
        *self.ended.entry(doc).or_default() += 1;
    }
}

fn number(name: &str) -> usize {
    name[1..].split('.').next().unwrap().parse().unwrap()
}

/// What is ordered for a host.
fn ordered(key: &ClaimKey, row: &Row) -> Option<ClaimNews> {
    let ClaimKey::Host(name) = key else { return None };
    let standing = Standing { paused: row.paused, delay: row.delay, blocked_for: Duration::ZERO };
    Some(ClaimNews::Ordered { host: name.clone(), standing })
}

/// How many claims were taken after the first expiry under which there had been sends.
fn run(seed: u64) -> u32 {
    let servers = 1 + seed as usize % 4;
    let mut world = World::new(seed, servers);
    let documents = world.documents();
    for _ in 0..600 {
        world.step(true);
    }
    world.servers.iter_mut().for_each(|server| server.stopped = false);
    world.lift_orders();
    for steps in 0.. {
        if world.ended.len() == documents {
            break;
        }
        assert!(steps < 20_000, "seed {seed}: {} of {documents} ended", world.ended.len());
        world.step(false);
    }
    for _ in 0..2000 {
        world.step(false);
    }
    assert!(world.ended.values().all(|&times| times == 1));
    for (n, server) in world.servers.iter().enumerate() {
        assert!(server.scheduler.is_drained(), "seed {seed}: server {n} is not drained");
    }
    let held: Vec<_> =
        world.rows.iter().filter(|(_, row)| row.holder.is_some()).map(|(key, _)| key).collect();
    assert!(held.is_empty(), "seed {seed}: claims for nothing: {held:?}");
    world.taken_from_rest
}

#[test]
fn servers_that_share_an_index_keep_every_limit_and_lose_nothing() {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let (first, count) = (number("SEED"), number("SEEDS"));
    let mut taken_from_rest = 0;
    let seeds = first.map_or(0..count.unwrap_or(100), |first| first..first + count.unwrap_or(1));
    for seed in seeds {
        let ran = std::panic::catch_unwind(|| run(seed));
        assert!(ran.is_ok(), "SEED={seed}");
        taken_from_rest += ran.unwrap_or(0);
    }
    assert!(first.is_some() || taken_from_rest > 0, "nobody used the first expiry");
}
