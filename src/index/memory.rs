//! The index in RAM: lives and dies with the server.
//!
//! A URL that waits costs its tail, its id and its fingerprint; one that is done costs its fingerprint.
//! Hosts with waiting URLs stand in a ring in order of arrival and are served in turn.

use super::doc_ids::DocIds;
use super::fingerprints::{Fingerprint, Fingerprints};
use super::{Added, Addition, Counters, DocumentIndex, IndexEvent, Known, unix_seconds};
use crate::document::{Candidate, Report, Tried};
use crate::ids::DocId;
use crate::names::{Name, Names};
use crate::time::Duration;
use crate::url::Url;
use crate::url_queue::{QueuedUrl, UrlQueue, UrlStore};
use hashbrown::{HashMap, HashTable};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Most URLs of one host before it is the next one's turn: the default length of a host's queue.
pub const TURN: usize = 100;

/// URLs of one host that are walked in search of one.
const WALK_MAX: usize = 100_000;

/// Hosts whose memory is kept when nothing waits.
const HOSTS_KEPT: usize = 1_024;

/// All documents, by host.
pub struct MemoryIndex {
    hosts: Hosts,
    /// Hosts with waiting URLs, each once, the next to be served first.
    ring: VecDeque<u32>,
    store: UrlStore,
    known: Fingerprints,
    ids: DocIds,
    waiting: usize,
    /// The few documents that have a time, in seconds since 1970. They are given out at once, with their wait.
    not_before: HashMap<DocId, u64>,
    /// Used again for every URL that leaves.
    url: QueuedUrl,
    events: VecDeque<IndexEvent>,
    grown: bool,
    counters: Arc<Counters>,
}

impl Default for MemoryIndex {
    fn default() -> Self {
        Self::with_seed(fastrand::u64(..))
    }
}

impl MemoryIndex {
    /// An empty index. The seed is that of the fingerprints.
    pub fn with_seed(seed: u64) -> Self {
        MemoryIndex {
            hosts: Hosts { seed, by_name: HashTable::new(), names: Names::default(), slab: Slab::new() },
            ring: VecDeque::new(),
            store: UrlStore::default(),
            known: Fingerprints::new(seed),
            ids: DocIds::default(),
            waiting: 0,
            not_before: HashMap::new(),
            url: QueuedUrl::default(),
            events: VecDeque::from([IndexEvent::Up]),
            grown: false,
            counters: Arc::default(),
        }
    }

    /// URLs that have not been given out.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Puts one URL in, under the name `doc` or the next free one.
    pub fn insert(&mut self, doc: Option<DocId>, url: &Url) -> Added {
        let print = self.known.of(url.as_str());
        self.insert_new(doc, url, print)
    }

    fn insert_new(&mut self, doc: Option<DocId>, url: &Url, print: Fingerprint) -> Added {
        if self.known.contains(print) {
            return Added::Duplicate;
        }
        let doc = match doc {
            Some(doc) => self.ids.take(doc).then_some(doc),
            None => self.ids.take_next(),
        };
        let Some(doc) = doc else { return Added::IdTaken };
        self.known.insert(print);
        self.push(doc, url);
        Added::Accepted(doc)
    }

    /// What is known of a URL. Walks its host's queue.
    pub fn known(&mut self, url: &Url) -> Known {
        if !self.known.contains(self.known.of(url.as_str())) {
            return Known::Unknown;
        }
        let Some(host) = self.hosts.find(url.host()) else { return Known::GivenOrEnded };
        let queue = &self.hosts.slab[host as usize].queue;
        match self.store.position(queue, url.tail(), WALK_MAX) {
            Some(_) => Known::Waiting,
            None if queue.len() > WALK_MAX => Known::Unsaid,
            None => Known::GivenOrEnded,
        }
    }

    fn push(&mut self, doc: DocId, url: &Url) {
        let id = self.hosts.find_or_insert(url.host());
        let queue = &mut self.hosts.slab[id as usize].queue;
        if queue.is_empty() {
            self.ring.push_back(id);
        }
        self.store.push(queue, doc, url.tail());
        self.waiting += 1;
    }

    /// Takes up to `n` URLs out, none of the hosts in `reject`, which is sorted. Costs what it gives, and
    /// the rejected hosts it passes; those keep their turn.
    pub fn take(&mut self, n: usize, reject: &[Box<str>]) -> Vec<Candidate> {
        let mut list = Vec::with_capacity(n.min(self.waiting));
        let mut passed = Vec::new();
        while list.len() < n
            && let Some(id) = self.ring.pop_front()
        {
            let host = self.hosts.name(id);
            if reject.binary_search_by(|rejected| (**rejected).cmp(host)).is_ok() {
                passed.push(id);
            } else {
                self.serve(id, TURN.min(n - list.len()), &mut list);
            }
        }
        for id in passed.into_iter().rev() {
            self.ring.push_front(id);
        }
        self.waiting -= list.len();
        if self.waiting == 0 {
            self.hosts.shrink();
            self.ring = VecDeque::new();
        }
        list
    }

