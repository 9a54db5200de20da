//! Why an index in a directory cannot be used: always with the file, and the place in it.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What keeps an index from being opened.
#[derive(Debug, Error)]
pub enum IndexError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{}: in use by another process", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Made by a later version of this program, which knows better.
    #[error("{}: has format {found}, and this version knows format {known} only", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// What is there is not what was written.
    #[error("{}: damaged at byte {offset}: {what}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where it stops making sense.
        offset: u64,
        /// What does not.
        what: &'static str,
    },
}

impl IndexError {
    pub(super) fn io(path: &Path, source: io::Error) -> IndexError {
        IndexError::Io { path: path.to_owned(), source }
    }

    pub(super) fn damaged(path: &Path, offset: u64, what: &'static str) -> IndexError {
        IndexError::Damaged { path: path.to_owned(), offset, what }
    }
}
