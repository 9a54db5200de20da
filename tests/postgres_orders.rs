//! Operators' orders on servers that share an index: given to any of them, they hold on all, for hosts that are known and
//! that are not, and outlive them all.

#[path = "support/fleet.rs"]
mod fleet;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;

use fleet::{DEADLINE, Fleet, Server, fill};
use postgres::{assert_well_kept, new_watched_database, sql};
use proxy::Proxy;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a test looks away.
const GLANCE: Duration = Duration::from_millis(20);
/// A server that gets no CPU between its decision and its write is forgiven this.
const SLACK: Duration = Duration::from_millis(50);

/// When which host was sent something.
type Sends = Arc<Mutex<Vec<(Instant, String)>>>;

/// Servers on one database, each with one spider that is done at once; all see what it is sent.
struct Crew {
    database: String,
    settings: String,
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    sends: Sends,
    _scratch: TempDir,
}

impl Crew {
    fn new(sites: &[(&str, usize)]) -> Crew {
        const ADDRESSES: [&str; 4] = ["127.0.80.1", "127.0.80.2", "127.0.80.3", "127.0.80.4"];
        let database = new_watched_database();
        let of = |n: usize, (host, count): (&str, usize)| (host.to_owned(), ADDRESSES[n], count);
        let sites: Vec<_> = sites.iter().enumerate().map(|(n, &site)| of(n, site)).collect();
        fill(&database, &sites, &[]);
        let scratch = tempfile::tempdir().expect("a directory");
        let hosts = scratch.path().join("hosts");
        let lines: String = sites.iter().map(|(host, ip, _)| format!("{ip} {host}\n")).collect();
        std::fs::write(&hosts, lines).expect("a file");
        let settings = Fleet::default().settings_file(&hosts.display().to_string());
        let (servers, proxies) = (Vec::new(), Vec::new());
        Crew { database, settings, servers, proxies, sends: Sends::default(), _scratch: scratch }
    }

    /// One more server, and its spider.
    fn start(&mut self) -> usize {
        let (n, proxy) = (self.servers.len(), Proxy::to(&self.database));
        let server = Server::start(&format!("server{n}"), &proxy.url, &self.settings);
        let (listen, sends) = (server.listen, Arc::clone(&self.sends));
        std::thread::spawn(move || {
            // Connections end when their server has lost claims; then the spider comes again.
            while let Ok(stream) = TcpStream::connect(listen) {
                let _ = crawl(stream, &sends);
            }
        });
        self.servers.push(server);
        self.proxies.push(proxy);
        let ready =
            |crew: &Crew| crew.servers[n].request("GET", "/readyz", "").is_some_and(|said| said.0 == 200);
        self.until("the database is reached", ready);
        n
    }

    fn count(&self, host: &str) -> usize {
        self.sends.lock().expect("no panic").iter().filter(|(_, sent)| sent == host).count()
    }

    fn times(&self, host: &str) -> Vec<Instant> {
        let sends = self.sends.lock().expect("no panic");
        sends.iter().filter(|(_, sent)| sent == host).map(|(at, _)| *at).collect()
    }

    #[track_caller]
    fn until(&self, what: &str, condition: impl Fn(&Crew) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !condition(self) {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::sleep(GLANCE);
        }
    }

    /// Which server has a host now.
    fn holder(&self, host: &str) -> Option<usize> {
        let question =
            format!("SELECT name FROM hosts JOIN instances ON epoch = holder WHERE host = '{host}'");
        sql(&self.database, &question).strip_prefix("server")?.parse().ok()
    }

