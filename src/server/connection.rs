//! One spider's connection: bytes to commands, lines to bytes. Reads and writes without ever waiting.

use crate::document::Outcome;
use crate::ids::{SpiderId, TransId};
use crate::scheduler::Work;
use crate::wire::line::LINE_MAX;
use crate::wire::{Command, CommandError, LineDecoder, LineRef, usual_done, work};
use bytes::{Buf, BytesMut};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

/// Lines in a row that were not understood, after which a connection is closed.
pub(super) const BAD_LINES_MAX: u32 = 100;
/// Bytes waiting to be written, beyond which no more work is given to a spider.
const OUTPUT_MAX: usize = 64 * 1024;
/// Bytes read in one go.
const READ_MAX: usize = 64 * 1024;

/// A connection, by its place among all that ever were.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ConnectionId(pub(super) u64);

/// One spider's connection.
pub(super) struct Connection {
    pub(super) stream: Arc<TcpStream>,
    pub(super) peer: SocketAddr,
    /// Known to the scheduler; not before it has said the right token.
    pub(super) spider: Option<SpiderId>,
    /// The socket has not taken all there was to write.
    pub(super) stuck: bool,
    /// Somebody waits for room in the socket.
    pub(super) awaits_room: bool,
    /// Tells whoever watches the socket to watch again.
    pub(super) watch: Arc<Notify>,
    /// Dropped with the connection: the dialler may dial again.
    _closed: Option<oneshot::Sender<()>>,
    /// Watches the socket, and ends with the connection.
    pub(super) watcher: Option<AbortHandle>,
    /// Waits for room in the socket, and ends with the connection.
    pub(super) waiter: Option<AbortHandle>,
    input: Input,
    output: BytesMut,
    /// Bytes ever written.
    written: u64,
    /// Where each unwritten line of work ends, counted like `written`.
    ends: VecDeque<u64>,
}

/// What reading came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// There may be more at once.
    More,
    /// Nothing more for now.
    Empty,
    /// The spider is gone.
    Gone,
}

/// The next thing a spider says.
pub(super) enum Heard<'a> {
    Command(Command<'a>),
    Bad(CommandError),
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        closed: Option<oneshot::Sender<()>>,
    ) -> Connection {
        Connection {
            stream: Arc::new(stream),
            peer,
            spider: None,
            stuck: false,
            awaits_room: false,
            watch: Arc::new(Notify::new()),
            _closed: closed,
            watcher: None,
            waiter: None,
            input: Input::default(),
            output: BytesMut::new(),
            written: 0,
            ends: VecDeque::new(),
        }
    }

    /// Reads what is there, once.
    pub(super) fn read(&mut self) -> Read {
        self.input.bytes.reserve(READ_MAX);
        match self.stream.try_read_buf(&mut self.input.bytes) {
            Ok(0) => Read::Gone,
            Ok(_) => Read::More,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Read::Empty,
            Err(error) if error.kind() == ErrorKind::Interrupted => Read::More,
            Err(_) => Read::Gone,
        }
    }

    /// What was read, to be heard line by line and put back.
    pub(super) fn take_input(&mut self) -> Input {
        std::mem::take(&mut self.input)
    }

    /// Keeps what was not heard of it for the next time.
    pub(super) fn put_back(&mut self, mut input: Input) {
        input.bytes.advance(std::mem::take(&mut input.used));
        self.input = input;
    }

    /// Puts a line of work into the buffer. False when the buffer is full now.
    pub(super) fn push_work(&mut self, line: &Work<'_>) -> bool {
        work::encode(&mut self.output, line.trans, line.doc, line.ip, line.host, line.tail);
        self.ends.push_back(self.written + self.output.len() as u64);
        self.output.len() < OUTPUT_MAX
    }

    /// Puts an `ERROR` line into the buffer, unless the spider reads none of them.
    pub(super) fn push_error(&mut self, error: CommandError) {
        if self.output.len() < OUTPUT_MAX {
            work::encode_error(&mut self.output, error);
        }
    }

    /// Bytes ever written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Whether nothing has been written since `written` bytes were.
    pub(super) fn is_stuck_at(&self, written: u64) -> bool {
        self.written == written && self.has_output()
    }

    /// Whether something waits to be written.
    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Writes what the socket takes; the number of lines of work that are wholly written by this.
    pub(super) fn write(&mut self) -> io::Result<usize> {
        while !self.output.is_empty() {
            match self.stream.try_write(&self.output) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.output.advance(n);
                    self.written += n as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let whole = if self.output.is_empty() {
            self.ends.len()
        } else {
            self.ends.partition_point(|&end| end <= self.written)
        };
        self.ends.drain(..whole);
        Ok(whole)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Each holds the socket open.
        [&self.watcher, &self.waiter].into_iter().flatten().for_each(AbortHandle::abort);
    }
}

/// What a connection has said and nobody has heard yet.
pub(super) struct Input {
    bytes: BytesMut,
    /// How much of `bytes` was heard.
    used: usize,
    decoder: LineDecoder,
    bad_in_row: u32,
}

impl Default for Input {
    fn default() -> Self {
        Input { bytes: BytesMut::new(), used: 0, decoder: LineDecoder::ascii(LINE_MAX), bad_in_row: 0 }
    }
}

impl Input {
    /// The end of a fetch, if that is what the next line says and it says it in the usual way.
    pub(super) fn next_done(&mut self) -> Option<(TransId, Outcome)> {
        if !self.decoder.is_at_start() {
            return None;
        }
        let (trans, outcome, len) = usual_done(&self.bytes[self.used..])?;
        self.used += len;
        self.bad_in_row = 0;
        Some((trans, outcome))
    }

    /// The next line that was read whole.
    pub(super) fn next_line(&mut self) -> Option<LineRef<'_>> {
        self.decoder.next_in(&self.bytes, &mut self.used)
    }

    /// Keeps count of lines that were not understood; false when there were too many in a row.
    pub(super) fn count_line(&mut self, understood: bool) -> bool {
        self.bad_in_row = if understood { 0 } else { self.bad_in_row + 1 };
        self.bad_in_row < BAD_LINES_MAX
    }
}

/// What a line says.
pub(super) fn hear(line: LineRef<'_>) -> Option<Heard<'_>> {
    match line {
        LineRef::Text(text) => match Command::parse(text) {
            Ok(command) => command.map(Heard::Command),
            Err(error) => Some(Heard::Bad(error)),
        },
        LineRef::TooLong(_) => Some(Heard::Bad(CommandError::TooLong)),
        LineRef::NotAscii => Some(Heard::Bad(CommandError::NotAscii)),
    }
}
