//! The store against a dull model, through crashes: random additions, requests, reports and syncs; then the process
//! dies (nothing is lost), or the power fails (what was written since the last sync is cut anywhere, or zeroed). What
//! happens to the blocks meanwhile is of no importance: they are cut, zeroed, changed, or gone.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::ends::{Ended, How, State};
use super::log::FILE_HEADER;
use super::store::Store;
use super::tool;
use crate::document::{DenyReason, End, FailReason, Outcome, Report};
use crate::ids::DocId;
use crate::index::memory::TURN;
use crate::index::{Added, Addition};
use crate::time::Duration;
use crate::url::Url;
use fastrand::Rng;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::TempDir;

const HOSTS: usize = 5;
const PAGES: usize = 40;
const RECRAWL_AFTER: u64 = 100;

/// A document that was accepted, in order of arrival.
#[derive(Clone, PartialEq, Debug)]
struct Arrival {
    doc: u64,
    url: String,
    not_before: Option<u64>,
    given: bool,
    ended: Option<Ended>,
    /// The end is on the disk.
    safe_end: bool,
}

struct Model {
    rng: Rng,
    seed: u64,
    directory: TempDir,
    store: Option<Store>,
    recrawl: bool,
    now: u64,
    arrivals: Vec<Arrival>,
    /// How many of them are on the disk.
    safe: usize,
    /// Bytes of the two logs that are on the disk, whatever the store knows of it.
    floors: [u64; 2],
    /// Documents of a block.
    block: usize,
    /// Blocks that counted when a store was opened, over all.
    blocks: usize,
}

