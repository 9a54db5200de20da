//! Fingerprints and what they stand for: a number for each, 12 bytes, at most a quarter of room to grow.
//!
//! A fingerprint has 76 bits: twelve choose the shard, 64 are stored. The chance that any of n URLs is taken for
//! another is n²/2^77: 7 in 100 million for 100 million URLs. So a stored URL is never read to tell whether it is known.

use xxhash_rust::xxh3::xxh3_128_with_seed;

pub(super) const SHARDS: usize = 1 << 12;
/// No number: a place that is free.
pub(super) const NONE: u32 = u32::MAX;
const FIRST_LEN: usize = 8;

/// A fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Print {
    pub(super) shard: u16,
    pub(super) bits: u64,
}

impl Print {
    /// Of these bytes. Who does not know the seed cannot make two that are the same.
    pub(super) fn of(bytes: &[u8], seed: u64) -> Print {
        let hash = xxh3_128_with_seed(bytes, seed);
        Print { shard: (hash >> 64) as u16 % SHARDS as u16, bits: hash as u64 }
    }
}

/// A map from fingerprints to numbers.
pub(super) struct Prints {
    shards: Vec<Shard>,
    used: usize,
}

/// Entries, each at or behind the place that it points to, with no gap between.
#[derive(Default)]
struct Shard {
    places: Box<[Place]>,
    used: usize,
}

/// Halves, so that an entry is not rounded up to 16 bytes.
#[derive(Clone, Copy)]
struct Place {
    low: u32,
    high: u32,
    number: u32,
}

const _: () = assert!(size_of::<Place>() == 12);
const FREE: Place = Place { low: 0, high: 0, number: NONE };

impl Place {
    fn bits(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }
}

impl Default for Prints {
    fn default() -> Self {
        Prints { shards: (0..SHARDS).map(|_| Shard::default()).collect(), used: 0 }
    }
}

impl Prints {
    /// How many are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| size_of::<Shard>() + size_of_val(&*shard.places)).sum()
    }

    /// The number of `print`.
    pub(super) fn find(&self, print: Print) -> Option<u32> {
        let shard = &self.shards[usize::from(print.shard)];
        let number = shard.places.get(shard.find(print.bits)?)?.number;
        (number != NONE).then_some(number)
    }

    /// `print` has this number from now on; says which it had before.
    pub(super) fn set(&mut self, print: Print, number: u32) -> Option<u32> {
        let shard = &mut self.shards[usize::from(print.shard)];
        shard.make_room();
        let place = &mut shard.places[shard.find(print.bits)?];
        let before = place.number;
        *place = Place { low: print.bits as u32, high: (print.bits >> 32) as u32, number };
        let new = before == NONE;
        shard.used += usize::from(new);
        self.used += usize::from(new);
        (!new).then_some(before)
    }

    /// Sets many, in this order, shard by shard: a shard that is in the cache takes its share at once. Whatever number one
    /// of them had before is told to `on_before`.
    pub(super) fn extend(&mut self, entries: &[(Print, u32)], mut on_before: impl FnMut(u32)) {
        let mut ends = vec![0u32; SHARDS];
        entries.iter().for_each(|(print, _)| ends[usize::from(print.shard)] += 1);
        let mut sum = 0;
        for (shard, end) in self.shards.iter_mut().zip(&mut ends) {
            shard.reserve(*end as usize);
            // Where its share begins, and, once that is laid out, where it ends.
            sum += std::mem::replace(end, sum);
        }
        let mut order = vec![0u32; entries.len()];
        for (place, (print, _)) in entries.iter().enumerate() {
            let end = &mut ends[usize::from(print.shard)];
            order[*end as usize] = place as u32;
            *end += 1;
        }
        for place in order {
            let (print, number) = entries[place as usize];
            self.set(print, number).into_iter().for_each(&mut on_before);
        }
    }

    /// Makes room for `n` more in one shard.
    pub(super) fn reserve(&mut self, shard: u16, n: usize) {
        self.shards[usize::from(shard)].reserve(n);
    }

    /// `print` is unknown from now on.
    pub(super) fn remove(&mut self, print: Print) {
        let shard = &mut self.shards[usize::from(print.shard)];
        if let Some(place) = shard.find(print.bits)
            && shard.places[place].number != NONE
        {
            shard.remove(place);
            self.used -= 1;
        }
    }
}

