//! URLs into a server, as `POST /api/urls`: streamed, so that any number of them costs one buffer.

use super::workload::Workload;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Time without an answer after which the server is taken to be stuck.
const STUCK: Duration = Duration::from_secs(600);

/// What the server says.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
pub(super) struct Fed {
    pub(super) accepted: u64,
    pub(super) duplicate: u64,
    pub(super) rejected: u64,
}

/// Puts all URLs in. All of them must be taken.
pub(super) fn post(http: &str, work: &Workload) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(http).with_context(|| format!("cannot connect to {http}"))?;
    stream.set_read_timeout(Some(STUCK))?;
    stream.set_write_timeout(Some(STUCK))?;
    write!(
        stream,
        "POST /api/urls HTTP/1.1\r\nHost: {http}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )?;
    work.write_seeds(&mut Chunks { stream: &mut stream, head: Vec::new() })?;
    stream.write_all(b"0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let fed: Fed = serde_json::from_slice(body(&answer)?)?;
    if fed.accepted != work.urls() {
        bail!("of {} URLs: {fed:?}", work.urls());
    }
    Ok(())
}

/// Asks for something, and returns its body.
pub(super) fn get(http: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(http)?;
    stream.set_read_timeout(Some(STUCK))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(body(&answer)?).into_owned())
}

/// The body of an answer that was good. The server says how long it is, and closes behind it.
fn body(answer: &[u8]) -> anyhow::Result<&[u8]> {
    let head = memchr::memmem::find(answer, b"\r\n\r\n").context("no answer")?;
    let (head, body) = answer.split_at(head + 4);
    if !head.starts_with(b"HTTP/1.1 200") {
        bail!("the server answers {}", String::from_utf8_lossy(answer));
    }
    Ok(body)
}

/// Every write is a chunk.
struct Chunks<'a> {
    stream: &'a mut TcpStream,
    head: Vec<u8>,
}

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.head.clear();
        write!(self.head, "{:x}\r\n", bytes.len())?;
        self.stream.write_all(&self.head)?;
        self.stream.write_all(bytes)?;
        self.stream.write_all(b"\r\n")?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bench::workload::Names;
    use std::net::TcpListener;

    fn answer_once(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let http = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n0\r\n\r\n") {
                let mut part = [0; 4096];
                let read = stream.read(&mut part).unwrap();
                request.extend_from_slice(&part[..read]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
        });
        http
    }

    #[test]
    fn what_is_not_taken_is_an_error() {
        let work = Workload::even(Names::Addresses, 3, 1);
        let good = "HTTP/1.1 200 OK\r\n\r\n{\"accepted\":3,\"duplicate\":0,\"rejected\":0,\"errors\":[]}";
        post(&answer_once(good), &work).unwrap();
        let some = "HTTP/1.1 200 OK\r\n\r\n{\"accepted\":2,\"duplicate\":1,\"rejected\":0,\"errors\":[]}";
        assert!(post(&answer_once(some), &work).unwrap_err().to_string().contains("duplicate: 1"));
        assert!(post(&answer_once("HTTP/1.1 503 No\r\n\r\n{}"), &work).is_err());
    }
}
