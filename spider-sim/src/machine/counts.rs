//! What a spider did, in numbers.

use std::collections::BTreeMap;
use urlserver::document::{Done, Outcome};

/// What a spider did, in numbers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// URLs received.
    pub urls: u64,
    /// DONEs said for them, the first ones.
    pub dones: u64,
    /// The same by the word said; `-` where none was.
    pub outcomes: BTreeMap<String, u64>,
    /// WORKINGs said.
    pub workings: u64,
    /// Statuses said that are stale: repeated, late, invented.
    pub stale: u64,
    /// ADDs said.
    pub adds: u64,
    /// Lines said that deserve an ERROR.
    pub errors_provoked: u64,
    /// ERRORs received.
    pub errors_received: u64,
    /// ERRORs that can no longer come: their connection is gone.
    pub errors_excused: u64,
    /// Connections made.
    pub connections: u64,
    /// Connections dropped by the spider.
    pub crashes: u64,
    /// URLs held for ever.
    pub hangs: u64,
    /// Times it stopped reading.
    pub stalls: u64,
}

impl Counts {
    pub(super) fn count_done(&mut self, done: Done) {
        self.dones += 1;
        let word = match done.outcome {
            Outcome::Unsaid => "-".to_owned(),
            outcome => outcome.to_string(),
        };
        *self.outcomes.entry(word).or_default() += 1;
    }
}
