//! What is known of one name: its addresses as one record, replaced whole by each new answer.

use crate::ids::IpId;
use crate::time::{Duration, Instant};

/// How long answers are believed.
#[derive(Clone, Copy, Debug)]
pub struct TtlRule {
    /// Not shorter than this.
    pub min: Duration,
    /// Not longer than this.
    pub max: Duration,
    /// For names that do not exist, if the name server does not say; never longer than `max`.
    pub negative: Duration,
    /// How long after its end an answer is still used while name servers are out.
    pub serve_stale: Duration,
}

impl TtlRule {
    /// When an answer of `ttl` ends: not before it can be used, whatever the bounds say.
    pub fn expiry(&self, now: Instant, ttl: Duration) -> Instant {
        now + ttl.max(self.min).min(self.max.max(self.min)).max(LIFETIME_MIN)
    }

    /// When a negative answer ends.
    pub fn negative_expiry(&self, now: Instant, ttl: Option<Duration>) -> Instant {
        self.expiry(now, ttl.unwrap_or(self.negative).min(self.negative))
    }
}

/// The addresses of a name, first choice first. Most names have one, which needs no room of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// Just one.
    One(IpId),
    /// Several.
    Many(Box<Several>),
}

/// More than one address, behind a pointer of one word: most names do without.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Several(Box<[IpId]>);

impl Addresses {
    /// All of them.
    pub fn as_slice(&self) -> &[IpId] {
        match self {
            Addresses::One(ip) => std::slice::from_ref(ip),
            Addresses::Many(several) => &several.0,
        }
    }
}

impl FromIterator<IpId> for Addresses {
    fn from_iter<I: IntoIterator<Item = IpId>>(ips: I) -> Self {
        let ips: Vec<IpId> = ips.into_iter().collect();
        match *ips {
            [ip] => Addresses::One(ip),
            _ => Addresses::Many(Box::new(Several(ips.into()))),
        }
    }
}

/// What is known of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Nothing yet.
    Unknown,
    /// Its addresses, first choice first.
    Known {
        /// At least one.
        addresses: Addresses,
        /// When to ask again.
        expires: Instant,
    },
    /// It does not exist, or has no address.
    Nothing {
        /// When to ask again.
        until: Instant,
    },
    /// It has only addresses that may not be used.
    Private {
        /// When to ask again.
        until: Instant,
    },
}

/// What to do about a name that is to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Use its addresses.
    Use,
    /// Use its addresses, and ask for fresh ones meanwhile.
    UseAndRefresh,
    /// Ask, and wait for the answer.
    Ask,
    /// Give up its documents: no such name.
    Fail,
    /// Give up its documents: not allowed.
    Deny,
}

impl Record {
    /// What to do now. `unanswered`: the last question about it got no answer.
    pub fn advice(&self, now: Instant, ttl: &TtlRule, unanswered: bool) -> Advice {
        match self {
            Record::Unknown => Advice::Ask,
            Record::Known { expires, .. } if now < *expires => {
                let refresh = *expires != Instant::FAR && now + REFRESH_BEFORE >= *expires;
                if refresh { Advice::UseAndRefresh } else { Advice::Use }
            }
            Record::Known { expires, .. } if unanswered && now < *expires + ttl.serve_stale => {
                Advice::UseAndRefresh
            }
            Record::Known { .. } => Advice::Ask,
            Record::Nothing { until } if now < *until => Advice::Fail,
            Record::Private { until } if now < *until => Advice::Deny,
            Record::Nothing { .. } | Record::Private { .. } => Advice::Ask,
        }
    }

    /// When it is of no use any more, not even while name servers are out. Never, for a given address.
    pub fn end_of_use(&self, ttl: &TtlRule) -> Instant {
        match self {
            Record::Unknown => Instant::ZERO,
            Record::Known { expires, .. } => *expires + ttl.serve_stale,
            Record::Nothing { until } | Record::Private { until } => *until,
        }
    }

    /// The addresses, if there are any.
    pub fn addresses(&self) -> &[IpId] {
        match self {
            Record::Known { addresses, .. } => addresses.as_slice(),
            Record::Unknown | Record::Nothing { .. } | Record::Private { .. } => &[],
        }
    }
}

