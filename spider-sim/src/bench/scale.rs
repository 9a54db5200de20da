//! One process with very many hosts and URLs: it loads them, it serves them all, and what each costs.
//!
//! Hosts are addresses (`http://127.1.0.1/…`): the server needs no name server and no hosts file for them, which
//! would cost memory that a crawl of names does not pay. URLs are streamed over HTTP, never held by anybody else.

use super::client;
use super::feed;
use super::rig::{Rig, Setup};
use super::workload::{Names, Workload};
use serde::Serialize;
use std::time::Instant;

/// Unless somebody wants something else.
const HOSTS: [u32; 3] = [10_000, 100_000, 1_000_000];
/// What the goal says; takes minutes, and some GiB.
const HOSTS_BIG: u32 = 10_000_000;
/// Fewer are over before they can be measured.
const URLS_MIN: u32 = 1_000_000;

/// What one size came to.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(super) struct Row {
    pub(super) hosts: u32,
    pub(super) urls: u64,
    pub(super) url_bytes_mean: f64,
    pub(super) load_urls_per_sec: f64,
    pub(super) load_cpu_us_per_url: f64,
    /// Sent and acknowledged, in the steady part.
    pub(super) urls_per_sec: f64,
    pub(super) cpu_us_per_url: f64,
    /// Loaded minus empty.
    pub(super) rss_bytes_per_url: f64,
    /// Loaded, all of it.
    pub(super) rss_bytes: u64,
}

/// One size after the other.
pub(super) fn measure(rig: &Rig, is_selection: bool) -> anyhow::Result<Vec<Row>> {
    let mut sizes = rig.args.scale_hosts.clone();
    if sizes.is_empty() {
        sizes.extend(HOSTS);
        sizes.extend(is_selection.then_some(HOSTS_BIG));
    }
    sizes.iter().map(|&hosts| measure_one(rig, hosts)).collect()
}

fn measure_one(rig: &Rig, hosts: u32) -> anyhow::Result<Row> {
    let most = rig.args.scale_urls.min(hosts.saturating_mul(super::workload::HOST_SIZE_MAX));
    let urls = hosts.saturating_mul(10).max(URLS_MIN).min(most).max(hosts);
    eprintln!("  {urls} URLs on {hosts} hosts");
    let work = Workload::skewed(Names::Addresses, hosts, urls);
    let server = rig.start(&Setup { hosts, http: true, ..Setup::default() })?;
    server.wait_calm(0)?;
    let (empty, cpu, start) = (server.rss(), server.cpu(), Instant::now());
    feed::post(&server.http, &work)?;
    let load_seconds = start.elapsed().as_secs_f64();
    server.wait_calm(u64::from(urls))?;
    let load_cpu = server.cpu().saturating_sub(cpu);
    let rss = server.rss();
    let drained = client::drain(&mut client::connect(&server.listen)?, u64::from(urls), || server.cpu())?;
    let each = f64::from(urls);
    Ok(Row {
        hosts,
        urls: u64::from(urls),
        url_bytes_mean: work.url_bytes_mean(),
        load_urls_per_sec: each / load_seconds,
        load_cpu_us_per_url: load_cpu.as_secs_f64() * 1e6 / each,
        urls_per_sec: drained.per_sec,
        cpu_us_per_url: drained.cpu_us,
        rss_bytes_per_url: rss.saturating_sub(empty) as f64 / each,
        rss_bytes: rss,
    })
}
