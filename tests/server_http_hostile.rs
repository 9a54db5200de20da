//! The HTTP interface of the real binary, as clients see it that are slow, deaf, confused or evil.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::http::{connect, get, many_hosts, post, raw, refused, status};
use support::lines::{DEADLINE, GLANCE};
use support::server::Setup;

#[test]
fn feeders_that_stall_leave_room_for_others() {
    let server = Setup::new().start();
    let stall = || {
        let mut stream = connect(&server);
        let head = "POST /api/urls HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhttp://";
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut stalled: Vec<TcpStream> = (0..16).map(|_| stall()).collect();
    let end = Instant::now() + DEADLINE;
    // One beyond them is told to come later; whoever wants something else is served. One of them may have been
    // refused itself, if it came while this one was served: another takes its place.
    while post(&server, "/api/urls", "").0 != 503 {
        assert!(Instant::now() < end, "more feeders than there are places");
        stalled.push(stall());
        std::thread::sleep(GLANCE);
    }
    assert_eq!(server.stat("queued"), 0);
    drop(stalled);
    while post(&server, "/api/urls", "http://127.0.0.1/\n").0 != 200 {
        assert!(Instant::now() < end, "places of those who are gone are not free");
        std::thread::sleep(GLANCE);
    }
    assert_eq!(server.spider().work().url, "http://127.0.0.1/");
}

#[test]
fn bad_parameters_are_refused_by_name() {
    let server = Setup::new().start();
    for (path, word) in [
        ("/api/hosts?limit=0", "limit"),
        ("/api/hosts?limit=-1", "limit"),
        ("/api/hosts?limit=1e9", "limit"),
        ("/api/hosts?limit=1001", "limit"),
        ("/api/hosts?limit=99999999999999999999999", "limit"),
        ("/api/hosts?limit=", "limit"),
        ("/api/hosts?limit=1&limit=2", "twice"),
        ("/api/hosts?state=", "state"),
        ("/api/hosts?sate=idle", "sate"),
        ("/api/hosts?after=%zz", "hexadecimal"),
        ("/api/hosts?after=%", "hexadecimal"),
        ("/api/hosts?after=%ff", "UTF-8"),
        ("/api/explain", "url"),
        ("/api/explain?url=", "URL"),
        ("/api/explain?url=a", "URL"),
        ("/api/explain?url=ftp://a/", "http"),
        ("/api/explain?url=http://a/?x=1&y=2", "%26"),
        ("/api/hosts/a.example?x=1", "x"),
    ] {
        let (status, error) = refused(&server, path);
        assert_eq!(status, 400, "{path}: {error}");
        assert!(error.contains(word), "{path}: {error}");
    }
    // Odd, but a place in the order of names.
    for after in ["%00", "%F0%9F%A6%86", "~~~~", "%0d%0aX:y", "../../etc/passwd", "'%20OR%201=1"] {
        assert_eq!(get(&server, &format!("/api/hosts?after={after}"))["next"], Value::Null);
    }
}

#[test]
fn hostile_requests_get_an_error_and_nothing_else_happens() {
    let server = Setup::new().start();
    let host = "Host: localhost\r\nConnection: close\r\n";
    let long = "x".repeat(200_000);
    let many: String = (0..500).map(|n| format!("X-{n}: y\r\n")).collect();
    for (request, expected) in [
        (format!("DELETE /api/stats HTTP/1.1\r\n{host}\r\n"), &[405][..]),
        (format!("GET /api/urls HTTP/1.1\r\n{host}\r\n"), &[405]),
        (format!("BREW /api/stats HTTP/1.1\r\n{host}\r\n"), &[405]),
        (format!("G@T / HTTP/1.1\r\n{host}\r\n"), &[400]),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned(), &[400]),
        (format!("GET /{long} HTTP/1.1\r\n{host}\r\n"), &[414, 431]),
        (format!("GET / HTTP/1.1\r\n{host}X: {long}\r\n\r\n"), &[431]),
        (format!("GET / HTTP/1.1\r\n{host}{many}\r\n"), &[431]),
        (format!("GET / HTTP/9.9\r\n{host}\r\n"), &[400, 505]),
        (format!("GET /../../etc/passwd HTTP/1.1\r\n{host}\r\n"), &[400, 404]),
        (format!("GET /api/hosts/../../etc/passwd HTTP/1.1\r\n{host}\r\n"), &[400, 404]),
        (format!("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n{host}\r\n"), &[400, 404]),
        (format!("GET //api/stats HTTP/1.1\r\n{host}\r\n"), &[400, 404]),
        ("GET /api/stats HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(), &[400]),
        ("GET /api/stats HTTP/1.0\r\n\r\n".to_owned(), &[200]),
        ("GET /api/stats HTTP/1.0\r\nHost: evil.example\r\n\r\n".to_owned(), &[403]),
        (format!("GET /api/stats HTTP/1.1\r\n{host}Host: evil.example\r\n\r\n"), &[400]),
        ("GET /api/stats HTTP/1.1\r\nHost: \u{e9}\r\nConnection: close\r\n\r\n".to_owned(), &[400]),
        (format!("GET http://evil.example/api/stats HTTP/1.1\r\n{host}\r\n"), &[403]),
        (
            format!(
                "POST /api/urls HTTP/1.1\r\n{host}Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n"
            ),
            &[403],
        ),
        (
            format!("POST /api/urls HTTP/1.1\r\n{host}Content-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"),
            &[415],
        ),
        (
            format!(
                "POST /api/urls HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nzz\r\nhttp://127.0.0.1/\n"
            ),
            &[400],
        ),
        (format!("POST /api/urls HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n"), &[400]),
        (
            format!("POST /api/urls HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            &[400],
        ),
        (format!("GET /api/stats HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nhello"), &[200]),
    ] {
        let answer = raw(&server, &request);
        let head: String = request.chars().take(100).collect();
        assert!(expected.contains(&status(&answer)), "{head:?}: {answer:?}");
        assert!(!answer.contains("root:"));
    }
    // Bodies in pieces that break off, and lines that are no HTTP at all.
    drop(
        connect(&server)
            .write_all(b"POST /api/urls HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nhttp://1"),
    );
    drop(connect(&server).write_all(b"\0\0\0\0"));
    assert_eq!(server.stat("queued"), 0);
    assert_eq!(server.stat("sent"), 0);
}

#[test]
fn requests_in_one_go_are_answered_in_order() {
    let server = Setup::new().start();
    let one = |path: &str, last: bool| {
        let end = if last { "Connection: close\r\n" } else { "" };
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{end}\r\n")
    };
    let answer = raw(&server, one("/healthz", false) + &one("/nothing", false) + &one("/readyz", true));
    let statuses: Vec<&str> =
        answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "404", "200"], "{answer}");
}

