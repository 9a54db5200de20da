//! An append-only file of checked frames.
//!
//! A frame is written with one `write`, at the end that we know of: what a failed write has left behind it is cut off
//! or written over, never read. Each frame says how far the file was known to be on the disk when it was written, so
//! that a tail torn by a crash (cut, with a warning) can be told from damage to what was safe (refused).
//!
//! Not here: what is in a frame.

use super::error::IndexError;
use super::window::Window;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The version of all files in the directory. A newer one is not touched.
pub(super) const VERSION: u32 = 1;
/// Magic, version, four bytes kept free, seed, check.
pub(super) const FILE_HEADER: u64 = 32;
/// Tag, length, check, bytes known to be on the disk.
pub(super) const FRAME_HEADER: usize = 17;
/// No record begins with this byte.
pub(super) const FRAME_TAG: u8 = 0xf5;
/// A frame is written when it has come to this; one record more may be in it.
pub(super) const FRAME_FULL: usize = 256 * 1024;
/// Longer than any frame.
const FRAME_MAX: usize = FRAME_FULL + 64 * 1024;
/// Read at once, when all is read.
const READ_AHEAD: usize = 1024 * 1024;

/// What a file holds; its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Documents,
    Ends,
    Prints,
}

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Kind::Documents => b"URLSDOCS",
            Kind::Ends => b"URLSENDS",
            Kind::Prints => b"URLSPRNT",
        }
    }
}

/// A log, open for appending.
pub(super) struct Log {
    file: Arc<File>,
    path: PathBuf,
    /// Of the file.
    pub(super) seed: u64,
    /// Where the next frame goes.
    end: u64,
    /// Known to be on the disk.
    synced: u64,
    /// What the last frame says of `synced`.
    told: u64,
    /// Whether something may lie behind `end`.
    rough: bool,
    /// Not all of it has been read: where it ends is not known, so it is neither written to nor said to be on the disk.
    unread: bool,
    /// Where the last frame is.
    last_frame: u64,
}

/// A frame that is being filled.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
}

impl Default for Frame {
    fn default() -> Self {
        Frame { bytes: vec![0; FRAME_HEADER] }
    }
}

impl Frame {
    /// Where records are put.
    pub(super) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Bytes from the beginning of the frame, its header included.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() == FRAME_HEADER
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= FRAME_FULL
    }

    /// Empties it, and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER);
    }

    /// Fills the header in, for this place in the file.
    fn seal(&mut self, at: u64, synced: u64) {
        let len = (self.bytes.len() - FRAME_HEADER) as u32;
        self.bytes[0] = FRAME_TAG;
        self.bytes[1..5].copy_from_slice(&len.to_le_bytes());
        self.bytes[9..17].copy_from_slice(&synced.to_le_bytes());
        let check = check(&self.bytes, at);
        self.bytes[5..9].copy_from_slice(&check.to_le_bytes());
    }
}

/// Of everything in a frame but the check itself, and of where it is.
fn check(frame: &[u8], at: u64) -> u32 {
    let head = [&frame[..5], &frame[9..FRAME_HEADER]].concat();
    let seed = xxh3_64_with_seed(&head, at);
    xxh3_64_with_seed(&frame[FRAME_HEADER..], seed) as u32
}

