//! Every conversation in `fixtures/conversations` is held with the real scheduler and the real wire code, in
//! virtual time. `UPDATE_FIXTURES=1` writes what the server says into the texts.

#[path = "support/conversation/mod.rs"]
mod conversation;

use conversation::{Mode, play};
use std::path::{Path, PathBuf};

fn texts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/conversations");
    let entries = std::fs::read_dir(folder).expect("the folder of conversations");
    let paths = entries.map(|entry| entry.expect("a file").path());
    let mut texts: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    texts.sort();
    texts
}

/// Plays one file; what was wrong, with its place.
fn hold(path: &Path, mode: Mode) -> Result<(), String> {
    let shown = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(path).display();
    let text = std::fs::read_to_string(path).expect("a readable file");
    let new = play(&text, mode).map_err(|error| format!("{shown}:{error}"))?;
    if new != text {
        std::fs::write(path, new).expect("a writable file");
    }
    Ok(())
}

#[test]
fn every_conversation_goes_as_written() {
    let mode = if std::env::var_os("UPDATE_FIXTURES").is_some() { Mode::Rewrite } else { Mode::Compare };
    let texts = texts();
    assert!(!texts.is_empty());
    let faults: Vec<String> = texts.iter().filter_map(|path| hold(path, mode).err()).collect();
    assert!(faults.is_empty(), "{} of {} failed\n{}", faults.len(), texts.len(), faults.join("\n"));
}

const SMALL: &str = "\
queue_count = 1
---
index< CANDIDATES 100
A connects
index> 7 http://a.example/ ip=192.0.2.1
A< T1 7 192.0.2.1 http://a.example/
@ 0.5s
A> T1 DONE 200
index< 7 DONE 200
";

#[track_caller]
fn check_refusal(from: &str, to: &str, place_and_words: &[&str]) {
    assert!(SMALL.contains(from), "{from}");
    let error = play(&SMALL.replace(from, to), Mode::Compare).expect_err(to);
    for words in place_and_words {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_conversation_that_goes_otherwise_is_refused_by_its_line() {
    assert_eq!(play(SMALL, Mode::Compare).as_deref(), Ok(SMALL));
    check_refusal(
        "192.0.2.1 http",
        "192.0.2.2 http",
        &["6: @ 0s", "expected: A< T1 7 192.0.2.2", "192.0.2.1"],
    );
    check_refusal("A< T1", "B< T1", &["6: ", "got: A< T1"]);
    check_refusal("index< 7 DONE 200\n", "", &["8: @ 0.5s", "silence", "index< 7 DONE 200"]);
    check_refusal("index< 7 DONE 200\n", "@ 1s\n", &["9: ", "silence", "index< 7 DONE 200"]);
    check_refusal("A> T1 DONE 200\n", "left: 0\n", &["9: ", "expected: index< 7 DONE 200", "got: silence"]);
    check_refusal("A> T1 DONE 200\nindex< 7 DONE 200\n", "", &["7: ", "0 documents left", "got: 1"]);
    check_refusal("@ 0.5s\n", "@ 66s\n", &["9: @ 66s", "expected: index< 7 DONE 200", "got: silence"]);
    check_refusal("T1 DONE", "T2 DONE", &["8: ", "nothing was sent as T2"]);
    check_refusal("queue_count", "queue_cuont", &["1: ", "queue_cuont"]);
}

#[test]
fn rewriting_puts_in_what_is_said_and_when() {
    let asked = SMALL.lines().filter(|line| !line.contains('<')).collect::<Vec<_>>().join("\n");
    let asked = asked.replace("@ 0.5s", "@ 0s\n@ 0.5s").replace("A connects", "<\nA connects");
    let written = play(&asked, Mode::Rewrite).expect("a conversation");
    assert_eq!(written.replace("@ 0s\n", ""), SMALL);
    assert_eq!(play(&written, Mode::Rewrite).as_ref(), Ok(&written), "once is enough");
}