#[test]
fn the_token_is_needed_for_everything_that_matters() {
    let server = Setup::new().flag("http-token", "secret").start();
    for path in
        ["/", "/metrics", "/api/hosts", "/api/hosts/a", "/api/ips/127.0.0.1", "/api/explain?url=http://a/"]
    {
        assert_eq!(server.get(path).0, 401, "{path}");
        assert_eq!(server.get_with(path, &["Authorization: Bearer secret2"]).0, 401, "{path}");
        assert_eq!(server.get_with(path, &["Authorization: Basic secret"]).0, 401, "{path}");
        assert_ne!(server.get_with(path, &["Authorization: Bearer secret"]).0, 401, "{path}");
    }
    assert_eq!(post(&server, "/api/urls", "http://127.0.0.1/\n").0, 401);
    assert_eq!(server.get("/healthz").0, 200);
}

#[test]
fn heads_that_come_byte_by_byte_are_let_go() {
    let server = Setup::new().start();
    let mut slow = connect(&server);
    slow.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let _ = slow.write_all(b"GET / HTTP/1.1\r\nX: ");
    loop {
        assert!(Instant::now() < end, "never let go");
        let _ = slow.write_all(b"y");
        match slow.read(&mut [0; 1024]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    assert_eq!(server.get("/healthz").0, 200);
}

#[test]
fn clients_that_say_nothing_make_room_for_those_who_ask() {
    let server = Setup::new().start();
    let silent: Vec<TcpStream> = (0..300).map(|_| connect(&server)).collect();
    assert_eq!(get(&server, "/healthz")["status"], "alive");
    // It was not answered because their time was up: those who came late are still there.
    let mut late = &silent[200];
    late.set_nonblocking(true).unwrap();
    assert_eq!(late.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let mut first = &silent[0];
    assert_eq!(first.read(&mut [0]).unwrap_or(0), 0, "who has been silent longest is let go");
}

#[test]
fn a_client_that_never_reads_is_let_go_and_stops_nobody() {
    let server = many_hosts(1_000);
    let before = server.open_sockets();
    let mut deaf = connect(&server);
    deaf.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let request = b"GET /api/hosts?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Far more than the sockets hold.
    for _ in 0..500 {
        if deaf.write_all(request).is_err() {
            break;
        }
    }
    assert_eq!(server.spider().works(10).len(), 10);
    let end = Instant::now() + Duration::from_secs(60);
    while server.open_sockets() > before {
        assert!(Instant::now() < end, "never let go");
        assert_eq!(server.get("/healthz").0, 200);
        std::thread::sleep(GLANCE);
    }
}

#[test]
fn a_feeder_that_hangs_up_keeps_nobody_from_being_done() {
    let server = Setup::new().flag("exit-when-done", "true").seeds(&["http://127.0.0.1/"]).start();
    let mut spider = server.spider();
    let work = spider.work();
    let mut stream = connect(&server);
    let head =
        "POST /api/urls HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    stream.write_all(b"http://127.0.0.1/never").unwrap();
    drop(stream);
    spider.done(&work, "200");
    assert_eq!(server.end(DEADLINE).code, Some(0));
}

#[test]
fn an_index_without_room_is_said_line_by_line() {
    // Nobody is at that door: URLs wait for the index until there are too many of them.
    let server = Setup::new().flag("index", "tcp://127.0.0.1:1").start();
    let long = "x".repeat(15_000);
    let text: String = (0..3_000).map(|n| format!("http://a.example/{n}{long}\n")).collect();
    let (status, answer) = post(&server, "/api/urls", &text);
    assert_eq!(status, 200, "{answer}");
    let (accepted, rejected) = (answer["accepted"].as_u64().unwrap(), answer["rejected"].as_u64().unwrap());
    assert!(accepted > 0 && rejected > 0 && accepted + rejected == 3_000, "{accepted} {rejected}");
    let reason = answer["errors"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("index cannot be reached"), "{reason}");
}