impl Log {
    /// A new file, whole or not at all.
    pub(super) fn create(path: &Path, kind: Kind, seed: u64) -> Result<Log, IndexError> {
        let at = |source| IndexError::io(path, source);
        let part = path.with_extension("part");
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&part).map_err(at)?;
        file.write_all_at(&file_header(kind, VERSION, seed), 0).map_err(at)?;
        file.sync_all().map_err(at)?;
        std::fs::rename(&part, path).map_err(at)?;
        sync_directory(path).map_err(at)?;
        Ok(Log::at_end(Arc::new(file), path, seed, FILE_HEADER))
    }

    /// A file that is there; nothing is known yet of its frames.
    pub(super) fn open(path: &Path, kind: Kind) -> Result<(Log, Frames), IndexError> {
        let at = |source| IndexError::io(path, source);
        let file = Arc::new(File::options().read(true).write(true).open(path).map_err(at)?);
        let len = file.metadata().map_err(at)?.len();
        let mut header = [0; FILE_HEADER as usize];
        file.read_exact_at(&mut header, 0).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => IndexError::damaged(path, 0, "it is too short"),
            _ => at(source),
        })?;
        let seed = read_header(&header, kind, path)?;
        let window = Window::new(Arc::clone(&file), READ_AHEAD);
        let frames = Frames { window, path: path.to_owned(), at: FILE_HEADER, len, last_frame: 0 };
        Ok((Log { unread: true, ..Log::at_end(file, path, seed, len) }, frames))
    }

    fn at_end(file: Arc<File>, path: &Path, seed: u64, end: u64) -> Log {
        Log {
            file,
            path: path.to_owned(),
            seed,
            end,
            synced: 0,
            told: 0,
            rough: false,
            unread: false,
            last_frame: 0,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where the next frame goes.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// How far it is known to be good.
    pub(super) fn known_end(&self) -> u64 {
        if self.unread { 0 } else { self.end }
    }

    /// Known to be on the disk.
    #[cfg(test)]
    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// Whether there is anything that is not known to be on the disk.
    pub(super) fn is_dirty(&self) -> bool {
        self.synced < self.known_end()
    }

    /// All has been read up to here, and the last frame; what is behind it, if anything, is torn.
    pub(super) fn cut(&mut self, end: u64, last_frame: u64) {
        self.rough |= end < self.end;
        self.unread = false;
        self.end = end;
        self.last_frame = last_frame;
    }

    /// Where the last frame is.
    pub(super) fn last_frame(&self) -> u64 {
        self.last_frame
    }

    /// The frames between two places, once more.
    pub(super) fn frames(&self, at: u64, end: u64) -> Frames {
        let window = Window::new(Arc::clone(&self.file), READ_AHEAD);
        Frames { window, path: self.path.clone(), at, len: end, last_frame: 0 }
    }

    /// Whether there is a good frame from here to there, with this check.
    pub(super) fn has_frame(&self, at: u64, end: u64, check: u32) -> io::Result<bool> {
        if at < FILE_HEADER || at >= end || end > self.file.metadata()?.len() {
            return Ok(false);
        }
        let mut window = Window::new(Arc::clone(&self.file), 0);
        let found = frame_at(&mut window, at, end)?;
        Ok(found.is_some_and(|(len, _)| at + len as u64 == end) && frame_check(&self.file, at)? == check)
    }

    /// Writes a frame, and empties it. After an error it is as if nothing had been tried.
    pub(super) fn append(&mut self, frame: &mut Frame) -> io::Result<()> {
        if self.rough {
            self.file.set_len(self.end)?;
            self.rough = false;
        }
        frame.seal(self.end, self.synced);
        if let Err(error) = self.file.write_all_at(&frame.bytes, self.end) {
            self.rough = self.file.set_len(self.end).is_err();
            return Err(error);
        }
        self.last_frame = self.end;
        self.end += frame.bytes.len() as u64;
        self.told = self.synced;
        frame.clear();
        Ok(())
    }

    /// All up to here is on the disk. Says so in the file, once, so that it is protected from then on.
    pub(super) fn handle_synced(&mut self, upto: u64) -> io::Result<()> {
        self.synced = self.synced.max(upto);
        // The mark itself, alone at the end, needs no mark.
        let unmarked = self.synced > self.told + FRAME_HEADER as u64;
        if unmarked && self.end == self.synced {
            let before = self.synced;
            self.append(&mut Frame::default())?;
            debug_assert_eq!(self.told, before);
        }
        Ok(())
    }
}

/// The first bytes of a file.
pub(super) fn file_header(kind: Kind, version: u32, seed: u64) -> [u8; FILE_HEADER as usize] {
    let mut header = [0; FILE_HEADER as usize];
    header[..8].copy_from_slice(kind.magic());
    header[8..12].copy_from_slice(&version.to_le_bytes());
    header[16..24].copy_from_slice(&seed.to_le_bytes());
    let check = xxh3_64_with_seed(&header[..24], 0);
    header[24..].copy_from_slice(&check.to_le_bytes());
    header
}

fn read_header(header: &[u8; FILE_HEADER as usize], kind: Kind, path: &Path) -> Result<u64, IndexError> {
    if header[..8] != *kind.magic() {
        return Err(IndexError::damaged(path, 0, "it is not a file of a document index"));
    }
    if word(&header[24..]) != xxh3_64_with_seed(&header[..24], 0) {
        return Err(IndexError::damaged(path, 8, "its header does not add up"));
    }
    let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if version != VERSION {
        return Err(IndexError::Version { path: path.to_owned(), found: version, known: VERSION });
    }
    Ok(word(&header[16..]))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// What has been renamed or made in a directory is there after a loss of power.
pub(super) fn sync_directory(of: &Path) -> io::Result<()> {
    let parent = of.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// The frames of a file, one after another.
pub(super) struct Frames {
    window: Window,
    path: PathBuf,
    at: u64,
    len: u64,
    last_frame: u64,
}

/// What comes next in a file.
pub(super) enum Next<'a> {
    /// A frame's records, and where they begin.
    Records { at: u64, bytes: &'a [u8] },
    /// The end. If something torn lies behind it, it is this long.
    End { at: u64, torn: u64 },
}

impl Frames {
    /// Bytes of the whole file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// How far it has been read.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Where the frame is that was read last.
    pub(super) fn last_frame(&self) -> u64 {
        self.last_frame
    }

    pub(super) fn next(&mut self) -> Result<Next<'_>, IndexError> {
        let at = self.at;
        let io = |source| IndexError::io(&self.path, source);
        if at == self.len {
            return Ok(Next::End { at, torn: 0 });
        }
        let Some((len, _)) = frame_at(&mut self.window, at, self.len).map_err(io)? else {
            return self.bad(at);
        };
        self.at = at + len as u64;
        self.last_frame = at;
        let bytes = self.window.exact(at, len).map_err(|source| IndexError::io(&self.path, source))?;
        Ok(Next::Records { at: at + FRAME_HEADER as u64, bytes: &bytes[FRAME_HEADER..] })
    }

    /// There is no good frame at `at`. If any behind it knows that this place was on the disk, it is damage.
    fn bad(&mut self, at: u64) -> Result<Next<'_>, IndexError> {
        let io = |source| IndexError::io(&self.path, source);
        let mut place = at + 1;
        while let Some(found) = next_tag(&mut self.window, place, self.len).map_err(io)? {
            place = found + 1;
            if let Some((len, synced)) = frame_at(&mut self.window, found, self.len).map_err(io)? {
                if synced > at {
                    return Err(IndexError::damaged(&self.path, at, "a frame does not add up"));
                }
                place = found + len as u64;
            }
        }
        Ok(Next::End { at, torn: self.len - at })
    }
}

/// What the frame at this place says of itself.
pub(super) fn frame_check(file: &File, at: u64) -> io::Result<u32> {
    let mut check = [0; 4];
    file.read_exact_at(&mut check, at + 5)?;
    Ok(u32::from_le_bytes(check))
}

/// Length of the good frame at this place, and how far it knows the file to be on the disk.
fn frame_at(window: &mut Window, at: u64, file_len: u64) -> io::Result<Option<(usize, u64)>> {
    let room = file_len - at;
    if room < FRAME_HEADER as u64 {
        return Ok(None);
    }
    let header = window.exact(at, FRAME_HEADER)?;
    let len = word(&header[1..5]) as usize + FRAME_HEADER;
    if header[0] != FRAME_TAG || len > FRAME_MAX || len as u64 > room {
        return Ok(None);
    }
    let frame = window.exact(at, len)?;
    let good = frame[5..9] == check(frame, at).to_le_bytes();
    Ok(good.then(|| (len, word(&frame[9..17]))))
}

/// The next place from `at` on where a frame could begin.
fn next_tag(window: &mut Window, mut at: u64, file_len: u64) -> io::Result<Option<u64>> {
    while at < file_len {
        let len = (file_len - at).min(READ_AHEAD as u64 / 2) as usize;
        let bytes = window.exact(at, len)?;
        match memchr::memchr(FRAME_TAG, bytes) {
            Some(place) => return Ok(Some(at + place as u64)),
            None => at += len as u64,
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
