//! The index itself, without tasks and clocks: `now` is an argument, in seconds since 1970.
//!
//! What is known of every document in RAM: a fingerprint with its number (and four bytes more while it waits); URLs,
//! names and ends stay in files. What is accepted is in the file before anybody is told so.

use super::blocks::Blocks;
use super::ends::{Ended, Ends, How, State};
use super::error::IndexError;
use super::files::{Directory, documents_path};
use super::load::Load;
use super::log::{Frame, Kind, Log};
use super::prints::{NONE, Print, Prints};
use super::queues::{NameAt, Queues};
use super::reader::Reader;
use super::record::{Document, HostOf, Record};
use super::seal::Sealer;
use crate::document::{Candidate, End, Report, Tried};
use crate::ids::DocId;
use crate::index::doc_ids::DocIds;
use crate::index::memory::TURN;
use crate::index::{Added, Addition, Known};
use crate::time::Duration;
use crate::url::{Tail, Url};
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

/// How many documents there are, by state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Not ended: waiting, or given out.
    pub pending: u64,
    /// Fetched.
    pub done: u64,
    /// Given up.
    pub failed: u64,
    /// Not allowed.
    pub denied: u64,
}

impl Counts {
    pub(super) fn of(&mut self, state: Option<State>) -> &mut u64 {
        match state {
            None => &mut self.pending,
            Some(State::Done) => &mut self.done,
            Some(State::Failed) => &mut self.failed,
            Some(State::Denied) => &mut self.denied,
        }
    }
}

/// What is known of a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its document.
    pub doc: DocId,
    /// Whether it was given out in this life and has not been reported.
    pub given_out: bool,
    /// Not to be sent before this, in seconds since 1970.
    pub not_before: Option<u64>,
    /// How it ended, and when, in seconds since 1970. `None`: it is pending.
    pub end: Option<(End, u64)>,
}

impl Found {
    /// The same for whoever asks.
    pub(super) fn known(&self) -> Known {
        match self.end {
            Some((end, at)) => Known::Ended { end, at: Some(at) },
            None if self.given_out => Known::Given,
            None => Known::Waiting,
        }
    }
}

/// An open index.
pub(super) struct Store {
    pub(super) directory: Directory,
    pub(super) generation: u64,
    pub(super) log: Log,
    pub(super) ends: Ends,
    pub(super) known: Prints,
    pub(super) queues: Queues,
    pub(super) ids: DocIds,
    pub(super) reader: Reader,
    /// Documents whose time has not come: time, document, host.
    pub(super) timed: BinaryHeap<Reverse<(u64, u32, u32)>>,
    given: HashMap<DocId, u32>,
    pub(super) counts: Counts,
    recrawl_after: Option<Duration>,
    /// What is not read yet. Until it is, nothing new is taken.
    pub(super) load: Option<Load>,
    /// The logs hold ends of documents that are lost: they must be gone before their numbers are given again.
    pub(super) has_ghosts: bool,
    pub(super) sealer: Sealer,
    batch: Batch,
}

/// Documents that go into one frame.
#[derive(Default)]
struct Batch {
    frame: Frame,
    entries: Vec<Entry>,
}

/// A document that is known, but not written yet.
struct Entry {
    print: Print,
    host: u32,
    /// The name, if this is its host's first document.
    new_host: Option<Print>,
    /// The document that had this URL before, and has ended.
    before: Option<u32>,
    doc: DocId,
    took_id: bool,
    not_before: Option<u64>,
    /// In the frame.
    place: usize,
}

impl Store {
    /// Opens the index in `path`, or makes it. Nothing is read yet: see [`Store::load_some`].
    pub(super) fn open(path: &Path, recrawl_after: Option<Duration>) -> Result<Store, IndexError> {
        Self::open_in(Directory::take(path)?, recrawl_after)
    }

