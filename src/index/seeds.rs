//! Files of URLs: lines `URL` or `DOC_ID URL`, `#` comments, blank lines. The body of `POST /api/urls` is the same.
//! Behind the URL may stand `not-before=UNIX_SECONDS`: it is not sent before then.
//!
//! Read as a stream: a file of any length costs one buffer. A bad line is named, and the others go on.

use super::handle::Adding;
use super::{Added, Adder, Addition, IndexGone};
use crate::ids::DocId;
use crate::url::{URL_MAX, Url, UrlError};
use crate::wire::{Line, LineDecoder, LineRef, number};
use bytes::{Buf, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use thiserror::Error;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest line: the longest URL, and room for its id and its time.
pub const LINE_MAX: usize = URL_MAX + 64;
/// Bytes read at once.
const READ_MAX: usize = 128 * 1024;
/// URLs handed to the index at once.
const BATCH: usize = 1_000;
/// Batches that the index may be behind.
const OPEN_MAX: usize = 2;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Why a line of a seeds file was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SeedError {
    /// Not a URL that could be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// More words than a line has.
    #[error("a line is URL or DOC_ID URL, and a URL has no spaces")]
    Words,
    /// The first of two words is no DOC_ID.
    #[error("DOC_ID must be a number below 2^64")]
    DocId,
    /// The time behind the URL is none.
    #[error("not-before must be a number of seconds since 1970")]
    NotBefore,
    /// Not text.
    #[error("not UTF-8")]
    Utf8,
    /// Longer than any URL.
    #[error("line longer than {LINE_MAX} bytes")]
    TooLong,
    /// The name belongs to another URL.
    #[error("DOC_ID is taken by another URL")]
    IdTaken,
    /// This index names its documents itself.
    #[error("this index chooses DOC_IDs itself")]
    OwnIdsOnly,
    /// The index cannot be reached, and too many URLs wait for it already.
    #[error("the document index cannot be reached")]
    NoRoom,
}

/// Reads one line, without its end. `None` for blank lines and comments.
pub fn parse(line: &[u8]) -> Result<Option<Addition>, SeedError> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    // Most lines are one word.
    if !line.iter().any(u8::is_ascii_whitespace) {
        return url(line).map(|url| Some(Addition { doc: None, url, not_before: None }));
    }
    let (line, not_before) = split_time(line)?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (doc, word) = match (words.next(), words.next(), words.next()) {
        (Some(url), None, _) => (None, url),
        (Some(doc), Some(url), None) => (Some(DocId(number(doc).ok_or(SeedError::DocId)?)), url),
        _ => return Err(SeedError::Words),
    };
    Ok(Some(Addition { doc, url: url(word)?, not_before }))
}

fn url(word: &[u8]) -> Result<Url, SeedError> {
    let text = std::str::from_utf8(word).map_err(|_| SeedError::Utf8)?;
    Ok(Url::parse(text)?)
}

/// The line without the time at its end, and that time.
fn split_time(line: &[u8]) -> Result<(&[u8], Option<u64>), SeedError> {
    let last = line.iter().rposition(u8::is_ascii_whitespace).map_or(0, |space| space + 1);
    match line[last..].strip_prefix(b"not-before=") {
        Some(time) if last > 0 => Ok((&line[..last], Some(number(time).ok_or(SeedError::NotBefore)?))),
        _ => Ok((line, None)),
    }
}

/// Bytes into lines into URLs, without I/O: [`SeedLines::push`] what has come, take what is whole.
#[derive(Debug)]
pub struct SeedLines {
    input: BytesMut,
    decoder: LineDecoder,
    /// Lines begun so far.
    number: u64,
    ended: bool,
}

/// A line that is not blank, with its number, counted from 1.
pub type SeedLine = (u64, Result<Addition, SeedError>);

impl Default for SeedLines {
    fn default() -> Self {
        SeedLines { input: BytesMut::new(), decoder: LineDecoder::bytes(LINE_MAX), number: 0, ended: false }
    }
}

impl SeedLines {
    /// Takes more input.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// There is no more: what is left is the last line.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// The next line that is neither blank nor a comment; `None` until there is more input.
    pub fn next_line(&mut self) -> Option<SeedLine> {
        loop {
            let first = self.number == 0;
            let mut used = 0;
            let parsed = match self.decoder.next_in(&self.input, &mut used) {
                Some(LineRef::Text(line)) => Some(parse(without_bom(line, first))),
                Some(LineRef::TooLong(_)) => Some(Err(SeedError::TooLong)),
                Some(LineRef::NotAscii) => Some(Err(SeedError::Utf8)),
                None => None,
            };
            self.input.advance(used);
            let parsed = match parsed {
                Some(parsed) => parsed,
                None => self.parse_last()?,
            };
            self.number += 1;
            if let Some(result) = parsed.transpose() {
                return Some((self.number, result));
            }
        }
    }

