//! Origins: what is known of the robots.txt of each scheme and port of a host, and what is being asked.
//!
//! Kept beside the hosts, for those hosts only whose robots.txt matters, and forgotten with them. Nothing is
//! decided here but what follows from time alone; judging, asking and answering are in `permission`.

use super::leases::GateSet;
use super::lists::{Links, List};
use super::table::Key;
use super::timers::Timers;
use crate::ids::{FetchId, HostId, IpId};
use crate::robots::Rules;
use crate::time::{Duration, Instant};
use crate::url::{Scheme, Tail, Url};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Rules are asked for anew after this, or sooner if the web server says so.
pub(super) const LIFETIME: Duration = Duration::from_secs(86_400);
/// However short a life the web server gives them, they are not asked for more often than this.
pub(super) const LIFETIME_MIN: Duration = Duration::from_secs(60);
/// How long past their time rules count while new ones are being asked for.
const GRACE: Duration = Duration::from_secs(3600);
/// How long after they were had rules count while new ones cannot be had.
const STALE_MAX: Duration = Duration::from_secs(30 * 86_400);
/// A Crawl-delay beyond this is as good as never.
const DELAY_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Origins of one host that are remembered; beyond that the oldest that nothing is asked for goes.
const ORIGINS_MAX: usize = 32;

/// An origin among those of its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OriginKey {
    secure: bool,
    port: u16,
}

impl OriginKey {
    pub(super) fn of(tail: Tail<'_>) -> OriginKey {
        OriginKey { secure: tail.is_secure(), port: tail.port() }
    }

    /// Where its rules are.
    pub(super) fn robots_url(self, host: &str) -> Url {
        let (scheme, usual) = if self.secure { (Scheme::Https, 443) } else { (Scheme::Http, 80) };
        let port = if self.port == usual { String::new() } else { format!(":{}", self.port) };
        Url::from_tail(host, Tail { scheme, rest: &format!("{port}/robots.txt") })
    }
}

/// One origin of a host.
pub(super) struct Origin {
    pub(super) key: OriginKey,
    known: Option<Known>,
    ask: Ask,
    /// Requests in a row that brought no rules.
    pub(super) failures: u8,
    /// Documents whose turn is earlier end for want of rules.
    pub(super) doomed_before: u64,
}

/// Rules that were had.
pub(super) struct Known {
    pub(super) rules: Rules,
    since: Instant,
    fresh_until: Instant,
    /// Never the same for other rules.
    pub(super) version: u32,
}

/// Where the question for rules stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// Not asked.
    No,
    /// To be asked, or asked: somewhere there is one [`Want`] for it.
    Wanted,
    /// Asked in vain: not before this.
    BackOff(Instant),
}

impl Origin {
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.known.as_ref().is_some_and(|known| now < known.fresh_until)
    }

    /// Rules that need not be asked for again, and for how long.
    pub(super) fn fresh_rules(&self, now: Instant) -> Option<(Rules, Duration)> {
        let known = self.known.as_ref().filter(|known| now < known.fresh_until)?;
        Some((known.rules.clone(), known.fresh_until.since(now)))
    }

    pub(super) fn may_ask(&self, now: Instant) -> bool {
        match self.ask {
            Ask::No => true,
            Ask::Wanted => false,
            Ask::BackOff(until) => now >= until,
        }
    }

    /// When it is asked for again, if it was in vain.
    pub(super) fn asks_at(&self) -> Option<Instant> {
        match self.ask {
            Ask::BackOff(until) => Some(until),
            Ask::No | Ask::Wanted => None,
        }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.ask != Ask::No
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.ask == Ask::Wanted
    }

    /// The rules that count now.
    pub(super) fn rules(&self, now: Instant) -> Option<&Known> {
        self.known.as_ref().filter(|known| {
            let until = if self.failures > 0 { known.since + STALE_MAX } else { known.fresh_until + GRACE };
            now < until
        })
    }
}

/// A request for a robots.txt to be made through the gates of some host.
#[derive(Debug)]
pub(super) struct Want {
    /// Whose rules they will be, wherever they come from.
    pub(super) host: HostId,
    pub(super) key: OriginKey,
    pub(super) url: Url,
    /// Redirects so far.
    pub(super) hops: u8,
}

/// A request under way.
pub(super) struct Fetch {
    pub(super) want: Want,
    pub(super) at: Instant,
    pub(super) ip: IpId,
    /// The gates it has passed, and is counted at until it is answered.
    pub(super) gates: GateSet,
}

