//! How documents ended: a log of what was reported lately, and a file with a cell for every document.
//!
//! A report is written to the log at once. When the log has grown, its ends are put into the cells, in the background,
//! and a new log is begun; so what is replayed at the start is bounded, and any document's end is one read away.
//! A cell is written over in place: it is eight bytes that never lie across two sectors, with a check of their own.

use super::error::IndexError;
use super::log::{Frame, Frames, Kind, Log, Next, sync_directory};
use crate::document::{DenyReason, End, FailReason, Outcome};
use crate::wire::outcome_of;
use hashbrown::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of one document's cell.
pub(super) const CELL: usize = 8;
/// Bytes of an end in the log: document, time, how.
const RECORD: usize = 10;
/// Ends in the log before they are put into the cells.
const LOG_FULL: usize = 1 << 20;
/// Cells written with one write, at most.
const CELLS_AT_ONCE: usize = 512;

/// A document's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    /// Seconds since 1970.
    pub(super) at: u32,
    pub(super) how: How,
}

/// What became of a document, in 16 bits: two for the state, the others for the word that was said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct How(u16);

/// The state of a document that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum State {
    /// Fetched.
    Done = 1,
    /// Given up.
    Failed = 2,
    /// Not allowed.
    Denied = 3,
}

impl State {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            State::Done => "done",
            State::Failed => "failed",
            State::Denied => "denied",
        }
    }

    fn from_number(number: u16) -> Option<State> {
        [State::Done, State::Failed, State::Denied].into_iter().find(|state| *state as u16 == number)
    }
}

/// Words that are no HTTP status. Their places are in files: only ever append.
const WORDS: &[&str] = &[
    "",
    "connect-failed",
    "timeout",
    "tls-failed",
    "dns-failed",
    "aborted",
    "expired",
    "connection-lost",
    "poison",
    "dns",
    "surplus",
    "bad-url",
    "private-address",
    "robots",
    "crawl-delay",
    "other",
];
/// Below are HTTP statuses.
const FIRST_WORD: u16 = 1000;
const STATE_SHIFT: u16 = 14;

impl How {
    pub(super) fn of(end: End) -> How {
        let status = |outcome| match outcome {
            Outcome::Status(status) if status < FIRST_WORD => Some(status),
            _ => None,
        };
        let (state, word) = match end {
            End::Done(outcome) => (State::Done, status(outcome).unwrap_or_else(|| word(&outcome))),
            End::Failed(FailReason::Outcome(outcome)) => {
                (State::Failed, status(outcome).unwrap_or_else(|| word(&outcome)))
            }
            End::Failed(reason) => (State::Failed, word(&reason)),
            End::Denied(reason) => (State::Denied, word(&reason)),
        };
        How((state as u16) << STATE_SHIFT | word)
    }

    /// From what [`How::state`] and [`How::outcome`] say.
    pub(super) fn from_words(state: &str, outcome: &str) -> Option<How> {
        let state =
            [State::Done, State::Failed, State::Denied].into_iter().find(|one| one.word() == state)?;
        let status = outcome.parse().ok().filter(|status| outcome.len() == 3 && *status < FIRST_WORD);
        let known = || WORDS.iter().position(|word| *word == outcome).map(|place| FIRST_WORD + place as u16);
        Some(How((state as u16) << STATE_SHIFT | status.or_else(known)?))
    }

    fn from_number(number: u16) -> Option<How> {
        let word = number & ((1 << STATE_SHIFT) - 1);
        let known = usize::from(word) < usize::from(FIRST_WORD) + WORDS.len();
        (known && State::from_number(number >> STATE_SHIFT).is_some()).then_some(How(number))
    }

    pub(super) fn state(self) -> State {
        State::from_number(self.0 >> STATE_SHIFT).unwrap_or(State::Done)
    }

    /// The end that it was made of.
    pub(super) fn end(self) -> End {
        let word = self.outcome();
        let outcome = outcome_of(word.as_bytes()).unwrap_or(Outcome::Unsaid);
        match self.state() {
            State::Done => End::Done(outcome),
            State::Failed => {
                End::Failed(named(FailReason::PLAIN, &word).unwrap_or(FailReason::Outcome(outcome)))
            }
            State::Denied => End::Denied(named(DenyReason::ALL, &word).unwrap_or(DenyReason::PrivateAddress)),
        }
    }

