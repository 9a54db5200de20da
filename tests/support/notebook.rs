//! What a server writes down, kept for its next life, in virtual time and without a file.

use std::collections::BTreeMap;
use urlserver::scheduler::{Note, Scheduler};
use urlserver::time::Instant;

#[derive(Default)]
pub(crate) struct Notebook(BTreeMap<String, (Note, Instant)>);

impl Notebook {
    /// Takes all that the scheduler notes now.
    pub(crate) fn take(&mut self, now: Instant, scheduler: &mut Scheduler) {
        while let Some(note) = scheduler.poll_note(now) {
            self.put(now, note);
        }
    }

    pub(crate) fn put(&mut self, now: Instant, note: Note) {
        let subject = match &note {
            Note::Clock { key, .. } => format!("{key:?}"),
            Note::Order { host, .. } => format!("order for {host}"),
            Note::PauseAll(_) => "everything".into(),
        };
        self.0.insert(subject, (note, now));
    }

    /// What is left of it.
    pub(crate) fn read(&self, now: Instant) -> Vec<Note> {
        self.0.values().filter_map(|(note, at)| note.later(now.since(*at))).collect()
    }
}
