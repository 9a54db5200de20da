//! An index elsewhere: the socket under a [`Dialogue`]. Dials, and dials again for ever.

use super::dialogue::{Dialogue, Heard};
use super::{Added, Addition, Counters, DocumentIndex, IndexEvent};
use crate::document::Report;
use crate::time::Duration;
use crate::wire::LineDecoder;
use crate::wire::line::INDEX_LINE_MAX;
use bytes::BytesMut;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

/// Bytes read at once, at most.
const READ_MAX: usize = 64 * 1024;
/// Faults of the index are logged this often.
const LOG_GAP: Duration = Duration::from_secs(10);
/// Longer than anybody waits.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// How patient the connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpOptions {
    /// Wait before the first new attempt; doubles with each.
    pub backoff_min: Duration,
    /// Longest wait between two attempts.
    pub backoff_max: Duration,
    /// Longest wait for a connection.
    pub dial_max: Duration,
    /// Longest silence while the index owes an answer, and longest time that it may read nothing.
    pub silence_max: Duration,
    /// Longest time for the last reports at the end.
    pub close_max: Duration,
}

impl Default for TcpOptions {
    fn default() -> Self {
        TcpOptions {
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
            dial_max: Duration::from_secs(10),
            silence_max: Duration::from_secs(60),
            close_max: Duration::from_secs(1),
        }
    }
}

/// The client of an index that listens at an address.
pub struct TcpIndex {
    address: String,
    options: TcpOptions,
    dialogue: Dialogue,
    link: Link,
    /// Attempts since the last connection that was of use.
    failures: u32,
    faults: FaultLog,
}

type Dial = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

enum Link {
    Waiting(Instant),
    Dialing(Dial),
    Open(Connection),
}

/// Why a connection has ended.
#[derive(Debug, Error)]
enum LinkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("closed by the index")]
    Closed,
    #[error("the index is silent")]
    Silent,
    #[error("too many candidates that were not asked for, or cannot be used")]
    Broken,
}

impl TcpIndex {
    /// Will dial `address` (`HOST:PORT`) as soon as events are asked for.
    pub fn new(address: impl Into<String>, options: TcpOptions) -> Self {
        TcpIndex {
            address: address.into(),
            options,
            dialogue: Dialogue::default(),
            link: Link::Waiting(Instant::now()),
            failures: 0,
            faults: FaultLog::default(),
        }
    }

    /// One thing that happens on the connection, or on the way to one. May be dropped at any time.
    async fn step(&mut self) {
        let result = match &mut self.link {
            Link::Waiting(until) => {
                sleep_until(*until).await;
                self.link = Link::Dialing(dial(self.address.clone(), self.options.dial_max));
                Ok(())
            }
            Link::Dialing(dial) => dial.await.map_err(LinkError::from).map(|stream| {
                self.link = Link::Open(Connection::new(stream, self.options.silence_max));
                self.dialogue.handle_connected();
                tracing::info!(index = self.address, "connected to the document index");
            }),
            Link::Open(connection) => connection.step(&mut self.dialogue, &mut self.faults).await,
        };
        if let Err(error) = result {
            self.handle_lost(&error);
        }
    }

    fn handle_lost(&mut self, error: &LinkError) {
        if self.was_of_use() {
            self.failures = 0;
        }
        let delay = self.options.backoff(self.failures);
        self.failures = self.failures.saturating_add(1);
        tracing::warn!(index = self.address, %error, retry_in = ?delay, "no connection to the document index");
        self.link = Link::Waiting(Instant::now() + delay);
        self.dialogue.handle_disconnected();
    }

    /// An index that accepts and hangs up must not be dialled as if each time were the first.
    fn was_of_use(&self) -> bool {
        match &self.link {
            Link::Open(connection) => {
                self.dialogue.has_answered() || connection.opened.elapsed() > self.options.backoff_max
            }
            Link::Waiting(_) | Link::Dialing(_) => false,
        }
    }

    /// Writes all that is left, and waits until the index has closed, so that nothing is lost on the way.
    async fn deliver(&mut self) {
        self.dialogue.cancel_ask();
        if let Link::Waiting(until) = &mut self.link {
            *until = Instant::now();
        }
        while self.dialogue.has_unwritten() || self.has_output() {
            self.step().await;
            while self.dialogue.poll_event().is_some() {}
        }
        if let Link::Open(connection) = &mut self.link {
            connection.finish().await;
        }
    }

    fn has_output(&self) -> bool {
        matches!(&self.link, Link::Open(connection) if !connection.output.is_empty())
    }
}

impl DocumentIndex for TcpIndex {
    fn ask(&mut self, n: usize, reject: Vec<Box<str>>) {
        self.dialogue.handle_ask(n, reject);
    }

    fn report(&mut self, reports: Vec<Report>) {
        self.dialogue.handle_reports(reports);
    }