    /// The last line, without its end; `None` if there is none, or more to come.
    fn parse_last(&mut self) -> Option<Result<Option<Addition>, SeedError>> {
        let line = if self.ended { self.decoder.last_line(&mut self.input)? } else { return None };
        Some(match line {
            Line::Text(text) => parse(without_bom(&text, self.number == 0)),
            Line::TooLong(_) => Err(SeedError::TooLong),
            Line::NotAscii => Err(SeedError::Utf8),
        })
    }
}

fn without_bom(line: &[u8], first: bool) -> &[u8] {
    if first { line.strip_prefix(BOM).unwrap_or(line) } else { line }
}

/// What became of a stream of seeds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fed {
    /// New URLs, or URLs handed on.
    pub accepted: u64,
    /// URLs that were known.
    pub duplicate: u64,
    /// Lines that were not taken.
    pub rejected: u64,
}

/// Why a stream of seeds was not read to its end.
#[derive(Debug, Error)]
pub enum FeedError {
    /// It could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is nobody to feed.
    #[error(transparent)]
    Gone(#[from] IndexGone),
}

/// Puts all URLs of `input` into the index. Each line that is not taken is told to `on_bad`.
pub async fn feed(
    mut input: impl AsyncRead + Unpin,
    adder: &Adder,
    mut on_bad: impl FnMut(u64, SeedError),
) -> Result<Fed, FeedError> {
    let mut feeder = Feeder::default();
    let fed = feeder.feed(&mut input, adder, &mut on_bad).await;
    // What is on its way gets there, however the stream has ended.
    while feeder.settle_one(&mut on_bad).await? {}
    fed.map(|()| feeder.fed)
}

/// Puts all URLs of a file into the index (`-` is the standard input). Bad lines go to the log.
pub async fn feed_file(path: &str, adder: &Adder) -> Result<Fed, FeedError> {
    let on_bad = |line, reason: SeedError| tracing::warn!(file = path, line, %reason, "bad line in seeds");
    let file = if path == "-" { standard_input()? } else { File::open(path).await? };
    feed(file, adder, on_bad).await
}

/// Its own descriptor: tokio's stdin would need one more feature, and has a buffer too many.
fn standard_input() -> io::Result<File> {
    let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(File::from_std(descriptor.into()))
}

/// URLs on their way into the index: while it takes some, the next ones are read.
#[derive(Default)]
struct Feeder {
    fed: Fed,
    batch: Vec<Addition>,
    /// Where each of the batch stands in the file.
    numbers: Vec<u64>,
    /// Batches that the index has not answered, with the numbers of their lines.
    open: VecDeque<(Vec<u64>, Adding)>,
}

impl Feeder {
    async fn feed(
        &mut self,
        input: &mut (impl AsyncRead + Unpin),
        adder: &Adder,
        on_bad: &mut impl FnMut(u64, SeedError),
    ) -> Result<(), FeedError> {
        let mut lines = SeedLines::default();
        while !lines.ended {
            lines.input.reserve(READ_MAX);
            if input.read_buf(&mut lines.input).await? == 0 {
                lines.end();
            }
            while let Some((number, parsed)) = lines.next_line() {
                match parsed {
                    Ok(addition) => self.take(number, addition),
                    Err(error) => self.refuse(number, error, on_bad),
                }
                if self.batch.len() == BATCH {
                    self.flush(adder, on_bad).await?;
                }
            }
        }
        Ok(self.flush(adder, on_bad).await?)
    }

    fn take(&mut self, number: u64, addition: Addition) {
        self.batch.push(addition);
        self.numbers.push(number);
    }

    fn refuse(&mut self, number: u64, error: SeedError, on_bad: &mut impl FnMut(u64, SeedError)) {
        self.fed.rejected += 1;
        on_bad(number, error);
    }

    /// Hands the batch over. Waits if the index is too far behind.
    async fn flush(
        &mut self,
        adder: &Adder,
        on_bad: &mut impl FnMut(u64, SeedError),
    ) -> Result<(), IndexGone> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        let numbers = std::mem::replace(&mut self.numbers, Vec::with_capacity(BATCH));
        self.open.push_back((numbers, adder.begin(batch).await?));
        while self.open.len() > OPEN_MAX {
            self.settle_one(on_bad).await?;
        }
        Ok(())
    }

