//! The commands that speak to a running server, from outside: what they print, where, and how they exit.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use support::server::{Server, Setup};

/// In an environment that says nothing about us.
fn urlserver(http: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_urlserver"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("URLSERVER_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).args(["--http", &http.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run_with(mut command: Command, input: &str) -> (i32, String, String) {
    let mut child = command.spawn().unwrap();
    // Whoever refuses at once does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn run(server: &Server, arguments: &[&str], input: &str) -> (i32, String, String) {
    run_with(urlserver(server.http(), arguments), input)
}

/// An address where nobody is.
fn nowhere() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

#[test]
fn files_and_the_standard_input_are_fed() {
    let server = Setup::new().start();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("more.txt");
    let many: String = (0..30_000).map(|n| format!("http://127.0.0.2/{n}\n")).collect();
    std::fs::write(&path, many).unwrap();
    let path = path.to_str().unwrap();
    let (code, out, err) =
        run(&server, &["add", "-", path], "http://127.0.0.1/a\n# no\nhttp://127.0.0.1/a\n");
    assert_eq!((code, &*out, &*err), (0, "30,001 accepted, 1 duplicate, 0 rejected\n", ""));
    let (code, out, _) = run(&server, &["add"], "http://127.0.0.1/b");
    assert_eq!((code, &*out), (0, "1 accepted, 0 duplicate, 0 rejected\n"));
    let (code, out, _) = run(&server, &["add"], "");
    assert_eq!((code, &*out), (0, "0 accepted, 0 duplicate, 0 rejected\n"));
    server.spider().work();
}

#[test]
fn bad_lines_are_named_by_file_and_line() {
    let server = Setup::new().start();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("bad.txt");
    let bad: String = (0..150).map(|n| format!("bad{n}\n")).collect();
    std::fs::write(&path, format!("http://127.0.0.1/\n{bad}")).unwrap();
    let path = path.to_str().unwrap();
    let (code, out, err) = run(&server, &["add", path, "-"], "\nftp://a/\n");
    assert_eq!((code, &*out), (1, "1 accepted, 0 duplicate, 151 rejected\n"));
    assert!(err.contains(&format!("{path}:2: not an absolute URL")), "{err}");
    assert!(err.contains(&format!("{path}: and 50 more\n")), "{err}");
    assert!(err.contains("-:2: not an http or https URL\n"), "{err}");
    assert_eq!(err.lines().count(), 102);
}

#[test]
fn what_cannot_be_read_or_reached_fails_and_is_named() {
    let server = Setup::new().start();
    for file in ["no/such/file", "/"] {
        let (code, out, err) = run(&server, &["add", file], "");
        assert_eq!((code, &*out), (1, ""));
        assert!(err.starts_with(&format!("urlserver: cannot read {file}: ")), "{err}");
    }
    for arguments in [&["add"][..], &["explain", "http://a.example/"], &["top"]] {
        let (code, out, err) = run_with(urlserver(nowhere(), arguments), "http://127.0.0.1/\n");
        assert_eq!((code, &*out), (1, ""), "{arguments:?}");
        assert!(err.starts_with("urlserver: cannot reach 127.0.0.1:1: "), "{err}");
    }
}

#[test]
fn bad_usage_exits_2() {
    let server = Setup::new().start();
    for arguments in [&["explain"][..], &["explain", "no url"], &["explain", "ftp://a/"], &["top", "extra"]] {
        let (code, out, err) = run(&server, arguments, "");
        assert_eq!((code, &*out), (2, ""), "{arguments:?}: {err}");
        assert!(!err.is_empty());
    }
    for address in ["none", "", "localhost", "127.0.0.1:0"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_urlserver"));
        command
            .args(["top", "--http", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (code, _, err) = run_with(command, "");
        assert_eq!(code, 2, "{address}: {err}");
    }
}

#[test]
fn a_token_is_given_by_flag_or_environment() {
    let server = Setup::new().flag("http-token", "secret").start();
    for arguments in [&["add"][..], &["explain", "http://a.example/"], &["top"]] {
        let (code, out, err) = run(&server, arguments, "http://127.0.0.1/\n");
        assert_eq!((code, &*out), (1, ""), "{arguments:?}");
        assert!(err.contains("Bearer TOKEN is needed") && err.contains("401"), "{err}");
        let (code, _, err) =
            run(&server, &[arguments, &["--token", "secret"]].concat(), "http://127.0.0.1/\n");
        assert_eq!(code, 0, "{err}");
        let mut command = urlserver(server.http(), arguments);
        command.env("URLSERVER_HTTP_TOKEN", "secret");
        assert_eq!(run_with(command, "").0, 0);
    }
}

#[test]
fn a_url_is_explained_in_a_sentence_and_facts() {
    let server = Setup::new().seeds(&["http://127.0.0.1/?a=1&b=%20"]).start();
    let mut spider = server.spider();
    let work = spider.work();
    let (code, out, err) = run(&server, &["explain", "http://127.0.0.1/?a=1&b=%20#x"], "");
    assert_eq!((code, &*err), (0, ""));
    let (sentence, facts) = out.split_once("\n\n").unwrap();
    assert!(sentence.starts_with("in flight at spider 127.0.0.1:"), "{out}");
    assert!(
        facts.contains("\ndoc_id: 1\n") && facts.contains("\nhost:\n") && facts.contains("\n  state: busy\n"),
        "{out}"
    );
    spider.done(&work, "200");
    let (code, out, _) = run(&server, &["explain", "http://127.0.0.1/other"], "");
    assert_eq!(code, 0);
    assert!(out.starts_with("unknown: nobody has added it\n\n"), "{out}");
}

#[test]
fn top_prints_one_plain_picture_where_there_is_no_terminal() {
    let server =
        Setup::new().seeds(&["http://127.0.0.1/1", "http://127.0.0.1/2", "http://127.0.0.2/"]).start();
    server.until_stat("queued", 3);
    let (code, out, err) = run(&server, &["top"], "");
    assert_eq!((code, &*err), (0, ""));
    assert!(!out.contains('\u{1b}'), "{out}");
    assert!(
        out.contains("3 queued") && out.contains("0 spiders") && out.contains("index reachable"),
        "{out}"
    );
    let hosts: Vec<&str> = out.lines().filter(|line| line.contains("127.0.0.")).collect();
    assert!(hosts.len() == 2 && hosts[0].ends_with("ready      127.0.0.1"), "{out}");
}

#[test]
fn help_completions_and_the_man_page_know_them() {
    let prints = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_urlserver")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for command in ["add", "explain", "top"] {
        let help = prints(&[command, "--help"]);
        assert!(help.contains("--http") && help.contains("--token"), "{help}");
        assert!(prints(&["man"]).contains(&format!("\\fB{command}\\fR")), "{command}");
        assert!(
            prints(&["completions", "bash"]).contains(&format!("urlserver__subcmd__{command}")),
            "{command}"
        );
    }
    assert!(prints(&["man"]).contains("explain \\-\\-http"), "{}", prints(&["man"]));
}
