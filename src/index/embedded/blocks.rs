//! Blocks: what is known of some hundred thousand documents, ready to be used, so that a start need not read all of them.
//!
//! `prints-G` is a row of blocks. A block is of the documents in a run of whole frames of the documents' log, and is
//! written when these are on the disk. All in it can be made again from the log, so nothing depends on it: a block
//! that does not add up, or is of another log, ends the row, and what it was of is read from the log.
//!
//! Not here: when a block is written (`seal.rs`), and what is done with one (`load.rs`).

use super::error::IndexError;
use super::log::{self, FILE_HEADER, Kind, Log};
use super::prints::{Print, Prints, SHARDS};
use super::queues::NameAt;
use super::reader::STEP as PLACE_STEP;
use super::window::Window;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// The first bytes of a block, and of its format.
const TAG: &[u8; 8] = b"URLSBLK1";
/// Bytes of a block's head: tag and fields, the checks of the fingerprints and of the rest, and the check of all that.
const FIELDS: usize = 64;
const HEAD: usize = FIELDS + 24;
/// Bytes of a document's fingerprint with its number, of its host, of a place, of a new host, of a run of names, of a time.
const ENTRY: usize = 12;
const HOST_OF: usize = 4;
const PLACE: usize = 8;
const NEW_HOST: usize = 18;
const RUN: usize = 16;
const TIMED: usize = 12;
/// Read at once, when a block is checked.
const PIECE: usize = 1 << 20;
/// All that is read ahead when fingerprints are taken from all blocks.
const AHEAD_MAX: usize = 64 << 20;

/// What a block is of, and how much there is of everything.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Head {
    /// The first document, and how many there are.
    pub(super) first: u32,
    pub(super) count: u32,
    /// The first host that is new, and how many are.
    pub(super) first_host: u32,
    pub(super) hosts: u32,
    /// Places of documents, runs of names, documents with a time.
    pub(super) places: u32,
    pub(super) runs: u32,
    pub(super) timed: u32,
    /// The check of the last frame, and where that is.
    pub(super) frame_check: u32,
    pub(super) last_frame: u64,
    /// Where the frames begin and end.
    pub(super) log_start: u64,
    pub(super) log_end: u64,
}

impl Head {
    fn put(&self) -> Vec<u8> {
        let mut out = TAG.to_vec();
        let small = [self.first, self.count, self.first_host, self.hosts, self.places, self.runs, self.timed];
        small.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        out.extend_from_slice(&self.frame_check.to_le_bytes());
        for value in [self.last_frame, self.log_start, self.log_end] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out
    }

    fn parse(bytes: &[u8]) -> Option<Head> {
        let mut fields = bytes.strip_prefix(TAG)?;
        let mut small = || take::<4>(&mut fields).map(u32::from_le_bytes);
        let (first, count, first_host, hosts) = (small()?, small()?, small()?, small()?);
        let (places, runs, timed, frame_check) = (small()?, small()?, small()?, small()?);
        let mut large = || take::<8>(&mut fields).map(u64::from_le_bytes);
        let (last_frame, log_start, log_end) = (large()?, large()?, large()?);
        #[rustfmt::skip]
        let head = Head {
            first, count, first_host, hosts, places, runs, timed, frame_check, last_frame, log_start, log_end,
        };
        Some(head)
    }

    /// Where each column ends, counted from the beginning of the body.
    fn columns(&self) -> [u64; 7] {
        let lens = [
            SHARDS * 4,
            self.count as usize * ENTRY,
            self.count as usize * HOST_OF,
            self.places as usize * PLACE,
            self.hosts as usize * NEW_HOST,
            self.runs as usize * RUN,
            self.timed as usize * TIMED,
        ];
        let mut sum = 0;
        lens.map(|len| {
            sum += len as u64;
            sum
        })
    }

    /// The fingerprints: how many of each shard, and all of them.
    fn prints_len(&self) -> u64 {
        self.columns()[1]
    }

