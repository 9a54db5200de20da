//! The text of a conversation: settings, a line of dashes, then one line per thing that happens.

use urlserver::time::{Duration, Instant};

/// What stands between the settings and the conversation.
pub(super) const SEPARATOR: &str = "---";

/// A line of a conversation.
#[derive(Debug)]
pub(super) enum Line<'a> {
    /// Empty, or a comment.
    Remark,
    /// `@ 1.5s`: it is so late now.
    Time(Instant),
    /// `A> 1 DONE`: somebody says something to the server.
    Says { who: &'a str, text: &'a str },
    /// `A connects`: something happens to somebody.
    Does { who: &'a str, what: &'a str },
    /// `A< 1 7 192.0.2.1 http://a.example/`: the server speaks.
    Hears,
    /// `counts: leftover=1`: so it stands.
    Counts(&'a str),
    /// `left: 1`: so many documents have not ended at the end of the text.
    Left(u64),
}

/// Reads one line.
pub(super) fn read(line: &str) -> Result<Line<'_>, String> {
    let line = line.trim_end();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Line::Remark);
    }
    if let Some(time) = line.strip_prefix("@ ") {
        return time_of(time).map(Line::Time).ok_or(format!("`{time}` is no time; write `@ 1.5s`"));
    }
    if let Some(counts) = line.strip_prefix("counts: ") {
        return Ok(Line::Counts(counts));
    }
    if let Some(left) = line.strip_prefix("left: ") {
        return left.parse().map(Line::Left).map_err(|_| format!("`{left}` is no number"));
    }
    let (who, rest) = line.split_at(line.find([' ', '<', '>']).unwrap_or(line.len()));
    match rest.split_at_checked(1) {
        Some((">", text)) => Ok(Line::Says { who, text: text.strip_prefix(' ').unwrap_or(text) }),
        Some(("<", _)) => Ok(Line::Hears),
        Some((" ", what)) => Ok(Line::Does { who, what }),
        _ => Err(format!("`{line}` is no line of a conversation")),
    }
}

/// How a time is written: seconds, to the microsecond, without needless zeros.
pub(super) fn time_line(at: Instant) -> String {
    let micros = at.as_micros();
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    format!("@ {}s", text.trim_end_matches('0').trim_end_matches('.'))
}

fn time_of(text: &str) -> Option<Instant> {
    Some(Instant::ZERO + seconds(text.strip_suffix('s')?)?)
}

/// Seconds with up to six decimals, exactly.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let micros = format!("{part:0<6}");
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !plain(&micros) || micros.len() > 6 {
        return None;
    }
    let (whole, micros) = (whole.parse().ok()?, micros.parse().ok()?);
    Some(Duration::from_secs(whole) + Duration::from_micros(micros))
}
