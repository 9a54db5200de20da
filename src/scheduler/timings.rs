//! How long things took: three histograms that cost an addition each.
//!
//! *May go* is when nothing but its turn kept a URL back: the moment at which its slot entered the ready line, or, if
//! a gate's clock let it in, the moment at which that clock had run out, however late anybody looked at it. Waiting for
//! a spider with room counts: nobody but us keeps the URL back then.

use super::Scheduler;
use crate::time::Duration;

/// Buckets: the first holds up to 1 µs, each next one twice as much as the one before, the last all that is more.
const BUCKETS: usize = 38;

/// Durations, counted by powers of two of a microsecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum_micros: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: [0; BUCKETS], sum_micros: 0 }
    }
}

impl Histogram {
    pub(super) fn observe(&mut self, micros: u64) {
        let bucket = u64::BITS - micros.saturating_sub(1).leading_zeros();
        self.buckets[(bucket as usize).min(BUCKETS - 1)] += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
    }

    /// The counts with the upper bound of each, which belongs to it; none for the last.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bound = |place: usize| (place < BUCKETS - 1).then(|| Duration::from_micros(1 << place));
        (0..BUCKETS).map(move |place| (bound(place), self.buckets[place]))
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_micros)
    }
}

/// How long things took, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timings {
    /// From *may go* to written, of every send.
    pub send_delay: Histogram,
    /// The same, of those sends that waited for a gate's clock: how much longer the gap was than it had to be.
    pub gap_error: Histogram,
    /// From written to DONE.
    pub fetch: Histogram,
}

impl Scheduler {
    /// How long things took.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_the_last_takes_the_rest() {
        for micros in [0, 1, 2, 3, 4, 5, 1_023, 1_024, 1_025, 1 << 36, (1 << 36) + 1, u64::MAX] {
            let mut histogram = Histogram::default();
            histogram.observe(micros);
            let mut below = Duration::ZERO;
            for (bound, count) in histogram.buckets() {
                let took = Duration::from_micros(micros);
                let here = bound.is_none_or(|bound| took <= bound) && (took > below || below.is_zero());
                assert_eq!(count == 1, here, "{micros} µs at {bound:?}");
                below = bound.unwrap_or(below);
            }
            assert_eq!((histogram.count(), histogram.sum()), (1, Duration::from_micros(micros)));
        }
    }
}
