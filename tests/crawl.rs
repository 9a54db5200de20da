//! Whole crawls: the real binary, real name servers, real spiders, and an auditor that watches from outside.
//!
//! Every crawl here ends because the server finds that all is done, with every document reported once, no
//! promise broken, and its numbers adding up; [`support::Crawl::run`] sees to that. All addresses are loopback.

#![allow(clippy::unwrap_used)]

#[path = "support/dns.rs"]
mod dns;
#[path = "support/crawl.rs"]
mod support;

use dns::{Asked, DnsServer, Reply};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;
use spider_sim::audit::{GateLimit, Grouping, Kind, Rest};
use spider_sim::event::Sent;
use spider_sim::profile::{Latency, Profile};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use support::{Crawl, DEADLINE, GAP, Server, number, pages, quick};
use urlserver::document::{Done, Outcome};
use urlserver::scheduler::{GroupRule, IpRange, Pace};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

fn path_text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

const DEAD: &str = "127.0.2.1";
/// URLs of one host, address or alias in flight where all goes on at once.
const CONCURRENT: u32 = 2;

/// The groups of [`everything_at_once_breaks_no_limit`], for the server.
const GROUPS: &str = "
    fail_threshold = 2
    fail_window = '200ms'
    dns_timeout = '2s'
    dns_ttl_min = '1s'

    [alias]
    pair = ['a.pair.example', 'b.pair.example']

    [[group]]
    name = 'farm'
    hosts = ['*.farm.example', 'farm.example']
    concurrent = 2
    per_sec = 10

    [[group]]
    name = 'rack'
    cidr = ['127.0.30.0/24']
    concurrent = 3
    per_sec = 20

    [[group]]
    name = 'cdn'
    cidr = ['127.0.40.0/24']
    concurrent = inf
    per_sec = inf
";

/// And for the auditor, in its own words.
fn grouping() -> Grouping {
    let none = |name: &str, concurrent: u32, gap: Duration| GroupRule {
        name: name.into(),
        hosts: Vec::new(),
        domains: Vec::new(),
        ranges: Vec::new(),
        pace: Pace { concurrent, gap },
        rest: None,
        robots: None,
    };
    let range = |text: &str| IpRange { address: ip(text), bits: 24 };
    let pair = ["a.pair.example", "b.pair.example"].map(Box::from).into();
    let aliases = [GroupRule { hosts: pair, ..none("pair", CONCURRENT, GAP) }];
    let groups = [
        GroupRule {
            hosts: vec!["farm.example".into()],
            domains: vec!["farm.example".into()],
            ..none("farm", 2, Duration::from_millis(100))
        },
        GroupRule { ranges: vec![range("127.0.30.0")], ..none("rack", 3, Duration::from_millis(50)) },
        GroupRule { ranges: vec![range("127.0.40.0")], ..none("cdn", u32::MAX, Duration::ZERO) },
    ];
    Grouping::new(&aliases, &groups)
}

/// Hosts by kind: the first label without its number says how the name behaves.
fn sites() -> Vec<(String, usize)> {
    let many = |kind: &'static str, hosts: usize, urls: usize| {
        (0..hosts).map(move |number| (format!("{kind}{number}.example"), urls))
    };
    let below = |kind: &'static str, domain: &'static str, hosts: usize, urls: usize| {
        (0..hosts).map(move |number| (format!("{kind}{number}.{domain}"), urls))
    };
    let mut sites: Vec<(String, usize)> = Vec::new();
    sites.extend(many("vhost", 4, 7));
    sites.extend(many("moving", 4, 12));
    sites.extend(many("flapping", 4, 8));
    sites.extend(many("gone", 3, 5));
    sites.extend(many("several", 3, 6));
    sites.extend(many("plain", 6, 12));
    sites.extend(many("rack", 6, 6));
    sites.extend(many("cdn", 6, 8));
    sites.extend(below("shop", "farm.example", 3, 5));
    sites.push(("farm.example".into(), 5));
    sites.push(("a.pair.example".into(), 8));
    sites.push(("b.pair.example".into(), 8));
    sites.push(("dead.example".into(), 3));
    sites
}

