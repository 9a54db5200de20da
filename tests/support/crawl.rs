//! Whole crawls from outside: the real binary, a document index and spiders over TCP, and the auditor.
//!
//! The index sees every report, so it knows exactly what became of every document. Limits are given once:
//! the server gets them as flags, the auditor as they are.
#![allow(dead_code, unreachable_pub, reason = "every test that includes this uses a part of it")]

use serde_json::Value;
use spider_sim::audit::{Auditor, GateLimit, Grouping, Limits, Rest, Slack};
use spider_sim::event::Sent;
use spider_sim::machine::Persona;
use spider_sim::profile::{Latency, Profile};
use spider_sim::tcp::{self, Ended, Meeting, Outcome, Until};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use urlserver::document::Done;
use urlserver::time::Instant;

/// Nothing in these tests takes this long unless it never happens.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Between two sends to one place.
pub const GAP: Duration = Duration::from_millis(80);
/// A server that gets no CPU between its decision and its write is forgiven half a gap: a gap that is not kept at
/// all is still seen.
const SLACK: Slack = Slack { jitter: Duration::from_millis(40), settle: Slack::TCP.settle };
/// No spider has had a connection for this long: the server is gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// The real binary, on free ports; ended when dropped.
pub struct Server {
    child: Child,
    pub listen: SocketAddr,
    pub http: SocketAddr,
    scratch: TempDir,
}

impl Server {
    /// Serves with this settings file and these flags.
    pub fn start(settings: &str, flags: &[String]) -> Server {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let path = scratch.path().join("settings.toml");
        std::fs::write(&path, settings).expect("a settings file");
        let log = File::create(scratch.path().join("log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_urlserver"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config"]).arg(path);
        command.args(flags).current_dir(env!("CARGO_MANIFEST_DIR"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("URLSERVER_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the binary");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut ready).expect("the ready line");
        let address = |key| {
            let text = ready.split_whitespace().find_map(|word| word.strip_prefix(key));
            text.and_then(|text| text.parse().ok())
        };
        let (listen, http) = (address("listen="), address("http="));
        let unbound = SocketAddr::from(([0, 0, 0, 0], 0));
        let (bound, listen, http) = (listen.is_some(), listen.unwrap_or(unbound), http.unwrap_or(unbound));
        let server = Server { child, listen, http, scratch };
        assert!(bound, "not ready: {ready:?}");
        server
    }

    /// `/api/stats`; `None` once the server is stopping.
    pub fn stats(&self) -> Option<Value> {
        stats(self.http).ok()
    }

    /// Waits for its end; its exit code, `None` if it did not end in time.
    pub fn exit_code(&mut self) -> Option<i32> {
        let start = std::time::Instant::now();
        while start.elapsed() < DEADLINE {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default();
            eprintln!("the server's log:\n{log}");
        }
    }
}

fn stats(http: SocketAddr) -> io::Result<Value> {
    let mut stream = TcpStream::connect(http)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    write!(stream, "GET /api/stats HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let stats: Value = serde_json::from_str(body)?;
    if stats.get("sent").is_some() { Ok(stats) } else { Err(io::Error::other(answer)) }
}

/// A number of `/api/stats`, by its path: `waiting.address`.
#[track_caller]
pub fn number(stats: &Value, path: &str) -> u64 {
    let value = path.split('.').try_fold(stats, |value, key| value.get(key));
    value.and_then(Value::as_u64).unwrap_or_else(|| panic!("no number {path} in {stats}"))
}

/// A document index that gives what it has in order, and keeps what it is told.
pub struct Index {
    address: SocketAddr,
    shelf: Arc<Mutex<Shelf>>,
}

#[derive(Default)]
struct Shelf {
    waiting: VecDeque<(u64, String)>,
    known: HashSet<String>,
    given: BTreeMap<u64, String>,
    reports: BTreeMap<u64, String>,
    /// Where to ask how things stand at the very end.
    http: Option<SocketAddr>,
    stats_at_end: Option<Value>,
    faults: Vec<String>,
}

impl Index {
    /// With these documents, numbered from 1. Lives as long as the test.
    pub fn start(urls: &[String]) -> Index {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let mut shelf = Shelf::default();
        urls.iter().for_each(|url| shelf.add(url));
        let shelf = Arc::new(Mutex::new(shelf));
        let index = Index { address, shelf: Arc::clone(&shelf) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Err(error) = serve(stream, &shelf) {
                    shelf.lock().expect("no panic").faults.push(error.to_string());
                }
            }
        });
        index
    }

    /// From now on there is nothing more to give.
    pub fn close(&self) {
        self.shelf().waiting.clear();
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().expect("no panic")
    }
}

fn serve(stream: TcpStream, shelf: &Mutex<Shelf>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut reject = HashSet::new();
    for line in BufReader::new(stream).lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["REJECT", host] => drop(reject.insert(host.to_owned())),
            ["CANDIDATES", count] => {
                let count = count.parse().map_err(io::Error::other)?;
                note_end(shelf);
                let answer = shelf.lock().expect("no panic").give(count, &std::mem::take(&mut reject));
                out.write_all(answer.as_bytes())?;
            }
            ["ADD", url] => shelf.lock().expect("no panic").add(url),
            [doc, "DONE" | "FAILED" | "DENIED", ..] => {
                let doc = doc.parse().map_err(io::Error::other)?;
                shelf.lock().expect("no panic").report(doc, &line);
            }
            _ => return Err(io::Error::other(format!("no line of the protocol: {line}"))),
        }
    }
    Ok(())
}