/// Says which seed it was.
impl Drop for Model {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.seed);
        }
    }
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut rng = Rng::with_seed(seed);
        let directory = tempfile::tempdir().unwrap();
        let recrawl = rng.bool();
        let block = rng.usize(1..60);
        let mut model = Model {
            rng,
            seed,
            directory,
            store: None,
            recrawl,
            now: 1_000_000,
            arrivals: Vec::new(),
            safe: 0,
            floors: [FILE_HEADER; 2],
            block,
            blocks: 0,
        };
        model.open();
        model
    }

    fn open(&mut self) {
        let after = self.recrawl.then_some(Duration::from_secs(RECRAWL_AFTER));
        let mut store = Store::open(self.directory.path(), after).unwrap();
        store.sealer.full = self.block;
        self.blocks += store.load.as_ref().map_or(0, |load| load.blocks());
        // Some at a time, or all at once.
        while !store.load_some(1 + self.rng.u64(..200), self.now).unwrap() {
            if self.rng.bool() {
                store.seal();
            }
        }
        self.store = Some(store);
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    /// The newest arrival of a URL is the one that counts.
    fn counts(&self, place: usize) -> bool {
        let url = &self.arrivals[place].url;
        !self.arrivals[place + 1..].iter().any(|later| later.url == *url)
    }

    fn step(&mut self) {
        match self.rng.u32(..100) {
            0..40 => self.add(),
            40..65 => self.take(),
            65..85 => self.report(),
            85..88 => self.sync(),
            88..90 => self.store().seal(),
            90..92 => self.settle(),
            92..94 => self.now += self.rng.u64(..RECRAWL_AFTER),
            94..95 => self.compact(),
            _ => self.crash(),
        }
    }

    fn url(&mut self) -> Url {
        let (host, page) = (self.rng.usize(..HOSTS), self.rng.usize(..PAGES));
        let shape = ["http://h#.example/", "https://h#.example/a?", "http://u@h#.example/"][page % 3];
        Url::parse(&format!("{}{page}", shape.replace('#', &host.to_string()))).unwrap()
    }

    fn add(&mut self) {
        let n = self.rng.usize(1..12);
        let urls: Vec<Addition> = (0..n)
            .map(|_| Addition {
                url: self.url(),
                doc: (self.rng.u32(..4) == 0).then(|| DocId(self.rng.u64(..300))),
                not_before: (self.rng.u32(..6) == 0).then(|| self.now - 20 + self.rng.u64(..60)),
            })
            .collect();
        let now = self.now;
        let had_ghosts = self.store().has_ghosts;
        if had_ghosts {
            // Before anything else the ends are put into cells: what is there is on the disk then.
            self.floors[0] = self.store().log.end();
            self.all_is_safe();
        }
        let (answers, error) = self.store().insert(&urls, now);
        assert!(error.is_none() && !self.store().has_ghosts);
        if had_ghosts {
            // A new log was begun.
            self.floors[1] = FILE_HEADER;
        }
        for (new, added) in urls.into_iter().zip(answers) {
            let expected = self.expected(&new);
            match (added, expected) {
                (Added::Accepted(doc), Expected::New(wanted)) => {
                    assert!(wanted.is_none_or(|wanted| wanted == doc.0));
                    let fresh = wanted.is_some() || self.arrivals.iter().all(|other| other.doc != doc.0);
                    assert!(fresh, "{doc} is taken");
                    self.arrivals.push(Arrival {
                        doc: doc.0,
                        url: new.url.as_str().to_owned(),
                        not_before: new.not_before.filter(|time| *time > now),
                        given: false,
                        ended: None,
                        safe_end: false,
                    });
                }
                (Added::Duplicate, Expected::Duplicate) | (Added::IdTaken, Expected::IdTaken) => {}
                (added, expected) => panic!("{added:?} for {new:?}, not {expected:?}"),
            }
        }
    }

    fn expected(&self, new: &Addition) -> Expected {
        let known = self.arrivals.iter().rfind(|arrival| arrival.url == new.url.as_str());
        let old = match known.map(|known| (known.doc, known.ended)) {
            Some((doc, Some(ended))) if self.recrawl && self.now - u64::from(ended.at) >= RECRAWL_AFTER => {
                Some(doc)
            }
            Some(_) => return Expected::Duplicate,
            None => None,
        };
        match (new.doc, old) {
            (None, old) => Expected::New(old),
            (Some(DocId(doc)), Some(old)) if doc == old => Expected::New(Some(doc)),
            (Some(DocId(doc)), _) if self.arrivals.iter().any(|arrival| arrival.doc == doc) => {
                Expected::IdTaken
            }
            (Some(DocId(doc)), _) => Expected::New(Some(doc)),
        }
    }

    fn take(&mut self) {
        let n = self.rng.usize(..30);
        let reject: Vec<Box<str>> =
            (0..self.rng.usize(..3)).map(|host| format!("h{host}.example").into()).collect();
        let now = self.now;
        self.store().wake(now);
        let list = self.store().take(n, &reject, |error| panic!("{error}"));
        let may_go = |arrival: &Arrival| !arrival.given && arrival.ended.is_none();
        let is_rejected =
            |arrival: &Arrival| reject.iter().any(|host| Url::parse(&arrival.url).unwrap().host() == &**host);
        let free = |arrival: &&Arrival| {
            may_go(arrival) && !is_rejected(arrival) && arrival.not_before.is_none_or(|time| time <= now)
        };
        assert_eq!(list.len(), n.min(self.arrivals.iter().filter(free).count()));
        for candidate in list {
            let place = self.place(candidate.doc.0);
            assert!(free(&&self.arrivals[place]) && self.arrivals[place].url == candidate.url.as_str());
            // In order: nothing of this host that has no time of its own is left before it.
            let earlier = self.arrivals[..place].iter().filter(|other| other.not_before.is_none());
            let same = |other: &&Arrival| Url::parse(&other.url).unwrap().host() == candidate.url.host();
            let passed = self.arrivals[place].not_before.is_none() && earlier.filter(same).any(may_go);
            assert!(!passed, "{} before its turn", candidate.url.as_str());
            self.arrivals[place].given = true;
        }
    }

    fn place(&self, doc: u64) -> usize {
        self.arrivals.iter().rposition(|arrival| arrival.doc == doc).unwrap()
    }

    fn report(&mut self) {
        let given = self.arrivals.iter().filter(|arrival| arrival.given && arrival.ended.is_none());
        let docs: Vec<u64> = given.map(|arrival| arrival.doc).collect();
        let mut reports = Vec::new();
        for doc in docs {
            if self.rng.bool() {
                let end = end(&mut self.rng);
                let place = self.place(doc);
                self.arrivals[place].ended = Some(Ended { at: self.now as u32, how: How::of(end) });
                reports.push(Report { doc: DocId(doc), end });
            }
        }
        // Repeats, and documents that nobody was given, change nothing.
        reports.extend(reports.clone());
        reports.push(Report { doc: DocId(999_999), end: End::Done(Outcome::Unsaid) });
        let now = self.now;
        self.store().report(&reports, now).unwrap();
    }

    fn sync(&mut self) {
        self.store().sync().unwrap();
        self.floors = [self.store().log.synced(), self.store().ends.log().synced()];
        self.all_is_safe();
    }

    fn all_is_safe(&mut self) {
        self.safe = self.arrivals.len();
        for arrival in &mut self.arrivals {
            arrival.safe_end = arrival.ended.is_some();
        }
    }

    /// Documents and ends are on the disk when ends are in cells.
    fn settle(&mut self) {
        self.store().settle().unwrap();
        self.floors = [self.store().log.end(), FILE_HEADER];
        self.all_is_safe();
    }

    fn compact(&mut self) {
        self.store = None;
        tool::compact(self.directory.path()).unwrap();
        let keep: Vec<bool> = (0..self.arrivals.len()).map(|place| self.counts(place)).collect();
        let mut keep = keep.into_iter();
        self.arrivals.retain(|_| keep.next().unwrap());
        self.all_is_safe();
        self.handle_restart();
        self.floors = [self.store().log.end(), FILE_HEADER];
    }

    fn crash(&mut self) {
        let store = self.store.take().unwrap();
        let logs = [&store.log, store.ends.log()].map(|log| (log.path().to_owned(), log.end()));
        drop(store);
        let power_fails = self.rng.bool();
        if power_fails {
            for ((path, end), floor) in logs.into_iter().zip(self.floors) {
                self.tear(&path, floor, end);
            }
        }
        if self.rng.bool() {
            self.harm_blocks();
        }
        self.open();
        let count = self.store().reader.count() as usize;
        assert!((self.safe..=self.arrivals.len()).contains(&count));
        assert!(power_fails || count == self.arrivals.len());
        self.arrivals.truncate(count);
        self.adopt_ends(power_fails);
        self.store = None;
        self.handle_restart();
    }

    /// What is behind the last sync is cut somewhere, or is zero from there on.
    fn tear(&mut self, path: &Path, floor: u64, end: u64) {
        let file = File::options().write(true).open(path).unwrap();
        let cut = self.rng.u64(floor..=end);
        if self.rng.bool() {
            file.set_len(cut).unwrap();
        } else {
            file.write_all_at(&vec![0; (end - cut) as usize], cut).unwrap();
        }
    }

    /// Something happens to the file of the blocks.
    fn harm_blocks(&mut self) {
        let names = super::files::names(self.directory.path()).unwrap();
        let Some(name) = names.iter().find(|name| name.starts_with("prints-")) else { return };
        let path = self.directory.path().join(name);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        let at = self.rng.u64(..=len);
        match self.rng.u32(..4) {
            0 => std::fs::remove_file(&path).unwrap(),
            1 => file.set_len(at).unwrap(),
            2 => file.write_all_at(&vec![0; self.rng.usize(..300)], at).unwrap(),
            _ => {
                let mut byte = [0];
                if file.read_at(&mut byte, at).unwrap() == 1 {
                    file.write_all_at(&[byte[0] ^ 1 << self.rng.u32(..8)], at).unwrap();
                }
            }
        }
    }

    /// An end that was not safe may be lost with the power; no other.
    fn adopt_ends(&mut self, power_fails: bool) {
        for place in 0..self.arrivals.len() {
            let found = self.store().ends.find(place as u32).unwrap();
            let arrival = &mut self.arrivals[place];
            let lost = power_fails && !arrival.safe_end && found.is_none();
            assert!(found == arrival.ended || lost, "{found:?} for {arrival:?}");
            arrival.ended = found;
        }
    }

    fn handle_restart(&mut self) {
        self.open();
        self.arrivals.iter_mut().for_each(|arrival| arrival.given = false);
        let now = self.now;
        for arrival in &mut self.arrivals {
            arrival.not_before = arrival.not_before.filter(|time| *time > now);
        }
        self.check();
    }

    /// Every URL is known, as it should be.
    fn check(&mut self) {
        for place in 0..self.arrivals.len() {
            if !self.counts(place) {
                continue;
            }
            let arrival = self.arrivals[place].clone();
            let found = self.store().look_up(&Url::parse(&arrival.url).unwrap()).unwrap().unwrap();
            assert_eq!(
                (found.doc.0, found.given_out),
                (arrival.doc, arrival.given && arrival.ended.is_none())
            );
            let end = arrival.ended.map(|ended| (ended.how.end(), ended.at.into()));
            assert_eq!(found.end, end);
        }
        let current: Vec<_> = (0..self.arrivals.len()).filter(|place| self.counts(*place)).collect();
        for state in [None, Some(State::Done), Some(State::Failed), Some(State::Denied)] {
            let of = |place: &&usize| self.arrivals[**place].ended.map(|ended| ended.how.state()) == state;
            let count = current.iter().filter(of).count() as u64;
            assert_eq!(*self.store().counts.of(state), count, "{state:?}");
        }
    }

    /// After all is over nothing waits, and every document has ended once.
    fn drain(&mut self) {
        self.now += 10_000;
        loop {
            let waiting = self.store().waiting() + self.store().timed.len();
            let given = self.arrivals.iter().any(|arrival| arrival.given && arrival.ended.is_none());
            if waiting == 0 && !given {
                break;
            }
            self.take();
            self.report();
        }
        assert!(self.arrivals.iter().all(|arrival| arrival.ended.is_some()));
        self.check();
    }
}