/// What name servers say of [`sites`]; `nth` questions of the type came before.
fn zone(name: &str, record_type: RecordType, nth: usize) -> Reply {
    let label = name.split('.').next().unwrap();
    let kind = label.trim_end_matches(|c: char| c.is_ascii_digit());
    let number: usize = label[kind.len()..].parse().unwrap_or(0);
    let fixed = |net: usize, last: usize| Reply::ips(&[&format!("127.0.{net}.{last}")], 3600);
    match (kind, name) {
        (_, "a.pair.example") => fixed(20, 1),
        (_, "b.pair.example") => fixed(20, 2),
        (_, "farm.example") => fixed(21, 9),
        ("shop", _) => fixed(21, number + 1),
        // Two of them on the address of two others now, on one of their own then.
        ("moving", _) => {
            let turn = (nth + number / 2) % 3;
            Reply::ips(&[&format!("127.0.10.{}", 1 + turn)], 0)
        }
        ("flapping", _) if nth.is_multiple_of(2) || record_type == RecordType::AAAA => {
            Reply::Code(ResponseCode::ServFail)
        }
        ("flapping", _) => Reply::ips(&[&format!("127.0.11.{}", 1 + number)], 0),
        ("several", _) => Reply::ips(&[DEAD, "127.0.2.2", "127.0.2.3"], 1),
        ("dead", _) => Reply::ips(&[DEAD], 3600),
        ("vhost", _) => fixed(12, 1),
        ("plain", _) => fixed(13, number + 1),
        ("rack", _) => fixed(30, number / 2 + 1),
        ("cdn", _) => fixed(40, 1),
        _ => Reply::NoName(Some(60)),
    }
}

/// A name server whose answers depend on how often a name was asked for.
fn counting_zone() -> DnsServer {
    let counts: Mutex<HashMap<(String, RecordType), usize>> = Mutex::default();
    DnsServer::answering(move |asked| {
        let mut counts = counts.lock().unwrap();
        let count = counts.entry((asked.name.clone(), asked.record_type)).or_default();
        *count += 1;
        zone(&asked.name, asked.record_type, *count - 1)
    })
}

fn chaotic() -> Profile {
    Profile {
        latency: Latency::Uniform(Duration::from_millis(1), Duration::from_millis(40)),
        retry_after_max: Duration::from_secs(1),
        reconnect_max: Duration::from_millis(100),
        stall_max: Duration::from_millis(300),
        crash: 0.01,
        hang: 0.01,
        stall: 0.01,
        flood: 0.02,
        add: 0.05,
        adds_max: 5,
        ..Profile::chaos()
    }
}

/// A dead address, slow web servers, and one that is overloaded at first; all else is left to the spiders.
fn web() -> impl FnMut(&Sent) -> Option<(Done, Duration)> {
    let mut overloaded = 2;
    let asks_for_rest = Done { outcome: Outcome::Status(503), retry_after: Some(Duration::from_secs(1)) };
    let found = Done::from(Outcome::Status(200));
    move |sent| match sent.url.host() {
        _ if sent.ip == ip(DEAD) => Some((Outcome::ConnectFailed.into(), Duration::from_millis(2))),
        "plain0.example" if overloaded > 0 => {
            overloaded -= 1;
            Some((asks_for_rest, Duration::from_millis(10)))
        }
        // Longer than the gap: several are in flight at once.
        "plain1.example" => Some((found, 2 * GAP)),
        host if host.starts_with("cdn") => Some((found, 2 * GAP)),
        _ => None,
    }
}

