//! Whole crawls by several servers on one database that do more than send: they ask for robots.txt themselves, and
//! they give hosts to workers that reserve them. One auditor sees all requests, whoever makes them.

#[path = "support/fleet.rs"]
mod fleet;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/web.rs"]
mod web;

use fleet::{
    DEADLINE, EXPIRY_2, Fleet, GAP, Server, auditor, claims_of, fill, in_steps, is_late, serious, step,
};
use postgres::{assert_well_kept, new_watched_database, sql};
use serde_json::Value;
use spider_sim::audit::{Auditor, GateLimit};
use spider_sim::event::{Event, Sent};
use spider_sim::violation::GateKey;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use urlserver::document::{Done, Outcome};
use urlserver::ids::{DocId, TransId};
use urlserver::url::Url;
use web::{Reply, Request, Web};

const PAGES: usize = 4;
/// What every second host asks for.
const CRAWL_DELAY: Duration = Duration::from_millis(600);

fn hosts(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("h{n}.example"))
}

/// The rules of a host: every second one wants to be left in peace, and page 1 is nobody's business.
fn rules(request: &Request) -> Reply {
    let host = request.header("host").unwrap_or_default();
    let number: usize = host[1..].split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let delay = if number.is_multiple_of(2) {
        format!("Crawl-delay: {}\n", CRAWL_DELAY.as_secs_f64())
    } else {
        "".into()
    };
    Reply::ok(format!("User-agent: *\n{delay}Disallow: /1\n"))
}

