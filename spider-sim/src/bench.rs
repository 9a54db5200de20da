//! Measures a server binary on one machine: URLs sent and acknowledged per second, CPU per URL, RAM
//! per queued URL.
//!
//! The client is no spider: it reads what is there, answers DONE to every line in one write, and
//! checks nothing but the count, so that the server is what is measured. Trust the CPU per URL where
//! others use the machine too; the rate moves with them.

use crate::process;
use crate::workload::{HOSTS_MAX, Workload};
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;
use urlserver::time::Duration;

/// Least time without a line after which the server is taken to be stuck.
const STUCK: Duration = Duration::from_secs(30);
/// A server that is not ready, or not loaded, by then never will be.
const LOAD_MAX: Duration = Duration::from_secs(300);
/// The steady part of a drain: from so many hundredths to so many.
const STEADY: (u64, u64) = (15, 85);

/// `bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The server's binary [default: `urlserver` beside this program]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Hosts
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(HOSTS_MAX)))]
    hosts: u32,
    /// URLs; at least as many as hosts, at most 1000 per host
    #[arg(long, default_value_t = 1_000_000)]
    urls: u32,
    /// Repetitions; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    runs: u8,
    /// The server's `queue_len` [default: room for every URL]
    #[arg(long, default_value_t = 1001)]
    queue_len: u32,
    /// One more argument for the server; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    server_arg: Vec<String>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// One repetition.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
struct Sample {
    per_sec: f64,
    cpu_us_per_url: f64,
    rss_per_url: f64,
    load_seconds: f64,
}

/// Median, least and most over the repetitions.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// What a measurement came to.
#[derive(Clone, PartialEq, Serialize, Debug)]
struct Figures {
    hosts: u32,
    urls: u64,
    url_bytes_mean: f64,
    runs: usize,
    /// Sent and acknowledged, in the steady part.
    urls_per_sec: Spread,
    cpu_us_per_url: Spread,
    rss_bytes_per_url: Spread,
    load_seconds: Spread,
}

/// Measures, and prints.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    if args.urls < args.hosts || args.urls / 1000 > args.hosts {
        eprintln!("spider-sim: --urls {}: at least one and at most 1000 per host expected", args.urls);
        return Ok(ExitCode::from(2));
    }
    let server = args.server.clone().map_or_else(beside, Ok)?;
    let workload = Workload::new(args.hosts, args.urls);
    let files = Files::write(&workload)?;
    let empty = empty_rss(&server, args, &files)?;
    let mut samples = Vec::new();
    for number in 1..=args.runs {
        eprintln!("run {number} of {}", args.runs);
        samples.push(measure(&server, args, &files, &workload, empty)?);
    }
    let figures = Figures::new(args, &workload, &samples);
    if args.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        println!("{figures}");
    }
    Ok(ExitCode::SUCCESS)
}

fn beside() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("urlserver"))
}

/// The work on disk, removed at the end.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn write(workload: &Workload) -> anyhow::Result<Files> {
        let files = Files { dir: tempfile::tempdir()? };
        let create = |name: &str| File::create(files.path(name)).map(BufWriter::new);
        File::create(files.path("none"))?;
        let mut seeds = create("seeds")?;
        workload.write_seeds(&mut seeds)?;
        seeds.flush()?;
        let mut hosts = create("hosts")?;
        workload.write_hosts(&mut hosts)?;
        hosts.flush()?;
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// A server of ours; it ends with this value.
struct Server {
    child: Child,
    listen: String,
}

