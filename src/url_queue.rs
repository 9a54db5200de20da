//! Queues of URLs as bytes: one store, a queue per host.
//!
//! A queue is a chain of small chunks in a store that all queues share; a record is a header, the
//! document's id and the URL's tail, and may lie across chunks. What a tail has in common with the first one of the
//! chunk it begins in, byte for byte at the same places, is not stored again: URLs of one host are much alike. So a queued
//! URL costs less than its tail and a few bytes, a queue wastes half a chunk on average, and nothing is ever moved when a
//! queue grows. Chunks that run empty are used again by any queue; when all are empty, they are given back to the system.
//!
//! A record: `LEN << 2 | SCHEME` and the document's id as varints, then the tail, LEN bytes long: as it is, if it is the first
//! that begins in its chunk; else as steps, each a byte `SAME << 4 | NEW` and NEW bytes: so many bytes are those of the first
//! tail, and so many are these.

use crate::ids::DocId;
use crate::url::{Scheme, Tail, TailBytes};
use std::fmt;

/// Bytes of one chunk: its payload, where its first tail begins, and the number of the next one.
const CHUNK: usize = 128;
const PAYLOAD: usize = CHUNK - size_of::<u8>() - size_of::<u32>();
/// Chunks are allocated this many at a time (32 MiB), so that growth neither copies nor doubles. So much is had from the
/// system page by page as it is used, and given back to it at once: nothing of it stays with the allocator.
const SEGMENT: usize = 1 << 18;
/// Chunks that are kept when all are empty (1 MiB), so that a queue that empties now and then costs nothing.
const KEPT: usize = 8192;
const NIL: u32 = u32::MAX;
/// Most bytes of a record before its tail: two numbers.
const HEADER_MAX: usize = 20;
/// Most bytes of either kind in one step.
const STEP_MAX: usize = 15;
/// Steps are made by copies of this length, whatever they need: the length is known when this is compiled.
const STEP_ROOM: usize = STEP_MAX + 1;
/// As many must be the same again before it is worth another step.
const SAME_MIN: usize = 3;
/// No tail begins here yet.
const NO_TAIL: u8 = u8::MAX;
/// Bytes that come into the caches together.
const LINE: usize = 64;

/// Aligned to lines of the caches, so that it lies on two of them and not on three.
#[derive(Clone)]
#[repr(align(64))]
struct Chunk {
    bytes: [u8; PAYLOAD],
    /// Where the tail of the first record begins that begins here.
    first_tail: u8,
    next: u32,
}

const _: () = assert!(size_of::<Chunk>() == CHUNK);
const _: () = assert!(PAYLOAD < NO_TAIL as usize);

impl Chunk {
    const EMPTY: Chunk = Chunk { bytes: [0; PAYLOAD], first_tail: NO_TAIL, next: NIL };

    /// What a record that begins at `at` may have in common with the first one.
    fn model(&self, at: usize) -> Option<&[u8]> {
        let start = usize::from(self.first_tail);
        (start < at).then(|| &self.bytes[start..])
    }
}

/// The chunks of all queues.
#[derive(Default)]
pub struct UrlStore {
    segments: Vec<Vec<Chunk>>,
    free: Option<u32>,
    /// Chunks in use.
    used: usize,
    /// The steps of what is being put in.
    steps: Vec<u8>,
}

/// One host's URLs, first in first out. Empty and free of charge by default. Must be emptied with
/// [`UrlStore::pop`] or [`UrlStore::clear`] before it is dropped, or its chunks are lost to the store.
#[derive(Debug)]
pub struct UrlQueue {
    head: u32,
    tail: u32,
    len: u32,
    /// First unread byte of the head chunk.
    read: u8,
    /// First unwritten byte of the tail chunk.
    written: u8,
}

impl Default for UrlQueue {
    fn default() -> Self {
        UrlQueue { head: NIL, tail: NIL, len: 0, read: 0, written: 0 }
    }
}

