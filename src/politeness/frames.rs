//! The file: a head that names its format and the start of the machine, then frames, each with its length and a check
//! sum. What a crash has left half written at the end is cut off; damage anywhere else is an error.

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// What a file of this format begins with; the digit is its version.
const MAGIC: &[u8] = b"urlserver politeness ";
const VERSION: u8 = b'1';
/// Length and check sum before each payload.
const FRAME_HEAD: usize = 8;
/// No frame is longer: a length beyond it is damage.
pub(super) const PAYLOAD_MAX: usize = 1 << 20;

/// What is wrong with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DamageError {
    /// Not ours.
    #[error("it is no politeness log")]
    Foreign,
    /// Of a later version of this program, or of an older one that is not read any more.
    #[error("it is of another version of urlserver")]
    Version,
    /// Changed by somebody else, or by a bad disk.
    #[error("it is damaged at byte {offset}")]
    Frame {
        /// Where.
        offset: usize,
    },
    /// Whole, and yet senseless.
    #[error("it makes no sense at byte {offset}")]
    Record {
        /// Where.
        offset: usize,
    },
}

/// The first frame.
pub(super) struct FileHead<'a> {
    /// Names the start of the machine during which the file was written.
    pub(super) boot: &'a str,
}

impl FileHead<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = [MAGIC, &[VERSION, b'\n']].concat();
        put(&mut bytes, self.boot.as_bytes());
        bytes
    }
}

/// Adds a frame.
pub(super) fn put(bytes: &mut Vec<u8>, payload: &[u8]) {
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&check_sum(payload).to_le_bytes());
    bytes.extend_from_slice(payload);
}

fn check_sum(payload: &[u8]) -> u32 {
    xxh3_64(payload) as u32
}

/// The frames of a file, one after another, each with its place.
pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Frames<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<(FileHead<'a>, Frames<'a>), DamageError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(DamageError::Foreign)?;
        match rest {
            [VERSION, b'\n', ..] => {}
            [_, b'\n', ..] => return Err(DamageError::Version),
            _ => return Err(DamageError::Foreign),
        }
        let mut frames = Frames { bytes, at: MAGIC.len() + 2 };
        // The head is written before the file gets its name: it is never torn.
        let (offset, boot) = frames.next().ok_or(DamageError::Frame { offset: MAGIC.len() + 2 })??;
        let boot = std::str::from_utf8(boot).map_err(|_| DamageError::Frame { offset })?;
        Ok((FileHead { boot }, frames))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<(usize, &'a [u8]), DamageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.at;
        let rest = &self.bytes[offset..];
        // Bytes that were promised and never came are zero after a loss of power.
        if rest.iter().all(|&byte| byte == 0) {
            return None;
        }
        let word = |at: usize| rest.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let (length, sum) = (word(0)? as usize, word(4)?);
        if length > PAYLOAD_MAX {
            self.at = self.bytes.len();
            return Some(Err(DamageError::Frame { offset }));
        }
        let payload = rest.get(FRAME_HEAD..FRAME_HEAD + length)?;
        self.at = offset + FRAME_HEAD + length;
        if check_sum(payload) == sum {
            return Some(Ok((offset, payload)));
        }
        let torn = self.bytes[self.at..].iter().all(|&byte| byte == 0);
        self.at = self.bytes.len();
        if torn { None } else { Some(Err(DamageError::Frame { offset })) }
    }
}
