//! Which document names are taken. Names in sequence cost nothing: they are kept as intervals.

use crate::ids::DocId;
use std::collections::BTreeMap;

/// A set of ids, and the next free one.
#[derive(Default, Debug)]
pub(super) struct DocIds {
    /// First to last id of each interval; no two of them touch.
    taken: BTreeMap<u64, u64>,
    last_given: u64,
}

impl DocIds {
    /// Takes `id`; false if it was taken.
    pub(super) fn take(&mut self, DocId(id): DocId) -> bool {
        let before = self.taken.range_mut(..=id).next_back();
        let touches_before = match before {
            Some((_, last)) if *last >= id => return false,
            // `last < id`, so this cannot overflow.
            Some((&first, last)) if *last + 1 == id => {
                *last = id;
                Some(first)
            }
            Some(_) | None => None,
        };
        let behind = id.checked_add(1).and_then(|next| self.taken.remove(&next));
        if touches_before.is_none() || behind.is_some() {
            self.taken.insert(touches_before.unwrap_or(id), behind.unwrap_or(id));
        }
        true
    }

    /// Takes all ids from `first` to `last`, whichever of them were taken.
    pub(super) fn take_run(&mut self, first: u64, last: u64) {
        let (mut first, mut last) = (first, last.max(first));
        while let Some((&other, &end)) = self.taken.range(..=last.saturating_add(1)).next_back()
            && end.saturating_add(1) >= first
        {
            first = first.min(other);
            last = last.max(end);
            self.taken.remove(&other);
        }
        self.taken.insert(first, last);
    }

    /// Gives `id` back, as if it had never been taken.
    pub(super) fn release(&mut self, DocId(id): DocId) {
        let Some((&first, &last)) = self.taken.range(..=id).next_back().filter(|(_, last)| **last >= id)
        else {
            return;
        };
        self.taken.remove(&first);
        if first < id {
            self.taken.insert(first, id - 1);
        }
        if id < last {
            self.taken.insert(id + 1, last);
        }
        self.last_given = self.last_given.min(id.saturating_sub(1));
    }

    /// Takes the next free id, from 1 on. `None` after 2^64 of them.
    pub(super) fn take_next(&mut self) -> Option<DocId> {
        let mut id = self.last_given.checked_add(1)?;
        if let Some((_, &last)) = self.taken.range(..=id).next_back()
            && last >= id
        {
            id = last.checked_add(1)?;
        }
        self.take(DocId(id));
        self.last_given = id;
        Some(DocId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(
            ops in prop::collection::vec(
                (prop::option::of(prop_oneof![0..40u64, u64::MAX - 3..=u64::MAX]), prop::bool::weighted(0.2)),
                0..80,
            ),
        ) {
            let mut ids = DocIds::default();
            let mut model = HashSet::new();
            for (op, release) in ops {
                match op {
                    Some(id) if release => {
                        ids.release(DocId(id));
                        model.remove(&id);
                    }
                    Some(id) => prop_assert_eq!(ids.take(DocId(id)), model.insert(id)),
                    None => {
                        let id = ids.take_next().map(|id| id.0);
                        prop_assert!(id.is_some_and(|id| id > 0 && model.insert(id)));
                    }
                }
                let intervals: Vec<_> = ids.taken.iter().collect();
                prop_assert!(intervals.windows(2).all(|w| w[0].1 + 1 < *w[1].0));
                prop_assert_eq!(intervals.iter().map(|(first, last)| *last - *first + 1).sum::<u64>(), model.len() as u64);
            }
        }
    }

    proptest! {
        #[test]
        fn a_run_is_all_of_its_ids(
            runs in prop::collection::vec((prop_oneof![0..60u64, u64::MAX - 9..=u64::MAX], 0..9u64), 0..30),
        ) {
            let (mut ids, mut single) = (DocIds::default(), DocIds::default());
            for (first, len) in runs {
                let last = first.saturating_add(len);
                ids.take_run(first, last);
                for id in first..=last {
                    single.take(DocId(id));
                }
                prop_assert_eq!(&ids.taken, &single.taken);
            }
        }
    }

    #[test]
    fn a_sequence_is_one_interval() {
        let mut ids = DocIds::default();
        assert!(ids.take(DocId(500)));
        for _ in 0..10_000 {
            ids.take_next();
        }
        assert_eq!(ids.taken.into_iter().collect::<Vec<_>>(), [(1, 10_001)]);
    }
}
