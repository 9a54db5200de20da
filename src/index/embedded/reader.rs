//! Documents by number, out of the file: the place of every sixteenth is known, from there records are stepped over.

use super::error::IndexError;
use super::log::{FRAME_HEADER, FRAME_TAG};
use super::queues::NameAt;
use super::record::{RECORD_MAX, Record};
use super::window::Window;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of so many documents the place of one is known.
pub(super) const STEP: usize = 16;
const READ_AHEAD: usize = 4096;
const NAME_MAX: usize = 256;

/// Where documents are, and the way to them.
pub(super) struct Reader {
    path: PathBuf,
    places: Vec<u64>,
    count: u32,
    documents: Window,
    names: Window,
}

impl Reader {
    pub(super) fn new(file: &Arc<File>, path: &Path) -> Reader {
        Reader {
            path: path.to_owned(),
            places: Vec::new(),
            count: 0,
            documents: Window::new(Arc::clone(file), READ_AHEAD),
            names: Window::new(Arc::clone(file), NAME_MAX),
        }
    }

    /// Documents known; the number of the next one.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<u64>()
    }

    /// The next document is here in the file.
    pub(super) fn push(&mut self, offset: u64) {
        if (self.count as usize).is_multiple_of(STEP) {
            self.places.push(offset);
        }
        self.count += 1;
    }

    /// So many more documents, and the places of some of them, as they were [`Reader::places`] once.
    pub(super) fn push_many(&mut self, count: u32, places: impl Iterator<Item = u64>) {
        self.places.extend(places);
        self.count += count;
        debug_assert_eq!(self.places.len(), (self.count as usize).div_ceil(STEP));
    }

    /// Where every sixteenth document is.
    pub(super) fn places(&self) -> &[u64] {
        &self.places
    }

    /// The file is good up to here. What is behind it may be anything, and is not read: what has been read never changes.
    pub(super) fn extend(&mut self, end: u64) {
        self.documents.limit(end);
        self.names.limit(end);
    }

    /// The record of a document.
    pub(super) fn read(&mut self, document: u32) -> Result<Record<'_>, IndexError> {
        let mut at = self.places.get(document as usize / STEP).copied().unwrap_or(u64::MAX);
        let mut left = document as usize % STEP;
        loop {
            let (len, is_record) = self.step(at)?;
            if is_record && left == 0 {
                let bytes =
                    self.documents.exact(at, len).map_err(|source| IndexError::io(&self.path, source))?;
                let bad = || IndexError::damaged(&self.path, at, "a document makes no sense");
                return Record::parse(bytes).map(|(record, _)| record).ok_or_else(bad);
            }
            left -= usize::from(is_record);
            at += len as u64;
        }
    }

    /// Length of what is at this place, and whether it is a record and not the header of a frame.
    fn step(&mut self, at: u64) -> Result<(usize, bool), IndexError> {
        for len in [1, RECORD_MAX] {
            let bytes = self.documents.from(at, len).map_err(|source| IndexError::io(&self.path, source))?;
            if bytes.first() == Some(&FRAME_TAG) {
                return Ok((FRAME_HEADER, false));
            }
            if let Some((_, len)) = Record::parse(bytes) {
                return Ok((len, true));
            }
        }
        Err(IndexError::damaged(&self.path, at, "a document makes no sense"))
    }

    /// The name of a host.
    pub(super) fn name(&mut self, at: NameAt) -> Result<String, IndexError> {
        let bytes =
            self.names.exact(at.offset, at.len).map_err(|source| IndexError::io(&self.path, source))?;
        let bad = |_| IndexError::damaged(&self.path, at.offset, "a host's name makes no sense");
        String::from_utf8(bytes.to_vec()).map_err(bad)
    }
}
