//! HTTP as a test speaks it: whole requests, or bytes as they are.

use super::lines::DEADLINE;
use super::server::{Server, Setup};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Sends bytes as they are, and reads until the server closes: all that it says.
#[track_caller]
pub(crate) fn raw(server: &Server, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = connect(server);
    // The server may have heard enough, and closed, before the end.
    let _ = stream.write_all(bytes.as_ref());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.http()).expect("a socket");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream.set_write_timeout(Some(DEADLINE)).expect("a socket");
    stream
}

pub(crate) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

pub(crate) fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[track_caller]
pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text:?} is not JSON"))
}

/// The answer to a GET that must succeed.
#[track_caller]
pub(crate) fn get(server: &Server, path: &str) -> Value {
    let (status, body) = server.get(path);
    assert_eq!(status, 200, "{path}: {body}");
    parsed(&body)
}

/// The error of a GET that must not.
#[track_caller]
pub(crate) fn refused(server: &Server, path: &str) -> (u16, String) {
    let (status, body) = server.get(path);
    let error = parsed(&body)["error"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned();
    (status, error)
}

pub(crate) fn post(server: &Server, path: &str, text: &str) -> (u16, Value) {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    let answer = raw(server, format!("{head}Content-Length: {}\r\n\r\n{text}", text.len()));
    (status(&answer), parsed(body(&answer)))
}

/// A server with many hosts that wait for a spider; it knows the addresses of some more.
pub(crate) fn many_hosts(count: usize) -> Server {
    let more = (0..100).flat_map(|n| [format!("127.1.0.1 a{n}.example"), format!("127.1.0.1 z{n}.example")]);
    let address = |n: usize| format!("127.0.{}.{} h{n:04}.example", n / 200, n % 200 + 1);
    let hosts: Vec<String> = (0..count).map(address).chain(more).collect();
    let seeds: Vec<String> = (0..count).map(|n| format!("http://h{n:04}.example/")).collect();
    let server = Setup::new().hosts(&[&hosts.join("\n")]).seeds(&[&seeds.join("\n")]).start();
    server.until_stat("queued", count as u64);
    server
}
