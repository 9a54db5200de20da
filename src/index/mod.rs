//! Where documents come from, and where their ends are reported.
//!
//! A backend is a [`DocumentIndex`]: told what is wanted, it says in its own time what there is. The
//! server never touches one: it runs in a task of its own, behind an [`IndexHandle`] ([`handle`]).
//! [`embedded`] keeps everything in files, [`memory`] in RAM, [`tcp`] speaks to an index elsewhere, [`postgres`] is
//! shared by many servers; [`seeds`] reads files of URLs.
//!
//! Not here: which host may be asked when, and whether a document is already pending. That is the scheduler's.

pub mod dialogue;
mod doc_ids;
pub mod embedded;
mod fingerprints;
pub mod handle;
pub mod memory;
mod outbox;
pub mod postgres;
pub mod seeds;
pub mod tcp;

pub use embedded::EmbeddedIndex;
pub use handle::{Adder, IndexGone, IndexHandle, spawn};
pub use memory::MemoryIndex;
pub use postgres::{PostgresIndex, PostgresOptions};
pub use tcp::{TcpIndex, TcpOptions};

use crate::claim::{ClaimAction, ClaimNews};
use crate::document::{Candidate, End, Report};
use crate::ids::DocId;
use crate::order::Instruction;
use crate::url::Url;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;

/// A document index, as its task sees it: requests in, events out, nothing blocks.
pub trait DocumentIndex: Send + 'static {
    /// Asks for up to `n` documents, none of the hosts in `reject`, which is sorted. Never called before
    /// the last request was answered; each is answered by exactly one [`IndexEvent::Answered`].
    fn ask(&mut self, n: usize, reject: Vec<Box<str>>);

    /// Takes the ends of documents. They are delivered, however long that takes.
    fn report(&mut self, reports: Vec<Report>);

    /// Does what the scheduler wants done about claims, after what was reported before. Of no meaning to an index that
    /// nobody else uses.
    fn claim(&mut self, _actions: Vec<ClaimAction>) {}

    /// Keeps an order for all servers that share the index; answered by one [`ClaimNews::Obeyed`], after what it means for
    /// us. Of no meaning to an index that nobody else uses.
    fn order(&mut self, _instruction: Instruction) {}

    /// Takes new URLs and says what became of each, in the same order.
    fn add(&mut self, urls: Vec<Addition>, reply: oneshot::Sender<Vec<Added>>);

    /// Says what is known of a URL. One that cannot say leaves this as it is.
    fn look_up(&mut self, _url: Url, reply: oneshot::Sender<Known>) {
        let _ = reply.send(Known::Unsaid);
    }

    /// What the index says next; does the work that leads to it. May be dropped at any time and called
    /// again, and nothing is lost.
    fn event(&mut self) -> impl Future<Output = IndexEvent> + Send;

    /// Delivers what can be delivered soon. The last call.
    fn close(&mut self) -> impl Future<Output = ()> + Send;

    /// What has been counted.
    fn counters(&self) -> Arc<Counters>;
}

/// What an index says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexEvent {
    /// Part of the answer to the open request. In all parts together at most what was asked for.
    Candidates(Vec<Candidate>),
    /// The end of the answer.
    Answered {
        /// How many candidates there were in all.
        given: usize,
        /// Of an answer without candidates: whether the index has nothing more, as far as it can say. If not, it cannot be
        /// reached, was lost midway, or keeps something back: documents of rejected hosts, or that wait for their time.
        complete: bool,
    },
    /// What is new about claims, in this order; from a shared index only.
    Claims(Vec<ClaimNews>),
    /// There are new documents since the last answer: asking again may be of use.
    Grown,
    /// The index can be reached.
    Up,
    /// It cannot, any more.
    Down,
}

/// A URL for the index, with the name it shall have there, or any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addition {
    /// The document's name, if somebody has chosen one.
    pub doc: Option<DocId>,
    /// What to fetch.
    pub url: Url,
    /// Not to be sent before this time, in seconds since 1970. An index over TCP is not told.
    pub not_before: Option<u64>,
}

/// What became of an [`Addition`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// New, under this name.
    Accepted(DocId),
    /// Handed on to an index that does not say whether it is new.
    Sent,
    /// The URL is known, pending or finished.
    Duplicate,
    /// The name belongs to another URL.
    IdTaken,
    /// This index names its documents itself.
    OwnIdsOnly,
    /// The index cannot be reached, and too many wait for it already; or it cannot write. Try again later.
    NoRoom,
}

/// What an index knows of a URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// It was never added.
    Unknown,
    /// It waits to be given out.
    Waiting,
    /// It was given out, and has not ended.
    Given,
    /// It was given out; whether it has ended is not kept.
    GivenOrEnded,
    /// It has ended.
    Ended {
        /// How.
        end: End,
        /// When, in seconds since 1970, if that is kept.
        at: Option<u64>,
    },
    /// The index does not say.
    Unsaid,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened between the server and its index, since the start.
        #[derive(Default, Debug)]
        pub struct Counters { $($(#[$doc])* pub $name: Counter,)* }

        impl Counters {
            /// Every counter with its name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.value()),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Requests.
    requests,
    /// Candidates that were used.
    candidates,
    /// Candidates nobody asked for; reported FAILED.
    surplus,
    /// Candidates that cannot be fetched; reported FAILED.
    unusable,
    /// Candidates of hosts on the reject list; used nevertheless.
    rejected_host,
    /// Lines that make no sense.
    nonsense,
    /// Documents reported DONE.
    done,
    /// Documents reported FAILED.
    failed,
    /// Documents reported DENIED.
    denied,
    /// URLs accepted, or handed on.
    added,
    /// URLs that were known.
    duplicates,
    /// Connections that were lost.
    lost,
    /// Reads and writes that failed.
    io_errors,
    /// Reports of documents that another server had been given meanwhile; they changed nothing.
    refused,
    /// Hosts, addresses, aliases and groups claimed.
    claimed,
    /// Claims given back.
    given_back,
    /// Claims that other servers took from us.
    claims_lost,
    /// Claims under which something was about to be sent.
    raised,
    /// Claims under which nothing was in flight any more, though they were kept.
    rested,
}

/// A number that only grows.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// What it has come to.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The wall clock, in whole seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Counters {
    fn count_added(&self, added: &[Added]) -> usize {
        let accepted = added.iter().filter(|added| matches!(added, Added::Accepted(_))).count();
        self.added.add(accepted);
        self.duplicates.add(added.iter().filter(|added| **added == Added::Duplicate).count());
        accepted
    }

    fn count_reports(&self, reports: &[Report]) {
        for report in reports {
            match report.end {
                End::Done(_) => self.done.add(1),
                End::Failed(_) => self.failed.add(1),
                End::Denied(_) => self.denied.add(1),
            }
        }
    }
}
