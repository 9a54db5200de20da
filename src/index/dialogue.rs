//! The index protocol from the server's side, without sockets: what to write, what was said, what is
//! not known to have arrived. `wire/PROTOCOL.md` tells it in words.

use super::outbox::Outbox;
use super::{Added, Addition, Counters, IndexEvent};
use crate::document::{Candidate, End, FailReason, Report, Tried};
use crate::ids::DocId;
use crate::time::Duration;
use crate::url::Url;
use crate::wire::{Line, number, words};
use bytes::BytesMut;
use std::collections::VecDeque;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

/// Unconfirmed reports that are kept. Unwritten ones are always kept: while nothing can be written no
/// candidates come, so there are no more of them than pending documents.
const REPORTS_KEPT: usize = 1_000_000;
/// Bytes of unconfirmed URLs that are kept.
const ADDS_KEPT: usize = 16 * 1024 * 1024;
/// What an unconfirmed URL costs beside its text.
const ADD_OVERHEAD: usize = size_of::<Box<str>>();
/// Candidates between two ENDs that nobody asked for or could use, beyond which the index is broken.
pub const FAULTY_MAX: usize = 10_000;
/// Reports are turned into bytes when there is less than this to write.
const OUTPUT_LOW: usize = 32 * 1024;

/// One server's talk with its index, over all connections.
#[derive(Default)]
pub struct Dialogue {
    connected: bool,
    /// Whether this connection has brought an END.
    answered: bool,
    request: Option<Request>,
    reports: Outbox<Report>,
    adds: Outbox<Box<str>>,
    adds_cost: usize,
    /// Faulty candidates since the last END.
    faulty: usize,
    /// Candidates that are not yet an event.
    fresh: Vec<Candidate>,
    events: VecDeque<IndexEvent>,
    grown: bool,
    counters: Arc<Counters>,
}

struct Request {
    n: usize,
    reject: Vec<Box<str>>,
    written: bool,
    given: usize,
}

/// What a line from the index was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Heard {
    /// As it should be.
    Sense,
    /// Survived and counted; worth a word in the log.
    Fault(&'static str),
    /// Too much of that: close the connection.
    Broken,
}

impl Dialogue {
    /// Asks for up to `n` documents; answered at once if there is no connection.
    pub fn handle_ask(&mut self, n: usize, reject: Vec<Box<str>>) {
        self.counters.requests.add(1);
        self.request = Some(Request { n, reject, written: false, given: 0 });
        if !self.connected {
            self.answer(false);
        }
    }

    /// Takes the ends of documents.
    pub fn handle_reports(&mut self, reports: Vec<Report>) {
        self.counters.count_reports(&reports);
        reports.into_iter().for_each(|report| self.push_report(report));
    }

    /// Takes new URLs.
    pub fn handle_adds(&mut self, urls: Vec<Addition>) -> Vec<Added> {
        let added: Vec<Added> = urls.into_iter().map(|new| self.push_add(new)).collect();
        let sent = added.iter().filter(|added| **added == Added::Sent).count();
        self.counters.added.add(sent);
        self.grown |= sent > 0;
        added
    }

    /// A connection stands. All that is not known to have arrived is written again, before anything else.
    pub fn handle_connected(&mut self) {
        self.connected = true;
        self.answered = false;
        self.events.push_back(IndexEvent::Up);
    }

    /// The connection is gone, or could not be made.
    pub fn handle_disconnected(&mut self) {
        self.reports.rewind();
        self.adds.rewind();
        if self.request.is_some() {
            self.answer(false);
        }
        if std::mem::take(&mut self.connected) {
            self.counters.lost.add(1);
            self.events.push_back(IndexEvent::Down);
        }
    }

