//! Times, dates and numbers in words.

use crate::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// How long ago, or on which day, `at` was; both in seconds since 1970.
pub(super) fn ago(at: u64, now: u64) -> String {
    match now.saturating_sub(at) {
        0 => "just now".to_owned(),
        passed @ 1..DAY => format!("{} ago", in_words(Duration::from_secs(passed))),
        DAY..172_800 => "yesterday".to_owned(),
        passed @ 172_800..2_592_000 => format!("{} days ago", passed / DAY),
        _ => format!("on {}", date(at)),
    }
}

/// The day in UTC, as in 2026-03-01.
fn date(since_1970: u64) -> String {
    // The calendar in cycles of 400 years that begin in March, so that leap days come last.
    let days = since_1970 / DAY + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// A time that is still to pass: never said shorter than it is.
pub(super) fn left(wait: Duration) -> String {
    let step = if wait < Duration::from_secs(10) { 100 } else { 1_000 };
    in_words(Duration::from_millis((wait.as_micros().div_ceil(1_000) as u64).div_ceil(step) * step))
}

/// A time in words, rounded down.
pub(super) fn in_words(time: Duration) -> String {
    match time.as_secs() {
        0..10 => {
            let tenths = time.as_millis() / 100;
            if tenths.is_multiple_of(10) {
                format!("{} s", tenths / 10)
            } else {
                format!("{}.{} s", tenths / 10, tenths % 10)
            }
        }
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / MINUTE),
        seconds @ 7_200..172_800 => format!("{} h", seconds / HOUR),
        seconds => format!("{} days", seconds / DAY),
    }
}

/// So many of something.
pub(super) fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Digits in groups of three: 3,201.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (day, text) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_782, "2024-02-29"),
            (20_513, "2026-03-01"),
            (20_818, "2026-12-31"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date(day * DAY), text);
        }
    }

    #[test]
    fn digits_are_grouped_and_waits_never_said_too_short() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
        for (micros, text) in [(0, "0 s"), (1, "0.1 s"), (9_950_001, "10 s"), (10_000_001, "11 s")] {
            assert_eq!(left(Duration::from_micros(micros)), text);
        }
    }
}
