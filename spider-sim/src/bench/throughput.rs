//! URLs sent and acknowledged per second, by the server and by all others, on the same work.

use super::client::{self, Verified};
use super::meter::Drained;
use super::peers::{beanstalkd, postgres, queue, redis};
use super::process;
use super::rig::{Rig, Setup};
use super::server::Server;
use super::stats::Spread;
use super::workload::{Names, Workload};
use anyhow::bail;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Lines of the floor for each URL of the others, which take longer.
const FLOOR_LINES: u64 = 5;

/// Who does the work.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub(super) enum Case {
    Urlserver,
    Ideal,
    Floor,
    Redis,
    Beanstalkd,
    Postgres,
}

impl Case {
    pub(super) const ALL: [Case; 6] =
        [Case::Urlserver, Case::Ideal, Case::Floor, Case::Redis, Case::Beanstalkd, Case::Postgres];

    /// On the command line and in JSON.
    pub(super) fn word(self) -> &'static str {
        match self {
            Case::Urlserver => "urlserver",
            Case::Ideal => "ideal",
            Case::Floor => "floor",
            Case::Redis => "redis",
            Case::Beanstalkd => "beanstalkd",
            Case::Postgres => "postgres",
        }
    }

    /// In tables and plots.
    pub(super) fn title(self) -> &'static str {
        match self {
            Case::Urlserver => "urlserver",
            Case::Ideal => "ideal structure, same lines",
            Case::Floor => "floor: constant lines",
            Case::Redis => "Redis, Lua frontier, batches of 100",
            Case::Beanstalkd => "beanstalkd, pipelined",
            Case::Postgres => "PostgreSQL, SKIP LOCKED, batches of 100",
        }
    }

    /// The program that must be there, and where else than in `PATH` it might be.
    fn programs(self) -> Option<(&'static [&'static str], Vec<PathBuf>)> {
        match self {
            Case::Redis => Some((&["redis-server"], Vec::new())),
            Case::Beanstalkd => Some((&["beanstalkd"], Vec::new())),
            Case::Postgres => Some((&["postgres", "initdb"], postgres::elsewhere())),
            Case::Urlserver | Case::Ideal | Case::Floor => None,
        }
    }

    /// Whether it promises not to send two URLs of a host at a time.
    fn knows_hosts(self) -> bool {
        !matches!(self, Case::Beanstalkd | Case::Floor)
    }
}

/// A case that was not measured.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub(super) struct Skipped {
    pub(super) case: Case,
    pub(super) why: String,
}

/// What one case came to.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(super) struct Row {
    pub(super) case: Case,
    pub(super) hosts: u32,
    /// That were loaded.
    pub(super) urls: u64,
    /// That were sent and acknowledged.
    pub(super) drained: u64,
    pub(super) url_bytes_mean: f64,
    pub(super) runs: usize,
    /// Sent and acknowledged, in the steady part.
    pub(super) urls_per_sec: Spread,
    /// Of all processes of the server.
    pub(super) cpu_us_per_url: Spread,
    /// Loaded minus empty; of PostgreSQL the size of tables and indexes; of the floor nothing.
    pub(super) rss_bytes_per_url: Option<Spread>,
    /// Cores that others used, or the machine was kept from using, meanwhile.
    pub(super) foreign_cores: Spread,
    /// Each URL once, no host twice in flight: counted in a run that is not timed, or in all of them.
    pub(super) verified: Option<Verified>,
}

/// One repetition.
struct Sample {
    drained: Drained,
    rss_per_url: Option<f64>,
    foreign: f64,
    verified: Option<Verified>,
}

/// The work for one number of hosts, in memory and on disk.
struct Work {
    load: Workload,
    seeds: PathBuf,
    hosts: PathBuf,
}

/// A case with its place in the order, and what it has come to so far.
struct Entry {
    case: Case,
    work: usize,
    bin: Option<PathBuf>,
    empty_rss: u64,
    verified: Option<Verified>,
    samples: Vec<Sample>,
    failure: Option<String>,
}

