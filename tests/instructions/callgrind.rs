//! Counts the instructions of functions, with callgrind.

#[path = "../support/debian.rs"]
mod debian;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Instructions by function, with all that it called. Right for functions that do not call themselves.
pub(crate) type Counts = BTreeMap<String, u64>;

/// One test of this program under callgrind.
pub(crate) struct Run {
    test: &'static str,
    profile: PathBuf,
    child: Child,
}

/// A run that has ended.
pub(crate) struct Ended {
    test: &'static str,
    /// What callgrind wrote; stays there for people to look at.
    pub(crate) profile: PathBuf,
    output: Output,
}

/// Begins a run of `test`.
pub(crate) fn start(test: &'static str) -> Run {
    let valgrind = debian::installed("valgrind", find);
    let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind.{test}"));
    let _ = std::fs::remove_file(&profile);
    let child = Command::new(valgrind)
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", test, "--test-threads=1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Run { test, profile, child: child.expect("valgrind starts") }
}

impl Run {
    /// Waits for its end.
    pub(crate) fn end(self) -> Ended {
        let output = self.child.wait_with_output().expect("valgrind ends");
        Ended { test: self.test, profile: self.profile, output }
    }
}

impl Ended {
    pub(crate) fn counts(&self) -> Counts {
        let Output { status, stdout, stderr } = &self.output;
        let said = [stdout, stderr].map(|said| String::from_utf8_lossy(said)).concat();
        assert!(status.success(), "{} under callgrind: {said}", self.test);
        let profile = std::fs::read_to_string(&self.profile);
        parse(&profile.unwrap_or_else(|error| panic!("{}: {error}: {said}", self.profile.display())))
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|bin| bin.join("valgrind")).find(|program| program.exists())
}

/// Reads a profile that was written without compression and with one kind of event. Below `fn=` stand lines of
/// a position and a count: of the function itself, and, each after a `calls=`, of what it called.
fn parse(profile: &str) -> Counts {
    let mut counts = Counts::new();
    let mut function: Option<&str> = None;
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = Some(plain(name));
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let count = line.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok());
            if let (Some(function), Some(count)) = (function, count) {
                *counts.entry(function.to_owned()).or_default() += count;
            }
        }
    }
    counts
}

/// A function's name without the hash that the compiler puts behind it.
fn plain(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((plain, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => plain,
        Some(_) | None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
version: 1
creator: callgrind-3.19.0
pid: 1
cmd: instructions
part: 1

positions: line
events: Ir
summary: 1000

ob=/instructions
fl=/phases.rs
fn=instructions::phases::send::h0123456789abcdef
10 7
fi=/elsewhere.rs
300 5
fe=/phases.rs
cfi=/send.rs
cfn=urlserver::scheduler::send::poll_send
calls=3 20
12 600
14 2

fl=/send.rs
fn=urlserver::scheduler::send::poll_send
20 590
cfn=malloc
calls=1 0
20 10

fl=/phases.rs
fn=instructions::phases::send::h0123456789abcdef
10 100

totals: 1000
";

    #[test]
    fn a_function_costs_its_own_instructions_and_those_of_what_it_calls() {
        let counts = parse(PROFILE);
        assert_eq!(counts["instructions::phases::send"], 7 + 5 + 600 + 2 + 100);
        assert_eq!(counts["urlserver::scheduler::send::poll_send"], 600);
        assert_eq!(counts.len(), 2);
    }

    #[test]
    fn names_lose_their_hash_and_nothing_else() {
        assert_eq!(plain("a::b::h0123456789abcdef"), "a::b");
        for name in ["a::b", "a::hear", "a::h0123456789abcdeg", "h0123456789abcdef"] {
            assert_eq!(plain(name), name);
        }
    }
}
