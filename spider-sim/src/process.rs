//! What another process costs, from /proc (Linux).

use std::fs;
use urlserver::time::Duration;

/// CPU time of all live threads of a process: the scheduler's own count, in nanoseconds.
pub fn cpu(pid: u32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let nanos = |path: std::path::PathBuf| -> Option<u64> {
        fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    Duration::from_nanos(tasks.flatten().filter_map(|task| nanos(task.path())).sum())
}

/// Resident bytes of a process.
pub fn rss(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0u64) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_costs_something() {
        let me = std::process::id();
        assert!(rss(me) > 100_000);
        assert!(cpu(me) > Duration::ZERO);
        assert_eq!((rss(0), cpu(0)), (0, Duration::ZERO));
    }
}
