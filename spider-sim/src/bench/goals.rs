//! What was measured, held against what was promised. A part that was not asked for is not listed; what could not be
//! measured is neither met nor missed.

use super::exactness::{Errors, Exactness};
use super::loading::Index;
use super::report::Results;
use super::throughput::{Case, Row};
use serde::Serialize;

/// One promise.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) goal: String,
    /// In words; `not measured`.
    pub(super) measured: String,
    pub(super) met: Option<bool>,
}

/// The side of a bound on which the goal is.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Bound {
    fn allows(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
            Bound::Below(bound) => value < bound,
        }
    }

    fn words(self, unit: &str) -> String {
        match self {
            Bound::AtLeast(bound) => format!("≥ {bound}{unit}"),
            Bound::AtMost(bound) => format!("≤ {bound}{unit}"),
            Bound::Below(bound) => format!("< {bound}{unit}"),
        }
    }
}

fn goal(what: impl Into<String>, bound: Bound, unit: &str, value: Option<f64>) -> Goal {
    let words =
        |value: f64| if value >= 100.0 { format!("{value:.0}{unit}") } else { format!("{value:.2}{unit}") };
    Goal {
        what: what.into(),
        goal: bound.words(unit),
        measured: value.map_or("not measured".into(), words),
        met: value.map(|value| bound.allows(value)),
    }
}

impl Goal {
    /// At a smaller size than the promise is about it can be missed, but not met.
    fn at_size(mut self, size: u64, promised: u64) -> Goal {
        if size < promised && self.met == Some(true) {
            self.met = None;
            self.measured += &format!(" (promised at {promised})");
        }
        self
    }
}

/// The promises about all parts that were measured.
pub(super) fn judge(results: &Results) -> Vec<Goal> {
    let mut hosts: Vec<u32> = results.throughput.iter().map(|row| row.hosts).collect();
    hosts.dedup();
    let mut goals: Vec<Goal> = hosts.iter().flat_map(|&hosts| throughput(results, hosts)).collect();
    goals.extend(loading(results));
    goals.extend(scale(results));
    goals.extend(results.exactness.iter().flat_map(exactness));
    goals.extend(results.idle.iter().map(|idle| {
        let what = format!("idle, {} hosts waiting: share of a core", idle.hosts);
        let share = Some(idle.cpu_share * 100.0);
        goal(what, Bound::Below(1.0), " %", share).at_size(u64::from(idle.hosts), 1_000_000)
    }));
    goals.extend(results.start.iter().map(|start| {
        let what = format!("start, {} documents: first URL after", start.documents);
        goal(what, Bound::Below(5.0), " s", Some(start.seconds.median)).at_size(start.documents, 100_000_000)
    }));
    goals
}

fn throughput(results: &Results, hosts: u32) -> Vec<Goal> {
    let row = |case: Case| results.throughput.iter().find(|row| row.case == case && row.hosts == hosts);
    let ours = row(Case::Urlserver);
    let ratio = |case: Case, value: fn(&Row) -> f64| Some(value(ours?) / value(row(case)?));
    let rate = |row: &Row| row.urls_per_sec.median;
    let cpu = |row: &Row| row.cpu_us_per_url.median;
    let named = |what: &str| format!("{what}, {hosts} hosts");
    let faster = |what: &str, case: Case, times: f64| {
        let mut goal = goal(named(what), Bound::AtLeast(times), " ×", ratio(case, rate));
        // What it would be if nobody else used the machine, and neither side ever waited.
        if let Some(more) = ratio(case, cpu) {
            goal.measured += &format!(" (by server CPU {:.2} ×)", 1.0 / more);
        }
        goal
    };
    let memory = ours.and_then(|row| Some(row.rss_bytes_per_url?.median / row.url_bytes_mean));
    let mut goals = vec![
        faster("URLs/s against Redis", Case::Redis, 10.0),
        faster("URLs/s against beanstalkd", Case::Beanstalkd, 20.0),
        faster("URLs/s against PostgreSQL", Case::Postgres, 50.0),
        faster("URLs/s against the ideal", Case::Ideal, 0.6),
        goal(named("server CPU against the ideal"), Bound::AtMost(1.5), " ×", ratio(Case::Ideal, cpu)),
    ];
    if hosts <= 100_000 {
        let bound = if hosts > 10_000 { 1.0 } else { 0.8 };
        goals.push(goal(named("RAM against the URL's length"), Bound::AtMost(bound), " ×", memory));
    }
    goals
}