    /// The same in a directory that has been taken.
    pub(super) fn open_in(
        directory: Directory,
        recrawl_after: Option<Duration>,
    ) -> Result<Store, IndexError> {
        let (generation, log, frames) = match directory.generation()? {
            Some(generation) => {
                let path = documents_path(&directory.path, generation);
                let (log, frames) = Log::open(&path, Kind::Documents)?;
                directory.clean(generation)?;
                (generation, log, Some(frames))
            }
            None => {
                directory.clean(1)?;
                let path = documents_path(&directory.path, 1);
                (1, Log::create(&path, Kind::Documents, fastrand::u64(..))?, None)
            }
        };
        let ends = Ends::open(&directory.path, generation)?;
        let blocks = Blocks::open(&directory.path, generation, &log)?;
        let sealer = Sealer::new(&blocks);
        let load = frames.map(|frames| Load::new(frames, blocks, ends.cells()));
        Ok(Store {
            reader: Reader::new(log.file(), log.path()),
            directory,
            generation,
            log,
            ends,
            known: Prints::default(),
            queues: Queues::default(),
            ids: DocIds::default(),
            timed: BinaryHeap::new(),
            given: HashMap::new(),
            counts: Counts::default(),
            recrawl_after,
            load,
            has_ghosts: false,
            sealer,
            batch: Batch::default(),
        })
    }

    /// Documents that wait and may go.
    pub(super) fn waiting(&self) -> usize {
        self.queues.waiting()
    }

    /// Bytes of RAM that grow with the documents.
    pub(super) fn memory(&self) -> usize {
        self.known.bytes() + self.queues.bytes() + self.reader.bytes() + self.sealer.bytes()
    }

    /// Puts URLs in. What cannot be written now was never there: [`Added::NoRoom`]; the error is returned beside.
    pub(super) fn insert(&mut self, urls: &[Addition], now: u64) -> (Vec<Added>, Option<IndexError>) {
        let mut answers = Vec::with_capacity(urls.len());
        let mut first = 0;
        let mut error = self.banish_ghosts().err();
        for url in urls {
            if error.is_some() {
                break;
            }
            match self.prepare(url, now) {
                Ok(added) => answers.push(added),
                Err(why) => error = Some(why),
            }
            if self.batch.frame.is_full() && error.is_none() {
                error = self.commit().err();
                first = if error.is_none() { answers.len() } else { first };
            }
        }
        error = error.or_else(|| self.commit().err());
        if error.is_some() {
            self.roll_back();
            answers.truncate(first);
            answers.resize(urls.len(), Added::NoRoom);
        }
        (answers, error)
    }

    /// One URL into the batch.
    fn prepare(&mut self, new: &Addition, now: u64) -> Result<Added, IndexError> {
        let (url, name) = (&new.url, Print::of(new.url.host().as_bytes(), self.log.seed));
        let tail = url.tail();
        let print = super::queues::print(name.bits, tail.scheme, tail.rest.as_bytes());
        let before = self.known.find(print);
        let old = match before {
            Some(before) => self.due_again(before, now)?,
            None => None,
        };
        if before.is_some() && old.is_none() {
            return Ok(Added::Duplicate);
        }
        let number = self.reader.count() as usize + self.batch.entries.len();
        if number >= NONE as usize {
            return Ok(Added::NoRoom);
        }
        // A URL that is crawled again has its name already.
        let keeps_id = old.is_some() && new.doc.is_none_or(|doc| Some(doc) == old);
        let taken = match new.doc {
            _ if keeps_id => old,
            Some(doc) => self.ids.take(doc).then_some(doc),
            None => self.ids.take_next(),
        };
        let Some(doc) = taken else { return Ok(Added::IdTaken) };
        self.put(
            new,
            name,
            print,
            Entry {
                print,
                host: 0,
                new_host: None,
                before,
                doc,
                took_id: !keeps_id,
                not_before: new.not_before.filter(|at| *at > now),
                place: 0,
            },
        );
        self.known.set(print, number as u32);
        Ok(Added::Accepted(doc))
    }

    /// Writes the record, with its host.
    fn put(&mut self, new: &Addition, name: Print, print: Print, entry: Entry) {
        debug_assert_eq!(print, entry.print);
        let (place, text, tail) = (self.batch.frame.len(), new.url.host(), new.url.tail());
        let known = self.queues.find(name);
        let host = known.unwrap_or_else(|| {
            let offset = self.log.end() + place as u64 + if text.len() < 0x80 { 2 } else { 3 };
            self.queues.insert(name, NameAt { offset, len: text.len() })
        });
        let document = Document {
            host: known.map_or(HostOf::New(text.as_bytes()), HostOf::Known),
            doc: entry.doc.0,
            not_before: entry.not_before,
            scheme: tail.scheme,
            rest: tail.rest.as_bytes(),
        };
        document.put(self.batch.frame.payload());
        let new_host = known.is_none().then_some(name);
        self.batch.entries.push(Entry { host, new_host, place, ..entry });
    }