impl UrlQueue {
    /// URLs in the queue.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A URL taken out of a queue, in a buffer that is used again and again.
#[derive(Clone)]
pub struct QueuedUrl {
    /// Which document.
    pub doc: DocId,
    scheme: Scheme,
    len: u32,
    /// The tail, and room behind it.
    buffer: Box<[u8]>,
}

impl Default for QueuedUrl {
    fn default() -> Self {
        QueuedUrl { doc: DocId(0), scheme: Scheme::Whole, len: 0, buffer: Box::default() }
    }
}

impl PartialEq for QueuedUrl {
    fn eq(&self, other: &Self) -> bool {
        self.doc == other.doc && self.tail_bytes() == other.tail_bytes()
    }
}

impl fmt::Debug for QueuedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.doc, self.tail())
    }
}

impl QueuedUrl {
    /// The URL without its host.
    pub fn tail(&self) -> Tail<'_> {
        self.tail_bytes().read()
    }

    /// The same, unread.
    pub fn tail_bytes(&self) -> TailBytes<'_> {
        TailBytes { scheme: self.scheme, rest: &self.buffer[..self.len as usize] }
    }

    /// Replaces what was here before.
    pub fn set(&mut self, doc: DocId, tail: Tail<'_>) {
        self.doc = doc;
        self.scheme = tail.scheme;
        self.room_for(tail.rest.len()).copy_from_slice(tail.rest.as_bytes());
    }

    /// Looks at the buffer, so that it is near when it is used.
    pub fn look(&self) -> u8 {
        self.buffer.first().copied().unwrap_or_default()
    }

    /// Bytes of its buffer.
    pub fn room(&self) -> usize {
        self.buffer.len()
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        self.buffer = vec![0; (len + STEP_ROOM).next_multiple_of(LINE)].into();
    }

    /// Where a tail of `len` bytes is to be written.
    #[inline]
    fn room_for(&mut self, len: usize) -> &mut [u8] {
        self.len = len as u32;
        if self.buffer.len() < len + STEP_ROOM {
            self.grow(len);
        }
        &mut self.buffer[..len]
    }
}

impl UrlStore {
    /// Appends a URL to `queue`.
    pub fn push(&mut self, queue: &mut UrlQueue, doc: DocId, tail: Tail<'_>) {
        if queue.tail == NIL || usize::from(queue.written) == PAYLOAD {
            self.add_tail(queue);
        }
        let (rest, start) = (tail.rest.as_bytes(), usize::from(queue.written));
        let mut header = [0; HEADER_MAX];
        let mut len = put_varint(&mut header, (rest.len() as u64) << 2 | tail.scheme as u64);
        len += put_varint(&mut header[len..], doc.0);
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        let chunk = self.chunk_mut(queue.tail);
        let has_model = match chunk.model(start) {
            // Only what was written is there for good.
            Some(model) => {
                put_steps(&mut steps, &model[..start - usize::from(chunk.first_tail)], rest);
                true
            }
            None => {
                if start + len < PAYLOAD {
                    chunk.first_tail = (start + len) as u8;
                }
                false
            }
        };
        self.append(queue, &header[..len]);
        self.append(queue, if has_model { &steps } else { rest });
        self.steps = steps;
        queue.len += 1;
    }

    /// Takes the first URL of `queue` out into `url`; false if there is none.
    pub fn pop(&mut self, queue: &mut UrlQueue, url: &mut QueuedUrl) -> bool {
        if queue.is_empty() {
            return false;
        }
        queue.len -= 1;
        let mut cursor = Cursor { chunk: queue.head, at: usize::from(queue.read) };
        let header = self.header(&mut cursor);
        url.scheme = header.scheme;
        url.doc = header.doc;
        url.room_for(header.len);
        self.read_tail(&mut cursor, &header, &mut url.buffer);
        if queue.is_empty() {
            self.clear(queue);
            return true;
        }
        while queue.head != cursor.chunk {
            self.drop_head(queue);
        }
        queue.read = cursor.at as u8;
        true
    }