    /// The word of the protocol; empty if nothing was said.
    pub(super) fn outcome(self) -> String {
        let word = self.0 & ((1 << STATE_SHIFT) - 1);
        match word.checked_sub(FIRST_WORD) {
            None => format!("{word:03}"),
            Some(place) => WORDS.get(usize::from(place)).copied().unwrap_or_default().to_owned(),
        }
    }
}

/// The one of `all` that is said like this.
fn named<T: Copy + std::fmt::Display>(all: &[T], word: &str) -> Option<T> {
    all.iter().copied().find(|one| one.to_string() == word)
}

fn word(said: &impl std::fmt::Display) -> u16 {
    let said = said.to_string();
    let place = WORDS.iter().position(|word| **word == said).unwrap_or(WORDS.len() - 1);
    FIRST_WORD + place as u16
}

/// The ends of all documents.
pub(super) struct Ends {
    directory: PathBuf,
    generation: u64,
    log: Log,
    number: u64,
    /// Ends in `log`, and in `old_logs` as long as nobody puts them into cells.
    recent: HashMap<u32, Ended>,
    /// Ends that are being put into cells.
    settling: HashMap<u32, Ended>,
    /// Logs that are needed no more once all in them is in cells.
    old_logs: Vec<PathBuf>,
    cells: Arc<File>,
    cells_path: PathBuf,
    /// Reported, but the log could not be written.
    unwritten: Vec<(u32, Ended)>,
}

/// Ends on their way into cells: to be run where blocking is no harm.
pub(super) struct Settling {
    /// The documents themselves must be on the disk before their ends are.
    documents: Arc<File>,
    cells: Arc<File>,
    ends: Vec<(u32, Ended)>,
    old_logs: Vec<PathBuf>,
}

fn log_path(directory: &Path, generation: u64, number: u64) -> PathBuf {
    directory.join(format!("ends-{generation}-{number}.log"))
}

/// The file with the cells.
pub(super) fn cells_path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("cells-{generation}"))
}

impl Ends {
    /// Reads what is in logs; what is in cells stays there.
    pub(super) fn open(directory: &Path, generation: u64) -> Result<Ends, IndexError> {
        let cells_path = cells_path(directory, generation);
        let cells = File::options().read(true).write(true).create(true).truncate(false).open(&cells_path);
        let cells = Arc::new(cells.map_err(|source| IndexError::io(&cells_path, source))?);
        let numbers = log_numbers(directory, generation)?;
        let mut recent = HashMap::new();
        let mut last = None;
        for number in &numbers {
            let path = log_path(directory, generation, *number);
            let (mut log, frames) = Log::open(&path, Kind::Ends)?;
            replay(&mut log, frames, &mut recent)?;
            last = Some(log);
        }
        let number = numbers.last().copied().unwrap_or(1);
        let log = match last {
            Some(log) => log,
            None => Log::create(&log_path(directory, generation, number), Kind::Ends, 0)?,
        };
        let old = numbers.iter().filter(|old| **old != number);
        Ok(Ends {
            old_logs: old.map(|old| log_path(directory, generation, *old)).collect(),
            directory: directory.to_owned(),
            generation,
            log,
            number,
            recent,
            settling: HashMap::new(),
            cells,
            cells_path,
            unwritten: Vec::new(),
        })
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// The file of the cells, for whoever reads many of them.
    pub(super) fn cells(&self) -> (&Arc<File>, &Path) {
        (&self.cells, &self.cells_path)
    }

    /// Ends of documents that wait to be written.
    pub(super) fn unwritten(&self) -> usize {
        self.unwritten.len()
    }

    /// The end of a document, if it is not in a cell yet.
    pub(super) fn recent(&self, document: u32) -> Option<Ended> {
        self.recent.get(&document).or_else(|| self.settling.get(&document)).copied()
    }

    /// The end of a document, if it has ended.
    pub(super) fn find(&self, document: u32) -> Result<Option<Ended>, IndexError> {
        if let Some(ended) = self.recent(document) {
            return Ok(Some(ended));
        }
        let offset = u64::from(document) * CELL as u64;
        let mut cell = [0; CELL];
        match self.cells.read_exact_at(&mut cell, offset) {
            Ok(()) => read_cell(cell, document, &self.cells_path),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(source) => Err(IndexError::io(&self.cells_path, source)),
        }
    }

    /// Takes ends, and writes them and what could not be written before. They are known even if that fails.
    pub(super) fn report(&mut self, ends: impl IntoIterator<Item = (u32, Ended)>) -> io::Result<()> {
        for (document, ended) in ends {
            self.recent.insert(document, ended);
            self.unwritten.push((document, ended));
        }
        self.write()
    }

    /// Writes what is not written.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let mut frame = Frame::default();
        while !self.unwritten.is_empty() {
            let n = self.unwritten.len().min(super::log::FRAME_FULL / RECORD);
            for (document, ended) in &self.unwritten[..n] {
                let out = frame.payload();
                out.extend_from_slice(&document.to_le_bytes());
                out.extend_from_slice(&ended.at.to_le_bytes());
                out.extend_from_slice(&ended.how.0.to_le_bytes());
            }
            let written = self.log.append(&mut frame);
            frame.clear();
            written?;
            self.unwritten.drain(..n);
        }
        Ok(())
    }

