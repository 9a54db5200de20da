//! The index in a directory: durable, and the default.
//!
//! | file | holds |
//! |---|---|
//! | `lock` | nothing; held by whoever has the index open |
//! | `documents-G.log` | every URL in order of arrival, with its document's name and its host |
//! | `ends-G-N.log` | how documents ended, lately |
//! | `cells-G` | how documents ended: eight bytes for each, at its number |
//! | `prints-G` | fingerprints and hosts of all but the last documents, so that a start need not read all of them; made again if it is missing or damaged |
//!
//! G counts compactions. An addition is answered when its record has been handed to the system (`write`), so it
//! survives the death of the process at any moment; a report is written at once, too. The system is told to put both on
//! the disk within a second of each write, so a loss of power costs that second at most: additions of it may be gone,
//! documents that ended in it are offered again. What was given out and has no end is offered again after every start.
//!
//! If nothing can be written (a full disk), additions are answered [`Added::NoRoom`], ends wait in RAM and are written
//! when there is room, and what is known is served. Errors are logged and counted.
//!
//! A log of our own, because no store looked at does it at this rate (the best one: 66,000 URLs a second at 5 million
//! documents): appending needs no look-up on the disk, since fingerprints in RAM say what is known (see `prints.rs`).
//! `cargo bench --bench embedded` measures it.
//!
//! Not here: clocks and pauses of hosts.

mod blocks;
mod ends;
mod error;
mod files;
mod load;
mod log;
mod prints;
mod queues;
mod reader;
mod record;
mod seal;
mod store;
pub mod tool;
mod window;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use ends::State;
pub use error::IndexError;
pub use store::{Counts, Found};

use super::{Added, Addition, Counters, DocumentIndex, IndexEvent, Known, unix_seconds};
use crate::document::Report;
use crate::time::Duration;
use crate::url::Url;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use store::Store;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// From the first write until the system is told to put it on the disk: less than a second, with time to do it.
const SYNC_AFTER: Duration = Duration::from_millis(500);
/// Between two attempts to write what could not be written.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Errors are logged this often.
const LOG_GAP: Duration = Duration::from_secs(10);
/// How documents are read at the start.
#[derive(Clone, Copy, Debug)]
struct Haste {
    /// Bytes of documents read before the index is open. The others are read while it serves.
    first: u64,
    /// Bytes of documents read before anything else gets its turn.
    step: u64,
}

/// First about a million documents; then some thousands at a time, which takes milliseconds.
const HASTE: Haste = Haste { first: 64 << 20, step: 512 << 10 };
/// Batches of URLs that may wait until all documents are read.
const BATCHES_MAX: usize = 64;
/// Longest sleep: the wall clock may be set meanwhile.
const NAP_MAX: Duration = Duration::from_secs(60);

/// A document index in a directory.
pub struct EmbeddedIndex {
    store: Store,
    haste: Haste,
    /// A request that nothing could be found for so far, while there is more to be read.
    request: Option<(usize, Vec<Box<str>>)>,
    /// URLs that wait until all is read.
    batches: VecDeque<(Vec<Addition>, oneshot::Sender<Vec<Added>>)>,
    events: VecDeque<IndexEvent>,
    grown: bool,
    /// The last answer was not all that was asked for.
    short: bool,
    /// The files cannot be read on: nothing is taken any more.
    broken: bool,
    sync_at: Option<Instant>,
    syncing: Option<JoinHandle<io::Result<[u64; 2]>>>,
    settling: Option<JoinHandle<io::Result<()>>>,
    sealing: Option<JoinHandle<io::Result<u64>>>,
    retry_at: Option<Instant>,
    errors: ErrorLog,
    counters: Arc<Counters>,
}

impl EmbeddedIndex {
    /// Opens the index in the directory `path`, and makes it if there is none.
    pub fn open(path: &Path, recrawl_after: Option<Duration>) -> Result<EmbeddedIndex, IndexError> {
        Self::open_with(path, recrawl_after, HASTE)
    }

    fn open_with(
        path: &Path,
        recrawl_after: Option<Duration>,
        haste: Haste,
    ) -> Result<EmbeddedIndex, IndexError> {
        let mut store = Store::open(path, recrawl_after)?;
        let loaded = store.load_some(haste.first, unix_seconds())?;
        if !loaded {
            let left = store.load.as_ref().map_or(0, load::Load::left);
            tracing::info!(directory = %path.display(), left, "documents are still being read");
        }
        Ok(EmbeddedIndex {
            store,
            haste,
            request: None,
            batches: VecDeque::new(),
            events: VecDeque::from([IndexEvent::Up]),
            grown: false,
            short: false,
            broken: false,
            sync_at: None,
            syncing: None,
            settling: None,
            sealing: None,
            retry_at: None,
            errors: ErrorLog::default(),
            counters: Arc::default(),
        })
    }

