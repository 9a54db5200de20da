//! How many per second, lately.

use crate::time::{Duration, Instant};

/// Whole seconds that are looked back at.
const WINDOW: u64 = 10;

/// Counts by second, for the last [`WINDOW`] of them.
#[derive(Default)]
pub(super) struct Rate {
    seconds: [(u64, u64); WINDOW as usize + 1],
}

impl Rate {
    pub(super) fn count(&mut self, now: Instant, count: u64) {
        let second = second(now);
        let place = &mut self.seconds[(second % (WINDOW + 1)) as usize];
        if place.0 != second {
            *place = (second, 0);
        }
        place.1 += count;
    }

    /// The mean over the last seconds, the current one included.
    pub(super) fn per_sec(&self, now: Instant) -> f64 {
        let first = second(now).saturating_sub(WINDOW - 1);
        let recent = self.seconds.iter().filter(|(second, _)| *second >= first);
        let count: u64 = recent.map(|(_, count)| count).sum();
        let start = Instant::from_micros(first * 1_000_000);
        let span = now.since(start).max(Duration::from_secs(1));
        count as f64 / span.as_secs_f64()
    }
}

fn second(now: Instant) -> u64 {
    now.as_micros() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_a_steady_stream_and_forgets_it() {
        let mut rate = Rate::default();
        for tenth in 0..1_000 {
            rate.count(Instant::from_micros(tenth * 100_000), 1);
        }
        let at = |second: u64| rate.per_sec(Instant::from_micros(second * 1_000_000 - 1));
        assert!((at(100) - 10.0).abs() < 0.1, "{}", at(100));
        assert!((at(105) - 5.0).abs() < 0.1, "{}", at(105));
        assert_eq!(at(200), 0.0);
    }
}