/// What a lease knows of permission.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Permit {
    /// Its place among all that were ever queued for its host.
    pub(super) turn: u64,
    /// The rules that allow it.
    pub(super) version: u32,
    /// It was never sent, and is in front only to be judged.
    pub(super) fresh: bool,
}

/// The version of a permit where nobody was asked.
pub(super) const UNASKED: u32 = u32::MAX;

/// All that is known of the origins of one host.
#[derive(Default)]
pub(super) struct HostOrigins {
    pub(super) list: Vec<Origin>,
    /// Requests to be made through this host's gates, for itself or for others that redirect here.
    pub(super) wants: VecDeque<Want>,
    /// Documents that were ever taken from its queue.
    pub(super) taken: u64,
    /// On the list of hosts whose first document is to end.
    pub(super) denying: bool,
    /// The last that passed its gates was for another host: its own documents come first now.
    pub(super) was_for_another: bool,
}

impl HostOrigins {
    /// The longest delay that any of them asks for, but for those that are not crawled for it.
    pub(super) fn delay(&self, max: Option<Duration>) -> Duration {
        let known = self.list.iter().filter_map(|origin| origin.known.as_ref());
        let delays = known.filter_map(|known| known.rules.delay());
        let kept = delays.filter(|&delay| max.is_none_or(|max| delay <= max));
        kept.max().unwrap_or_default().min(DELAY_MAX)
    }

    fn find(&self, key: OriginKey) -> Option<&Origin> {
        self.list.iter().find(|origin| origin.key == key)
    }
}

/// All origins, and the requests for their rules.
#[derive(Default)]
pub(super) struct Origins {
    hosts: Vec<Option<Box<HostOrigins>>>,
    pub(super) fetches: HashMap<FetchId, Fetch>,
    last_fetch: u64,
    last_version: u32,
    pub(super) deny_links: Links<HostId>,
    /// Hosts whose first document may not be fetched.
    pub(super) denying: List,
    /// When a host looks at its rules again.
    pub(super) timers: Timers<HostId>,
    /// Origins whose rules are asked for.
    pub(super) asking: u64,
}

impl Origins {
    pub(super) fn get(&self, host: HostId) -> Option<&HostOrigins> {
        self.hosts.get(host.index())?.as_deref()
    }

    pub(super) fn get_mut(&mut self, host: HostId) -> Option<&mut HostOrigins> {
        self.hosts.get_mut(host.index())?.as_deref_mut()
    }

    /// What is known of `host`, from now on if nothing was.
    pub(super) fn of(&mut self, host: HostId) -> &mut HostOrigins {
        if host.index() >= self.hosts.len() {
            self.hosts.resize_with(host.index() + 1, || None);
        }
        self.hosts[host.index()].get_or_insert_default()
    }

    pub(super) fn find(&self, host: HostId, key: OriginKey) -> Option<&Origin> {
        self.get(host)?.find(key)
    }

    /// The origin, from now on if it was not known.
    pub(super) fn origin(&mut self, host: HostId, key: OriginKey) -> &mut Origin {
        let entry = self.of(host);
        let index = entry.list.iter().position(|origin| origin.key == key);
        let index = index.unwrap_or_else(|| {
            self.make_room(host);
            let list = &mut self.of(host).list;
            list.push(Origin { key, known: None, ask: Ask::No, failures: 0, doomed_before: 0 });
            list.len() - 1
        });
        &mut self.of(host).list[index]
    }

    fn make_room(&mut self, host: HostId) {
        let list = &mut self.of(host).list;
        if list.len() < ORIGINS_MAX {
            return;
        }
        if let Some(oldest) = list.iter().position(|origin| !origin.is_wanted()) {
            let gone = list.remove(oldest);
            self.asking -= u64::from(gone.is_asking());
        }
    }

    pub(super) fn set_ask(&mut self, host: HostId, key: OriginKey, ask: Ask) {
        let before = std::mem::replace(&mut self.origin(host, key).ask, ask);
        self.asking += u64::from(ask != Ask::No);
        self.asking -= u64::from(before != Ask::No);
    }

    /// The origin has these rules now.
    pub(super) fn set_rules(
        &mut self,
        now: Instant,
        host: HostId,
        key: OriginKey,
        rules: Rules,
        lifetime: Duration,
    ) {
        self.last_version = (self.last_version + 1) % UNASKED;
        // Zero is the version of a permit that was never given.
        self.last_version = self.last_version.max(1);
        let version = self.last_version;
        let origin = self.origin(host, key);
        origin.failures = 0;
        origin.known = Some(Known { rules, since: now, fresh_until: now + lifetime, version });
    }