/// The server may be asking whether it can end, and waits for our answer: how do things stand?
fn note_end(shelf: &Mutex<Shelf>) {
    let (http, empty) = {
        let shelf = shelf.lock().expect("no panic");
        (shelf.http, shelf.waiting.is_empty())
    };
    if let Some(http) = http.filter(|_| empty) {
        let stats = stats(http).ok();
        shelf.lock().expect("no panic").stats_at_end = stats;
    }
}

impl Shelf {
    fn add(&mut self, url: &str) {
        if self.known.insert(url.to_owned()) {
            self.waiting.push_back((self.known.len() as u64, url.to_owned()));
        }
    }

    fn give(&mut self, count: usize, reject: &HashSet<String>) -> String {
        let (mut answer, mut left) = (String::new(), VecDeque::new());
        let mut room = count;
        for (doc, url) in std::mem::take(&mut self.waiting) {
            if room == 0 || reject.contains(host(&url)) {
                left.push_back((doc, url));
                continue;
            }
            room -= 1;
            answer += &format!("{doc} {url}\n");
            self.given.insert(doc, url);
        }
        self.waiting = left;
        answer + "END\n"
    }

    fn report(&mut self, doc: u64, line: &str) {
        if !self.given.contains_key(&doc) {
            self.faults.push(format!("a report of what was not given: {line}"));
        }
        if let Some(before) = self.reports.insert(doc, line.to_owned()) {
            self.faults.push(format!("two reports of one document: {before}, {line}"));
        }
    }
}

/// The host of a URL as the tests write them.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', ':']).next().unwrap_or(rest)
}

/// A line that a spider read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendSeen {
    pub at: Instant,
    pub doc: u64,
    pub host: String,
    pub ip: IpAddr,
}

/// What decides how fetches end.
pub type Web = Box<dyn FnMut(&Sent) -> Option<(Done, Duration)>>;

/// A crawl to be run.
pub struct Crawl {
    /// The settings file.
    pub settings: String,
    /// More flags.
    pub flags: Vec<String>,
    pub urls: Vec<String>,
    pub spiders: Vec<Profile>,
    pub limits: Limits,
    pub grouping: Grouping,
    pub web: Web,
}

/// A look at a crawl while it goes on, a few times a second.
pub struct Scene<'a> {
    pub server: &'a Server,
    pub index: &'a Index,
    pub sends: &'a [SendSeen],
}

/// What a crawl came to: all of it is drained, and no promise was broken.
pub struct End {
    pub outcome: Outcome,
    pub sends: Vec<SendSeen>,
    /// By document: URL and report.
    pub ends: BTreeMap<u64, (String, String)>,
    /// `/api/stats`, when all was reported.
    pub stats: Value,
}