    fn add(&mut self, urls: Vec<Addition>, reply: oneshot::Sender<Vec<Added>>) {
        // Whoever asked may be gone.
        let _ = reply.send(self.dialogue.handle_adds(urls));
    }

    async fn event(&mut self) -> IndexEvent {
        loop {
            if let Some(event) = self.dialogue.poll_event() {
                return event;
            }
            self.step().await;
        }
    }

    async fn close(&mut self) {
        if timeout(self.options.close_max, self.deliver()).await.is_err() {
            tracing::warn!(index = self.address, "the document index has not confirmed the last reports");
        }
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(self.dialogue.counters())
    }
}

impl TcpOptions {
    /// The wait after this many failures, give or take a quarter, so that many servers do not come at once.
    fn backoff(&self, failures: u32) -> Duration {
        let delay = self.backoff_min.saturating_mul(1 << failures.min(16)).min(self.backoff_max);
        delay.mul_f64(0.75 + 0.5 * fastrand::f64())
    }
}

fn dial(address: String, limit: Duration) -> Dial {
    Box::pin(async move {
        let stream = timeout(limit, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(stream)
    })
}

struct Connection {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    decoder: LineDecoder,
    silence_max: Duration,
    opened: Instant,
    /// When the index last said something, or was asked.
    heard: Option<Instant>,
    /// When the index last read something, or was given something to read.
    read: Option<Instant>,
}

impl Connection {
    fn new(stream: TcpStream, silence_max: Duration) -> Self {
        Connection {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            decoder: LineDecoder::bytes(INDEX_LINE_MAX),
            silence_max,
            opened: Instant::now(),
            heard: None,
            read: None,
        }
    }

    async fn step(&mut self, dialogue: &mut Dialogue, faults: &mut FaultLog) -> Result<(), LinkError> {
        dialogue.poll_output(&mut self.output);
        let deadline = self.deadline(dialogue.is_owed_end());
        // Free when the lines read before are gone, as they are.
        self.input.reserve(READ_MAX);
        let (mut reader, mut writer) = self.stream.split();
        tokio::select! {
            read = reader.read_buf(&mut self.input) => {
                if read? == 0 {
                    return Err(LinkError::Closed);
                }
                self.heard = Some(Instant::now());
                self.take_lines(dialogue, faults)
            }
            written = writer.write_buf(&mut self.output), if !self.output.is_empty() => {
                written?;
                self.read = Some(Instant::now());
                Ok(())
            }
            () = sleep_until(deadline) => Err(LinkError::Silent),
        }
    }

    /// A clock runs only while something is owed, and starts when it is first owed.
    fn deadline(&mut self, owed_end: bool) -> Instant {
        let now = Instant::now();
        let since = |clock: &mut Option<Instant>, owed: bool| match owed {
            true => Some(*clock.get_or_insert(now)),
            false => {
                *clock = None;
                None
            }
        };
        let heard = since(&mut self.heard, owed_end);
        let read = since(&mut self.read, !self.output.is_empty());
        let oldest = heard.into_iter().chain(read).min();
        oldest.map_or(now + FOREVER, |start| start + self.silence_max)
    }

    fn take_lines(&mut self, dialogue: &mut Dialogue, faults: &mut FaultLog) -> Result<(), LinkError> {
        let unix_now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        while let Some(line) = self.decoder.next_line(&mut self.input) {
            match dialogue.handle_line(&line, unix_now) {
                Heard::Sense => {}
                Heard::Fault(what) => faults.note(what),
                Heard::Broken => return Err(LinkError::Broken),
            }
        }
        Ok(())
    }

    /// Says that there is no more, and waits for the other end to say so, too.
    async fn finish(&mut self) {
        if self.stream.shutdown().await.is_err() {
            return;
        }
        loop {
            self.input.clear();
            if !matches!(self.stream.read_buf(&mut self.input).await, Ok(1..)) {
                return;
            }
        }
    }
}

/// An index that talks nonsense must not fill the log.
#[derive(Default)]
struct FaultLog {
    last: Option<Instant>,
    unsaid: u64,
}

impl FaultLog {
    fn note(&mut self, what: &'static str) {
        if self.last.is_some_and(|last| last.elapsed() < LOG_GAP) {
            self.unsaid += 1;
            return;
        }
        let unsaid = std::mem::take(&mut self.unsaid);
        tracing::warn!(what, unsaid, "the document index sent something odd");
        self.last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_limit_and_varies() {
        let options = TcpOptions::default();
        for (failures, seconds) in [(0, 1.0), (1, 2.0), (4, 16.0), (5, 30.0), (u32::MAX, 30.0)] {
            let waits: Vec<f64> = (0..100).map(|_| options.backoff(failures).as_secs_f64()).collect();
            assert!(waits.iter().all(|wait| (0.75 * seconds..=1.25 * seconds).contains(wait)), "{waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]));
        }
    }
}
