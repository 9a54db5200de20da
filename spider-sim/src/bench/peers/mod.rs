//! What one would use instead: queue servers and a database, given the same work.
//!
//! Nothing is installed. A peer whose program is not on the machine is skipped, and that is said.

pub(in crate::bench) mod beanstalkd;
pub(in crate::bench) mod postgres;
pub(in crate::bench) mod queue;
pub(in crate::bench) mod redis;
pub(in crate::bench) mod resp;

use super::pin::Pinning;
use anyhow::{Context, bail};
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that does not listen by then never will.
const START_MAX: Duration = Duration::from_secs(60);

/// A peer's server; it ends with this value.
#[derive(Debug)]
pub(in crate::bench) struct Peer {
    child: Child,
    /// Where it listens, on loopback.
    pub(in crate::bench) port: u16,
}

impl Peer {
    /// Starts a server that has been told to listen on `port`, and waits until it does.
    pub(in crate::bench) fn start(
        command: &mut Command,
        port: u16,
        pinning: &Pinning,
        scratch: &Path,
    ) -> anyhow::Result<Peer> {
        let path = scratch.join("peer.log");
        let log = File::create(&path)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = pinning.spawn(command).with_context(|| format!("cannot start {command:?}"))?;
        let mut peer = Peer { child, port };
        let end = Instant::now() + START_MAX;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if peer.child.try_wait()?.is_some() || Instant::now() > end {
                bail!("does not start: {}", std::fs::read_to_string(&path).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(peer)
    }

    /// Its process.
    pub(in crate::bench) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A database ends its helpers if it is asked; nobody waits long, and there is nothing to save.
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let end = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody uses, for servers that do not choose one themselves.
pub(in crate::bench) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
