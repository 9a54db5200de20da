//! The command line: flags, and what they mean. The limits mirror the server's flags and defaults.

use crate::audit::{Auditor, GateLimit, Limits, Rest, Slack};
use crate::bench::BenchArgs;
use crate::bench::ideal::{self, IdealArgs};
use crate::machine::Persona;
use crate::profile::{Latency, Profile};
use crate::report::{Facts, Ticker};
use crate::tcp::{self, Ended, Meeting, Until};
use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::process::ExitCode;
use urlserver::time::Duration;

/// A simulated spider for urlserver, with an outside auditor.
#[derive(Parser, Debug)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Spiders over TCP, audited (what happens without a command, too)
    Run(Box<RunArgs>),
    /// Whole crawls in virtual time: the real scheduler, with everything around it that can go wrong
    Sim(Box<crate::sim::SimArgs>),
    /// Measure a server binary beside its peers: URLs per second, CPU and RAM per URL, exactness, scale
    Bench(Box<BenchArgs>),
    /// What a server is measured against; `bench` starts it
    #[command(hide = true)]
    BenchServer(IdealArgs),
}

/// `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Connect to the server's `listen` address [default: 127.0.0.1:4332]
    #[arg(long, value_name = "ADDR", conflicts_with = "listen")]
    connect: Option<String>,
    /// Wait to be dialled by the server (its spider_host and spider_port)
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Number of spiders
    #[arg(long, short = 'n', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    spiders: u16,
    /// What they are like: polite, chaos, original or pull
    #[arg(long, default_value = "polite", value_parser = Profile::NAMES)]
    profile: String,
    /// How long fetches take, in seconds: constant:S, uniform:A:B, exponential:MEAN, lognormal:MEDIAN:SIGMA, pareto:MIN:ALPHA
    #[arg(long, value_name = "DIST")]
    latency: Option<Latency>,
    /// The server's spider_token
    #[arg(long, env = "URLSERVER_SPIDER_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Everything random follows from this [default: a random one, printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Stop when so many documents have come to an end; fewer is a loss
    #[arg(long, value_name = "N")]
    urls: Option<u64>,
    /// Stop after this long
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Stop when no URL came for this long
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "30")]
    idle: Duration,
    /// Stop when no spider had a connection for this long
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "3")]
    patience: Duration,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// No progress on stderr
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    limits: LimitArgs,
}

/// The limits to audit against.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits that the server was given")]
pub struct LimitArgs {
    /// Most URLs of one host in flight
    #[arg(long, value_name = "N|inf", value_parser = count, default_value = "1")]
    req_host_concurrent: Count,
    /// Most sends per second to one host
    #[arg(long, value_name = "X|inf", value_parser = rate, default_value = "1")]
    req_host_per_sec: Duration,
    /// Most URLs of one address in flight [default: the host's]
    #[arg(long, value_name = "N|inf", value_parser = count)]
    req_ip_concurrent: Option<Count>,
    /// Most sends per second to one address [default: the host's]
    #[arg(long, value_name = "X|inf", value_parser = rate)]
    req_ip_per_sec: Option<Duration>,
    /// A URL without status is taken back after this
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "60")]
    timeout_spider_status: Duration,
    /// A URL is taken back after this, whatever status came; 0 = never [default: 20 × timeout]
    #[arg(long, value_name = "S", value_parser = seconds)]
    lease_max: Option<Duration>,
    /// Most sends of one URL; 0 = for ever
    #[arg(long, value_name = "N", default_value_t = 3)]
    max_attempts: u32,
    /// A host rests for this × the time of the fetch
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    delay_factor: f64,
    /// At least this
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "0")]
    delay_min: Duration,
    /// At most this
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "30")]
    delay_max: Duration,
    /// How much later than decided a line may arrive: forgiven in gaps and rests
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "20ms")]
    jitter: Duration,
}

/// A number, or no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count(Option<u32>);

fn count(text: &str) -> Result<Count, String> {
    match text {
        "inf" => Ok(Count(None)),
        _ => text
            .parse()
            .ok()
            .filter(|&n| n > 0)
            .map(|n| Count(Some(n)))
            .ok_or("a number from 1, or inf".into()),
    }
}

/// Sends per second, as the gap between two.
fn rate(text: &str) -> Result<Duration, String> {
    let per_sec: f64 = text.parse().map_err(|_| "a number, or inf")?;
    if per_sec > 0.0 {
        Ok(Duration::try_from_secs_f64(1.0 / per_sec).unwrap_or(Duration::MAX))
    } else {
        Err("a number above 0, or inf".into())
    }
}