    /// The name of a document that has ended so long ago that its URL may come again.
    fn due_again(&mut self, document: u32, now: u64) -> Result<Option<DocId>, IndexError> {
        let Some(after) = self.recrawl_after else { return Ok(None) };
        // Prepared in this very batch: it has no end, and cannot be read.
        if document >= self.reader.count() {
            return Ok(None);
        }
        let Some(ended) = self.ends.find(document)? else { return Ok(None) };
        if Duration::from_secs(now.saturating_sub(ended.at.into())) < after {
            return Ok(None);
        }
        Ok(Some(match self.reader.read(document)? {
            Record::Document(document) => DocId(document.doc),
            Record::Finished { doc, .. } => DocId(doc),
        }))
    }

    /// Writes the batch; then its documents wait.
    fn commit(&mut self) -> Result<(), IndexError> {
        if self.batch.entries.is_empty() {
            return Ok(());
        }
        let at = self.log.end();
        self.log.append(&mut self.batch.frame).map_err(|source| IndexError::io(self.log.path(), source))?;
        self.reader.extend(self.log.end());
        for entry in std::mem::take(&mut self.batch.entries) {
            if let Some(before) = entry.before {
                let state = self.ends.find(before).ok().flatten().map(|ended| ended.how.state());
                *self.counts.of(state) -= 1;
            }
            let number = self.reader.count();
            self.reader.push(at + entry.place as u64);
            if let Some(name) = entry.new_host {
                self.sealer.push_host(name, self.queues.name(entry.host));
            }
            self.sealer.push(entry.print, entry.host, entry.doc.0, entry.not_before);
            self.counts.pending += 1;
            match entry.not_before {
                Some(time) => self.timed.push(Reverse((time, number, entry.host))),
                None => self.queues.push(entry.host, number),
            }
        }
        Ok(())
    }

    /// What is in the batch was never there.
    fn roll_back(&mut self) {
        self.batch.frame.clear();
        while let Some(entry) = self.batch.entries.pop() {
            match entry.before {
                Some(before) => drop(self.known.set(entry.print, before)),
                None => self.known.remove(entry.print),
            }
            if entry.took_id {
                self.ids.release(entry.doc);
            }
            if let Some(name) = entry.new_host {
                self.queues.remove_last(name);
            }
        }
    }

    /// Documents whose time has come wait from now on; true if there were any.
    pub(super) fn wake(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some(Reverse((time, document, host))) = self.timed.peek().copied()
            && time <= now
        {
            self.timed.pop();
            self.queues.push(host, document);
            any = true;
        }
        any
    }

    /// When the next document's time comes.
    pub(super) fn next_time(&self) -> Option<u64> {
        self.timed.peek().map(|Reverse((time, ..))| *time)
    }

    /// Takes up to `n` documents out, none of the hosts in `reject`. Costs what it gives, and the rejected hosts it
    /// passes; those keep their turn. What cannot be read is told to `on_error`, and comes again after a restart.
    pub(super) fn take(
        &mut self,
        n: usize,
        reject: &[Box<str>],
        mut on_error: impl FnMut(IndexError),
    ) -> Vec<Candidate> {
        let bits = |name: &str| Print::of(name.as_bytes(), self.log.seed).bits;
        let mut rejected: Vec<u64> = reject.iter().map(|name| bits(name)).collect();
        rejected.sort_unstable();
        let mut list = Vec::with_capacity(n.min(self.waiting()));
        let (mut passed, mut documents) = (Vec::new(), Vec::new());
        while list.len() < n
            && let Some(host) = self.queues.next_host()
        {
            if rejected.binary_search(&self.queues.name_bits(host)).is_ok() {
                passed.push(host);
                continue;
            }
            documents.clear();
            self.queues.serve(host, TURN.min(n - list.len()), &mut documents);
            self.read_all(host, &documents, &mut list, &mut on_error);
        }
        passed.into_iter().rev().for_each(|host| self.queues.pass(host));
        list
    }

