//! What is in the files, back into RAM: in the order of the file, some at a time, so that the first documents can be
//! given out long before the last ones are read.

use super::blocks::{Blocks, Head, PrintsLoad};
use super::ends::{CELL, Ended, Ends, read_cell};
use super::error::IndexError;
use super::log::{Frames, Next};
use super::prints::{NONE, Print};
use super::queues::NameAt;
use super::record::{Document, HostOf, Record};
use super::store::Store;
use super::window::Window;
use crate::ids::DocId;
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Documents whose fingerprints are put in together.
const FRESH_MAX: usize = 1 << 20;
/// Cells read at once.
const CELLS_AHEAD: usize = 256 * 1024;
/// Bytes of a document in the file, about.
const RECORD_ABOUT: u64 = 44;
/// Bytes read before blocks are made of them, when nobody waits.
const STEP: u64 = 16 << 20;

/// How far the files have been read: first what is in blocks, but for the fingerprints; then those; then all documents
/// that are in no block.
pub(super) struct Load {
    frames: Frames,
    blocks: Blocks,
    /// Blocks that have been read.
    read: usize,
    prints: PrintsLoad,
    /// Fingerprints that did not add up have been made again.
    mended: bool,
    cells: Window,
    cells_path: PathBuf,
    cells_len: u64,
    /// Documents whose fingerprints are not known yet. Nobody asks for them before all is read.
    fresh: Vec<(Print, u32)>,
}

impl Load {
    pub(super) fn new(frames: Frames, blocks: Blocks, (cells, path): (&Arc<File>, &Path)) -> Load {
        let cells_len = cells.metadata().map_or(0, |meta| meta.len());
        let cells = Window::new(Arc::clone(cells), CELLS_AHEAD);
        let (cells_path, fresh) = (path.to_owned(), Vec::new());
        let prints = PrintsLoad::default();
        Load { frames, blocks, read: 0, prints, mended: false, cells, cells_path, cells_len, fresh }
    }

    /// The frame that was read last, and its end.
    pub(super) fn at(&self) -> (u64, u64) {
        (self.frames.last_frame(), self.frames.at())
    }

    /// Blocks that count.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.blocks.row.len() - self.prints.bad.len()
    }

    /// Reads the frames that a block was made of, to see that they are as they were: nothing is given out that has not
    /// been looked at.
    fn check_frames(&mut self, until: u64, path: &Path) -> Result<(), IndexError> {
        while self.frames.at() < until {
            if let Next::End { at, .. } = self.frames.next()? {
                return Err(IndexError::damaged(path, at, "a frame does not add up"));
            }
        }
        match self.frames.at() == until {
            true => Ok(()),
            false => Err(IndexError::damaged(path, until, "a frame is not where it was")),
        }
    }

    /// Bytes of documents that are not read yet.
    pub(super) fn left(&self) -> u64 {
        self.frames.len() - self.frames.at()
    }

    /// The end of a document, if it has ended.
    fn end_of(&mut self, document: u32, ends: &Ends) -> Result<Option<Ended>, IndexError> {
        if let Some(ended) = ends.recent(document) {
            return Ok(Some(ended));
        }
        let offset = u64::from(document) * CELL as u64;
        if offset + CELL as u64 > self.cells_len {
            return Ok(None);
        }
        let bytes =
            self.cells.exact(offset, CELL).map_err(|source| IndexError::io(&self.cells_path, source))?;
        let mut cell = [0; CELL];
        cell.copy_from_slice(bytes);
        read_cell(cell, document, &self.cells_path)
    }
}

