//! What every part needs: the programs, their arguments, and a place for files.

use super::args::BenchArgs;
use super::pin::Pinning;
use super::server::{Program, Server};
use super::workload::Workload;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Everything is allowed to go at once, and to go to loopback.
const OPEN: &str = "serve --listen 127.0.0.1:0 --allow-private true --robots ignore --req-host-concurrent 1 \
                    --req-ip-concurrent inf --req-ip-per-sec inf --delay-factor 0 --ip-max-urls 0";

/// The bench's own things.
pub(super) struct Rig {
    pub(super) args: BenchArgs,
    /// The server that is measured.
    pub(super) server: Program,
    /// This program, for the servers that it is measured against.
    pub(super) ideal: Program,
    pub(super) pinning: Pinning,
    scratch: TempDir,
}

/// How a server is started.
pub(super) struct Setup<'a> {
    pub(super) hosts: u32,
    /// The setting `index`.
    pub(super) index: &'a str,
    /// The setting `req_host_per_sec`.
    pub(super) per_sec: &'a str,
    pub(super) http: bool,
    pub(super) seeds: Option<&'a Path>,
    pub(super) hosts_file: Option<&'a Path>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup { hosts: 1, index: "memory", per_sec: "inf", http: false, seeds: None, hosts_file: None }
    }
}

impl Rig {
    pub(super) fn new(args: &BenchArgs) -> anyhow::Result<Rig> {
        let me = std::env::current_exe()?;
        let beside = || me.with_file_name("urlserver");
        let pinning = Pinning::new(!args.no_pin);
        let server = Program {
            path: args.server.clone().unwrap_or_else(beside),
            more: args.server_arg.clone(),
            pinning: pinning.clone(),
        };
        let ideal = Program { path: me.clone(), more: Vec::new(), pinning: pinning.clone() };
        let scratch = match &args.scratch {
            Some(directory) => tempfile::tempdir_in(directory)?,
            None => tempfile::tempdir()?,
        };
        Ok(Rig { args: args.clone(), server, ideal, pinning, scratch })
    }

    /// A file or directory of that name, which goes with the rig.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Writes a file.
    pub(super) fn write(
        &self,
        name: &str,
        write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        let mut file = BufWriter::new(File::create(&path)?);
        write(&mut file)?;
        file.flush()?;
        Ok(path)
    }

    /// The seeds file and the hosts file of some work.
    pub(super) fn write_work(&self, work: &Workload) -> anyhow::Result<(PathBuf, PathBuf)> {
        let seeds = self.write(&format!("seeds-{}", work.hosts()), |file| work.write_seeds(file))?;
        let hosts = self.write(&format!("hosts-{}", work.hosts()), |file| work.write_hosts(file))?;
        Ok((seeds, hosts))
    }

    /// Starts the server that is measured.
    pub(super) fn start(&self, setup: &Setup<'_>) -> anyhow::Result<Server> {
        self.server.start(&setup.arguments(self.args.queue_len))
    }
}

impl Setup<'_> {
    fn arguments(&self, queue_len: u32) -> Vec<String> {
        let mut words: Vec<String> = OPEN.split_whitespace().map(str::to_owned).collect();
        let mut add = |name: &str, value: &str| words.extend([format!("--{name}"), value.to_owned()]);
        // One slot stays free: with none the server leaves what it has not taken in yet with the index, and what is
        // measured would be loading, too.
        add("queue-count", &(self.hosts + 1).to_string());
        add("queue-len", &queue_len.to_string());
        add("index", self.index);
        add("req-host-per-sec", self.per_sec);
        add("http", if self.http { "127.0.0.1:0" } else { "none" });
        for (name, path) in [("seeds", self.seeds), ("hosts-file", self.hosts_file)] {
            if let Some(path) = path {
                add(name, &path.to_string_lossy());
            }
        }
        words
    }
}
