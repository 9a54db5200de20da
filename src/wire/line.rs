//! Bytes into lines. A bad line is an item like any other, never an error: `Framed` would take an error
//! for the end of the stream.

use bytes::{Bytes, BytesMut};
use std::io;
use std::ops::Range;
use tokio_util::codec::Decoder;

/// Longest line from a spider, in bytes, its end not counted.
pub const LINE_MAX: usize = 16 * 1024;

/// Longest line from a document index: a URL of any length, and room for its id and keys.
pub const INDEX_LINE_MAX: usize = 20 * 1024;

/// How much of an overlong line is kept to tell what it was.
pub const START_KEPT: usize = 64;

/// One line of input, without its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// A line. ASCII if the decoder was told to look.
    Text(Bytes),
    /// A line over the limit: its first [`START_KEPT`] bytes. The rest is skipped.
    TooLong(Bytes),
    /// A line with bytes outside ASCII.
    NotAscii,
}

/// One line of input where it lies, without its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineRef<'a> {
    /// A line. ASCII if the decoder was told to look.
    Text(&'a [u8]),
    /// A line over the limit: its first [`START_KEPT`] bytes. The rest is skipped.
    TooLong(&'a [u8]),
    /// A line with bytes outside ASCII.
    NotAscii,
}

/// Splits at LF; a CR before it is ignored. What it costs is linear in the bytes, however they arrive,
/// and it holds one line at most.
#[derive(Debug)]
pub struct LineDecoder {
    max: usize,
    ascii: bool,
    /// Bytes of the buffer that hold no LF for sure.
    searched: usize,
    /// Inside a line already reported as too long.
    skipping: bool,
}

impl LineDecoder {
    /// Lines of ASCII, of at most `max` bytes.
    pub fn ascii(max: usize) -> Self {
        LineDecoder { max, ascii: true, searched: 0, skipping: false }
    }

    /// Lines of any bytes, at most `max` of them.
    pub fn bytes(max: usize) -> Self {
        LineDecoder { ascii: false, ..LineDecoder::ascii(max) }
    }

    /// The next whole line in `input`, which keeps what is behind it.
    pub fn next_line(&mut self, input: &mut BytesMut) -> Option<Line> {
        let mut used = 0;
        let found = self.find(input, &mut used);
        let bytes = input.split_to(used).freeze();
        found.map(|found| match found {
            Found::Text(at) => Line::Text(bytes.slice(at)),
            Found::TooLong(at) => too_long(&bytes[at]),
            Found::NotAscii => Line::NotAscii,
        })
    }

    /// The next whole line in `input` behind the first `used` bytes. When there is none, `input` is to be kept from `used`
    /// on, and given again with what has come behind it.
    pub fn next_in<'a>(&mut self, input: &'a [u8], used: &mut usize) -> Option<LineRef<'a>> {
        self.find(input, used).map(|found| match found {
            Found::Text(at) => LineRef::Text(&input[at]),
            Found::TooLong(at) => LineRef::TooLong(&input[at]),
            Found::NotAscii => LineRef::NotAscii,
        })
    }

    /// Whether what was not used yet is the beginning of a line, and was not looked at.
    pub fn is_at_start(&self) -> bool {
        self.searched == 0 && !self.skipping
    }

    fn find(&mut self, input: &[u8], used: &mut usize) -> Option<Found> {
        loop {
            let start = *used;
            let Some(found) = memchr::memchr(b'\n', &input[start + self.searched..]) else {
                return self.without_end(input.len(), used);
            };
            let end = start + self.searched + found;
            *used = end + 1;
            self.searched = 0;
            if !std::mem::take(&mut self.skipping) {
                let return_before = end > start && input[end - 1] == b'\r';
                return Some(self.judge(input, start..end - usize::from(return_before)));
            }
        }
    }

    /// What is left when there will be no more input: a last line without its end, if there is one. Only
    /// for files; on a connection half a line is what a dying spider leaves, and counts for nothing.
    pub fn last_line(&mut self, input: &mut BytesMut) -> Option<Line> {
        let line = input.split().freeze();
        self.searched = 0;
        let unfinished = !std::mem::take(&mut self.skipping) && !line.is_empty();
        unfinished.then(|| match self.judge(&line, 0..line.len()) {
            Found::Text(_) => Line::Text(line),
            Found::TooLong(at) => too_long(&line[at]),
            Found::NotAscii => Line::NotAscii,
        })
    }

    /// There is no LF behind `used`: wait for more, or give the line up.
    fn without_end(&mut self, len: usize, used: &mut usize) -> Option<Found> {
        let start = *used;
        if self.skipping {
            *used = len;
            return None;
        }
        self.searched = len - start;
        // One byte more than the limit may still be a CR.
        if self.searched <= self.max + 1 {
            return None;
        }
        self.searched = 0;
        self.skipping = true;
        *used = len;
        Some(Found::TooLong(start..start + START_KEPT.min(len - start)))
    }

    fn judge(&self, input: &[u8], at: Range<usize>) -> Found {
        if at.len() > self.max {
            Found::TooLong(at.start..at.start + START_KEPT.min(at.len()))
        } else if self.ascii && !input[at.clone()].is_ascii() {
            Found::NotAscii
        } else {
            Found::Text(at)
        }
    }
}

/// A line, by its place in the input.
enum Found {
    Text(Range<usize>),
    /// What is kept of it.
    TooLong(Range<usize>),
    NotAscii,
}

/// A copy, so that the long line itself can go.
fn too_long(line: &[u8]) -> Line {
    Line::TooLong(Bytes::copy_from_slice(&line[..line.len().min(START_KEPT)]))
}

