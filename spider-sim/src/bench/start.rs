//! From the start of the process to the first URL at a spider, with very many documents in a directory.

use super::client::{self, Lines};
use super::process;
use super::rig::{Rig, Setup};
use super::stats::Spread;
use super::workload::{Names, Workload};
use anyhow::{Context, bail};
use serde::Serialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What it came to.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(super) struct Start {
    pub(super) documents: u64,
    pub(super) hosts: u32,
    /// From the start of the process to the first line.
    pub(super) seconds: Spread,
    /// Resident when that line came.
    pub(super) rss_bytes: Spread,
    pub(super) disk_bytes: u64,
    /// Time that `urlserver index import` took to make the directory.
    pub(super) import_seconds: f64,
}

/// The directory is made once; between starts the server is asked to end. What the system holds of its files stays in
/// RAM.
pub(super) fn measure(rig: &Rig) -> anyhow::Result<Start> {
    let hosts = (rig.args.documents / 100).clamp(1, super::workload::HOSTS_MAX);
    let work = Workload::skewed(Names::Addresses, hosts, rig.args.documents);
    let directory = rig.path("documents");
    let start = Instant::now();
    import(rig, &work)?;
    let import_seconds = start.elapsed().as_secs_f64();
    let disk_bytes = bytes_in(&directory)?;
    let index = format!("dir:{}", directory.display());
    let (mut seconds, mut rss) = (Vec::new(), Vec::new());
    for number in 1..=rig.args.runs {
        eprintln!("  run {number} of {}", rig.args.runs);
        let server = rig.start(&Setup { hosts, index: &index, ..Setup::default() })?;
        let mut stream = client::connect(&server.listen)?;
        let (mut lines, mut first) = (Lines::default(), None);
        while first.is_none() {
            let each = |_: &[u8]| {
                first.get_or_insert_with(Instant::now);
                Ok(())
            };
            if lines.read(&mut stream, each)? == 0 {
                bail!("the server closed");
            }
        }
        seconds.extend(first.map(|first| (first - server.started).as_secs_f64()));
        rss.push(process::rss(server.pid()) as f64);
        drop(stream);
        server.stop()?;
    }
    let documents = work.urls();
    let seconds = Spread::of(seconds).context("never started")?;
    let rss_bytes = Spread::of(rss).context("never started")?;
    Ok(Start { documents, hosts, seconds, rss_bytes, disk_bytes, import_seconds })
}

/// Of all files.
fn bytes_in(directory: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(directory)?.try_fold(0, |bytes, entry| {
        let (path, data) = (entry.as_ref().map(|e| e.path()), entry.as_ref().map(|e| e.metadata()));
        match (path, data) {
            (Ok(path), Ok(Ok(data))) if data.is_dir() => Ok(bytes + bytes_in(&path)?),
            (_, Ok(Ok(data))) => Ok(bytes + data.len()),
            // It may have gone since.
            _ => Ok(bytes),
        }
    })
}

/// `urlserver index import`, through a pipe.
fn import(rig: &Rig, work: &Workload) -> anyhow::Result<()> {
    let mut command = Command::new(&rig.server.path);
    command.args(["index", "import"]).arg(rig.path("documents")).arg("-");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let mut child = rig.pinning.spawn(&mut command)?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let written = work.write_seeds(&mut stdin);
    drop(stdin);
    let status = child.wait()?;
    written?;
    if !status.success() {
        bail!("urlserver index import: {status}");
    }
    Ok(())
}