    #[track_caller]
    fn post(&self, n: usize, path: &str) -> Value {
        let (status, body) = self.servers[n].request("POST", path, "").expect("an answer");
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Waits until whoever has the host knows what is ordered, and obeys.
    #[track_caller]
    fn until_heard(&self, host: &str) {
        let unheard = format!("SELECT count(*) FROM hosts WHERE host = '{host}' AND unheard");
        self.until("heard", |crew| sql(&crew.database, &unheard) == "0");
        // What was decided on before is written by now.
        std::thread::sleep(SLACK);
    }

    fn kill(&mut self, n: usize) {
        self.servers[n].signal("-KILL");
    }

    fn open(&self, host: &str) -> usize {
        let open = format!(
            "SELECT count(*) FROM docs JOIN hosts ON hosts.host_id = docs.host_id
             WHERE host = '{host}' AND state = 0"
        );
        sql(&self.database, &open).parse().expect("a number")
    }

    /// All is done, and the servers that are left find out.
    #[track_caller]
    fn finish(mut self, alive: &[usize]) {
        self.until("done", |crew| sql(&crew.database, "SELECT count(*) FROM docs WHERE state = 0") == "0");
        let end = Instant::now() + DEADLINE;
        while !alive.iter().all(|&n| self.servers[n].has_ended()) {
            assert!(Instant::now() < end, "they go on");
            std::thread::sleep(GLANCE);
        }
        assert_well_kept(&self.database);
    }
}

/// A spider that has fetched everything at once.
fn crawl(stream: TcpStream, sends: &Sends) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let mut words = line.split(' ');
        let (Some(trans), Some(url)) = (words.next(), words.nth(2)) else { continue };
        let host = url.split('/').nth(2).unwrap_or_default().to_owned();
        sends.lock().expect("no panic").push((Instant::now(), host));
        writeln!(out, "{trans} DONE 200")?;
    }
    Ok(())
}

#[test]
fn a_pause_given_to_another_server_reaches_the_holder_and_outlives_all_servers() {
    let mut crew = Crew::new(&[("a.example", 60), ("b.example", 60), ("c.example", 60)]);
    let (first, second) = (crew.start(), crew.start());
    crew.until("a few", |crew| crew.count("a.example") >= 3);
    let holder = crew.holder("a.example").expect("it is at work");
    let body = crew.post(first + second - holder, "/api/hosts/a.example/pause");
    assert_eq!(body["paused"], true, "{body}");
    crew.until_heard("a.example");
    let sent = crew.count("a.example");
    let others = |crew: &Crew| crew.count("b.example") + crew.count("c.example");
    let before = others(&crew);
    crew.until("others go on", |crew| others(crew) >= before + 10);
    assert_eq!(crew.count("a.example"), sent, "it is paused");
    // All servers die, and another one comes: it learns it from the database.
    crew.kill(first);
    crew.kill(second);
    let third = crew.start();
    crew.until("the others are done", |crew| crew.open("b.example") + crew.open("c.example") == 0);
    assert_eq!(crew.count("a.example"), sent, "it is paused still");
    assert!(!crew.servers[third].has_ended(), "something is left to do");
    let body = crew.post(third, "/api/hosts/a.example/resume");
    assert_eq!(body["paused"], false, "{body}");
    crew.finish(&[third]);
}

#[test]
fn orders_hold_for_hosts_that_nobody_knows_yet() {
    let mut crew = Crew::new(&[("a.example", 4)]);
    let (first, second) = (crew.start(), crew.start());
    crew.post(first, "/api/hosts/p.example/pause");
    let blocked_at = Instant::now();
    let body = crew.post(first, "/api/hosts/127.0.80.9/block?seconds=3");
    assert!(body["blocked_for"].as_f64().is_some_and(|left| left > 2.0 && left <= 3.0), "{body}");
    let urls = "http://p.example/1\nhttp://127.0.80.9/1\nhttp://127.0.80.8/1\n";
    let (status, body) = crew.servers[second].request("POST", "/api/urls", urls).expect("an answer");
    assert_eq!((status, body["accepted"].as_u64()), (200, Some(3)), "{body}");
    crew.until("what is free goes", |crew| crew.open("127.0.80.8") == 0);
    crew.until("a block ends", |crew| crew.open("127.0.80.9") == 0);
    assert!(crew.times("127.0.80.9")[0] >= blocked_at + Duration::from_secs(3) - SLACK, "it was blocked");
    assert_eq!(crew.count("p.example"), 0);
    assert_eq!(crew.holder("p.example"), None, "nobody claims what is paused");
    crew.post(second, "/api/hosts/p.example/resume");
    // There is no such name: it ends without being sent.
    crew.finish(&[first, second]);
}