impl Shard {
    /// Makes sure that there is room for one more: grown by an eighth, a table is filled to five sixths on average.
    fn make_room(&mut self) {
        let len = self.places.len();
        if self.used >= len / 8 * 7 {
            self.grow((len + (len / 64 + 1) * 8).max(FIRST_LEN));
        }
    }

    /// Makes sure that there is room for `n` more.
    fn reserve(&mut self, n: usize) {
        let len = ((self.used + n) / 7 + 1) * 8;
        if n > 0 && len > self.places.len() {
            self.grow(len);
        }
    }

    fn grow(&mut self, len: usize) {
        let larger = vec![FREE; len].into_boxed_slice();
        for place in std::mem::replace(&mut self.places, larger) {
            if place.number != NONE
                && let Some(at) = self.find(place.bits())
            {
                self.places[at] = place;
            }
        }
    }

    /// Where `bits` are, or belong. There is always a free place, or no place at all.
    fn find(&self, bits: u64) -> Option<usize> {
        let len = self.places.len();
        if len == 0 {
            return None;
        }
        let mut at = self.home(bits);
        while self.places[at].number != NONE && self.places[at].bits() != bits {
            at = if at + 1 == len { 0 } else { at + 1 };
        }
        Some(at)
    }

    fn home(&self, bits: u64) -> usize {
        ((u128::from(bits) * self.places.len() as u128) >> 64) as usize
    }

    /// Frees a place, and moves back what stands behind it and would not be found any more.
    fn remove(&mut self, mut hole: usize) {
        let len = self.places.len();
        let distance = |from: usize, to: usize| (to + len - from) % len;
        let mut at = hole;
        loop {
            at = (at + 1) % len;
            let place = self.places[at];
            if place.number == NONE {
                break;
            }
            if distance(self.home(place.bits()), at) >= distance(hole, at) {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = FREE;
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn behaves_like_a_map(ops in prop::collection::vec((0..3u8, 0..2u16, 0..60u64), 0..400)) {
            let mut prints = Prints::default();
            let mut model = HashMap::new();
            for (number, (op, shard, bits)) in ops.into_iter().enumerate() {
                // Some of them crowd at the end of the table, so that it is gone around.
                let bits = if bits % 3 == 0 { u64::MAX - bits } else { bits << 58 | bits };
                let print = Print { shard, bits };
                if op == 0 {
                    model.remove(&print);
                    prints.remove(print);
                } else {
                    prop_assert_eq!(prints.set(print, number as u32), model.insert(print, number as u32));
                }
                prop_assert_eq!(prints.len(), model.len());
                for (print, number) in &model {
                    prop_assert_eq!(prints.find(*print), Some(*number));
                }
                prop_assert_eq!(prints.find(print), model.get(&print).copied());
            }
        }
    }

    #[test]
    fn many_at_once_are_as_one_after_another() {
        let mut rng = fastrand::Rng::with_seed(5);
        let print = |n: u64| Print::of(&n.to_le_bytes(), 7);
        let (mut together, mut single) = (Prints::default(), Prints::default());
        for round in 0..20u32 {
            let entries: Vec<_> = (0..3_000).map(|n| (print(rng.u64(..20_000)), round * 3_000 + n)).collect();
            let (mut before, mut expected) = (Vec::new(), Vec::new());
            together.extend(&entries, |number| before.push(number));
            expected.extend(entries.iter().filter_map(|(print, number)| single.set(*print, *number)));
            before.sort_unstable();
            expected.sort_unstable();
            assert_eq!(before, expected);
        }
        assert_eq!(together.len(), single.len());
        assert!((0..20_000).all(|n| together.find(print(n)) == single.find(print(n))));
    }

    #[test]
    fn an_entry_costs_little_more_than_itself() {
        let mut prints = Prints::default();
        for n in 0..4_000_000u32 {
            prints.set(Print::of(&n.to_le_bytes(), 7), n);
        }
        assert_eq!(prints.len(), 4_000_000);
        let each = prints.bytes() as f64 / 4e6;
        assert!(each < 16.0, "{each} bytes");
    }
}