impl Crawl {
    /// Two quick spiders, one URL of a host at a time, [`GAP`] between two.
    pub fn new(settings: &str, urls: Vec<String>) -> Crawl {
        let place = GateLimit { concurrent: Some(1), gap: GAP };
        Crawl {
            settings: settings.into(),
            flags: Vec::new(),
            urls,
            spiders: vec![quick(); 2],
            limits: Limits {
                host: place,
                ip: place,
                status_timeout: Duration::from_secs(5),
                lease_max: Some(Duration::from_secs(20)),
                max_attempts: Some(3),
                rest: Rest { factor: 0.0, min: Duration::ZERO, max: Duration::ZERO },
            },
            grouping: Grouping::default(),
            web: Box::new(|_| None),
        }
    }

    /// No limits but that of a few URLs of a host in flight.
    pub fn hurried(mut self, concurrent: u32) -> Crawl {
        let place = GateLimit { concurrent: Some(concurrent), gap: Duration::ZERO };
        (self.limits.host, self.limits.ip) = (place, place);
        self
    }

    /// Asks this name server.
    pub fn dns(mut self, address: SocketAddr) -> Crawl {
        self.flags.extend(["--dns".into(), address.to_string()]);
        self
    }

    /// Runs it to its end, which must be a good one.
    #[track_caller]
    pub fn run(self, mut during: impl FnMut(&Scene<'_>)) -> End {
        let index = Index::start(&self.urls);
        let mut flags = flags(&self.limits);
        flags.extend(["--index".into(), format!("tcp://{}", index.address)]);
        flags.extend(self.flags);
        let mut server = Server::start(&self.settings, &flags);
        index.shelf().http = Some(server.http);
        let mut auditor = Auditor::new(self.limits.clone(), SLACK);
        auditor.set_grouping(self.grouping);
        let sends: Rc<RefCell<Vec<SendSeen>>> = Rc::default();
        let web = recorded(self.web, &sends);
        let until = Until { urls: None, time: Some(DEADLINE), idle: DEADLINE, patience: PATIENCE };
        let meeting = Meeting::Connect(server.listen);
        let outcome =
            tcp::run_on_web(meeting, personas(self.spiders, &self.limits), auditor, until, web, |_| {
                during(&Scene { server: &server, index: &index, sends: &sends.borrow() });
                ControlFlow::Continue(())
            });
        let outcome = outcome.expect("sockets");
        let end = End { outcome, sends: sends.take(), ends: BTreeMap::new(), stats: Value::Null };
        end.check(&mut server, &index)
    }
}

impl End {
    #[track_caller]
    fn check(mut self, server: &mut Server, index: &Index) -> End {
        let auditor = &self.outcome.auditor;
        assert_eq!(auditor.violation_count(), 0, "{:#?}", auditor.violations());
        assert_eq!(self.outcome.ended, Ended::ServerGone, "{:?}", server.stats());
        assert_eq!(server.exit_code(), Some(0));
        let mut shelf = index.shelf();
        assert_eq!(shelf.faults, Vec::<String>::new());
        assert!(shelf.waiting.is_empty(), "not taken: {:?}", shelf.waiting);
        let lost: Vec<&String> = shelf
            .given
            .iter()
            .filter(|(doc, _)| !shelf.reports.contains_key(doc))
            .map(|(_, url)| url)
            .collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        let mut reports = std::mem::take(&mut shelf.reports);
        for (doc, url) in std::mem::take(&mut shelf.given) {
            self.ends.insert(doc, (url, reports.remove(&doc).unwrap_or_default()));
        }
        self.stats = shelf.stats_at_end.take().expect("stats at the end");
        self.check_sums();
        self
    }

