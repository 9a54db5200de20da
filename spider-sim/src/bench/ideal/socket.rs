//! One thread, one connection, no waiting but for the kernel: as little as can be between a structure and a socket.

use super::line::take_done;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// Bytes of lines that are made at once.
const WRITE: usize = 64 * 1024;
/// Most bytes read at once.
const READ_MAX: usize = 256 * 1024;

/// Where lines come from.
pub(super) trait Source {
    /// Adds one line, if one may go now.
    fn put_line(&mut self, out: &mut Vec<u8>) -> bool;
    /// One was acknowledged.
    fn handle_done(&mut self, number: u32);
    /// All lines have been written to the socket.
    fn handle_written(&mut self) {}
    /// When one may go, if that depends on time.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// A connection begins.
    fn handle_start(&mut self) {}
}

/// Serves one connection after the other.
pub(super) fn serve(listener: &TcpListener, source: &mut impl Source) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        source.handle_start();
        converse(stream, source)?;
    }
}

/// Until the client ends it.
fn converse(mut stream: TcpStream, source: &mut impl Source) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut out = Vec::with_capacity(2 * WRITE);
    let mut written = 0;
    let mut input = vec![0; READ_MAX];
    let mut rest = 0;
    loop {
        if written == out.len() {
            out.clear();
            written = 0;
            while out.len() < WRITE && source.put_line(&mut out) {}
        }
        let wrote = if written < out.len() { attempt(stream.write(&out[written..]))? } else { None };
        written += wrote.unwrap_or(0);
        if wrote.is_some() && written == out.len() {
            source.handle_written();
        }
        let read = attempt(stream.read(&mut input[rest..]))?;
        match read {
            Some(0) => return Ok(()),
            Some(n) => rest = take_answers(&mut input, rest + n, source)?,
            None if wrote.is_none() => wait(&stream, written < out.len(), source.due())?,
            None => {}
        }
    }
}

/// Nothing where it would have to wait; a connection that is broken has ended.
fn attempt(result: std::io::Result<usize>) -> std::io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Ok(Some(0)),
            _ => Err(error),
        },
    }
}

/// Returns how many bytes are left over, at the front.
fn take_answers(input: &mut [u8], filled: usize, source: &mut impl Source) -> anyhow::Result<usize> {
    let mut start = 0;
    while let Some(answer) = take_done(&input[start..filled]) {
        let (number, length) = answer?;
        source.handle_done(number);
        start += length;
    }
    input.copy_within(start..filled, 0);
    Ok(filled - start)
}

fn wait(stream: &TcpStream, to_write: bool, due: Option<Instant>) -> anyhow::Result<()> {
    let flags = if to_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(&mut [PollFd::new(stream, flags)], left.as_ref()) {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}
