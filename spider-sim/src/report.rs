//! What a run came to, for people and for programs: one set of facts, as a table or as JSON.

use crate::audit::{Extremes, GateLimit, Kind, Limits};
use crate::machine::Counts;
use crate::tcp::{Ended, Outcome, Progress};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{IsTerminal, Write};
use urlserver::time::Duration;

/// Violations written out in full; more are only counted.
const SHOWN: usize = 20;

/// The facts of a run. Times are seconds.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Facts {
    /// Why it ended.
    pub ended: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// URLs received.
    pub urls: u64,
    /// URLs received per second.
    pub urls_per_sec: f64,
    /// Different documents among them.
    pub documents: u64,
    /// Documents that came to an end.
    pub documents_ended: u64,
    /// Different hosts.
    pub hosts: usize,
    /// Different addresses.
    pub addresses: usize,
    /// Spiders.
    pub spiders: usize,
    /// Connections they made.
    pub connections: u64,
    /// DONEs by outcome; `-` where none was said.
    pub outcomes: BTreeMap<String, u64>,
    /// What else the spiders did.
    pub behaviour: Behaviour,
    /// Lines that deserved an ERROR, and ERRORs.
    pub errors: Errors,
    /// How near the limits were.
    pub host: Nearness,
    /// The same for addresses.
    pub ip: Nearness,
    /// Documents that were expected and did not end.
    pub losses: u64,
    /// Promises broken.
    pub violations: u64,
    /// The first of them, in words.
    pub violation_texts: Vec<String>,
    /// Everything random followed from this.
    pub seed: u64,
    /// How to do it again.
    pub command: String,
}

/// What spiders did beside DONE.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Behaviour {
    /// WORKINGs.
    pub workings: u64,
    /// Repeated, late and invented statuses.
    pub stale: u64,
    /// ADDs.
    pub adds: u64,
    /// Connections dropped.
    pub crashes: u64,
    /// URLs held for ever.
    pub hangs: u64,
    /// Times they stopped reading.
    pub stalls: u64,
}

/// ERRORs.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Errors {
    /// Lines said that deserve one.
    pub provoked: u64,
    /// Received.
    pub received: u64,
    /// Not received because the connection was gone before.
    pub excused: u64,
}

/// How near a kind of gate came to its limits; `None` = no limit, or nothing seen.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Nearness {
    /// Smallest gap seen, seconds.
    pub smallest_gap: Option<f64>,
    /// Least gap allowed, seconds.
    pub gap_allowed: f64,
    /// Most in flight seen.
    pub most_in_flight: u32,
    /// Most allowed.
    pub in_flight_allowed: Option<u32>,
}

impl Nearness {
    fn new(seen: Extremes, limit: GateLimit) -> Nearness {
        Nearness {
            smallest_gap: seen.smallest_gap.map(|gap| gap.as_secs_f64()),
            gap_allowed: limit.gap.as_secs_f64(),
            most_in_flight: seen.most_in_flight,
            in_flight_allowed: limit.concurrent,
        }
    }
}

impl Facts {
    /// Adds up a run. `expected` documents should have come to an end, unless time was up before.
    pub fn new(
        outcome: &Outcome,
        limits: &Limits,
        expected: Option<u64>,
        seed: u64,
        command: String,
    ) -> Facts {
        let auditor = &outcome.auditor;
        let total = |count: fn(&Counts) -> u64| outcome.counts.iter().map(count).sum::<u64>();
        let urls = total(|c| c.urls);
        let seconds = outcome.took.as_secs_f64();
        let ended = auditor.documents_ended();
        Facts {
            ended: outcome.ended.words(),
            seconds,
            urls,
            urls_per_sec: urls as f64 / seconds.max(1e-6),
            documents: auditor.documents_seen(),
            documents_ended: ended,
            hosts: outcome.hosts,
            addresses: outcome.addresses,
            spiders: outcome.counts.len(),
            connections: total(|c| c.connections),
            outcomes: outcomes(&outcome.counts),
            behaviour: Behaviour {
                workings: total(|c| c.workings),
                stale: total(|c| c.stale),
                adds: total(|c| c.adds),
                crashes: total(|c| c.crashes),
                hangs: total(|c| c.hangs),
                stalls: total(|c| c.stalls),
            },
            errors: Errors {
                provoked: total(|c| c.errors_provoked),
                received: total(|c| c.errors_received),
                excused: total(|c| c.errors_excused),
            },
            host: Nearness::new(auditor.extremes(Kind::Host), limits.host),
            ip: Nearness::new(auditor.extremes(Kind::Ip), limits.ip),
            losses: losses(outcome.ended, expected, ended),
            violations: auditor.violation_count(),
            violation_texts: auditor.violations().iter().take(SHOWN).map(ToString::to_string).collect(),
            seed,
            command,
        }
    }

