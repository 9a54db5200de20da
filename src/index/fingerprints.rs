//! Which URLs are known, 8 bytes and a fraction each.
//!
//! A URL is known by its 64-bit fingerprint alone. The chance that any of n URLs is taken for another is
//! about n²/2^65: 3 in 10,000 for 100 million. The seed is new in every process, so that nobody can
//! prepare URLs that collide.

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, VacantEntry};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A table that grows is copied whole; as many as this, so that each copy is short and needs little room.
const SHARDS: usize = 64;

/// A set of fingerprints.
pub(super) struct Fingerprints {
    seed: u64,
    shards: [HashTable<u64>; SHARDS],
}

impl Fingerprints {
    /// No URLs are known.
    pub(super) fn new(seed: u64) -> Self {
        Fingerprints { seed, shards: std::array::from_fn(|_| HashTable::new()) }
    }

    /// The place for `url`, if it is new.
    pub(super) fn vacancy(&mut self, url: &str) -> Option<Vacancy<'_>> {
        let print = xxh3_64_with_seed(url.as_bytes(), self.seed);
        // The tables use the lowest bits and the seven highest: these are others.
        let shard = (print >> 48) as usize % SHARDS;
        match self.shards[shard].entry(print, |&known| known == print, |&known| known) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => Some(Vacancy { place, print }),
        }
    }
}

/// A place in the set that may be taken or left.
pub(super) struct Vacancy<'a> {
    place: VacantEntry<'a, u64>,
    print: u64,
}

impl Vacancy<'_> {
    /// From now on the URL is known.
    pub(super) fn take(self) {
        self.place.insert(self.print);
    }
}
