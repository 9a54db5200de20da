//! Which URLs are known, some eight bytes each.
//!
//! A URL is known by its 64-bit fingerprint alone. The chance that any of n URLs is taken for another is
//! about n²/2^65: 3 in 10,000 for 100 million. The seed is new in every process, so that nobody can
//! prepare URLs that collide.
//!
//! The set is many small tables. A fingerprint's lowest byte is the number of its table, the other seven are stored, in
//! ascending order, each at or behind the place that its highest bits point to and with no gap between. So a search
//! ends at the first one that is larger, however full a table is.
//!
//! A table is a row of pages. It grows by about a sixteenth, in place: one that doubles would stand half empty on
//! average and twice in memory while it grows, and would leave holes of all sizes behind.

use xxhash_rust::xxh3::xxh3_64_with_seed;

const SHARDS: usize = 1 << 8;
/// Bytes of a fingerprint that are stored.
const WIDTH: usize = 7;
/// No fingerprint: the one URL in 2^56 that has it gets another.
const EMPTY: u64 = 0;
const PAGE: usize = 2048;
/// Places of a page. A place is read with the byte behind it.
const PLACES: usize = (PAGE - 1) / WIDTH;

/// A set of fingerprints.
pub(super) struct Fingerprints {
    seed: u64,
    shards: Vec<Shard>,
    /// What is in a table while it grows.
    scratch: Vec<u64>,
}

/// The fingerprint of a URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fingerprint {
    shard: u8,
    bits: u64,
}

/// One of the tables.
#[derive(Default)]
struct Shard {
    #[expect(clippy::vec_box, reason = "pages stay where they are when there are more of them")]
    pages: Vec<Box<[u8; PAGE]>>,
    /// Places that are pointed to; some are behind them, for those that crowd at the end.
    len: usize,
    used: usize,
}

impl Fingerprints {
    /// No URLs are known.
    pub(super) fn new(seed: u64) -> Self {
        Fingerprints { seed, shards: (0..SHARDS).map(|_| Shard::default()).collect(), scratch: Vec::new() }
    }

    /// The fingerprint of `url`.
    pub(super) fn of(&self, url: &str) -> Fingerprint {
        let hash = xxh3_64_with_seed(url.as_bytes(), self.seed);
        Fingerprint { shard: hash as u8, bits: (hash >> 8).max(EMPTY + 1) }
    }

    /// Whether the URL with this fingerprint is known.
    pub(super) fn contains(&self, print: Fingerprint) -> bool {
        let shard = &self.shards[usize::from(print.shard)];
        shard.len > 0 && shard.at(shard.find(print.bits)) == print.bits
    }

    /// From now on the URL is known. It must not have been.
    pub(super) fn insert(&mut self, print: Fingerprint) {
        self.shards[usize::from(print.shard)].insert(print.bits, &mut self.scratch);
    }

    /// What stands where the search for this one begins. Of no meaning: who asks for many of them in a row has them all
    /// in the cache soon after, since no one waits for another.
    pub(super) fn touch(&self, print: Fingerprint) -> u64 {
        let shard = &self.shards[usize::from(print.shard)];
        if shard.len > 0 { shard.at(shard.home(print.bits)) } else { EMPTY }
    }

    /// Bytes in use.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let pages = |shard: &Shard| shard.pages.capacity() * size_of::<usize>() + shard.pages.len() * PAGE;
        self.shards.iter().map(|shard| size_of::<Shard>() + pages(shard)).sum()
    }
}

impl Shard {
    /// How many places there are.
    fn places(&self) -> usize {
        self.pages.len() * PLACES
    }

    fn at(&self, place: usize) -> u64 {
        let at = place % PLACES * WIDTH;
        let mut word = [0; 8];
        word.copy_from_slice(&self.pages[place / PLACES][at..at + 8]);
        u64::from_le_bytes(word) & (u64::MAX >> 8)
    }

    fn set(&mut self, place: usize, bits: u64) {
        let at = place % PLACES * WIDTH;
        self.pages[place / PLACES][at..at + WIDTH].copy_from_slice(&bits.to_le_bytes()[..WIDTH]);
    }