/// Every case on every number of hosts, taking turns.
pub(super) fn measure(rig: &Rig, cases: &[Case]) -> anyhow::Result<(Vec<Row>, Vec<Skipped>)> {
    let mut skipped = Vec::new();
    let there: Vec<(Case, Option<PathBuf>)> =
        cases.iter().filter_map(|&case| find(case, &mut skipped).map(|bin| (case, bin))).collect();
    let works = rig.args.hosts.iter().map(|&hosts| Work::new(rig, hosts)).collect::<Result<Vec<_>, _>>()?;
    let mut entries = Vec::new();
    for (work, _) in works.iter().enumerate() {
        entries.extend(there.iter().map(|(case, bin)| Entry::new(*case, work, bin.clone())));
    }
    for entry in &mut entries {
        entry.prepare(rig, &works[entry.work])?;
    }
    for number in 1..=rig.args.runs {
        for entry in entries.iter_mut().filter(|entry| entry.failure.is_none()) {
            let work = &works[entry.work];
            eprintln!(
                "  run {number} of {}: {}, {} hosts",
                rig.args.runs,
                entry.case.word(),
                work.load.hosts()
            );
            entry.repeat(rig, work)?;
        }
    }
    let failed = entries.iter().filter_map(|entry| {
        let why =
            format!("failed with {} hosts: {}", works[entry.work].load.hosts(), entry.failure.as_ref()?);
        Some(Skipped { case: entry.case, why })
    });
    skipped.extend(failed);
    Ok((entries.iter().filter_map(|entry| entry.row(rig, &works[entry.work])).collect(), skipped))
}

/// Where its program is, if it needs one.
fn find(case: Case, skipped: &mut Vec<Skipped>) -> Option<Option<PathBuf>> {
    let Some((programs, elsewhere)) = case.programs() else { return Some(None) };
    match process::directory_of(programs, &elsewhere) {
        Some(bin) => Some(Some(bin)),
        None => {
            let why = format!("{} is not on this machine", programs[0]);
            eprintln!("  {}: {why}", case.word());
            skipped.push(Skipped { case, why });
            None
        }
    }
}

impl Work {
    fn new(rig: &Rig, hosts: u32) -> anyhow::Result<Work> {
        let load = Workload::skewed(Names::Sites, hosts, rig.args.urls).unlike(rig.args.unlike);
        let (seeds, hosts) = rig.write_work(&load)?;
        Ok(Work { load, seeds, hosts })
    }
}

impl Entry {
    fn new(case: Case, work: usize, bin: Option<PathBuf>) -> Entry {
        let (empty_rss, verified, samples, failure) = (0, None, Vec::new(), None);
        Entry { case, work, bin, empty_rss, verified, samples, failure }
    }

    /// What an empty server takes, and whether a loaded one does what it shall.
    fn prepare(&mut self, rig: &Rig, work: &Work) -> anyhow::Result<()> {
        if !matches!(self.case, Case::Urlserver | Case::Ideal) {
            return Ok(());
        }
        let none = rig.write("none", |_| Ok(()))?;
        let empty = self.start(rig, work, &none, 0)?;
        empty.wait_calm(0)?;
        self.empty_rss = empty.rss();
        drop(empty);
        let (urls, hosts) = (work.load.urls(), work.load.hosts());
        let server = self.start(rig, work, &work.seeds, hosts)?;
        let found = client::verify(&mut client::connect(&server.listen)?, urls, hosts)?;
        self.check(found, urls)?;
        self.verified = Some(found);
        Ok(())
    }

    /// A server that speaks our lines. The ideal one has no hosts before it has URLs.
    fn start(&self, rig: &Rig, work: &Work, seeds: &Path, hosts: u32) -> anyhow::Result<Server> {
        if self.case == Case::Urlserver {
            let (hosts, hosts_file) = (work.load.hosts(), Some(&*work.hosts));
            return rig.start(&Setup { hosts, seeds: Some(seeds), hosts_file, ..Setup::default() });
        }
        let words =
            ["bench-server", "--mode", if self.case == Case::Floor { "constant" } else { "frontier" }];
        let mut words = words.map(str::to_owned).to_vec();
        words.extend(["--hosts".into(), hosts.to_string()]);
        words.extend(["--seeds".into(), seeds.to_string_lossy().into_owned()]);
        rig.ideal.start(&words)
    }

    /// PostgreSQL may have been a batch ahead when it was stopped.
    fn check(&self, found: Verified, urls: u64) -> anyhow::Result<()> {
        let clashes = if self.case.knows_hosts() { found.clashes } else { 0 };
        if found.urls < urls || found.twice > 0 || clashes > 0 {
            bail!("{}: {urls} URLs, each once and one of a host at a time: {found:?}", self.case.word());
        }
        Ok(())
    }

