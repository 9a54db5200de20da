//! What is in the files, back into RAM: in the order of the file, some at a time, so that the first documents can be
//! given out long before the last ones are read.

use super::ends::{CELL, Ended, Ends, read_cell};
use super::error::IndexError;
use super::log::{Frames, Next};
use super::prints::Print;
use super::queues::NameAt;
use super::record::{Document, HostOf, Record};
use super::store::Store;
use super::window::Window;
use crate::ids::DocId;
use std::cmp::Reverse;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Documents whose fingerprints are put in together.
const FRESH_MAX: usize = 1 << 20;
/// Cells read at once.
const CELLS_AHEAD: usize = 256 * 1024;

/// How far the files have been read.
pub(super) struct Load {
    frames: Frames,
    cells: Window,
    cells_path: PathBuf,
    cells_len: u64,
    /// Documents whose fingerprints are not known yet. Nobody asks for them before all is read.
    fresh: Vec<(Print, u32)>,
}

impl Load {
    pub(super) fn new(frames: Frames, (cells, path): (&Arc<File>, &Path)) -> Load {
        let cells_len = cells.metadata().map_or(0, |meta| meta.len());
        let cells = Window::new(Arc::clone(cells), CELLS_AHEAD);
        Load { frames, cells, cells_path: path.to_owned(), cells_len, fresh: Vec::new() }
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
        while load.frames.at() < until {
            // The frames are borrowed while their records are put into everything else.
            let Load { frames, .. } = &mut load;
            let (at, records) = match frames.next()? {
                Next::Records { at, bytes } => (at, bytes.to_vec()),
                Next::End { at, torn } => {
                    self.know_all(&mut load.fresh)?;
                    self.handle_loaded(at, torn);
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
        while !self.load_some(u64::MAX, now)? {}
        Ok(())
    }

    fn handle_loaded(&mut self, end: u64, torn: u64) {
        if torn > 0 {
            tracing::warn!(file = %self.log.path().display(), at = end, torn, "a torn tail is cut off");
        }
        self.log.cut(end);
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
                self.queues.insert(Print::of(name, self.log.seed), at)
            }
            HostOf::Known(host) if self.queues.is_host(host) => host,
            HostOf::Known(_) => {
                return Err(IndexError::damaged(self.log.path(), offset, "a document of no host"));
            }
        };
        let number = self.reader.count();
        let ended = load.end_of(number, &self.ends)?;
        let print = super::queues::print(self.queues.name_bits(host), document.scheme, document.rest);
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
        // Crawled again: the older ones count no more.
        for before in older {
            let state = self.ends.find(before)?.map(|ended| ended.how.state());
            *self.counts.of(state) -= 1;
        }
        Ok(())
    }
}
