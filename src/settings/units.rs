//! Numbers, durations and rates: how each is written, and which are allowed.
//!
//! A [`Reader`] turns text into a value that cannot be wrong. It does not say *why* a text was refused, only
//! what would have been allowed: that is what the user needs to know.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

/// The longest duration anyone can mean, and the longest gap between two sends: about a hundred years.
pub const DURATION_MAX: Duration = Duration::from_secs(36_500 * 86_400);

/// How a setting is given: what differs beyond its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One value.
    One,
    /// Any number of values: a flag given several times, a TOML list.
    Many,
    /// `true` or `false`; as a flag it may stand alone.
    Truth,
    /// One value that is never printed.
    Secret,
}

/// One way of reading a value.
pub(super) trait Reader {
    type Value;
    /// Stands for the value in usage lines.
    const UNIT: &'static str;
    const KIND: Kind = Kind::One;

    /// Completes "must be …".
    fn allowed() -> String;

    fn read(text: &str) -> Option<Self::Value>;

    fn read_items(items: &[String]) -> Option<Self::Value> {
        match items {
            [one] => Self::read(one),
            _ => None,
        }
    }
}

/// The word that switches an optional setting off.
pub(super) const NONE: &str = "none";
/// The word for "no limit".
const INF: &str = "inf";

/// A whole number between two bounds, both allowed.
pub(super) struct Whole<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Reader for Whole<MIN, MAX> {
    type Value = u32;
    const UNIT: &'static str = "N";

    fn allowed() -> String {
        format!("a whole number from {MIN} to {MAX}")
    }

    fn read(text: &str) -> Option<u32> {
        whole(text).filter(|n| (MIN..=MAX).contains(n))
    }
}

/// A whole number of at least one.
pub(super) struct Positive;

impl Reader for Positive {
    type Value = NonZeroU32;
    const UNIT: &'static str = "N";

    fn allowed() -> String {
        format!("a whole number from 1 to {}", u32::MAX)
    }

    fn read(text: &str) -> Option<NonZeroU32> {
        whole(text).and_then(NonZeroU32::new)
    }
}

/// A whole number where zero means "no bound": `None`.
pub(super) struct ZeroIsOff;

impl Reader for ZeroIsOff {
    type Value = Option<NonZeroU32>;
    const UNIT: &'static str = "N";

    fn allowed() -> String {
        format!("a whole number from 0 to {}", u32::MAX)
    }

    fn read(text: &str) -> Option<Self::Value> {
        whole(text).map(NonZeroU32::new)
    }
}

/// A whole number of at least one, or a word for "no bound": `None`.
pub(super) struct PositiveOrWord<const NONE_IS_INF: bool>;
/// A limit that may be lifted with `inf`.
pub(super) type PositiveOrInf = PositiveOrWord<true>;
/// A limit that may be absent: `none`.
pub(super) type PositiveOrNone = PositiveOrWord<false>;

impl<const NONE_IS_INF: bool> PositiveOrWord<NONE_IS_INF> {
    const WORD: &'static str = if NONE_IS_INF { INF } else { NONE };
}

impl<const NONE_IS_INF: bool> Reader for PositiveOrWord<NONE_IS_INF> {
    type Value = Option<NonZeroU32>;
    const UNIT: &'static str = "N";

    fn allowed() -> String {
        format!("{} or `{}`", Positive::allowed(), Self::WORD)
    }

    fn read(text: &str) -> Option<Self::Value> {
        if text == Self::WORD { Some(None) } else { Positive::read(text).map(Some) }
    }
}

/// A TCP port to dial.
pub(super) struct Port;

impl Reader for Port {
    type Value = Option<NonZeroU16>;
    const UNIT: &'static str = "PORT";

    fn allowed() -> String {
        "a port from 1 to 65535 or `none`".into()
    }

    fn read(text: &str) -> Option<Self::Value> {
        if text == NONE {
            return Some(None);
        }
        let port = whole(text).and_then(|port| u16::try_from(port).ok())?;
        NonZeroU16::new(port).map(Some)
    }
}

/// `true` or `false`.
pub(super) struct Truth;

impl Reader for Truth {
    type Value = bool;
    const UNIT: &'static str = "true|false";
    const KIND: Kind = Kind::Truth;

    fn allowed() -> String {
        "`true` or `false`".into()
    }

    fn read(text: &str) -> Option<bool> {
        text.parse().ok()
    }
}

/// A finite number of at least zero.
pub(super) struct Factor;

/// Beyond this a factor is a slip of the keyboard.
const FACTOR_MAX: f64 = 1e6;

impl Reader for Factor {
    type Value = f64;
    const UNIT: &'static str = "X";