    /// The numbers of the server, of the index and of the spiders agree.
    #[track_caller]
    fn check_sums(&self) {
        let stats = &self.stats;
        let said = |end: &str| self.reports_of(end) as u64;
        assert_eq!(number(stats, "done"), said("DONE"), "{stats}");
        assert_eq!(number(stats, "failed"), said("FAILED"), "{stats}");
        assert_eq!(number(stats, "denied"), said("DENIED"), "{stats}");
        for now in ["queued", "leftover", "in_flight", "slots_bound", "waiting.benched"] {
            assert_eq!(number(stats, now), 0, "{now} in {stats}");
        }
        assert!(number(stats, "sent") >= self.sends.len() as u64, "{stats}");
        let unsent = said("FAILED dns");
        let ended = said("DONE") + said("FAILED") - unsent + number(stats, "retried");
        assert!(number(stats, "sent") >= ended, "{stats}");
        let seen: HashSet<u64> = self.sends.iter().map(|send| send.doc).collect();
        for (doc, (url, report)) in &self.ends {
            assert!(!report.contains(" DONE") || seen.contains(doc), "{url}: {report}, never sent");
        }
    }

    /// Reports that say this, or this and more: `FAILED`, `FAILED dns`.
    pub fn reports_of(&self, end: &str) -> usize {
        let says = |report: &str| {
            let rest = report.split_once(' ').and_then(|(_, said)| said.strip_prefix(end));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.ends.values().filter(|(_, report)| says(report)).count()
    }

    /// What the documents of a host came to, without their numbers.
    pub fn ends_of(&self, name: &str) -> Vec<&str> {
        let of_host = self.ends.values().filter(|(url, _)| host(url) == name);
        of_host.map(|(_, report)| report.split_once(' ').map_or("", |(_, end)| end)).collect()
    }

    /// Where the lines of a host were to connect to, in order.
    pub fn addresses_of(&self, host: &str) -> Vec<IpAddr> {
        self.sends.iter().filter(|send| send.host == host).map(|send| send.ip).collect()
    }
}

/// Fetches in no time, and everything is there.
pub fn quick() -> Profile {
    Profile {
        latency: Latency::Constant(Duration::from_millis(1)),
        outcomes: vec![(1, urlserver::document::Outcome::Status(200))],
        reconnect_max: Duration::from_millis(100),
        ..Profile::polite()
    }
}

/// `count` pages of a host.
pub fn pages(host: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |page| format!("http://{host}/{page}"))
}

fn recorded(
    mut web: Web,
    sends: &Rc<RefCell<Vec<SendSeen>>>,
) -> impl FnMut(&Sent) -> Option<(Done, Duration)> + 'static {
    let sends = Rc::clone(sends);
    move |sent| {
        let (at, ip, host) = (sent.at, sent.ip, sent.url.host().to_owned());
        sends.borrow_mut().push(SendSeen { at, doc: sent.doc.0, host, ip });
        web(sent)
    }
}

fn personas(profiles: Vec<Profile>, limits: &Limits) -> Vec<Persona> {
    let working_every = limits.status_timeout / 3;
    let persona = |(seed, profile)| Persona { seed, profile, token: None, working_every };
    (1..).zip(profiles).map(persona).collect()
}

/// What the auditor checks, as the server is told it.
fn flags(limits: &Limits) -> Vec<String> {
    let count = |count: Option<u32>| count.map_or("inf".to_owned(), |count| count.to_string());
    let rate = |gap: Duration| (1.0 / gap.as_secs_f64()).to_string();
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    let values = [
        ("--req-host-concurrent", count(limits.host.concurrent)),
        ("--req-host-per-sec", rate(limits.host.gap)),
        ("--req-ip-concurrent", count(limits.ip.concurrent)),
        ("--req-ip-per-sec", rate(limits.ip.gap)),
        ("--timeout-spider-status", seconds(limits.status_timeout)),
        ("--lease-max", seconds(limits.lease_max.unwrap_or(Duration::ZERO))),
        ("--max-attempts", limits.max_attempts.unwrap_or(0).to_string()),
        ("--delay-factor", limits.rest.factor.to_string()),
        ("--delay-min", seconds(limits.rest.min)),
        ("--delay-max", seconds(limits.rest.max)),
        ("--retry-delay", "0.05".to_owned()),
    ];
    let fixed = ["--exit-when-done", "--allow-private", "--robots", "ignore"].map(str::to_owned);
    let flags = values.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    flags.chain(fixed).collect()
}