/// The slower way in counts.
fn loading(results: &Results) -> Vec<Goal> {
    let slowest = |index: Index| {
        let rows = results.loading.iter().filter(|row| row.index == index);
        rows.map(|row| row.urls_per_sec.median).reduce(f64::min).map(|rate| rate / 1000.0)
    };
    let bounds = [("memory", Index::Memory, 1000.0), ("dir:", Index::Dir, 300.0)];
    let judged = bounds.into_iter().filter_map(|(name, index, bound)| {
        let rate = slowest(index)?;
        Some(goal(format!("loading into {name}, k URLs/s"), Bound::AtLeast(bound), "", Some(rate)))
    });
    judged.collect()
}

/// The cost of a URL, loading and serving, at the most hosts against the fewest.
fn scale(results: &Results) -> Vec<Goal> {
    let first = results.scale.iter().min_by_key(|row| row.hosts);
    let last = results.scale.iter().max_by_key(|row| row.hosts);
    let Some((first, last)) = first.zip(last).filter(|(first, last)| first.hosts < last.hosts) else {
        return Vec::new();
    };
    let grows = |what: &str, ratio: f64| {
        let what = format!("server CPU to {what} a URL from {} to {} hosts grows", first.hosts, last.hosts);
        goal(what, Bound::Below(2.0), " ×", Some(ratio)).at_size(u64::from(last.hosts), 10_000_000)
    };
    vec![
        grows("serve", last.cpu_us_per_url / first.cpu_us_per_url),
        grows("load", last.load_cpu_us_per_url / first.load_cpu_us_per_url),
    ]
}

fn exactness(seen: &Exactness) -> Vec<Goal> {
    let over =
        |value: fn(&Errors) -> f64| Some(((value(&seen.urlserver) - value(&seen.ideal)) / 1000.0).max(0.0));
    let named = |what: &str| format!("error of a send, {} hosts: {what}", seen.hosts);
    [
        early(named("sends that are early"), seen),
        goal(named("p99 over the ideal's"), Bound::Below(2.0), " ms", over(|errors| errors.p99_us)),
        goal(named("p99.9 over the ideal's"), Bound::Below(10.0), " ms", over(|errors| errors.p999_us)),
    ]
    .map(|goal| goal.at_size(u64::from(seen.hosts), 100_000))
    .to_vec()
}

/// The loop is never early: where it seems to be, the machine is too noisy to tell.
fn early(what: String, seen: &Exactness) -> Goal {
    let (ours, noise) = (seen.urlserver.early, seen.ideal.early);
    let mut goal = goal(what, Bound::AtMost(0.0), "", Some(ours as f64));
    goal.measured = ours.to_string();
    if ours > 0 && noise > 0 {
        goal.measured += &format!(" (the ideal, which never is: {noise})");
        goal.met = None;
    }
    goal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::idle::Idle;
    use crate::bench::report::tests::results;

    #[test]
    fn nothing_is_met_that_was_not_measured() {
        assert_eq!(judge(&Results::default()), []);
        let redis = judge(&results()).into_iter().find(|goal| goal.what.contains("beanstalkd"));
        let said = redis.map(|goal| (goal.measured, goal.met));
        assert_eq!(said, Some(("not measured".to_owned(), None)));
    }

    #[test]
    fn ratios_are_judged_at_their_bounds() {
        let goals = judge(&results());
        let met = |what: &str| goals.iter().find(|goal| goal.what.contains(what)).and_then(|goal| goal.met);
        assert_eq!(met("against Redis, 10000"), Some(true), "{goals:?}");
        assert_eq!(met("against the ideal, 10000"), Some(false), "{goals:?}");
        assert_eq!(met("server CPU against the ideal, 10000"), Some(false));
        assert_eq!(met("against PostgreSQL"), None);
        assert_eq!(met("RAM against the URL's length, 10000"), Some(true));
        assert_eq!(met("early"), Some(true));
        let early = |ours, noise| {
            let mut seen = results().exactness?;
            (seen.urlserver.early, seen.ideal.early) = (ours, noise);
            exactness(&seen)[0].met
        };
        let idle = |hosts, cpu_share| {
            let idle = Some(Idle { hosts, seconds: 10.0, cpu_share });
            judge(&Results { idle, ..Results::default() })[0].met
        };
        let judged = [idle(1_000_000, 0.001), idle(10, 0.001), idle(10, 0.5)];
        assert_eq!(judged, [Some(true), None, Some(false)], "less than promised proves nothing");
        assert_eq!(
            [early(0, 0), early(0, 9), early(1, 0), early(1, 9)],
            [Some(true), Some(true), Some(false), None]
        );
        assert!(
            Bound::AtLeast(0.6).allows(0.6)
                && Bound::AtMost(1.5).allows(1.5)
                && !Bound::Below(2.0).allows(2.0)
        );
    }
}
