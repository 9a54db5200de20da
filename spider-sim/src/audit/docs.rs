//! What became of each document, as far as spiders can tell.

use std::collections::HashMap;
use urlserver::ids::{DocId, TransId};
use urlserver::time::Instant;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// In flight.
    Live(TransId),
    /// Not in flight, and owed another send.
    Pending,
    /// Its DONE may or may not have been read: another send is as right as none.
    Doubtful,
    /// Ended for good.
    Ended(Instant),
    /// Not finished, but sent as often as allowed.
    Spent,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Doc {
    pub(super) sends: u32,
    pub(super) fate: Fate,
}

/// All documents seen. They are never forgotten, a few bytes each: a document that was finished an
/// hour ago must not come again.
#[derive(Default, Debug)]
pub(super) struct Docs {
    docs: HashMap<DocId, Doc>,
    ended: u64,
}

impl Docs {
    pub(super) fn look(&self, doc: DocId) -> Option<Doc> {
        self.docs.get(&doc).copied()
    }

    pub(super) fn seen(&self) -> u64 {
        self.docs.len() as u64
    }

    /// How many have come to an end.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Counts a send.
    pub(super) fn count_send(&mut self, doc: DocId) -> u32 {
        let entry = self.docs.entry(doc).or_insert(Doc { sends: 0, fate: Fate::Pending });
        entry.sends += 1;
        entry.sends
    }

    pub(super) fn set(&mut self, doc: DocId, fate: Fate) {
        let entry = self.docs.entry(doc).or_insert(Doc { sends: 0, fate: Fate::Pending });
        self.ended -= u64::from(is_end(entry.fate));
        self.ended += u64::from(is_end(fate));
        entry.fate = fate;
    }
}

pub(super) fn is_end(fate: Fate) -> bool {
    match fate {
        Fate::Live(_) | Fate::Pending => false,
        Fate::Doubtful | Fate::Ended(_) | Fate::Spent => true,
    }
}
