//! The line protocol, without sockets: lines in ([`mod@line`], [`command`]), lines out ([`work`]).
//!
//! `PROTOCOL.md` beside this file says it for people who write spiders and indexes; the tests at the end
//! of this file hold the two together. Not here: connections, credit, authentication, who gets what.

pub mod command;
pub mod line;
pub mod retry_after;
pub mod work;

pub use command::{Command, CommandError, Said, outcome_of, usual_done};
pub use line::{Line, LineDecoder, LineRef};
pub use retry_after::RetryAfter;

/// A number of the protocol: plain digits, below 2^64. No sign, no spaces.
pub fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// The words of a line; several spaces are as good as one.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::command::{OUTCOMES, VERBS};
    use super::*;
    use crate::document::{DenyReason, End, FailReason, Outcome, Report};
    use crate::ids::DocId;
    use crate::index::dialogue::FAULTY_MAX;
    use crate::url::UrlError;
    use std::collections::BTreeSet;

    const PROTOCOL: &str = include_str!("PROTOCOL.md");

    #[test]
    fn numbers_are_plain_digits() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"007"), Some(7));
        for bad in ["", "+1", "-1", "1.0", "0x1", "18446744073709551616", " 1"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
    }

    /// The first column of the table under `## heading`, without its code marks.
    fn table(heading: &str) -> BTreeSet<&'static str> {
        let from = PROTOCOL.find(&format!("## {heading}\n")).expect(heading) + heading.len();
        let rows = PROTOCOL[from..].lines().skip_while(|line| !line.starts_with('|'));
        let cells = rows.take_while(|line| line.starts_with('|')).skip(2);
        cells.filter_map(|line| line.split('|').nth(1)).map(|cell| cell.trim().trim_matches('`')).collect()
    }

    fn first_words(heading: &str) -> BTreeSet<&'static str> {
        table(heading).into_iter().filter_map(|cell| cell.split(' ').next()).collect()
    }

    #[test]
    fn every_verb_of_the_protocol_text_is_known_and_none_is_missing() {
        assert_eq!(first_words("What a spider says"), VERBS.into());
    }

    #[test]
    fn every_outcome_of_the_protocol_text_is_known_and_none_is_missing() {
        let mut known: BTreeSet<&str> = OUTCOMES.iter().map(|(word, _)| *word).collect();
        known.insert("100 to 599");
        assert_eq!(table("Outcomes"), known);
    }

    #[test]
    fn every_error_of_the_protocol_text_is_known_and_none_is_missing() {
        let known: BTreeSet<String> = errors().iter().map(|e| format!("ERROR {e}")).collect();
        let told: BTreeSet<String> =
            table("Errors").into_iter().map(|cell| cell.replace("REASON", "empty host")).collect();
        assert_eq!(told, known);
    }

    /// Every error there is. A new one does not compile before it is added to the list, too.
    fn errors() -> Vec<CommandError> {
        use CommandError as E;
        let all = vec![
            E::Verb,
            E::Trans,
            E::Credit,
            E::OneUrl,
            E::Url(UrlError::Syntax(url::ParseError::EmptyHost)),
            E::Url(UrlError::Scheme),
            E::Url(UrlError::TooLong),
            E::Url(UrlError::HostTooLong),
            E::Token,
            E::TooLong,
            E::NotAscii,
        ];
        for error in &all {
            match error {
                E::Verb | E::Trans | E::Credit | E::OneUrl | E::Token | E::TooLong | E::NotAscii => {}
                E::Url(
                    UrlError::Syntax(_) | UrlError::Scheme | UrlError::TooLong | UrlError::HostTooLong,
                ) => {}
            }
        }
        all
    }

    #[test]
    fn every_reason_of_the_protocol_text_is_known_and_none_is_missing() {
        use FailReason as F;
        let ends = [
            End::Failed(F::Outcome(Outcome::Status(503))),
            End::Failed(F::Expired),
            End::Failed(F::ConnectionLost),
            End::Failed(F::Poison),
            End::Failed(F::Dns),
            End::Failed(F::Robots),
            End::Failed(F::Surplus),
            End::Failed(F::BadUrl),
            End::Denied(DenyReason::PrivateAddress),
            End::Denied(DenyReason::Robots),
            End::Denied(DenyReason::CrawlDelay),
        ];
        for end in ends {
            match end {
                End::Done(_) => {}
                End::Denied(DenyReason::PrivateAddress | DenyReason::Robots | DenyReason::CrawlDelay) => {}
                End::Failed(F::Outcome(_) | F::Expired | F::ConnectionLost | F::Poison) => {}
                End::Failed(F::Dns | F::Robots | F::Surplus | F::BadUrl) => {}
            }
        }
        let known: BTreeSet<String> = ends
            .iter()
            .map(|&end| Report { doc: DocId(7), end }.to_string().replace("7 ", "").replace("503", "OUTCOME"))
            .collect();
        assert_eq!(table("Reasons").into_iter().map(String::from).collect::<BTreeSet<_>>(), known);
    }

    #[test]
    fn the_limits_of_the_protocol_text_are_those_of_the_code() {
        for limit in [line::LINE_MAX, crate::url::URL_MAX, line::INDEX_LINE_MAX, FAULTY_MAX] {
            assert!(PROTOCOL.contains(&limit.to_string()), "{limit}");
        }
    }
}