    /// The place that `bits` point to.
    fn home(&self, bits: u64) -> usize {
        ((u128::from(bits << 8) * self.len as u128) >> 64) as usize
    }

    /// Where `bits` are, or belong. The last place is always free.
    fn find(&self, bits: u64) -> usize {
        let mut place = self.home(bits);
        loop {
            let other = self.at(place);
            if other >= bits || other == EMPTY {
                return place;
            }
            place += 1;
        }
    }

    fn insert(&mut self, bits: u64, scratch: &mut Vec<u64>) {
        if self.used >= self.len / 32 * 29 {
            self.grow(scratch);
        }
        loop {
            let place = self.find(bits);
            let free = (place..).find(|place| self.at(*place) == EMPTY).unwrap_or(place);
            if free + 1 < self.places() {
                self.shift(place, free);
                self.set(place, bits);
                self.used += 1;
                return;
            }
            // They crowd at the end.
            self.grow(scratch);
        }
    }

    /// Moves all from `place` on by one, up to the one that is free.
    fn shift(&mut self, place: usize, free: usize) {
        let (first, last) = (place / PLACES, free / PLACES);
        for page in (first..=last).rev() {
            let start = if page == first { place % PLACES } else { 0 };
            let end = if page == last { free % PLACES } else { PLACES - 1 };
            self.pages[page].copy_within(start * WIDTH..end * WIDTH, (start + 1) * WIDTH);
            if page > first {
                self.set(page * PLACES, self.at(page * PLACES - 1));
            }
        }
    }

    /// Nobody moves further than the places that have been added, so the last one stays free.
    fn grow(&mut self, scratch: &mut Vec<u64>) {
        scratch.clear();
        scratch.extend((0..self.places()).map(|place| self.at(place)).filter(|bits| *bits != EMPTY));
        self.pages.iter_mut().for_each(|page| page.fill(0));
        let more = self.pages.len() / 16 + 1;
        self.pages.reserve_exact(more);
        self.pages.extend((0..more).map(|_| Box::new([0; PAGE])));
        self.len = self.places() - self.places() / 32;
        let mut next = 0;
        for &bits in &*scratch {
            let place = self.home(bits).max(next);
            self.set(place, bits);
            next = place + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn add(set: &mut Fingerprints, url: &str) -> bool {
        let print = set.of(url);
        let new = !set.contains(print);
        if new {
            set.insert(print);
        }
        new
    }

    #[test]
    fn every_url_is_new_once() {
        let mut set = Fingerprints::new(3);
        for round in 0..2 {
            for n in 0..50_000 {
                assert_eq!(add(&mut set, &format!("http://a.example/{n}")), round == 0, "{n}");
            }
        }
    }

    #[test]
    fn a_fingerprint_costs_little_more_than_itself() {
        let mut set = Fingerprints::new(3);
        for n in 0..1_000_000u32 {
            let hash = xxh3_64_with_seed(&n.to_le_bytes(), 3);
            set.insert(Fingerprint { shard: hash as u8, bits: hash >> 8 });
            if n > 500_000 && n % 1_000 == 0 {
                let each = set.bytes() as f64 / f64::from(n);
                assert!(each < 9.0, "{each} bytes at {n}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_table_behaves_like_a_set(values in prop::collection::vec((0..4u8, 1..400u64), 0..1_500)) {
            let mut shard = Shard::default();
            let mut model = BTreeSet::new();
            for (kind, n) in values {
                // Some crowd at the ends.
                let bits = match kind {
                    0 => n,
                    1 => (u64::MAX >> 8) - n,
                    _ => n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8,
                };
                let known = shard.len > 0 && shard.at(shard.find(bits)) == bits;
                prop_assert_eq!(known, model.contains(&bits));
                if !known {
                    shard.insert(bits, &mut Vec::new());
                    model.insert(bits);
                }
                let stored = (0..shard.places()).map(|place| shard.at(place)).filter(|bits| *bits != EMPTY);
                prop_assert!(stored.eq(model.iter().copied()), "in order, each once");
                prop_assert_eq!(shard.used, model.len());
            }
            for bits in &model {
                prop_assert_eq!(shard.at(shard.find(*bits)), *bits);
            }
        }
    }
}