    fn body_len(&self) -> u64 {
        self.columns()[6]
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

/// Everything in a block, as it is written.
pub(super) struct Contents {
    pub(super) head: Head,
    /// Fingerprints with the hosts of their documents, in order of the documents; no host is [`super::prints::NONE`].
    pub(super) documents: Vec<(Print, u32)>,
    pub(super) places: Vec<u64>,
    pub(super) hosts: Vec<(Print, NameAt)>,
    pub(super) runs: Vec<(u64, u64)>,
    pub(super) timed: Vec<(u32, u64)>,
}

impl Contents {
    /// The whole block, for this place in the file of this index.
    pub(super) fn put(&self, at: u64, seed: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.head.body_len() as usize);
        self.put_prints(&mut body);
        self.documents.iter().for_each(|(_, host)| body.extend_from_slice(&host.to_le_bytes()));
        self.places.iter().for_each(|place| body.extend_from_slice(&place.to_le_bytes()));
        for (print, name) in &self.hosts {
            body.extend_from_slice(&print.shard.to_le_bytes());
            body.extend_from_slice(&print.bits.to_le_bytes());
            body.extend_from_slice(&name.packed().to_le_bytes());
        }
        for (first, last) in &self.runs {
            body.extend_from_slice(&first.to_le_bytes());
            body.extend_from_slice(&last.to_le_bytes());
        }
        for (document, time) in &self.timed {
            body.extend_from_slice(&document.to_le_bytes());
            body.extend_from_slice(&time.to_le_bytes());
        }
        debug_assert_eq!(body.len() as u64, self.head.body_len());
        let mut block = self.head.put();
        let (prints, rest) = body.split_at(self.head.prints_len() as usize);
        block.extend_from_slice(&xxh3_64_with_seed(prints, at).to_le_bytes());
        block.extend_from_slice(&xxh3_64_with_seed(rest, at).to_le_bytes());
        block.extend_from_slice(&head_check(&block, at, seed));
        block.append(&mut body);
        block
    }

    /// How many there are of each shard, and then all of them, shard by shard.
    fn put_prints(&self, out: &mut Vec<u8>) {
        let mut counts = vec![0u32; SHARDS];
        self.documents.iter().for_each(|(print, _)| counts[usize::from(print.shard)] += 1);
        counts.iter().for_each(|count| out.extend_from_slice(&u32::to_le_bytes(*count)));
        let mut sum = out.len();
        let mut ends = Vec::with_capacity(SHARDS);
        for count in counts {
            ends.push(sum);
            sum += count as usize * ENTRY;
        }
        out.resize(sum, 0);
        for ((print, _), number) in self.documents.iter().zip(self.head.first..) {
            let end = &mut ends[usize::from(print.shard)];
            out[*end..*end + 8].copy_from_slice(&print.bits.to_le_bytes());
            out[*end + 8..*end + ENTRY].copy_from_slice(&number.to_le_bytes());
            *end += ENTRY;
        }
    }
}

/// A block in the file.
#[derive(Clone, Copy, Default)]
pub(super) struct Block {
    pub(super) head: Head,
    pub(super) at: u64,
    prints_check: u64,
    rest_check: u64,
}

/// The blocks in their file. Their heads add up; what is in them is checked when it is read.
pub(super) struct Blocks {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) row: Vec<Block>,
    /// Where the next one goes; 0 if there is no file yet that is good for anything.
    pub(super) end: u64,
}

/// The file of the blocks.
pub(super) fn prints_path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("prints-{generation}"))
}

impl Blocks {
    /// Looks at their heads. Whatever is wrong with one, it and all behind it count for nothing.
    pub(super) fn open(directory: &Path, generation: u64, log: &Log) -> Result<Blocks, IndexError> {
        let path = prints_path(directory, generation);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = Arc::new(file.map_err(|source| IndexError::io(&path, source))?);
        let mut blocks = Blocks { file, path, row: Vec::new(), end: 0 };
        if let Err(error) = blocks.read(log) {
            tracing::warn!(file = %blocks.path.display(), %error, "fingerprints cannot be read: they are made again");
        }
        Ok(blocks)
    }

