//! Sleeps that end when they shall.
//!
//! The runtime counts its timers in milliseconds and rounds up, so that a gap would be half a millisecond too long on average. A timer of
//! the kernel's ends the wait to the microsecond. Where there is none, or it fails, the runtime's have to do.

use std::time::{Duration, Instant};

/// The end of a wait that the kernel's timer is set for; until then the runtime's is good enough.
#[cfg(target_os = "linux")]
const LAST_BIT: Duration = Duration::from_millis(20);

/// Wakes the one task that sleeps on it.
pub(super) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: Option<timer::Timer>,
}

impl Alarm {
    /// Must be made on a runtime.
    pub(super) fn new() -> Alarm {
        Alarm {
            #[cfg(target_os = "linux")]
            timer: timer::Timer::new()
                .inspect_err(
                    |error| tracing::warn!(%error, "no timer of the kernel's: gaps may be 2 ms too long"),
                )
                .ok(),
        }
    }

    /// Sleeps until `at`, never less. May be dropped at any time and called again.
    pub(super) async fn sleep_until(&self, at: Instant) {
        #[cfg(target_os = "linux")]
        if let Some(timer) = &self.timer {
            if let Some(before) = at.checked_sub(LAST_BIT).filter(|&before| before > Instant::now()) {
                tokio::time::sleep_until(before.into()).await;
            }
            if timer.wait(at).await.is_ok() {
                return;
            }
        }
        tokio::time::sleep_until(at.into()).await;
    }
}

#[cfg(target_os = "linux")]
mod timer {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};
    use tokio::io::{Interest, unix::AsyncFd};

    pub(super) struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        pub(super) fn new() -> io::Result<Timer> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            #[expect(
                deprecated,
                reason = "sound with a descriptor that is owned; what is to replace it is unsafe"
            )]
            Ok(Timer(AsyncFd::with_interest(timer, Interest::READABLE)?))
        }

        pub(super) async fn wait(&self, at: Instant) -> io::Result<()> {
            loop {
                let left = at.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(());
                }
                self.set(left)?;
                // Setting it anew has undone what it may have said before: there is nothing to read.
                self.0.readable().await?.clear_ready();
            }
        }

        fn set(&self, left: Duration) -> io::Result<()> {
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Timespec::try_from(left).map_err(io::Error::other)?;
            let once = Itimerspec { it_interval: never, it_value: value };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was due before, what was given up, what is due at once: each sleep has its own end.
    #[tokio::test]
    async fn no_sleep_ends_before_its_time_whatever_was_slept_for_before() {
        let alarm = Alarm::new();
        for micros in [0, 1, 700, 5_000, 50, 26_000, 300] {
            let given_up = Instant::now() + Duration::from_micros(micros / 2);
            tokio::select! {
                biased;
                () = alarm.sleep_until(given_up) => {}
                () = tokio::task::yield_now() => {}
            }
            let at = Instant::now() + Duration::from_micros(micros);
            alarm.sleep_until(at).await;
            assert!(Instant::now() >= at, "{micros} µs");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_s_timer_is_used() {
        assert!(Alarm::new().timer.is_some());
    }
}
