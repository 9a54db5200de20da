//! What a spider says: one line into one [`Command`], borrowed, in one pass.

use super::{RetryAfter, line::LINE_MAX, number, words};
use crate::document::{Done, Outcome};
use crate::ids::TransId;
use crate::time::Duration;
use crate::url::{Url, UrlError};
use thiserror::Error;

/// Every verb. `DONE` and `WORKING` stand before or behind their TRANS_ID.
pub const VERBS: [&str; 5] = ["DONE", "WORKING", "GET", "ADD", "AUTH"];

/// Every outcome that is a word; the others are three digits.
pub const OUTCOMES: [(&str, Outcome); 5] = [
    ("connect-failed", Outcome::ConnectFailed),
    ("timeout", Outcome::Timeout),
    ("tls-failed", Outcome::TlsFailed),
    ("dns-failed", Outcome::DnsFailed),
    ("aborted", Outcome::Aborted),
];

/// A line that was understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// The fetch has ended.
    Done {
        /// Which send.
        trans: TransId,
        /// What was said of it.
        said: Said,
    },
    /// The fetch goes on.
    Working {
        /// Which send.
        trans: TransId,
    },
    /// Pull mode: this many lines more.
    Get(u64),
    /// A URL found while crawling.
    Add(Url),
    /// The shared secret: the rest of the line, whatever is in it.
    Auth(&'a str),
}

/// The words behind a `DONE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    /// How the fetch ended.
    pub outcome: Outcome,
    /// How long the web server asked to be left alone.
    pub retry_after: Option<RetryAfter>,
}

impl Said {
    /// The same with dates turned into delays, given the time since 1970.
    pub fn at(self, unix_now: Duration) -> Done {
        Done { outcome: self.outcome, retry_after: self.retry_after.map(|said| said.delay(unix_now)) }
    }
}

/// Why a line was not understood: what stands behind `ERROR`. Never echoes the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CommandError {
    /// No verb where one could be.
    #[error("unknown command")]
    Verb,
    /// A DONE or WORKING for no TRANS_ID.
    #[error("TRANS_ID must be a number below 2^64")]
    Trans,
    /// A GET of no number.
    #[error("GET takes one number below 2^64")]
    Credit,
    /// An ADD of nothing, or of several words.
    #[error("ADD takes one URL without spaces")]
    OneUrl,
    /// An ADD of no URL that could be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// An AUTH without token.
    #[error("AUTH takes a token")]
    Token,
    /// Not even read.
    #[error("line longer than {LINE_MAX} bytes")]
    TooLong,
    /// Not even read.
    #[error("bytes outside ASCII")]
    NotAscii,
}

impl<'a> Command<'a> {
    /// Reads a line; an empty one is no command and no error.
    pub fn parse(line: &'a [u8]) -> Result<Option<Command<'a>>, CommandError> {
        let (first, rest) = cut_word(line);
        let command = match first {
            b"" => return Ok(None),
            b"DONE" => {
                let (trans, said) = cut_word(rest);
                done(trans_id(trans)?, said)
            }
            b"WORKING" => Command::Working { trans: trans_id(cut_word(rest).0)? },
            b"GET" => Command::Get(only_word(rest).and_then(number).ok_or(CommandError::Credit)?),
            b"ADD" => Command::Add(Url::parse(text(only_word(rest).ok_or(CommandError::OneUrl)?)?)?),
            b"AUTH" => Command::Auth(token(rest)?),
            _ => status(first, rest)?,
        };
        Ok(Some(command))
    }
}

/// Digits that make a number below 2^64 whatever they are.
const DIGITS_SURE: usize = 19;

/// Nearly all that spiders say: `TRANS_ID DONE` and `TRANS_ID DONE STATUS`, with single spaces and LF behind it, at the very
/// beginning of `input`. Says how long the line is, its end included. Everything else is for [`Command::parse`].
#[inline]
pub fn usual_done(input: &[u8]) -> Option<(TransId, Outcome, usize)> {
    let (mut trans, mut digits) = (0u64, 0);
    while let Some(digit) = input.get(digits).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10)
    {
        trans = trans.wrapping_mul(10).wrapping_add(digit.into());
        digits += 1;
    }
    if digits == 0 || digits > DIGITS_SURE {
        return None;
    }
    let (outcome, end) = match input[digits..].strip_prefix(b" DONE")? {
        [b'\n', ..] => (Outcome::Unsaid, 1),
        [b' ', a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', b'\n', ..] => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            (Outcome::Status(digit(a) * 100 + digit(b) * 10 + digit(c)), 5)
        }
        _ => return None,
    };
    Some((TransId(trans), outcome, digits + " DONE".len() + end))
}

