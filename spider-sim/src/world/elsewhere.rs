//! The rest of the Internet: name servers and web servers, by the book of the plan.

use super::plan::{Outage, Plan, Site};
use std::collections::HashMap;
use std::net::IpAddr;
use urlserver::document::{Done, Outcome};
use urlserver::hostdb::Resolution;
use urlserver::time::{Duration, Instant};

/// How long it takes to find nobody there.
const REFUSED: Duration = Duration::from_millis(5);
const TIMED_OUT: Duration = Duration::from_secs(3);

/// See the module.
pub(super) struct Elsewhere {
    sites: HashMap<Box<str>, usize>,
    outages: HashMap<IpAddr, Vec<Outage>>,
}

impl Elsewhere {
    pub(super) fn new(plan: &Plan) -> Elsewhere {
        let mut outages: HashMap<IpAddr, Vec<Outage>> = HashMap::new();
        plan.outages.iter().for_each(|&outage| outages.entry(outage.ip).or_default().push(outage));
        let sites = plan.sites.iter().enumerate().map(|(number, site)| (site.name.clone(), number)).collect();
        Elsewhere { sites, outages }
    }

    /// Where a host stands among the sites.
    pub(super) fn place(&self, host: &str) -> Option<usize> {
        self.sites.get(host).copied()
    }

    pub(super) fn site<'a>(&self, plan: &'a Plan, host: &str) -> Option<&'a Site> {
        self.sites.get(host).map(|&number| &plan.sites[number])
    }

    /// How long the answer to a question for `host` takes.
    pub(super) fn delay(&self, plan: &Plan, host: &str, rng: &mut fastrand::Rng) -> Duration {
        let most = self.site(plan, host).map_or(Duration::ZERO, |site| site.names.delay_max);
        Duration::from_micros(rng.u64(..=most.as_micros() as u64))
    }

    /// What the name servers say of `host`.
    pub(super) fn resolve(
        &self,
        plan: &Plan,
        now: Instant,
        host: &str,
        rng: &mut fastrand::Rng,
    ) -> Resolution {
        let Some(site) = self.site(plan, host) else { return Resolution::Nothing { ttl: None } };
        let (names, healed) = (site.names, now >= plan.heal_at);
        if !names.exists {
            return Resolution::Nothing { ttl: Some(names.ttl) };
        }
        if !healed {
            if now < names.silent_until || rng.f64() < names.servfail {
                return Resolution::Unavailable;
            }
            if rng.f64() < names.nxdomain {
                return Resolution::Nothing { ttl: Some(names.ttl) };
            }
        }
        let mut addresses = site.addresses.clone();
        match names.moves_every {
            Some(every) => {
                let move_count = now.as_micros() / (every.as_micros() as u64).max(1);
                let home = move_count as usize % addresses.len();
                addresses = vec![addresses[home]];
            }
            None => rng.shuffle(&mut addresses),
        }
        Resolution::Addresses { addresses, ttl: names.ttl }
    }

    /// What a web server says of itself, and how long that takes; nothing if it is well.
    pub(super) fn answer(
        &self,
        plan: &Plan,
        now: Instant,
        host: &str,
        ip: IpAddr,
        rng: &mut fastrand::Rng,
    ) -> Option<(Done, Duration)> {
        if now >= plan.heal_at {
            return None;
        }
        let out =
            self.outages.get(&ip).is_some_and(|list| list.iter().any(|o| o.from <= now && now < o.until));
        if out {
            let refused = rng.u8(..4) > 0;
            let (outcome, latency) =
                if refused { (Outcome::ConnectFailed, REFUSED) } else { (Outcome::Timeout, TIMED_OUT) };
            return Some((outcome.into(), latency));
        }
        let storms = &self.site(plan, host)?.storms;
        let storm = storms.iter().find(|storm| storm.from <= now && now < storm.until)?;
        Some((storm.done, storm.latency))
    }
}
