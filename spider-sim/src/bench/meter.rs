//! The clock of a drain: rate and CPU in its steady part, after everything has warmed up and before it runs dry.

use std::time::{Duration, Instant};

/// The steady part: from so many hundredths to so many.
const STEADY: (u64, u64) = (15, 85);

/// Counts what has been acknowledged.
pub(super) struct Meter<C> {
    from: u64,
    to: u64,
    done: u64,
    cpu: C,
    first: Option<Mark>,
    last: Option<Mark>,
}

struct Mark {
    done: u64,
    at: Instant,
    cpu: Duration,
}

/// The steady part of a drain.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Drained {
    /// Acknowledged URLs per second.
    pub(super) per_sec: f64,
    /// CPU time of the server for each, in microseconds.
    pub(super) cpu_us: f64,
}

impl<C: Fn() -> Duration> Meter<C> {
    /// For `total` URLs; `cpu` says what the server has used.
    pub(super) fn new(total: u64, cpu: C) -> Self {
        let (from, to) = (total * STEADY.0 / 100, total * STEADY.1 / 100);
        Meter { from, to: to.max(from + 1), done: 0, cpu, first: None, last: None }
    }

    /// All that have been acknowledged until now.
    #[inline]
    pub(super) fn reached(&mut self, done: u64) {
        self.done = done;
        if self.first.is_none() && done >= self.from {
            self.first = Some(self.mark());
        }
        if self.last.is_none() && done >= self.to {
            self.last = Some(self.mark());
        }
    }

    fn mark(&self) -> Mark {
        Mark { done: self.done, at: Instant::now(), cpu: (self.cpu)() }
    }

    /// Nothing if it was too short to have a steady part.
    pub(super) fn drained(&self) -> Option<Drained> {
        let (first, last) = self.first.as_ref().zip(self.last.as_ref())?;
        let urls = (last.done - first.done).max(1) as f64;
        Some(Drained {
            per_sec: urls / (last.at - first.at).as_secs_f64().max(1e-9),
            cpu_us: last.cpu.saturating_sub(first.cpu).as_secs_f64() * 1e6 / urls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_steady_part_is_measured_and_nothing_else() {
        let used = Cell::new(0);
        let mut meter = Meter::new(1000, || Duration::from_micros(used.get()));
        assert_eq!(meter.drained(), None);
        for done in 1..=1000 {
            used.set(used.get() + if (151..=850).contains(&done) { 2 } else { 100 });
            meter.reached(done);
        }
        let drained = meter.drained().map(|drained| drained.cpu_us.round());
        assert_eq!(drained, Some(2.0));
    }
}
