//! Hosts, and which of their documents wait: chains of numbers, four bytes for each document that waits.
//!
//! A host costs 24 bytes and an entry among the fingerprints; its name and its URLs stay in the file. Hosts with
//! waiting documents stand in a ring in order of arrival and are served in turn.

use super::prints::{NONE, Print, Prints};
use crate::url::Scheme;
use std::collections::VecDeque;

/// Documents whose links are kept or dropped together.
const CHUNK: usize = 1 << 14;

/// All hosts, by number.
#[derive(Default)]
pub(super) struct Queues {
    names: Prints,
    hosts: Vec<Host>,
    links: Links,
    /// Hosts with waiting documents, each once, the next to be served first.
    ring: VecDeque<u32>,
    waiting: usize,
}

struct Host {
    /// Its own seed for its URLs.
    seed: u64,
    /// Where its name is, packed.
    name: u64,
    head: u32,
    tail: u32,
}

/// A place in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NameAt {
    pub(super) offset: u64,
    pub(super) len: usize,
}

impl NameAt {
    /// In one number: the length is in the lowest byte.
    pub(super) fn packed(self) -> u64 {
        self.offset << 8 | self.len as u64
    }

    pub(super) fn unpacked(number: u64) -> NameAt {
        NameAt { offset: number >> 8, len: (number & 0xff) as usize }
    }
}

impl Queues {
    /// Hosts known.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Documents that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        let ring = self.ring.capacity() * size_of::<u32>();
        self.names.bytes() + self.hosts.capacity() * size_of::<Host>() + self.links.bytes() + ring
    }

    /// The number of the host with this name.
    pub(super) fn find(&self, name: Print) -> Option<u32> {
        self.names.find(name)
    }

    /// A new host.
    pub(super) fn insert(&mut self, name: Print, at: NameAt) -> u32 {
        let number = self.hosts.len() as u32;
        self.names.set(name, number);
        let host = Host { seed: name.bits, name: at.packed(), head: NONE, tail: NONE };
        self.hosts.push(host);
        number
    }

    /// The last host was never there.
    pub(super) fn remove_last(&mut self, name: Print) {
        self.names.remove(name);
        self.hosts.pop();
    }

    pub(super) fn is_host(&self, number: u32) -> bool {
        (number as usize) < self.hosts.len()
    }

    /// Where a host's name is.
    pub(super) fn name(&self, host: u32) -> NameAt {
        NameAt::unpacked(self.hosts[host as usize].name)
    }

    /// What the host's name is seen as by those who reject it.
    pub(super) fn name_bits(&self, host: u32) -> u64 {
        self.hosts[host as usize].seed
    }

    /// A document waits, behind all others of its host.
    pub(super) fn push(&mut self, host: u32, document: u32) {
        let queue = &mut self.hosts[host as usize];
        self.links.add(document);
        if queue.head == NONE {
            queue.head = document;
            self.ring.push_back(host);
        } else {
            self.links.set(queue.tail, document);
        }
        queue.tail = document;
        self.waiting += 1;
    }

    /// The next host, out of the ring: it must be served, or passed.
    pub(super) fn next_host(&mut self) -> Option<u32> {
        self.ring.pop_front()
    }

    /// A host that keeps its turn.
    pub(super) fn pass(&mut self, host: u32) {
        self.ring.push_front(host);
    }

    /// Takes up to `n` documents of a host whose turn it is; with more, it goes to the end of the ring.
    pub(super) fn serve(&mut self, host: u32, n: usize, documents: &mut Vec<u32>) {
        let queue = &mut self.hosts[host as usize];
        for _ in 0..n {
            if queue.head == NONE {
                break;
            }
            documents.push(queue.head);
            self.waiting -= 1;
            queue.head = self.links.remove(queue.head);
        }
        if queue.head == NONE {
            queue.tail = NONE;
        } else {
            self.ring.push_back(host);
        }
    }
}

/// The fingerprint of a URL whose host has this seed.
pub(super) fn print(seed: u64, scheme: Scheme, rest: &[u8]) -> Print {
    Print::of(rest, seed.wrapping_add(scheme as u64))
}

/// For each document that waits, the one that waits behind it.
#[derive(Default)]
struct Links {
    chunks: Vec<Chunk>,
}

#[derive(Default)]
struct Chunk {
    next: Option<Box<[u32]>>,
    waiting: u32,
}

impl Links {
    fn bytes(&self) -> usize {
        let links: usize =
            self.chunks.iter().flat_map(|chunk| &chunk.next).map(|next| size_of_val(&**next)).sum();
        links + self.chunks.capacity() * size_of::<Chunk>()
    }

    fn add(&mut self, document: u32) {
        let number = document as usize / CHUNK;
        if number >= self.chunks.len() {
            self.chunks.resize_with(number + 1, Chunk::default);
        }
        let chunk = &mut self.chunks[number];
        chunk.waiting += 1;
        let next = chunk.next.get_or_insert_with(|| vec![NONE; CHUNK].into_boxed_slice());
        next[document as usize % CHUNK] = NONE;
    }

    fn set(&mut self, document: u32, behind: u32) {
        if let Some(next) = &mut self.chunks[document as usize / CHUNK].next {
            next[document as usize % CHUNK] = behind;
        }
    }

    /// Says which one waits behind it.
    fn remove(&mut self, document: u32) -> u32 {
        let chunk = &mut self.chunks[document as usize / CHUNK];
        let behind = chunk.next.as_ref().map_or(NONE, |next| next[document as usize % CHUNK]);
        chunk.waiting -= 1;
        if chunk.waiting == 0 {
            chunk.next = None;
        }
        behind
    }
}