impl Decoder for LineDecoder {
    type Item = Line;
    type Error = io::Error;

    fn decode(&mut self, input: &mut BytesMut) -> io::Result<Option<Line>> {
        Ok(self.next_line(input))
    }

    fn decode_eof(&mut self, input: &mut BytesMut) -> io::Result<Option<Line>> {
        let line = self.next_line(input);
        if line.is_none() {
            input.clear();
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 12;

    /// The dull version: all input at once, split, judged.
    fn oracle(input: &[u8]) -> Vec<Line> {
        let mut pieces: Vec<&[u8]> = input.split(|&b| b == b'\n').collect();
        let rest = pieces.pop().unwrap_or_default();
        let mut lines: Vec<Line> =
            pieces.iter().map(|piece| judged(piece.strip_suffix(b"\r").unwrap_or(piece))).collect();
        if rest.len() > MAX + 1 {
            lines.push(too_long(rest));
        }
        lines
    }

    fn judged(line: &[u8]) -> Line {
        match line {
            _ if line.len() > MAX => too_long(line),
            _ if !line.is_ascii() => Line::NotAscii,
            _ => Line::Text(Bytes::copy_from_slice(line)),
        }
    }

    fn decode(pieces: &[&[u8]]) -> Vec<Line> {
        let mut decoder = LineDecoder::ascii(MAX);
        let mut buffer = BytesMut::new();
        let mut lines = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            while let Ok(Some(line)) = decoder.decode(&mut buffer) {
                lines.push(line);
            }
            assert!(buffer.len() <= MAX + 1, "holds one line at most");
        }
        while let Ok(Some(line)) = decoder.decode_eof(&mut buffer) {
            lines.push(line);
        }
        assert!(buffer.is_empty());
        lines
    }

    /// The same, line by line where they lie.
    fn decode_in_place(pieces: &[&[u8]]) -> Vec<Line> {
        let mut decoder = LineDecoder::ascii(MAX);
        let mut buffer = Vec::new();
        let mut lines = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            let mut used = 0;
            while let Some(line) = decoder.next_in(&buffer, &mut used) {
                lines.push(match line {
                    LineRef::Text(text) => Line::Text(Bytes::copy_from_slice(text)),
                    LineRef::TooLong(start) => Line::TooLong(Bytes::copy_from_slice(start)),
                    LineRef::NotAscii => Line::NotAscii,
                });
            }
            buffer.drain(..used);
            assert!(buffer.len() <= MAX + 1, "holds one line at most");
        }
        lines
    }

    /// The start that is kept of an overlong line depends on how it came, but not its first bytes.
    fn comparable(lines: Vec<Line>) -> Vec<Line> {
        let cut = |line| match line {
            Line::TooLong(start) => Line::TooLong(start.slice(..MAX)),
            Line::Text(_) | Line::NotAscii => line,
        };
        lines.into_iter().map(cut).collect()
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![3 => Just(b'\n'), 2 => Just(b'\r'), 20 => b' '..b'~', 1 => any::<u8>()];
        prop::collection::vec(byte, 0..200)
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same_lines(input in bytes(), cuts in prop::collection::vec(1..30usize, 1..50)) {
            let mut pieces = Vec::new();
            let mut rest = input.as_slice();
            for cut in cuts.into_iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, behind) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = behind;
            }
            prop_assert_eq!(comparable(decode(&pieces)), comparable(oracle(&input)));
            prop_assert_eq!(comparable(decode_in_place(&pieces)), comparable(oracle(&input)));
        }
    }

    #[test]
    fn half_a_line_counts_for_nothing() {
        assert_eq!(decode(&[b"5 DONE\r\n6 DO"]), [Line::Text("5 DONE".into())]);
    }

    #[test]
    fn a_line_without_end_is_one_item_and_no_memory() {
        let mut decoder = LineDecoder::ascii(LINE_MAX);
        let mut buffer = BytesMut::new();
        let mut lines = Vec::new();
        for _ in 0..1024 {
            buffer.extend_from_slice(&[b'x'; 64 * 1024]);
            lines.extend(decoder.next_line(&mut buffer));
        }
        buffer.extend_from_slice(b"\n7 DONE\n");
        lines.extend(decoder.next_line(&mut buffer));
        assert_eq!(lines, [Line::TooLong(vec![b'x'; START_KEPT].into()), Line::Text("7 DONE".into())]);
        assert!(buffer.capacity() <= 1024 * 1024, "{}", buffer.capacity());
    }

    #[test]
    fn byte_by_byte_is_linear() {
        let mut decoder = LineDecoder::ascii(LINE_MAX);
        let mut buffer = BytesMut::new();
        for _ in 0..LINE_MAX {
            buffer.extend_from_slice(b"x");
            assert_eq!(decoder.next_line(&mut buffer), None);
            assert_eq!(decoder.searched, buffer.len(), "nothing is searched twice");
        }
        buffer.extend_from_slice(b"\r\n");
        assert!(matches!(decoder.next_line(&mut buffer), Some(Line::Text(line)) if line.len() == LINE_MAX));
    }

    #[test]
    fn the_last_line_of_a_file_needs_no_end() {
        let mut decoder = LineDecoder::bytes(MAX);
        let mut buffer = BytesMut::from("a\nå");
        assert_eq!(decoder.next_line(&mut buffer), Some(Line::Text("a".into())));
        assert_eq!(decoder.next_line(&mut buffer), None);
        assert_eq!(decoder.last_line(&mut buffer), Some(Line::Text("å".into())));
        assert_eq!(decoder.last_line(&mut buffer), None);
    }
}