impl Server {
    fn start(binary: &Path, args: &BenchArgs, files: &Files, seeds: &str) -> anyhow::Result<Server> {
        let log = files.path("log");
        let mut child = Command::new(binary)
            .args(arguments(args))
            .arg("--seeds")
            .arg(files.path(seeds))
            .arg("--hosts-file")
            .arg(files.path("hosts"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let stdout = child.stdout.take().context("no stdout")?;
        // From here on the child ends with the value, whatever goes wrong.
        let mut server = Server { child, listen: String::new() };
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        server.listen =
            ready(BufReader::new(stdout)).with_context(|| format!("the server said: {}", said()))?;
        Ok(server)
    }

    /// Waits until memory and CPU have come to rest.
    fn wait_loaded(&self) -> anyhow::Result<()> {
        let pid = self.child.id();
        let start = Instant::now();
        let mut before = (process::rss(pid), process::cpu(pid));
        let mut calm = 0;
        while calm < 5 {
            if start.elapsed() > LOAD_MAX {
                bail!("the server is still busy loading after {LOAD_MAX:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
            let now = (process::rss(pid), process::cpu(pid));
            let still = now.0.abs_diff(before.0) < 128 * 1024 && now.1 - before.1 < Duration::from_millis(5);
            calm = if still { calm + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already; there is nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn arguments(args: &BenchArgs) -> Vec<String> {
    let fixed = "serve --index memory --listen 127.0.0.1:0 --http none --allow-private true --robots ignore \
                 --req-host-concurrent 1 --req-host-per-sec inf --req-ip-concurrent inf --req-ip-per-sec inf \
                 --delay-factor 0 --ip-max-urls 0";
    let mut words: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
    words.extend(["--queue-count".into(), args.hosts.to_string()]);
    words.extend(["--queue-len".into(), args.queue_len.to_string()]);
    words.extend(args.server_arg.iter().cloned());
    words
}

/// Where the server listens, from the one line it prints.
fn ready(mut stdout: impl BufRead + Send + 'static) -> anyhow::Result<String> {
    let (say, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = stdout.read_line(&mut line).map(|_| line);
        // Nobody listens any more once time is up.
        let _ = say.send(read);
    });
    let line = hear.recv_timeout(LOAD_MAX).context("no ready line in time")??;
    let listen = line.strip_prefix("ready ").and_then(|rest| {
        rest.split_whitespace().find_map(|word| word.strip_prefix("listen=").map(str::to_owned))
    });
    listen.with_context(|| format!("no ready line, but {line:?}"))
}

/// Resident bytes of a server with nothing to do.
fn empty_rss(binary: &Path, args: &BenchArgs, files: &Files) -> anyhow::Result<u64> {
    let server = Server::start(binary, args, files, "none")?;
    server.wait_loaded()?;
    Ok(process::rss(server.child.id()))
}

fn measure(
    binary: &Path,
    args: &BenchArgs,
    files: &Files,
    workload: &Workload,
    empty: u64,
) -> anyhow::Result<Sample> {
    let start = Instant::now();
    let server = Server::start(binary, args, files, "seeds")?;
    server.wait_loaded()?;
    let load_seconds = start.elapsed().as_secs_f64();
    let pid = server.child.id();
    let grown = process::rss(pid).saturating_sub(empty);
    let stream = TcpStream::connect(&server.listen)?;
    let drained = drain(stream, workload.urls(), || process::cpu(pid))?;
    let urls = drained.urls as f64;
    Ok(Sample {
        per_sec: urls / drained.took.as_secs_f64().max(1e-9),
        cpu_us_per_url: drained.cpu.as_secs_f64() * 1e6 / urls,
        rss_per_url: grown as f64 / workload.urls() as f64,
        load_seconds,
    })
}

/// The steady part of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Drained {
    urls: u64,
    took: Duration,
    cpu: Duration,
}

/// Takes `urls` lines and acknowledges each.
fn drain(mut stream: TcpStream, urls: u64, cpu: impl Fn() -> Duration) -> anyhow::Result<Drained> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STUCK))?;
    let (from, to) = (urls * STEADY.0 / 100, urls * STEADY.1 / 100);
    let mut answers = Answers::default();
    let mut buffer = vec![0; 256 * 1024];
    let mut first = None;
    let mut last = None;
    while answers.lines < urls {
        let n = stream.read(&mut buffer).with_context(|| format!("stuck after {} URLs", answers.lines))?;
        if n == 0 {
            bail!("the server closed after {} of {urls} URLs", answers.lines);
        }
        stream.write_all(answers.to(&buffer[..n]))?;
        let mark = || (answers.lines, Instant::now(), cpu());
        if answers.lines >= from && first.is_none() {
            first = Some(mark());
        }
        if answers.lines >= to && last.is_none() {
            last = Some(mark());
        }
    }
    let (first, last) = first.zip(last).context("nothing to measure")?;
    Ok(Drained {
        urls: (last.0 - first.0).max(1),
        took: last.1 - first.1,
        cpu: last.2.saturating_sub(first.2),
    })
}

/// Turns lines into DONEs, across reads.
#[derive(Default)]
struct Answers {
    lines: u64,
    /// Of the line that is not complete: its TRANS_ID so far, and whether that is complete.
    id: Vec<u8>,
    id_complete: bool,
    out: Vec<u8>,
}

impl Answers {
    fn to(&mut self, bytes: &[u8]) -> &[u8] {
        self.out.clear();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            self.take_id(&rest[..end]);
            self.out.extend_from_slice(&self.id);
            self.out.extend_from_slice(b" DONE\n");
            self.lines += 1;
            self.id.clear();
            self.id_complete = false;
            rest = &rest[end + 1..];
        }
        self.take_id(rest);
        &self.out
    }

    fn take_id(&mut self, part: &[u8]) {
        if self.id_complete {
            return;
        }
        let space = part.iter().position(|&b| b == b' ');
        self.id.extend_from_slice(&part[..space.unwrap_or(part.len())]);
        self.id_complete = space.is_some();
    }
}

impl Spread {
    fn of(samples: &[Sample], value: fn(&Sample) -> f64) -> Spread {
        let mut values: Vec<f64> = samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Spread { median, min: values[0], max: values[values.len() - 1] }
    }
}

impl Figures {
    fn new(args: &BenchArgs, workload: &Workload, samples: &[Sample]) -> Figures {
        Figures {
            hosts: args.hosts,
            urls: workload.urls(),
            url_bytes_mean: workload.url_bytes() as f64 / workload.urls() as f64,
            runs: samples.len(),
            urls_per_sec: Spread::of(samples, |s| s.per_sec),
            cpu_us_per_url: Spread::of(samples, |s| s.cpu_us_per_url),
            rss_bytes_per_url: Spread::of(samples, |s| s.rss_per_url),
            load_seconds: Spread::of(samples, |s| s.load_seconds),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { hosts, urls, url_bytes_mean, runs, .. } = self;
        writeln!(
            f,
            "{urls} URLs of {url_bytes_mean:.0} bytes over {hosts} hosts, median of {runs} (least – most)"
        )?;
        let mut row = |name: &str, s: Spread, digits: usize| {
            writeln!(f, "{name:<34}{:>12.digits$}  ({:.digits$} – {:.digits$})", s.median, s.min, s.max)
        };
        row("URLs per second, acknowledged", self.urls_per_sec, 0)?;
        row("server CPU per URL, µs", self.cpu_us_per_url, 3)?;
        row("server RSS per queued URL, bytes", self.rss_bytes_per_url, 1)?;
        row("seconds to load", self.load_seconds, 1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use std::net::TcpListener;

    #[test]
    fn answers_do_not_care_where_reads_are_cut() {
        let text = b"12 1 127.0.0.1 http://a/\n345 2 127.0.0.1 http://b/\n6 3 127.0.0.1 http://c/\n";
        for size in 1..text.len() {
            let mut answers = Answers::default();
            let said: Vec<u8> = text.chunks(size).flat_map(|chunk| answers.to(chunk).to_vec()).collect();
            assert_eq!(said, b"12 DONE\n345 DONE\n6 DONE\n", "{size}");
            assert_eq!(answers.lines, 3);
        }
    }

    #[test]
    fn the_ready_line_is_read_and_anything_else_refused() {
        let line = Cursor::new("ready listen=127.0.0.1:4332 http=none\n");
        assert_eq!(ready(line).unwrap(), "127.0.0.1:4332");
        assert!(ready(Cursor::new("hello\n")).is_err());
        assert!(ready(Cursor::new("")).is_err());
    }

    #[test]
    fn a_drain_measures_its_steady_part() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut dones = BufReader::new(stream.try_clone().unwrap()).lines();
            for n in 0..1000 {
                stream.write_all(format!("{n} {n} 127.0.0.1 http://a/{n}\n").as_bytes()).unwrap();
                assert_eq!(dones.next().unwrap().unwrap(), format!("{n} DONE"));
            }
        });
        let drained = drain(TcpStream::connect(addr).unwrap(), 1000, || Duration::ZERO).unwrap();
        server.join().unwrap();
        assert_eq!(drained.urls, 700);
        assert!(drained.took > Duration::ZERO);
    }

    #[test]
    fn medians() {
        let sample = |per_sec| Sample { per_sec, cpu_us_per_url: 0.0, rss_per_url: 0.0, load_seconds: 0.0 };
        let spread = |values: &[f64]| {
            Spread::of(&values.iter().copied().map(sample).collect::<Vec<_>>(), |s| s.per_sec)
        };
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[1.0, 2.0]).median, 1.5);
    }
}
