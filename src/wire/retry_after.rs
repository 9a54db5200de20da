//! `Retry-After`, as web servers say it and spiders pass it on.

use crate::time::Duration;
use std::time::SystemTime;

/// How long, or until when, a web server asked to be left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryAfter {
    /// From now on.
    Delay(Duration),
    /// Until this much time has passed since 1970.
    Until(Duration),
}

/// Longest HTTP date, as in `Wednesday, 09-Nov-94 23:12:40 GMT`.
const DATE_MAX: usize = 33;

impl RetryAfter {
    /// Reads seconds, or one of the three HTTP dates with `_` for spaces. More seconds than a number can
    /// hold are very many seconds; anything else is nothing.
    pub fn parse(value: &[u8]) -> Option<RetryAfter> {
        if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
            let seconds = super::number(value).unwrap_or(u64::MAX);
            return Some(RetryAfter::Delay(Duration::from_secs(seconds)));
        }
        let mut date = [b' '; DATE_MAX];
        let date = date.get_mut(..value.len())?;
        date.copy_from_slice(value);
        date.iter_mut().filter(|byte| **byte == b'_').for_each(|byte| *byte = b' ');
        let time = httpdate::parse_http_date(std::str::from_utf8(date).ok()?).ok()?;
        time.duration_since(SystemTime::UNIX_EPOCH).ok().map(RetryAfter::Until)
    }

    /// The delay, given the time since 1970; zero if it is over.
    pub fn delay(self, unix_now: Duration) -> Duration {
        match self {
            RetryAfter::Delay(delay) => delay,
            RetryAfter::Until(end) => end.saturating_sub(unix_now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(784_111_777 - 100);

    fn delay(value: &str) -> Option<Duration> {
        RetryAfter::parse(value.as_bytes()).map(|said| said.delay(NOW))
    }

    #[test]
    fn all_forms_of_retry_after() {
        let hundred = Some(Duration::from_secs(100));
        assert_eq!(delay("100"), hundred);
        assert_eq!(delay("Sun,_06_Nov_1994_08:49:37_GMT"), hundred);
        assert_eq!(delay("Sunday,_06-Nov-94_08:49:37_GMT"), hundred);
        assert_eq!(delay("Sun_Nov__6_08:49:37_1994"), hundred);
        assert_eq!(delay("0"), Some(Duration::ZERO));
        assert_eq!(delay("Sat,_05_Nov_1994_08:49:37_GMT"), Some(Duration::ZERO));
        assert_eq!(delay("99999999999999999999999"), Some(Duration::from_secs(u64::MAX)));
        assert!(delay("Fri,_31_Dec_9999_23:59:59_GMT").is_some());
    }

    #[test]
    fn garbage_is_nothing() {
        for garbage in ["", "-1", "+1", "1.5", "soon", "Sun,_99_Nov_1994_08:49:37_GMT", &"9_".repeat(40), "å"]
        {
            assert_eq!(delay(garbage), None, "{garbage}");
        }
    }
}
