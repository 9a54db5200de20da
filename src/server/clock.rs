//! The only place that reads a clock.

use crate::politeness::Stamp;
use crate::time::{Duration, Instant};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Monotonic time since the server started. A jump of the wall clock does not touch it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// Starts it.
    pub(super) fn start() -> Clock {
        Clock { start: std::time::Instant::now() }
    }

    /// The time.
    pub(super) fn now(&self) -> Instant {
        Instant::from_micros(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The system's instant that is not before `instant`, for a timer to sleep on.
    pub(super) fn to_system(self, instant: Instant) -> Option<std::time::Instant> {
        self.start.checked_add(Duration::from_micros(instant.as_micros()))
    }

    /// An instant of the system as ours.
    pub(super) fn at(&self, instant: std::time::Instant) -> Instant {
        let since = instant.saturating_duration_since(self.start);
        Instant::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    /// Wall-clock time since 1970, for dates that web servers send. Decides nothing else.
    pub(super) fn since_1970() -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// Time that is the same for all lives of the server between two starts of the machine, where the system tells it.
pub(super) struct BootClock {
    boot: Box<str>,
    uptime: Option<File>,
}

impl BootClock {
    pub(super) fn start() -> BootClock {
        let uptime = File::open("/proc/uptime").ok();
        let mut boot = String::new();
        let known =
            File::open("/proc/sys/kernel/random/boot_id").and_then(|mut file| file.read_to_string(&mut boot));
        let clock = BootClock { boot: boot.trim().into(), uptime };
        if known.is_ok() && clock.uptime().is_some() {
            clock
        } else {
            BootClock { boot: "".into(), uptime: None }
        }
    }

    /// Now. If the time since the start of the machine cannot be read, the stamp says so by naming no start.
    pub(super) fn stamp(&self) -> Stamp {
        let unix = Clock::since_1970();
        match self.uptime() {
            Some(uptime) => Stamp { boot: self.boot.clone(), uptime, unix },
            None => Stamp { boot: "".into(), uptime: Duration::ZERO, unix },
        }
    }

    fn uptime(&self) -> Option<Duration> {
        let mut bytes = [0; 64];
        let length = self.uptime.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..length]).ok()?;
        Duration::try_from_secs_f64(text.split(' ').next()?.parse().ok()?).ok()
    }
}
