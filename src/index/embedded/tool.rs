//! What can be done with an index while no server has it open: look at it, write it out, read it in, make it smaller.
//!
//! An exported line is `DOC_ID URL pending [not-before=UNIX_SECONDS]` or `DOC_ID URL STATE OUTCOME UNIX_SECONDS`, with
//! `done`, `failed` or `denied` for the state and `-` where nothing was said of the outcome. Import takes the same
//! lines, and those of a seeds file.

use super::ends::{CELL, Ended, How, cell, cells_path};
use super::error::IndexError;
use super::files::{Directory, documents_path};
use super::log::{Frame, Kind, Log, Next, sync_directory};
use super::prints::Print;
use super::queues;
use super::record::{Document, HostOf, Record, put_finished};
use super::store::{Counts, Store, url_of};
use crate::index::seeds::{self, SeedError};
use crate::index::{Added, Addition, unix_seconds};
use crate::url::Url;
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;
use thiserror::Error;

/// Documents put in at once.
const BATCH: usize = 10_000;

/// Why a tool has not done its work.
#[derive(Debug, Error)]
pub enum ToolError {
    /// The index cannot be used.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// There is none.
    #[error("{0}: there is no document index here")]
    NoIndex(String),
    /// What was to be read or written, and is not the index.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// How large an index is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Documents by state.
    pub documents: Counts,
    /// Hosts that are known by name.
    pub hosts: usize,
    /// Bytes of all its files.
    pub bytes: u64,
}

/// What became of an import.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Imported {
    /// New documents.
    pub accepted: u64,
    /// URLs that were known; they stay as they were.
    pub duplicate: u64,
    /// Lines that were not taken: number and reason.
    pub rejected: Vec<(u64, String)>,
}

/// Counts what is in the index.
pub fn stats(directory: &Path) -> Result<Size, ToolError> {
    let store = open(directory)?;
    Ok(Size { documents: store.counts, hosts: store.queues.hosts(), bytes: store.directory.bytes()? })
}