#[derive(PartialEq, Debug)]
enum Expected {
    /// Under this name, or any.
    New(Option<u64>),
    Duplicate,
    IdTaken,
}

fn end(rng: &mut Rng) -> End {
    match rng.u32(..4) {
        0 => End::Done(Outcome::Unsaid),
        1 => End::Done(Outcome::Status(rng.u16(100..600))),
        2 => End::Failed([FailReason::Dns, FailReason::Outcome(Outcome::Timeout)][rng.usize(..2)]),
        _ => End::Denied(DenyReason::PrivateAddress),
    }
}

#[test]
fn nothing_accepted_is_lost_and_nothing_ended_comes_again() {
    let mut blocks = 0;
    for seed in 0..150 {
        let mut model = Model::new(seed);
        for _ in 0..80 {
            model.step();
        }
        model.check();
        model.drain();
        blocks += model.blocks;
    }
    assert!(blocks > 500, "{blocks}: the blocks were of use");
}

#[test]
fn hosts_are_served_in_turn_and_each_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path(), None).unwrap();
    let url = |host: usize, page: usize| Addition {
        doc: None,
        url: Url::parse(&format!("http://h{host}.example/{page}")).unwrap(),
        not_before: None,
    };
    let urls: Vec<Addition> = (0..150)
        .flat_map(|page| (0..3).map(move |host| (host, page)))
        .map(|(host, page)| url(host, page))
        .collect();
    store.insert(&urls, 0);
    let runs = |list: Vec<crate::document::Candidate>| -> Vec<(String, usize)> {
        let runs = list.chunk_by(|a, b| a.url.host() == b.url.host());
        runs.map(|run| (run[0].url.host().to_owned(), run.len())).collect()
    };
    let host = |number: usize| format!("h{number}.example");
    let mut take = |n, reject: &[Box<str>]| runs(store.take(n, reject, |error| panic!("{error}")));
    assert_eq!(take(TURN + 50, &[]), [(host(0), TURN), (host(1), 50)]);
    assert_eq!(take(60, &["h2.example".into(), "x".into()]), [(host(0), 50), (host(1), 10)]);
    assert_eq!(take(1000, &[]), [(host(2), TURN), (host(1), 90), (host(2), 50)]);
}