    /// Takes one line from the index, at this time since 1970.
    pub fn handle_line(&mut self, line: &Line, unix_now: Duration) -> Heard {
        match line {
            Line::Text(text) => match words(text).next() {
                None => Heard::Sense,
                Some(b"END") => self.handle_end(),
                Some(doc) => match number(doc) {
                    Some(doc) => self.handle_candidate(DocId(doc), text, unix_now),
                    None => self.nonsense("a line that makes no sense"),
                },
            },
            Line::TooLong(start) => match whole_first_word(start).and_then(number) {
                Some(doc) => self.refuse(DocId(doc), FailReason::BadUrl),
                None => self.nonsense("a line that is too long"),
            },
            Line::NotAscii => self.nonsense("bytes outside ASCII"),
        }
    }

    /// What the server is to be told.
    pub fn poll_event(&mut self) -> Option<IndexEvent> {
        self.flush_candidates();
        let event = self.events.pop_front();
        event.or_else(|| std::mem::take(&mut self.grown).then_some(IndexEvent::Grown))
    }

    /// Appends what is to be written, some of it at a time: old lines first, then the request.
    pub fn poll_output(&mut self, out: &mut BytesMut) {
        // Writing to memory cannot fail.
        while out.len() < OUTPUT_LOW {
            if let Some(report) = self.reports.write() {
                let _ = writeln!(out, "{report}");
            } else if let Some(url) = self.adds.write() {
                let _ = writeln!(out, "ADD {url}");
            } else {
                break;
            }
        }
        if !self.has_unwritten() {
            self.write_request(out);
        }
    }

    /// Whether reports or URLs wait to be written.
    pub fn has_unwritten(&self) -> bool {
        self.reports.has_unwritten() || self.adds.has_unwritten()
    }

    /// Whether the index owes an END.
    pub fn is_owed_end(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.written)
    }

    /// Whether this connection has brought an END: a sign that it is worth having.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// Forgets a request that has not been written.
    pub fn cancel_ask(&mut self) {
        self.request.take_if(|request| !request.written);
    }

    /// What has been counted.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    fn write_request(&mut self, out: &mut BytesMut) {
        let Some(request) = self.request.as_mut().filter(|request| !request.written) else { return };
        for host in &request.reject {
            let _ = writeln!(out, "REJECT {host}");
        }
        let _ = writeln!(out, "CANDIDATES {}", request.n);
        request.written = true;
        self.reports.cover();
        self.adds.cover();
    }

    fn handle_end(&mut self) -> Heard {
        if !self.is_owed_end() {
            return self.nonsense("END without request");
        }
        self.answered = true;
        self.faulty = 0;
        drop(self.reports.confirm());
        self.adds_cost -= self.adds.confirm().map(|url| add_cost(&url)).sum::<usize>();
        // Rejected hosts may have more.
        let complete =
            self.request.as_ref().is_some_and(|request| request.given > 0 || request.reject.is_empty());
        self.answer(complete);
        Heard::Sense
    }

    fn handle_candidate(&mut self, doc: DocId, line: &[u8], unix_now: Duration) -> Heard {
        let Some(request) = self.request.as_mut().filter(|r| r.written && r.given < r.n) else {
            return self.refuse(doc, FailReason::Surplus);
        };
        let Some((candidate, keys)) = candidate(doc, line, unix_now) else {
            return self.refuse(doc, FailReason::BadUrl);
        };
        let rejected = request.reject.binary_search_by(|host| (**host).cmp(candidate.url.host())).is_ok();
        request.given += 1;
        self.fresh.push(candidate);
        self.counters.candidates.add(1);
        if rejected {
            self.counters.rejected_host.add(1);
            return Heard::Fault("a candidate of a rejected host");
        }
        keys
    }

    /// A candidate that will not be used gets its report here, or only a count when there are too many.
    fn refuse(&mut self, doc: DocId, reason: FailReason) -> Heard {
        let surplus = reason == FailReason::Surplus;
        if surplus {
            self.counters.surplus.add(1)
        } else {
            self.counters.unusable.add(1)
        }
        if self.faulty == FAULTY_MAX {
            return Heard::Broken;
        }
        self.faulty += 1;
        self.handle_reports(vec![Report { doc, end: End::Failed(reason) }]);
        Heard::Fault(if surplus { "a candidate too many" } else { "a candidate without usable URL" })
    }

    fn nonsense(&mut self, what: &'static str) -> Heard {
        self.counters.nonsense.add(1);
        Heard::Fault(what)
    }

    fn answer(&mut self, complete: bool) {
        self.flush_candidates();
        if let Some(request) = self.request.take() {
            self.events.push_back(IndexEvent::Answered { given: request.given, complete });
        }
    }

    fn flush_candidates(&mut self) {
        if !self.fresh.is_empty() {
            self.events.push_back(IndexEvent::Candidates(std::mem::take(&mut self.fresh)));
        }
    }

    fn push_report(&mut self, report: Report) {
        self.reports.push(report);
        if self.reports.len() > REPORTS_KEPT {
            self.reports.forget_written();
        }
    }

    fn push_add(&mut self, new: Addition) -> Added {
        if new.doc.is_some() {
            return Added::OwnIdsOnly;
        }
        let url: Box<str> = new.url.as_str().into();
        while self.adds_cost + add_cost(&url) > ADDS_KEPT {
            let Some(old) = self.adds.forget_written() else { return Added::NoRoom };
            self.adds_cost -= add_cost(&old);
        }
        self.adds_cost += add_cost(&url);
        self.adds.push(url);
        Added::Sent
    }
}