    fn allowed() -> String {
        format!("a number from 0 to {FACTOR_MAX}")
    }

    fn read(text: &str) -> Option<f64> {
        number(text).filter(|x| *x <= FACTOR_MAX)
    }
}

/// How often something may be sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    per_sec: f64,
    gap: Duration,
}

impl Rate {
    /// No limit.
    pub const UNLIMITED: Rate = Rate { per_sec: f64::INFINITY, gap: Duration::ZERO };

    /// Most sends per second; infinite where there is no limit.
    pub const fn per_sec(self) -> f64 {
        self.per_sec
    }

    /// Two sends are at least this far apart: whole microseconds, rounded up; zero where there is no limit.
    pub const fn gap(self) -> Duration {
        self.gap
    }

    /// Whether there is no limit.
    pub const fn is_unlimited(self) -> bool {
        self.gap.is_zero()
    }
}

/// Sends per second.
pub(super) struct PerSecond;

impl Reader for PerSecond {
    type Value = Rate;
    const UNIT: &'static str = "PER_SECOND";

    fn allowed() -> String {
        "a number above 0 (at least one send in 36500d) or `inf`".into()
    }

    fn read(text: &str) -> Option<Rate> {
        if matches!(text, "inf" | "+inf") {
            return Some(Rate::UNLIMITED);
        }
        let per_sec = number(text).filter(|x| *x > 0.0)?;
        let micros = (1e6 / per_sec).ceil();
        let allowed = micros <= DURATION_MAX.as_micros() as f64;
        allowed.then(|| Rate { per_sec, gap: Duration::from_micros(micros as u64) })
    }
}

/// A duration of at least zero.
pub(super) struct Time;

impl Reader for Time {
    type Value = Duration;
    const UNIT: &'static str = "SECONDS";

    fn allowed() -> String {
        "seconds (`0.5`) or a number with a unit (`500ms`, `10s`, `2m`, `1h`, `1d`), at most 36500d".into()
    }

    fn read(text: &str) -> Option<Duration> {
        duration(text)
    }
}

/// A duration above zero.
pub(super) struct TimeAboveZero;

impl Reader for TimeAboveZero {
    type Value = Duration;
    const UNIT: &'static str = Time::UNIT;

    fn allowed() -> String {
        format!("above 0: {}", Time::allowed())
    }

    fn read(text: &str) -> Option<Duration> {
        duration(text).filter(|d| !d.is_zero())
    }
}

/// A duration where zero means "no bound": `None`.
pub(super) struct TimeZeroIsOff;

impl Reader for TimeZeroIsOff {
    type Value = Option<Duration>;
    const UNIT: &'static str = Time::UNIT;

    fn allowed() -> String {
        format!("0 (off), or {}", Time::allowed())
    }

    fn read(text: &str) -> Option<Self::Value> {
        duration(text).map(|d| (!d.is_zero()).then_some(d))
    }
}

/// A duration, or `none`.
pub(super) struct TimeOrNone;

impl Reader for TimeOrNone {
    type Value = Option<Duration>;
    const UNIT: &'static str = Time::UNIT;

    fn allowed() -> String {
        format!("`none`, or {}", Time::allowed())
    }

    fn read(text: &str) -> Option<Self::Value> {
        if text == NONE { Some(None) } else { duration(text).map(Some) }
    }
}

/// A duration as [`Time`] reads it back.
pub(super) fn duration_text(d: Duration) -> String {
    d.as_secs_f64().to_string()
}

/// Plain digits: no sign, no blanks.
fn whole(text: &str) -> Option<u32> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// A finite number of at least zero. `1e400` is no way to write infinity.
fn number(text: &str) -> Option<f64> {
    let x: f64 = text.parse().ok()?;
    (x.is_finite() && x >= 0.0).then_some(x)
}

