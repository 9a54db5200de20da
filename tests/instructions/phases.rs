//! The work that is measured: the same for every structure that hands out URLs, in phases that are a function each, so
//! that their instructions can be told apart.

use bytes::BytesMut;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use urlserver::document::Candidate;
use urlserver::ids::DocId;
use urlserver::time::{Duration, Instant};
use urlserver::url::Url;

const HOSTS: u64 = 1000;
const URLS_PER_HOST: u64 = 10;
const URLS: u64 = HOSTS * URLS_PER_HOST;

/// Every phase, by the name of its function, and how many operations it is.
pub(crate) const PHASES: [(&str, u64); 7] = [
    ("admit_new", HOSTS),
    ("admit_known", URLS - HOSTS),
    ("send", URLS),
    ("working", URLS),
    ("done", URLS),
    ("polite", URLS - HOSTS),
    ("crowded", URLS),
];

/// How politely to hand out.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Between two sends to one host.
    pub(crate) host_gap: Duration,
    /// Between two sends to one address, which has one at a time then.
    pub(crate) ip_gap: Option<Duration>,
    /// After a fetch, rest as long as it took.
    pub(crate) rest: bool,
}

/// Hands out URLs, at most one at a time for each host.
pub(crate) trait HandsOut {
    fn new(rules: Rules) -> Self;
    fn admit(&mut self, now: Instant, candidate: &Candidate);
    /// Sends all that may go: a line each into `out`, and the number it begins with into `sent`.
    fn send(&mut self, now: Instant, out: &mut BytesMut, sent: &mut Vec<u64>);
    /// Reads lines of a spider; how many were about something in flight.
    fn hear(&mut self, now: Instant, input: &[u8]) -> u64;
    /// A fetch has ended well; false if there was none.
    fn done(&mut self, now: Instant, trans: u64) -> bool;
    /// Takes all reports; how many.
    fn report(&mut self, now: Instant) -> u64;
    /// Time has passed.
    fn pass_time(&mut self, now: Instant);
    /// When time should have passed.
    fn deadline(&self) -> Option<Instant>;
}

/// All phases. Panics if some work is not done, or done twice.
pub(crate) fn run<S: HandsOut>() {
    let candidates: Vec<Candidate> = (0..URLS).map(candidate).collect();
    run_plain::<S>(&candidates);
    run_polite::<S>(&candidates);
    run_crowded::<S>(candidates);
}

fn candidate(number: u64) -> Candidate {
    let (doc, host) = (number + 1, number % HOSTS);
    let url = format!("http://www.site{host:06}.example.com/section{:02}/page-{doc:07}", doc % 97);
    let address = IpAddr::V4(Ipv4Addr::from_bits((10 << 24) + host as u32));
    let url = Url::parse(&url).expect("a URL");
    Candidate { doc: DocId(doc), url, ip: Some(address), wait: Duration::ZERO, tried: Default::default() }
}

fn run_plain<S: HandsOut>(candidates: &[Candidate]) {
    let mut structure = S::new(Rules { host_gap: Duration::ZERO, ip_gap: None, rest: false });
    let (new, known) = candidates.split_at(HOSTS as usize);
    admit_new(&mut structure, new);
    admit_known(&mut structure, known);
    let mut out = room();
    for round in 0..URLS_PER_HOST {
        let now = Instant::from_micros(round * 1000);
        let sent = send(&mut structure, now, &mut out);
        assert_eq!(sent.len() as u64, HOSTS);
        assert_eq!(working(&mut structure, now, &lines(&sent, "WORKING")), HOSTS);
        assert_eq!(done(&mut structure, now, &lines(&sent, "DONE 200")), HOSTS);
    }
    assert_handed_out(candidates, &out);
}

/// Every host on an address of its own; all have been sent to, a millisecond after each other.
fn run_polite<S: HandsOut>(candidates: &[Candidate]) {
    let gap = Duration::from_secs(2);
    let mut structure = S::new(Rules { host_gap: gap, ip_gap: Some(gap), rest: true });
    let mut out = room();
    let mut sent = Vec::new();
    for host in 0..HOSTS {
        let now = Instant::from_micros(host * 1000);
        for candidate in candidates.iter().skip(host as usize).step_by(HOSTS as usize) {
            structure.admit(now, candidate);
        }
        structure.send(now, &mut out, &mut sent);
        assert!(sent.drain(..).all(|trans| structure.done(now, trans)));
        assert_eq!(structure.report(now), 1);
    }
    let now = Instant::from_micros(HOSTS * 1000);
    assert_eq!(polite(&mut structure, now, &mut out), URLS - HOSTS);
    assert_handed_out(candidates, &out);
}

