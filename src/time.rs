//! Time as the scheduler sees it: microseconds since the server started, never read here.
//!
//! `Instant` starts at zero and saturates, so that a trace is the same text in every run and no
//! input (an absurd delay, a far deadline) can overflow. Delays round up: nothing opens early.

use std::fmt;
use std::ops::Add;
pub use std::time::Duration;

/// Microseconds since the start of the server (or of the simulation).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The start.
    pub const ZERO: Instant = Instant(0);
    /// Later than everything: "not before somebody says so".
    pub const FAR: Instant = Instant(u64::MAX);

    /// The instant `micros` microseconds after the start.
    pub const fn from_micros(micros: u64) -> Self {
        Instant(micros)
    }

    /// Microseconds since the start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Microseconds passed since `earlier`; none if that lies in the future.
    pub const fn micros_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This many microseconds later.
    pub const fn plus_micros(self, micros: u64) -> Self {
        Instant(self.0.saturating_add(micros))
    }

    /// Time passed since `earlier`; zero if that lies in the future.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, delay: Duration) -> Instant {
        self.plus_micros(micros_rounded_up(delay))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Instant::FAR => f.write_str("far"),
            Instant(t) => write!(f, "{}.{:06}s", t / 1_000_000, t % 1_000_000),
        }
    }
}

/// Whole microseconds, rounded up, saturating.
pub fn micros_rounded_up(d: Duration) -> u64 {
    let rest = u64::from(d.subsec_nanos()).div_ceil(1_000);
    d.as_secs().saturating_mul(1_000_000).saturating_add(rest)
}

/// `factor × d`, saturating; a factor that is not a positive number gives zero.
pub fn scaled(d: Duration, factor: f64) -> Duration {
    let seconds = d.as_secs_f64() * factor;
    if seconds > 0.0 { Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX) } else { Duration::ZERO }
}

/// The same in microseconds, rounded up.
pub fn scaled_micros(micros: u64, factor: f64) -> u64 {
    // Rounding is a call where the processor is not known to have an instruction for it.
    if factor == 1.0 {
        return micros;
    }
    if factor == 0.0 {
        return 0;
    }
    // What is less than a nanosecond is an error of the arithmetic. The cast saturates, and makes zero of what is no number.
    let nanos = (micros as f64 * factor * 1e3).round();
    (nanos / 1e3).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_round_up_and_saturate() {
        let t = Instant::from_micros(5);
        assert_eq!(t + Duration::from_nanos(1), Instant::from_micros(6));
        assert_eq!(t + Duration::MAX, Instant::FAR);
        assert_eq!(micros_rounded_up(Duration::new(3, 999_999_001)), 4_000_000);
        assert_eq!(micros_rounded_up(Duration::new(3, 999_999_000)), 3_999_999);
        assert_eq!(micros_rounded_up(Duration::from_secs(u64::MAX / 1_000_000 + 1)), u64::MAX);
        assert_eq!(Instant::ZERO.since(t), Duration::ZERO);
    }

    #[test]
    fn scaling_survives_absurd_factors() {
        let d = Duration::from_secs(2);
        assert_eq!(scaled(d, 1.5), Duration::from_secs(3));
        assert_eq!(scaled(d, -1.0), Duration::ZERO);
        assert_eq!(scaled(d, f64::NAN), Duration::ZERO);
        assert_eq!(scaled(d, f64::INFINITY), Duration::MAX);
        for (factor, micros) in
            [(1.5, 3), (0.1, 1), (0.0, 0), (-1.0, 0), (f64::NAN, 0), (f64::INFINITY, u64::MAX)]
        {
            assert_eq!(scaled_micros(2, factor), micros, "{factor}");
        }
        assert_eq!((scaled_micros(30_000_000, 0.1), scaled_micros(u64::MAX, 1.0)), (3_000_000, u64::MAX));
    }
}
