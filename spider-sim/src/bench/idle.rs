//! Very many hosts that all wait for their clocks, and nothing to do: what that costs.

use super::client;
use super::feed;
use super::rig::{Rig, Setup};
use super::workload::{Names, Workload};
use serde::Serialize;
use std::time::Instant;

/// What it came to.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub(super) struct Idle {
    pub(super) hosts: u32,
    pub(super) seconds: f64,
    /// Share of one core.
    pub(super) cpu_share: f64,
}

/// Every host has sent one URL, and has another for much later; the client stays.
pub(super) fn measure(rig: &Rig) -> anyhow::Result<Idle> {
    let hosts = rig.args.idle_hosts;
    let work = Workload::even(Names::Addresses, hosts, 2);
    let server = rig.start(&Setup { hosts, http: true, per_sec: "0.0001", ..Setup::default() })?;
    feed::post(&server.http, &work)?;
    let mut stream = client::connect(&server.listen)?;
    client::take_all(&mut stream, u64::from(hosts))?;
    server.wait_calm(work.urls())?;
    let (cpu, start) = (server.cpu(), Instant::now());
    std::thread::sleep(rig.args.idle_seconds);
    let (used, seconds) = (server.cpu().saturating_sub(cpu), start.elapsed().as_secs_f64());
    Ok(Idle { hosts, seconds, cpu_share: used.as_secs_f64() / seconds })
}