    /// Forgets ends of documents that are not there (their log was torn deeper than this one). True if there were any.
    pub(super) fn forget_from(&mut self, count: u32) -> bool {
        let before = self.recent.len();
        self.recent.retain(|document, _| *document < count);
        before != self.recent.len()
    }

    /// Whether the log has grown enough to be put into cells.
    pub(super) fn is_full(&self) -> bool {
        self.recent.len() >= LOG_FULL && self.settling.is_empty() && self.unwritten.is_empty()
    }

    /// Begins a new log; the ends of the old one are to be put into cells.
    pub(super) fn settle(&mut self, documents: &Arc<File>) -> Result<Settling, IndexError> {
        let number = self.number + 1;
        let log = Log::create(&log_path(&self.directory, self.generation, number), Kind::Ends, 0)?;
        let old = std::mem::replace(&mut self.log, log);
        self.number = number;
        self.old_logs.push(old.path().to_owned());
        self.settling = std::mem::take(&mut self.recent);
        let mut ends: Vec<_> = self.settling.iter().map(|(document, ended)| (*document, *ended)).collect();
        ends.sort_unstable_by_key(|(document, _)| *document);
        Ok(Settling {
            documents: Arc::clone(documents),
            cells: Arc::clone(&self.cells),
            ends,
            old_logs: self.old_logs.clone(),
        })
    }

    /// They are in cells, or could not be put there: then they stay in their logs.
    pub(super) fn handle_settled(&mut self, settled: bool) {
        let settling = std::mem::take(&mut self.settling);
        if settled {
            self.old_logs.clear();
        } else {
            for (document, ended) in settling {
                self.recent.entry(document).or_insert(ended);
            }
        }
    }
}

impl Settling {
    /// Cells, then the disk, then the logs are not needed any more.
    pub(super) fn run(self) -> io::Result<()> {
        self.documents.sync_data()?;
        let mut run: Vec<u8> = Vec::new();
        let mut first = 0u64;
        for (document, ended) in &self.ends {
            let document = u64::from(*document);
            let next = first + (run.len() / CELL) as u64;
            if document != next || run.len() >= CELLS_AT_ONCE * CELL {
                self.cells.write_all_at(&run, first * CELL as u64)?;
                run.clear();
                first = document;
            }
            run.extend_from_slice(&cell(document as u32, *ended));
        }
        self.cells.write_all_at(&run, first * CELL as u64)?;
        self.cells.sync_data()?;
        for log in &self.old_logs {
            std::fs::remove_file(log)?;
            sync_directory(log)?;
        }
        Ok(())
    }
}

/// A document's cell. All zero means that it has not ended.
pub(super) fn cell(document: u32, ended: Ended) -> [u8; CELL] {
    let mut cell = [0; CELL];
    cell[..4].copy_from_slice(&ended.at.to_le_bytes());
    cell[4..6].copy_from_slice(&ended.how.0.to_le_bytes());
    let check = cell_check(&cell, document);
    cell[6..].copy_from_slice(&check);
    cell
}