/// A fleet that obeys robots.txt, and what may happen to it. All requests, its own and those of its spiders, are looked
/// at as one.
fn obey_robots(during: impl FnMut(&mut fleet::Scene<'_>)) {
    const ADDRESSES: [&str; 4] = ["127.0.90.1", "127.0.90.2", "127.0.90.3", "127.0.90.4"];
    let webs: Vec<Web> = ADDRESSES.iter().map(|ip| Web::http(ip, rules)).collect();
    let names: Vec<String> = hosts(12).collect();
    let fleet = Fleet {
        sites: names.iter().enumerate().map(|(n, host)| (host.clone(), ADDRESSES[n % 4], PAGES)).collect(),
        ports: ADDRESSES.iter().zip(&webs).map(|(&ip, web)| (ip, web.address().port())).collect(),
        robots: true,
        denied: names.len(),
        ..Fleet::default()
    };
    let fetch = fleet.fetch;
    let end = fleet.run(during);
    let mut events: Vec<(urlserver::time::Instant, Event)> = Vec::new();
    for sent in &end.sends {
        let done =
            Event::Done { at: sent.at + fetch, trans: sent.trans, done: Done::from(Outcome::Status(200)) };
        events.extend([(sent.at, Event::Sent(sent.clone())), (sent.at + fetch, done)]);
    }
    let mut asked = 0;
    for (ip, web) in ADDRESSES.iter().zip(&webs) {
        for request in web.requests() {
            asked += 1;
            let at = end.at(request.at);
            let (trans, doc) = (TransId(u64::MAX - asked), DocId(u64::MAX - asked));
            let host = request.header("host").expect("a host");
            let url = Url::parse(&format!("http://{host}/robots.txt")).expect("a URL");
            assert_eq!(request.path, "/robots.txt");
            let ip = ip.parse().expect("an address");
            let done = Event::Done { at, trans, done: Done::from(Outcome::Status(200)) };
            events.extend([(at, Event::Sent(Sent { at, since: at, trans, doc, ip, url })), (at, done)]);
        }
    }
    assert!(asked >= names.len() as u64, "only {asked} rules were asked for");
    events.sort_by_key(|(at, _)| *at);
    let mut auditor = auditor(GAP);
    for host in names.iter().step_by(2) {
        let limit = GateLimit { concurrent: Some(1), gap: CRAWL_DELAY };
        auditor.set_limit(GateKey::Host(host.as_str().into()), limit);
    }
    // Trans ids of different servers may be the same: each send is a spider of its own.
    for (number, event) in renamed(events) {
        auditor.handle(number, event);
    }
    let broken = serious(&auditor);
    assert!(broken.is_empty(), "{broken:#?}");
    let first_sent =
        |host: &str| end.sends.iter().filter(|sent| sent.url.host() == host).map(|sent| sent.at).min();
    for host in &names {
        let asked = webs.iter().flat_map(Web::requests).filter(|request| {
            request.header("host").is_some_and(|header| header.split(':').next() == Some(host.as_str()))
        });
        let asked = asked.map(|request| end.at(request.at)).min().expect("rules");
        assert!(first_sent(host).expect("sends") >= asked, "{host}: sent before there were rules");
    }
}

/// Gives every send a name of its own, whichever server has sent it.
fn renamed(events: Vec<(urlserver::time::Instant, Event)>) -> impl Iterator<Item = (usize, Event)> {
    let mut open: std::collections::HashMap<TransId, Vec<u64>> = Default::default();
    let mut last = 0;
    events.into_iter().map(move |(_, event)| match event {
        Event::Sent(sent) => {
            last += 1;
            open.entry(sent.trans).or_default().push(last);
            (last as usize, Event::Sent(Sent { trans: TransId(last), ..sent }))
        }
        Event::Done { at, trans, done } => {
            let number = open.get_mut(&trans).map(|list| list.remove(0)).expect("sent before");
            (number as usize, Event::Done { at, trans: TransId(number), done })
        }
        other => (0, other),
    })
}

#[test]
fn pass_a_fleet_obeys_robots_txt() {
    obey_robots(|_| ());
}

#[test]
fn fail_a_server_that_obeys_robots_txt_is_killed() {
    obey_robots(in_steps(vec![step(|scene| {
        let now = scene.sends >= 6;
        if now {
            scene.servers[0].signal("-KILL");
        }
        now
    })]));
}

#[test]
fn delay_a_server_that_obeys_robots_txt_is_stopped_past_the_second_expiry() {
    obey_robots(in_steps(vec![
        step(|scene| {
            let now = scene.sends >= 6;
            if now {
                scene.servers[0].signal("-STOP");
            }
            now
        }),
        step(|scene| {
            let now = is_late(scene.database, "server0", "expires_2");
            if now {
                scene.servers[0].signal("-CONT");
            }
            now
        }),
    ]));
}

/// What workers share.
struct Bureau {
    auditor: Mutex<Auditor>,
    start: Instant,
    sends: AtomicU64,
    over: AtomicBool,
}

impl Bureau {
    fn now(&self) -> urlserver::time::Instant {
        urlserver::time::Instant::from_micros(self.start.elapsed().as_micros() as u64)
    }

    fn tell(&self, worker: usize, event: Event) {
        self.auditor.lock().expect("no panic").handle(worker, event);
    }

    /// Reserves hosts of one server, and fetches what it is given; until all is over.
    fn work(&self, worker: usize, server: &Server) {
        while !self.over.load(Ordering::Acquire) {
            let since = self.now();
            match server.request("POST", "/api/reservations?urls=2", "") {
                Some((200, reservation)) => self.fetch(worker, server, since, &reservation),
                Some(_) | None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// The host is the worker's until it is released; how it spaces its own fetches is its own business.
    fn fetch(&self, worker: usize, server: &Server, since: urlserver::time::Instant, reservation: &Value) {
        let trans = TransId(self.sends.fetch_add(1, Ordering::AcqRel) + 1);
        let urls = reservation["urls"].as_array().expect("URLs");
        let doc = DocId(urls[0]["doc_id"].as_u64().expect("a number"));
        let ip = urls[0]["ip"].as_str().and_then(|ip| ip.parse().ok()).expect("an address");
        let url = Url::parse(urls[0]["url"].as_str().expect("a URL")).expect("a URL");
        let at = self.now();
        self.tell(worker, Event::Sent(Sent { at, since, trans, doc, ip, url }));
        std::thread::sleep(Duration::from_millis(30));
        let outcomes: serde_json::Map<String, Value> =
            urls.iter().map(|url| (url["doc_id"].to_string(), "200".into())).collect();
        let done = Done::from(Outcome::Status(200));
        self.tell(worker, Event::Done { at: self.now(), trans, done });
        let path = format!("/api/reservations/{}", reservation["token"].as_str().expect("a token"));
        let _ = server.request("DELETE", &path, &Value::from(outcomes).to_string());
    }
}

/// Two servers, and workers that reserve hosts of both.
fn reserve(mut during: impl FnMut(&[Server], &str, u64) -> bool) {
    let sites: Vec<_> =
        hosts(16).enumerate().map(|(n, host)| (host, ["127.0.91.1", "127.0.91.2"][n % 2], 6)).collect();
    let database = new_watched_database();
    fill(&database, &sites, &[]);
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("hosts");
    let lines: String = sites.iter().map(|(host, ip, _)| format!("{ip} {host}\n")).collect();
    std::fs::write(&file, lines).expect("a file");
    let settings = Fleet::default().settings_file(&file.display().to_string());
    let mut servers: Vec<Server> =
        (0..2).map(|n| Server::start(&format!("server{n}"), &database, &settings)).collect();
    let bureau = Arc::new(Bureau {
        auditor: Mutex::new(auditor(GAP)),
        start: Instant::now(),
        sends: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    std::thread::scope(|scope| {
        for worker in 0..6 {
            let (bureau, server) = (&bureau, &servers[worker % 2]);
            scope.spawn(move || bureau.work(worker, server));
        }
        let mut settled = false;
        let open = || sql(&database, "SELECT count(*) FROM docs WHERE state = 0");
        while open() != "0" {
            assert!(bureau.start.elapsed() < DEADLINE, "{} are open", open());
            settled = settled || during(&servers, &database, bureau.sends.load(Ordering::Acquire));
            std::thread::sleep(Duration::from_millis(50));
        }
        bureau.over.store(true, Ordering::Release);
        assert!(settled, "it did not happen");
    });
    let auditor = bureau.auditor.lock().expect("no panic");
    let broken = serious(&auditor);
    assert!(broken.is_empty(), "{broken:#?}");
    drop(auditor);
    assert_eq!(sql(&database, "SELECT count(*) FROM ends"), "96", "each once");
    assert_well_kept(&database);
    servers.retain_mut(|server| !server.has_ended());
}

#[test]
fn pass_workers_reserve_hosts_of_several_servers() {
    reserve(|_, _, sends| sends >= 1);
}

#[test]
fn fail_a_server_with_reservations_is_killed() {
    reserve(|servers, _, sends| {
        let now = sends >= 8;
        if now {
            servers[0].signal("-KILL");
        }
        now
    });
}

#[test]
fn delay_a_server_with_reservations_is_stopped_until_all_it_had_is_anothers() {
    let mut stopped = None;
    reserve(move |servers, database, sends| {
        if stopped.is_none() && sends >= 8 {
            servers[0].signal("-STOP");
            stopped = Some(Instant::now());
        }
        let over = stopped.is_some() && claims_of(database, "server0") == "0";
        if over {
            servers[0].signal("-CONT");
        }
        over
    });
    assert!(EXPIRY_2 > Duration::from_secs(1), "longer than any worker has a host");
}
