//! URLs into the server, over HTTP and from a file, into RAM and into a directory.

use super::feed;
use super::rig::{Rig, Setup};
use super::server::Server;
use super::stats::Spread;
use super::workload::{Names, Workload};
use anyhow::bail;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where they go.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub(super) enum Index {
    Memory,
    Dir,
}

/// How they come.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    Http,
    Seeds,
}

/// What one way came to.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(super) struct Row {
    pub(super) index: Index,
    pub(super) way: Way,
    pub(super) urls: u64,
    pub(super) hosts: u32,
    pub(super) urls_per_sec: Spread,
    pub(super) cpu_us_per_url: Spread,
}

struct Sample {
    per_sec: f64,
    cpu_us: f64,
}

struct Work {
    load: Workload,
    seeds: PathBuf,
    hosts: PathBuf,
}

/// All four, taking turns.
pub(super) fn measure(rig: &Rig) -> anyhow::Result<Vec<Row>> {
    let load = Workload::skewed(Names::Sites, rig.args.load_urls / 100, rig.args.load_urls);
    let (seeds, hosts) = rig.write_work(&load)?;
    let work = Work { load, seeds, hosts };
    let ways = [
        (Index::Memory, Way::Http),
        (Index::Memory, Way::Seeds),
        (Index::Dir, Way::Http),
        (Index::Dir, Way::Seeds),
    ];
    let mut samples = ways.map(|_| Vec::new());
    for number in 1..=rig.args.runs {
        for ((index, way), samples) in ways.iter().zip(&mut samples) {
            eprintln!("  run {number} of {}: {index:?}, {way:?}", rig.args.runs);
            samples.push(load_once(rig, &work, *index, *way)?);
        }
    }
    let row = |((index, way), samples): ((Index, Way), &Vec<Sample>)| {
        Some(Row {
            index,
            way,
            urls: work.load.urls(),
            hosts: work.load.hosts(),
            urls_per_sec: Spread::of(samples.iter().map(|sample| sample.per_sec))?,
            cpu_us_per_url: Spread::of(samples.iter().map(|sample| sample.cpu_us))?,
        })
    };
    Ok(ways.into_iter().zip(&samples).filter_map(row).collect())
}

/// Until all are accepted. What the server does with them afterwards is not counted, what it does meanwhile is.
fn load_once(rig: &Rig, work: &Work, index: Index, way: Way) -> anyhow::Result<Sample> {
    let directory = tempfile::tempdir_in(rig.path(""))?;
    let place = match index {
        Index::Memory => "memory".to_owned(),
        Index::Dir => format!("dir:{}", directory.path().display()),
    };
    let mut setup = Setup {
        hosts: work.load.hosts(),
        index: &place,
        http: way == Way::Http,
        hosts_file: Some(&work.hosts),
        ..Setup::default()
    };
    setup.seeds = (way == Way::Seeds).then_some(&*work.seeds);
    let server = rig.start(&setup)?;
    // A file is begun to be read when the server is ready.
    let (start, cpu) = (Instant::now(), server.cpu());
    match way {
        Way::Http => feed::post(&server.http, &work.load)?,
        Way::Seeds => wait_seeds(&server, work.load.urls())?,
    }
    let (took, used) = (start.elapsed(), server.cpu().saturating_sub(cpu));
    let urls = work.load.urls() as f64;
    Ok(Sample { per_sec: urls / took.as_secs_f64(), cpu_us: used.as_secs_f64() * 1e6 / urls })
}

/// The server's log says when a file has been read, and what became of it.
fn wait_seeds(server: &Server, urls: u64) -> anyhow::Result<()> {
    let line = server.wait_log("seeds read", Duration::from_secs(600))?;
    // Colours may stand between a name and its value.
    if !line.contains(&urls.to_string()) {
        bail!("not all of {urls} seeds were taken: {line}");
    }
    Ok(())
}
