//! Queues of URLs as bytes: one store, a queue per host.
//!
//! A queue is a chain of small chunks in a store that all queues share; a record is a header, the
//! document's id and the URL's tail, and may lie across chunks. So a queued URL costs its tail and
//! a few bytes, a queue wastes half a chunk on average, and nothing is ever moved when a queue grows.
//! Chunks that run empty are used again by any queue; when all are empty, they are given back to the system.

use crate::ids::DocId;
use crate::url::{Scheme, Tail};

/// Bytes of one chunk: its payload and the number of the next one.
const CHUNK: usize = 128;
const PAYLOAD: usize = CHUNK - size_of::<u32>();
/// Chunks are allocated this many at a time (1 MiB), so that growth neither copies nor doubles.
const SEGMENT: usize = 8192;
const NIL: u32 = u32::MAX;

#[derive(Clone)]
struct Chunk {
    next: u32,
    bytes: [u8; PAYLOAD],
}

const _: () = assert!(size_of::<Chunk>() == CHUNK);
const _: () = assert!(PAYLOAD <= u8::MAX as usize);

/// The chunks of all queues.
#[derive(Default)]
pub struct UrlStore {
    segments: Vec<Vec<Chunk>>,
    free: Option<u32>,
    /// Chunks in use.
    used: usize,
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuedUrl {
    /// Which document.
    pub doc: DocId,
    scheme: Scheme,
    rest: String,
}

impl Default for QueuedUrl {
    fn default() -> Self {
        QueuedUrl { doc: DocId(0), scheme: Scheme::Whole, rest: String::new() }
    }
}

impl QueuedUrl {
    /// The URL without its host.
    pub fn tail(&self) -> Tail<'_> {
        Tail { scheme: self.scheme, rest: &self.rest }
    }

    /// Replaces what was here before.
    pub fn set(&mut self, doc: DocId, tail: Tail<'_>) {
        self.doc = doc;
        self.scheme = tail.scheme;
        self.rest.clear();
        self.rest.push_str(tail.rest);
    }
}

impl UrlStore {
    /// Appends a URL to `queue`.
    pub fn push(&mut self, queue: &mut UrlQueue, doc: DocId, tail: Tail<'_>) {
        let mut header = [0; 20];
        let mut len = put_varint(&mut header, (tail.rest.len() as u64) << 2 | tail.scheme as u64);
        len += put_varint(&mut header[len..], doc.0);
        self.append(queue, &header[..len]);
        self.append(queue, tail.rest.as_bytes());
        queue.len += 1;
    }

    /// Takes the first URL of `queue` out into `url`; false if there is none.
    pub fn pop(&mut self, queue: &mut UrlQueue, url: &mut QueuedUrl) -> bool {
        if queue.is_empty() {
            return false;
        }
        queue.len -= 1;
        let header = self.take_varint(queue);
        url.scheme = Scheme::from_number((header & 3) as u8).unwrap_or(Scheme::Whole);
        url.doc = DocId(self.take_varint(queue));
        let mut bytes = std::mem::take(&mut url.rest).into_bytes();
        bytes.clear();
        self.take(queue, (header >> 2) as usize, &mut bytes);
        // What was put in was a `&str`; checking it again costs less than an `unsafe` would.
        url.rest = String::from_utf8(bytes).unwrap_or_default();
        if queue.is_empty() {
            self.clear(queue);
        }
        true
    }