/// Writes every document out, a line each. Documents whose URL was forgotten by [`compact`] are comments; says how many.
pub fn export(directory: &Path, out: &mut impl Write) -> Result<u64, ToolError> {
    let mut forgotten = 0;
    let mut store = open(directory)?;
    walk(&mut store, |Visit { name, record, ended, .. }| {
        let end = |ended: Ended| {
            let outcome = ended.how.outcome();
            let outcome = if outcome.is_empty() { "-" } else { &outcome };
            format!("{} {outcome} {}", ended.how.state().word(), ended.at)
        };
        match (record, ended) {
            (Record::Finished { doc, .. }, ended) => {
                forgotten += 1;
                writeln!(out, "# {doc} {}", ended.map(end).unwrap_or_default())?;
            }
            (Record::Document(document), ended) => {
                let Some((doc, url)) = url_of(name, record) else { return Ok(()) };
                write!(out, "{doc} {} ", url.as_str())?;
                match (ended, document.not_before) {
                    (Some(ended), _) => writeln!(out, "{}", end(ended))?,
                    (None, Some(time)) => writeln!(out, "pending not-before={time}")?,
                    (None, None) => writeln!(out, "pending")?,
                }
            }
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(forgotten)
}

/// Puts documents in, with their ends if they have one. Makes the index if there is none.
pub fn import(directory: &Path, mut input: impl BufRead) -> Result<Imported, ToolError> {
    let mut store = Store::open(directory, None)?;
    store.load_all(unix_seconds())?;
    let mut imported = Imported::default();
    let mut batch = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let more = input.read_until(b'\n', &mut line)? > 0;
        match parse(&line) {
            Ok(Some((addition, ended))) => batch.push((number, addition, ended)),
            Ok(None) => {}
            Err(error) => imported.rejected.push((number, error.to_string())),
        }
        if batch.len() == BATCH || !more {
            put(&mut store, std::mem::take(&mut batch), &mut imported)?;
        }
        if !more {
            break;
        }
    }
    store.sync()?;
    Ok(imported)
}

type Line = (u64, Addition, Option<Ended>);

fn put(store: &mut Store, batch: Vec<Line>, imported: &mut Imported) -> Result<(), ToolError> {
    let additions: Vec<Addition> = batch.iter().map(|(_, addition, _)| addition.clone()).collect();
    let (answers, error) = store.insert(&additions, unix_seconds());
    if let Some(error) = error {
        return Err(error.into());
    }
    let mut ended: Vec<(Url, Ended)> = Vec::new();
    for ((number, addition, end), added) in batch.into_iter().zip(answers) {
        match added {
            Added::Accepted(_) | Added::Sent => {
                imported.accepted += 1;
                ended.extend(end.map(|end| (addition.url, end)));
            }
            Added::Duplicate => imported.duplicate += 1,
            Added::IdTaken => imported.rejected.push((number, SeedError::IdTaken.to_string())),
            Added::OwnIdsOnly => imported.rejected.push((number, SeedError::OwnIdsOnly.to_string())),
            Added::NoRoom => imported.rejected.push((number, SeedError::NoRoom.to_string())),
        }
    }
    store.end(&ended)?;
    if store.ends.is_full() {
        store.settle()?;
    }
    store.seal();
    Ok(())
}

/// A line of an export, or of a seeds file.
fn parse(line: &[u8]) -> Result<Option<(Addition, Option<Ended>)>, String> {
    let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    let text =
        |word: &[u8]| std::str::from_utf8(word).map(str::to_owned).map_err(|_| SeedError::Utf8.to_string());
    let (seed, ended) = match words[..] {
        [doc, url, b"pending"] => ([doc, url].join(&b' '), None),
        [doc, url, b"pending", time] => ([doc, url, time].join(&b' '), None),
        [doc, url, state, outcome, at] if !doc.starts_with(b"#") => {
            let outcome = if outcome == b"-" { String::new() } else { text(outcome)? };
            let how = How::from_words(&text(state)?, &outcome);
            let how =
                how.ok_or("STATE OUTCOME must be pending, or done, failed or denied with its outcome")?;
            let at = crate::wire::number(at).and_then(|at| u32::try_from(at).ok());
            let at = at.ok_or("the last word must be a time in seconds since 1970")?;
            ([doc, url].join(&b' '), Some(Ended { at, how }))
        }
        _ => (line.to_vec(), None),
    };
    match seeds::parse(&seed) {
        Ok(addition) => Ok(addition.map(|addition| (addition, ended))),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes the index anew: of documents that have ended only the fingerprint, the name and the end are kept, of hosts
/// only those with documents that have not. The old files count until the new ones are on the disk. Says how large the
/// files were, and are.
pub fn compact(directory: &Path) -> Result<(u64, u64), ToolError> {
    let mut store = open(directory)?;
    let before = store.directory.bytes()?;
    let generation = store.generation + 1;
    let path = documents_path(directory, generation);
    let unfinished = path.with_extension("new");
    let cells_path = cells_path(directory, generation);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| IndexError::Io { path, source }
    };
    let mut log = Log::create(&unfinished, Kind::Documents, store.log.seed)?;
    let mut cells = BufWriter::new(File::create(&cells_path).map_err(io(&cells_path))?);
    let mut smaller = Smaller {
        frame: Frame::default(),
        hosts: vec![None; store.queues.hosts()],
        known_hosts: 0,
        documents: 0,
    };
    walk(&mut store, |visit| {
        cells.write_all(&smaller.put(visit))?;
        if smaller.frame.is_full() {
            log.append(&mut smaller.frame)?;
        }
        Ok(())
    })?;
    if !smaller.frame.is_empty() {
        log.append(&mut smaller.frame).map_err(io(&unfinished))?;
    }
    let cells = cells.into_inner().map_err(|error| IndexError::io(&cells_path, error.into_error()))?;
    cells.sync_all().map_err(io(&cells_path))?;
    log.file().sync_all().map_err(io(&unfinished))?;
    std::fs::rename(&unfinished, &path).map_err(io(&path))?;
    sync_directory(&path).map_err(io(&path))?;
    store.directory.clean(generation)?;
    // The next start shall find its blocks.
    let store = reopen(store)?;
    Ok((before, store.directory.bytes()?))
}

/// The index again, as it is in the directory now.
fn reopen(store: Store) -> Result<Store, IndexError> {
    let mut store = Store::open_in(store.directory, None)?;
    store.load_all(unix_seconds())?;
    Ok(store)
}

/// The index that [`compact`] writes.
struct Smaller {
    frame: Frame,
    /// New numbers by old ones.
    hosts: Vec<Option<u32>>,
    known_hosts: u32,
    documents: u32,
}

impl Smaller {
    /// Puts a document into the frame; returns its cell.
    fn put(&mut self, visit: Visit<'_>) -> [u8; CELL] {
        let number = self.documents;
        self.documents += 1;
        match (visit.record, visit.host, visit.ended) {
            (Record::Document(document), Some(host), None) => {
                let host = self.host(host, visit.name);
                Document { host, ..document }.put(self.frame.payload());
            }
            (Record::Document(Document { doc, .. }) | Record::Finished { doc, .. }, ..) => {
                put_finished(self.frame.payload(), visit.print, doc);
            }
        }
        visit.ended.map_or([0; CELL], |ended| cell(number, ended))
    }

    fn host<'a>(&mut self, host: u32, name: &'a str) -> HostOf<'a> {
        if let Some(known) = self.hosts[host as usize] {
            return HostOf::Known(known);
        }
        self.hosts[host as usize] = Some(self.known_hosts);
        self.known_hosts += 1;
        HostOf::New(name.as_bytes())
    }
}

fn open(directory: &Path) -> Result<Store, ToolError> {
    let no_index = || ToolError::NoIndex(directory.display().to_string());
    if !directory.is_dir() {
        return Err(no_index());
    }
    let taken = Directory::take_existing(directory)?;
    if taken.generation()?.is_none() {
        return Err(no_index());
    }
    let mut store = Store::open_in(taken, None)?;
    store.load_all(unix_seconds())?;
    Ok(store)
}

/// A document on the way through all of them.
struct Visit<'a> {
    /// `None` if its URL is forgotten.
    host: Option<u32>,
    name: &'a str,
    record: Record<'a>,
    print: Print,
    ended: Option<Ended>,
}

