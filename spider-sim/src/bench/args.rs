//! The command line of `bench`: what is measured, and how much of it.

use super::throughput::Case;
use super::workload::{HOST_SIZE_MAX, HOSTS_MAX};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// `bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The server's binary [default: `urlserver` beside this program]
    #[arg(long, value_name = "PATH")]
    pub(super) server: Option<PathBuf>,
    /// One more argument for the server; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub(super) server_arg: Vec<String>,
    /// Only these, separated by commas: cases (urlserver, ideal, floor, redis, beanstalkd, postgres), parts
    /// (throughput = all cases, loading, exactness, idle, start, scale) [default: everything, scale reduced]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// Repetitions, in which the cases take turns; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) runs: u8,
    /// One JSON object instead of a table
    #[arg(long)]
    pub(super) json: bool,
    /// Draw throughput.svg and exactness.svg into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) plots: Option<PathBuf>,
    /// Where indexes and other files are put while they are needed [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(super) scratch: Option<PathBuf>,
    /// Leave it to the system which core runs what
    #[arg(long)]
    pub(super) no_pin: bool,

    /// Hosts, one or several numbers with commas
    #[arg(long, value_delimiter = ',', default_value = "10000,100000", value_parser = hosts(), help_heading = "Throughput")]
    pub(super) hosts: Vec<u32>,
    /// URLs; at least as many as hosts, at most 1000 per host
    #[arg(long, default_value_t = 1_000_000, help_heading = "Throughput")]
    pub(super) urls: u32,
    /// Let them end in letters at random, so that they have less in common; of urlserver and the ideal structure only
    #[arg(long, help_heading = "Throughput")]
    pub(super) unlike: bool,
    /// How many of them PostgreSQL shall send, which takes long
    #[arg(long, default_value_t = 200_000, help_heading = "Throughput")]
    pub(super) postgres_urls: u32,
    /// The server's `queue_len` [default: room for every URL]
    #[arg(long, default_value_t = HOST_SIZE_MAX + 1, hide_default_value = true, help_heading = "Throughput")]
    pub(super) queue_len: u32,

    /// URLs to load, on a hundredth of as many hosts
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100..), help_heading = "Loading")]
    pub(super) load_urls: u32,

    /// Hosts
    #[arg(long, default_value_t = 100_000, value_parser = hosts(), help_heading = "Exactness")]
    pub(super) exact_hosts: u32,
    /// Time between two sends to one host
    #[arg(long, value_parser = crate::cli::seconds, default_value = "10", help_heading = "Exactness")]
    pub(super) exact_gap: Duration,
    /// How long it is watched
    #[arg(long, value_parser = crate::cli::seconds, default_value = "45", help_heading = "Exactness")]
    pub(super) exact_seconds: Duration,

    /// Hosts that all wait for their clocks
    #[arg(long, default_value_t = 1_000_000, value_parser = hosts(), help_heading = "Idle")]
    pub(super) idle_hosts: u32,
    /// How long it is watched
    #[arg(long, value_parser = crate::cli::seconds, default_value = "10", help_heading = "Idle")]
    pub(super) idle_seconds: Duration,

    /// Documents in the directory, on a hundredth of as many hosts; 100000000 is what the goal says
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Start")]
    pub(super) documents: u32,

    /// Hosts, several numbers with commas [default: 10000,100000,1000000, and 10000000 with --only scale]
    #[arg(long, value_delimiter = ',', value_parser = hosts(), help_heading = "Scale")]
    pub(super) scale_hosts: Vec<u32>,
    /// Most URLs; there are ten per host, and a million at least
    #[arg(long, default_value_t = 100_000_000, help_heading = "Scale")]
    pub(super) scale_urls: u32,
}

fn hosts() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(HOSTS_MAX))
}

/// A part of the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Throughput,
    Loading,
    Exactness,
    Idle,
    Start,
    Scale,
}

impl Part {
    const ALL: [Part; 6] =
        [Part::Throughput, Part::Loading, Part::Exactness, Part::Idle, Part::Start, Part::Scale];

    pub(super) fn words(self) -> &'static str {
        match self {
            Part::Throughput => "throughput",
            Part::Loading => "loading",
            Part::Exactness => "exactness",
            Part::Idle => "idle",
            Part::Start => "start",
            Part::Scale => "scale",
        }
    }
}

/// What is to be measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Parts {
    parts: Vec<Part>,
    /// Of the throughput.
    pub(super) cases: Vec<Case>,
    /// Somebody chose.
    pub(super) is_selection: bool,
}

impl Parts {
    pub(super) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

impl BenchArgs {
    /// What is to be measured, or what is wrong with it.
    pub(super) fn parts(&self) -> Result<Parts, String> {
        let everything = self.only.is_empty();
        let mut parts = if everything { Part::ALL.to_vec() } else { Vec::new() };
        let mut cases = if everything { Case::ALL.to_vec() } else { Vec::new() };
        for word in &self.only {
            if let Some(&case) = Case::ALL.iter().find(|case| case.word() == word) {
                cases.push(case);
                parts.push(Part::Throughput);
            } else if let Some(&part) = Part::ALL.iter().find(|part| part.words() == word) {
                parts.push(part);
                if part == Part::Throughput {
                    cases = Case::ALL.to_vec();
                }
            } else {
                return Err(format!("--only {word}: there is no such case or part"));
            }
        }
        if parts.contains(&Part::Throughput) {
            self.check_sizes()?;
        }
        // In the order in which they are shown, each once.
        let cases = Case::ALL.into_iter().filter(|case| cases.contains(case)).collect();
        Ok(Parts { parts, cases, is_selection: !everything })
    }

    fn check_sizes(&self) -> Result<(), String> {
        let fits = |&hosts: &u32| self.urls >= hosts && self.urls / HOST_SIZE_MAX <= hosts;
        match self.hosts.iter().find(|hosts| !fits(hosts)) {
            Some(hosts) => Err(format!(
                "--urls {} on {hosts} hosts: at least one and at most {HOST_SIZE_MAX} per host expected",
                self.urls
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn parse(line: &str) -> BenchArgs {
        Line::try_parse_from(std::iter::once("bench").chain(line.split_whitespace())).unwrap().args
    }

    #[test]
    fn everything_unless_somebody_chooses() {
        let all = parse("").parts().unwrap();
        assert_eq!((all.cases.len(), all.is_selection), (6, false));
        assert!(Part::ALL.iter().all(|&part| all.has(part)));
        let some = parse("--only ideal,urlserver,idle").parts().unwrap();
        assert_eq!(some.cases, [Case::Urlserver, Case::Ideal]);
        assert!(some.has(Part::Throughput) && some.has(Part::Idle) && !some.has(Part::Scale));
        let one = parse("--only scale").parts().unwrap();
        assert!(one.cases.is_empty() && !one.has(Part::Throughput));
    }

    #[test]
    fn what_cannot_be_is_named() {
        assert!(parse("--only kafka").parts().unwrap_err().contains("kafka"));
        assert!(parse("--hosts 9 --urls 5").parts().unwrap_err().contains("9 hosts"));
        assert!(parse("--hosts 10,2000000").parts().unwrap_err().contains("10 hosts"));
        assert!(parse("--hosts 9 --urls 5 --only idle").parts().is_ok());
    }

    #[test]
    fn hosts_are_one_or_several() {
        assert_eq!(parse("--hosts 10000").hosts, [10_000]);
        assert_eq!(parse("").hosts, [10_000, 100_000]);
    }
}