    /// Looks at where the first URL of `queue` is, so that it is near when it is taken. Looking at several queues one
    /// after another costs hardly more than one of them, since nothing waits for what is seen.
    pub fn approach(&self, queue: &UrlQueue) -> u8 {
        self.near(queue.head, usize::from(queue.read))
    }

    /// The same for what of it is in the next chunk, if that may be. Only that one's number is looked for in the first.
    pub fn approach_next(&self, queue: &UrlQueue) -> u8 {
        let goes_on = usize::from(queue.read) + LINE / 2 > PAYLOAD && queue.head != NIL;
        if goes_on { self.near(self.chunk(queue.head).next, 0) } else { 0 }
    }

    fn near(&self, chunk: u32, at: usize) -> u8 {
        let chunk =
            self.segments.get(chunk as usize / SEGMENT).and_then(|all| all.get(chunk as usize % SEGMENT));
        // The first tail is needed, too: that may be both lines.
        chunk.map_or(0, |chunk| chunk.bytes[0] ^ chunk.bytes[LINE] ^ chunk.bytes[at.min(PAYLOAD - 1)])
    }

    /// How many URLs stand before `tail` in `queue`, and its document; looks at the first `max` only.
    pub fn position(&self, queue: &UrlQueue, tail: Tail<'_>, max: usize) -> Option<(usize, DocId)> {
        let mut cursor = Cursor { chunk: queue.head, at: usize::from(queue.read) };
        let mut other = QueuedUrl::default();
        for position in 0..queue.len().min(max) {
            let header = self.header(&mut cursor);
            other.scheme = header.scheme;
            other.room_for(header.len);
            self.read_tail(&mut cursor, &header, &mut other.buffer);
            if other.tail_bytes() == tail.bytes() {
                return Some((position, header.doc));
            }
        }
        None
    }

    /// Empties `queue` at once.
    pub fn clear(&mut self, queue: &mut UrlQueue) {
        while queue.head != NIL {
            self.drop_head(queue);
        }
        *queue = UrlQueue::default();
    }

