//! How exactly the gap is kept: many hosts, each with a line every few seconds, answered at once.
//!
//! The client sees lines arrive. The error of a send is its distance from the one before it, minus the gap; what the
//! way to the client adds to the one or takes from the other is in it, too, so it may be a little below nothing. A
//! line counts as early if the one before it cannot have arrived so long ago, since the client had found nothing more to
//! read. Beside it the same schedule kept by a loop that does nothing else, and is never early: what is seen of it is
//! the machine's own noise, on the way from one process to the other, too.

use super::client::{Lines, answer, connect};
use super::feed;
use super::pin::exact_timers;
use super::rig::{Rig, Setup};
use super::stats::{Bar, histogram, percentile};
use super::workload::{Names, Workload, read_url};
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Credit is given so often while the first lines are spread over one gap.
const RAMP_STEP: Duration = Duration::from_millis(1);
/// More lines than there will be.
const NO_LIMIT: u64 = 1_000_000_000_000;
/// Bars of the histogram.
const BARS: usize = 60;

/// What it came to.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(super) struct Exactness {
    pub(super) hosts: u32,
    pub(super) gap_seconds: f64,
    pub(super) seconds: f64,
    pub(super) urlserver: Errors,
    /// The same schedule kept by a loop that does nothing else.
    pub(super) ideal: Errors,
    /// What the server itself counts: bounds in seconds, and how many were below.
    pub(super) server_histogram: Vec<(f64, u64)>,
}

/// Errors of sends, in microseconds.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(super) struct Errors {
    pub(super) sends: usize,
    /// Lines that arrived closer to the one before than the gap, whenever that was read.
    pub(super) early: u64,
    pub(super) min_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
    /// Of microseconds; the last bar has all that is above.
    pub(super) histogram: Vec<Bar>,
}

/// The server, then the loop.
pub(super) fn measure(rig: &Rig) -> anyhow::Result<Exactness> {
    let args = &rig.args;
    let (hosts, gap, time) = (args.exact_hosts, args.exact_gap, args.exact_seconds);
    if gap.is_zero() || time < gap.saturating_mul(2) {
        bail!("--exact-seconds {time:?}: at least two gaps expected");
    }
    eprintln!("  urlserver, {time:?}");
    let (server, server_histogram) = watch_server(rig)?;
    eprintln!("  ideal, {time:?}");
    let words = ["bench-server", "--mode", "timetable", "--hosts", &hosts.to_string(), "--gap"];
    let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    words.push(gap.as_secs_f64().to_string());
    let process = rig.ideal.start(&words)?;
    let ideal = Watch::new(hosts, gap, None).run(&mut connect(&process.listen)?, time)?;
    let (urlserver, ideal) = Errors::both(server, ideal)?;
    let (gap_seconds, seconds) = (gap.as_secs_f64(), time.as_secs_f64());
    Ok(Exactness { hosts, gap_seconds, seconds, urlserver, ideal, server_histogram })
}

fn watch_server(rig: &Rig) -> anyhow::Result<(Seen, Vec<(f64, u64)>)> {
    let (hosts, gap, time) = (rig.args.exact_hosts, rig.args.exact_gap, rig.args.exact_seconds);
    let each = (time.as_secs_f64() / gap.as_secs_f64()).ceil() as u32 + 2;
    let work = Workload::even(Names::Sites, hosts, each);
    let hosts_file = rig.write("hosts-exact", |file| work.write_hosts(file))?;
    let per_sec = (1.0 / gap.as_secs_f64()).to_string();
    let setup =
        Setup { hosts, per_sec: &per_sec, http: true, hosts_file: Some(&hosts_file), ..Setup::default() };
    let server = rig.start(&setup)?;
    // Pull mode: nothing goes before credit is given.
    let mut stream = connect(&server.listen)?;
    stream.write_all(b"GET 0\n")?;
    feed::post(&server.http, &work)?;
    server.wait_calm(work.urls())?;
    let seen = Watch::new(hosts, gap, Some(Ramp::new(hosts, gap))).run(&mut stream, time)?;
    let metrics = feed::get(&server.http, "/metrics")?;
    Ok((seen, buckets(&metrics, "urlserver_gap_error_seconds")))
}

