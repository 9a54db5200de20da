//! Several real servers on one database, real spiders, and one auditor that sees all of them.
#![allow(dead_code, unreachable_pub, reason = "every test that includes this uses a part of it")]

use super::postgres::{assert_well_kept, new_watched_database, sql};
use super::proxy::Proxy;
use serde_json::Value;
use spider_sim::audit::{Auditor, GateLimit, Grouping, Limits, Rest, Slack};
use spider_sim::event::Sent;
use spider_sim::machine::Persona;
use spider_sim::profile::{Latency, Profile};
use spider_sim::tcp::{self, Meeting, Outcome, Until};
use spider_sim::violation::Violation;
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use urlserver::index::{Addition, PostgresIndex, PostgresOptions, spawn};
use urlserver::scheduler::GroupRule;
use urlserver::url::Url;

/// Nothing in these tests takes this long unless it never happens.
pub const DEADLINE: Duration = Duration::from_secs(240);
/// Between two sends to one place.
pub const GAP: Duration = Duration::from_millis(100);
/// Expiries.
pub const EXPIRY_1: Duration = Duration::from_secs(1);
pub const EXPIRY_2: Duration = Duration::from_secs(3);
/// A server that gets no CPU between its decision and its write is forgiven half a gap.
const SLACK: Slack = Slack { jitter: Duration::from_millis(50), settle: Slack::TCP.settle };

/// One server, on free ports; killed when dropped.
pub struct Server {
    pub name: String,
    child: Child,
    pub listen: SocketAddr,
    pub http: SocketAddr,
    scratch: TempDir,
}

impl Server {
    pub fn start(name: &str, database: &str, settings: &str) -> Server {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let path = scratch.path().join("settings.toml");
        std::fs::write(&path, settings).expect("a settings file");
        let log = File::create(scratch.path().join("log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_urlserver"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config"]).arg(path);
        command.args(["--instance", name, "--index", database, "--log", "info"]);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("URLSERVER_") || variable == "RUST_LOG" {
                command.env_remove(variable);
            }
        }
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the binary");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut ready).expect("the ready line");
        let address = |key| {
            let word = ready.split_whitespace().find_map(|word| word.strip_prefix(key));
            word.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("not ready: {ready:?}"))
        };
        Server { name: name.into(), child, listen: address("listen="), http: address("http="), scratch }
    }

    /// kill -9, -STOP, -CONT, -TERM.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// A number of `/api/stats`; `None` once it is gone, or if it does not answer.
    pub fn stat(&self, name: &str) -> Option<u64> {
        self.request("GET", "/api/stats", "")?.1.get(name)?.as_u64()
    }

    /// Status and body of an answer; `None` once it is gone, or if it does not answer.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(self.http).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        let (http, length) = (self.http, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_some()
    }

    /// A number that it has logged at its end, if it ended well.
    fn last_word(&self, name: &str) -> u64 {
        let log = self.log();
        let count = log.split(name).nth(1).and_then(|rest| rest.split_whitespace().next());
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the log of {}:\n{}", self.name, self.log());
        }
    }
}

/// A crawl to be run by several servers.
pub struct Fleet {
    pub servers: usize,
    /// Hosts, with their address and number of documents.
    pub sites: Vec<(String, &'static str, usize)>,
    pub fetch: Duration,
    pub aliases: Vec<GroupRule>,
    pub groups: Vec<GroupRule>,
    /// More of the settings file.
    pub settings: String,
    pub spiders_each: usize,
    pub queue_count: u32,
    /// Without any gap.
    pub hurried: bool,
    /// A database that is not one of those that all tests share; watched.
    pub database: Option<String>,
    /// More of the database's URL, for the servers.
    pub url_end: &'static str,
    /// Ports of web servers, by their addresses, where they are not the usual ones.
    pub ports: Vec<(&'static str, u16)>,
    /// Whether robots.txt is obeyed, and how many documents that denies.
    pub robots: bool,
    pub denied: usize,
}

/// A look at it while it goes on.
pub struct Scene<'a> {
    pub servers: &'a mut Vec<Server>,
    pub proxies: &'a [Proxy],
    pub database: &'a str,
    pub took: Duration,
    /// Lines that spiders have read.
    pub sends: u64,
    pub in_flight: usize,
}

/// What it came to.
pub struct End {
    pub outcome: Outcome,
    /// When it began.
    start: Instant,
    /// All that spiders were sent.
    pub sends: Vec<Sent>,
    pub database: String,
    pub counts: Counts,
}

/// What servers that have ended well have counted.
pub struct Counts {
    pub handed_over: u64,
    pub claimed: u64,
    pub raised: u64,
    pub rested: u64,
    pub given_back: u64,
}

impl Default for Fleet {
    /// Two servers; forty hosts, four on each of ten addresses; fetches take a while.
    fn default() -> Fleet {
        const ADDRESSES: [&str; 10] = [
            "127.0.50.1",
            "127.0.50.2",
            "127.0.50.3",
            "127.0.50.4",
            "127.0.50.5",
            "127.0.50.6",
            "127.0.50.7",
            "127.0.50.8",
            "127.0.50.9",
            "127.0.50.10",
        ];
        let sites = (0..40).map(|n| (format!("h{n}.example"), ADDRESSES[n % 10], 4)).collect();
        Fleet {
            servers: 2,
            sites,
            fetch: Duration::from_millis(30),
            aliases: Vec::new(),
            groups: Vec::new(),
            settings: String::new(),
            spiders_each: 2,
            queue_count: 8,
            hurried: false,
            database: None,
            url_end: "",
            ports: Vec::new(),
            robots: false,
            denied: 0,
        }
    }
}

impl Fleet {
    pub fn documents(&self) -> usize {
        self.sites.iter().map(|(_, _, count)| count).sum()
    }

