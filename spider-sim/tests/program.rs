//! The program as a user sees it: exit codes, table, JSON.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};

/// A server for one connection that sends each line and waits for a status after each.
fn server(lines: &'static [&'static str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut out, _) = listener.accept().unwrap();
        drop(listener);
        let mut statuses = BufReader::new(out.try_clone().unwrap()).lines();
        for line in lines {
            out.write_all(format!("{line}\n").as_bytes()).unwrap();
            statuses.next();
        }
    });
    addr
}

fn spider_sim(args: &str, addr: SocketAddr) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spider-sim"))
        .args(args.split_whitespace())
        .args(["--connect", &addr.to_string(), "--patience", "0.3", "--latency", "constant:0"])
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

const GOOD: &[&str] = &["1 1 192.0.2.1 http://a.example/", "2 2 192.0.2.2 http://b.example/"];

#[test]
fn a_clean_run_is_0_with_a_table_and_the_command_to_repeat_it() {
    let output = spider_sim("run --seed 7 --urls 2", server(GOOD));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table = stdout(&output);
    for words in ["URLs          2", "violations    0", "losses        0", "run --seed 7 --urls 2 --connect"]
    {
        assert!(table.contains(words), "{table}");
    }
}

#[test]
fn run_is_what_happens_without_a_command() {
    let output = spider_sim("--json --urls 2", server(GOOD));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let facts: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&facts["urls"], &facts["hosts"]), (&2.into(), &2.into()));
    assert!(facts["command"].as_str().unwrap().ends_with(&format!("--seed {}", facts["seed"])));
}

#[test]
fn a_violation_is_1() {
    let output =
        spider_sim("run", server(&["1 1 192.0.2.1 http://a.example/", "1 1 192.0.2.1 http://a.example/"]));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("document 1 was sent again"), "{output:?}");
}

#[test]
fn a_loss_is_1() {
    let output = spider_sim("run --json --urls 3", server(GOOD));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let facts: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&facts["losses"], &facts["violations"]), (&1.into(), &0.into()));
}

#[test]
fn bad_usage_is_2() {
    for args in ["run --profile rude", "run --req-host-per-sec 0", "run --req-host-concurrent x", "dance"] {
        let output = spider_sim(args, server(GOOD));
        assert_eq!(output.status.code(), Some(2), "{args}: {output:?}");
    }
    let bench = Command::new(env!("CARGO_BIN_EXE_spider-sim"))
        .args(["bench", "--urls", "5", "--hosts", "9"])
        .output();
    assert_eq!(bench.unwrap().status.code(), Some(2));
}

#[test]
fn a_token_is_not_repeated() {
    let output = spider_sim("run --token s3cret --urls 2", server(GOOD));
    assert!(!stdout(&output).contains("s3cret"), "{output:?}");
}