fn cell_check(cell: &[u8; CELL], document: u32) -> [u8; 2] {
    (xxh3_64_with_seed(&cell[..6], document.into()) as u16).to_le_bytes()
}

/// What a cell says.
pub(super) fn read_cell(cell: [u8; CELL], document: u32, path: &Path) -> Result<Option<Ended>, IndexError> {
    if cell == [0; CELL] {
        return Ok(None);
    }
    let at = u32::from_le_bytes([cell[0], cell[1], cell[2], cell[3]]);
    let how = How::from_number(u16::from_le_bytes([cell[4], cell[5]]));
    match how {
        Some(how) if cell[6..] == cell_check(&cell, document) => Ok(Some(Ended { at, how })),
        _ => {
            let offset = u64::from(document) * CELL as u64;
            Err(IndexError::damaged(path, offset, "a document's state does not add up"))
        }
    }
}

fn log_numbers(directory: &Path, generation: u64) -> Result<Vec<u64>, IndexError> {
    let prefix = format!("ends-{generation}-");
    let names = super::files::names(directory)?;
    let number = |name: &String| name.strip_prefix(&prefix)?.strip_suffix(".log")?.parse().ok();
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn replay(log: &mut Log, mut frames: Frames, ends: &mut HashMap<u32, Ended>) -> Result<(), IndexError> {
    loop {
        match frames.next()? {
            Next::Records { at, bytes } => {
                let bad = |offset| IndexError::damaged(log.path(), offset, "an end makes no sense");
                if !bytes.len().is_multiple_of(RECORD) {
                    return Err(bad(at));
                }
                for (place, record) in bytes.chunks_exact(RECORD).enumerate() {
                    let number =
                        |from: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| record[from + byte]));
                    let how = How::from_number(u16::from_le_bytes([record[8], record[9]]));
                    let how = how.ok_or_else(|| bad(at + (place * RECORD) as u64))?;
                    ends.insert(number(0), Ended { at: number(4), how });
                }
            }
            Next::End { at, torn } => {
                if torn > 0 {
                    tracing::warn!(file = %log.path().display(), at, torn, "a torn tail is cut off");
                }
                log.cut(at, frames.last_frame());
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_comes_back_as_it_went_in() {
        let outcomes = [Outcome::Unsaid, Outcome::Status(200), Outcome::Status(503), Outcome::TlsFailed];
        let done = outcomes.into_iter().map(End::Done);
        let failed = outcomes[1..].iter().map(|&outcome| End::Failed(FailReason::Outcome(outcome)));
        let plain = FailReason::PLAIN.iter().copied().map(End::Failed);
        let denied = DenyReason::ALL.iter().copied().map(End::Denied);
        for end in done.chain(failed).chain(plain).chain(denied) {
            assert_eq!(How::of(end).end(), end);
        }
    }

    #[test]
    fn every_end_comes_back_in_its_words() {
        let outcomes = [
            Outcome::Unsaid,
            Outcome::Status(7),
            Outcome::Status(999),
            Outcome::ConnectFailed,
            Outcome::Timeout,
            Outcome::TlsFailed,
            Outcome::DnsFailed,
            Outcome::Aborted,
        ];
        let done = outcomes.map(|outcome| (End::Done(outcome), "done", outcome.to_string()));
        let outcome = |outcome| (End::Failed(FailReason::Outcome(outcome)), "failed", outcome.to_string());
        let failed =
            FailReason::PLAIN.iter().map(|reason| (End::Failed(*reason), "failed", reason.to_string()));
        let denied =
            DenyReason::ALL.iter().map(|reason| (End::Denied(*reason), "denied", reason.to_string()));
        for (end, state, word) in done.into_iter().chain(outcomes.map(outcome)).chain(failed).chain(denied) {
            let how = How::of(end);
            assert_eq!((how.state().word(), how.outcome()), (state, word.clone()));
            assert_eq!(How::from_words(state, &word), Some(how));
            assert_eq!(How::from_number(how.0), Some(how));
        }
        assert_eq!(How::from_words("done", "1000"), None);
        assert_eq!(How::from_words("pending", "200"), None);
        assert!([0, 1, u16::MAX].iter().all(|number| How::from_number(*number).is_none()));
    }
}
