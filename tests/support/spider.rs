//! A spider that does what a test tells it to.

use super::lines::{Came, DEADLINE, Lines};
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub(crate) struct Spider(pub(crate) Lines);

/// A line of work, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    pub(crate) trans: u64,
    pub(crate) doc: u64,
    pub(crate) ip: IpAddr,
    pub(crate) url: String,
}

impl Spider {
    pub(crate) fn connect(address: SocketAddr) -> Spider {
        Spider(Lines::connect(address))
    }

    /// The next line, which must come and be work.
    #[track_caller]
    pub(crate) fn work(&mut self) -> Work {
        Work::parse(&self.line())
    }

    /// The next `count` lines of work.
    #[track_caller]
    pub(crate) fn works(&mut self, count: usize) -> Vec<Work> {
        (0..count).map(|_| self.work()).collect()
    }

    /// Work that comes within `time`.
    #[track_caller]
    pub(crate) fn work_within(&mut self, time: Duration) -> Option<Work> {
        match self.within(time) {
            Came::Line(line) => Some(Work::parse(&line)),
            Came::End => panic!("the connection is closed"),
            Came::Nothing => None,
        }
    }

    #[track_caller]
    pub(crate) fn done(&mut self, work: &Work, outcome: &str) {
        self.say(format!("{} DONE {outcome}\n", work.trans));
    }

    /// The next line, which must be an error.
    #[track_caller]
    pub(crate) fn error(&mut self) -> String {
        let line = self.line();
        assert!(line.starts_with("ERROR "), "{line:?} instead of an error");
        line
    }

    /// Everything said so far has been read: a line that makes no sense is answered. For a spider that is
    /// not given work meanwhile.
    #[track_caller]
    pub(crate) fn sync(&mut self) {
        self.say("sync\n");
        self.error();
    }

    /// Work until `count` documents are done, whatever is said between; each is DONE at once.
    #[track_caller]
    pub(crate) fn fetch(&mut self, count: usize, outcome: &str) -> Vec<Work> {
        let mut all = Vec::new();
        while all.len() < count {
            let work = self.work();
            self.done(&work, outcome);
            all.push(work);
        }
        all
    }

    /// No work for `time`.
    #[track_caller]
    pub(crate) fn idle(&mut self, time: Duration) {
        self.silence(time);
    }

    /// Everything until the server closes the connection.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match self.within(DEADLINE) {
                Came::Line(line) => all.push(line),
                Came::End => return all,
                Came::Nothing => panic!("the connection is not closed"),
            }
        }
    }
}

impl Work {
    /// `TRANS_ID SP DOC_ID SP HOST_IP SP URL`, and nothing else.
    #[track_caller]
    pub(crate) fn parse(line: &str) -> Work {
        let words: Vec<&str> = line.split(' ').collect();
        let [trans, doc, ip, url] = words[..] else { panic!("{line:?} is no work") };
        assert!(line.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{line:?}");
        let digits = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        assert!(digits(trans) && digits(doc), "{line:?}");
        assert!(url.starts_with("http://") || url.starts_with("https://"), "{line:?}");
        Work {
            trans: trans.parse().expect("below 2^64"),
            doc: doc.parse().expect("below 2^64"),
            ip: ip.parse().expect("an address"),
            url: url.to_owned(),
        }
    }

    pub(crate) fn host(&self) -> &str {
        self.url.split('/').nth(2).expect("a host")
    }
}

impl Deref for Spider {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        &self.0
    }
}

impl DerefMut for Spider {
    fn deref_mut(&mut self) -> &mut Lines {
        &mut self.0
    }
}