#[test]
fn a_delay_is_kept_by_whoever_has_the_host_and_by_whoever_takes_it_over() {
    let delay = Duration::from_millis(700);
    let mut crew = Crew::new(&[("a.example", 14), ("b.example", 30)]);
    let (first, second) = (crew.start(), crew.start());
    crew.until("a few", |crew| crew.count("a.example") >= 2);
    let holder = crew.holder("a.example").expect("it is at work");
    crew.post(first + second - holder, "/api/hosts/a.example/delay?seconds=0.7");
    crew.until_heard("a.example");
    let known = crew.count("a.example");
    crew.until("two more", |crew| crew.count("a.example") >= known + 2);
    crew.kill(holder);
    crew.until("taken over", |crew| crew.count("a.example") >= known + 5);
    let times = crew.times("a.example");
    for pair in times[known..].windows(2) {
        assert!(pair[1] - pair[0] + SLACK >= delay, "{:?} apart", pair[1] - pair[0]);
    }
    crew.post(first + second - holder, "/api/hosts/a.example/delay?seconds=0");
    crew.finish(&[first + second - holder]);
}

#[test]
fn a_pause_of_everything_is_for_all_servers_and_for_those_that_come() {
    let mut crew = Crew::new(&[("a.example", 40), ("b.example", 40), ("c.example", 40), ("d.example", 40)]);
    let (first, second) = (crew.start(), crew.start());
    crew.until("all are at work", |crew| ["a", "b"].iter().all(|h| crew.count(&format!("{h}.example")) >= 2));
    let body = crew.post(first, "/api/pause");
    assert_eq!(body["paused"], true);
    let is_here = |crew: &Crew, n: usize| {
        sql(&crew.database, &format!("SELECT count(*) FROM instances WHERE name = 'server{n}'")) == "1"
    };
    // Two renewals of each later all have heard.
    for _ in 0..2 {
        let renewed = "SELECT string_agg(expires_1::text, ',' ORDER BY epoch) FROM instances";
        let before = sql(&crew.database, renewed);
        crew.until("renewed", |crew| {
            let (now, before) = (sql(&crew.database, renewed), before.split(',').collect::<Vec<_>>());
            now.split(',').zip(&before).all(|(now, before)| now != *before)
        });
    }
    std::thread::sleep(SLACK);
    let sent = crew.sends.lock().expect("no panic").len();
    let third = crew.start();
    crew.until("it is there", |crew| is_here(crew, third));
    crew.kill(first);
    crew.until("it is gone", |crew| !is_here(crew, first));
    assert!(is_here(&crew, second) && is_here(&crew, third), "something is left to do");
    assert_eq!(crew.sends.lock().expect("no panic").len(), sent, "everything is paused");
    crew.post(third, "/api/resume");
    crew.finish(&[second, third]);
}

#[test]
fn an_order_that_cannot_be_kept_is_refused() {
    let mut crew = Crew::new(&[("a.example", 3)]);
    let first = crew.start();
    crew.until("it is there", |crew| crew.count("a.example") > 0);
    crew.proxies[first].cut();
    let refused = |crew: &Crew| {
        let (status, body) =
            crew.servers[first].request("POST", "/api/hosts/b.example/pause", "").expect("an answer");
        assert!(status == 503 && body["error"].is_string() || status == 200, "{status} {body}");
        status == 503
    };
    crew.until("refused", refused);
    assert_eq!(sql(&crew.database, "SELECT count(*) FROM hosts WHERE host = 'b.example'"), "0");
    crew.proxies[first].mend();
    crew.finish(&[first]);
}
