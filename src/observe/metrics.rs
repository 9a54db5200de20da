//! The figures for Prometheus, with conventional names: `urlserver_` before, the unit and `_total` behind.

use crate::scheduler::{Histogram, Stats, Timings};
use crate::time::Duration;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;

/// How things stood when the figures were asked for.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What the scheduler counts.
    pub scheduler: Stats,
    /// How long things took.
    pub timings: Timings,
    /// What is counted between the server and its index.
    pub index: Vec<(&'static str, u64)>,
    /// Whether the index can be reached.
    pub index_up: bool,
    /// Lines of spiders that made no sense.
    pub malformed_lines: u64,
    /// Candidates that were given up before the scheduler saw them.
    pub faulty_candidates: u64,
    /// Writes of what hosts are owed that have failed.
    pub politeness_failures: u64,
    /// Since the start.
    pub uptime: Duration,
}

/// The media type of [`classic`].
pub const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The media type of [`open`].
pub const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All figures as OpenMetrics text.
pub fn open(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("urlserver");
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// All figures in the older text format: there a counter is described by its whole name, and there is no end mark.
pub fn classic(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let text = open(snapshot)?;
    let counters: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut older = String::with_capacity(text.len());
    for line in text.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(&name) => {
                older.extend(["# ", what, " ", name, "_total ", rest, "\n"]);
            }
            _ => older.extend([line, "\n"]),
        }
    }
    Ok(older)
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, value) in self.counters() {
            one(&mut encoder, name, help, &ConstCounter::new(value))?;
        }
        // Requests are counted by the scheduler already.
        for (name, value) in self.index.iter().filter(|(name, _)| *name != "requests") {
            let name = format!("index_{name}");
            one(
                &mut encoder,
                &name,
                "Counted between the server and its document index",
                &ConstCounter::new(*value),
            )?;
        }
        for (name, help, value) in self.gauges() {
            one(&mut encoder, name, help, &ConstGauge::new(value))?;
        }
        let help = "Time since the start";
        one(&mut encoder, "uptime_seconds", help, &ConstGauge::new(self.uptime.as_secs_f64()))?;
        for (name, help, histogram) in self.histograms() {
            encode_histogram(&mut encoder, name, help, histogram)?;
        }
        Ok(())
    }
}

impl Snapshot {
    fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        let counted = &self.scheduler.counters;
        vec![
            ("sent", "URLs sent to spiders", counted.sent),
            ("done", "Documents that ended DONE", counted.done),
            ("failed", "Documents that ended FAILED", counted.failed + self.faulty_candidates),
            ("denied", "Documents that ended DENIED", counted.denied),
            ("retried", "Sends that ended without ending their document", counted.retried),
            ("expired", "Sends that nothing was said of in time", counted.expired),
            ("stale_status", "Statuses for what was not in flight on their connection", counted.stale_status),
            ("malformed_lines", "Lines of spiders that made no sense", self.malformed_lines),
            ("duplicate_candidates", "Candidates whose document was pending already", counted.duplicates),
            ("faulty_candidates", "Candidates that could not be used", self.faulty_candidates),
            ("politeness_failures", "Writes of politeness.log that failed", self.politeness_failures),
            ("index_requests", "Questions put to the document index", counted.index_requests),
            ("lookups", "Questions put to name servers", counted.lookups),
            ("lookups_unanswered", "Questions that no name server answered", counted.lookups_unanswered),
            ("addresses_down", "Times that an address was marked down", counted.addresses_down),
            ("holds", "Holds after 429 or 503", counted.holds),
        ]
    }

    fn gauges(&self) -> Vec<(&'static str, &'static str, u64)> {
        let now = &self.scheduler;
        vec![
            ("queued", "URLs in slots that are not in flight", now.queued),
            ("leftover", "URLs beyond the slots", now.leftover),
            ("in_flight", "URLs with spiders", now.in_flight),
            ("slots", "Host slots there are", now.slots),
            ("slots_bound", "Host slots that have a host", now.slots_bound),
            ("spiders", "Spiders connected", now.spiders),
            ("hosts", "Hosts known", now.hosts),
            ("addresses", "Addresses known", now.addresses),
            ("waiting_spider", "Slots that wait for a spider with room", now.waiting.ready),
            ("waiting_host", "Slots that wait for their own host", now.waiting.host),
            ("waiting_ip", "Slots that wait for an address", now.waiting.ip),
            ("waiting_group", "Slots that wait for an alias or a group", now.waiting.group),
            ("waiting_address", "Hosts whose address is being asked for", now.unresolved),
            ("waiting_time", "Documents that wait for a retry or for their time", now.waiting_documents),
            ("benched", "Hosts that have given up their slot for a while", now.benched),
            ("index_up", "Whether the document index can be reached", u64::from(self.index_up)),
        ]
    }

    fn histograms(&self) -> [(&'static str, &'static str, &Histogram); 3] {
        let Timings { send_delay, gap_error, fetch } = &self.timings;
        [
            (
                "send_delay_seconds",
                "Time from when a URL might go to when its line was written, waiting for a spider included",
                send_delay,
            ),
            (
                "gap_error_seconds",
                "The same, of sends that waited for a clock: how much longer the gap was than it had to be",
                gap_error,
            ),
            ("fetch_duration_seconds", "Time from when a line was written to its DONE", fetch),
        ]
    }
}

fn one(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn encode_histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    histogram: &Histogram,
) -> fmt::Result {
    let bound = |bound: Option<Duration>| bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
    let buckets: Vec<(f64, u64)> = histogram.buckets().map(|(upper, n)| (bound(upper), n)).collect();
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(histogram.sum().as_secs_f64(), histogram.count(), &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let mut scheduler = Stats { queued: 7, ..Stats::default() };
        scheduler.counters.sent = 5;
        Snapshot {
            scheduler,
            timings: Timings::default(),
            index: vec![("added", 3)],
            index_up: true,
            malformed_lines: 0,
            faulty_candidates: 0,
            politeness_failures: 0,
            uptime: Duration::from_millis(1_500),
        }
    }

    #[test]
    fn counters_end_in_total_in_both_formats() {
        let open = open(snapshot()).expect("text");
        assert!(open.contains("# TYPE urlserver_sent counter\nurlserver_sent_total 5\n"), "{open}");
        assert!(open.ends_with("# EOF\n"));
        let classic = classic(snapshot()).expect("text");
        assert!(
            classic.contains("# TYPE urlserver_sent_total counter\nurlserver_sent_total 5\n"),
            "{classic}"
        );
        assert!(classic.contains("# HELP urlserver_sent_total URLs sent to spiders"));
        assert!(classic.contains("urlserver_index_added_total 3\n"));
        assert!(classic.contains("# TYPE urlserver_queued gauge\nurlserver_queued 7\n"));
        assert!(classic.contains("urlserver_uptime_seconds 1.5\n"));
        assert!(!classic.contains("EOF"));
    }

    #[test]
    fn histograms_count_up_to_infinity() {
        let text = classic(snapshot()).expect("text");
        for name in ["send_delay", "gap_error", "fetch_duration"] {
            assert!(text.contains(&format!("# TYPE urlserver_{name}_seconds histogram\n")), "{text}");
            assert!(text.contains(&format!("urlserver_{name}_seconds_bucket{{le=\"+Inf\"}} 0\n")), "{text}");
            assert!(text.contains(&format!("urlserver_{name}_seconds_count 0\n")));
        }
    }
}
