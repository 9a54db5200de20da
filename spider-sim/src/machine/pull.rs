//! The credit of one connection in pull mode.

use urlserver::time::{Duration, Instant};

/// Lines written this soon after the first GET was said may have been written before it was read.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Pull {
    /// URLs to have under way or asked for.
    keep: u32,
    /// Asked for by GETs said.
    said: u64,
    /// Asked for by GETs that the driver has taken: no line can have used more.
    granted: u64,
    used: u64,
    /// Fetches that ended since the last GET.
    owed: u32,
    strict_from: Instant,
}

impl Pull {
    /// After the first GET, of `keep`.
    pub(super) fn new(now: Instant, keep: u32) -> Pull {
        Pull { keep, said: u64::from(keep), granted: 0, used: 0, owed: 0, strict_from: now + GRACE }
    }

    /// The driver takes what was said.
    pub(super) fn handle_taken(&mut self) {
        self.granted = self.said;
    }

    /// A line was read: the whole credit, if it went beyond that.
    pub(super) fn handle_line(&mut self, since: Instant) -> Option<u64> {
        if since < self.strict_from {
            return None;
        }
        self.used += 1;
        (self.used > self.granted).then_some(self.granted)
    }

    /// A fetch ended: how many to ask for, if it is time to.
    pub(super) fn handle_end(&mut self) -> Option<u32> {
        self.owed += 1;
        if self.owed < self.keep.div_ceil(2) {
            return None;
        }
        let more = std::mem::take(&mut self.owed);
        self.said += u64::from(more);
        Some(more)
    }
}