#[test]
fn everything_at_once_breaks_no_limit_and_loses_nothing() {
    let names = counting_zone();
    let urls: Vec<String> = sites().iter().flat_map(|(host, count)| pages(host, *count)).collect();
    let seeds = urls.len();
    let mut crawl = Crawl::new(GROUPS, urls).dns(names.address());
    crawl.spiders = vec![chaotic(), chaotic(), chaotic(), quick(), Profile { pull: Some(8), ..quick() }];
    crawl.limits.host = GateLimit { concurrent: Some(CONCURRENT), gap: GAP };
    crawl.limits.ip = crawl.limits.host;
    crawl.limits.status_timeout = Duration::from_secs(1);
    crawl.limits.lease_max = Some(Duration::from_secs(3));
    crawl.limits.rest = Rest { factor: 1.0, min: Duration::ZERO, max: Duration::from_millis(200) };
    crawl.grouping = grouping();
    crawl.web = Box::new(web());
    let end = crawl.run(|_| {});

    assert!(end.ends.len() >= seeds);
    assert!(end.sends.len() >= seeds - 15 - 5, "nearly all are sent at least once: {}", end.sends.len());
    for host in 0..3 {
        assert_eq!(end.ends_of(&format!("gone{host}.example")), ["FAILED dns"; 5]);
        assert!(end.addresses_of(&format!("gone{host}.example")).is_empty());
    }
    assert_eq!(end.reports_of("FAILED dns"), 15);
    assert!(end.ends_of("dead.example").iter().all(|end| end.starts_with("FAILED")));
    assert!(end.addresses_of("dead.example").iter().all(|address| *address == ip(DEAD)));
    for host in 0..3 {
        assert!(end.addresses_of(&format!("several{host}.example")).contains(&ip("127.0.2.2")));
    }
    let moving: HashSet<IpAddr> = end.addresses_of("moving0.example").into_iter().collect();
    assert!(moving.len() > 1, "{moving:?}");
    assert!(number(&end.stats, "addresses_down") > 0 && number(&end.stats, "holds") > 0);
    // The limits were reached, so they were tried.
    assert_eq!(end.outcome.auditor.extremes(Kind::Host).most_in_flight, CONCURRENT);
    assert!(end.outcome.auditor.extremes(Kind::Group).most_in_flight >= 3, "the CDN's address has no limit");
}

#[test]
fn five_hundred_urls_of_one_host_cost_one_question_per_family() {
    let names = DnsServer::start();
    let answer = Reply::After(Duration::from_millis(300), Box::new(Reply::ips(&["127.0.3.1"], 3600)));
    names.set("one.example", answer);
    let urls = pages("one.example", 500).collect();
    let end = Crawl::new("queue_len = 500", urls).hurried(50).dns(names.address()).run(|_| {});
    assert_eq!(end.ends_of("one.example"), ["DONE 200"; 500]);
    assert_eq!(names.count_of("one.example", RecordType::A), 1);
    assert_eq!(names.count_of("one.example", RecordType::AAAA), 1);
    assert_eq!(number(&end.stats, "lookups"), 1);
}

/// Most questions that a name server was owed an answer to at one time, as the least it can have been: each for
/// as long as its answer is certainly held back.
#[derive(Default)]
struct Owed {
    asked: HashSet<(String, RecordType, u16)>,
    arrivals: VecDeque<Instant>,
    most: usize,
}

impl Owed {
    fn handle(&mut self, asked: &Asked, delay: Duration) {
        if !self.asked.insert((asked.name.clone(), asked.record_type, asked.id)) {
            return;
        }
        let now = Instant::now();
        self.arrivals.push_back(now);
        while self.arrivals.front().is_some_and(|&arrival| now - arrival >= delay) {
            self.arrivals.pop_front();
        }
        self.most = self.most.max(self.arrivals.len());
    }
}

#[test]
fn three_thousand_new_hosts_ask_a_bounded_number_of_questions_at_once() {
    const HOSTS: usize = 3000;
    const DELAY: Duration = Duration::from_millis(60);
    /// 1024 names, A and AAAA of each.
    const QUESTIONS_MAX: usize = 2048;
    let owed: Arc<Mutex<Owed>> = Arc::default();
    let names = DnsServer::answering({
        let owed = Arc::clone(&owed);
        move |asked| {
            owed.lock().unwrap().handle(asked, DELAY);
            let number: u32 = asked.name.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
            let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 1)) + number);
            Reply::After(DELAY, Box::new(Reply::Addresses(vec![address.into()], 3600)))
        }
    });
    let urls = (0..HOSTS).map(|host| format!("http://host{host}.example/")).collect();
    let end = Crawl::new("queue_count = 4000", urls).dns(names.address()).run(|_| {});
    assert_eq!(end.reports_of("DONE 200"), HOSTS);
    let most = owed.lock().unwrap().most;
    assert!((2..=QUESTIONS_MAX).contains(&most), "{most}");
}

