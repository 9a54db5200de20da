#![allow(clippy::unwrap_used, reason = "tests")]

use super::super::store::Store;
use super::*;
use crate::ids::DocId;
use crate::index::{Added, Addition};
use crate::url::Url;
use tempfile::TempDir;

const NOW: u64 = 1_000;

fn addition(n: usize) -> Addition {
    let url = Url::parse(&format!("http://h{}.example/{n}", n % 7)).unwrap();
    let doc = n.is_multiple_of(5).then_some(DocId(10_000 + n as u64));
    Addition { doc, url, not_before: n.is_multiple_of(9).then_some(NOW + n as u64) }
}

fn insert(store: &mut Store, numbers: Range<usize>) {
    let urls: Vec<Addition> = numbers.map(addition).collect();
    assert!(store.insert(&urls, NOW).0.iter().all(|added| matches!(added, Added::Accepted(_))));
}

/// Opens the index; says how many blocks counted.
fn open(directory: &TempDir) -> (Store, usize) {
    let mut store = Store::open(directory.path(), None).unwrap();
    store.sealer.full = 1;
    let mut blocks = 0;
    loop {
        blocks = store.load.as_ref().map_or(blocks, |load| load.blocks());
        if store.load_some(100, NOW).unwrap() {
            return (store, blocks);
        }
    }
}

/// An index with three blocks, and documents that are in none.
fn filled() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(&directory);
    for block in 0..3 {
        insert(&mut store, block * 40..block * 40 + 25);
        insert(&mut store, block * 40 + 25..block * 40 + 40);
        store.seal();
    }
    insert(&mut store, 120..150);
    directory
}

fn prints_of(directory: &TempDir) -> PathBuf {
    prints_path(directory.path(), 1)
}

/// Everything of 150 documents is as it was.
#[track_caller]
fn check(store: &mut Store) {
    assert_eq!((store.reader.count(), store.known.len(), store.queues.hosts()), (150, 150, 7));
    assert_eq!((store.counts.pending, store.timed.len()), (150, 16));
    let again: Vec<Addition> = (0..150).map(addition).collect();
    assert!(store.insert(&again, NOW).0.iter().all(|added| *added == Added::Duplicate));
    for (n, new) in again.iter().enumerate() {
        let found = store.look_up(&new.url).unwrap().unwrap();
        let named = new.doc.map_or(found.doc.0 < 150, |doc| doc == found.doc);
        assert!(named && found.not_before == new.not_before.filter(|time| *time > NOW), "{n}: {found:?}");
    }
    store.wake(NOW + 1_000);
    let list = store.take(1_000, &[], |error| panic!("{error}"));
    let mut urls: Vec<&str> = list.iter().map(|candidate| candidate.url.as_str()).collect();
    let mut expected: Vec<&str> = again.iter().map(|new| new.url.as_str()).collect();
    urls.sort_unstable();
    expected.sort_unstable();
    assert_eq!(urls, expected);
}

#[test]
fn what_is_in_blocks_is_known_without_the_documents() {
    let (mut store, blocks) = open(&filled());
    assert_eq!(blocks, 3);
    check(&mut store);
}

#[test]
fn an_index_without_blocks_gets_them() {
    let directory = filled();
    std::fs::remove_file(prints_of(&directory)).unwrap();
    let (mut store, blocks) = open(&directory);
    assert_eq!(blocks, 0);
    store.seal();
    check(&mut store);
    drop(store);
    let (mut store, blocks) = open(&directory);
    assert_eq!(blocks, 1);
    check(&mut store);
}

#[test]
fn every_bit_of_a_block_is_checked() {
    let directory = filled();
    let good = std::fs::read(prints_of(&directory)).unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    let heads = 0..FILE_HEADER as usize + HEAD;
    let body = (0..150).map(|_| rng.usize(heads.end..good.len()));
    for at in heads.clone().chain(body.collect::<Vec<_>>()) {
        let mut bad = good.clone();
        bad[at] ^= 1 << rng.u32(..8);
        std::fs::write(prints_of(&directory), &bad).unwrap();
        let (mut store, blocks) = open(&directory);
        assert!(blocks < 3, "byte {at}");
        check(&mut store);
    }
}

#[test]
fn a_block_that_is_cut_short_counts_for_nothing_and_is_made_again() {
    let directory = filled();
    let good = std::fs::read(prints_of(&directory)).unwrap();
    for cut in [0, 1, 31, 32, 33, 111, 112, good.len() / 3, good.len() / 2, good.len() - 1] {
        std::fs::write(prints_of(&directory), &good[..cut]).unwrap();
        let (mut store, blocks) = open(&directory);
        assert!(blocks < 3);
        store.seal();
        check(&mut store);
        drop(store);
        let (mut store, again) = open(&directory);
        assert_eq!(again, blocks + 1);
        check(&mut store);
    }
}

/// The documents were put back to what they had been, and others came; or the blocks are of another index.
#[test]
fn blocks_of_other_documents_count_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, _) = open(&directory);
    insert(&mut store, 0..40);
    store.seal();
    store.sync().unwrap();
    let documents = store.log.path().to_owned();
    let older = std::fs::read(&documents).unwrap();
    insert(&mut store, 500..600);
    store.seal();
    drop(store);
    let stale = std::fs::read(prints_of(&directory)).unwrap();
    std::fs::write(&documents, older).unwrap();
    let (mut store, blocks) = open(&directory);
    assert_eq!(blocks, 1, "the one that was there before");
    insert(&mut store, 40..150);
    drop(store);
    std::fs::write(prints_of(&directory), &stale).unwrap();
    let (mut store, blocks) = open(&directory);
    assert_eq!(blocks, 1);
    check(&mut store);
    drop(store);
    std::fs::write(prints_of(&directory), std::fs::read(prints_of(&filled())).unwrap()).unwrap();
    let (mut store, blocks) = open(&directory);
    assert_eq!(blocks, 0);
    check(&mut store);
}

/// A frame inside of a block's documents is damaged: that is no torn tail, for the block was written behind it.
#[test]
fn damaged_documents_of_a_block_are_refused() {
    let directory = filled();
    let documents = super::super::files::documents_path(directory.path(), 1);
    let mut bytes = std::fs::read(&documents).unwrap();
    bytes[FILE_HEADER as usize + 40] ^= 1;
    std::fs::write(&documents, bytes).unwrap();
    let mut store = Store::open(directory.path(), None).unwrap();
    let error = store.load_all(NOW).unwrap_err();
    assert!(matches!(error, IndexError::Damaged { .. }), "{error}");
}
