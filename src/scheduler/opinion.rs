//! What is known of the permission to fetch a URL, for whoever asks why it does not go. Nothing is decided here.

use super::Scheduler;
use super::origins::OriginKey;
use crate::robots::Verdict;
use crate::time::{Duration, Instant};
use crate::url::Url;

/// What the robots.txt of a URL's origin means for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opinion<'a> {
    /// Nobody asks: the settings, or those of its group, say so.
    Unasked,
    /// Not known, and nothing goes before it is.
    Unknown {
        /// It is being asked for, or will be again after a failure.
        asking: bool,
        /// Requests in a row that brought nothing.
        failures: u8,
    },
    /// It may be fetched.
    Allowed {
        /// The Crawl-delay that is kept for it.
        delay: Option<Duration>,
    },
    /// It may not.
    Denied {
        /// The line of the rule, from 1.
        line: u32,
        /// Its pattern.
        rule: &'a str,
    },
    /// A longer Crawl-delay is asked for than `crawl_delay_max`.
    TooSlow {
        /// How long.
        delay: Duration,
    },
}

impl Scheduler {
    /// What is known now of the permission to fetch `url`.
    pub fn opinion(&self, now: Instant, url: &Url) -> Opinion<'_> {
        let Some(host) = self.hosts.find(url.host()) else {
            return Opinion::Unknown { asking: false, failures: 0 };
        };
        if !self.obeys(host) {
            return Opinion::Unasked;
        }
        let origin = self.origins.find(host, OriginKey::of(url.tail()));
        let Some(known) = origin.and_then(|origin| origin.rules(now)) else {
            let asking = origin.is_some_and(|origin| origin.is_asking());
            return Opinion::Unknown { asking, failures: origin.map_or(0, |origin| origin.failures) };
        };
        let delay = known.rules.delay();
        if let Some(delay) = delay.filter(|&delay| self.config.crawl_delay_max.is_some_and(|max| delay > max))
        {
            return Opinion::TooSlow { delay };
        }
        match known.rules.verdict(url.tail().path()) {
            Verdict::Allowed => Opinion::Allowed { delay },
            Verdict::Denied { line, rule } => Opinion::Denied { line, rule },
        }
    }
}
