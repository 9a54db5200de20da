//! `fixtures/field-notes.md` names a test for every bug that others had: each of them exists.

use std::path::Path;

/// Whether a test stands where `name` says: `file::function`, or the name of a conversation.
fn stands(root: &Path, name: &str) -> bool {
    let Some((file, function)) = name.split_once("::") else {
        return root.join("fixtures/conversations").join(name).with_extension("txt").is_file();
    };
    let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
    let declared = format!("fn {function}()");
    let mut lines = text.lines().map(str::trim_start);
    let mut before = "";
    lines.any(|line| {
        let found =
            line.contains(&declared) && (before.starts_with("#[test") || before.starts_with("#[tokio::test"));
        before = line;
        found
    })
}

#[test]
fn every_bug_of_the_field_notes_has_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let notes = std::fs::read_to_string(root.join("fixtures/field-notes.md")).expect("the field notes");
    let bugs: Vec<&str> = notes.lines().filter(|line| line.starts_with("- ")).collect();
    assert!(bugs.len() > 40, "{}", bugs.len());
    for bug in bugs {
        let (_, tests) = bug.rsplit_once(": `").unwrap_or_else(|| panic!("no test: {bug}"));
        for name in tests.trim_end_matches('`').split("`, `") {
            assert!(stands(root, name), "there is no test `{name}`\n{bug}");
        }
    }
    assert!(!stands(root, "no-such-conversation") && !stands(root, "src/time.rs::no_such_test"));
}
