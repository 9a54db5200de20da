//! The README is true: its session is played on the real server, its settings table is the code's.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
const TABLE_START: &str = "<!-- settings: written by `UPDATE_FIXTURES=1 cargo test --test readme` -->\n";
const TABLE_END: &str = "<!-- end of settings -->";

fn readme() -> String {
    std::fs::read_to_string(README).unwrap()
}

/// The server of the README's first command, on free ports; ended when dropped.
struct Server {
    child: Child,
    listen: String,
    http: String,
}

impl Server {
    fn start() -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_urlserver"))
            .args([
                "serve",
                "--config",
                "fixtures/demo.toml",
                "--listen",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let address = |name: &str| ready.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap();
        Server { listen: address("listen=").to_owned(), http: address("http=").to_owned(), child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What follows the TRANS_ID of a line of work.
fn work(line: &str) -> Option<(&str, &str)> {
    let (trans, rest) = line.split_once(' ')?;
    rest.contains("http").then_some((trans, rest))
}

#[test]
fn the_session_goes_as_printed() {
    let text = readme();
    let (_, session) = text.split_once("$ nc 127.0.0.1 4332\n").unwrap();
    let (session, _) = session.split_once("```").unwrap();
    let server = Server::start();
    let mut typed = TcpStream::connect(&server.listen).unwrap();
    typed.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut seen = BufReader::new(typed.try_clone().unwrap());
    let mut ids: HashMap<String, String> = HashMap::new();
    let mut lines = session.lines().peekable();
    while let Some(&line) = lines.peek() {
        if work(line).is_none() && !line.starts_with("ERROR") {
            lines.next();
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            let first = ids.get(first).map_or(first, String::as_str);
            writeln!(typed, "{first} {rest}").unwrap();
            continue;
        }
        // Lines that come together come in any order: names are looked up in parallel.
        let mut printed: BTreeSet<(String, String)> = BTreeSet::new();
        while let Some(line) = lines.next_if(|line| work(line).is_some() || line.starts_with("ERROR")) {
            let (trans, rest) = work(line).unwrap_or(("", line));
            printed.insert((rest.to_owned(), trans.to_owned()));
        }
        for _ in 0..printed.len() {
            let mut line = String::new();
            seen.read_line(&mut line).unwrap();
            let line = line.trim_end();
            let (trans, rest) = work(line).unwrap_or(("", line));
            // Of two hosts on one address the one that is looked up first goes first.
            let same_address = |printed: &str| printed.split(' ').nth(1) == rest.split(' ').nth(1);
            let exact = printed.iter().find(|(printed, _)| printed == rest);
            let shared =
                || printed.iter().find(|(printed, _)| rest.contains("127.0.0.17") && same_address(printed));
            let known = exact.or_else(shared).cloned();
            let known = known.unwrap_or_else(|| panic!("the README does not have: {line}"));
            ids.insert(known.1.clone(), trans.to_owned());
            printed.remove(&known);
        }
    }
}

/// Every command of the two sections runs as printed, but for the port, and gets an answer that is no error.
#[test]
fn feeding_and_watching_go_as_printed() {
    let text = readme();
    let (_, rest) = text.split_once("## Feeding it\n").unwrap();
    let (sections, _) = rest.split_once("## Telling it what to do\n").unwrap();
    let server = Server::start();
    let binary = env!("CARGO_BIN_EXE_urlserver");
    let curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok();
    let commands = sections.lines().filter_map(|line| line.strip_prefix("    "));
    let (mut ours, mut theirs) = (0, 0);
    // All seven addresses are known once something was sent to each.
    let spider = TcpStream::connect(&server.listen).unwrap();
    spider.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(BufReader::new(&spider).lines().take(7).filter_map(Result::ok).count(), 7);
    for command in commands {
        let command = match command.strip_prefix("urlserver ") {
            Some(rest) => format!("{binary} {rest}"),
            None if curl => command.replace("127.0.0.1:4333", &server.http),
            None => continue,
        };
        ours += usize::from(command.starts_with(binary));
        theirs += usize::from(command.starts_with("curl "));
        let output = Command::new("sh")
            .args(["-c", &command])
            .env("URLSERVER_HTTP", &server.http)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && !answer.is_empty(),
            "{command}: {output:?}",
            output = output.stderr
        );
        assert!(!answer.contains("\"error\""), "{command}: {answer}");
    }
    assert_eq!((ours, theirs), (4, if curl { 7 } else { 0 }));
}

#[test]
fn the_settings_table_is_that_of_the_code() {
    let text = readme();
    let (before, rest) = text.split_once(TABLE_START).unwrap();
    let (table, after) = rest.split_once(TABLE_END).unwrap();
    let wanted = format!("\n{}\n", urlserver::settings::markdown_table());
    if table != wanted && std::env::var_os("UPDATE_FIXTURES").is_some() {
        std::fs::write(README, format!("{before}{TABLE_START}{wanted}{TABLE_END}{after}")).unwrap();
    } else {
        assert_eq!(table, wanted, "run: UPDATE_FIXTURES=1 cargo test --test readme");
    }
}

#[test]
fn every_path_it_names_is_there() {
    let text = readme();
    let words = text.split(|c: char| c.is_whitespace() || "`()[],:".contains(c));
    let paths: BTreeSet<&str> = words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| ["src/", "tests/", "fixtures/"].iter().any(|top| word.starts_with(top)))
        .filter(|word| !word.contains('*'))
        .collect();
    assert!(paths.len() > 8);
    for path in paths {
        assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "{path}");
    }
}
