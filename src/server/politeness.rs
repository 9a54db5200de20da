//! What the hub does so that politeness outlives it: notes go to the log before anything they are about goes out.

use super::clock::{BootClock, Clock};
use super::hub::Hub;
use crate::ids::SpiderId;
use crate::politeness::{LogError, PolitenessLog};
use crate::scheduler::Scheduler;
use crate::settings::{IndexAt, Settings};

/// The log, and the clock that other lives can read.
pub(super) struct Politeness {
    log: PolitenessLog,
    clock: BootClock,
}

impl Politeness {
    /// Opens the log of a durable index, and lets the scheduler go on where the last life has left it.
    pub(super) fn open(
        settings: &Settings,
        clock: Clock,
        scheduler: &mut Scheduler,
    ) -> Result<Option<Politeness>, LogError> {
        let IndexAt::Dir(directory) = &settings.index else { return Ok(None) };
        let boot_clock = BootClock::start();
        let now = clock.now();
        let (log, legacy) = PolitenessLog::open(directory, now, &boot_clock.stamp())?;
        if legacy.died {
            tracing::info!(
                remembered = legacy.notes.len(),
                "the last life has not ended in peace; what hosts were owed is kept"
            );
        }
        scheduler.restore(now, legacy.notes, legacy.died);
        Ok(Some(Politeness { log, clock: boot_clock }))
    }
}

impl Hub {
    /// Lines are about to be written to `spider`: what will be owed for them is in the log first.
    pub(super) fn save_before_write(&mut self, spider: SpiderId) {
        if self.around.politeness.is_some() {
            self.scheduler.note_unwritten(self.now(), spider);
            self.save_notes();
        }
    }

    /// Writes down what was noted. Must be called before anybody hears of what it is about.
    pub(super) fn save_notes(&mut self) {
        let now = self.now();
        let Some(Politeness { log, clock }) = &mut self.around.politeness else { return };
        while let Some(note) = self.scheduler.poll_note(now) {
            log.push(now, note);
        }
        if !log.is_clean() {
            log.write(now, &clock.stamp());
        }
    }

    /// Writes to the log that have failed, each tried again later: a crash meanwhile would forget what hosts are owed.
    pub(super) fn politeness_failures(&self) -> u64 {
        self.around.politeness.as_ref().map_or(0, |politeness| politeness.log.failures())
    }

    /// The last words.
    pub(super) fn save_all(&mut self) {
        self.save_notes();
        let now = self.now();
        if let Some(Politeness { log, clock }) = self.around.politeness.take() {
            log.close(now, &clock.stamp(), self.scheduler.last_notes(now));
        }
    }
}
