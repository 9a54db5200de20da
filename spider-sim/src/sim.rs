//! `spider-sim sim`: worlds in virtual time, one per seed.

use crate::profile::Profile;
use crate::report::Ticker;
use crate::tcp::Progress;
use crate::world::{Scale, Verdict, World, draw};
use clap::Args;
use serde::Serialize;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use urlserver::time::{Duration, Instant};

/// `sim`.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// The first world's seed; everything follows from it [default: a random one, printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Worlds, with one seed after the other [default: 1 with --seed, else 1000]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Hosts per world [default: a few]
    #[arg(long, value_name = "H", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    hosts: Option<u32>,
    /// Addresses per world [default: a few]
    #[arg(long, value_name = "A", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    addresses: Option<u32>,
    /// Documents per world [default: some; 10 per host from 1000 hosts on]
    #[arg(long, value_name = "U")]
    urls: Option<u32>,
    /// Spiders per world [default: a few; 16 from 1000 hosts on]
    #[arg(long, short = 'n', value_name = "S", value_parser = clap::value_parser!(u16).range(1..))]
    spiders: Option<u16>,
    /// How long faults last before all is healed, in virtual hours [default: some minutes]
    #[arg(long, value_name = "H", value_parser = hours)]
    hours: Option<Duration>,
    /// What every spider is like: polite, chaos, original or pull [default: drawn for each]
    #[arg(long, value_parser = Profile::NAMES)]
    profile: Option<String>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// No progress on stderr
    #[arg(long, short)]
    quiet: bool,
}

fn hours(text: &str) -> Result<Duration, String> {
    let hours: f64 = text.parse().map_err(|_| "a number of hours")?;
    Duration::try_from_secs_f64(hours * 3600.0).map_err(|e| e.to_string())
}

/// The facts of all worlds together. Times are seconds.
#[derive(Clone, PartialEq, Default, Serialize, Debug)]
pub struct Facts {
    /// Worlds.
    pub worlds: u64,
    /// Virtual time of all of them.
    pub virtual_seconds: f64,
    /// Real time of all of them.
    pub seconds: f64,
    /// Moments at which something happened.
    pub steps: u64,
    /// Documents that were accepted.
    pub documents: u64,
    /// Of them: DONE.
    pub done: u64,
    /// FAILED.
    pub failed: u64,
    /// DENIED.
    pub denied: u64,
    /// Lines sent.
    pub sends: u64,
    /// Sends that did not end their document.
    pub retried: u64,
    /// Sends that nothing was said of in time.
    pub expired: u64,
    /// Statuses that came too late, twice, or from nowhere.
    pub stale: u64,
    /// Holds after 429 and 503.
    pub holds: u64,
    /// Times that an address was marked down.
    pub addresses_down: u64,
    /// Questions for names.
    pub lookups: u64,
    /// Of them, not answered.
    pub lookups_unanswered: u64,
    /// Connections that spiders made.
    pub connections: u64,
    /// The trace of the last world: the same number for the same seed.
    pub trace: String,
    /// Things found wrong.
    pub violations: u64,
    /// The first of them, in words.
    pub violation_texts: Vec<String>,
    /// How to repeat the first world in which something was wrong, or all of them.
    pub command: String,
}

/// Things found wrong that are written out.
const SHOWN: usize = 20;