/// All hosts behind one address.
fn run_crowded<S: HandsOut>(mut candidates: Vec<Candidate>) {
    let ip_gap = Some(Duration::from_millis(10));
    let mut structure = S::new(Rules { host_gap: Duration::ZERO, ip_gap, rest: true });
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    for candidate in &mut candidates {
        candidate.ip = Some(address);
        structure.admit(Instant::ZERO, candidate);
    }
    let mut out = room();
    assert_eq!(crowded(&mut structure, Instant::ZERO, &mut out), URLS);
    assert_handed_out(&candidates, &out);
}

/// A buffer that need not grow.
fn room() -> BytesMut {
    BytesMut::with_capacity(URLS as usize * 128)
}

fn lines(sent: &[u64], words: &str) -> String {
    sent.iter().fold(String::new(), |mut lines, trans| {
        writeln!(lines, "{trans} {words}").expect("memory can be written to");
        lines
    })
}

/// Every candidate went out once, with its address.
fn assert_handed_out(candidates: &[Candidate], out: &[u8]) {
    let out = std::str::from_utf8(out).expect("text");
    let mut went: Vec<&str> =
        out.lines().map(|line| line.split_once(' ').expect("a number before the rest").1).collect();
    let line = |c: &Candidate| format!("{} {} {}", c.doc.0, c.ip.expect("an address"), c.url.as_str());
    let mut wanted: Vec<String> = candidates.iter().map(line).collect();
    went.sort_unstable();
    wanted.sort_unstable();
    assert!(went == wanted, "not every URL was handed out once");
}

/// In every phase: functions that are the same could be made one, and would not be told apart.
fn stay_apart(name: &'static str) {
    black_box(name);
}

#[inline(never)]
fn admit_new<S: HandsOut>(structure: &mut S, candidates: &[Candidate]) {
    stay_apart("admit_new");
    candidates.iter().for_each(|candidate| structure.admit(Instant::ZERO, candidate));
}

#[inline(never)]
fn admit_known<S: HandsOut>(structure: &mut S, candidates: &[Candidate]) {
    stay_apart("admit_known");
    candidates.iter().for_each(|candidate| structure.admit(Instant::ZERO, candidate));
}

#[inline(never)]
fn send<S: HandsOut>(structure: &mut S, now: Instant, out: &mut BytesMut) -> Vec<u64> {
    stay_apart("send");
    let mut sent = Vec::with_capacity(HOSTS as usize);
    structure.send(now, out, &mut sent);
    sent
}

#[inline(never)]
fn working<S: HandsOut>(structure: &mut S, now: Instant, lines: &str) -> u64 {
    stay_apart("working");
    structure.hear(now, lines.as_bytes())
}

#[inline(never)]
fn done<S: HandsOut>(structure: &mut S, now: Instant, lines: &str) -> u64 {
    stay_apart("done");
    structure.hear(now, lines.as_bytes());
    structure.report(now)
}

#[inline(never)]
fn polite<S: HandsOut>(structure: &mut S, now: Instant, out: &mut BytesMut) -> u64 {
    stay_apart("polite");
    crawl(structure, now, 5000, out)
}

#[inline(never)]
fn crowded<S: HandsOut>(structure: &mut S, now: Instant, out: &mut BytesMut) -> u64 {
    stay_apart("crowded");
    crawl(structure, now, 20, out)
}

/// Goes from one thing that happens to the next, until nothing does. Fetches last up to `fetch_max_millis`. How many
/// documents ended.
fn crawl<S: HandsOut>(structure: &mut S, mut now: Instant, fetch_max_millis: u64, out: &mut BytesMut) -> u64 {
    let mut fetches: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
    let mut sent = Vec::new();
    let mut random = fastrand::Rng::with_seed(7);
    let mut ended = 0;
    loop {
        structure.pass_time(now);
        structure.send(now, out, &mut sent);
        for trans in sent.drain(..) {
            let took = Duration::from_millis(random.u64(1..=fetch_max_millis));
            fetches.push(Reverse((now + took, trans)));
        }
        let answer = fetches.peek().map(|Reverse((at, _))| *at);
        let Some(next) = answer.into_iter().chain(structure.deadline()).min() else { return ended };
        assert!(next > now, "what was due at {now:?} is still due");
        now = next;
        while let Some(&Reverse((at, trans))) = fetches.peek()
            && at <= now
        {
            fetches.pop();
            assert!(structure.done(now, trans));
        }
        ended += structure.report(now);
    }
}
