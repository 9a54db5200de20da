//! The only place that reads a clock.

use crate::time::{Duration, Instant};
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

    /// Wall-clock time since 1970, for dates that web servers send. Decides nothing else.
    pub(super) fn since_1970() -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
