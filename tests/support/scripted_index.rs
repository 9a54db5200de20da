//! A document index that does what a test tells it to.

use super::lines::{Came, DEADLINE, Door, Lines};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// One connection of the server to its index.
pub(crate) struct Index {
    lines: Lines,
    /// Lines that came before a request that was waited for.
    early: Vec<String>,
}

/// What the server asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) count: usize,
    pub(crate) reject: Vec<String>,
}

impl Index {
    pub(crate) fn accept(door: &Door) -> Index {
        Index { lines: door.accept(), early: Vec::new() }
    }

    /// The next request; reports before it are kept for [`Index::report`].
    #[track_caller]
    pub(crate) fn request(&mut self) -> Request {
        let mut reject = Vec::new();
        loop {
            let line = self.lines.line();
            match line.split_once(' ') {
                Some(("REJECT", host)) => reject.push(host.to_owned()),
                Some(("CANDIDATES", count)) => {
                    return Request { count: count.parse().expect("a number"), reject };
                }
                _ => self.early.push(line),
            }
        }
    }

    /// Answers the next request with these candidates.
    #[track_caller]
    pub(crate) fn offer(&mut self, candidates: &[&str]) -> Request {
        let request = self.request();
        self.give(candidates);
        request
    }

    /// Says these candidates, and that there are no more.
    #[track_caller]
    pub(crate) fn give(&mut self, candidates: &[&str]) {
        let lines: String = candidates.iter().map(|candidate| format!("{candidate}\n")).collect();
        self.lines.say(lines + "END\n");
    }

    /// The next line that is no request; requests are answered with nothing.
    #[track_caller]
    pub(crate) fn report(&mut self) -> String {
        if !self.early.is_empty() {
            return self.early.remove(0);
        }
        loop {
            let line = self.lines.line();
            match line.split_once(' ') {
                Some(("REJECT", _)) => {}
                Some(("CANDIDATES", _)) => self.lines.say("END\n"),
                _ => return line,
            }
        }
    }

    /// The next lines that are no requests, sorted.
    #[track_caller]
    pub(crate) fn reports(&mut self, count: usize) -> Vec<String> {
        let mut all: Vec<String> = (0..count).map(|_| self.report()).collect();
        all.sort();
        all
    }

    /// Has nothing more to offer, until the server hangs up; what it reported meanwhile.
    #[track_caller]
    pub(crate) fn until_end(&mut self) -> Vec<String> {
        let mut all = std::mem::take(&mut self.early);
        loop {
            match self.lines.within(DEADLINE) {
                Came::Line(line) if line.starts_with("REJECT ") => {}
                // The server may be gone already.
                Came::Line(line) if line.starts_with("CANDIDATES ") => drop(self.lines.try_say("END\n")),
                Came::Line(line) => all.push(line),
                Came::End => return all,
                Came::Nothing => panic!("the server does not hang up"),
            }
        }
    }

    /// No report for `time`; requests are answered with nothing.
    #[track_caller]
    pub(crate) fn no_report(&mut self, time: Duration) {
        assert!(self.early.is_empty(), "{:?}", self.early);
        let end = std::time::Instant::now() + time;
        loop {
            match self.lines.within(end.saturating_duration_since(std::time::Instant::now())) {
                Came::Line(line) if line.starts_with("REJECT ") => {}
                Came::Line(line) if line.starts_with("CANDIDATES ") => self.lines.say("END\n"),
                Came::Nothing => return,
                other => panic!("{other:?}"),
            }
        }
    }
}

impl Deref for Index {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        &self.lines
    }
}

impl DerefMut for Index {
    fn deref_mut(&mut self) -> &mut Lines {
        &mut self.lines
    }
}
