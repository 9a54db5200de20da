//! What other processes cost, from /proc (Linux), and where programs are.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kernel's unit of time in `/proc/*/stat`, the same on every Linux that people run.
const TICKS_PER_SEC: u64 = 100;

/// CPU time of all live threads of a process: the scheduler's own count, in nanoseconds.
pub(super) fn cpu(pid: u32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let nanos = |path: PathBuf| -> Option<u64> {
        fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    Duration::from_nanos(tasks.flatten().filter_map(|task| nanos(task.path())).sum())
}

/// CPU time of a process and all below it, those that have ended included.
pub(super) fn cpu_of_tree(root: u32) -> Duration {
    let stats: HashMap<u32, Stat> = all().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
    let is_below = |mut pid: u32| {
        while let Some(stat) = stats.get(&pid).filter(|_| pid != root) {
            pid = stat.parent;
        }
        pid == root
    };
    let ended = stats.get(&root).map_or(Duration::ZERO, |stat| stat.ended);
    stats.keys().filter(|&&pid| is_below(pid)).map(|&pid| cpu(pid)).sum::<Duration>() + ended
}

fn all() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// A line of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    /// CPU time of children that have been waited for.
    ended: Duration,
}

impl Stat {
    fn read(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name, in brackets, may contain anything: fields are counted from the last bracket.
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let ticks = number(13)? + number(14)?;
        Some(Stat {
            parent: u32::try_from(number(1)?).ok()?,
            ended: Duration::from_millis(ticks * 1000 / TICKS_PER_SEC),
        })
    }
}

/// Resident bytes of a process.
pub(super) fn rss(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0u64) * 1024
}

/// Time that all cores together were busy, and that the machine was kept from running, since it started.
pub(super) fn machine() -> (Duration, Duration) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|f| f.parse().ok())
        .collect();
    let ticks = |at: &[usize]| at.iter().map(|&at| fields.get(at).copied().unwrap_or(0)).sum::<u64>();
    let time = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS_PER_SEC);
    (time(ticks(&[0, 1, 2, 5, 6])), time(ticks(&[7])))
}

/// A directory with all of these programs: of `PATH`, or the last in order of `more`.
pub(super) fn directory_of(programs: &[&str], more: &[PathBuf]) -> Option<PathBuf> {
    let has_all = |dir: &Path| programs.iter().all(|program| dir.join(program).is_file());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut more = more.to_vec();
    more.sort();
    std::env::split_paths(&path).chain(more.into_iter().rev()).find(|dir| has_all(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_costs_something() {
        let me = std::process::id();
        assert!(rss(me) > 100_000);
        assert!(cpu(me) > Duration::ZERO);
        assert!(cpu_of_tree(me) >= Duration::from_nanos(1));
        assert_eq!((rss(0), cpu(0)), (0, Duration::ZERO));
        assert!(machine().0 > Duration::ZERO);
    }

    #[test]
    fn a_stat_line_is_read_from_its_end() {
        let line = "17 (a ) b) S 5 17 17 0 -1 4194560 1 2 3 4 10 20 300 150 20 0 1 0 9";
        let stat = Stat::parse(line).map(|stat| (stat.parent, stat.ended));
        assert_eq!(stat, Some((5, Duration::from_millis(4500))));
        assert!(Stat::parse("17 (a) S").is_none());
    }

    #[test]
    fn programs_are_looked_for_in_path_and_elsewhere() {
        assert!(directory_of(&["sh"], &[]).is_some());
        assert_eq!(directory_of(&["no-such-program"], &[PathBuf::from("/bin")]), None);
    }
}