    /// What is known of a URL. While documents are still being read, less than all may be known.
    pub fn find(&mut self, url: &Url) -> Result<Option<Found>, IndexError> {
        self.store.look_up(url)
    }

    /// How many documents there are, as far as they are read.
    pub fn counts(&self) -> Counts {
        self.store.counts
    }

    /// Bytes of RAM that grow with the documents.
    pub fn memory(&self) -> usize {
        self.store.memory()
    }

    /// Whether all documents have been read.
    pub fn is_loaded(&self) -> bool {
        self.store.load.is_none() && !self.broken
    }

    fn answer(&mut self, n: usize, reject: Vec<Box<str>>) {
        self.store.wake(unix_seconds());
        let mut failed = 0;
        let list = self.store.take(n, &reject, |error| {
            failed += 1;
            self.errors.note(&error);
        });
        self.counters.io_errors.add(failed);
        let given = list.len();
        if given == 0 && n > 0 && self.is_loading() {
            self.request = Some((n, reject));
            return;
        }
        self.short = given < n;
        self.counters.candidates.add(given);
        if given > 0 {
            self.events.push_back(IndexEvent::Candidates(list));
        }
        // There is more to say if documents wait for their time, are of rejected hosts, or cannot be read.
        let nothing_left = self.store.timed.is_empty() && self.store.waiting() == 0 && !self.broken;
        let complete = given > 0 || nothing_left;
        self.events.push_back(IndexEvent::Answered { given, complete });
    }

    fn insert(&mut self, urls: &[Addition], reply: oneshot::Sender<Vec<Added>>) {
        let (added, error) = self.store.insert(urls, unix_seconds());
        if let Some(error) = error {
            self.counters.io_errors.add(1);
            self.errors.note(&error);
        }
        self.grown |= self.counters.count_added(&added) > 0;
        // Whoever asked may be gone.
        let _ = reply.send(added);
        self.keep_house();
    }

    fn is_loading(&self) -> bool {
        self.store.load.is_some()
    }

    /// Reads on; then those who wait for it get their answer.
    fn load_some(&mut self) {
        let loaded = self.store.load_some(self.haste.step, unix_seconds());
        if let Err(error) = &loaded {
            tracing::error!(%error, "the document index cannot be read to its end: nothing new is taken");
            self.counters.io_errors.add(1);
            self.broken = true;
            self.events.push_back(IndexEvent::Down);
        }
        if self.store.waiting() > 0 || !self.is_loading() {
            self.grown |= std::mem::take(&mut self.short);
            if let Some((n, reject)) = self.request.take() {
                self.answer(n, reject);
            }
        }
        if !self.is_loading() {
            for (urls, reply) in std::mem::take(&mut self.batches) {
                self.add(urls, reply);
            }
        }
    }

    /// Starts what is to be done beside: the disk, the cells, another attempt to write.
    fn keep_house(&mut self) {
        let now = Instant::now();
        let dirty = self.store.log.is_dirty() || self.store.ends.log().is_dirty();
        if self.syncing.is_none() {
            // What is written while the disk is at it is due as soon as what is written right after.
            let due = dirty.then(|| self.sync_at.unwrap_or(now + SYNC_AFTER));
            self.sync_at = due;
            if due.is_some_and(|due| due <= now) {
                self.sync_at = Some(now + SYNC_AFTER);
                self.syncing = Some(self.start_sync());
            }
        }
        if self.store.ends.unwritten() > 0 && *self.retry_at.get_or_insert(now + RETRY_AFTER) <= now {
            self.retry_at = None;
            if let Err(source) = self.store.ends.write() {
                self.note(&IndexError::io(self.store.ends.log().path(), source));
            }
        }
        let may_settle = self.settling.is_none() && self.syncing.is_none() && self.is_loaded();
        if may_settle && self.store.ends.is_full() && !self.store.has_ghosts && self.retry_at.is_none() {
            match self.store.ends.settle(self.store.log.file()) {
                Ok(settling) => self.settling = Some(tokio::task::spawn_blocking(|| settling.run())),
                Err(error) => {
                    self.retry_at = Some(now + RETRY_AFTER);
                    self.note(&error);
                }
            }
        }
        if self.sealing.is_none()
            && let Some(seal) = self.store.seal_some()
        {
            self.sealing = Some(tokio::task::spawn_blocking(|| seal.run()));
        }
        self.retry_at = self.retry_at.filter(|at| *at > now);
    }

    fn start_sync(&self) -> JoinHandle<io::Result<[u64; 2]>> {
        let logs = [&self.store.log, self.store.ends.log()];
        let [documents, ends] = logs.map(|log| (Arc::clone(log.file()), log.known_end()));
        tokio::task::spawn_blocking(move || {
            documents.0.sync_data()?;
            ends.0.sync_data()?;
            Ok([documents.1, ends.1])
        })
    }

