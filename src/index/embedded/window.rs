//! A piece of a file in memory: neighbours are read together.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The piece that was read last.
pub(super) struct Window {
    file: Arc<File>,
    ahead: usize,
    limit: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Reads at least `ahead` bytes at a time.
    pub(super) fn new(file: Arc<File>, ahead: usize) -> Window {
        Window { file, ahead, limit: u64::MAX, start: 0, bytes: Vec::new() }
    }

    /// Nothing from here on is read.
    pub(super) fn limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// These bytes; an error if the file ends before.
    pub(super) fn exact(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let bytes = self.from(at, len)?;
        bytes.get(..len).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// The bytes from `at` on, as many as are at hand: at least `len`, or all that there are.
    pub(super) fn from(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if at < self.start || at + len as u64 > end {
            self.read(at, len.max(self.ahead))?;
        }
        Ok(&self.bytes[(at - self.start) as usize..])
    }

    fn read(&mut self, at: u64, len: usize) -> io::Result<()> {
        let len = self.limit.saturating_sub(at).min(len as u64) as usize;
        self.start = at;
        self.bytes.resize(len, 0);
        let mut filled = 0;
        while filled < len {
            match self.file.read_at(&mut self.bytes[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.bytes.clear();
                    return Err(error);
                }
            }
        }
        self.bytes.truncate(filled);
        Ok(())
    }
}
