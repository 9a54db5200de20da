//! Documents that are in no block yet, and how they come into one.
//!
//! A block is made when there is enough for one and the last is on the disk, beside everything else. If it cannot be
//! written, there are no more of them until the next start, which then has more to read; nothing else depends on it.

use super::blocks::{Blocks, Contents, Head, file_header, places_of};
use super::log::{FILE_HEADER, Log, frame_check};
use super::prints::Print;
use super::queues::NameAt;
use super::reader::Reader;
use super::store::Store;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Documents of one block: read again in a fraction of a second, and 24 bytes of RAM each until they are in it.
pub(super) const BLOCK: usize = 1 << 18;
/// Documents that may wait while a block is being written. With more, something is wrong with the disk.
const WAITING_MAX: usize = 16 * BLOCK;

/// What the next block will be of.
pub(super) struct Sealer {
    file: Arc<File>,
    path: PathBuf,
    /// Where it goes.
    end: u64,
    /// Documents that it has at least.
    pub(super) full: usize,
    first: u32,
    first_host: u32,
    log_start: u64,
    documents: Vec<(Print, u32)>,
    hosts: Vec<(Print, NameAt)>,
    runs: Vec<(u64, u64)>,
    timed: Vec<(u32, u64)>,
    state: Sealing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sealing {
    /// Nothing is being written.
    Idle,
    /// The last block is on its way.
    Busy,
    /// There are no more blocks.
    Over,
}

/// A block on its way to the disk: to be run where blocking is no harm.
pub(super) struct Seal {
    /// The documents themselves must be on the disk before it is.
    log: Arc<File>,
    file: Arc<File>,
    at: u64,
    seed: u64,
    contents: Contents,
}

impl Sealer {
    /// Goes on behind the blocks that there are.
    pub(super) fn new(blocks: &Blocks) -> Sealer {
        let last = blocks.row.last().map(|block| block.head).unwrap_or_default();
        Sealer {
            file: Arc::clone(&blocks.file),
            path: blocks.path.clone(),
            end: blocks.end,
            full: BLOCK,
            first: last.first + last.count,
            first_host: last.first_host + last.hosts,
            log_start: last.log_end.max(FILE_HEADER),
            documents: Vec::new(),
            hosts: Vec::new(),
            runs: Vec::new(),
            timed: Vec::new(),
            state: Sealing::Idle,
        }
    }

    /// Fewer blocks count than there seemed to be. Nothing has been pushed yet.
    pub(super) fn restart(&mut self, blocks: &Blocks) {
        *self = Sealer { full: self.full, ..Sealer::new(blocks) };
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.documents.capacity() * size_of::<(Print, u32)>()
            + self.hosts.capacity() * size_of::<(Print, NameAt)>()
    }

    /// The next host.
    pub(super) fn push_host(&mut self, name: Print, at: NameAt) {
        if self.state != Sealing::Over {
            self.hosts.push((name, at));
        }
    }

    /// The next document; of no host if that is [`super::prints::NONE`].
    pub(super) fn push(&mut self, print: Print, host: u32, doc: u64, not_before: Option<u64>) {
        if self.documents.len() >= WAITING_MAX.max(self.full) {
            self.give_up();
        }
        if self.state == Sealing::Over {
            return;
        }
        if let Some(time) = not_before {
            self.timed.push((self.first + self.documents.len() as u32, time));
        }
        match self.runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(doc) => *last = doc,
            Some(_) | None => self.runs.push((doc, doc)),
        }
        self.documents.push((print, host));
    }

    /// Whether there is a block to be written.
    pub(super) fn is_due(&self) -> bool {
        self.state == Sealing::Idle && self.documents.len() >= self.full
    }

    /// Takes out what is in the log up to `log_end`, the end of `last_frame`: that is all that was pushed.
    pub(super) fn seal(&mut self, log: &Log, (last_frame, log_end): (u64, u64), reader: &Reader) -> Seal {
        let (documents, hosts) = (std::mem::take(&mut self.documents), std::mem::take(&mut self.hosts));
        let (runs, timed) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.timed));
        let count = documents.len() as u32;
        let places = reader.places()[places_of(self.first, count)].to_vec();
        let head = Head {
            first: self.first,
            count,
            first_host: self.first_host,
            hosts: hosts.len() as u32,
            places: places.len() as u32,
            runs: runs.len() as u32,
            timed: timed.len() as u32,
            frame_check: 0,
            last_frame,
            log_start: self.log_start,
            log_end,
        };
        self.first += count;
        self.first_host += head.hosts;
        self.log_start = log_end;
        self.state = Sealing::Busy;
        let contents = Contents { head, documents, places, hosts, runs, timed };
        Seal {
            log: Arc::clone(log.file()),
            file: Arc::clone(&self.file),
            at: self.end,
            seed: log.seed,
            contents,
        }
    }

    /// It is on the disk, and ends here; or it could not be written.
    pub(super) fn handle_sealed(&mut self, result: io::Result<u64>) {
        match result {
            Ok(end) => {
                self.end = end;
                self.state = Sealing::Idle;
            }
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "fingerprints cannot be written: the next start takes longer");
                self.give_up();
            }
        }
    }

    /// There are no more blocks in this life.
    pub(super) fn give_up(&mut self) {
        self.state = Sealing::Over;
        self.documents = Vec::new();
        self.hosts = Vec::new();
        self.runs = Vec::new();
        self.timed = Vec::new();
    }
}

impl Store {
    /// The next block, if there is enough for one: to be run, and the sealer told of it.
    pub(super) fn seal_some(&mut self) -> Option<Seal> {
        if !self.sealer.is_due() {
            return None;
        }
        let upto = match &self.load {
            Some(load) => load.at(),
            None => (self.log.last_frame(), self.log.end()),
        };
        Some(self.sealer.seal(&self.log, upto, &self.reader))
    }

    /// Writes the next block, if there is enough for one. Blocks.
    pub(super) fn seal(&mut self) {
        if let Some(seal) = self.seal_some() {
            self.sealer.handle_sealed(seal.run());
        }
    }
}

impl Seal {
    /// The documents are on the disk, then the block is; says where it ends. A block that is torn on the way does not
    /// add up, and counts for nothing.
    pub(super) fn run(mut self) -> io::Result<u64> {
        self.log.sync_data()?;
        self.contents.head.frame_check = frame_check(&self.log, self.contents.head.last_frame)?;
        // What is behind the last block, or a file that is good for nothing, is not to be taken for anything.
        self.file.set_len(self.at)?;
        if self.at < FILE_HEADER {
            self.file.write_all_at(&file_header(self.seed), 0)?;
            self.at = FILE_HEADER;
        }
        let block = self.contents.put(self.at, self.seed);
        self.file.write_all_at(&block, self.at)?;
        self.file.sync_data()?;
        Ok(self.at + block.len() as u64)
    }
}
