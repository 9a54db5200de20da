//! What a spider says: good lines in every dialect, and lines that make no sense.

use crate::profile::Profile;
use crate::wait::Form;
use std::fmt::Write;
use urlserver::document::{Done, Outcome};
use urlserver::ids::TransId;
use urlserver::time::Duration;

/// How one DONE is written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Dialect {
    /// `DONE ID`, which has no room for an outcome.
    pub verb_first: bool,
    /// CR LF.
    pub crlf: bool,
    /// Keys that the server does not know.
    pub keys: bool,
    /// How a wait is written.
    pub wait: Form,
}

impl Dialect {
    /// Draws one.
    pub fn draw(profile: &Profile, rng: &mut fastrand::Rng) -> Dialect {
        Dialect {
            verb_first: rng.f64() < profile.verb_first,
            crlf: rng.f64() < profile.crlf,
            keys: rng.f64() < profile.keys,
            wait: Dialect::draw_form(profile, rng),
        }
    }

    /// Draws how a web server writes the wait that it asks for.
    pub fn draw_form(profile: &Profile, rng: &mut fastrand::Rng) -> Form {
        if rng.f64() < profile.wait_forms { Form::draw(rng) } else { Form::Seconds }
    }

    fn end(self) -> &'static str {
        if self.crlf { "\r\n" } else { "\n" }
    }
}

/// Draws how a fetch ends, and what is said of it in this dialect.
pub fn draw_done(profile: &Profile, dialect: Dialect, rng: &mut fastrand::Rng) -> Done {
    let outcome = draw_outcome(&profile.outcomes, rng);
    let waits = matches!(outcome, Outcome::Status(429 | 503)) && rng.f64() < profile.retry_after;
    let longest = profile.retry_after_max.as_secs();
    let retry_after = waits.then(|| Duration::from_secs(rng.u64(0..=longest)));
    if dialect.verb_first || rng.f64() < profile.unsaid {
        return Outcome::Unsaid.into();
    }
    Done { outcome, retry_after }
}

fn draw_outcome(outcomes: &[(u32, Outcome)], rng: &mut fastrand::Rng) -> Outcome {
    let total: u32 = outcomes.iter().map(|&(weight, _)| weight).sum();
    let mut ticket = rng.u32(0..total.max(1));
    for &(weight, outcome) in outcomes {
        if ticket < weight {
            return outcome;
        }
        ticket -= weight;
    }
    Outcome::Unsaid
}

/// A DONE with this `retry-after`. The outcome must be [`Outcome::Unsaid`] where the verb comes first.
pub fn done(trans: TransId, outcome: Outcome, wait: Option<&str>, dialect: Dialect) -> String {
    let mut line = if dialect.verb_first { format!("DONE {trans}") } else { format!("{trans} DONE") };
    if outcome != Outcome::Unsaid {
        let _ = write!(line, " {outcome}");
        if let Some(wait) = wait {
            let _ = write!(line, " retry-after={wait}");
        }
        if dialect.keys {
            line.push_str(" bytes=4711 type=text/html gzip");
        }
    }
    line + dialect.end()
}

/// A WORKING.
pub fn working(trans: TransId, dialect: Dialect) -> String {
    let line = if dialect.verb_first { format!("WORKING {trans}") } else { format!("{trans} WORKING") };
    line + dialect.end()
}

/// An ADD of a URL that could have been found on `host`, sometimes written as no server would keep it.
pub fn add(host: &str, number: u32, rng: &mut fastrand::Rng) -> String {
    match rng.u8(0..3) {
        0 => format!("ADD http://{host}/found/{number}\n"),
        1 => format!("ADD HTTP://{}/found/x/../{number}#top\n", host.to_uppercase()),
        _ => format!("ADD https://{host}:443/found/{number}?q=1\r\n"),
    }
}

/// A status for a send that never was. The odds of hitting a real one are those of guessing 63 bits.
pub fn invented(rng: &mut fastrand::Rng) -> String {
    let trans = TransId(rng.u64(..) | 1 << 63);
    if rng.bool() {
        done(trans, Outcome::Unsaid, None, Dialect::default())
    } else {
        working(trans, Dialect::default())
    }
}

/// A line that deserves an ERROR, whatever is in flight. Only what the protocol names: the borderline
/// cases are for tests that know what they want.
pub fn garbage(trans: TransId, rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(0..12) {
        0 => format!("{trans} done\n").into(),
        1 => format!("done {trans}\n").into(),
        2 => format!("+{trans} DONE\n").into(),
        3 => format!("{trans} FINISHED\n").into(),
        4 => b"ADD ftp://a.example/\n".to_vec(),
        5 => b"ADD not a url\n".to_vec(),
        6 => b"GET many\n".to_vec(),
        7 => "ADD http://bl\u{e5}b\u{e6}r.example/\n".into(),
        8 => vec![0xff, 0xfe, 0x80, b'\r', b'\n'],
        9 => overlong(),
        10 => b"99999999999999999999999 DONE\n".to_vec(),
        _ => b"Hello, server?\n".to_vec(),
    }
}

/// Longer than the server reads.
fn overlong() -> Vec<u8> {
    let mut line = b"ADD http://a.example/".to_vec();
    line.resize(17 * 1024, b'x');
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects() {
        let plain = Dialect::default();
        assert_eq!(done(TransId(7), Outcome::Unsaid, None, plain), "7 DONE\n");
        assert_eq!(done(TransId(7), Outcome::Status(429), Some("3"), plain), "7 DONE 429 retry-after=3\n");
        let keys = Dialect { keys: true, crlf: true, ..plain };
        assert_eq!(
            done(TransId(7), Outcome::Timeout, None, keys),
            "7 DONE timeout bytes=4711 type=text/html gzip\r\n"
        );
        let verb_first = Dialect { verb_first: true, ..plain };
        assert_eq!(done(TransId(7), Outcome::Unsaid, None, verb_first), "DONE 7\n");
        assert_eq!(working(TransId(7), verb_first), "WORKING 7\n");
    }

    #[test]
    fn garbage_is_one_line_each() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let line = garbage(TransId(7), &mut rng);
            assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1);
            assert_eq!(line.last(), Some(&b'\n'));
        }
    }
}
