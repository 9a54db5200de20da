#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::document::{End, FailReason, Outcome, Report};
use crate::ids::DocId;
use tempfile::TempDir;

const LINES: &str = "\
1 http://a.example/ done 200 1000
7 http://u@a.example/x failed dns 1001
9 https://b.example:81/?q pending
10 http://b.example/ pending not-before=4000000000
11 http://c.example/ done - 1002
12 http://c.example/d denied robots 1003
";

fn exported(directory: &Path) -> String {
    let mut out = Vec::new();
    export(directory, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn imported(lines: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let result = import(directory.path(), lines.as_bytes()).unwrap();
    assert_eq!(result, Imported { accepted: lines.lines().count() as u64, ..Imported::default() });
    directory
}

#[test]
fn what_is_exported_can_be_imported() {
    let directory = imported(LINES);
    assert_eq!(exported(directory.path()), LINES);
    let size = stats(directory.path()).unwrap();
    assert_eq!(size.documents, Counts { pending: 2, done: 2, failed: 1, denied: 1 });
    assert_eq!(size.hosts, 3);
    let again = import(directory.path(), LINES.as_bytes()).unwrap();
    assert_eq!(again, Imported { duplicate: 6, ..Imported::default() });
    assert_eq!(exported(directory.path()), LINES);
}

#[test]
fn seeds_can_be_imported_and_bad_lines_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let lines = "# seeds\nhttp://a.example/ not-before=5\n\nnonsense\n1 http://a.example/x done maybe 3\n\
        5 http://a.example/y done 200 soon\n1 http://b.example/\né http://c.example/";
    let result = import(directory.path(), lines.as_bytes()).unwrap();
    assert_eq!((result.accepted, result.duplicate), (1, 0));
    let numbers: Vec<u64> = result.rejected.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [4, 5, 6, 8, 7], "{:?}", result.rejected);
    assert_eq!(exported(directory.path()), "1 http://a.example/ pending\n");
}

#[test]
fn compaction_forgets_finished_urls_and_knows_them_nevertheless() {
    let pages: String = (0..2_000)
        .map(|n| format!("{} http://h{}.example/a/path/of/some/length/{n} done 200 5\n", n + 100, n % 50))
        .collect();
    let directory = imported(&format!("{pages}{LINES}"));
    for round in 0..3 {
        let (before, after) = compact(directory.path()).unwrap();
        assert!(if round == 0 { after < before * 2 / 3 } else { after <= before }, "{before} -> {after}");
        let text = exported(directory.path());
        let pending: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(pending, LINES.lines().filter(|line| line.contains("pending")).collect::<Vec<_>>());
        assert_eq!(text.lines().filter(|line| line.starts_with('#')).count(), 2_004);
        let size = stats(directory.path()).unwrap();
        assert_eq!(size.documents, Counts { pending: 2, done: 2_002, failed: 1, denied: 1 });
        assert_eq!(size.hosts, 1, "only those with something to do");
        let again = import(directory.path(), format!("{pages}{LINES}").as_bytes()).unwrap();
        assert_eq!((again.duplicate, again.accepted), (2_006, 0));
    }
}

#[test]
fn a_compaction_that_was_not_finished_changes_nothing() {
    let directory = imported(LINES);
    for name in ["documents-2.new", "documents-2.part", "cells-2", "ends-2-1.log"] {
        std::fs::write(directory.path().join(name), b"half").unwrap();
    }
    assert_eq!(exported(directory.path()), LINES);
    let names = super::super::files::names(directory.path()).unwrap();
    assert!(names.iter().all(|name| !name.contains("-2")), "{names:?}");
}

#[test]
fn where_there_is_no_index_none_is_made() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("none")] {
        assert!(matches!(stats(&path), Err(ToolError::NoIndex(_))));
        assert!(matches!(compact(&path), Err(ToolError::NoIndex(_))));
    }
    assert!(!directory.path().join("none").exists());
}

#[test]
fn a_url_that_is_crawled_again_is_one_document() {
    let directory = imported(LINES);
    let after = Some(std::time::Duration::from_secs(10));
    let mut store = Store::open(directory.path(), after).unwrap();
    store.load_all(2_000).unwrap();
    let again = |url: &str| Addition { doc: None, url: Url::parse(url).unwrap(), not_before: None };
    let (answers, _) = store.insert(&[again("http://a.example/"), again("http://a.example/")], 2_000);
    assert_eq!(answers, [Added::Accepted(DocId(1)), Added::Duplicate], "under its old name, once");
    store.take(9, &["b.example".into()], |error| panic!("{error}"));
    store
        .report(
            &[Report { doc: DocId(1), end: End::Failed(FailReason::Outcome(Outcome::Status(503))) }],
            2_001,
        )
        .unwrap();
    drop(store);
    let text = exported(directory.path());
    assert!(text.ends_with("1 http://a.example/ failed 503 2001\n") && text.lines().count() == 6, "{text}");
    assert_eq!(
        stats(directory.path()).unwrap().documents,
        Counts { pending: 2, done: 1, failed: 2, denied: 1 }
    );
    compact(directory.path()).unwrap();
    assert_eq!(
        stats(directory.path()).unwrap().documents,
        Counts { pending: 2, done: 1, failed: 2, denied: 1 }
    );
}