    fn read(&mut self, log: &Log) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        if len == 0 {
            return Ok(());
        }
        let mut header = [0; FILE_HEADER as usize];
        if len >= FILE_HEADER {
            self.file.read_exact_at(&mut header, 0)?;
        }
        if header != file_header(log.seed) {
            tracing::warn!(file = %self.path.display(), "fingerprints of another index: they are made again");
            return Ok(());
        }
        self.end = FILE_HEADER;
        while self.end < len {
            match self.next(log.seed, len)? {
                Some(block) => {
                    self.row.push(block);
                    self.end += HEAD as u64 + block.head.body_len();
                }
                None => {
                    let torn = len - self.end;
                    tracing::warn!(file = %self.path.display(), at = self.end, torn, "fingerprints do not add up: they are made again");
                    break;
                }
            }
        }
        Ok(())
    }

    /// The block at the end, if its head is good.
    fn next(&self, seed: u64, len: u64) -> io::Result<Option<Block>> {
        let (at, room) = (self.end, len - self.end);
        let mut bytes = [0; HEAD];
        if room < HEAD as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut bytes, at)?;
        let (fields, check) = bytes.split_at(HEAD - 8);
        let head = Head::parse(fields).filter(|_| check == head_check(fields, at, seed));
        let good = head.filter(|head| self.is_next(head) && HEAD as u64 + head.body_len() <= room);
        let mut checks = &fields[FIELDS..];
        let (prints_check, rest_check) = (large(&mut checks), large(&mut checks));
        Ok(good.map(|head| Block { head, at, prints_check, rest_check }))
    }

    /// Whether it is of what comes behind the last one.
    fn is_next(&self, head: &Head) -> bool {
        let before = self.row.last().map(|block| block.head).unwrap_or_default();
        let log_start = if self.row.is_empty() { FILE_HEADER } else { before.log_end };
        head.first == before.first + before.count
            && head.first_host == before.first_host + before.hosts
            && head.log_start == log_start
            && head.first.checked_add(head.count).is_some()
            && head.first_host.checked_add(head.hosts).is_some()
            && head.places as usize == places_of(head.first, head.count).len()
    }

    /// A block without its fingerprints; `None` if it does not add up, or is not of what is in the log.
    pub(super) fn columns(&self, block: usize, log: &Log) -> Result<Option<Columns>, IndexError> {
        let Block { head, at, rest_check, .. } = self.row[block];
        let known = log.has_frame(head.last_frame, head.log_end, head.frame_check);
        if !known.map_err(|source| IndexError::io(log.path(), source))? {
            return Ok(None);
        }
        let mut bytes = vec![0; (head.body_len() - head.prints_len()) as usize];
        let read = self.file.read_exact_at(&mut bytes, at + HEAD as u64 + head.prints_len());
        read.map_err(|source| IndexError::io(&self.path, source))?;
        Ok((xxh3_64_with_seed(&bytes, at) == rest_check).then_some(Columns { head, bytes }))
    }

    /// From this one on they count for nothing.
    pub(super) fn cut(&mut self, block: usize) {
        if let Some(first) = self.row.get(block) {
            self.end = first.at;
            tracing::warn!(file = %self.path.display(), at = self.end, "fingerprints do not add up: they are made again");
        }
        self.row.truncate(block);
    }

    fn has_good_prints(&self, block: &Block) -> io::Result<bool> {
        let mut hash = Xxh3::with_seed(block.at);
        let mut piece = vec![0; PIECE];
        let (mut at, mut left) = (block.at + HEAD as u64, block.head.prints_len());
        while left > 0 {
            let n = left.min(PIECE as u64) as usize;
            self.file.read_exact_at(&mut piece[..n], at)?;
            hash.update(&piece[..n]);
            at += n as u64;
            left -= n as u64;
        }
        Ok(hash.digest() == block.prints_check)
    }
}

/// Which of the known places are those of these documents.
pub(super) fn places_of(first: u32, count: u32) -> Range<usize> {
    let place = |document: u64| document.div_ceil(PLACE_STEP as u64) as usize;
    place(first.into())..place(u64::from(first) + u64::from(count))
}

fn head_check(fields: &[u8], at: u64, seed: u64) -> [u8; 8] {
    xxh3_64_with_seed(fields, seed ^ at).to_le_bytes()
}

/// The first bytes of the file.
pub(super) fn file_header(seed: u64) -> [u8; FILE_HEADER as usize] {
    log::file_header(Kind::Prints, log::VERSION, seed)
}

/// What is in a block beside the fingerprints.
pub(super) struct Columns {
    pub(super) head: Head,
    bytes: Vec<u8>,
}

impl Columns {
    fn column(&self, number: usize) -> &[u8] {
        let columns = self.head.columns();
        let at = |number: usize| (columns[number] - columns[1]) as usize;
        &self.bytes[at(number - 1)..at(number)]
    }

    /// The host of each document, or [`super::prints::NONE`].
    pub(super) fn hosts_of(&self) -> impl Iterator<Item = u32> {
        self.column(2).chunks_exact(HOST_OF).map(|mut bytes| small(&mut bytes))
    }