impl Store {
    /// Reads on for about so many bytes; true when all is read.
    pub(super) fn load_some(&mut self, bytes: u64, now: u64) -> Result<bool, IndexError> {
        let Some(mut load) = self.load.take() else { return Ok(true) };
        let until = load.frames.at().saturating_add(bytes);
        while load.read < load.blocks.row.len() && load.frames.at() < until {
            self.load_block(&mut load, now)?;
        }
        let mut room = until.saturating_sub(load.frames.at()).div_ceil(RECORD_ABOUT);
        while room > 0 && self.load_prints(&mut load)? {
            room = room.saturating_sub(load.prints.per_step());
        }
        while room > 0 && load.frames.at() < until {
            // The frames are borrowed while their records are put into everything else.
            let Load { frames, .. } = &mut load;
            let (at, records) = match frames.next()? {
                Next::Records { at, bytes } => (at, bytes.to_vec()),
                Next::End { at, torn } => {
                    self.know_all(&mut load.fresh)?;
                    self.handle_loaded(at, torn, load.frames.last_frame());
                    return Ok(true);
                }
            };
            self.load_records(&mut load, at, &records, now)?;
            if load.fresh.len() >= FRESH_MAX {
                self.know_all(&mut load.fresh)?;
            }
        }
        self.load = Some(load);
        Ok(false)
    }

    /// Reads everything.
    pub(super) fn load_all(&mut self, now: u64) -> Result<(), IndexError> {
        while !self.load_some(STEP, now)? {
            self.seal();
        }
        self.seal();
        Ok(())
    }

    /// The next block, but for its fingerprints.
    fn load_block(&mut self, load: &mut Load, now: u64) -> Result<(), IndexError> {
        let Some(columns) = load.blocks.columns(load.read, &self.log)? else {
            // What is read so far stays; the rest comes from the log.
            load.blocks.cut(load.read);
            self.sealer.restart(&load.blocks);
            return Ok(());
        };
        load.read += 1;
        load.check_frames(columns.head.log_end, self.log.path())?;
        for (name, at) in columns.hosts() {
            self.queues.insert(name, at);
        }
        let first = self.reader.count();
        self.reader.push_many(columns.head.count, columns.places());
        self.reader.extend(columns.head.log_end);
        let times: HashMap<u32, u64> = columns.timed().filter(|(_, time)| *time > now).collect();
        for (number, host) in (first..).zip(columns.hosts_of()) {
            let ended = load.end_of(number, &self.ends)?;
            *self.counts.of(ended.map(|ended| ended.how.state())) += 1;
            if ended.is_some() || host == NONE {
                continue;
            }
            if !self.queues.is_host(host) {
                return Err(IndexError::damaged(&load.blocks.path, number.into(), "a document of no host"));
            }
            match times.get(&number).filter(|_| !times.is_empty()) {
                Some(time) => self.timed.push(Reverse((*time, number, host))),
                None => self.queues.push(host, number),
            }
        }
        columns.runs().for_each(|(first, last)| self.ids.take_run(first, last));
        Ok(())
    }

    /// Some of the fingerprints in blocks; false if there are no more.
    fn load_prints(&mut self, load: &mut Load) -> Result<bool, IndexError> {
        if load.read < load.blocks.row.len() {
            return Ok(false);
        }
        let mut older = Vec::new();
        let Load { prints, blocks, .. } = load;
        if prints.step(blocks, &mut self.known, |before| older.push(before))? {
            self.discount(older)?;
            return Ok(true);
        }
        if let Some(first) = load.prints.bad.first()
            && !std::mem::replace(&mut load.mended, true)
        {
            for block in &load.prints.bad {
                self.mend_prints(load.blocks.row[*block].head)?;
            }
            // The next start makes blocks of them again.
            let _ = load.blocks.file.set_len(load.blocks.row[*first].at);
            self.sealer.give_up();
        }
        Ok(false)
    }