/// `TRANS_ID DONE …` and `TRANS_ID WORKING`.
fn status<'a>(first: &[u8], rest: &[u8]) -> Result<Command<'a>, CommandError> {
    let (verb, said) = cut_word(rest);
    match verb {
        b"DONE" => Ok(done(trans_id(first)?, said)),
        b"WORKING" => Ok(Command::Working { trans: trans_id(first)? }),
        _ => Err(CommandError::Verb),
    }
}

/// The words that a worker says of one fetch, with nothing in them that is not understood: an outcome, or nothing at all,
/// and perhaps a `retry-after`.
pub fn outcome(text: &str) -> Option<Said> {
    let mut words = words(text.as_bytes());
    let outcome = words.next().map_or(Some(Outcome::Unsaid), outcome_of)?;
    let retry_after = match words.next() {
        Some(word) => Some(RetryAfter::parse(word.strip_prefix(b"retry-after=")?)?),
        None => None,
    };
    words.next().is_none().then_some(Said { outcome, retry_after })
}

/// The first outcome and the first readable `retry-after` count; other words are ignored.
fn done<'a>(trans: TransId, said: &[u8]) -> Command<'a> {
    let mut outcome = None;
    let mut retry_after = None;
    for word in words(said) {
        match word.strip_prefix(b"retry-after=") {
            Some(value) => retry_after = retry_after.or_else(|| RetryAfter::parse(value)),
            None => outcome = outcome.or_else(|| outcome_of(word)),
        }
    }
    Command::Done { trans, said: Said { outcome: outcome.unwrap_or(Outcome::Unsaid), retry_after } }
}

/// The outcome that a word of the protocol means.
pub fn outcome_of(word: &[u8]) -> Option<Outcome> {
    if let &[b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] = word {
        return number(word).and_then(|code| u16::try_from(code).ok()).map(Outcome::Status);
    }
    OUTCOMES.iter().find(|(name, _)| name.as_bytes() == word).map(|(_, outcome)| *outcome)
}

fn trans_id(word: &[u8]) -> Result<TransId, CommandError> {
    number(word).map(TransId).ok_or(CommandError::Trans)
}

fn token(rest: &[u8]) -> Result<&str, CommandError> {
    let token = text(rest)?.trim_start_matches(' ');
    if token.is_empty() { Err(CommandError::Token) } else { Ok(token) }
}

fn text(bytes: &[u8]) -> Result<&str, CommandError> {
    std::str::from_utf8(bytes).map_err(|_| CommandError::NotAscii)
}

/// The first word and all that is behind it.
fn cut_word(line: &[u8]) -> (&[u8], &[u8]) {
    let start = line.iter().position(|&byte| byte != b' ').unwrap_or(line.len());
    let line = &line[start..];
    line.split_at(memchr::memchr(b' ', line).unwrap_or(line.len()))
}

