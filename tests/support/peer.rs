//! One server of a shared index, as the index sees it: on a runtime of its own, which runs only while it is told to. One that
//! does not run is one that was stopped with SIGSTOP, and one whose runtime is dropped is one that was killed.
#![allow(dead_code, unreachable_pub, reason = "every test that includes this uses a part of it")]

use super::postgres::sql;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use urlserver::claim::{ClaimAction, ClaimKey, ClaimNews, OwedClock, Wish};
use urlserver::document::{Candidate, End, Outcome, Report};
use urlserver::index::{
    Added, Adder, Addition, IndexEvent, IndexHandle, PostgresIndex, PostgresOptions, spawn,
};
use urlserver::order::{Instruction, NotKept, Standing, Subject};
use urlserver::url::Url;

/// Nothing takes this long unless it never happens.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// How long a server runs before the condition is looked at again.
pub const GLANCE: Duration = Duration::from_millis(20);

/// Expiries so short that a test need not wait, and so long that nobody is late by chance.
pub const SHORT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// Nobody is late.
pub const LONG: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(600));

pub struct Peer {
    pub runtime: tokio::runtime::Runtime,
    pub index: IndexHandle,
    pub adder: Adder,
    pub heard: Vec<ClaimNews>,
}

impl Peer {
    pub fn start(url: &str, name: &str, (claim_expiry_1, claim_expiry_2): (Duration, Duration)) -> Peer {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let options = PostgresOptions { instance: name.into(), queue_len: 1, claim_expiry_1, claim_expiry_2 };
        let (index, adder) = {
            let _inside = runtime.enter();
            spawn(PostgresIndex::new(url, &options).expect("a URL"))
        };
        let mut peer = Peer { runtime, index, adder, heard: Vec::new() };
        peer.until(|event| *event == IndexEvent::Up);
        peer
    }

    /// Runs it until it has said this.
    #[track_caller]
    pub fn until(&mut self, wanted: impl Fn(&IndexEvent) -> bool) -> Vec<IndexEvent> {
        let (mut all, end) = (Vec::new(), Instant::now() + DEADLINE);
        loop {
            assert!(Instant::now() < end, "not heard; but {all:?}");
            let event =
                self.runtime.block_on(async { tokio::time::timeout(GLANCE, self.index.event()).await });
            let Ok(Some(event)) = event else { continue };
            if let IndexEvent::Claims(news) = &event {
                self.heard.extend(news.iter().cloned());
            }
            let found = wanted(&event);
            all.push(event);
            if found {
                return all;
            }
        }
    }

