//! `POST /api/urls`: URLs for the index, lines as in a file of seeds, of any length.
//!
//! The body is read as fast as the index takes it, and no faster. Whoever stops in the middle is let go after a while,
//! in which waits of our own for the index do not count.

use super::{Refusal, Shared};
use crate::index::seeds::{self, FeedError, SeedError};
use crate::server::hub::{Event, Hub};
use crate::time::Duration;
use axum::Json;
use axum::body::{Body, HttpBody};
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use bytes::{Buf, Bytes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

/// Bodies read at the same time: a few slow ones must not take all places for connections.
pub(super) const FEEDERS_MAX: usize = 16;
/// Longest silence in the middle of a body.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Errors that are told.
const ERRORS_MAX: usize = 100;

pub(super) async fn urls(
    State(desk): Shared,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    super::query::Query::parse(query.as_deref(), &[])?;
    let coding = request.headers().get(header::CONTENT_ENCODING);
    if coding.is_some_and(|coding| coding != "identity") {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must not be compressed"));
    }
    let Ok(_place) = desk.feeders.try_acquire() else {
        let why = format!("{FEEDERS_MAX} clients add URLs already; try again later");
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let events = desk.events.clone();
    let adding = desk.call(|hub: &mut Hub| Adding::new(hub, events));
    let _adding = adding.await.ok_or_else(Refusal::stopping)?;
    let mut errors = BTreeMap::new();
    let body = BodyReader::new(request.into_body(), STALL_MAX);
    let fed = seeds::feed(body, &desk.adder, |line, error| keep_first(&mut errors, line, error)).await;
    let fed = fed.map_err(refusal)?;
    let error = |(line, error): (u64, SeedError)| json!({"line": line, "reason": error.to_string()});
    Ok(Json(json!({
        "accepted": fed.accepted,
        "duplicate": fed.duplicate,
        "rejected": fed.rejected,
        "errors": errors.into_iter().map(error).collect::<Vec<Value>>(),
    })))
}

/// The first of them by line: the index refuses in batches, later than what cannot be read.
fn keep_first(errors: &mut BTreeMap<u64, SeedError>, line: u64, error: SeedError) {
    errors.insert(line, error);
    if errors.len() > ERRORS_MAX {
        errors.pop_last();
    }
}

fn refusal(error: FeedError) -> Refusal {
    match error {
        FeedError::Gone(gone) => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, gone.to_string()),
        FeedError::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            let why = format!(
                "nothing more came for {} s; what came before may have been added",
                STALL_MAX.as_secs()
            );
            Refusal::new(StatusCode::REQUEST_TIMEOUT, why)
        }
        FeedError::Io(error) => Refusal::bad(format!("the body cannot be read: {error}")),
    }
}

/// As long as this lives, the server is not done. Tells the hub when it ends, however it does.
struct Adding(mpsc::Sender<Event>);

impl Adding {
    fn new(hub: &mut Hub, events: mpsc::Sender<Event>) -> Adding {
        hub.additions += 1;
        Adding(events)
    }
}

impl Drop for Adding {
    fn drop(&mut self) {
        let events = self.0.clone();
        tokio::spawn(async move { drop(events.send(Event::Added).await) });
    }
}

/// A body as a stream of bytes, which must not stall.
struct BodyReader {
    body: Body,
    chunk: Bytes,
    stall_max: Duration,
    timer: Pin<Box<Sleep>>,
    /// Nothing was there when it was last looked: the timer runs.
    waits: bool,
}

impl BodyReader {
    fn new(body: Body, stall_max: Duration) -> BodyReader {
        let timer = Box::pin(tokio::time::sleep(stall_max));
        BodyReader { body, chunk: Bytes::new(), stall_max, timer, waits: false }
    }

    /// Waits for more; false at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while self.chunk.is_empty() {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                if !std::mem::replace(&mut self.waits, true) {
                    self.timer.as_mut().reset(Instant::now() + self.stall_max);
                }
                ready!(self.timer.as_mut().poll(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            };
            self.waits = false;
            match frame {
                None => return Poll::Ready(Ok(false)),
                // Trailers say nothing to us.
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        Poll::Ready(Ok(true))
    }
}

impl AsyncRead for BodyReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if ready!(self.poll_chunk(cx))? {
            let n = self.chunk.len().min(buf.remaining());
            buf.put_slice(&self.chunk[..n]);
            self.chunk.advance(n);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::HttpBody;
    use hyper::body::Frame;
    use tokio::io::AsyncReadExt;

    /// Says its pieces, one per look, and then nothing for ever, or the end.
    struct Pieces(Vec<&'static str>, bool);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            match self.0.pop() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
                None if self.1 => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test]
    async fn a_body_is_read_to_its_end() {
        let body = Body::new(Pieces(vec!["c\n", "", "b", "a"], true));
        let mut text = String::new();
        let read = BodyReader::new(body, Duration::from_secs(60)).read_to_string(&mut text).await;
        assert_eq!((read.ok(), &*text), (Some(4), "abc\n"));
    }

    #[tokio::test]
    async fn a_body_that_stalls_is_let_go() {
        let mut reader = BodyReader::new(Body::new(Pieces(vec!["a"], false)), Duration::from_millis(10));
        assert_eq!(reader.read_u8().await.ok(), Some(b'a'));
        // Time that we take ourselves does not count: the timer begins with the wait.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let begin = Instant::now();
        let error = reader.read_u8().await.expect_err("a stall");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= Duration::from_millis(10));
    }

    #[test]
    fn the_first_errors_by_line_are_kept() {
        let mut errors = BTreeMap::new();
        for line in (1..=300).rev() {
            keep_first(&mut errors, line, SeedError::Words);
        }
        assert!(errors.into_keys().eq(1..=100));
    }
}
