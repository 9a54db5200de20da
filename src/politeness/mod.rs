//! Politeness that outlives the process: a log of what is owed, beside the documents of a durable index.
//!
//! The hub appends what the scheduler notes, in one write before the lines it is about are written to any socket. A write
//! is in the system's hands at once: it survives the end of the process, `kill -9` included. For the loss of power
//! the file is synced once a second, by a thread of its own.
//!
//! What is lost: if the disk takes nothing more, notes are kept in memory and the whole is written once there is
//! room again; a death in between forgets them. Power that fails may take the last second with it.
//!
//! In here no clock is read: times come as arguments, [`Stamp`]s for what is in the file.

mod frames;
mod record;

pub use frames::DamageError;

use crate::scheduler::{ClockKey, Note};
use crate::time::{Duration, Instant};
use frames::{FileHead, Frames};
use indexmap::IndexMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use thiserror::Error;

/// The name of the file in the directory of the index.
pub const FILE_NAME: &str = "politeness.log";
/// The file is written anew when it is longer than this many times what is live, and this much.
const GARBAGE_FACTOR: u64 = 4;
const GARBAGE_MIN: u64 = 1 << 20;
/// Notes looked at per note taken, whether they say anything any more.
const SWEEP_STEPS: usize = 2;
/// Least time between two syncs, and between two attempts on a disk that takes nothing.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// A moment as another life can understand it: time since the machine was started, if it is the same start, and the
/// wall clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Names the start of the machine; empty if the system does not say.
    pub boot: Box<str>,
    /// Time since then.
    pub uptime: Duration,
    /// Wall clock, since 1970.
    pub unix: Duration,
}

/// How exactly the time since the start of the machine is known.
const UPTIME_GRAIN: Duration = Duration::from_millis(10);

impl Stamp {
    /// Time that has passed at least since `earlier`. A wall clock that was set back in between has let no time pass.
    fn since(&self, earlier: &Stamp) -> Duration {
        if self.boot == earlier.boot && !self.boot.is_empty() {
            return self.uptime.saturating_sub(earlier.uptime).saturating_sub(UPTIME_GRAIN);
        }
        self.unix.saturating_sub(earlier.unix)
    }
}

/// Why the log cannot be used.
#[derive(Debug, Error)]
pub enum LogError {
    /// The system says no.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody has changed it, or it is of another version.
    #[error("cannot use {}: {source}; what hosts are owed is in there: move it away to go on without", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: DamageError,
    },
}

/// What earlier lives have left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Legacy {
    /// All that still means something.
    pub notes: Vec<Note>,
    /// The last life has not ended in peace.
    pub died: bool,
}

/// What a note is about: a later one about the same replaces it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Subject {
    Clock(ClockKey),
    Order(Box<str>),
    Everything,
}

fn subject(note: &Note) -> Subject {
    match note {
        Note::Clock { key, .. } => Subject::Clock(key.clone()),
        Note::Order { host, .. } => Subject::Order(host.clone()),
        Note::PauseAll(_) => Subject::Everything,
    }
}

/// The log of one life.
pub struct PolitenessLog {
    path: PathBuf,
    file: Arc<File>,
    /// Bytes in the file that are whole.
    len: u64,
    /// What still means something, and when it was noted. Some entries may be over.
    live: IndexMap<Subject, (Note, Instant), hashbrown::DefaultHashBuilder>,
    live_bytes: u64,
    sweep_at: usize,
    /// Notes that are not written yet.
    fresh: Vec<Note>,
    /// Since when the file lacks something that is live, and when that was last tried to be mended.
    failing: Option<Instant>,
    failures: u64,
    sync: SyncSender<Arc<File>>,
}

impl PolitenessLog {
    /// Opens the log in `directory`, and begins a new life in it.
    pub fn open(directory: &Path, now: Instant, stamp: &Stamp) -> Result<(PolitenessLog, Legacy), LogError> {
        let path = directory.join(FILE_NAME);
        let io = |source| LogError::Io { path: path.clone(), source };
        let mut bytes = Vec::new();
        let existed = match File::open(&path) {
            Ok(mut file) => file.read_to_end(&mut bytes).map(|_| true).map_err(io)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(io(error)),
        };
        let damaged = |source| LogError::Damaged { path: path.clone(), source };
        let legacy = if existed { read(&bytes, stamp).map_err(damaged)? } else { Legacy::default() };
        let (file, len) = write_anew(&path, stamp, &legacy.notes).map_err(io)?;
        let mut log = PolitenessLog {
            file: Arc::new(file),
            path: path.clone(),
            len,
            live: IndexMap::default(),
            live_bytes: 0,
            sweep_at: 0,
            fresh: Vec::new(),
            failing: None,
            failures: 0,
            sync: sync_thread().map_err(io)?,
        };
        for note in &legacy.notes {
            log.remember(now, note.clone());
        }
        Ok((log, legacy))
    }

    /// Takes a note; it is in the file after the next [`PolitenessLog::write`].
    pub fn push(&mut self, now: Instant, note: Note) {
        for _ in 0..SWEEP_STEPS {
            self.sweep(now);
        }
        self.remember(now, note.clone());
        self.fresh.push(note);
    }

    /// Nothing was noted since the last write.
    pub fn is_clean(&self) -> bool {
        self.fresh.is_empty() && self.failing.is_none()
    }