/// Every document that counts, in order of arrival.
fn walk(store: &mut Store, mut visit: impl FnMut(Visit<'_>) -> io::Result<()>) -> Result<(), ToolError> {
    let (_, mut frames) = Log::open(store.log.path(), Kind::Documents)?;
    let (mut number, mut hosts) = (0, 0);
    loop {
        let (at, records) = match frames.next()? {
            Next::Records { at, bytes } => (at, bytes),
            Next::End { .. } => return Ok(()),
        };
        let mut place = 0;
        while let Some((record, len)) = Record::parse(&records[place..]) {
            place += len;
            let (host, print) = match record {
                Record::Finished { print, .. } => (None, print),
                Record::Document(document) => {
                    let host = match document.host {
                        HostOf::Known(host) => host,
                        HostOf::New(_) => {
                            hosts += 1;
                            hosts - 1
                        }
                    };
                    (Some(host), queues::print(store.queues.name_bits(host), document.scheme, document.rest))
                }
            };
            if store.known.find(print) == Some(number) {
                let name = host.map(|host| store.reader.name(store.queues.name(host))).transpose()?;
                let (name, ended) = (name.as_deref().unwrap_or_default(), store.ends.find(number)?);
                visit(Visit { host, name, record, print, ended })?;
            }
            number += 1;
        }
        if place < records.len() {
            let offset = at + place as u64;
            return Err(IndexError::damaged(store.log.path(), offset, "a document makes no sense").into());
        }
    }
}

#[cfg(test)]
#[path = "tool_tests.rs"]
mod tests;