/// Seconds as a number, or with a unit.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 6] =
        [("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let (number, unit) = UNITS
        .iter()
        .find_map(|&(name, unit)| text.strip_suffix(name).map(|number| (number, unit)))
        .unwrap_or((text, 1.0));
    let number: f64 = number.trim().parse().map_err(|_| "seconds, or a number with ms, s, m, h or d")?;
    Duration::try_from_secs_f64(number * unit).map_err(|e| e.to_string())
}

impl LimitArgs {
    fn limits(&self) -> Limits {
        let host = GateLimit { concurrent: self.req_host_concurrent.0, gap: self.req_host_per_sec };
        let ip = GateLimit {
            concurrent: self.req_ip_concurrent.unwrap_or(self.req_host_concurrent).0,
            gap: self.req_ip_per_sec.unwrap_or(host.gap),
        };
        let lease_max = self.lease_max.unwrap_or(self.timeout_spider_status.saturating_mul(20));
        Limits {
            host,
            ip,
            status_timeout: self.timeout_spider_status,
            lease_max: (!lease_max.is_zero()).then_some(lease_max),
            max_attempts: (self.max_attempts > 0).then_some(self.max_attempts),
            rest: Rest { factor: self.delay_factor, min: self.delay_min, max: self.delay_max },
        }
    }

    fn slack(&self) -> Slack {
        Slack { jitter: self.jitter, ..Slack::TCP }
    }
}

impl RunArgs {
    fn meeting(&self) -> anyhow::Result<Meeting> {
        if let Some(listen) = &self.listen {
            let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
            eprintln!("listening on {}", listener.local_addr()?);
            return Ok(Meeting::Listen(listener));
        }
        resolve(self.connect.as_deref().unwrap_or("127.0.0.1:4332")).map(Meeting::Connect)
    }

    fn personas(&self, seed: u64) -> Vec<Persona> {
        let mut profile = Profile::named(&self.profile).unwrap_or_else(Profile::polite);
        profile.latency = self.latency.unwrap_or(profile.latency);
        // One seed for all, and each spider a different one.
        let mut seeds = fastrand::Rng::with_seed(seed);
        (0..self.spiders)
            .map(|_| Persona {
                seed: seeds.u64(..),
                profile: profile.clone(),
                token: self.token.clone(),
                working_every: self.limits.timeout_spider_status / 3,
            })
            .collect()
    }

    fn until(&self) -> Until {
        Until { urls: self.urls, time: self.seconds, idle: self.idle, patience: self.patience }
    }

    /// The command that does the same again. A token is a secret, and left out.
    fn again(&self, seed: u64) -> String {
        let mut words: Vec<String> = std::env::args().collect();
        if let Some(at) = words.iter().position(|w| w == "--token") {
            words.drain(at..(at + 2).min(words.len()));
        }
        words.retain(|w| !w.starts_with("--token="));
        if self.seed.is_none() {
            words.push(format!("--seed {seed}"));
        }
        words.join(" ")
    }
}

fn resolve(addr: &str) -> anyhow::Result<SocketAddr> {
    let mut found = addr.to_socket_addrs().with_context(|| format!("no such address: {addr}"))?;
    found.next().with_context(|| format!("no such address: {addr}"))
}

impl Cli {
    /// Does what the command line says.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            None => run(&self.run),
            Some(Command::Run(args)) => run(&args),
            Some(Command::Sim(args)) => crate::sim::run(&args),
            Some(Command::Bench(args)) => crate::bench::run(&args),
            Some(Command::BenchServer(args)) => ideal::run(&args),
        }
    }
}

fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let limits = args.limits.limits();
    let auditor = Auditor::new(limits.clone(), args.limits.slack());
    let mut ticker = Ticker::new(args.quiet);
    let watch = |progress: &tcp::Progress| ticker.handle_progress(progress);
    let outcome = tcp::run(args.meeting()?, args.personas(seed), auditor, args.until(), watch)?;
    ticker.finish();
    if outcome.ended == Ended::NeverConnected {
        bail!("{} within {:?}", Ended::NeverConnected.words(), args.patience);
    }
    let facts = Facts::new(&outcome, &limits, args.urls, seed, args.again(seed));
    if args.json {
        println!("{}", serde_json::to_string(&facts)?);
    } else {
        println!("{facts}");
    }
    Ok(if facts.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<RunArgs, String> {
        let words = std::iter::once("spider-sim").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.run).map_err(|e| e.to_string())
    }

    #[test]
    fn the_limits_default_to_the_servers() {
        let limits = parse("").unwrap().limits.limits();
        let one = GateLimit { concurrent: Some(1), gap: Duration::from_secs(1) };
        assert_eq!((limits.host, limits.ip), (one, one));
        assert_eq!(limits.status_timeout, Duration::from_secs(60));
        assert_eq!(limits.lease_max, Some(Duration::from_secs(1200)));
        assert_eq!(limits.max_attempts, Some(3));
    }

    #[test]
    fn limits_are_read_as_the_server_reads_them() {
        let line = "--req-host-per-sec 4 --req-ip-per-sec inf --req-ip-concurrent inf --timeout-spider-status 500ms \
                    --lease-max 0 --max-attempts 0";
        let limits = parse(line).unwrap().limits.limits();
        assert_eq!(limits.host.gap, Duration::from_millis(250));
        assert_eq!(limits.ip, GateLimit::NONE);
        assert_eq!(limits.status_timeout, Duration::from_millis(500));
        assert_eq!((limits.lease_max, limits.max_attempts), (None, None));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--req-host-per-sec 0",
            "--req-host-per-sec -1",
            "--req-host-per-sec nan",
            "--req-host-concurrent 0",
            "--idle soon",
            "--idle -1",
            "--profile rude",
            "--spiders 0",
            "--connect a:1 --listen b:2",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn spiders_differ_and_the_seed_repeats_them() {
        let args = parse("-n 3").unwrap();
        let seeds = |seed| args.personas(seed).iter().map(|p| p.seed).collect::<Vec<_>>();
        assert_eq!(seeds(1), seeds(1));
        assert_ne!(seeds(1), seeds(2));
        assert_ne!(seeds(1)[0], seeds(1)[1]);
    }
}