fn add_cost(url: &str) -> usize {
    url.len() + ADD_OVERHEAD
}

/// The candidate of a line, and whether its keys could be read. `None` without a usable URL.
fn candidate(doc: DocId, line: &[u8], unix_now: Duration) -> Option<(Candidate, Heard)> {
    let mut words = words(line).skip(1);
    let url = Url::parse(std::str::from_utf8(words.next()?).ok()?).ok()?;
    let mut candidate = Candidate { doc, url, ip: None, wait: Duration::ZERO, tried: Tried::default() };
    let mut heard = Heard::Sense;
    for word in words {
        if let Some(value) = word.strip_prefix(b"ip=") {
            candidate.ip = address(value);
            if candidate.ip.is_none() {
                heard = Heard::Fault("an ip= that is no address");
            }
        } else if let Some(value) = word.strip_prefix(b"not-before=") {
            match number(value) {
                Some(seconds) => candidate.wait = Duration::from_secs(seconds).saturating_sub(unix_now),
                None => heard = Heard::Fault("a not-before= that is no number"),
            }
        }
    }
    Some((candidate, heard))
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let ip: IpAddr = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(ip.to_canonical())
}

/// The first word of a cut line, if it is not itself cut.
fn whole_first_word(start: &[u8]) -> Option<&[u8]> {
    start.contains(&b' ').then(|| words(start).next())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Outcome;
    use bytes::Bytes;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn connected() -> Dialogue {
        let mut dialogue = Dialogue::default();
        dialogue.handle_connected();
        assert_eq!(events(&mut dialogue), [IndexEvent::Up]);
        dialogue
    }

    fn hear(dialogue: &mut Dialogue, line: &str) -> Heard {
        dialogue.handle_line(&Line::Text(Bytes::copy_from_slice(line.as_bytes())), NOW)
    }

    fn output(dialogue: &mut Dialogue) -> String {
        let mut out = BytesMut::new();
        dialogue.poll_output(&mut out);
        String::from_utf8(out.to_vec()).expect("ASCII")
    }

    fn events(dialogue: &mut Dialogue) -> Vec<IndexEvent> {
        std::iter::from_fn(|| dialogue.poll_event()).collect()
    }

    fn candidates(dialogue: &mut Dialogue) -> Vec<Candidate> {
        let lists = events(dialogue).into_iter().filter_map(|event| match event {
            IndexEvent::Candidates(list) => Some(list),
            IndexEvent::Answered { .. }
            | IndexEvent::Claims(_)
            | IndexEvent::Grown
            | IndexEvent::Up
            | IndexEvent::Down => None,
        });
        lists.flatten().collect()
    }

    fn done(doc: u64) -> Vec<Report> {
        vec![Report { doc: DocId(doc), end: End::Done(Outcome::Status(200)) }]
    }

    fn addition(url: &str) -> Addition {
        Addition { doc: None, url: Url::parse(url).expect(url), not_before: None }
    }

    #[test]
    fn a_request_goes_behind_the_reports() {
        let mut dialogue = connected();
        dialogue.handle_ask(3, vec!["a.example".into(), "b.example".into()]);
        dialogue.handle_reports(done(7));
        dialogue.handle_adds(vec![addition("http://c.example")]);
        let want = "7 DONE 200\nADD http://c.example/\nREJECT a.example\nREJECT b.example\nCANDIDATES 3\n";
        assert_eq!(output(&mut dialogue), want);
        assert_eq!(output(&mut dialogue), "");
    }

    #[test]
    fn end_confirms_what_was_written_before_its_request() {
        let mut dialogue = connected();
        dialogue.handle_reports(done(1));
        dialogue.handle_ask(1, vec![]);
        output(&mut dialogue);
        dialogue.handle_reports(done(2));
        assert_eq!(output(&mut dialogue), "2 DONE 200\n");
        assert_eq!(hear(&mut dialogue, "END"), Heard::Sense);
        dialogue.handle_disconnected();
        dialogue.handle_connected();
        dialogue.handle_reports(done(3));
        assert_eq!(output(&mut dialogue), "2 DONE 200\n3 DONE 200\n");
    }

    #[test]
    fn keys_are_read_and_unknown_ones_ignored() {
        let mut dialogue = connected();
        dialogue.handle_ask(9, vec![]);
        output(&mut dialogue);
        let lines = [
            "1 http://a.example/ ip=::ffff:192.0.2.7 rank=9 not-before=1005",
            "2 http://a.example/b not-before=5",
        ];
        assert!(lines.iter().all(|line| hear(&mut dialogue, line) == Heard::Sense));
        assert!(matches!(
            hear(&mut dialogue, "3 http://a.example/c ip=x not-before=99999999999999999999"),
            Heard::Fault(_)
        ));
        let got = candidates(&mut dialogue);
        assert_eq!(got[0].ip, Some([192, 0, 2, 7].into()));
        assert_eq!(
            [got[0].wait, got[1].wait, got[2].wait],
            [Duration::from_secs(5), Duration::ZERO, Duration::ZERO]
        );
    }

    #[test]
    fn every_readable_candidate_that_is_not_used_is_reported_once() {
        let mut dialogue = connected();
        assert!(matches!(hear(&mut dialogue, "9 http://early.example/"), Heard::Fault(_)));
        dialogue.handle_ask(1, vec![]);
        output(&mut dialogue);
        for line in
            ["1 ftp://a.example/", "2", "3 http://a.example/", "4 http://a.example/b", "x", "END", "END"]
        {
            let _ = hear(&mut dialogue, line);
        }
        let start = Bytes::from_static(b"5 http://long.example/");
        assert!(matches!(dialogue.handle_line(&Line::TooLong(start), NOW), Heard::Fault(_)));
        let _ = dialogue.handle_line(&Line::TooLong(Bytes::from_static(b"6666")), NOW);
        assert_eq!(
            output(&mut dialogue),
            "1 FAILED bad-url\n2 FAILED bad-url\n4 FAILED surplus\n5 FAILED bad-url\n"
        );
        let counted: Vec<u64> = {
            let c = dialogue.counters();
            [&c.candidates, &c.surplus, &c.unusable, &c.nonsense].map(|counter| counter.value()).into()
        };
        assert_eq!(counted, [1, 2, 3, 3]);
    }

    #[test]
    fn candidates_of_rejected_hosts_are_used_and_counted() {
        let mut dialogue = connected();
        dialogue.handle_ask(2, vec!["a.example".into()]);
        output(&mut dialogue);
        assert!(matches!(hear(&mut dialogue, "1 http://a.example/"), Heard::Fault(_)));
        assert_eq!(candidates(&mut dialogue).len(), 1);
        assert_eq!(dialogue.counters().rejected_host.value(), 1);
    }

    #[test]
    fn a_request_is_answered_once_whatever_happens() {
        let mut dialogue = Dialogue::default();
        let unanswered = [IndexEvent::Answered { given: 0, complete: false }];
        dialogue.handle_ask(5, vec![]);
        assert_eq!(events(&mut dialogue), unanswered);
        dialogue.handle_connected();
        dialogue.handle_ask(5, vec![]);
        output(&mut dialogue);
        let _ = hear(&mut dialogue, "1 http://a.example/");
        dialogue.handle_disconnected();
        let events = events(&mut dialogue);
        assert_eq!(events.len(), 4);
        assert_eq!(events[2..], [IndexEvent::Answered { given: 1, complete: false }, IndexEvent::Down]);
    }

    #[test]
    fn a_flood_of_candidates_ends_the_connection_and_is_not_kept() {
        let mut dialogue = connected();
        for _ in 0..FAULTY_MAX {
            assert!(matches!(hear(&mut dialogue, "1 http://a.example/"), Heard::Fault(_)));
        }
        for _ in 0..10 {
            assert_eq!(hear(&mut dialogue, "1 http://a.example/"), Heard::Broken);
        }
        assert_eq!(dialogue.reports.len(), FAULTY_MAX);
    }

    #[test]
    fn urls_are_refused_only_when_none_can_be_forgotten() {
        let mut dialogue = Dialogue::default();
        let long = addition(&format!("http://a.example/{}", "x".repeat(16_000)));
        let fits = ADDS_KEPT / add_cost(long.url.as_str());
        let added = dialogue.handle_adds(vec![long.clone(); fits + 1]);
        assert!(added[..fits].iter().all(|added| *added == Added::Sent));
        assert_eq!(added[fits], Added::NoRoom);
        dialogue.handle_connected();
        output(&mut dialogue);
        assert_eq!(dialogue.handle_adds(vec![long.clone()]), [Added::Sent]);
        let named = Addition { doc: Some(DocId(1)), ..long };
        assert_eq!(dialogue.handle_adds(vec![named]), [Added::OwnIdsOnly]);
    }

    proptest! {
        #[test]
        fn any_talk_keeps_one_answer_per_request(ops in prop::collection::vec(0..8u8, 0..100)) {
            let mut dialogue = Dialogue::default();
            let (mut asked, mut answered, mut given) = (0, 0, 0);
            for (doc, op) in ops.into_iter().enumerate() {
                match op {
                    0 if asked == answered => {
                        asked += 1;
                        dialogue.handle_ask(3, vec![]);
                    }
                    1 if !dialogue.connected => dialogue.handle_connected(),
                    2 => dialogue.handle_disconnected(),
                    3 => dialogue.handle_reports(done(doc as u64)),
                    4 if dialogue.connected => drop(hear(&mut dialogue, "END")),
                    5 | 6 if dialogue.connected => drop(hear(&mut dialogue, &format!("{doc} http://a.example/{doc}"))),
                    _ => drop(output(&mut dialogue)),
                }
                while let Some(event) = dialogue.poll_event() {
                    match event {
                        IndexEvent::Candidates(list) => given += list.len(),
                        IndexEvent::Answered { given: said, .. } => {
                            answered += 1;
                            prop_assert_eq!(said, std::mem::take(&mut given));
                        }
                        IndexEvent::Claims(_) | IndexEvent::Grown | IndexEvent::Up | IndexEvent::Down => {}
                    }
                }
                prop_assert!(answered <= asked && asked - answered <= 1 && given <= 3);
            }
        }
    }
}
