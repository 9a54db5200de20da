//! Which URLs are known, some ten bytes each.
//!
//! A URL is known by its 64-bit fingerprint alone. The chance that any of n URLs is taken for another is
//! about n²/2^65: 3 in 10,000 for 100 million. The seed is new in every process, so that nobody can
//! prepare URLs that collide.
//!
//! The set is many small tables of bare fingerprints, each filled to seven eighths and then grown by a
//! quarter: a table that doubles would stand half empty on average, and twice in memory while it grows.

use xxhash_rust::xxh3::xxh3_64_with_seed;

const SHARDS: usize = 256;
/// No fingerprint: the one URL in 2^64 that has it gets another.
const EMPTY: u64 = 0;
const FIRST_LEN: usize = 32;

/// A set of fingerprints.
pub(super) struct Fingerprints {
    seed: u64,
    shards: Vec<Shard>,
}

/// Fingerprints, each at or behind the place that it points to, with no gap between.
#[derive(Default)]
struct Shard {
    places: Box<[u64]>,
    used: usize,
}

impl Fingerprints {
    /// No URLs are known.
    pub(super) fn new(seed: u64) -> Self {
        Fingerprints { seed, shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    /// The place for `url`, if it is new.
    pub(super) fn vacancy(&mut self, url: &str) -> Option<Vacancy<'_>> {
        let print = xxh3_64_with_seed(url.as_bytes(), self.seed).max(EMPTY + 1);
        // A place goes by the highest bits: these are others.
        let shard = &mut self.shards[print as usize % SHARDS];
        shard.make_room();
        let place = shard.find(print);
        (shard.places[place] == EMPTY).then_some(Vacancy { shard, place, print })
    }

    /// Whether `url` is known.
    pub(super) fn contains(&mut self, url: &str) -> bool {
        self.vacancy(url).is_none()
    }
}

impl Shard {
    /// Makes sure that there is room for one more.
    fn make_room(&mut self) {
        let len = self.places.len();
        if self.used < len / 8 * 7 {
            return;
        }
        let larger = vec![EMPTY; (len + len / 4).max(FIRST_LEN)].into_boxed_slice();
        for print in std::mem::replace(&mut self.places, larger) {
            if print != EMPTY {
                let place = self.find(print);
                self.places[place] = print;
            }
        }
    }

    /// Where `print` is, or belongs.
    fn find(&self, print: u64) -> usize {
        let len = self.places.len();
        let mut place = ((u128::from(print) * len as u128) >> 64) as usize;
        while self.places[place] != EMPTY && self.places[place] != print {
            place = if place + 1 == len { 0 } else { place + 1 };
        }
        place
    }
}

/// A place in the set that may be taken or left.
pub(super) struct Vacancy<'a> {
    shard: &'a mut Shard,
    place: usize,
    print: u64,
}

impl Vacancy<'_> {
    /// From now on the URL is known.
    pub(super) fn take(self) {
        self.shard.places[self.place] = self.print;
        self.shard.used += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(set: &mut Fingerprints, url: &str) -> bool {
        set.vacancy(url).map(Vacancy::take).is_some()
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
    fn a_place_that_is_left_stays_free() {
        let mut set = Fingerprints::new(3);
        assert!(set.vacancy("http://a.example/").is_some());
        assert!(add(&mut set, "http://a.example/"));
        assert!(set.vacancy("http://a.example/").is_none());
    }

    #[test]
    fn a_fingerprint_costs_little_more_than_itself() {
        let mut set = Fingerprints::new(3);
        for n in 0..200_000 {
            add(&mut set, &format!("http://a.example/{n}"));
        }
        let bytes: usize = set.shards.iter().map(|shard| shard.places.len() * 8).sum();
        assert!(bytes < 200_000 * 12, "{} bytes each", bytes / 200_000);
    }
}
