//! Crawl-delay and Request-rate, as people write them. Both give the time between two requests, in microseconds,
//! rounded up; more than a number can hold is very much.

const SECOND: u64 = 1_000_000;

/// `10`, `0.5`, `1e1`, `10 s`: seconds. Nothing that is no number, or a negative one.
pub(super) fn crawl_delay(value: &str) -> Option<u64> {
    let (whole, rest) = digits(value);
    let fraction = rest.strip_prefix('.').map(digits);
    let (fraction, rest) = fraction.unwrap_or(("", rest));
    if rest.starts_with(['e', 'E']) || (whole.is_empty() && fraction.is_empty()) {
        return scientific(value);
    }
    Some(number(whole).saturating_mul(SECOND).saturating_add(millionths(fraction)))
}

/// `1/10s`, `2/5m`, `1/1h`, `1/60 0600-0845`: documents per time. The hours of the day for which it is meant are not
/// looked at: it holds always.
pub(super) fn request_rate(value: &str) -> Option<u64> {
    let (documents, time) = value.split_once('/')?;
    let documents = documents.trim();
    let (count, rest) = digits(documents);
    let (time, unit) = digits(time.trim_start());
    if count.is_empty() || !rest.is_empty() || time.is_empty() || number(count) == 0 {
        return None;
    }
    let unit = match unit.bytes().next().map(|unit| unit.to_ascii_lowercase()) {
        Some(b'm') => 60 * SECOND,
        Some(b'h') => 3_600 * SECOND,
        Some(b'd') => 86_400 * SECOND,
        _ => SECOND,
    };
    let micros = u128::from(number(time)) * u128::from(unit);
    Some(u64::try_from(micros.div_ceil(u128::from(number(count)))).unwrap_or(u64::MAX))
}

/// The digits at the beginning, and the rest.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn number(digits: &str) -> u64 {
    if digits.is_empty() { 0 } else { digits.parse().unwrap_or(u64::MAX) }
}

/// What the digits after a decimal point are worth; exact, as a binary fraction is not.
fn millionths(digits: &str) -> u64 {
    let (kept, beyond) = digits.split_at(digits.len().min(6));
    let more = beyond.bytes().any(|digit| digit != b'0');
    let scale = 10u64.pow(6 - kept.len() as u32);
    number(kept) * scale + u64::from(more)
}

fn scientific(value: &str) -> Option<u64> {
    let token = value.split_ascii_whitespace().next()?;
    let seconds: f64 = token.parse().ok()?;
    // The conversion saturates. Positive but tiny values still are one microsecond.
    (seconds >= 0.0).then(|| (seconds * SECOND as f64).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_and_round_up() {
        for (value, micros) in [
            ("10", 10_000_000),
            ("0", 0),
            ("0.1", 100_000),
            ("0.5", 500_000),
            (".5", 500_000),
            ("1.", 1_000_000),
            ("2.0000001", 2_000_001),
            ("2.0000000", 2_000_000),
            ("0.0000000001", 1),
            ("1e1", 10_000_000),
            ("1e-9", 1),
            ("10 seconds", 10_000_000),
            ("10s", 10_000_000),
            ("5;", 5_000_000),
            ("007", 7_000_000),
        ] {
            assert_eq!(crawl_delay(value), Some(micros), "{value}");
        }
    }

    #[test]
    fn absurd_delays_are_very_long_or_none() {
        for value in
            ["99999999999999999999999", "18446744073709551615.9", "1e300", "1e999", "inf", "Infinity"]
        {
            assert_eq!(crawl_delay(value), Some(u64::MAX), "{value}");
        }
        for value in ["", "-1", "-0.5", "NaN", "nan", "soon", ".", "+", "-inf", "/5", "e5", "\u{661}"] {
            assert_eq!(crawl_delay(value), None, "{value}");
        }
    }

    #[test]
    fn rates_have_units_and_round_up() {
        for (value, micros) in [
            ("1/10s", 10_000_000),
            ("1/10", 10_000_000),
            ("1/5m", 300_000_000),
            ("1/1h", 3_600_000_000),
            ("1/1H", 3_600_000_000),
            ("1/1d", 86_400_000_000),
            ("3/1", 333_334),
            ("1 / 20 s", 20_000_000),
            ("1/60 0600-0845", 60_000_000),
            ("1/30m 1300 - 1659", 1_800_000_000),
            ("1/0", 0),
            ("1/99999999999999999999h", u64::MAX),
            ("99999999999999999999/1", 1),
        ] {
            assert_eq!(request_rate(value), Some(micros), "{value}");
        }
        for value in ["", "1", "/", "1/", "/10", "0/10", "-1/10", "1.5/10", "a/b", "1//2"] {
            assert_eq!(request_rate(value), None, "{value}");
        }
    }
}