    fn handle_synced(&mut self, result: io::Result<[u64; 2]>) {
        let marked = result.and_then(|[documents, ends]| {
            self.store.log.handle_synced(documents)?;
            self.store.ends.log_mut().handle_synced(ends)
        });
        if let Err(source) = marked {
            self.note(&IndexError::io(&self.store.directory.path, source));
        }
    }

    fn handle_settled(&mut self, result: io::Result<()>) {
        self.store.ends.handle_settled(result.is_ok());
        if let Err(source) = result {
            self.retry_at = Some(Instant::now() + RETRY_AFTER);
            self.note(&IndexError::io(&self.store.directory.path, source));
        }
    }

    fn note(&mut self, error: &IndexError) {
        self.counters.io_errors.add(1);
        self.errors.note(error);
    }

    /// Looks whether the block is on the disk, and does not wait for it.
    async fn mind_seal(&mut self) {
        if self.sealing.as_ref().is_some_and(JoinHandle::is_finished) {
            let result = ended(&mut self.sealing).await;
            self.sealing = None;
            self.store.sealer.handle_sealed(result);
        }
    }

    /// Until there is something to do. May be dropped at any time.
    async fn rest(&mut self) {
        let nap = self.store.next_time().map(|time| {
            let wait = Duration::from_secs(time.saturating_sub(unix_seconds()));
            Instant::now() + wait.min(NAP_MAX)
        });
        let sync_at = self.sync_at.filter(|_| self.syncing.is_none());
        let deadline = [nap, sync_at, self.retry_at].into_iter().flatten().min();
        let sleep = async {
            match deadline {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = ended(&mut self.syncing) => {
                self.syncing = None;
                self.handle_synced(result);
            }
            result = ended(&mut self.settling) => {
                self.settling = None;
                self.handle_settled(result);
            }
            result = ended(&mut self.sealing) => {
                self.sealing = None;
                self.store.sealer.handle_sealed(result);
            }
            () = sleep => {}
        }
    }
}

/// The end of a job; never, if there is none.
async fn ended<T>(job: &mut Option<JoinHandle<io::Result<T>>>) -> io::Result<T> {
    match job {
        Some(job) => job.await.unwrap_or_else(|error| Err(io::Error::other(error))),
        None => std::future::pending().await,
    }
}

impl DocumentIndex for EmbeddedIndex {
    fn ask(&mut self, n: usize, reject: Vec<Box<str>>) {
        self.counters.requests.add(1);
        self.answer(n, reject);
    }

    fn report(&mut self, reports: Vec<Report>) {
        self.counters.count_reports(&reports);
        if let Err(error) = self.store.report(&reports, unix_seconds()) {
            self.note(&error);
        }
        self.keep_house();
    }

    fn add(&mut self, urls: Vec<Addition>, reply: oneshot::Sender<Vec<Added>>) {
        if self.is_loading() && self.batches.len() < BATCHES_MAX {
            self.batches.push_back((urls, reply));
        } else if self.is_loaded() {
            self.insert(&urls, reply);
        } else {
            let _ = reply.send(vec![Added::NoRoom; urls.len()]);
        }
    }

    fn look_up(&mut self, url: Url, reply: oneshot::Sender<Known>) {
        let known = self.find(&url).inspect_err(|error| self.errors.note(error));
        let _ = reply.send(match known {
            Ok(Some(found)) => found.known(),
            Ok(None) if self.is_loaded() => Known::Unknown,
            Ok(None) | Err(_) => Known::Unsaid,
        });
    }

    async fn event(&mut self) -> IndexEvent {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            if std::mem::take(&mut self.grown) {
                return IndexEvent::Grown;
            }
            self.keep_house();
            if self.is_loading() {
                self.load_some();
                self.mind_seal().await;
                tokio::task::yield_now().await;
            } else if self.store.wake(unix_seconds()) {
                self.grown = true;
            } else {
                self.rest().await;
            }
        }
    }

    async fn close(&mut self) {
        if self.syncing.is_some() {
            let result = ended(&mut self.syncing).await;
            self.handle_synced(result);
        }
        if self.sealing.is_some() {
            let _ = ended(&mut self.sealing).await;
        }
        if let Err(error) = self.store.sync() {
            tracing::error!(%error, unwritten = self.store.ends.unwritten(), "the document index is not all on the disk");
        }
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

/// A disk that stays full must not fill the log.
#[derive(Default)]
struct ErrorLog {
    last: Option<Instant>,
    unsaid: u64,
}

impl ErrorLog {
    fn note(&mut self, error: &IndexError) {
        if self.last.is_some_and(|last| last.elapsed() < LOG_GAP) {
            self.unsaid += 1;
            return;
        }
        let unsaid = std::mem::take(&mut self.unsaid);
        tracing::error!(%error, unsaid, "the document index cannot read or write");
        self.last = Some(Instant::now());
    }
}