    /// Places of documents.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        self.column(3).chunks_exact(PLACE).map(|mut bytes| large(&mut bytes))
    }

    /// Hosts that are new.
    pub(super) fn hosts(&self) -> impl Iterator<Item = (Print, NameAt)> {
        self.column(4).chunks_exact(NEW_HOST).map(|mut bytes| {
            let shard = u16::from_le_bytes(take(&mut bytes).unwrap_or_default()) % SHARDS as u16;
            let print = Print { shard, bits: large(&mut bytes) };
            (print, NameAt::unpacked(large(&mut bytes)))
        })
    }

    /// Names of documents, from the first to the last of each run.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.column(5).chunks_exact(RUN).map(|mut bytes| (large(&mut bytes), large(&mut bytes)))
    }

    /// Documents with a time.
    pub(super) fn timed(&self) -> impl Iterator<Item = (u32, u64)> {
        self.column(6).chunks_exact(TIMED).map(|mut bytes| (small(&mut bytes), large(&mut bytes)))
    }
}

fn small(bytes: &mut &[u8]) -> u32 {
    u32::from_le_bytes(take(bytes).unwrap_or_default())
}

fn large(bytes: &mut &[u8]) -> u64 {
    u64::from_le_bytes(take(bytes).unwrap_or_default())
}

/// The fingerprints of all blocks on their way into RAM: first they are checked, block by block; then they are put in
/// shard by shard, so that one that is in the cache gets all that it will have, into room made once.
#[derive(Default)]
pub(super) struct PrintsLoad {
    checked: usize,
    /// Blocks whose fingerprints do not add up.
    pub(super) bad: Vec<usize>,
    piles: Vec<Pile>,
    shard: usize,
}

/// Fingerprints of one block.
struct Pile {
    window: Window,
    /// Where the next shard's are.
    at: u64,
    counts: Vec<u32>,
}

impl PrintsLoad {
    /// Does some more; false if there is nothing to do. Whatever number one of them had before is told to `on_before`.
    pub(super) fn step(
        &mut self,
        blocks: &Blocks,
        prints: &mut Prints,
        on_before: impl FnMut(u32),
    ) -> Result<bool, IndexError> {
        if self.checked < blocks.row.len() {
            let pile = self.pile(blocks).map_err(|source| IndexError::io(&blocks.path, source))?;
            match pile {
                Some(pile) => self.piles.push(pile),
                None => self.bad.push(self.checked),
            }
            self.checked += 1;
            return Ok(true);
        }
        self.load_shard(prints, on_before).map_err(|source| IndexError::io(&blocks.path, source))
    }

    /// The fingerprints of the next block, if they add up.
    fn pile(&self, blocks: &Blocks) -> io::Result<Option<Pile>> {
        let block = &blocks.row[self.checked];
        if !blocks.has_good_prints(block)? {
            return Ok(None);
        }
        let mut bytes = vec![0; SHARDS * 4];
        let body = block.at + HEAD as u64;
        blocks.file.read_exact_at(&mut bytes, body)?;
        let counts = bytes.chunks_exact(4).map(|mut bytes| small(&mut bytes)).collect();
        let ahead = (AHEAD_MAX / blocks.row.len()).clamp(4 << 10, 256 << 10);
        let window = Window::new(Arc::clone(&blocks.file), ahead);
        Ok(Some(Pile { window, at: body + block.head.columns()[0], counts }))
    }

    fn load_shard(&mut self, prints: &mut Prints, mut on_before: impl FnMut(u32)) -> io::Result<bool> {
        let shard = self.shard;
        if shard == SHARDS {
            return Ok(false);
        }
        let count = |pile: &Pile| pile.counts[shard] as usize;
        prints.reserve(shard as u16, self.piles.iter().map(count).sum());
        for pile in &mut self.piles {
            let len = count(pile) * ENTRY;
            for mut entry in pile.window.exact(pile.at, len)?.chunks_exact(ENTRY) {
                let print = Print { shard: shard as u16, bits: large(&mut entry) };
                prints.set(print, small(&mut entry)).into_iter().for_each(&mut on_before);
            }
            pile.at += len as u64;
        }
        self.shard += 1;
        Ok(true)
    }

    /// Fingerprints put in, or checked, in one step, about.
    pub(super) fn per_step(&self) -> u64 {
        1 + self.piles.iter().map(|pile| u64::from(pile.counts[0])).sum::<u64>()
    }
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
