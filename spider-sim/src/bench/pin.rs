//! Server and client on a core each, so that they take nothing from one another.
//!
//! A process inherits the core of the thread that starts it: nothing is needed that the kernel has not.

use std::io;
use std::process::{Child, Command};

/// Where server and client run.
#[derive(Clone, Debug)]
pub(super) struct Pinning {
    cores: Option<(usize, usize)>,
    why_not: &'static str,
}

impl Pinning {
    /// The first two cores that this process may use: one for servers, one for this thread, from now on.
    pub(super) fn new(wanted: bool) -> Pinning {
        let none = |why_not| Pinning { cores: None, why_not };
        if !wanted {
            return none("not wanted");
        }
        match allowed()[..] {
            [server, client, ..] if run_on(client).is_ok() => {
                Pinning { cores: Some((server, client)), why_not: "" }
            }
            [_, _, ..] => none("the system refuses"),
            [_] => none("there is one core only"),
            [] => none("this system cannot"),
        }
    }

    /// Starts a process on the server's core.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let Some((server, client)) = self.cores else { return command.spawn() };
        run_on(server)?;
        let child = command.spawn();
        run_on(client)?;
        child
    }

    /// For people.
    pub(super) fn words(&self) -> String {
        match self.cores {
            Some((server, client)) => format!("server on core {server}, client on core {client}"),
            None => format!("not pinned to cores ({})", self.why_not),
        }
    }
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

#[cfg(target_os = "linux")]
fn run_on(core: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn run_on(_: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Timers of this thread as exact as the kernel has them.
pub(super) fn exact_timers() {
    #[cfg(target_os = "linux")]
    // Where it is refused, timers are 50 µs late.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_server_runs_where_the_client_does_not() {
        // In a thread of its own: the others of this process keep their cores.
        let pinned = std::thread::spawn(|| {
            let pinning = Pinning::new(true);
            let mut command = Command::new("sh");
            command.args(["-c", "grep Cpus_allowed_list /proc/self/status"]);
            let output = pinning.spawn(command.stdout(std::process::Stdio::piped()));
            let said =
                output.and_then(|child| child.wait_with_output()).map(|o| o.stdout).unwrap_or_default();
            (pinning.cores, allowed(), String::from_utf8_lossy(&said).into_owned())
        });
        let Ok((cores, mine, said)) = pinned.join() else { panic!("no thread") };
        if let Some((server, client)) = cores {
            assert_eq!(mine, [client]);
            assert_eq!(said.split_whitespace().last(), Some(server.to_string().as_str()), "{said}");
        }
        assert!(Pinning::new(false).words().contains("not wanted"));
    }
}