    /// Waits for the answer to the oldest batch; false if there is none.
    async fn settle_one(&mut self, on_bad: &mut impl FnMut(u64, SeedError)) -> Result<bool, IndexGone> {
        let Some((numbers, adding)) = self.open.pop_front() else { return Ok(false) };
        for (number, added) in numbers.into_iter().zip(adding.end().await?) {
            match added {
                Added::Accepted(_) | Added::Sent => self.fed.accepted += 1,
                Added::Duplicate => self.fed.duplicate += 1,
                Added::IdTaken => self.refuse(number, SeedError::IdTaken, on_bad),
                Added::OwnIdsOnly => self.refuse(number, SeedError::OwnIdsOnly, on_bad),
                Added::NoRoom => self.refuse(number, SeedError::NoRoom, on_bad),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{MemoryIndex, spawn};

    fn lines(pieces: &[&[u8]]) -> Vec<(u64, Result<String, SeedError>)> {
        let mut lines = SeedLines::default();
        let mut all = Vec::new();
        let text = |new: Addition| match new.doc {
            Some(doc) => format!("{doc} {}", new.url.as_str()),
            None => new.url.as_str().to_owned(),
        };
        for piece in pieces {
            lines.push(piece);
            all.extend(std::iter::from_fn(|| lines.next_line()));
        }
        lines.end();
        all.extend(std::iter::from_fn(|| lines.next_line()));
        all.into_iter().map(|(number, line)| (number, line.map(text))).collect()
    }

    #[test]
    fn all_kinds_of_lines() {
        let file =
            "\u{feff}http://a.example\r\n\r\n# comment\n7 http://a.example/b#c\n  \thttp://blåbær.no/ \nx";
        let want = vec![
            (1, Ok("http://a.example/".to_owned())),
            (4, Ok("7 http://a.example/b".to_owned())),
            (5, Ok("http://xn--blbr-roah.no/".to_owned())),
            (6, Err(UrlError::from(url::ParseError::RelativeUrlWithoutBase).into())),
        ];
        assert_eq!(lines(&[file.as_bytes()]), want);
        let bytes: Vec<&[u8]> = file.as_bytes().chunks(1).collect();
        assert_eq!(lines(&bytes), want, "byte by byte");
    }

    #[test]
    fn bad_lines_are_named_and_the_others_go_on() {
        let long = format!("http://a.example/{}", "x".repeat(LINE_MAX));
        let file = format!(
            "{long}\n-1 http://a/\n1 2 http://a/\nftp://a/\n99999999999999999999 http://a/\n5\nhttp://ok.example/"
        );
        let errors: Vec<_> = lines(&[file.as_bytes()]).into_iter().map(|(n, line)| (n, line.err())).collect();
        let scheme = SeedError::Url(UrlError::Scheme);
        let no_url = SeedError::Url(url::ParseError::RelativeUrlWithoutBase.into());
        let want = [SeedError::TooLong, SeedError::DocId, SeedError::Words, scheme, SeedError::DocId, no_url];
        let want: Vec<_> = (1..).zip(want.map(Some).into_iter().chain([None])).collect();
        assert_eq!(errors, want);
        assert_eq!(lines(&[b"http://a.example/\xff"]), [(1, Err(SeedError::Utf8))]);
    }

    #[test]
    fn a_time_stands_behind_the_url() {
        let time = |line: &str| parse(line.as_bytes()).map(|new| new.and_then(|new| new.not_before));
        assert_eq!(time("http://a.example/ not-before=1767225600"), Ok(Some(1_767_225_600)));
        assert_eq!(time("7 http://a.example/\tnot-before=0 "), Ok(Some(0)));
        assert_eq!(time("http://a.example/?not-before=5"), Ok(None));
        assert_eq!(time("http://a.example/ not-before=soon"), Err(SeedError::NotBefore));
        assert_eq!(time("http://a.example/ x not-before=5"), Err(SeedError::DocId));
        assert!(matches!(time("not-before=5"), Err(SeedError::Url(_))));
    }

    #[tokio::test]
    async fn a_stream_is_fed_in_batches_and_counted() {
        let (index, adder) = spawn(MemoryIndex::with_seed(1));
        let pages: String = (0..2_500).map(|n| format!("http://a.example/{n}\n")).collect();
        let file = format!("1 http://b.example/\n{pages}http://a.example/7\n1 http://c.example/\nnonsense\n");
        let mut bad = Vec::new();
        let fed = feed(file.as_bytes(), &adder, |line, error| bad.push((line, error))).await;
        assert_eq!(fed.ok(), Some(Fed { accepted: 2_501, duplicate: 1, rejected: 2 }));
        bad.sort_by_key(|(line, _)| *line);
        assert_eq!(bad[0], (2_503, SeedError::IdTaken));
        assert_eq!((bad.len(), bad[1].0), (2, 2_504));
        index.close().await;
        assert!(matches!(feed(file.as_bytes(), &adder, |_, _| ()).await, Err(FeedError::Gone(_))));
    }
}
