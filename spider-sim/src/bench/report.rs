//! What was measured, for people and for programs.

use super::exactness::{Errors, Exactness};
use super::goals::Goal;
use super::idle::Idle;
use super::rig::Rig;
use super::start::Start;
use super::throughput::{self, Case, Skipped};
use super::{loading, scale};
use serde::Serialize;
use std::fmt;

/// Everything. What was not measured is not there.
#[derive(Clone, PartialEq, Default, Serialize, Debug)]
pub(super) struct Results {
    pub(super) pinning: String,
    pub(super) cores: usize,
    pub(super) runs: usize,
    pub(super) throughput: Vec<throughput::Row>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) loading: Vec<loading::Row>,
    pub(super) exactness: Option<Exactness>,
    pub(super) idle: Option<Idle>,
    pub(super) start: Option<Start>,
    pub(super) scale: Vec<scale::Row>,
    pub(super) goals: Vec<Goal>,
}

impl Results {
    pub(super) fn new(rig: &Rig) -> Results {
        let cores = std::fs::read_to_string("/proc/cpuinfo")
            .map_or(0, |text| text.lines().filter(|line| line.starts_with("processor")).count());
        let runs = usize::from(rig.args.runs);
        Results { pinning: rig.pinning.words(), cores, runs, ..Results::default() }
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} cores, {}; medians of {} (least – most)", self.cores, self.pinning, self.runs)?;
        if !self.throughput.is_empty() || !self.skipped.is_empty() {
            self.show_throughput(f)?;
        }
        if !self.loading.is_empty() {
            self.show_loading(f)?;
        }
        self.exactness.iter().try_for_each(|seen| show_exactness(f, seen))?;
        self.idle.iter().try_for_each(|idle| show_idle(f, *idle))?;
        self.start.iter().try_for_each(|start| show_start(f, start))?;
        if !self.scale.is_empty() {
            self.show_scale(f)?;
        }
        if !self.goals.is_empty() {
            self.show_goals(f)?;
        }
        Ok(())
    }
}

/// A table whose columns are as wide as they must be; the first is aligned to the left.
fn table(f: &mut fmt::Formatter<'_>, head: &[&str], rows: &[Vec<String>]) -> fmt::Result {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: &[String]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(at, (cell, &width))| {
                    if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        writeln!(f, "  {}", padded.join("  ").trim_end())
    };
    line(&head.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())?;
    rows.iter().try_for_each(|row| line(row))
}

impl Results {
    fn show_throughput(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nThroughput: URLs sent and acknowledged, at most one of a host in flight, no gap")?;
        let row = |row: &throughput::Row| {
            vec![
                row.case.title().to_owned(),
                row.hosts.to_string(),
                row.urls.to_string(),
                row.urls_per_sec.words(1000.0, if row.urls_per_sec.median < 1e5 { 1 } else { 0 }),
                row.cpu_us_per_url.words(1.0, if row.cpu_us_per_url.median < 1.0 { 3 } else { 2 }),
                row.rss_bytes_per_url.map_or("–".into(), |rss| rss.words(1.0, 0)),
                row.foreign_cores.words(1.0, 2),
            ]
        };
        let rows: Vec<Vec<String>> = self.throughput.iter().map(row).collect();
        let head =
            ["", "hosts", "URLs", "k URLs/s", "server CPU µs/URL", "RSS B/URL", "cores used by others"];
        table(f, &head, &rows)?;
        for Skipped { case, why } in &self.skipped {
            writeln!(f, "  {} skipped: {why}", case.word())?;
        }
        if let Some(row) = self.throughput.iter().find(|row| row.case == Case::Postgres) {
            let words = "unlogged tables, no fsync; RSS is the size of tables and indexes";
            writeln!(f, "  PostgreSQL: the first {} URLs; {words}.", row.drained)?;
        }
        let checked = self.throughput.iter().filter(|row| row.verified.is_some()).count();
        writeln!(
            f,
            "  Each URL came once, and none of a host in flight (of beanstalkd: only once): {checked} checked."
        )
    }

