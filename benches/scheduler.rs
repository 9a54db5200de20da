//! The scheduler alone: nanoseconds for each operation, on worlds of different sizes, politeness off and on.
//!
//! Machines are noisy: compare lines of one run with each other, not runs with runs.

#![allow(clippy::unwrap_used, missing_docs)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant as Stopwatch;
use urlserver::document::{Candidate, Outcome};
use urlserver::ids::DocId;
use urlserver::scheduler::{Admission, Config, Pace, Rest, Scheduler};
use urlserver::time::{Duration, Instant};
use urlserver::url::Url;

fn main() {
    println!("{:>10} {:>9} {:>12} {:>12} {:>12}", "hosts", "gap", "admit ns", "send ns", "done ns");
    for hosts in [1_000, 10_000, 100_000, 1_000_000] {
        for gap in [Duration::ZERO, Duration::from_millis(100)] {
            measure(hosts, gap);
        }
    }
}

fn config(hosts: u32, gap: Duration) -> Config {
    Config {
        queue_count: hosts,
        host: Pace { concurrent: 1, gap },
        ip: Pace::FREE,
        ip_max_urls: 0,
        rest: Rest { factor: 0.0, min: Duration::ZERO, max: Duration::ZERO },
        index_is_exact: true,
        allow_private: true,
        ..Config::default()
    }
}

/// Every host has a few URLs; all are admitted, sent and done.
fn measure(hosts: u32, gap: Duration) {
    let urls_per_host = (2_000_000 / hosts).clamp(2, 50);
    let total = u64::from(hosts) * u64::from(urls_per_host);
    let mut scheduler = Scheduler::new(config(hosts, gap));
    let mut now = Instant::ZERO;
    let mut admitting = std::time::Duration::ZERO;
    for round in 0..urls_per_host {
        let batch: Vec<Candidate> = (0..hosts).map(|host| candidate(host, round, hosts)).collect();
        let watch = Stopwatch::now();
        for candidate in &batch {
            assert_eq!(scheduler.handle_candidate(now, candidate), Admission::Pending);
        }
        admitting += watch.elapsed();
    }
    let spider = scheduler.handle_spider_connected();
    let (mut sending, mut doing) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    let mut sent = Vec::new();
    while !scheduler.is_drained() {
        let watch = Stopwatch::now();
        while let Some(work) = scheduler.poll_send(now) {
            sent.push(work.trans);
            if sent.len() == 1000 {
                break;
            }
        }
        scheduler.handle_written(now, spider, sent.len());
        sending += watch.elapsed();
        let watch = Stopwatch::now();
        for trans in sent.drain(..) {
            assert!(scheduler.handle_done(now, spider, trans, Outcome::Status(200).into()));
        }
        while scheduler.poll_report(now).is_some() {}
        doing += watch.elapsed();
        let watch = Stopwatch::now();
        now = now + Duration::from_micros(50);
        scheduler.handle_timeout(now);
        sending += watch.elapsed();
    }
    let each = |time: std::time::Duration| time.as_nanos() as f64 / total as f64;
    println!(
        "{hosts:>10} {:>9} {:>12.0} {:>12.0} {:>12.0}",
        format!("{gap:?}"),
        each(admitting),
        each(sending),
        each(doing)
    );
}

fn candidate(host: u32, round: u32, hosts: u32) -> Candidate {
    let doc = u64::from(round) * u64::from(hosts) + u64::from(host) + 1;
    let url = format!("http://www.site{host:06}.example.com/section{:02}/page-{doc:07}", doc % 97);
    let address = IpAddr::V4(Ipv4Addr::from_bits((10 << 24) + host));
    Candidate {
        doc: DocId(doc),
        url: Url::parse(&url).unwrap(),
        ip: Some(address),
        wait: Duration::ZERO,
        tried: Default::default(),
    }
}
