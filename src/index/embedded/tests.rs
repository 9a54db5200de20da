//! An index that is large enough to be read while it serves.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::document::{Candidate, End, Outcome};
use std::os::unix::fs::FileExt;
use tempfile::TempDir;

const DOCUMENTS: usize = 20_000;
/// Next to nothing before it is open, and a frame at a time then.
const SLOWLY: Haste = Haste { first: 1, step: 1 };

fn addition(n: usize) -> Addition {
    let url = format!("http://h{}.example/some/page/{n}", n % 7);
    Addition { doc: None, url: Url::parse(&url).unwrap(), not_before: None }
}

fn add(index: &mut EmbeddedIndex, urls: Vec<Addition>) -> oneshot::Receiver<Vec<Added>> {
    let (reply, answer) = oneshot::channel();
    index.add(urls, reply);
    answer
}

/// The next answer. There must be one without any waiting but for reading.
async fn answer(index: &mut EmbeddedIndex) -> (Vec<Candidate>, bool) {
    let mut all = Vec::new();
    loop {
        match index.event().await {
            IndexEvent::Candidates(list) => all.extend(list),
            IndexEvent::Answered { complete, .. } => return (all, complete),
            IndexEvent::Claims(_) | IndexEvent::Grown | IndexEvent::Up | IndexEvent::Down => {}
        }
    }
}

/// Of every hundred documents the first has ended.
async fn filled() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut index = EmbeddedIndex::open(directory.path(), None).unwrap();
    for first in (0..DOCUMENTS).step_by(100) {
        drop(add(&mut index, (first..first + 100).map(addition).collect()));
    }
    index.ask(DOCUMENTS, vec![]);
    let (list, _) = answer(&mut index).await;
    let ended = list.iter().filter(|candidate| candidate.doc.0 % 100 == 1);
    index.report(
        ended.map(|candidate| Report { doc: candidate.doc, end: End::Done(Outcome::Unsaid) }).collect(),
    );
    index.close().await;
    directory
}

#[tokio::test]
async fn it_serves_while_it_reads_and_takes_urls_when_all_is_read() {
    let directory = filled().await;
    let mut index = EmbeddedIndex::open_with(directory.path(), None, SLOWLY).unwrap();
    assert!(!index.is_loaded());
    let mut known = add(&mut index, vec![addition(DOCUMENTS - 1), addition(DOCUMENTS)]);
    index.ask(9, vec![]);
    let (list, complete) = answer(&mut index).await;
    assert!(list.len() == 9 && complete && !index.is_loaded(), "long before the end");
    assert!(known.try_recv().is_err(), "nobody can know yet");
    let reject: Vec<Box<str>> = (0..6).map(|host| format!("h{host}.example").into()).collect();
    let mut last = Vec::new();
    for _ in 0..60 {
        index.ask(60, reject.clone());
        last.extend(answer(&mut index).await.0);
    }
    assert!(
        last.is_sorted_by_key(|candidate| candidate.doc)
            && last.iter().all(|one| one.url.host() == "h6.example")
    );
    index.ask(DOCUMENTS, vec!["h0.example".into()]);
    let mut given = list.len() + last.len() + answer(&mut index).await.0.len();
    while !index.is_loaded() {
        index.event().await;
    }
    assert_eq!(known.await.unwrap()[0], Added::Duplicate);
    while index.store.waiting() > 0 {
        index.ask(DOCUMENTS, vec![]);
        given += answer(&mut index).await.0.len();
    }
    assert_eq!(given, DOCUMENTS - DOCUMENTS / 100 + 1, "each once, and the new one");
}

#[tokio::test]
async fn nothing_to_give_is_said_only_when_all_is_read() {
    let directory = filled().await;
    let mut index = EmbeddedIndex::open_with(directory.path(), None, SLOWLY).unwrap();
    let reject: Vec<Box<str>> = (0..7).map(|host| format!("h{host}.example").into()).collect();
    index.ask(1, reject);
    assert_eq!(answer(&mut index).await, (vec![], false), "what is left is of rejected hosts");
    assert!(index.is_loaded());
}

#[tokio::test]
async fn damage_found_while_serving_stops_additions_not_the_serving() {
    let directory = filled().await;
    let path = files::documents_path(directory.path(), 1);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let half = file.metadata().unwrap().len() / 2;
    file.write_all_at(b"damage", half).unwrap();
    let mut index = EmbeddedIndex::open_with(directory.path(), None, SLOWLY).unwrap();
    let waits = add(&mut index, vec![addition(DOCUMENTS)]);
    while index.event().await != IndexEvent::Down {}
    assert_eq!(waits.await.unwrap(), [Added::NoRoom]);
    assert_eq!(add(&mut index, vec![addition(1)]).await.unwrap(), [Added::NoRoom]);
    assert_eq!(index.counters().io_errors.value(), 1);
    index.ask(DOCUMENTS, vec![]);
    let (list, _) = answer(&mut index).await;
    assert!((DOCUMENTS / 3..DOCUMENTS).contains(&list.len()));
    index.ask(1, vec![]);
    assert_eq!(answer(&mut index).await, (vec![], false), "not all was said");
    index.report(vec![Report { doc: list[0].doc, end: End::Done(Outcome::Unsaid) }]);
    assert!(index.find(&list[0].url).is_ok());
    index.close().await;
}

#[tokio::test]
async fn ends_move_into_cells_and_the_log_stays_short() {
    let directory = filled().await;
    let mut store = Store::open(directory.path(), None).unwrap();
    store.load_all(0).unwrap();
    let before = store.counts;
    store.settle().unwrap();
    assert_eq!(store.ends.log().end(), log::FILE_HEADER, "nothing is left to be replayed");
    let (_, path) = store.ends.cells();
    assert!(std::fs::metadata(path).unwrap().len() <= (DOCUMENTS * ends::CELL) as u64);
    let path = path.to_owned();
    drop(store);
    let logs = files::names(directory.path()).unwrap().into_iter().filter(|name| name.starts_with("ends-"));
    assert_eq!(logs.count(), 1);
    let mut store = Store::open(directory.path(), None).unwrap();
    store.load_all(0).unwrap();
    assert_eq!(store.counts, before);
    drop(store);
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut cell = [0; ends::CELL];
    file.read_exact_at(&mut cell, 100 * ends::CELL as u64).unwrap();
    for byte in 0..ends::CELL {
        let mut damaged = cell;
        damaged[byte] ^= 16;
        file.write_all_at(&damaged, 100 * ends::CELL as u64).unwrap();
        let mut store = Store::open(directory.path(), None).unwrap();
        let error = store.load_all(0).unwrap_err();
        assert!(
            matches!(&error, IndexError::Damaged { path: named, offset: 800, .. } if *named == path),
            "{error}"
        );
    }
}