    fn show_loading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nLoading: URLs parsed, normalised, deduplicated and put into the index")?;
        let row = |row: &loading::Row| {
            let way = match row.way {
                loading::Way::Http => "POST /api/urls",
                loading::Way::Seeds => "--seeds",
            };
            let index = match row.index {
                loading::Index::Memory => "memory",
                loading::Index::Dir => "dir:",
            };
            let (rate, cpu) = (row.urls_per_sec.words(1000.0, 0), row.cpu_us_per_url.words(1.0, 2));
            vec![format!("{way} into {index}"), row.hosts.to_string(), row.urls.to_string(), rate, cpu]
        };
        let rows: Vec<Vec<String>> = self.loading.iter().map(row).collect();
        table(f, &["", "hosts", "URLs", "k URLs/s", "server CPU µs/URL"], &rows)
    }

    fn show_scale(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nScale: one process; hosts are addresses, URLs come over HTTP; one run each")?;
        if self.scale.iter().all(|row| row.hosts < 10_000_000) {
            writeln!(f, "  reduced: `--only scale` goes up to 10 M hosts and 100 M URLs")?;
        }
        let row = |row: &scale::Row| {
            vec![
                row.hosts.to_string(),
                row.urls.to_string(),
                format!("{:.0}", row.load_urls_per_sec / 1000.0),
                format!("{:.2}", row.load_cpu_us_per_url),
                format!("{:.0}", row.urls_per_sec / 1000.0),
                format!("{:.2}", row.cpu_us_per_url),
                format!("{:.0}", row.rss_bytes_per_url),
                format!("{:.2}", row.rss_bytes as f64 / (1u64 << 30) as f64),
            ]
        };
        let rows: Vec<Vec<String>> = self.scale.iter().map(row).collect();
        let head =
            ["hosts", "URLs", "load k/s", "load CPU µs", "serve k/s", "serve CPU µs", "RSS B/URL", "RSS GiB"];
        table(f, &head, &rows)
    }

    fn show_goals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nGoals")?;
        let row = |goal: &Goal| {
            let met = match goal.met {
                Some(true) => "met",
                Some(false) => "NOT MET",
                None => "–",
            };
            vec![goal.what.clone(), goal.goal.clone(), goal.measured.clone(), met.to_owned()]
        };
        let rows: Vec<Vec<String>> = self.goals.iter().map(row).collect();
        table(f, &["", "goal", "measured", ""], &rows)
    }
}

fn show_exactness(f: &mut fmt::Formatter<'_>, seen: &Exactness) -> fmt::Result {
    let Exactness { hosts, gap_seconds, seconds, .. } = seen;
    writeln!(f, "\nExactness: {hosts} hosts, a send to each every {gap_seconds} s, for {seconds} s")?;
    let row = |name: &str, e: &Errors| {
        let mut row = vec![name.to_owned(), e.sends.to_string(), e.early.to_string()];
        row.extend([e.min_us, e.p50_us, e.p99_us, e.p999_us, e.max_us].map(|us| format!("{us:.0}")));
        row
    };
    let rows = [row("urlserver", &seen.urlserver), row("ideal: a loop and a clock", &seen.ideal)];
    table(f, &["error in µs", "gaps", "early", "least", "p50", "p99", "p99.9", "most"], &rows)?;
    let total = seen.server_histogram.last().map_or(0, |&(_, count)| count);
    let below = |bound: f64| seen.server_histogram.iter().find(|(upper, _)| *upper >= bound);
    let shares: Vec<String> = [0.001, 0.002, 0.01]
        .iter()
        .filter_map(|&bound| below(bound))
        .map(|&(bound, n)| {
            format!("{:.3} % within {} ms", n as f64 * 100.0 / total.max(1) as f64, bound * 1e3)
        })
        .collect();
    writeln!(f, "  By its own clock (urlserver_gap_error_seconds): {}", shares.join(", "))
}