/// Whole microseconds, rounded up so that nothing is shorter than asked for.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e' && c != 'E').unwrap_or(text.len());
    let (count, unit) = text.split_at(unit_at);
    let seconds_in_unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let seconds = number(count.trim_end())? * seconds_in_unit;
    let exact = Duration::try_from_secs_f64(seconds).ok()?;
    let micros = u64::try_from(exact.as_nanos().div_ceil(1_000)).ok()?;
    Some(Duration::from_micros(micros)).filter(|d| *d <= DURATION_MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn micros(text: &str) -> Option<u128> {
        Time::read(text).map(|d| d.as_micros())
    }

    #[test]
    fn durations_have_units() {
        for (text, expected) in [
            ("0", 0),
            ("1", 1_000_000),
            ("0.5", 500_000),
            (".5", 500_000),
            ("1e-3", 1_000),
            ("7us", 7),
            ("500ms", 500_000),
            ("500 ms", 500_000),
            ("10s", 10_000_000),
            ("2m", 120_000_000),
            ("1.5h", 5_400_000_000),
            ("1d", 86_400_000_000),
            ("36500d", 3_153_600_000_000_000),
        ] {
            assert_eq!(micros(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn durations_round_up_to_the_microsecond() {
        assert_eq!(micros("0.3"), Some(300_000));
        assert_eq!(micros("0.0000001"), Some(1));
        assert_eq!(micros("1.5us"), Some(2));
    }

    #[test]
    fn durations_that_make_no_sense_are_refused() {
        for text in [
            "", " ", "s", "ms", "-1", "-0.5s", "nan", "NaN", "inf", "1e400", "1x", "1 hour", "1S", "1,5",
            "36501d", "1e300", "1s1", "0x10", "none", "1m30s",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
    }

    #[test]
    fn zero_means_off_none_or_is_refused() {
        assert_eq!(TimeZeroIsOff::read("0"), Some(None));
        assert_eq!(TimeZeroIsOff::read("1us"), Some(Some(Duration::from_micros(1))));
        assert_eq!(TimeOrNone::read("0"), Some(Some(Duration::ZERO)));
        assert_eq!(TimeOrNone::read("none"), Some(None));
        assert_eq!(TimeAboveZero::read("0ms"), None);
        assert_eq!(TimeAboveZero::read("1us"), Some(Duration::from_micros(1)));
    }

    #[test]
    fn written_durations_are_read_back() {
        for text in ["0", "0.5", "1us", "20m", "36500d", "0.123457"] {
            let d = Time::read(text).unwrap();
            assert_eq!(Time::read(&duration_text(d)), Some(d), "{text}");
        }
    }

    #[test]
    fn the_gap_of_a_rate_is_rounded_up() {
        let gap = |text| PerSecond::read(text).map(|rate| rate.gap().as_micros());
        assert_eq!(gap("1"), Some(1_000_000));
        assert_eq!(gap("1.0"), Some(1_000_000));
        assert_eq!(gap("0.1"), Some(10_000_000));
        assert_eq!(gap("3"), Some(333_334));
        assert_eq!(gap("1e9"), Some(1), "never nothing where a limit was asked for");
        assert_eq!(gap("inf"), Some(0));
        assert_eq!(gap("+inf"), Some(0));
        for text in ["0", "0.0", "-1", "-inf", "nan", "", "1e-300", "1e400", "one"] {
            assert_eq!(gap(text), None, "{text}");
        }
        assert!(PerSecond::read("inf").unwrap().is_unlimited());
        assert!(!PerSecond::read("1e9").unwrap().is_unlimited());
    }

    #[test]
    fn counts_stay_inside_their_bounds() {
        type Tiny = Whole<2, 4>;
        let read: Vec<_> = ["1", "2", "4", "5"].map(Tiny::read).into();
        assert_eq!(read, [None, Some(2), Some(4), None]);
        for text in ["", "-1", "+1", "1.0", " 1", "1_000", "4294967296", "inf"] {
            assert_eq!(Positive::read(text), None, "{text}");
        }
        assert_eq!(Positive::read("0"), None);
        assert_eq!(Positive::read("4294967295"), NonZeroU32::new(u32::MAX));
        assert_eq!(ZeroIsOff::read("0"), Some(None));
        assert_eq!(ZeroIsOff::read("1"), Some(NonZeroU32::new(1)));
    }

    #[test]
    fn a_limit_is_lifted_by_its_own_word_only() {
        assert_eq!(PositiveOrInf::read("inf"), Some(None));
        assert_eq!(PositiveOrInf::read("none"), None);
        assert_eq!(PositiveOrInf::read("0"), None);
        assert_eq!(PositiveOrNone::read("none"), Some(None));
        assert_eq!(PositiveOrNone::read("inf"), None);
    }

    #[test]
    fn ports_truths_and_factors() {
        assert_eq!(Port::read("0"), None);
        assert_eq!(Port::read("65536"), None);
        assert_eq!(Port::read("65535"), Some(NonZeroU16::new(65535)));
        assert_eq!(Truth::read("true"), Some(true));
        assert_eq!(Truth::read("yes"), None);
        assert_eq!(Factor::read("0"), Some(0.0));
        assert_eq!(Factor::read("1e6"), Some(1e6));
        for text in ["-1", "nan", "inf", "1000001", ""] {
            assert_eq!(Factor::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_single_value_is_not_a_list() {
        assert_eq!(Truth::read_items(&["true".into()]), Some(true));
        assert_eq!(Truth::read_items(&["true".into(), "true".into()]), None);
        assert_eq!(Truth::read_items(&[]), None);
    }
}