    /// The documents of one host, out of the file.
    fn read_all(
        &mut self,
        host: u32,
        documents: &[u32],
        list: &mut Vec<Candidate>,
        on_error: &mut impl FnMut(IndexError),
    ) {
        let name = match self.reader.name(self.queues.name(host)) {
            Ok(name) => name,
            Err(error) => return on_error(error),
        };
        for &number in documents {
            match self.reader.read(number).map(|record| url_of(&name, record)) {
                Ok(Some((doc, url))) => {
                    self.given.insert(doc, number);
                    list.push(Candidate {
                        doc,
                        url,
                        ip: None,
                        wait: Duration::ZERO,
                        tried: Tried::default(),
                    });
                }
                Ok(None) => on_error(IndexError::damaged(self.log.path(), 0, "a document has no URL")),
                Err(error) => on_error(error),
            }
        }
    }

    /// Takes the ends of documents that were given out; repeats are taken as one. If they cannot be written, they are
    /// kept and written with the next ones.
    pub(super) fn report(&mut self, reports: &[Report], now: u64) -> Result<(), IndexError> {
        let at = u32::try_from(now).unwrap_or(u32::MAX);
        let mut ends = Vec::with_capacity(reports.len());
        for report in reports {
            let Some(number) = self.given.remove(&report.doc) else { continue };
            let how = How::of(report.end);
            self.counts.pending -= 1;
            *self.counts.of(Some(how.state())) += 1;
            ends.push((number, Ended { at, how }));
        }
        self.ends.report(ends).map_err(|source| IndexError::io(self.ends.log().path(), source))
    }

    /// Ends documents that have not been given out, as an import does. Those that have ended keep their end.
    pub(super) fn end(&mut self, ended: &[(Url, Ended)]) -> Result<(), IndexError> {
        let mut ends = Vec::with_capacity(ended.len());
        for (url, ended) in ended {
            let Some(number) = self.number_of(url) else { continue };
            if self.ends.find(number)?.is_none() {
                self.counts.pending -= 1;
                *self.counts.of(Some(ended.how.state())) += 1;
                ends.push((number, *ended));
            }
        }
        self.ends.report(ends).map_err(|source| IndexError::io(self.ends.log().path(), source))
    }

    fn number_of(&self, url: &Url) -> Option<u32> {
        let name = Print::of(url.host().as_bytes(), self.log.seed);
        let tail = url.tail();
        self.known.find(super::queues::print(name.bits, tail.scheme, tail.rest.as_bytes()))
    }

    /// What is known of a URL.
    pub(super) fn look_up(&mut self, url: &Url) -> Result<Option<Found>, IndexError> {
        let Some(number) = self.number_of(url) else { return Ok(None) };
        let end = self.ends.find(number)?;
        let (doc, not_before) = match self.reader.read(number)? {
            Record::Document(document) => (DocId(document.doc), document.not_before),
            Record::Finished { doc, .. } => (DocId(doc), None),
        };
        let end = end.map(|end| (end.how.end(), end.at.into()));
        let given_out = end.is_none() && self.given.get(&doc) == Some(&number);
        Ok(Some(Found { doc, given_out, not_before, end }))
    }

    /// Everything is on the disk when this returns. Blocks.
    pub(super) fn sync(&mut self) -> Result<(), IndexError> {
        let at = |log: &Log, source| IndexError::io(log.path(), source);
        self.ends.write().map_err(|source| at(self.ends.log(), source))?;
        for log in [&mut self.log, self.ends.log_mut()] {
            if log.is_dirty() {
                let end = log.end();
                log.file().sync_data().map_err(|source| IndexError::io(log.path(), source))?;
                log.handle_synced(end).map_err(|source| IndexError::io(log.path(), source))?;
            }
        }
        Ok(())
    }

    /// Puts the ends in the logs into cells. Blocks.
    pub(super) fn settle(&mut self) -> Result<(), IndexError> {
        let settling = self.ends.settle(self.log.file())?;
        let done = settling.run().map_err(|source| IndexError::io(&self.directory.path, source));
        self.ends.handle_settled(done.is_ok());
        done
    }

    /// See [`Store::has_ghosts`].
    fn banish_ghosts(&mut self) -> Result<(), IndexError> {
        if self.has_ghosts {
            self.settle()?;
            self.has_ghosts = false;
        }
        Ok(())
    }
}

/// A document's URL, if it has one.
pub(super) fn url_of(host: &str, record: Record<'_>) -> Option<(DocId, Url)> {
    let Record::Document(document) = record else { return None };
    let rest = std::str::from_utf8(document.rest).ok()?;
    Some((DocId(document.doc), Url::from_tail(host, Tail { scheme: document.scheme, rest })))
}