impl Facts {
    fn add(&mut self, verdict: &Verdict) {
        let counters = verdict.stats.counters;
        self.worlds += 1;
        self.virtual_seconds += verdict.ended_at.since(Instant::ZERO).as_secs_f64();
        self.steps += verdict.steps;
        self.documents += verdict.documents;
        self.done += counters.done;
        self.failed += counters.failed;
        self.denied += counters.denied;
        self.sends += counters.sent;
        self.retried += counters.retried;
        self.expired += counters.expired;
        self.stale += counters.stale_status;
        self.holds += counters.holds;
        self.addresses_down += counters.addresses_down;
        self.lookups += counters.lookups;
        self.lookups_unanswered += counters.lookups_unanswered;
        self.connections += verdict.counts.iter().map(|counts| counts.connections).sum::<u64>();
        self.trace = format!("{:016x}", verdict.trace);
        self.violations += verdict.wrong_count;
        let room = SHOWN.saturating_sub(self.violation_texts.len());
        self.violation_texts.extend(verdict.wrongs.iter().take(room).cloned());
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: String| writeln!(f, "{name:<14}{value}");
        let hours = self.virtual_seconds / 3600.0;
        row("worlds", format!("{}, {hours:.1} virtual hours in {:.1} s", self.worlds, self.seconds))?;
        row(
            "steps",
            format!("{}, {:.0} per second", self.steps, self.steps as f64 / self.seconds.max(1e-6)),
        )?;
        let (done, failed, denied) = (self.done, self.failed, self.denied);
        row("documents", format!("{}: {done} done, {failed} failed, {denied} denied", self.documents))?;
        let (retried, expired) = (self.retried, self.expired);
        row("sends", format!("{}, {retried} retried, {expired} expired", self.sends))?;
        row("spiders", format!("{} connections, {} stale statuses", self.connections, self.stale))?;
        row("holds", self.holds.to_string())?;
        row("names", format!("{} questions, {} not answered", self.lookups, self.lookups_unanswered))?;
        row("addresses", format!("{} times down", self.addresses_down))?;
        row("trace", self.trace.clone())?;
        row("violations", self.violations.to_string())?;
        for text in &self.violation_texts {
            writeln!(f, "  {text}")?;
        }
        write!(f, "{:<14}{}", "again", self.command)
    }
}

impl SimArgs {
    fn scale(&self) -> Scale {
        Scale {
            hosts: self.hosts,
            addresses: self.addresses,
            urls: self.urls,
            spiders: self.spiders,
            faults: self.hours,
            profile: self.profile.as_deref().and_then(Profile::named),
        }
    }

    /// The command that does the same again from `seed` on.
    fn again(&self, seed: u64, seeds: u64) -> String {
        let mut command = format!("spider-sim sim --seed {seed}");
        let mut flag = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                command.push_str(&format!(" --{name} {value}"));
            }
        };
        flag("seeds", (seeds > 1).then(|| seeds.to_string()));
        flag("hosts", self.hosts.map(|n| n.to_string()));
        flag("addresses", self.addresses.map(|n| n.to_string()));
        flag("urls", self.urls.map(|n| n.to_string()));
        flag("spiders", self.spiders.map(|n| n.to_string()));
        flag("hours", self.hours.map(|hours| (hours.as_secs_f64() / 3600.0).to_string()));
        flag("profile", self.profile.clone());
        command
    }
}

/// Runs the worlds, up to the first in which something is wrong.
pub fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    let first = args.seed.unwrap_or_else(|| u64::from(fastrand::u32(..)));
    let seeds = args.seeds.unwrap_or(if args.seed.is_some() || args.hosts.is_some() { 1 } else { 1000 });
    let start = std::time::Instant::now();
    let mut ticker = Ticker::new(args.quiet);
    let mut facts = Facts { command: args.again(first, seeds), ..Facts::default() };
    for seed in (first..).take(usize::try_from(seeds)?) {
        let before = facts.clone();
        let watch = |world: &World| ticker.handle_progress(&progress(&before, world, start.elapsed()));
        let world = AssertUnwindSafe(|| World::new(draw(seed, &args.scale())).run(watch));
        match catch_unwind(world) {
            Ok(verdict) => facts.add(&verdict),
            // The panic itself has been printed.
            Err(_) => {
                facts.violations += 1;
                facts.violation_texts.push("panicked".to_owned());
            }
        }
        if facts.violations > 0 {
            facts.command = args.again(seed, 1);
            break;
        }
    }
    ticker.finish();
    facts.seconds = start.elapsed().as_secs_f64();
    if args.json {
        println!("{}", serde_json::to_string(&facts)?);
    } else {
        println!("{facts}");
    }
    Ok(if facts.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn progress(before: &Facts, world: &World, took: Duration) -> Progress {
    let stats = world.scheduler().stats();
    Progress {
        took,
        urls: before.sends + stats.counters.sent,
        ended: before.documents + world.reported(),
        in_flight: stats.in_flight as usize,
        connected: stats.spiders as usize,
        violations: world.wrongs(),
    }
}
