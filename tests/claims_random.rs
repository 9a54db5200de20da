//! Several schedulers that share one index, in virtual time: claims are asked for, answered, lost, insisted on and given
//! back at random, servers stop and go on, and addresses move. Whatever happens, no host, address, alias or group
//! is asked too often over all of them, the laws hold after every step, and in the end every document was
//! reported once.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use urlserver::claim::{ClaimAction, ClaimKey, ClaimNews, OwedClock, Wish};
use urlserver::document::{Candidate, Done, Outcome};
use urlserver::hostdb::Resolution;
use urlserver::ids::{DocId, SpiderId, TransId};
use urlserver::scheduler::{Config, GroupRule, IpRange, Pace, Rest, Scheduler};
use urlserver::time::{Duration, Instant};
use urlserver::url::Url;

const EXPIRY_1: Duration = Duration::from_millis(1000);
const EXPIRY_2: Duration = Duration::from_millis(3000);
const MARGIN: Duration = Duration::from_millis(100);
const HOSTS: usize = 14;
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
        max_attempts: 0,
        retry_delay: Duration::from_millis(50),
        allow_private: true,
        aliases: vec![rule("alias", &[0, 3, 6], vec![])],
        groups: vec![rule("range", &[], vec![range])],
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
    in_flight: BTreeMap<TransId, (DocId, Vec<String>)>,
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
    addresses: Vec<u8>,
    last_epoch: u64,
    last_send: HashMap<String, Instant>,
    flying: HashMap<String, u32>,
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
        for n in 0..self.servers.len() {
            if !self.servers[n].stopped {
                self.turn(n);
            }
        }
    }

    /// What the hub does.
    fn turn(&mut self, n: usize) {
        let now = self.now;
        if self.rng.u8(..3) == 0 {
            self.renew(n);
        }
        self.servers[n].scheduler.handle_timeout(now);
        if self.rng.bool() {
            self.end_some(n);
        }
        while let Some(report) = self.servers[n].scheduler.poll_report(now) {
            self.report(n, report.doc);
        }
        while let Some(action) = self.servers[n].scheduler.poll_claim(now) {
            self.act(n, action);
        }
        self.answer_later(n);
        self.send(n);
        while let Some(lookup) = self.servers[n].scheduler.poll_lookup() {
            let number: usize = lookup.name[1..].split('.').next().unwrap().parse().unwrap();
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
        } else {
            self.last_epoch += 1;
            self.servers[n].epoch = self.last_epoch;
            self.servers[n].lost.clear();
            self.waiting.retain(|(server, _, _)| *server != n);
            let instance = Instance { server: n, expires_1: now + EXPIRY_1, expires_2: now + EXPIRY_2 };
            self.instances.insert(self.last_epoch, instance);
            news.push(ClaimNews::AllLost);
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
            ClaimAction::Note { .. } => {}
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
        let news = if free && self.instances.contains_key(&epoch) {
            (row.holder, row.in_flight) = (Some(epoch), true);
            let clock = OwedClock {
                opens_in: row.opens_at.since(now),
                held_for: row.held_until.since(now),
                strikes: 0,
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
        self.servers[n].scheduler.handle_claim_news(now, &news);
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
            if !fits || self.open[number].is_empty() || room == 0 {
                continue;
            }
            (row.holder, row.in_flight, row.affinity) = (Some(epoch), false, None);
            for &doc in &self.open[number] {
                let url = Url::parse(&format!("http://{name}/{doc}")).unwrap();
                let candidate = Candidate { doc, url, ip: None, wait: Duration::ZERO };
                let _ = self.servers[n].scheduler.handle_candidate(now, &candidate);
                room = room.saturating_sub(1);
            }
        }
        self.servers[n].scheduler.handle_answered(now);
        self.servers[n].scheduler.handle_index_news();
    }

    fn send(&mut self, n: usize) {
        let now = self.now;
        while let Some(work) = self.servers[n].scheduler.poll_send(now) {
            let (trans, doc, name, ip) = (work.trans, work.doc, work.host.to_owned(), work.ip);
            let number: usize = name[1..].split('.').next().unwrap().parse().unwrap();
            let mut keys = vec![name, ip.to_string()];
            if [0, 3, 6].contains(&number) {
                keys.push("alias".into());
            }
            if config(0).groups[0].ranges[0].contains(ip) {
                keys.push("range".into());
            }
            for key in &keys {
                let since = self.last_send.insert(key.clone(), now).map(|last| now.since(last));
                assert!(
                    since.is_none_or(|gap| gap >= PACE.gap),
                    "server {n} at {now:?}: {key} after {since:?}"
                );
                let flying = self.flying.entry(key.clone()).or_default();
                *flying += 1;
                assert!(*flying <= 1, "server {n} at {now:?}: {flying} in flight at {key}");
            }
            let server = &mut self.servers[n];
            server.in_flight.insert(trans, (doc, keys));
            let spider = server.spider;
            server.scheduler.handle_written(now, spider, 1);
        }
    }

    fn end_some(&mut self, n: usize) {
        let server = &mut self.servers[n];
        let Some((&trans, _)) = server.in_flight.iter().next() else { return };
        let (_, keys) = server.in_flight.remove(&trans).unwrap();
        keys.iter().for_each(|key| *self.flying.get_mut(key).unwrap() -= 1);
        let outcome = if self.rng.u8(..5) == 0 { Outcome::Status(500) } else { Outcome::Status(200) };
        server.scheduler.handle_done(self.now, server.spider, trans, Done::from(outcome));
    }

    /// Counts, and ends the document, if the host is claimed by whoever reports.
    fn report(&mut self, n: usize, doc: DocId) {
        let epoch = self.servers[n].epoch;
        let Some(number) = self.open.iter().position(|list| list.contains(&doc)) else { return };
        if self.rows[&ClaimKey::Host(host(number).into())].holder == Some(epoch) {
            self.open[number].retain(|other| *other != doc);
            *self.ended.entry(doc).or_default() += 1;
        }
    }
}

fn run(seed: u64) {
    let servers = 1 + seed as usize % 4;
    let mut world = World::new(seed, servers);
    let documents = world.documents();
    for _ in 0..600 {
        world.step(true);
    }
    world.servers.iter_mut().for_each(|server| server.stopped = false);
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
}

#[test]
fn servers_that_share_an_index_keep_every_limit_and_lose_nothing() {
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in first.map_or(0..60, |seed: u64| seed..seed + 1) {
        let ran = std::panic::catch_unwind(|| run(seed));
        assert!(ran.is_ok(), "SEED={seed}");
    }
}