/// Gives credit for the first lines little by little, so that they are spread over one gap.
struct Ramp {
    hosts: u32,
    gap: Duration,
    given: u32,
}

impl Ramp {
    fn new(hosts: u32, gap: Duration) -> Ramp {
        Ramp { hosts, gap, given: 0 }
    }

    /// Credit that is due after this time, and when the next one is.
    fn poll(&mut self, elapsed: Duration) -> (u64, Option<Duration>) {
        if self.given == self.hosts {
            return (0, None);
        }
        let share = (elapsed.as_secs_f64() / self.gap.as_secs_f64()).min(1.0);
        let due = (f64::from(self.hosts) * share) as u32;
        let credit = u64::from(due - self.given.min(due));
        self.given = self.given.max(due);
        match self.given == self.hosts {
            true => (credit + NO_LIMIT, None),
            false => (credit, Some(elapsed + RAMP_STEP)),
        }
    }
}

/// When lines came.
struct Watch {
    gap: Duration,
    ramp: Option<Ramp>,
    /// Of each host's last line: when it came at the latest, and at the earliest.
    last: Vec<Option<(Instant, Instant)>>,
    seen: Seen,
}

/// Errors in nanoseconds, as they were seen.
#[derive(Default)]
struct Seen {
    errors: Vec<i64>,
    early: u64,
}

impl Watch {
    fn new(hosts: u32, gap: Duration, ramp: Option<Ramp>) -> Watch {
        Watch { gap, ramp, last: vec![None; hosts as usize], seen: Seen::default() }
    }

    fn run(mut self, stream: &mut TcpStream, time: Duration) -> anyhow::Result<Seen> {
        exact_timers();
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        let start = Instant::now();
        // Whatever comes next comes after this.
        let mut nothing_before = start;
        loop {
            let (credit, next) = self.ramp.as_mut().map_or((0, None), |ramp| ramp.poll(start.elapsed()));
            if credit > 0 {
                stream.write_all(format!("GET {credit}\n").as_bytes())?;
            }
            let Some(left) = time.checked_sub(start.elapsed()) else { return Ok(self.seen) };
            let until = next.map_or(left, |next| next.saturating_sub(start.elapsed()).min(left));
            let before = Instant::now();
            if !wait(stream, until)? {
                nothing_before = before;
                continue;
            }
            let before = Instant::now();
            let mut came = None;
            out.clear();
            let each = |line: &[u8]| {
                let at = *came.get_or_insert_with(Instant::now);
                self.came(line, at, nothing_before)?;
                answer(&mut out, line)
            };
            if lines.read(stream, each)? == 0 {
                bail!("the server closed");
            }
            if lines.took_all() {
                nothing_before = before;
            }
            stream.write_all(&out)?;
        }
    }

    fn came(&mut self, line: &[u8], at: Instant, nothing_before: Instant) -> anyhow::Result<()> {
        let url = line.rsplit(|&b| b == b' ').next().unwrap_or_default();
        let (host, _) = read_url(url).context("not a URL of the bench")?;
        let last = self.last.get_mut(host as usize).context("not a host of the bench")?;
        if let Some((latest, earliest)) = last.replace((at, nothing_before)) {
            let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            self.seen.errors.push(nanos(at - latest).saturating_sub(nanos(self.gap)));
            self.seen.early += u64::from(at - earliest < self.gap);
        }
        Ok(())
    }
}