fn show_idle(f: &mut fmt::Formatter<'_>, idle: Idle) -> fmt::Result {
    let (share, seconds) = (idle.cpu_share * 100.0, idle.seconds);
    writeln!(f, "\nIdle: {} hosts waiting: {share:.3} % of a core over {seconds:.0} s", idle.hosts)
}

fn show_start(f: &mut fmt::Formatter<'_>, start: &Start) -> fmt::Result {
    let mib = f64::from(1 << 20);
    writeln!(f, "\nStart: {} documents of {} hosts in dir:", start.documents, start.hosts)?;
    writeln!(f, "  seconds from start of the process to the first URL  {}", start.seconds.words(1.0, 3))?;
    writeln!(f, "  RSS then, MiB  {}", start.rss_bytes.words(mib, 0))?;
    writeln!(f, "  on disk, MiB  {:.0}", start.disk_bytes as f64 / mib)?;
    let rate = start.documents as f64 / start.import_seconds / 1000.0;
    writeln!(f, "  made by `urlserver index import`, k documents/s  {rate:.0}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;
    use crate::bench::stats::{Bar, Spread};
    use crate::bench::throughput::Row;

    /// Twelve times Redis, half of the ideal.
    pub(crate) fn results() -> Results {
        let spread = |value: f64| Spread { median: value, min: value * 0.9, max: value * 1.1 };
        let row = |case, hosts, rate: f64, rss| Row {
            case,
            hosts,
            urls: 1_000_000,
            drained: 1_000_000,
            url_bytes_mean: 70.0,
            runs: 5,
            urls_per_sec: spread(rate),
            cpu_us_per_url: spread(1e6 / rate),
            rss_bytes_per_url: Some(spread(rss)),
            foreign_cores: spread(0.1),
            verified: None,
        };
        let errors = |width: f64| Errors {
            sends: 300_000,
            early: 0,
            min_us: -width,
            p50_us: width,
            p99_us: 2.0 * width,
            p999_us: 3.0 * width,
            max_us: 9.0 * width,
            histogram: (0..4)
                .map(|n| Bar { from: f64::from(n), to: f64::from(n + 1), share: 0.25 })
                .collect(),
        };
        let exactness = Exactness {
            hosts: 100_000,
            gap_seconds: 10.0,
            seconds: 45.0,
            urlserver: errors(100.0),
            ideal: errors(50.0),
            server_histogram: vec![(0.001, 99), (0.01, 100)],
        };
        let rows = [10_000, 100_000].into_iter().flat_map(|hosts| {
            [
                row(Case::Urlserver, hosts, 1_200_000.0, 50.0),
                row(Case::Ideal, hosts, 2_400_000.0, 90.0),
                row(Case::Redis, hosts, 100_000.0, 91.0),
            ]
        });
        let skipped =
            vec![Skipped { case: Case::Beanstalkd, why: "beanstalkd is not on this machine".into() }];
        Results { throughput: rows.collect(), skipped, exactness: Some(exactness), ..Results::default() }
    }

    #[test]
    fn the_table_says_what_was_skipped_and_what_is_not_met() {
        let mut results = results();
        results.goals = super::super::goals::judge(&results);
        let text = results.to_string();
        for words in [
            "beanstalkd skipped: beanstalkd is not on this machine",
            "1200 (1080 – 1320)",
            "NOT MET",
            "not measured",
            "99.000 % within 1 ms",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.lines().all(|line| line == line.trim_end()));
    }

    #[test]
    fn json_is_one_object() {
        let json = serde_json::to_value(results()).unwrap();
        assert_eq!(json["throughput"][0]["case"], "urlserver");
        assert_eq!(json["skipped"][0]["case"], "beanstalkd");
        assert!(json["idle"].is_null());
    }
}