#[test]
fn answers_that_are_to_be_forgotten_at_once_are_used_and_do_not_become_a_flood() {
    let names = DnsServer::start();
    names.set("fleeting.example", Reply::ips(&["127.0.3.2"], 0));
    let urls = pages("fleeting.example", 20).collect();
    let end = Crawl::new("dns_ttl_min = 0\ndns_ttl_max = 0", urls).dns(names.address()).run(|_| {});
    assert_eq!(end.ends_of("fleeting.example"), ["DONE 200"; 20]);
    // Twice a second at most.
    let most = 2 + end.outcome.took.as_millis() as usize / 500;
    let asked = names.count_of("fleeting.example", RecordType::A);
    assert!(asked <= most, "asked {asked} times");
}

#[test]
fn a_dead_name_server_stops_only_those_who_need_it() {
    const WAITING: usize = 10;
    let alive = Arc::new(AtomicBool::new(false));
    let names = DnsServer::answering({
        let alive = Arc::clone(&alive);
        move |asked| match alive.load(Ordering::Acquire) {
            true => Reply::ips(&[&format!("127.0.4.{}", 1 + asked.name.len())], 60),
            false => Reply::Silence,
        }
    });
    let scratch = tempfile::tempdir().unwrap();
    let hosts = scratch.path().join("hosts");
    std::fs::write(&hosts, "127.0.5.1 known.example\n").unwrap();
    let unknown: Vec<String> = (1..=WAITING).map(|n| format!("{}.unknown.example", "x".repeat(n))).collect();
    let urls: Vec<String> = unknown.iter().flat_map(|host| pages(host, 3)).collect();
    let urls: Vec<String> =
        urls.into_iter().chain(pages("known.example", 5)).chain(pages("127.0.5.2", 5)).collect();
    let mut crawl = Crawl::new("dns_timeout = '500ms'", urls).dns(names.address());
    crawl.flags.extend(["--hosts-file".into(), path_text(&hosts)]);
    let end = crawl.run(|scene| {
        if alive.load(Ordering::Acquire) {
            return;
        }
        let (need_none, need): (Vec<_>, Vec<_>) =
            scene.sends.iter().partition(|send| !send.host.ends_with(".unknown.example"));
        assert!(need.is_empty(), "{need:?}");
        let waiting = scene.server.stats().map_or(0, |stats| number(&stats, "waiting.address"));
        if need_none.len() == 10 && waiting == WAITING as u64 {
            alive.store(true, Ordering::Release);
        }
    });
    assert_eq!(end.reports_of("DONE 200"), 3 * WAITING + 10);
    assert!(number(&end.stats, "lookups_unanswered") > 0);
}