    /// Bytes that the store occupies.
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(Vec::len).sum::<usize>() * CHUNK
    }

    fn append(&mut self, queue: &mut UrlQueue, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if queue.tail == NIL || usize::from(queue.written) == PAYLOAD {
                self.add_tail(queue);
            }
            let at = usize::from(queue.written);
            let n = bytes.len().min(PAYLOAD - at);
            self.chunk_mut(queue.tail).bytes[at..at + n].copy_from_slice(&bytes[..n]);
            queue.written += n as u8;
            bytes = &bytes[n..];
        }
    }

    /// Reads the header that `cursor` is at, and moves it to what follows.
    #[inline(always)]
    fn header(&self, cursor: &mut Cursor) -> Header<'_> {
        if cursor.at == PAYLOAD {
            *cursor = Cursor { chunk: self.chunk(cursor.chunk).next, at: 0 };
        }
        let chunk = self.chunk(cursor.chunk);
        let (here, model) = (&chunk.bytes[cursor.at..], chunk.model(cursor.at));
        if let Some((header, used)) = Header::read(here, model) {
            cursor.at += used;
            return header;
        }
        self.cut_header(cursor)
    }

    /// The same for one that goes on in the next chunk.
    #[cold]
    fn cut_header(&self, cursor: &mut Cursor) -> Header<'_> {
        let chunk = self.chunk(cursor.chunk);
        let (here, model) = (&chunk.bytes[cursor.at..], chunk.model(cursor.at));
        let mut bytes = [0; 2 * HEADER_MAX];
        bytes[..here.len()].copy_from_slice(here);
        bytes[here.len()..][..HEADER_MAX].copy_from_slice(&self.chunk(chunk.next).bytes[..HEADER_MAX]);
        let (header, used) = Header::read(&bytes, model).unwrap_or_default();
        cursor.at += used;
        if cursor.at >= PAYLOAD {
            *cursor = Cursor { chunk: chunk.next, at: cursor.at - PAYLOAD };
        }
        header
    }

    /// Reads the tail that follows `header`, and moves `cursor` behind it.
    #[inline(always)]
    fn read_tail(&self, cursor: &mut Cursor, header: &Header<'_>, out: &mut [u8]) {
        let Some(model) = header.model else { return self.read(cursor, &mut out[..header.len]) };
        let mut at = 0;
        while at < header.len {
            if cursor.at == PAYLOAD {
                *cursor = Cursor { chunk: self.chunk(cursor.chunk).next, at: 0 };
            }
            let bytes = &self.chunk(cursor.chunk).bytes;
            let step = bytes[cursor.at];
            cursor.at += 1;
            let (same, new) = (usize::from(step >> 4), usize::from(step) & STEP_MAX);
            copy(out, at, model, at, same);
            at += same;
            if cursor.at + new <= PAYLOAD {
                copy(out, at, bytes, cursor.at, new);
                cursor.at += new;
            } else {
                self.read(cursor, &mut out[at..at + new]);
            }
            at += new;
        }
    }

    /// Reads what `cursor` is at, and moves it behind that.
    fn read(&self, cursor: &mut Cursor, mut out: &mut [u8]) {
        while !out.is_empty() {
            if cursor.at == PAYLOAD {
                *cursor = Cursor { chunk: self.chunk(cursor.chunk).next, at: 0 };
            }
            let (here, rest) = out.split_at_mut(out.len().min(PAYLOAD - cursor.at));
            here.copy_from_slice(&self.chunk(cursor.chunk).bytes[cursor.at..cursor.at + here.len()]);
            cursor.at += here.len();
            out = rest;
        }
    }

    fn add_tail(&mut self, queue: &mut UrlQueue) {
        let new = self.allocate();
        if queue.tail == NIL {
            queue.head = new;
            queue.read = 0;
        } else {
            self.chunk_mut(queue.tail).next = new;
        }
        queue.tail = new;
        queue.written = 0;
    }

    fn drop_head(&mut self, queue: &mut UrlQueue) {
        let old = queue.head;
        queue.head = self.chunk(old).next;
        queue.read = 0;
        if queue.head == NIL {
            queue.tail = NIL;
        }
        self.chunk_mut(old).next = self.free.unwrap_or(NIL);
        self.free = Some(old);
        self.used -= 1;
        if self.used == 0 {
            self.start_over();
        }
    }

    /// Nothing is queued: gives back what was needed, unless it was little.
    fn start_over(&mut self) {
        if self.segments.first().is_some_and(|first| first.len() > KEPT) {
            self.segments.clear();
        }
        self.segments.iter_mut().for_each(Vec::clear);
        self.free = None;
    }

    fn allocate(&mut self) -> u32 {
        self.used += 1;
        if let Some(id) = self.free {
            let chunk = self.chunk_mut(id);
            chunk.first_tail = NO_TAIL;
            let next = std::mem::replace(&mut chunk.next, NIL);
            self.free = (next != NIL).then_some(next);
            return id;
        }
        if self.segments.last().is_none_or(|s| s.len() == SEGMENT) {
            self.segments.push(Vec::with_capacity(SEGMENT));
        }
        let number = self.segments.len() - 1;
        let segment = &mut self.segments[number];
        segment.push(Chunk::EMPTY);
        (number * SEGMENT + segment.len() - 1) as u32
    }

    fn chunk(&self, id: u32) -> &Chunk {
        &self.segments[id as usize / SEGMENT][id as usize % SEGMENT]
    }

    fn chunk_mut(&mut self, id: u32) -> &mut Chunk {
        &mut self.segments[id as usize / SEGMENT][id as usize % SEGMENT]
    }
}

/// A place in a queue.
struct Cursor {
    chunk: u32,
    /// The next byte of the chunk; one beyond the last if it goes on in the next.
    at: usize,
}

/// What stands before the tail of a record.
struct Header<'a> {
    scheme: Scheme,
    /// Bytes of the tail.
    len: usize,
    doc: DocId,
    /// What its steps go by.
    model: Option<&'a [u8]>,
}

impl Default for Header<'_> {
    fn default() -> Self {
        Header { scheme: Scheme::Whole, len: 0, doc: DocId(0), model: None }
    }
}