/// Waits for something to read; false if time ran out.
fn wait(stream: &TcpStream, time: Duration) -> anyhow::Result<bool> {
    let time = Timespec::try_from(time).ok();
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], time.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Errors {
    /// The histograms have the same bars: from the least of both to beyond the 99.9th of a hundred of both.
    fn both(mut one: Seen, mut other: Seen) -> anyhow::Result<(Errors, Errors)> {
        for seen in [&mut one, &mut other] {
            seen.errors.sort_unstable();
            if seen.errors.is_empty() {
                bail!("no host had two lines");
            }
        }
        let of = |share| [&one, &other].map(|seen| percentile(&seen.errors, share));
        let (low, high) = (of(0.001), of(0.999));
        let (low, high) = (low[0].min(low[1]), high[0].max(high[1]));
        Ok((Errors::new(&one, low, high), Errors::new(&other, low, high)))
    }

    fn new(seen: &Seen, low: i64, high: i64) -> Errors {
        let micros = |nanos: f64| nanos / 1000.0;
        let of = |share| micros(percentile(&seen.errors, share) as f64);
        let bar = |bar: Bar| Bar { from: micros(bar.from), to: micros(bar.to), share: bar.share };
        Errors {
            sends: seen.errors.len(),
            early: seen.early,
            min_us: of(0.0),
            p50_us: of(0.5),
            p99_us: of(0.99),
            p999_us: of(0.999),
            max_us: of(1.0),
            histogram: histogram(&seen.errors, low, high, BARS).into_iter().map(bar).collect(),
        }
    }
}

/// The buckets of a histogram in Prometheus' text: upper bounds, and how many were not above.
fn buckets(metrics: &str, name: &str) -> Vec<(f64, u64)> {
    let bucket = |line: &str| {
        let (bound, count) = line.strip_prefix(name)?.strip_prefix("_bucket{le=\"")?.split_once("\"}")?;
        Some((bound.parse().ok()?, count.trim().parse().ok()?))
    };
    // Infinity is no number in JSON; its bucket has all of them.
    metrics.lines().filter_map(bucket).filter(|(bound, _): &(f64, u64)| bound.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_gives_a_credit_for_each_host_and_then_all() {
        let mut ramp = Ramp::new(1000, Duration::from_secs(10));
        assert_eq!(ramp.poll(Duration::ZERO), (0, Some(RAMP_STEP)));
        assert_eq!(ramp.poll(Duration::from_secs(1)).0, 100);
        assert_eq!(ramp.poll(Duration::from_secs(1)).0, 0);
        assert_eq!(ramp.poll(Duration::from_secs(11)), (900 + NO_LIMIT, None));
        assert_eq!(ramp.poll(Duration::from_secs(12)), (0, None));
    }

    #[test]
    fn errors_are_distances_minus_the_gap_and_doubt_is_no_proof() {
        let gap = Duration::from_millis(100);
        let mut watch = Watch::new(1, gap, None);
        let start = Instant::now();
        let line = b"1 1 127.1.0.0 http://www.site0000000.example.com/part00/page-0000001";
        let mut came = |at_ms: u64, nothing_before_ms: u64| {
            let after = |ms| start + Duration::from_millis(ms);
            watch.came(line, after(at_ms), after(nothing_before_ms)).is_ok()
        };
        assert!(came(0, 0) && came(101, 100));
        // Two milliseconds short, if the line before was not read late, and it may have been by one.
        assert!(came(199, 198), "99 after 100: early beyond doubt");
        assert!(came(298, 297) && came(399, 398));
        assert_eq!(watch.seen.errors, [1_000_000, -2_000_000, -1_000_000, 1_000_000]);
        assert_eq!(watch.seen.early, 1, "100 after 198 is no proof");
    }

    #[test]
    fn buckets_are_found() {
        let text = "# HELP x\nurlserver_gap_error_seconds_bucket{le=\"0.001\"} 7\n\
                    urlserver_gap_error_seconds_bucket{le=\"+Inf\"} 9\nurlserver_gap_error_seconds_count 9\n";
        assert_eq!(buckets(text, "urlserver_gap_error_seconds"), [(0.001, 7)]);
    }
}