    pub(super) fn add_fetch(&mut self, fetch: Fetch) -> FetchId {
        self.last_fetch += 1;
        let id = FetchId(self.last_fetch);
        self.fetches.insert(id, fetch);
        id
    }

    /// Whether some of the host's rules would have to be asked for again if they were forgotten.
    pub(super) fn has_fresh_rules(&self, now: Instant, host: HostId) -> bool {
        self.get(host).is_some_and(|entry| entry.list.iter().any(|origin| origin.is_fresh(now)))
    }

    /// Whether rules of the host are on their way.
    pub(super) fn awaits_answer(&self, host: HostId) -> bool {
        self.get(host).is_some_and(|entry| entry.list.iter().any(Origin::is_wanted))
    }

    /// The host is forgotten, and all this with it.
    pub(super) fn forget(&mut self, host: HostId) {
        self.timers.cancel(host);
        let Some(entry) = self.hosts.get_mut(host.index()).and_then(Option::take) else { return };
        self.asking -= entry.list.iter().filter(|origin| origin.is_asking()).count() as u64;
        if entry.denying {
            self.deny_links.remove(&mut self.denying, host);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (HostId, &HostOrigins)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.filter_map(|(index, entry)| Some((HostId::from_index(index), entry.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> OriginKey {
        OriginKey::of(Url::parse(text).expect(text).tail())
    }

    #[test]
    fn rules_are_at_the_root_of_their_origin() {
        for (text, host, robots) in [
            ("http://a.example/x?y", "a.example", "http://a.example/robots.txt"),
            ("http://a.example:443/x", "a.example", "http://a.example:443/robots.txt"),
            ("https://u:p@a.example:8443/x", "a.example", "https://a.example:8443/robots.txt"),
            ("https://a.example./x", "a.example", "https://a.example/robots.txt"),
            ("http://[::1]:81/", "[::1]", "http://[::1]:81/robots.txt"),
        ] {
            let url = key(text).robots_url(host);
            assert_eq!((url.as_str(), url.host()), (robots, host));
            assert_eq!(Url::parse(robots).as_ref(), Ok(&url));
        }
    }

    #[test]
    fn a_host_with_countless_origins_is_remembered_by_the_last_ones_and_those_that_are_asked() {
        let (mut origins, host) = (Origins::default(), HostId::new(3));
        let port = |port: u16| OriginKey { secure: false, port };
        origins.set_ask(host, port(0), Ask::Wanted);
        for n in 1..1000 {
            origins.set_ask(host, port(n), Ask::BackOff(Instant::ZERO));
        }
        assert_eq!(origins.get(host).map(|entry| entry.list.len()), Some(ORIGINS_MAX));
        assert_eq!(origins.asking, ORIGINS_MAX as u64);
        assert!(origins.find(host, port(0)).is_some_and(Origin::is_wanted));
        assert!(origins.find(host, port(1)).is_none() && origins.find(host, port(999)).is_some());
        origins.forget(host);
        assert!(origins.asking == 0 && origins.get(host).is_none());
    }

    #[test]
    fn rules_count_as_long_as_they_should_at_both_ends() {
        let (mut origins, host, key) = (Origins::default(), HostId::new(0), key("http://a.example/"));
        let day = Instant::ZERO + LIFETIME;
        let before = |at: Instant| Instant::from_micros(at.as_micros() - 1);
        origins.set_rules(Instant::ZERO, host, key, Rules::everything_allowed(), LIFETIME);
        let origin = origins.origin(host, key);
        assert!(origin.is_fresh(before(day)) && !origin.is_fresh(day));
        let end = day + GRACE;
        assert!(origin.rules(before(end)).is_some() && origin.rules(end).is_none());
        origin.failures = 1;
        let end = Instant::ZERO + STALE_MAX;
        assert!(origin.rules(before(end)).is_some() && origin.rules(end).is_none());
    }

    #[test]
    fn absurd_delays_do_not_overflow() {
        let mut entry = HostOrigins::default();
        assert_eq!(entry.delay(None), Duration::ZERO);
        let rules = Rules::parse(b"User-agent: *\nCrawl-delay: 99999999999999999999\n", "a");
        let known = Known { rules, since: Instant::ZERO, fresh_until: Instant::FAR, version: 1 };
        let key = key("http://a.example/");
        entry.list.push(Origin { key, known: Some(known), ask: Ask::No, failures: 0, doomed_before: 0 });
        assert!(entry.delay(None) <= DELAY_MAX);
        assert_eq!(entry.delay(Some(Duration::from_secs(10))), Duration::ZERO, "it is not crawled");
    }
}