impl<'a> Header<'a> {
    /// The header that `bytes` begin with and how many of them it takes, unless it goes on behind them.
    #[inline(always)]
    fn read(bytes: &[u8], model: Option<&'a [u8]>) -> Option<(Header<'a>, usize)> {
        let (first, used) = varint(bytes)?;
        let (doc, used_too) = varint(&bytes[used..])?;
        let scheme = Scheme::from_number((first & 3) as u8).unwrap_or(Scheme::Whole);
        let header = Header { scheme, len: (first >> 2) as usize, doc: DocId(doc), model };
        Some((header, used + used_too))
    }
}

/// Copies up to [`STEP_MAX`] bytes; what comes behind them in `out` is written later.
#[inline(always)]
fn copy(out: &mut [u8], to: usize, bytes: &[u8], from: usize, len: usize) {
    if let (Some(to), Some(from)) = (out.get_mut(to..to + STEP_ROOM), bytes.get(from..from + STEP_ROOM)) {
        to.copy_from_slice(from);
    } else if let (Some(to), Some(from)) = (out.get_mut(to..to + len), bytes.get(from..from + len)) {
        to.copy_from_slice(from);
    }
}

/// Adds the steps that make `tail`, going by `model`.
fn put_steps(out: &mut Vec<u8>, model: &[u8], tail: &[u8]) {
    let common = model.len().min(tail.len());
    let (model, like_model) = (&model[..common], &tail[..common]);
    let mut start = 0;
    while start < tail.len() {
        let new = end_of_same(model, like_model, start).min(start + STEP_MAX);
        let end = if new < common { next_same(model, like_model, new) } else { tail.len() };
        let end = end.min(new + STEP_MAX).min(tail.len());
        out.push(((new - start) << 4 | (end - new)) as u8);
        out.extend_from_slice(&tail[new..end]);
        start = end;
    }
}

