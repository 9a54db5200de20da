//! Lines that are kept until they are known to have arrived.

use std::collections::VecDeque;

/// First come first written: `[ covered | written | unwritten ]`. Covered are those that the next END confirms.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    items: VecDeque<T>,
    written: usize,
    covered: usize,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Outbox { items: VecDeque::new(), written: 0, covered: 0 }
    }
}

impl<T> Outbox<T> {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn has_unwritten(&self) -> bool {
        self.written < self.items.len()
    }

    pub(super) fn push(&mut self, item: T) {
        self.items.push_back(item);
    }

    /// The next one to write; from now on it is written.
    pub(super) fn write(&mut self) -> Option<&T> {
        let item = self.items.get(self.written)?;
        self.written += 1;
        Some(item)
    }

    /// A request is being written: its END will confirm all that was written before.
    pub(super) fn cover(&mut self) {
        self.covered = self.written;
    }

    /// That END has come.
    pub(super) fn confirm(&mut self) -> impl Iterator<Item = T> {
        let confirmed = std::mem::take(&mut self.covered);
        self.written -= confirmed;
        self.items.drain(..confirmed)
    }

    /// The connection is lost: everything is to be written again.
    pub(super) fn rewind(&mut self) {
        self.written = 0;
        self.covered = 0;
    }

    /// Gives up the oldest one, if it has been written at least.
    pub(super) fn forget_written(&mut self) -> Option<T> {
        self.written = self.written.checked_sub(1)?;
        self.covered = self.covered.saturating_sub(1);
        self.items.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_before_the_request_is_confirmed() {
        let mut outbox = Outbox::default();
        (1..=4).for_each(|item| outbox.push(item));
        assert_eq!(outbox.write(), Some(&1));
        outbox.cover();
        assert_eq!(outbox.write(), Some(&2));
        assert_eq!(outbox.confirm().collect::<Vec<_>>(), [1]);
        assert_eq!(outbox.write(), Some(&3));
        outbox.rewind();
        assert_eq!(outbox.confirm().count(), 0);
        assert_eq!(outbox.write(), Some(&2), "not confirmed, so again");
        assert_eq!(outbox.forget_written(), Some(2));
        assert_eq!(outbox.forget_written(), None, "the rest has not been written");
        assert_eq!((outbox.len(), outbox.write()), (2, Some(&3)));
    }
}