    /// True if nothing was broken and nothing lost.
    pub fn is_clean(&self) -> bool {
        self.violations == 0 && self.losses == 0
    }
}

fn outcomes(counts: &[Counts]) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for (word, n) in counts.iter().flat_map(|c| &c.outcomes) {
        *sum.entry(word.clone()).or_default() += n;
    }
    sum
}

fn losses(ended: Ended, expected: Option<u64>, documents_ended: u64) -> u64 {
    match ended {
        // We stopped listening: what did not come may have been about to.
        Ended::AllDone | Ended::TimeUp => 0,
        Ended::Silent | Ended::ServerGone | Ended::NeverConnected => {
            expected.map_or(0, |n| n.saturating_sub(documents_ended))
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { behaviour: b, errors: e, .. } = self;
        let outcomes: Vec<String> = self.outcomes.iter().map(|(word, n)| format!("{word} {n}")).collect();
        let mut row = |name: &str, value: String| writeln!(f, "{name:<14}{value}");
        row("ended", format!("{} after {:.1} s", self.ended, self.seconds))?;
        row("URLs", format!("{}, {:.1} per second", self.urls, self.urls_per_sec))?;
        row("documents", format!("{} seen, {} ended", self.documents, self.documents_ended))?;
        row("hosts", format!("{} on {} addresses", self.hosts, self.addresses))?;
        row("spiders", format!("{}, {} connections, {} dropped", self.spiders, self.connections, b.crashes))?;
        row("outcomes", outcomes.join(", "))?;
        row(
            "behaviour",
            format!(
                "{} working, {} stale, {} add, {} hung, {} stalls",
                b.workings, b.stale, b.adds, b.hangs, b.stalls
            ),
        )?;
        row("errors", format!("{} provoked, {} received, {} excused", e.provoked, e.received, e.excused))?;
        row("per host", self.host.to_string())?;
        row("per address", self.ip.to_string())?;
        row("losses", self.losses.to_string())?;
        row("violations", self.violations.to_string())?;
        for text in &self.violation_texts {
            writeln!(f, "  {text}")?;
        }
        if self.violations > self.violation_texts.len() as u64 {
            writeln!(f, "  …")?;
        }
        write!(f, "{:<14}{}", "again", self.command)
    }
}

impl fmt::Display for Nearness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = self.smallest_gap.map_or("none".to_owned(), |gap| format!("{gap:.3} s"));
        let most = self.in_flight_allowed.map_or("inf".to_owned(), |n| n.to_string());
        write!(
            f,
            "smallest gap {gap} (at least {:.3} s), most in flight {} (at most {most})",
            self.gap_allowed, self.most_in_flight
        )
    }
}

/// Tells people how a run goes: a line that changes on a terminal, a line now and then elsewhere.
#[derive(Debug)]
pub struct Ticker {
    terminal: bool,
    quiet: bool,
    last: Option<Progress>,
}

impl Ticker {
    /// A ticker on stderr.
    pub fn new(quiet: bool) -> Ticker {
        Ticker { terminal: std::io::stderr().is_terminal(), quiet, last: None }
    }

    /// Shows progress, if it is time to.
    pub fn handle_progress(&mut self, progress: &Progress) {
        let every = if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(5) };
        let since = self.last.map_or(progress.took, |last| progress.took.saturating_sub(last.took));
        if self.quiet || since < every {
            return;
        }
        let before = self.last.map_or(0, |last| last.urls);
        let rate = (progress.urls - before) as f64 / since.as_secs_f64().max(1e-6);
        let line = progress_line(progress, rate);
        // Progress is a courtesy: a closed stderr must not end the run.
        let _ = match self.terminal {
            true => write!(std::io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(std::io::stderr(), "{line}"),
        };
        self.last = Some(*progress);
    }

    /// Leaves the terminal's line.
    pub fn finish(&self) {
        if self.terminal && self.last.is_some() {
            eprintln!();
        }
    }
}

fn progress_line(p: &Progress, rate: f64) -> String {
    let Progress { urls, ended, in_flight, connected, violations, .. } = p;
    let seconds = p.took.as_secs();
    format!(
        "{seconds:>5} s  {urls} URLs  {rate:.0}/s  {ended} documents ended  {in_flight} in flight  {connected} connected  {violations} violations"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_come_is_lost_only_if_we_waited_for_it() {
        assert_eq!(losses(Ended::Silent, Some(10), 7), 3);
        assert_eq!(losses(Ended::ServerGone, Some(10), 12), 0);
        assert_eq!(losses(Ended::ServerGone, None, 7), 0);
        assert_eq!(losses(Ended::TimeUp, Some(10), 7), 0);
    }
}