/// The first place from `at` on where `a` and `b`, which are equally long, are not the same.
fn end_of_same(a: &[u8], b: &[u8], mut at: usize) -> usize {
    while let Some(same) = same_bytes(a, b, at) {
        if same != HIGHEST {
            return at + (!same & HIGHEST).trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    (at..a.len()).find(|&at| a[at] != b[at]).unwrap_or(a.len().max(at))
}

/// The first place from `at` on where [`SAME_MIN`] bytes are the same; beyond the end of both if there is none.
fn next_same(a: &[u8], b: &[u8], mut at: usize) -> usize {
    while let Some(same) = same_bytes(a, b, at) {
        let three = same & same >> 8 & same >> 16;
        if three != 0 {
            return at + three.trailing_zeros() as usize / 8;
        }
        at += 8 - (SAME_MIN - 1);
    }
    let is_same = |&at: &usize| a[at..at + SAME_MIN] == b[at..at + SAME_MIN];
    (at..(a.len() + 1).saturating_sub(SAME_MIN)).find(is_same).unwrap_or(usize::MAX)
}

/// The highest bit of every byte.
const HIGHEST: u64 = 0x8080_8080_8080_8080;
const _: () = assert!(SAME_MIN == 3);

/// Which of the eight bytes at `at` are the same in both: their highest bits. Nothing where there are not as many.
#[inline(always)]
fn same_bytes(a: &[u8], b: &[u8], at: usize) -> Option<u64> {
    let word = |bytes: &[u8]| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let differ = word(a)? ^ word(b)?;
    // The lower seven bits of a byte carry into its highest, and no further, unless they are all zero.
    let differs = ((differ & !HIGHEST) + !HIGHEST) | differ;
    Some(!differs & HIGHEST)
}

/// The number that `bytes` begin with and how many of them it takes, unless it goes on behind them.
#[inline(always)]
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    if let Some(bytes) = bytes.first_chunk() {
        let word = u64::from_le_bytes(*bytes);
        // The first byte without its highest bit is the last.
        let ends = !word & 0x8080_8080_8080_8080;
        if ends != 0 {
            let word = word & (ends ^ (ends - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
            // Groups of seven bits to groups of 14, of 28, and of 56.
            let word = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
            let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x3fff_0000_3fff_0000) >> 2;
            let value = (word & 0x0fff_ffff) | (word & 0x0fff_ffff_0000_0000) >> 4;
            return Some((value, ends.trailing_zeros() as usize / 8 + 1));
        }
    }
    varint_by_bytes(bytes)
}

/// The same, of any length.
#[cold]
fn varint_by_bytes(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (place, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some((value, place + 1));
        }
    }
    None
}

/// Writes `value` in groups of seven bits, lowest first; returns the bytes used, ten at most.
fn put_varint(out: &mut [u8], mut value: u64) -> usize {
    let mut len = 0;
    while value >= 0x80 {
        out[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    out[len] = value as u8;
    len + 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Push to, pop from or clear one of a few queues.
    #[derive(Clone, Debug)]
    enum Op {
        /// Into this queue, a document, with a scheme, a tail of this length that turns at that place into another.
        Push(usize, u64, u8, usize, usize),
        Pop(usize),
        Clear(usize),
        Find(usize, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        let doc = prop_oneof![0..300u64, any::<u64>()];
        let len = prop_oneof![9 => 0..200usize, 1 => 0..3000usize];
        prop_oneof![
            6 => (0..3usize, doc, 0..3u8, len, 0..60usize)
                .prop_map(|(q, doc, scheme, len, turn)| Op::Push(q, doc, scheme, len, turn)),
            5 => (0..3usize).prop_map(Op::Pop),
            1 => (0..3usize).prop_map(Op::Clear),
            3 => (0..3usize, 0..20usize).prop_map(|(q, nth)| Op::Find(q, nth)),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_vector_of_strings(ops in prop::collection::vec(op(), 0..200)) {
            let mut store = UrlStore::default();
            let mut queues: [UrlQueue; 3] = Default::default();
            let mut model: [VecDeque<QueuedUrl>; 3] = Default::default();
            let mut got = QueuedUrl::default();
            for op in ops {
                match op {
                    Op::Push(q, doc, scheme, len, turn) => {
                        let letter = |i: usize| char::from(if i < turn { b'a' } else { b'A' } + (i % 26) as u8);
                        let rest: String = (0..len).map(letter).collect();
                        let tail = Tail { scheme: Scheme::from_number(scheme).unwrap(), rest: &rest };
                        let mut url = QueuedUrl::default();
                        url.set(DocId(doc), tail);
                        store.push(&mut queues[q], DocId(doc), tail);
                        model[q].push_back(url);
                    }
                    Op::Pop(q) => {
                        let want = model[q].pop_front();
                        prop_assert_eq!(store.pop(&mut queues[q], &mut got), want.is_some());
                        if let Some(want) = want {
                            prop_assert_eq!(&got, &want);
                        }
                    }
                    Op::Find(q, nth) => {
                        let Some(url) = model[q].get(nth) else { continue };
                        let first = model[q].iter().position(|other| other.tail() == url.tail()).unwrap();
                        let want = Some((first, model[q][first].doc));
                        prop_assert_eq!(store.position(&queues[q], url.tail(), usize::MAX), want);
                        prop_assert_eq!(store.position(&queues[q], url.tail(), first), None);
                        let other = Tail { scheme: url.scheme, rest: "zzz" };
                        prop_assert_eq!(store.position(&queues[q], other, usize::MAX), None);
                    }
                    Op::Clear(q) => {
                        store.clear(&mut queues[q]);
                        model[q].clear();
                    }
                }
                for q in 0..3 {
                    prop_assert_eq!(queues[q].len(), model[q].len());
                }
            }
        }
    }

    /// The steps byte by byte.
    fn dull_steps(model: &[u8], tail: &[u8]) -> Vec<u8> {
        let is_same = |at: usize| at < tail.len() && model.get(at) == Some(&tail[at]);
        let (mut out, mut at) = (Vec::new(), 0);
        while at < tail.len() {
            let same = (at..).take_while(|&at| is_same(at)).take(STEP_MAX).count();
            let new = at + same;
            let goes_on = |&at: &usize| at < tail.len() && !(0..SAME_MIN).all(|more| is_same(at + more));
            let end = new + (new..).take_while(goes_on).take(STEP_MAX).count();
            out.push((same << 4 | (end - new)) as u8);
            out.extend(&tail[new..end]);
            at = end;
        }
        out
    }

    proptest! {
        #[test]
        fn steps_are_those_of_byte_after_byte(model in "[ab\u{7f}]{0,70}", tail in "[ab\u{7f}]{0,70}", turns: u64) {
            // Much the same, and not quite.
            let turned = model.bytes().enumerate().map(|(at, byte)| byte ^ u8::from(turns >> (at % 64) & 7 == 7));
            for tail in [tail.into_bytes(), turned.collect()] {
                let mut out = Vec::new();
                put_steps(&mut out, model.as_bytes(), &tail);
                prop_assert_eq!(out, dull_steps(model.as_bytes(), &tail));
            }
        }

        #[test]
        fn numbers_are_read_as_written(value: u64, bits in 0..64u32, behind: [u8; 12]) {
            let value = value >> bits;
            let mut bytes = [0; 10];
            let len = put_varint(&mut bytes, value);
            prop_assert_eq!(varint_by_bytes(&bytes[..len]), Some((value, len)));
            prop_assert_eq!(varint(&bytes[..len - 1]), None);
            let more: Vec<u8> = bytes[..len].iter().chain(&behind).copied().collect();
            for end in len..more.len() {
                prop_assert_eq!(varint(&more[..end]), Some((value, len)));
            }
        }
    }

    #[test]
    fn chunks_are_used_again_whoever_emptied_them() {
        let mut store = UrlStore::default();
        let mut url = QueuedUrl::default();
        let rest = "/x".repeat(50);
        let tail = Tail { scheme: Scheme::Http, rest: &rest };
        for round in 0..100 {
            let mut queue = UrlQueue::default();
            for doc in 0..1000 {
                store.push(&mut queue, DocId(doc), tail);
            }
            if round % 2 == 0 {
                while store.pop(&mut queue, &mut url) {}
            } else {
                store.clear(&mut queue);
            }
        }
        assert!(store.bytes() <= 1000 * CHUNK, "{}", store.bytes());
    }

    #[test]
    fn what_was_needed_once_is_given_back_when_all_is_empty() {
        let mut store = UrlStore::default();
        let mut url = QueuedUrl::default();
        let mut queues = [UrlQueue::default(), UrlQueue::default()];
        for doc in 0..100_000 {
            let rest = format!("/{doc:06}/a/page/of/some/length");
            store.push(&mut queues[doc as usize % 2], DocId(doc), Tail { scheme: Scheme::Http, rest: &rest });
        }
        let most = store.bytes();
        assert!(most > KEPT * CHUNK);
        store.clear(&mut queues[0]);
        assert_eq!(store.bytes(), most, "one queue still needs them");
        while store.pop(&mut queues[1], &mut url) {}
        assert_eq!((store.segments.len(), store.bytes()), (0, 0));
        store.push(&mut queues[0], DocId(7), Tail { scheme: Scheme::Http, rest: "/again" });
        assert!(store.pop(&mut queues[0], &mut url) && url.doc == DocId(7));
    }

    #[test]
    fn costs_hardly_more_than_the_tail() {
        let mut store = UrlStore::default();
        let mut queues: Vec<UrlQueue> = (0..10_000).map(|_| UrlQueue::default()).collect();
        let mut len = 0;
        for doc in 0..500_000 {
            let rest = format!("/section{:02}/page-{doc:07}-abcdefghijkl", doc % 97);
            len = rest.len();
            let queue = &mut queues[doc as usize % 10_000];
            store.push(queue, DocId(doc), Tail { scheme: Scheme::Http, rest: &rest });
        }
        let per_url = store.bytes() / 500_000;
        assert!(per_url < len + 5, "{per_url} bytes for a tail of {len}, with its id and length");
    }
}
