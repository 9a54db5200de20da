//! `retry-after`, in every form in which web servers say it.

use std::time::SystemTime;
use urlserver::time::Duration;

/// No wait that a web server asks for counts for more than this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(30 * 86_400);

/// The last moment that an HTTP date can name: the end of the year 9999.
const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);
/// What lies in the past lies so far there.
const PAST: Duration = Duration::from_secs(3600);

/// How a wait is written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Form {
    /// A number of seconds.
    #[default]
    Seconds,
    /// More digits than any number has; only for a wait that is absurd anyway.
    Digits,
    /// The date of today's HTTP.
    Date,
    /// The date of RFC 850, with two digits for the year.
    OldDate,
    /// The date of C's `asctime`.
    CDate,
    /// Nothing that can be understood.
    Garbage,
}

impl Form {
    /// Draws one.
    pub fn draw(rng: &mut fastrand::Rng) -> Form {
        let forms = [Form::Digits, Form::Date, Form::OldDate, Form::CDate, Form::Garbage];
        forms[rng.usize(..forms.len())]
    }

    /// What is said for `wait` at `unix_now`, the time since 1970, and what that means: dates are cut to
    /// whole seconds, and garbage means nothing. Without the time there are no dates.
    pub fn word(self, unix_now: Option<Duration>, wait: Duration) -> (String, Option<Duration>) {
        let seconds = (wait.as_secs().to_string(), Some(Duration::from_secs(wait.as_secs())));
        let date = |write: fn(&str) -> String| {
            let Some(now) = unix_now else { return seconds.clone() };
            let until = if wait.is_zero() { now.saturating_sub(PAST) } else { now.saturating_add(wait) };
            let until = Duration::from_secs(until.min(LAST_DATE).as_secs());
            let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + until);
            (write(&text).replace(' ', "_"), Some(until.saturating_sub(now)))
        };
        match self {
            Form::Digits if wait > RETRY_AFTER_MAX => ("9".repeat(30), Some(Duration::MAX)),
            Form::Seconds | Form::Digits => seconds,
            Form::Date => date(str::to_owned),
            // The year 9999 would be 1999 there.
            Form::OldDate if wait <= RETRY_AFTER_MAX => date(old_date),
            Form::OldDate | Form::CDate => date(c_date),
            Form::Garbage => ("in_a_moment".to_owned(), None),
        }
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` in the words of RFC 850.
fn old_date(date: &str) -> String {
    let long = match &date[..3] {
        "Tue" => "Tuesday",
        "Wed" => "Wednesday",
        "Thu" => "Thursday",
        "Sat" => "Saturday",
        "Sun" => "Sunday",
        "Mon" => "Monday",
        _ => "Friday",
    };
    format!("{long}, {}-{}-{} {} GMT", &date[5..7], &date[8..11], &date[14..16], &date[17..25])
}

/// The same in the words of `asctime`, which pads the day with a space.
fn c_date(date: &str) -> String {
    let day = date[5..7].trim_start_matches('0');
    format!("{} {} {day:>2} {} {}", &date[..3], &date[8..11], &date[17..25], &date[12..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use urlserver::wire::RetryAfter;

    /// 6 November 1994, 08:49:37 and a half.
    const NOW: Duration = Duration::from_millis(784_111_777_500);
    const FORMS: [Form; 6] =
        [Form::Seconds, Form::Digits, Form::Date, Form::OldDate, Form::CDate, Form::Garbage];

    #[test]
    fn dates_are_those_of_the_standard() {
        let soon = Duration::from_millis(2600);
        let said = |form: Form| form.word(Some(NOW), soon);
        let meant = Some(Duration::from_millis(2500));
        assert_eq!(said(Form::Date), ("Sun,_06_Nov_1994_08:49:40_GMT".to_owned(), meant));
        assert_eq!(said(Form::OldDate), ("Sunday,_06-Nov-94_08:49:40_GMT".to_owned(), meant));
        assert_eq!(said(Form::CDate), ("Sun_Nov__6_08:49:40_1994".to_owned(), meant));
        assert_eq!(Form::Date.word(None, soon).0, "2", "no date without a clock");
    }

    #[test]
    fn the_server_understands_every_form_as_it_is_meant() {
        let waits = [0, 1, 59, 3600, 86_400 * 300, u64::MAX].map(Duration::from_secs);
        for (form, wait) in FORMS.into_iter().flat_map(|form| waits.map(|wait| (form, wait))) {
            let (text, meant) = form.word(Some(NOW), wait);
            let cut = |wait: Option<Duration>| wait.map(|wait| wait.min(RETRY_AFTER_MAX));
            let heard = RetryAfter::parse(text.as_bytes()).map(|said| said.delay(NOW));
            assert_eq!(cut(heard), cut(meant), "{form:?} {wait:?}: {text}");
        }
    }
}