fn only_word(rest: &[u8]) -> Option<&[u8]> {
    let mut words = words(rest);
    let word = words.next()?;
    words.next().is_none().then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(line: &str) -> Result<Option<Command<'_>>, CommandError> {
        Command::parse(line.as_bytes())
    }

    #[track_caller]
    fn check_done(line: &str, id: u64, outcome: Outcome, seconds: Option<u64>) {
        let retry_after = seconds.map(|s| RetryAfter::Delay(Duration::from_secs(s)));
        let want = Command::Done { trans: TransId(id), said: Said { outcome, retry_after } };
        assert_eq!(parse(line), Ok(Some(want)), "{line}");
    }

    proptest! {
        #[test]
        fn the_short_cut_leads_to_where_the_words_lead(line in "([0-9]{0,21}|x)( {0,2})(DONE|DONES|WORKING)?( {0,2})([0-9]{2,4}|timeout)?( x)?\r?\n?") {
            let more = format!("{line}7 DONE\n");
            if let Some((trans, outcome, len)) = usual_done(more.as_bytes()).filter(|_| line.ends_with('\n')) {
                prop_assert_eq!(len, line.len());
                let said = Said { outcome, retry_after: None };
                prop_assert_eq!(parse(line.trim_end_matches('\n')), Ok(Some(Command::Done { trans, said })));
            }
        }

        #[test]
        fn the_usual_lines_take_the_short_cut(trans in 0..10u64.pow(19), status in 100..600u16) {
            for (line, outcome) in [
                (format!("{trans} DONE"), Outcome::Unsaid),
                (format!("{trans} DONE {status}"), Outcome::Status(status)),
            ] {
                let whole = format!("{line}\n");
                prop_assert_eq!(usual_done(whole.as_bytes()), Some((TransId(trans), outcome, whole.len())));
                for cut in 0..whole.len() {
                    prop_assert_eq!(usual_done(&whole.as_bytes()[..cut]), None);
                }
            }
        }
    }

    #[test]
    fn done_in_both_orders_with_all_that_may_follow() {
        check_done("5 DONE", 5, Outcome::Unsaid, None);
        check_done("DONE 5", 5, Outcome::Unsaid, None);
        check_done("18446744073709551615 DONE 200", u64::MAX, Outcome::Status(200), None);
        check_done("DONE 5 503 retry-after=3", 5, Outcome::Status(503), Some(3));
        check_done("  5   DONE   429  retry-after=7 ", 5, Outcome::Status(429), Some(7));
        check_done("5 DONE cached 404 bytes=12 retry-after=soon", 5, Outcome::Status(404), None);
        check_done("5 DONE retry-after=1 retry-after=2", 5, Outcome::Unsaid, Some(1));
        check_done("5 DONE DONE", 5, Outcome::Unsaid, None);
    }

    #[test]
    fn numbers_that_are_no_status_are_unknown_words() {
        for word in ["000", "099", "600", "999", "20", "2000", "+20", "2OO"] {
            check_done(&format!("5 DONE {word}"), 5, Outcome::Unsaid, None);
        }
        check_done("5 DONE 100", 5, Outcome::Status(100), None);
        check_done("5 DONE 599", 5, Outcome::Status(599), None);
    }

    #[test]
    fn outcome_words_are_those_that_are_printed() {
        for (word, outcome) in OUTCOMES {
            assert_eq!(outcome.to_string(), word);
            check_done(&format!("5 DONE {word}"), 5, outcome, None);
        }
    }

    #[test]
    fn working_in_both_orders() {
        let want = Ok(Some(Command::Working { trans: TransId(7) }));
        for line in ["7 WORKING", "WORKING 7", "WORKING 7 hard", "7 WORKING percent=40"] {
            assert_eq!(parse(line), want, "{line}");
        }
    }

    #[test]
    fn get_add_and_auth() {
        assert_eq!(parse("GET 10"), Ok(Some(Command::Get(10))));
        let url = Url::parse("http://a.example/b").expect("a URL");
        assert_eq!(parse("ADD HTTP://A.example/b#c"), Ok(Some(Command::Add(url))));
        assert_eq!(parse("AUTH open sesame"), Ok(Some(Command::Auth("open sesame"))));
    }

    #[test]
    fn empty_lines_are_nothing() {
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("   "), Ok(None));
    }

    #[test]
    fn refusals_are_named() {
        use CommandError::{Credit, OneUrl, Token, Trans, Verb};
        let cases = [
            ("5 done", Verb),
            ("done 5", Verb),
            ("5", Verb),
            ("HELLO", Verb),
            ("5\tDONE", Verb),
            ("5 6 DONE", Verb),
            ("DONE", Trans),
            ("+1 DONE", Trans),
            ("DONE -1", Trans),
            ("18446744073709551616 DONE", Trans),
            ("WORKING x", Trans),
            ("GET", Credit),
            ("GET +1", Credit),
            ("GET 1 2", Credit),
            ("ADD", OneUrl),
            ("ADD http://a.example/b c", OneUrl),
            ("ADD ftp://a.example/", UrlError::Scheme.into()),
            ("AUTH", Token),
            ("AUTH  ", Token),
        ];
        for (line, error) in cases {
            assert_eq!(parse(line), Err(error), "{line}");
        }
        assert!(matches!(parse("ADD example"), Err(CommandError::Url(UrlError::Syntax(_)))));
    }

    #[test]
    fn dates_become_delays() {
        let said = Said {
            outcome: Outcome::Status(503),
            retry_after: Some(RetryAfter::Until(Duration::from_secs(9))),
        };
        assert_eq!(said.at(Duration::from_secs(4)).retry_after, Some(Duration::from_secs(5)));
    }

    proptest! {
        #[test]
        fn no_line_panics(line in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Command::parse(&line);
        }

        #[test]
        fn no_line_of_known_words_panics(line in "((DONE|WORKING|GET|ADD|AUTH|[0-9]{1,22}|http://a|retry-after=[0-9_A-Z:]{0,40}|timeout| ){1,2} ?){0,6}") {
            if let Ok(Some(Command::Done { said, .. })) = parse(&line) {
                let _ = said.at(Duration::MAX);
            }
        }
    }

    #[test]
    fn a_worker_is_held_to_the_words() {
        let said = |outcome| Said { outcome, retry_after: None };
        assert_eq!(outcome("200"), Some(said(Outcome::Status(200))));
        assert_eq!(outcome(""), Some(said(Outcome::Unsaid)));
        assert_eq!(outcome("connect-failed"), Some(said(Outcome::ConnectFailed)));
        let asked = outcome("429 retry-after=30").map(|said| said.at(Duration::ZERO));
        assert_eq!(asked.and_then(|done| done.retry_after), Some(Duration::from_secs(30)));
        for bad in
            ["20", "600", "OK", "200 well", "429 retry-after=x", "200 retry-after=1 x", "retry-after=1"]
        {
            assert_eq!(outcome(bad), None, "{bad}");
        }
    }
}
