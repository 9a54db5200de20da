//! Timers: at most one per id, set, moved and cancelled in O(log n), never early.
//!
//! A heap with four children per node, which knows where each id stands in it. Ties are broken by
//! id, so that the same run fires in the same order.

use super::table::Key;
use crate::time::Instant;
use std::marker::PhantomData;

const ARITY: usize = 4;
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Instant,
    id: u32,
}

/// The timers of one kind of thing.
pub(super) struct Timers<K> {
    heap: Vec<Entry>,
    /// Where each id stands in the heap.
    place: Vec<u32>,
    key: PhantomData<K>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers { heap: Vec::new(), place: Vec::new(), key: PhantomData }
    }
}

impl<K: Key> Timers<K> {
    /// Fires `id` at `at`, instead of whenever it was to fire. `FAR` is never.
    pub(super) fn set(&mut self, id: K, at: Instant) {
        if at == Instant::FAR {
            return self.cancel(id);
        }
        if id.index() >= self.place.len() {
            self.place.resize(id.index() + 1, NOWHERE);
        }
        let entry = Entry { at, id: id.index() as u32 };
        match self.place[id.index()] {
            NOWHERE => {
                self.heap.push(entry);
                self.sift_up(self.heap.len() - 1);
            }
            place => self.replace(place as usize, entry),
        }
    }

    pub(super) fn cancel(&mut self, id: K) {
        let Some(&place) = self.place.get(id.index()) else { return };
        if place == NOWHERE {
            return;
        }
        self.place[id.index()] = NOWHERE;
        let Some(last) = self.heap.pop() else { return };
        if (place as usize) < self.heap.len() {
            self.replace(place as usize, last);
        }
    }

    /// How many are set.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When the first of them fires.
    pub(super) fn first(&self) -> Option<Instant> {
        self.heap.first().map(|entry| entry.at)
    }

    /// When `id` fires.
    pub(super) fn at(&self, id: K) -> Option<Instant> {
        let place = *self.place.get(id.index())?;
        self.heap.get(place as usize).map(|entry| entry.at)
    }

    /// Takes out the first one that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<K> {
        self.pop_due_at(now).map(|(id, _)| id)
    }

    /// The same, with the time for which it was set.
    pub(super) fn pop_due_at(&mut self, now: Instant) -> Option<(K, Instant)> {
        let &Entry { at, id } = self.heap.first()?;
        if at > now {
            return None;
        }
        let id = K::from_index(id as usize);
        self.cancel(id);
        Some((id, at))
    }

    fn replace(&mut self, place: usize, entry: Entry) {
        let earlier = entry < self.heap[place];
        self.put(place, entry);
        if earlier {
            self.sift_up(place);
        } else {
            self.sift_down(place);
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sift_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { break };
            if self.heap[least] >= entry {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.place[entry.id as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GateId;
    use std::collections::BTreeSet;

    #[test]
    fn fires_like_a_sorted_set_under_random_operations() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut timers = Timers::<GateId>::default();
        let mut model: BTreeSet<(Instant, u32)> = BTreeSet::new();
        let mut now = Instant::ZERO;
        for _ in 0..50_000 {
            let id = rng.u32(..200);
            let at = Instant::from_micros(now.as_micros() + rng.u64(..1000));
            match rng.u8(..4) {
                0 | 1 => {
                    model.retain(|&(_, other)| other != id);
                    model.insert((at, id));
                    timers.set(GateId::new(id), at);
                }
                2 => {
                    model.retain(|&(_, other)| other != id);
                    timers.cancel(GateId::new(id));
                }
                _ => {
                    now = at;
                    while let Some(fired) = timers.pop_due(now) {
                        let first = model.pop_first().expect("the model has it too");
                        assert_eq!(first.1, fired.number());
                        assert!(first.0 <= now, "early");
                    }
                }
            }
            assert_eq!(timers.first(), model.first().map(|&(at, _)| at));
            assert_eq!(timers.at(GateId::new(id)), model.iter().find(|e| e.1 == id).map(|e| e.0));
        }
    }

    #[test]
    fn far_is_never() {
        let mut timers = Timers::<GateId>::default();
        timers.set(GateId::new(3), Instant::ZERO);
        timers.set(GateId::new(3), Instant::FAR);
        assert_eq!((timers.first(), timers.pop_due(Instant::FAR)), (None, None));
    }
}