#[test]
fn stale_answers_are_used_while_the_name_server_is_out_and_not_after_nxdomain() {
    const ANSWERING: u8 = 0;
    const OUT: u8 = 1;
    const GONE: u8 = 2;
    const HOSTS: [&str; 3] = ["a.example", "bb.example", "ccc.example"];
    let mood = Arc::new(AtomicU8::new(ANSWERING));
    let names = DnsServer::answering({
        let mood = Arc::clone(&mood);
        move |asked| match mood.load(Ordering::Acquire) {
            ANSWERING => Reply::ips(&[&format!("127.0.6.{}", asked.name.len())], 1),
            OUT => Reply::Silence,
            _ => Reply::NoName(Some(60)),
        }
    });
    // More than can be sent before the deadline.
    let urls = HOSTS.iter().flat_map(|host| pages(host, 1000)).collect();
    let mut out_since = None;
    let end = Crawl::new("dns_timeout = '300ms'", urls).dns(names.address()).run(|scene| {
        let sent = |host: &str, after: urlserver::time::Instant| {
            scene.sends.iter().filter(|send| send.host == host && send.at > after).count()
        };
        let Some(last) = scene.sends.last() else { return };
        match mood.load(Ordering::Acquire) {
            ANSWERING if HOSTS.iter().all(|host| sent(host, urlserver::time::Instant::ZERO) > 0) => {
                mood.store(OUT, Ordering::Release);
                out_since = Some(last.at);
            }
            // The last answer may have been given just now, and is good for a second.
            OUT if HOSTS.iter().all(|host| sent(host, out_since.unwrap() + seconds(1.5)) >= 5) => {
                mood.store(GONE, Ordering::Release);
            }
            _ => {}
        }
    });
    assert_eq!(mood.load(Ordering::Acquire), GONE);
    for host in HOSTS {
        let ends = end.ends_of(host);
        let done = ends.iter().filter(|end| **end == "DONE 200").count();
        let failed = ends.iter().filter(|end| **end == "FAILED dns").count();
        assert_eq!((done + failed, done), (1000, end.addresses_of(host).len()), "{host}");
        assert!(failed > 0, "{host}");
    }
}

#[test]
fn a_name_that_moves_in_the_hosts_file_moves_while_the_server_runs() {
    const OLD: &str = "127.0.7.1";
    const NEW: &str = "127.0.7.2";
    let scratch = tempfile::tempdir().unwrap();
    let hosts = scratch.path().join("hosts");
    std::fs::write(&hosts, format!("{OLD} mover.example\n")).unwrap();
    // More than can be sent before the deadline. The index gives a few at a time, and none when all is seen.
    let mut crawl = Crawl::new("queue_len = 20\nqueue_count = 2", pages("mover.example", 5000).collect());
    crawl.limits.host.concurrent = Some(4);
    crawl.limits.ip.concurrent = Some(4);
    crawl.spiders = vec![Profile { latency: Latency::Constant(Duration::from_millis(200)), ..quick() }; 2];
    crawl.flags.extend(["--hosts-file".into(), path_text(&hosts)]);
    let mut moved = false;
    let end = crawl.run(|scene| {
        let to = |address: &str| scene.sends.iter().filter(|send| send.ip == ip(address)).count();
        if !moved && to(OLD) >= 5 {
            std::fs::write(&hosts, format!("# moved\n{NEW} mover.example\n")).unwrap();
            moved = true;
        }
        if to(NEW) >= 5 {
            scene.index.close();
        }
    });
    let addresses = end.addresses_of("mover.example");
    let turn = addresses.iter().position(|address| *address == ip(NEW)).unwrap();
    assert!(addresses[..turn].iter().all(|address| *address == ip(OLD)));
    assert!(addresses[turn..].iter().all(|address| *address == ip(NEW)));
    assert_eq!(end.reports_of("DONE 200"), addresses.len());
}

#[test]
fn zones_are_asked_of_their_own_name_servers() {
    let names_of = |server: &DnsServer| -> BTreeSet<String> {
        server.asked().into_iter().map(|asked| asked.name).collect()
    };
    let (public, inner) = (DnsServer::start(), DnsServer::start());
    // Each knows all the names, and leads elsewhere: only the right one is right.
    let hosts =
        ["www.example", "notcorp.example", "corp.example", "wiki.corp.example", "www.open.corp.example"];
    for host in hosts {
        public.set(host, Reply::ips(&["127.0.8.1"], 60));
        inner.set(host, Reply::ips(&["127.0.8.2"], 60));
    }
    let settings = format!(
        "[dns_zones]\n'corp.example' = '{}'\n'open.corp.example' = '{}'\n",
        inner.address(),
        public.address()
    );
    let urls = hosts.iter().flat_map(|host| pages(host, 3)).collect();
    let end = Crawl::new(&settings, urls).dns(public.address()).run(|_| {});
    assert_eq!(end.reports_of("DONE 200"), 15);
    let within = ["corp.example", "wiki.corp.example"];
    for host in hosts {
        let address = if within.contains(&host) { "127.0.8.2" } else { "127.0.8.1" };
        assert_eq!(end.addresses_of(host), [ip(address); 3], "{host}");
    }
    assert_eq!(names_of(&inner), within.map(String::from).into());
    assert_eq!(names_of(&public).len(), 3);
}