    /// Runs it until something holds that it does not say itself.
    #[track_caller]
    pub fn run_until(&mut self, condition: impl Fn() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < end, "never");
            let event =
                self.runtime.block_on(async { tokio::time::timeout(GLANCE, self.index.event()).await });
            if let Ok(Some(IndexEvent::Claims(news))) = event {
                self.heard.extend(news);
            }
        }
    }

    #[track_caller]
    pub fn ask(&mut self, count: usize) -> (Vec<Candidate>, bool) {
        assert!(self.index.ask(count, Vec::new()));
        let events = self.until(|event| matches!(event, IndexEvent::Answered { .. }));
        let complete = matches!(events.last(), Some(IndexEvent::Answered { complete: true, .. }));
        let lists = events.into_iter().filter_map(|event| match event {
            IndexEvent::Candidates(list) => Some(list),
            _ => None,
        });
        (lists.flatten().collect(), complete)
    }

    /// Asks until there is something.
    #[track_caller]
    pub fn take(&mut self, count: usize) -> Vec<Candidate> {
        let end = Instant::now() + DEADLINE;
        loop {
            let (list, _) = self.ask(count);
            if !list.is_empty() {
                return list;
            }
            assert!(Instant::now() < end, "nothing to be had");
            self.run_until(|| true);
        }
    }

    pub fn add(&mut self, urls: &[&str]) -> Vec<Added> {
        let new = |url: &&str| Addition { doc: None, url: Url::parse(url).expect(url), not_before: None };
        self.add_all(urls.iter().map(new).collect())
    }

    pub fn add_all(&mut self, new: Vec<Addition>) -> Vec<Added> {
        let Peer { runtime, index, adder, .. } = self;
        runtime.block_on(async {
            let listen = async { while index.event().await.is_some() {} };
            tokio::select! {
                added = adder.add(new) => added.expect("an index"),
                () = listen => panic!("the index is gone"),
            }
        })
    }

    #[track_caller]
    pub fn want(&mut self, key: &ClaimKey) -> ClaimNews {
        self.index.claim(ClaimAction::Want { key: key.clone(), wish: Wish::Plain });
        self.answer_to(key)
    }

    #[track_caller]
    pub fn answer_to(&mut self, wanted: &ClaimKey) -> ClaimNews {
        let is_answer = |news: &&ClaimNews| matches!(news, ClaimNews::Good { key, .. } | ClaimNews::Elsewhere { key, .. } if key == wanted);
        let found = |event: &IndexEvent| matches!(event, IndexEvent::Claims(news) if news.iter().any(|news| is_answer(&news)));
        self.until(found);
        self.heard.iter().rev().find(is_answer).cloned().expect("heard")
    }

    pub fn give_back(&mut self, key: &ClaimKey, clock: OwedClock, to_holder_of: Option<ClaimKey>) {
        let clock = Some(clock);
        self.index.claim(ClaimAction::GiveBack { key: key.clone(), clock, to_holder_of });
        let before = self.index.counters().given_back.value();
        let end = Instant::now() + DEADLINE;
        while self.index.counters().given_back.value() == before {
            assert!(Instant::now() < end, "not given back");
            let _ = self.runtime.block_on(async { tokio::time::timeout(GLANCE, self.index.event()).await });
        }
    }

    pub fn report(&mut self, list: &[Candidate]) {
        for candidate in list {
            self.index.report(Report { doc: candidate.doc, end: End::Done(Outcome::Status(200)) });
        }
    }

    #[track_caller]
    pub fn until_counted(&mut self, what: &str, count: u64) {
        let end = Instant::now() + DEADLINE;
        loop {
            let all: Vec<_> = self.index.counters().all().collect();
            if all.contains(&(what, count)) {
                return;
            }
            assert!(Instant::now() < end, "{what} is not {count}: {all:?}");
            let _ = self.runtime.block_on(async { tokio::time::timeout(GLANCE, self.index.event()).await });
        }
    }

    /// Gives an order, and runs until it is answered.
    #[track_caller]
    pub fn order(&mut self, subject: Subject) -> Result<Standing, NotKept> {
        static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let ticket = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.index.order(Instruction { ticket, subject });
        let answer = |news: &ClaimNews| match news {
            ClaimNews::Obeyed { ticket: of, result } if *of == ticket => Some(*result),
            _ => None,
        };
        let answered = |event: &IndexEvent| matches!(event, IndexEvent::Claims(news) if news.iter().any(|news| answer(news).is_some()));
        self.until(answered);
        self.heard.iter().rev().find_map(answer).expect("heard")
    }

    pub fn close(self) {
        self.runtime.block_on(self.index.close());
    }

    pub fn kill(self) {
        self.runtime.shutdown_background();
    }
}

pub fn host(name: &str) -> ClaimKey {
    ClaimKey::Host(name.into())
}

pub fn ip(text: &str) -> ClaimKey {
    ClaimKey::Ip(text.parse().expect("an address"))
}

pub fn hosts(list: &[Candidate]) -> HashSet<&str> {
    list.iter().map(|candidate| candidate.url.host()).collect()
}

pub fn good(news: &ClaimNews) -> OwedClock {
    match news {
        ClaimNews::Good { clock, .. } => *clock,
        other => panic!("{other:?}"),
    }
}

/// Whether a question has this answer.
pub fn sql_is(url: &str, question: &str, answer: &str) -> impl Fn() -> bool {
    let (url, question, answer) = (url.to_owned(), question.to_owned(), answer.to_owned());
    move || sql(&url, &question) == answer
}
