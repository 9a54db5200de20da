//! Notes as bytes. A batch is one payload: when it was written, then its notes, each a kind, a text and numbers.

use super::{Stamp, frames};
use crate::scheduler::{ClockKey, Note, Standing};
use crate::time::{Duration, micros_rounded_up};

/// The payload that ends a life in peace.
pub(super) const PEACE: u8 = 0;
const BATCH: u8 = 1;

const HOST: u8 = 1;
const IP: u8 = 2;
const ALIAS: u8 = 3;
const GROUP: u8 = 4;
const ORDER: u8 = 5;
const PAUSE_ALL: u8 = 6;

/// Notes per frame: far less than a frame may hold.
const NOTES_PER_FRAME: usize = 1000;

/// Notes that were written together.
pub(super) struct Batch {
    pub(super) uptime: Duration,
    pub(super) unix: Duration,
    pub(super) notes: Vec<Note>,
}

/// Bytes that a note takes.
pub(super) fn size(note: &Note) -> u64 {
    let mut bytes = Vec::new();
    put(&mut bytes, note);
    bytes.len() as u64
}

/// Adds frames with these notes; none if there are none.
pub(super) fn put_batches<'a>(bytes: &mut Vec<u8>, stamp: &Stamp, notes: impl Iterator<Item = &'a Note>) {
    let mut notes = notes.peekable();
    while notes.peek().is_some() {
        let mut payload = vec![BATCH];
        put_time(&mut payload, stamp.uptime);
        put_time(&mut payload, stamp.unix);
        notes.by_ref().take(NOTES_PER_FRAME).for_each(|note| put(&mut payload, note));
        frames::put(bytes, &payload);
    }
}

fn put(bytes: &mut Vec<u8>, note: &Note) {
    match note {
        Note::Clock { key, owed, held, strikes } => {
            match key {
                ClockKey::Host(name) => put_text(bytes, HOST, name),
                ClockKey::Ip(address) => put_text(bytes, IP, &address.to_string()),
                ClockKey::Alias(name) => put_text(bytes, ALIAS, name),
                ClockKey::Group(name) => put_text(bytes, GROUP, name),
            }
            put_time(bytes, *owed);
            put_time(bytes, *held);
            bytes.push(*strikes);
        }
        Note::Order { host, standing } => {
            put_text(bytes, ORDER, host);
            bytes.push(u8::from(standing.paused));
            put_time(bytes, standing.blocked_for);
            put_time(bytes, standing.delay);
        }
        Note::PauseAll(paused) => bytes.extend_from_slice(&[PAUSE_ALL, u8::from(*paused)]),
    }
}

/// Names are at most 253 bytes long, or one word of the settings.
fn put_text(bytes: &mut Vec<u8>, kind: u8, text: &str) {
    bytes.push(kind);
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn put_time(bytes: &mut Vec<u8>, time: Duration) {
    bytes.extend_from_slice(&micros_rounded_up(time).to_le_bytes());
}

/// Reads a payload to its end.
pub(super) fn read_batch(payload: &[u8]) -> Option<Batch> {
    let mut reader = Reader(payload);
    if reader.byte()? != BATCH {
        return None;
    }
    let (uptime, unix) = (reader.time()?, reader.time()?);
    let mut notes = Vec::new();
    while !reader.0.is_empty() {
        notes.push(reader.note()?);
    }
    Some(Batch { uptime, unix, notes })
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn note(&mut self) -> Option<Note> {
        let kind = self.byte()?;
        Some(match kind {
            HOST | IP | ALIAS | GROUP => {
                let text = self.text()?;
                let key = match kind {
                    HOST => ClockKey::Host(text),
                    IP => ClockKey::Ip(text.parse().ok()?),
                    ALIAS => ClockKey::Alias(text),
                    _ => ClockKey::Group(text),
                };
                Note::Clock { key, owed: self.time()?, held: self.time()?, strikes: self.byte()? }
            }
            ORDER => {
                let (host, paused) = (self.text()?, self.truth()?);
                let (blocked_for, delay) = (self.time()?, self.time()?);
                Note::Order { host, standing: Standing { paused, blocked_for, delay } }
            }
            PAUSE_ALL => Note::PauseAll(self.truth()?),
            _ => return None,
        })
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn truth(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn time(&mut self) -> Option<Duration> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(Duration::from_micros(u64::from_le_bytes(*bytes)))
    }

    fn text(&mut self) -> Option<Box<str>> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(Box::from)
    }
}