    /// How many URLs stand before `tail` in `queue`, and its document; looks at the first `max` only.
    pub fn position(&self, queue: &UrlQueue, tail: Tail<'_>, max: usize) -> Option<(usize, DocId)> {
        let mut walk = Walk { store: self, chunk: queue.head, at: usize::from(queue.read) };
        for position in 0..queue.len().min(max) {
            let header = walk.varint();
            let doc = DocId(walk.varint());
            let len = (header >> 2) as usize;
            let alike = len == tail.rest.len() && (header & 3) as u8 == tail.scheme as u8;
            if walk.pass(len, alike.then_some(tail.rest)) {
                return Some((position, doc));
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
        self.segments.len() * SEGMENT * CHUNK
    }

    fn append(&mut self, queue: &mut UrlQueue, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if queue.tail == NIL || usize::from(queue.written) == PAYLOAD {
                self.add_tail(queue);
            }
            let at = usize::from(queue.written);
            let n = bytes.len().min(PAYLOAD - at);
            self.chunk(queue.tail).bytes[at..at + n].copy_from_slice(&bytes[..n]);
            queue.written += n as u8;
            bytes = &bytes[n..];
        }
    }

    fn take(&mut self, queue: &mut UrlQueue, mut len: usize, out: &mut Vec<u8>) {
        while len > 0 {
            if usize::from(queue.read) == PAYLOAD {
                self.drop_head(queue);
            }
            let at = usize::from(queue.read);
            let n = len.min(PAYLOAD - at);
            out.extend_from_slice(&self.chunk(queue.head).bytes[at..at + n]);
            queue.read += n as u8;
            len -= n;
        }
    }

    fn take_varint(&mut self, queue: &mut UrlQueue) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            if usize::from(queue.read) == PAYLOAD {
                self.drop_head(queue);
            }
            let byte = self.chunk(queue.head).bytes[usize::from(queue.read)];
            queue.read += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn add_tail(&mut self, queue: &mut UrlQueue) {
        let new = self.allocate();
        if queue.tail == NIL {
            queue.head = new;
            queue.read = 0;
        } else {
            self.chunk(queue.tail).next = new;
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
        self.chunk(old).next = self.free.unwrap_or(NIL);
        self.free = Some(old);
        self.used -= 1;
        if self.used == 0 {
            self.start_over();
        }
    }

    /// Nothing is queued: keeps one segment, so that a queue that empties now and then costs nothing.
    fn start_over(&mut self) {
        self.segments.truncate(1);
        self.segments.iter_mut().for_each(Vec::clear);
        self.free = None;
    }

    fn allocate(&mut self) -> u32 {
        self.used += 1;
        if let Some(id) = self.free {
            let chunk = self.chunk(id);
            let next = std::mem::replace(&mut chunk.next, NIL);
            self.free = (next != NIL).then_some(next);
            return id;
        }
        if self.segments.last().is_none_or(|s| s.len() == SEGMENT) {
            self.segments.push(Vec::with_capacity(SEGMENT));
        }
        let number = self.segments.len() - 1;
        let segment = &mut self.segments[number];
        segment.push(Chunk { next: NIL, bytes: [0; PAYLOAD] });
        (number * SEGMENT + segment.len() - 1) as u32
    }

    fn chunk(&mut self, id: u32) -> &mut Chunk {
        &mut self.segments[id as usize / SEGMENT][id as usize % SEGMENT]
    }
}

/// A look through a queue that takes nothing out.
struct Walk<'a> {
    store: &'a UrlStore,
    chunk: u32,
    /// First byte of the chunk that was not looked at.
    at: usize,
}

impl Walk<'_> {
    fn chunk(&mut self) -> &Chunk {
        let chunk = |id: u32| &self.store.segments[id as usize / SEGMENT][id as usize % SEGMENT];
        if self.at == PAYLOAD {
            self.chunk = chunk(self.chunk).next;
            self.at = 0;
        }
        chunk(self.chunk)
    }

    fn varint(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let at = self.at % PAYLOAD;
            let byte = self.chunk().bytes[at];
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    /// Passes `len` bytes; true if they are `wanted`.
    fn pass(&mut self, mut len: usize, wanted: Option<&str>) -> bool {
        let mut wanted = wanted.map(str::as_bytes);
        while len > 0 {
            let at = self.at % PAYLOAD;
            let n = len.min(PAYLOAD - at);
            let bytes = &self.chunk().bytes[at..at + n];
            wanted = wanted.and_then(|wanted| wanted.strip_prefix(bytes));
            self.at += n;
            len -= n;
        }
        wanted.is_some()
    }
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
        Push(usize, u64, u8, usize),
        Pop(usize),
        Clear(usize),
        Find(usize, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        let doc = prop_oneof![0..300u64, any::<u64>()];
        let len = prop_oneof![9 => 0..200usize, 1 => 0..3000usize];
        prop_oneof![
            6 => (0..3usize, doc, 0..3u8, len).prop_map(|(q, doc, scheme, len)| Op::Push(q, doc, scheme, len)),
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
                    Op::Push(q, doc, scheme, len) => {
                        let rest: String = (0..len).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
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
        assert_eq!(store.segments.len(), 1);
    }

    #[test]
    fn what_was_needed_once_is_given_back_when_all_is_empty() {
        let mut store = UrlStore::default();
        let mut url = QueuedUrl::default();
        let mut queues = [UrlQueue::default(), UrlQueue::default()];
        for doc in 0..100_000 {
            store.push(
                &mut queues[doc as usize % 2],
                DocId(doc),
                Tail { scheme: Scheme::Http, rest: "/a/page/of/some/length" },
            );
        }
        assert!(store.segments.len() > 1);
        store.clear(&mut queues[0]);
        assert!(store.segments.len() > 1, "one queue still needs them");
        while store.pop(&mut queues[1], &mut url) {}
        assert_eq!((store.segments.len(), store.bytes()), (1, SEGMENT * CHUNK));
        store.push(&mut queues[0], DocId(7), Tail { scheme: Scheme::Http, rest: "/again" });
        assert!(store.pop(&mut queues[0], &mut url) && url.doc == DocId(7));
    }

    #[test]
    fn costs_little_more_than_the_bytes() {
        let mut store = UrlStore::default();
        let mut queues: Vec<UrlQueue> = (0..10_000).map(|_| UrlQueue::default()).collect();
        let rest = "/section01/page-0000001-abcdefghijkl";
        for doc in 0..500_000 {
            let queue = &mut queues[doc as usize % 10_000];
            store.push(queue, DocId(doc), Tail { scheme: Scheme::Http, rest });
        }
        let per_url = store.bytes() / 500_000;
        assert!(per_url < rest.len() + 10, "{per_url} bytes for a tail of {}", rest.len());
    }
}
