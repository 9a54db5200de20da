//! The health of an address: up, down for a window, then suspect until a probe has an answer.
//!
//! What follows from time is computed: nothing has to remember to turn "down" into "suspect".

use crate::time::{Duration, Instant};

/// When an address is taken to be down.
#[derive(Clone, Copy, Debug)]
pub struct HealthRule {
    /// Connection failures in a row that mark it down.
    pub fail_threshold: u32,
    /// How long it is then left alone.
    pub fail_window: Duration,
}

/// What is known of an address from the fetches that used it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    failures: u32,
    /// The end of the window, or zero.
    down_until: Instant,
}

/// What may be done with an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HealthState {
    /// Use it.
    Up,
    /// Leave it alone.
    Down {
        /// The end of the window.
        until: Instant,
    },
    /// The window has passed: one probe at a time.
    Suspect,
}

impl Health {
    /// The state now.
    pub fn state(&self, now: Instant) -> HealthState {
        match self.down_until {
            Instant::ZERO => HealthState::Up,
            until if now < until => HealthState::Down { until },
            _ => HealthState::Suspect,
        }
    }

    /// A fetch got through.
    pub fn handle_success(&mut self) {
        *self = Health::default();
    }

    /// A fetch did not get through. A failure of something sent before the address went down says
    /// nothing new: it does not extend the window. True if a window begins.
    pub fn handle_failure(&mut self, now: Instant, rule: HealthRule) -> bool {
        self.failures = self.failures.saturating_add(1);
        let begins = match self.state(now) {
            HealthState::Up => self.failures >= rule.fail_threshold,
            HealthState::Down { .. } => false,
            HealthState::Suspect => true,
        };
        if begins {
            // Never zero, not even where the window is, and the clock has just begun.
            self.down_until = (now + rule.fail_window).max(Instant::from_micros(1));
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: HealthRule = HealthRule { fail_threshold: 3, fail_window: Duration::from_secs(60) };

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros)
    }

    fn down_since(start: Instant) -> Health {
        let mut health = Health::default();
        for failure in 1..=3 {
            assert_eq!(health.handle_failure(start, RULE), failure == 3);
        }
        health
    }

    #[test]
    fn the_third_failure_in_a_row_marks_down_and_a_success_breaks_the_row() {
        let mut health = Health::default();
        for _ in 0..5 {
            assert!(!health.handle_failure(at(1), RULE));
            assert!(!health.handle_failure(at(1), RULE));
            health.handle_success();
        }
        assert_eq!(health.state(at(1)), HealthState::Up);
        assert_eq!(down_since(at(1)).state(at(1)), HealthState::Down { until: at(60_000_001) });
    }

    #[test]
    fn suspect_from_the_end_of_the_window_and_not_before() {
        let health = down_since(at(0));
        assert_eq!(health.state(at(59_999_999)), HealthState::Down { until: at(60_000_000) });
        assert_eq!(health.state(at(60_000_000)), HealthState::Suspect);
    }

    #[test]
    fn a_failure_while_down_does_not_extend_and_one_while_suspect_starts_anew_from_now() {
        let mut health = down_since(at(0));
        assert!(!health.handle_failure(at(59_999_999), RULE));
        assert_eq!(health.state(at(60_000_000)), HealthState::Suspect);
        assert!(health.handle_failure(at(70_000_000), RULE));
        assert_eq!(health.state(at(129_999_999)), HealthState::Down { until: at(130_000_000) });
        assert_eq!(health.state(at(130_000_000)), HealthState::Suspect);
        health.handle_success();
        assert_eq!(health.state(at(130_000_000)), HealthState::Up);
    }
}
