//! Lines out of bytes, each with the moment before which none of it was written.

use crate::line::LINE_MAX;
use urlserver::time::Instant;

#[derive(Debug)]
pub(super) enum Piece {
    /// A line without its LF.
    Line { since: Instant, line: Vec<u8> },
    /// The beginning of a line without end; what follows of it is skipped.
    TooLong(Vec<u8>),
}

#[derive(Default, Debug)]
pub(super) struct Incoming {
    /// Of the line that is not complete.
    part: Vec<u8>,
    part_since: Instant,
    /// Inside a line that was too long.
    skipping: bool,
}

impl Incoming {
    /// The next piece; `None` once `rest`, written not before `since`, is used up.
    pub(super) fn poll_piece(&mut self, since: Instant, rest: &mut &[u8]) -> Option<Piece> {
        while !rest.is_empty() {
            if self.part.is_empty() {
                self.part_since = since;
            }
            let Some(end) = rest.iter().position(|&b| b == b'\n') else {
                return self.keep(std::mem::take(rest));
            };
            self.part.extend_from_slice(&rest[..end]);
            *rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.part);
            if !std::mem::take(&mut self.skipping) {
                return Some(Piece::Line { since: self.part_since, line });
            }
        }
        None
    }

    /// Takes a line's memory back.
    pub(super) fn recycle(&mut self, mut line: Vec<u8>) {
        if self.part.is_empty() {
            line.clear();
            self.part = line;
        }
    }

    fn keep(&mut self, part: &[u8]) -> Option<Piece> {
        self.part.extend_from_slice(part);
        if self.part.len() <= LINE_MAX {
            return None;
        }
        let line = std::mem::take(&mut self.part);
        let known = std::mem::replace(&mut self.skipping, true);
        (!known).then_some(Piece::TooLong(line))
    }
}