    /// Once more. A peer that fails is left out from then on, and that is said; one of ours must not fail.
    fn repeat(&mut self, rig: &Rig, work: &Work) -> anyhow::Result<()> {
        match self.sample(rig, work) {
            Ok(sample) => self.samples.push(sample),
            Err(error) if self.bin.is_some() => self.failure = Some(format!("{error:#}")),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn sample(&self, rig: &Rig, work: &Work) -> anyhow::Result<Sample> {
        let bin = self.bin.as_deref().unwrap_or(Path::new(""));
        let mut sample = match self.case {
            Case::Urlserver | Case::Ideal | Case::Floor => self.sample_lines(rig, work)?,
            Case::Redis => {
                let peer = redis::start(bin, &rig.pinning, &rig.path(""))?;
                sample_queue(peer.pid(), peer.port, redis::Redis::default(), &work.load)?
            }
            Case::Beanstalkd => {
                let peer = beanstalkd::start(bin, &rig.pinning, &rig.path(""))?;
                sample_queue(peer.pid(), peer.port, beanstalkd::Beanstalkd, &work.load)?
            }
            Case::Postgres => {
                let database = postgres::Database::start(bin, &rig.pinning, &rig.path(""))?;
                let measure = || database.measure(&work.load, self.drains(rig, work));
                let ((drained, found, bytes), foreign) =
                    foreign(|| process::cpu_of_tree(database.pid()), measure)?;
                let rss_per_url = Some(bytes as f64 / work.load.urls() as f64);
                Sample { drained, rss_per_url, foreign, verified: Some(found) }
            }
        };
        sample.verified = sample.verified.or(self.verified);
        match sample.verified.filter(|_| self.case != Case::Floor) {
            Some(found) => self.check(found, self.drains(rig, work)).map(|()| sample),
            None => Ok(sample),
        }
    }

    /// URLs that are sent and acknowledged, of all that are loaded.
    fn drains(&self, rig: &Rig, work: &Work) -> u64 {
        let urls = work.load.urls();
        match self.case {
            Case::Postgres => u64::from(rig.args.postgres_urls).min(urls),
            Case::Floor => urls * FLOOR_LINES,
            Case::Urlserver | Case::Ideal | Case::Redis | Case::Beanstalkd => urls,
        }
    }

    fn sample_lines(&self, rig: &Rig, work: &Work) -> anyhow::Result<Sample> {
        let server = self.start(rig, work, &work.seeds, work.load.hosts())?;
        server.wait_calm(work.load.urls())?;
        let grown = server.rss().saturating_sub(self.empty_rss) as f64 / work.load.urls() as f64;
        let lines = self.drains(rig, work);
        let mut stream = client::connect(&server.listen)?;
        let drain = || client::drain(&mut stream, lines, || server.cpu());
        let (drained, foreign) = foreign(|| server.cpu(), drain)?;
        Ok(Sample {
            drained,
            rss_per_url: (self.case != Case::Floor).then_some(grown),
            foreign,
            verified: None,
        })
    }

    fn row(&self, rig: &Rig, work: &Work) -> Option<Row> {
        let spread = |value: fn(&Sample) -> f64| Spread::of(self.samples.iter().map(value));
        let drained = self.drains(rig, work);
        let work = &work.load;
        Some(Row {
            case: self.case,
            hosts: work.hosts(),
            urls: work.urls(),
            drained,
            url_bytes_mean: work.url_bytes_mean(),
            runs: self.samples.len(),
            urls_per_sec: spread(|sample| sample.drained.per_sec)?,
            cpu_us_per_url: spread(|sample| sample.drained.cpu_us)?,
            rss_bytes_per_url: Spread::of(self.samples.iter().filter_map(|sample| sample.rss_per_url)),
            foreign_cores: spread(|sample| sample.foreign)?,
            verified: self.samples.last()?.verified,
        })
    }
}

fn sample_queue(
    pid: u32,
    port: u16,
    dialect: impl queue::Dialect,
    work: &Workload,
) -> anyhow::Result<Sample> {
    let empty = process::rss(pid);
    let mut connection = queue::Connection::open(port, dialect)?;
    connection.load(work)?;
    let grown = process::rss(pid).saturating_sub(empty);
    let drain = || connection.drain(work, || process::cpu(pid));
    let ((drained, found), foreign) = foreign(|| process::cpu(pid), drain)?;
    let rss_per_url = Some(grown as f64 / work.urls() as f64);
    Ok(Sample { drained, rss_per_url, foreign, verified: Some(found) })
}

/// Does something, and says how many cores were meanwhile busy with something else, or not to be had.
fn foreign<T>(
    server_cpu: impl Fn() -> Duration,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, f64)> {
    let look = || {
        let (busy, stolen) = process::machine();
        (busy + stolen, process::cpu(std::process::id()) + server_cpu(), Instant::now())
    };
    let before = look();
    let done = work()?;
    let after = look();
    let others = (after.0 - before.0).saturating_sub(after.1.saturating_sub(before.1));
    Ok((done, others.as_secs_f64() / (after.2 - before.2).as_secs_f64().max(1e-9)))
}