    /// Runs until all servers that were not killed have found that all is done; `during` is called a few times a second.
    #[track_caller]
    pub fn run(self, mut during: impl FnMut(&mut Scene<'_>)) -> End {
        let database = self.database.clone().unwrap_or_else(new_watched_database);
        fill(&database, &self.sites, &self.ports);
        let scratch = tempfile::tempdir().expect("a directory");
        let hosts = scratch.path().join("hosts");
        let lines: String = self.sites.iter().map(|(host, ip, _)| format!("{ip} {host}\n")).collect();
        std::fs::write(&hosts, lines).expect("a file");
        let settings = self.settings_file(&hosts.display().to_string());
        let proxies: Vec<Proxy> = (0..self.servers).map(|_| Proxy::to(&database)).collect();
        let name = |n: usize| format!("server{n}");
        let mut servers: Vec<Server> = proxies
            .iter()
            .enumerate()
            .map(|(n, proxy)| Server::start(&name(n), &format!("{}{}", proxy.url, self.url_end), &settings))
            .collect();
        let doors = servers.iter().map(|server| server.listen).collect();
        let mut auditor = auditor(if self.hurried { Duration::ZERO } else { GAP });
        auditor.set_grouping(Grouping::new(&self.aliases, &self.groups));
        let until =
            Until { urls: None, time: Some(DEADLINE), idle: DEADLINE, patience: Duration::from_secs(2) };
        let start = Instant::now();
        let sends = Rc::new(RefCell::new(Vec::new()));
        let (log, keep) = (Rc::clone(&sends), !self.hurried);
        let look = move |sent: &Sent| {
            if keep {
                log.borrow_mut().push(sent.clone());
            }
            None
        };
        let doors = Meeting::ConnectEach(doors);
        let outcome = tcp::run_on_web(doors, self.personas(), auditor, until, look, |progress| {
            let (took, sends) = (start.elapsed(), progress.urls);
            let in_flight = progress.in_flight;
            let (all, proxies, database) = (&mut servers, &*proxies, database.as_str());
            during(&mut Scene { servers: all, proxies, database, took, sends, in_flight });
            let all_gone = servers.iter_mut().all(Server::has_ended);
            if all_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let sum = |name: &str| servers.iter().map(|server| server.last_word(name)).sum();
        let counts = Counts {
            handed_over: sum("handed_over="),
            claimed: sum("claimed="),
            raised: sum("raised="),
            rested: sum("rested="),
            given_back: sum("given_back="),
        };
        let (outcome, sends) = (outcome.expect("sockets"), sends.take());
        let end = End { outcome, start, sends, database, counts };
        end.check(&mut servers, self.documents(), self.denied);
        end
    }

    pub fn settings_file(&self, hosts_file: &str) -> String {
        let robots = if self.robots { "obey" } else { "ignore" };
        let rate = if self.hurried { "inf".to_owned() } else { (1.0 / GAP.as_secs_f64()).to_string() };
        format!(
            "exit_when_done = true\nallow_private = true\nrobots = '{robots}'\nhosts_file = '{hosts_file}'\n\
             queue_count = {}\nreq_host_per_sec = {rate}\nreq_ip_per_sec = {rate}\ndelay_factor = 0\nmax_attempts = 0\n\
             retry_delay = 0.05\nclaim_expiry_1 = {}\nclaim_expiry_2 = {}\n{}",
            self.queue_count,
            EXPIRY_1.as_secs_f64(),
            EXPIRY_2.as_secs_f64(),
            self.settings
        )
    }

    fn personas(&self) -> Vec<Persona> {
        let profile = Profile {
            latency: Latency::Constant(self.fetch),
            outcomes: vec![(1, urlserver::document::Outcome::Status(200))],
            reconnect_max: Duration::from_millis(100),
            ..Profile::polite()
        };
        let working_every = Duration::from_secs(20);
        (0..self.servers * self.spiders_each)
            .map(|seed| Persona { seed: seed as u64, profile: profile.clone(), token: None, working_every })
            .collect()
    }
}

impl End {
    /// An instant of the system as the auditor counts time.
    pub fn at(&self, instant: Instant) -> urlserver::time::Instant {
        let since = instant.saturating_duration_since(self.start);
        urlserver::time::Instant::from_micros(since.as_micros() as u64)
    }

    /// No limit was broken over all servers, and every document has ended, once.
    #[track_caller]
    fn check(&self, servers: &mut [Server], documents: usize, denied: usize) {
        let open = sql(&self.database, "SELECT count(*) FROM docs WHERE state = 0");
        assert_eq!(open, "0", "{:?} after {:?}", self.outcome.ended, self.outcome.took);
        assert_eq!(sql(&self.database, "SELECT count(*) FROM ends"), documents.to_string());
        let done = sql(&self.database, "SELECT count(*) FROM docs WHERE state = 1");
        assert_eq!(done, (documents - denied).to_string());
        assert_well_kept(&self.database);
        let broken = serious(&self.outcome.auditor);
        assert!(broken.is_empty(), "{broken:#?}");
        for server in servers {
            assert!(server.has_ended(), "{} goes on", server.name);
        }
        assert_eq!(sql(&self.database, "SELECT count(*) FROM hosts WHERE holder IS NOT NULL"), "0");
        assert_eq!(sql(&self.database, "SELECT count(*) FROM keys WHERE holder IS NOT NULL"), "0");
    }
}

/// One that asks for the same as the settings do.
pub fn auditor(gap: Duration) -> Auditor {
    Auditor::new(limits(gap), SLACK)
}

/// What an auditor has found, but for what must happen: a document whose DONE was said to a server that has lost its
/// claim is sent again.
pub fn serious(auditor: &Auditor) -> Vec<&Violation> {
    let is_serious =
        |found: &&Violation| !matches!(found, Violation::SentAfterEnd { .. } | Violation::DocInFlight { .. });
    auditor.violations().iter().filter(is_serious).collect()
}

/// Claims of a server, by name.
pub fn claims_of(database: &str, name: &str) -> String {
    let held = |table: &str| {
        format!("SELECT holder FROM {table} JOIN instances ON epoch = holder WHERE name = '{name}'")
    };
    let all = format!("SELECT count(*) FROM ({} UNION ALL {}) AS held", held("hosts"), held("keys"));
    sql(database, &all)
}

/// Whether a server is late by the database's clock.
pub fn is_late(database: &str, name: &str, expiry: &str) -> bool {
    let late =
        format!("SELECT count(*) FROM instances WHERE name = '{name}' AND {expiry} > clock_timestamp()");
    sql(database, &late) == "0"
}

/// Tried again until it says that it is done.
pub type Step<'a> = Box<dyn FnMut(&mut Scene<'_>) -> bool + 'a>;

/// Something that happens once, in steps.
pub fn in_steps<'a>(mut steps: Vec<Step<'a>>) -> impl FnMut(&mut Scene<'_>) + 'a {
    steps.reverse();
    move |scene| {
        if let Some(step) = steps.last_mut()
            && step(scene)
        {
            steps.pop();
        }
    }
}

pub fn step<'a>(step: impl FnMut(&mut Scene<'_>) -> bool + 'a) -> Step<'a> {
    Box::new(step)
}

fn limits(gap: Duration) -> Limits {
    let place = GateLimit { concurrent: Some(1), gap };
    Limits {
        host: place,
        ip: place,
        status_timeout: Duration::from_secs(60),
        lease_max: None,
        max_attempts: None,
        rest: Rest { factor: 0.0, min: Duration::ZERO, max: Duration::ZERO },
    }
}

/// Puts all documents in, before anybody is there to take them.
pub fn fill(database: &str, sites: &[(String, &'static str, usize)], ports: &[(&'static str, u16)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let options = PostgresOptions {
        instance: "filler".into(),
        queue_len: 1,
        claim_expiry_1: Duration::from_secs(60),
        claim_expiry_2: Duration::from_secs(120),
    };
    let port = |ip: &str| ports.iter().find(|(of, _)| *of == ip).map(|(_, port)| format!(":{port}"));
    let urls = sites.iter().flat_map(|(host, ip, count)| {
        let port = port(ip).unwrap_or_default();
        (0..*count).map(move |page| format!("http://{host}{port}/{page}"))
    });
    let new = |url: String| Addition { doc: None, url: Url::parse(&url).expect("a URL"), not_before: None };
    let additions: Vec<Addition> = urls.map(new).collect();
    runtime.block_on(async {
        let (mut index, adder) = spawn(PostgresIndex::new(database, &options).expect("a URL"));
        let listen = async { while index.event().await.is_some() {} };
        tokio::select! {
            added = adder.add(additions) => drop(added.expect("an index")),
            () = listen => panic!("the index is gone"),
        }
        index.close().await;
    });
}