    /// Writes what was noted. If the disk takes nothing, it is tried again later: what is noted until then would not
    /// survive the end of the process.
    pub fn write(&mut self, now: Instant, stamp: &Stamp) {
        if self.failing.is_some_and(|last| now < last + SYNC_EVERY) {
            self.fresh.clear();
            return;
        }
        let result = if self.failing.is_some() || self.is_mostly_garbage() {
            self.rewrite(now, stamp)
        } else {
            self.append(stamp)
        };
        self.fresh.clear();
        match result {
            Ok(()) => {
                if self.failing.take().is_some() {
                    tracing::info!(file = %self.path.display(), "politeness is saved again");
                }
                // A sync that is under way covers it, or the next one does.
                let _ = self.sync.try_send(Arc::clone(&self.file));
            }
            Err(error) => {
                self.failures += 1;
                if self.failing.replace(now).is_none() {
                    let file = self.path.display();
                    tracing::error!(%file, %error, "cannot save politeness: a crash would forget what hosts are owed");
                }
            }
        }
    }

    /// The last words of a life: all that is still owed.
    pub fn close(mut self, now: Instant, stamp: &Stamp, notes: Vec<Note>) {
        for note in notes {
            self.remember(now, note);
        }
        let result = self.rewrite(now, stamp).and_then(|()| {
            let mut bytes = Vec::new();
            frames::put(&mut bytes, &[record::PEACE]);
            self.put(&bytes)?;
            self.file.sync_data()
        });
        if let Err(error) = result {
            tracing::error!(file = %self.path.display(), %error, "cannot save politeness");
        }
    }

    /// Writes that have failed.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    fn remember(&mut self, now: Instant, note: Note) {
        let subject = subject(&note);
        if note.later(Duration::ZERO).is_none() {
            if let Some((old, _)) = self.live.swap_remove(&subject) {
                self.live_bytes -= record::size(&old);
            }
            return;
        }
        self.live_bytes += record::size(&note);
        if let Some((old, _)) = self.live.insert(subject, (note, now)) {
            self.live_bytes -= record::size(&old);
        }
    }

    /// Looks at one note, and forgets it if it says nothing any more.
    fn sweep(&mut self, now: Instant) {
        if self.sweep_at >= self.live.len() {
            self.sweep_at = 0;
        }
        let Some((_, (note, at))) = self.live.get_index(self.sweep_at) else { return };
        if note.later(now.since(*at)).is_some() {
            self.sweep_at += 1;
        } else if let Some((_, (note, _))) = self.live.swap_remove_index(self.sweep_at) {
            self.live_bytes -= record::size(&note);
        }
    }

    fn is_mostly_garbage(&self) -> bool {
        self.len > self.live_bytes * GARBAGE_FACTOR + GARBAGE_MIN
    }

    fn append(&mut self, stamp: &Stamp) -> io::Result<()> {
        let mut bytes = Vec::new();
        record::put_batches(&mut bytes, stamp, self.fresh.iter());
        self.put(&bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = (&*self.file).write_all(bytes) {
            // Half a frame in the middle would look like damage.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Writes the file anew with what is live.
    fn rewrite(&mut self, now: Instant, stamp: &Stamp) -> io::Result<()> {
        let left = |(note, at): &(Note, Instant)| note.later(now.since(*at));
        let notes: Vec<Note> = self.live.values().filter_map(left).collect();
        let (file, len) = write_anew(&self.path, stamp, &notes)?;
        self.file = Arc::new(file);
        self.len = len;
        self.live.clear();
        self.live_bytes = 0;
        for note in notes {
            self.remember(now, note);
        }
        Ok(())
    }
}

/// Writes a file with these notes, and puts it in the place of the old one in one step: the file, to be appended to,
/// and its length.
fn write_anew(path: &Path, stamp: &Stamp, notes: &[Note]) -> io::Result<(File, u64)> {
    let mut bytes = FileHead { boot: &stamp.boot }.bytes();
    record::put_batches(&mut bytes, stamp, notes.iter());
    let new = path.with_extension("log.new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&new)?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    let file = OpenOptions::new().append(true).open(&new)?;
    std::fs::rename(&new, path)?;
    Ok((file, bytes.len() as u64))
}

/// What still means something of what is in the file.
fn read(bytes: &[u8], stamp: &Stamp) -> Result<Legacy, DamageError> {
    let (head, frames) = Frames::read(bytes)?;
    let mut notes: IndexMap<Subject, Option<Note>> = IndexMap::new();
    let mut died = true;
    for frame in frames {
        let (offset, payload) = frame?;
        died = payload != [record::PEACE];
        if !died {
            continue;
        }
        let batch = record::read_batch(payload).ok_or(DamageError::Record { offset })?;
        // The system did not say how long the machine had been up.
        let boot = if batch.uptime.is_zero() { "" } else { head.boot };
        let then = Stamp { boot: boot.into(), uptime: batch.uptime, unix: batch.unix };
        for note in batch.notes {
            notes.insert(subject(&note), note.later(stamp.since(&then)));
        }
    }
    Ok(Legacy { notes: notes.into_values().flatten().collect(), died })
}

/// A thread that syncs what it is given, once a second at most. It ends with the log.
fn sync_thread() -> io::Result<SyncSender<Arc<File>>> {
    let (sender, files) = sync_channel::<Arc<File>>(1);
    let sync = move || {
        while let Ok(file) = files.recv() {
            if let Err(error) = file.sync_data() {
                tracing::warn!(%error, "cannot sync what hosts are owed");
            }
            drop(file);
            std::thread::sleep(SYNC_EVERY);
        }
    };
    std::thread::Builder::new().name("politeness".into()).spawn(sync)?;
    Ok(sender)
}

#[cfg(test)]
mod tests;
