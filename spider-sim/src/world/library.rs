//! The document index of a world: the real one in memory, behind a librarian with bad manners.

use super::plan::{IndexManners, Site};
use std::collections::VecDeque;
use urlserver::document::Candidate;
use urlserver::index::{Added, MemoryIndex};
use urlserver::scheduler::Request;
use urlserver::time::{Duration, Instant};
use urlserver::url::Url;

/// Candidates remembered, to be offered again.
const LENT_KEPT: usize = 64;
/// Longest `not-before`.
const WAIT_MAX_MILLIS: u64 = 90_000;

/// See the module.
pub(super) struct Library {
    index: MemoryIndex,
    lent: VecDeque<Candidate>,
    /// Documents that come later: when, and of which site.
    late: VecDeque<(Instant, u32)>,
    numbers: u32,
    accepted: u64,
}

impl Library {
    /// All documents of `sites`, some of which come some time before `end`.
    pub(super) fn new(
        sites: &[Site],
        manners: &IndexManners,
        end: Instant,
        rng: &mut fastrand::Rng,
    ) -> Library {
        let index = MemoryIndex::with_seed(rng.u64(..));
        let mut library =
            Library { index, lent: VecDeque::new(), late: VecDeque::new(), numbers: 0, accepted: 0 };
        let mut late = Vec::new();
        for (number, site) in (0..).zip(sites) {
            for _ in 0..site.urls {
                if rng.f64() < manners.late {
                    late.push((Instant::from_micros(rng.u64(..=end.as_micros())), number));
                } else {
                    library.write(site);
                }
            }
        }
        late.sort_unstable();
        library.late = late.into();
        library
    }

    /// When the next documents come.
    pub(super) fn next_late(&self) -> Option<Instant> {
        self.late.front().map(|&(at, _)| at)
    }

    /// Takes in what has come by `now`. True if that is something new.
    pub(super) fn handle_late(&mut self, now: Instant, sites: &[Site]) -> bool {
        let mut grown = false;
        while let Some(&(_, site)) = self.late.front().filter(|(at, _)| *at <= now) {
            self.late.pop_front();
            grown |= self.write(&sites[site as usize]);
        }
        grown
    }

    /// A URL that a spider has found. True if it is new.
    pub(super) fn add(&mut self, url: &Url) -> bool {
        let new = matches!(self.index.insert(None, url), Added::Accepted(_));
        self.accepted += u64::from(new);
        new
    }

    /// Documents that it knows.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Nothing waits, and nothing will come.
    pub(super) fn is_empty(&self) -> bool {
        self.index.waiting() == 0 && self.late.is_empty()
    }

    /// What there is. `pending` tells whether a document has not ended.
    pub(super) fn answer(
        &mut self,
        request: &Request,
        manners: &IndexManners,
        rng: &mut fastrand::Rng,
        pending: impl Fn(&Candidate) -> bool,
    ) -> Vec<Candidate> {
        if rng.f64() < manners.empty {
            return Vec::new();
        }
        let reject: &[Box<str>] = if rng.f64() < manners.deaf { &[] } else { &request.reject };
        let surplus = if rng.f64() < manners.surplus { rng.usize(1..20) } else { 0 };
        let mut list = self.index.take(request.count + surplus, reject);
        for candidate in &mut list {
            if rng.f64() < manners.wait {
                candidate.wait = Duration::from_millis(rng.u64(..WAIT_MAX_MILLIS));
            }
        }
        self.lent.extend(list.iter().rev().take(LENT_KEPT).cloned());
        self.lent.drain(..self.lent.len().saturating_sub(LENT_KEPT));
        if rng.f64() < manners.repeats {
            list.extend(self.lent.iter().filter(|candidate| pending(candidate)).cloned());
        }
        list
    }

    /// One more document of `site`, written in one of the ways that mean the same host.
    fn write(&mut self, site: &Site) -> bool {
        self.numbers += 1;
        let (name, n) = (&site.name, self.numbers);
        let text = match n % 5 {
            0 => format!("https://{name}/{n}"),
            1 => format!("http://{name}:8080/{n}"),
            2 => format!("http://{}/{n}#top", name.to_uppercase()),
            3 => format!("http://user@{name}./{n}"),
            _ => format!("http://{name}/{n}?q"),
        };
        Url::parse(&text).is_ok_and(|url| self.add(&url))
    }
}