    /// One host's turn. A host without URLs is forgotten, one with more goes to the end of the ring.
    fn serve(&mut self, id: u32, n: usize, list: &mut Vec<Candidate>) {
        let Hosts { slab, names, .. } = &mut self.hosts;
        let host = &mut slab[id as usize];
        for _ in 0..n {
            if !self.store.pop(&mut host.queue, &mut self.url) {
                break;
            }
            let url = Url::from_tail(names.get(host.name), self.url.tail());
            let time = if self.not_before.is_empty() { None } else { self.not_before.remove(&self.url.doc) };
            let wait = time.map_or(0, |time| time.saturating_sub(unix_seconds()));
            list.push(Candidate {
                doc: self.url.doc,
                url,
                ip: None,
                wait: Duration::from_secs(wait),
                tried: Tried::default(),
            });
        }
        if host.queue.is_empty() {
            self.hosts.remove(id);
        } else {
            self.ring.push_back(id);
        }
    }
}

impl DocumentIndex for MemoryIndex {
    fn ask(&mut self, n: usize, reject: Vec<Box<str>>) {
        let list = self.take(n, &reject);
        let given = list.len();
        self.counters.requests.add(1);
        self.counters.candidates.add(given);
        if given > 0 {
            self.events.push_back(IndexEvent::Candidates(list));
        }
        // What is left is of rejected hosts.
        let complete = given > 0 || self.waiting == 0;
        self.events.push_back(IndexEvent::Answered { given, complete });
    }

    /// Nothing is kept of a document that has ended, but that its URL is known.
    fn report(&mut self, reports: Vec<Report>) {
        self.counters.count_reports(&reports);
    }

    fn add(&mut self, urls: Vec<Addition>, reply: oneshot::Sender<Vec<Added>>) {
        let prints: Vec<Fingerprint> = urls.iter().map(|new| self.known.of(new.url.as_str())).collect();
        std::hint::black_box(prints.iter().fold(0, |sum, print| sum ^ self.known.touch(*print)));
        let new = urls.iter().zip(prints);
        let added: Vec<Added> = new.map(|(new, print)| self.insert_new(new.doc, &new.url, print)).collect();
        for (new, added) in urls.iter().zip(&added) {
            if let (Some(time), Added::Accepted(doc)) = (new.not_before, added) {
                self.not_before.insert(*doc, time);
            }
        }
        self.grown |= self.counters.count_added(&added) > 0;
        // Whoever asked may be gone.
        let _ = reply.send(added);
    }

    fn look_up(&mut self, url: Url, reply: oneshot::Sender<Known>) {
        let _ = reply.send(self.known(&url));
    }

    async fn event(&mut self) -> IndexEvent {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        if std::mem::take(&mut self.grown) {
            return IndexEvent::Grown;
        }
        std::future::pending().await
    }

    async fn close(&mut self) {}

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

/// Hosts with waiting URLs, found by name; each name is stored once.
struct Hosts {
    seed: u64,
    by_name: HashTable<u32>,
    names: Names,
    slab: Slab<Host>,
}

struct Host {
    name: Name,
    queue: UrlQueue,
}

impl Hosts {
    fn find(&self, name: &str) -> Option<u32> {
        self.by_name.find(self.hash(name), |&id| self.name(id) == name).copied()
    }

    fn find_or_insert(&mut self, name: &str) -> u32 {
        if let Some(id) = self.find(name) {
            return id;
        }
        let hash = self.hash(name);
        let name = self.names.add(name);
        let id = self.slab.insert(Host { name, queue: UrlQueue::default() }) as u32;
        let (slab, names, seed) = (&self.slab, &self.names, self.seed);
        let rehash = |&id: &u32| xxh3_64_with_seed(names.get(slab[id as usize].name).as_bytes(), seed);
        self.by_name.insert_unique(hash, id, rehash);
        id
    }

    fn name(&self, id: u32) -> &str {
        self.names.get(self.slab[id as usize].name)
    }

