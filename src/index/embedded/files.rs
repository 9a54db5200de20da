//! The directory: who may use it, and which of its files count.
//!
//! `lock` is held by whoever has the index open. The files of one generation belong together; compaction makes the
//! next one, whose documents' log gets its name last. The newest generation with a documents' log counts, and
//! what is left of others is removed.

use super::error::IndexError;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// A directory that nobody else has open.
pub(super) struct Directory {
    pub(super) path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes it, if it is not there, and takes it.
    pub(super) fn take(path: &Path) -> Result<Directory, IndexError> {
        std::fs::create_dir_all(path).map_err(|source| IndexError::io(path, source))?;
        Self::take_existing(path)
    }

    /// Takes it, if it is there.
    pub(super) fn take_existing(path: &Path) -> Result<Directory, IndexError> {
        let name = path.join("lock");
        let lock = File::options().read(true).write(true).create(true).truncate(false).open(&name);
        let lock = lock.map_err(|source| IndexError::io(&name, source))?;
        match lock.try_lock() {
            Ok(()) => Ok(Directory { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(IndexError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(IndexError::io(&name, source)),
        }
    }

    /// The generation that counts, if there is one.
    pub(super) fn generation(&self) -> Result<Option<u64>, IndexError> {
        let generation = |name: &String| name.strip_prefix("documents-")?.strip_suffix(".log")?.parse().ok();
        Ok(names(&self.path)?.iter().filter_map(generation).max())
    }

    /// Removes what belongs to other generations, or was never finished.
    pub(super) fn clean(&self, keep: u64) -> Result<(), IndexError> {
        for name in names(&self.path)? {
            let ours = ["documents-", "ends-", "cells-", "prints-"]
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix));
            let Some(rest) = ours else { continue };
            let digits = rest.split(['-', '.']).next().unwrap_or_default();
            if name.ends_with(".part") || digits.parse::<u64>().is_ok_and(|generation| generation != keep) {
                let path = self.path.join(name);
                std::fs::remove_file(&path).map_err(|source| IndexError::io(&path, source))?;
            }
        }
        Ok(())
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> Result<u64, IndexError> {
        let len = |name: String| std::fs::metadata(self.path.join(name)).map_or(0, |meta| meta.len());
        Ok(names(&self.path)?.into_iter().map(len).sum())
    }
}

/// The documents' log.
pub(super) fn documents_path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("documents-{generation}.log"))
}

/// The names in a directory that are text.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, IndexError> {
    let at = |source| IndexError::io(directory, source);
    let entries = std::fs::read_dir(directory).map_err(at)?;
    entries
        .filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose())
        .map(|name| name.map_err(at))
        .collect()
}