/// Counts connections to an address where nobody listens at first.
struct Site {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Site {
    fn closed(ip: &str) -> Site {
        let address = TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap();
        Site { address, accepted: Arc::default() }
    }

    fn open(&self) {
        let (listener, accepted) = (TcpListener::bind(self.address).unwrap(), Arc::clone(&self.accepted));
        thread::spawn(move || {
            for _connection in listener.incoming() {
                accepted.fetch_add(1, Ordering::AcqRel);
            }
        });
    }

    /// Waits until so many connections have been accepted; false if that never happens.
    fn has_accepted(accepted: &AtomicUsize, count: usize) -> bool {
        let start = Instant::now();
        while accepted.load(Ordering::Acquire) < count && start.elapsed() < DEADLINE / 4 {
            thread::sleep(Duration::from_millis(1));
        }
        accepted.load(Ordering::Acquire) >= count
    }
}

#[test]
fn a_closed_port_gets_no_url_until_our_own_connection_gets_through() {
    const URLS: usize = 10;
    /// `fail_threshold`: so many URLs find out that nobody listens.
    const LOST: usize = 2;
    let site = Site::closed("127.0.9.1");
    let port = site.address.port();
    let urls = (0..URLS).map(|page| format!("http://127.0.9.1:{port}/{page}")).collect();
    let settings = format!("probe = 'connect'\nfail_threshold = {LOST}\nfail_window = '300ms'\n");
    let mut crawl = Crawl::new(&settings, urls);
    let opened = Arc::new(AtomicBool::new(false));
    crawl.web = Box::new({
        let (opened, accepted, address) = (Arc::clone(&opened), Arc::clone(&site.accepted), site.address);
        let mut connections = 0;
        move |sent| {
            assert_eq!(sent.ip, address.ip());
            if !opened.load(Ordering::Acquire) {
                return Some((Outcome::ConnectFailed.into(), Duration::from_millis(1)));
            }
            // The server's own connection comes before the first URL.
            assert!(Site::has_accepted(&accepted, connections + 1));
            connections += 1;
            TcpStream::connect(address).unwrap();
            Some((Outcome::Status(200).into(), Duration::from_millis(1)))
        }
    });
    let end = crawl.run(|scene| {
        if opened.load(Ordering::Acquire) {
            return;
        }
        assert!(scene.sends.len() <= LOST, "{:?}", scene.sends);
        // Marked down by the URLs, then by three attempts of the server's own.
        let down = scene.server.stats().map_or(0, |stats| number(&stats, "addresses_down"));
        if down >= 4 {
            assert_eq!(scene.sends.len(), LOST);
            opened.store(true, Ordering::Release);
            site.open();
        }
    });
    assert_eq!(end.reports_of("DONE 200"), URLS);
    assert_eq!(end.sends.len(), URLS + LOST);
    assert!(Site::has_accepted(&site.accepted, URLS + 1));
}

/// The simulator's binary, beside the server's; built if only the server was.
fn spider_sim() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_urlserver")).with_file_name("spider-sim");
    if !path.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "-p", "spider-sim"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success());
    }
    path
}

#[test]
fn the_demo_is_crawled_to_its_end_by_the_simulated_spider() {
    let demo = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo.toml")).unwrap();
    let mut server = Server::start(&demo, &["--exit-when-done".into()]);
    let output = Command::new(spider_sim())
        .args(["--connect", &server.listen.to_string(), "--req-host-per-sec", "2", "--urls", "30", "--json"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{words}{}", String::from_utf8_lossy(&output.stderr));
    let facts: serde_json::Value = serde_json::from_str(&words).unwrap();
    for (fact, value) in [("violations", 0), ("losses", 0), ("documents_ended", 30), ("hosts", 8)] {
        assert_eq!(facts[fact], value, "{fact} in {words}");
    }
    assert_eq!(server.exit_code(), Some(0));
}