    fn remove(&mut self, id: u32) {
        let hash = self.hash(self.name(id));
        let host = self.slab.remove(id as usize);
        self.names.remove(host.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
    }

    /// Nothing waits: the memory of many hosts is given back.
    fn shrink(&mut self) {
        if self.slab.is_empty() && self.slab.capacity() > HOSTS_KEPT {
            self.slab = Slab::new();
            self.by_name = HashTable::new();
        }
    }

    fn hash(&self, name: &str) -> u64 {
        xxh3_64_with_seed(name.as_bytes(), self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn url(host: usize, page: usize) -> Url {
        Url::parse(&format!("http://h{host:03}.example/{page}")).expect("a URL")
    }

    /// The hosts of an answer in runs, with their lengths.
    fn runs(list: &[Candidate]) -> Vec<(String, usize)> {
        list.chunk_by(|a, b| a.url.host() == b.url.host())
            .map(|run| (run[0].url.host().to_owned(), run.len()))
            .collect()
    }

    fn filled(hosts: usize, pages: usize) -> MemoryIndex {
        let mut index = MemoryIndex::with_seed(1);
        for host in 0..hosts {
            for page in 0..pages {
                assert!(matches!(index.insert(None, &url(host, page)), Added::Accepted(_)));
            }
        }
        index
    }

    #[test]
    fn hosts_are_served_in_turn_a_queue_full_each() {
        let mut index = filled(3, 150);
        let (a, b, c) = ("h000.example".to_owned(), "h001.example".to_owned(), "h002.example".to_owned());
        assert_eq!(runs(&index.take(250, &[])), [(a.clone(), 100), (b.clone(), 100), (c.clone(), 50)]);
        assert_eq!(runs(&index.take(1000, &[])), [(a, 50), (b, 50), (c, 100)]);
        assert_eq!(index.waiting(), 0);
    }

    #[test]
    fn rejected_hosts_are_passed_and_keep_their_turn() {
        let mut index = filled(4, 1);
        let reject = ["h000.example".into(), "h002.example".into()];
        assert_eq!(runs(&index.take(9, &reject)), [("h001.example".into(), 1), ("h003.example".into(), 1)]);
        assert!(index.take(9, &reject).is_empty());
        index.insert(None, &url(9, 0));
        let hosts: Vec<_> = runs(&index.take(9, &[])).into_iter().map(|(host, _)| host).collect();
        assert_eq!(hosts, ["h000.example", "h002.example", "h009.example"]);
    }

    #[test]
    fn a_name_belongs_to_one_url() {
        let mut index = MemoryIndex::with_seed(1);
        assert_eq!(index.insert(Some(DocId(1)), &url(0, 0)), Added::Accepted(DocId(1)));
        assert_eq!(index.insert(Some(DocId(1)), &url(0, 1)), Added::IdTaken);
        assert_eq!(index.insert(Some(DocId(2)), &url(0, 0)), Added::Duplicate);
        assert_eq!(index.insert(None, &url(0, 1)), Added::Accepted(DocId(2)), "a refused URL is still new");
    }

    #[test]
    fn a_url_is_unknown_then_waits_then_is_given() {
        let mut index = filled(2, 3);
        assert_eq!(index.known(&url(5, 0)), Known::Unknown);
        assert_eq!(index.known(&url(0, 7)), Known::Unknown);
        assert_eq!(index.known(&url(0, 2)), Known::Waiting);
        index.take(2, &["h001.example".into()]);
        assert_eq!((index.known(&url(0, 1)), index.known(&url(0, 2))), (Known::GivenOrEnded, Known::Waiting));
        index.take(9, &[]);
        assert_eq!(index.known(&url(0, 2)), Known::GivenOrEnded);
    }

    #[test]
    fn finished_hosts_cost_nothing_and_their_urls_stay_known() {
        let mut index = filled(100, 3);
        index.take(300, &[]);
        assert!(index.hosts.slab.is_empty() && index.hosts.by_name.is_empty() && index.ring.is_empty());
        assert_eq!(index.insert(None, &url(7, 2)), Added::Duplicate);
    }

    proptest! {
        #[test]
        fn every_url_is_given_once_and_each_host_in_order(
            ops in prop::collection::vec((0..6usize, 0..30usize, prop::bool::weighted(0.3)), 0..200),
        ) {
            let mut index = MemoryIndex::with_seed(1);
            let mut model: Vec<Vec<(u64, Url)>> = vec![Vec::new(); 6];
            let mut known = HashSet::new();
            for (host, number, take) in ops {
                if take {
                    let reject: Vec<Box<str>> = (0..host).map(|h| url(h, 0).host().into()).collect();
                    let list = index.take(number, &reject);
                    let free: usize = model[host..].iter().map(Vec::len).sum();
                    prop_assert_eq!(list.len(), number.min(free));
                    for given in list {
                        let of: usize = given.url.host()[1..4].parse().expect("a number");
                        prop_assert!(of >= host);
                        prop_assert_eq!(model[of].remove(0), (given.doc.0, given.url));
                    }
                } else {
                    let new = url(host, number);
                    match index.insert(None, &new) {
                        Added::Accepted(doc) => {
                            prop_assert!(known.insert(new.as_str().to_owned()));
                            model[host].push((doc.0, new));
                        }
                        other => {
                            prop_assert_eq!(other, Added::Duplicate);
                            prop_assert!(known.contains(new.as_str()));
                        }
                    }
                }
                prop_assert_eq!(index.waiting(), model.iter().map(Vec::len).sum::<usize>());
            }
        }
    }
}