    /// The fingerprints of a block, out of the log. Younger documents are known already.
    fn mend_prints(&mut self, head: Head) -> Result<(), IndexError> {
        tracing::warn!(
            first = head.first,
            count = head.count,
            "fingerprints do not add up: they are made again"
        );
        let (mut number, mut host) = (head.first, head.first_host);
        let mut older = Vec::new();
        let mut frames = self.log.frames(head.log_start, head.log_end);
        while let Next::Records { at, bytes } = frames.next()? {
            let mut place = 0;
            while place < bytes.len() {
                let bad = || IndexError::damaged(self.log.path(), at, "a document makes no sense");
                let (record, len) = Record::parse(&bytes[place..]).ok_or_else(bad)?;
                place += len;
                let print = match record {
                    Record::Finished { print, .. } => print,
                    Record::Document(document) => {
                        let of = match document.host {
                            HostOf::Known(known) if self.queues.is_host(known) => known,
                            HostOf::New(_) if self.queues.is_host(host) => {
                                host += 1;
                                host - 1
                            }
                            HostOf::Known(_) | HostOf::New(_) => return Err(bad()),
                        };
                        super::queues::print(self.queues.name_bits(of), document.scheme, document.rest)
                    }
                };
                match self.known.find(print) {
                    Some(younger) if younger > number => older.push(number),
                    Some(_) | None => older.extend(self.known.set(print, number)),
                }
                number += 1;
            }
        }
        self.discount(older)
    }

    fn handle_loaded(&mut self, end: u64, torn: u64, last_frame: u64) {
        if torn > 0 {
            tracing::warn!(file = %self.log.path().display(), at = end, torn, "a torn tail is cut off");
        }
        self.log.cut(end, last_frame);
        self.has_ghosts = self.ends.forget_from(self.reader.count());
    }

    fn load_records(&mut self, load: &mut Load, at: u64, records: &[u8], now: u64) -> Result<(), IndexError> {
        let mut place = 0;
        self.reader.extend(at + records.len() as u64);
        while place < records.len() {
            let offset = at + place as u64;
            let bad = || IndexError::damaged(self.log.path(), offset, "a document makes no sense");
            let (record, len) = Record::parse(&records[place..]).ok_or_else(bad)?;
            match record {
                Record::Document(document) => {
                    self.load_document(load, offset, document, &records[place..], now)?;
                }
                Record::Finished { print, doc } => {
                    let ended = load.end_of(self.reader.count(), &self.ends)?;
                    self.sealer.push(print, NONE, doc, None);
                    self.know(load, print, doc, offset, ended);
                }
            }
            place += len;
        }
        Ok(())
    }

    fn load_document(
        &mut self,
        load: &mut Load,
        offset: u64,
        document: Document<'_>,
        record: &[u8],
        now: u64,
    ) -> Result<(), IndexError> {
        let host = match document.host {
            HostOf::New(name) => {
                let place = name.as_ptr() as usize - record.as_ptr() as usize;
                let at = NameAt { offset: offset + place as u64, len: name.len() };
                let name = Print::of(name, self.log.seed);
                self.sealer.push_host(name, at);
                self.queues.insert(name, at)
            }
            HostOf::Known(host) if self.queues.is_host(host) => host,
            HostOf::Known(_) => {
                return Err(IndexError::damaged(self.log.path(), offset, "a document of no host"));
            }
        };
        let number = self.reader.count();
        let ended = load.end_of(number, &self.ends)?;
        let print = super::queues::print(self.queues.name_bits(host), document.scheme, document.rest);
        self.sealer.push(print, host, document.doc, document.not_before);
        self.know(load, print, document.doc, offset, ended);
        match document.not_before.filter(|time| *time > now) {
            _ if ended.is_some() => {}
            Some(time) => self.timed.push(Reverse((time, number, host))),
            None => self.queues.push(host, number),
        }
        Ok(())
    }

    /// The next document.
    fn know(&mut self, load: &mut Load, print: Print, doc: u64, offset: u64, ended: Option<Ended>) {
        load.fresh.push((print, self.reader.count()));
        self.reader.push(offset);
        *self.counts.of(ended.map(|ended| ended.how.state())) += 1;
        self.ids.take(DocId(doc));
    }

    fn know_all(&mut self, fresh: &mut Vec<(Print, u32)>) -> Result<(), IndexError> {
        let mut older = Vec::new();
        self.known.extend(fresh, |before| older.push(before));
        fresh.clear();
        self.discount(older)
    }

    /// Crawled again: the older ones count no more.
    fn discount(&mut self, older: Vec<u32>) -> Result<(), IndexError> {
        for before in older {
            let state = self.ends.find(before)?.map(|ended| ended.how.state());
            *self.counts.of(state) -= 1;
        }
        Ok(())
    }
}