/// A name in use is asked for again this long before its answer ends.
const REFRESH_BEFORE: Duration = Duration::from_millis(500);

/// An answer of less than this would end before its host's turn comes, or be asked for again as soon as it is there:
/// a flood of questions that never sends a URL. TTLs are whole seconds, so only those of zero are stretched.
const LIFETIME_MIN: Duration = Duration::from_secs(1);

const _: () = assert!(LIFETIME_MIN.as_millis() > REFRESH_BEFORE.as_millis());

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: TtlRule = TtlRule {
        min: Duration::from_secs(1),
        max: Duration::from_secs(86_400),
        negative: Duration::from_secs(60),
        serve_stale: Duration::from_secs(3600),
    };

    fn seconds(s: f64) -> Instant {
        Instant::from_micros((s * 1e6) as u64)
    }

    #[test]
    fn ttls_are_kept_within_bounds() {
        let now = Instant::ZERO;
        assert_eq!(TTL.expiry(now, Duration::ZERO), seconds(1.0));
        assert_eq!(TTL.expiry(now, Duration::from_secs(300)), seconds(300.0));
        assert_eq!(TTL.expiry(now, Duration::MAX), seconds(86_400.0));
        assert_eq!(TTL.negative_expiry(now, None), seconds(60.0));
        assert_eq!(TTL.negative_expiry(now, Some(Duration::MAX)), seconds(60.0));
        assert_eq!(TTL.negative_expiry(now, Some(Duration::from_secs(5))), seconds(5.0));
    }

    #[test]
    fn every_answer_can_be_used_before_it_is_asked_for_again() {
        let none = Duration::ZERO;
        let rule = TtlRule { min: none, max: none, negative: none, serve_stale: none };
        for expires in
            [rule.expiry(seconds(7.0), none), rule.expiry(seconds(7.0), Duration::from_millis(200))]
        {
            let record = Record::Known { addresses: Addresses::One(IpId::new(0)), expires };
            assert_eq!(record.advice(seconds(7.0), &rule, false), Advice::Use);
        }
        let until = rule.negative_expiry(seconds(7.0), Some(none));
        assert_eq!(Record::Nothing { until }.advice(seconds(7.0), &rule, false), Advice::Fail);
    }

    #[test]
    fn a_known_name_is_used_refreshed_asked_for_at_its_boundaries() {
        let record = Record::Known { addresses: Addresses::One(IpId::new(0)), expires: seconds(10.0) };
        for (t, unanswered, advice) in [
            (9.499_999, false, Advice::Use),
            (9.5, false, Advice::UseAndRefresh),
            (9.999_999, false, Advice::UseAndRefresh),
            (10.0, false, Advice::Ask),
            (10.0, true, Advice::UseAndRefresh),
            (3_609.999_999, true, Advice::UseAndRefresh),
            (3610.0, true, Advice::Ask),
        ] {
            assert_eq!(record.advice(seconds(t), &TTL, unanswered), advice, "at {t}");
        }
    }

    #[test]
    fn an_answer_is_of_use_while_it_may_be_served_stale() {
        let record = Record::Known { addresses: Addresses::One(IpId::new(0)), expires: seconds(10.0) };
        assert_eq!(record.end_of_use(&TTL), seconds(3610.0));
        assert_eq!(Record::Nothing { until: seconds(60.0) }.end_of_use(&TTL), seconds(60.0));
        let given = Record::Known { addresses: Addresses::One(IpId::new(0)), expires: Instant::FAR };
        assert_eq!(given.end_of_use(&TTL), Instant::FAR);
    }

    #[test]
    fn a_negative_answer_is_final_for_its_time_and_never_stale() {
        let record = Record::Nothing { until: seconds(60.0) };
        assert_eq!(record.advice(seconds(59.999_999), &TTL, true), Advice::Fail);
        assert_eq!(record.advice(seconds(60.0), &TTL, true), Advice::Ask);
        let record = Record::Private { until: seconds(60.0) };
        assert_eq!(record.advice(seconds(59.999_999), &TTL, false), Advice::Deny);
        assert_eq!(record.advice(seconds(60.0), &TTL, false), Advice::Ask);
    }
}
