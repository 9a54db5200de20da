//! Plans drawn from a seed: worlds in which everything goes wrong that can.

mod groups;

use super::plan::{IndexManners, NameManners, Outage, Plan, RobotsManners, Site, Storm, Wires};
use crate::profile::Profile;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use urlserver::document::{Done, Outcome};
use urlserver::hostdb::health::HealthRule;
use urlserver::hostdb::records::TtlRule;
use urlserver::scheduler::{Config, Pace, Rest};
use urlserver::time::{Duration, Instant};

/// How large a world should be; what is not said is drawn, and small.
#[derive(Clone, Default, Debug)]
pub struct Scale {
    /// Hosts.
    pub hosts: Option<u32>,
    /// Addresses.
    pub addresses: Option<u32>,
    /// Documents.
    pub urls: Option<u32>,
    /// Spiders.
    pub spiders: Option<u16>,
    /// How long faults last.
    pub faults: Option<Duration>,
    /// What every spider is like.
    pub profile: Option<Profile>,
}

/// From so many hosts on, a world is large: default settings, and laws checked now and then.
const LARGE: u32 = 1000;
/// Laws are checked so often in a large world; each check walks everything.
const CHECK_LARGE_EVERY: u64 = 1 << 17;

/// What storms and outages are like.
#[derive(Clone, Copy)]
struct Weather {
    heal_at: Instant,
    large: bool,
    /// Web servers may ask for centuries.
    absurd: bool,
    /// Nothing is ever given up.
    endless: bool,
}

impl Weather {
    /// From when until when. In a large world, which lasts for hours, now and then for a good part of them.
    fn spell(self, rng: &mut fastrand::Rng, millis_max: u64) -> (Instant, Instant) {
        let from = before(rng, self.heal_at);
        let long = self.large && rng.u8(..4) == 0;
        (from, from + millis(rng, if long { 20 * millis_max } else { millis_max }))
    }
}

/// Draws a world.
pub fn draw(seed: u64, scale: &Scale) -> Plan {
    let mut rng = fastrand::Rng::with_seed(seed);
    let hosts = scale.hosts.unwrap_or_else(|| rng.u32(1..20)).max(1);
    let addresses = scale.addresses.unwrap_or_else(|| rng.u32(1..8)).max(1);
    let large = hosts >= LARGE;
    let urls = scale.urls.unwrap_or_else(|| if large { hosts * 10 } else { rng.u32(1..120) });
    let faults = scale.faults.unwrap_or_else(|| Duration::from_secs(rng.u64(10..240)));
    let spiders = scale.spiders.unwrap_or_else(|| if large { 16 } else { rng.u16(1..5) }).max(1);
    let config = config(&mut rng, large, hosts, addresses);
    let heal_at = Instant::ZERO + faults;
    let endless = config.max_attempts == 0;
    let weather = Weather { heal_at, large, endless, absurd: rng.u8(..8) == 0 };
    Plan {
        seed: rng.u64(..),
        sites: sites(&mut rng, hosts, addresses, urls, weather),
        spiders: (0..spiders).map(|_| profile(&mut rng, scale)).collect(),
        wires: wires(&mut rng, large),
        index: index(&mut rng, large),
        outages: outages(&mut rng, addresses, weather),
        heal_at,
        check_every: if large { CHECK_LARGE_EVERY } else { 1 },
        keep_sends: false,
        config,
    }
}

/// The n-th address of a world: public, now and then IPv6.
pub fn address(n: u32) -> IpAddr {
    if n % 8 == 5 {
        Ipv6Addr::from_bits(0x2a00_0000 << 96 | u128::from(n)).into()
    } else {
        Ipv4Addr::from_bits(0x0b00_0000 | n).into()
    }
}

/// The name of the n-th host of a world.
pub fn name(n: u32) -> String {
    format!("h{n}.d{}.example", n % 7)
}

fn config(rng: &mut fastrand::Rng, large: bool, hosts: u32, addresses: u32) -> Config {
    let base = Config {
        seed: rng.u64(..),
        robots: rng.u8(..4) > 0,
        crawl_delay_max: (rng.u8(..3) == 0).then(|| Duration::from_secs(rng.u64(1..12))),
        aliases: groups::aliases(rng, large),
        groups: groups::groups(rng, large, hosts, addresses),
        ..Config::default()
    };
    if large {
        return Config { queue_count: 4000, ..base };
    }
    let host = pace(rng, false);
    Config {
        queue_count: rng.u32(1..8),
        queue_len: host.concurrent + rng.u32(..6),
        host,
        ip: pace(rng, false),
        ip_max_urls: rng.u32(..20),
        rest: rest(rng),
        status_timeout: Duration::from_millis(rng.u64(500..10_000)),
        lease_max: rng.bool().then(|| Duration::from_millis(rng.u64(1000..30_000))),
        max_attempts: rng.u32(..5),
        retry_delay: Duration::from_millis(rng.u64(..5000)),
        spider_window: rng.bool().then(|| rng.u32(1..6)),
        ttl: TtlRule {
            min: Duration::from_millis(rng.u64(..2000)),
            max: Duration::from_secs(rng.u64(2..600)),
            negative: Duration::from_secs(rng.u64(1..60)),
            serve_stale: Duration::from_secs(rng.u64(..600)),
        },
        health: HealthRule {
            fail_threshold: rng.u32(1..5),
            fail_window: Duration::from_secs(rng.u64(1..60)),
        },
        ..base
    }
}

fn pace(rng: &mut fastrand::Rng, large: bool) -> Pace {
    let gap = if large { 1000 } else { pick(rng, &[0, 0, 10, 500, 1000, 3000]) };
    Pace { concurrent: rng.u32(1..4), gap: Duration::from_millis(gap) }
}

fn rest(rng: &mut fastrand::Rng) -> Rest {
    let max = Duration::from_millis(rng.u64(..5000));
    Rest { factor: rng.f64() * 3.0, min: max.mul_f64(rng.f64() * 0.2), max }
}

/// Zipf's law, roughly: the n-th host has 1/n of the first.
fn sites(rng: &mut fastrand::Rng, hosts: u32, addresses: u32, urls: u32, weather: Weather) -> Vec<Site> {
    let mut sizes = vec![0u32; hosts as usize];
    for _ in 0..urls {
        let host = f64::from(hosts).powf(rng.f64()) as usize - 1;
        let host = if rng.bool() { host } else { rng.usize(..hosts as usize) };
        sizes[host.min(hosts as usize - 1)] += 1;
    }
    let site = |(n, &size): (usize, &u32)| {
        let mut homes: Vec<IpAddr> = (0..rng.u8(1..4)).map(|_| address(rng.u32(..addresses))).collect();
        if rng.u8(..40) == 0 {
            homes = vec![Ipv4Addr::new(10, 0, 0, 1).into()];
        }
        let mut site = Site::new(&name(n as u32), size, &homes);
        site.names = names(rng, weather.heal_at);
        site.robots = robots(rng, hosts as usize, weather.endless);
        if rng.u8(..5) == 0 {
            site.storms.push(storm(rng, weather));
        }
        site
    };
    sizes.iter().enumerate().map(site).collect()
}

/// Rules, delays, redirects and silence. Where nothing is ever given up, nothing may be silent for ever.
fn robots(rng: &mut fastrand::Rng, sites: usize, endless: bool) -> RobotsManners {
    let slow = pick(rng, &[50, 3000]);
    let latency_max = millis(rng, slow);
    let rules = RobotsManners {
        exists: true,
        denies: rng.bool().then(|| rng.u8(..10)),
        delay: (rng.u8(..4) == 0).then(|| Duration::from_secs(rng.u64(1..12))),
        max_age: rng.bool().then(|| Duration::from_secs(rng.u64(..120))),
        failures: pick(rng, &[0.0, 0.0, 0.3]),
        latency_max,
        ..RobotsManners::default()
    };
    match rng.u8(..8) {
        0 => RobotsManners { exists: false, ..rules },
        1 | 2 => {
            let stride = if endless { 0 } else { rng.usize(..sites) };
            RobotsManners { hops: rng.u8(1..8), stride, ..rules }
        }
        3 => RobotsManners { failures: 0.9, ..rules },
        4 if !endless && rng.bool() => RobotsManners { dead: true, ..rules },
        _ => rules,
    }
}

fn names(rng: &mut fastrand::Rng, heal_at: Instant) -> NameManners {
    let steady = NameManners { ttl: millis(rng, 60_000), ..NameManners::default() };
    match rng.u8(..8) {
        0 => NameManners { exists: false, ..steady },
        1 => NameManners { silent_until: before(rng, heal_at), ..steady },
        2 => NameManners { servfail: 0.5, delay_max: Duration::from_secs(5), ..steady },
        3 => NameManners { nxdomain: 0.3, ttl: millis(rng, 3000), ..steady },
        4 => NameManners { moves_every: Some(millis(rng, 20_000)), ttl: millis(rng, 3000), ..steady },
        _ => steady,
    }
}

fn storm(rng: &mut fastrand::Rng, weather: Weather) -> Storm {
    let outcome = Outcome::Status(pick(rng, &[429, 429, 503, 503, 500, 408]));
    let retry_after = match rng.u8(..16) {
        0 => Some(Duration::ZERO),
        1 if weather.absurd => Some(Duration::from_secs(u64::MAX)),
        2..9 => Some(Duration::from_secs(rng.u64(..20))),
        _ => None,
    };
    let (from, until) = weather.spell(rng, 60_000);
    Storm { from, until, done: Done { outcome, retry_after }, latency: millis(rng, 50) }
}

fn outages(rng: &mut fastrand::Rng, addresses: u32, weather: Weather) -> Vec<Outage> {
    let outage = |rng: &mut fastrand::Rng| {
        let (from, until) = weather.spell(rng, 120_000);
        Outage { ip: address(rng.u32(..addresses)), from, until }
    };
    let least = if weather.large { addresses / 2 } else { 0 };
    (0..rng.u32(least..=addresses)).map(|_| outage(rng)).collect()
}

fn profile(rng: &mut fastrand::Rng, scale: &Scale) -> Profile {
    if let Some(profile) = &scale.profile {
        return profile.clone();
    }
    let forms = Profile { wait_forms: 0.5, ..Profile::polite() };
    match rng.u8(..9) {
        0 => forms,
        1 => Profile::original(),
        2 => Profile { pull: Some(16), ..forms },
        3 => Profile { pull: Some(rng.u32(1..8)), ..forms },
        4 => Profile { stall: 0.05, stall_max: Duration::from_secs(20), ..Profile::chaos() },
        5 => Profile { crash: 0.1, hang: 0.05, ..Profile::chaos() },
        // Takes all it is given, and is never heard of again.
        6 => Profile { hang: 1.0, silent: 1.0, ..forms },
        _ => Profile::chaos(),
    }
}

fn wires(rng: &mut fastrand::Rng, large: bool) -> Wires {
    Wires {
        latency_max: millis(rng, if large { 20 } else { 200 }),
        capacity: if large { 64 * 1024 } else { rng.usize(60..4096) },
        split: rng.f64(),
        cut: 0.1,
        refuse: 0.2,
    }
}

fn index(rng: &mut fastrand::Rng, large: bool) -> IndexManners {
    IndexManners {
        delay_max: millis(rng, 500),
        empty: 0.1,
        deaf: 0.2,
        surplus: 0.1,
        repeats: 0.2,
        // Else most of a large world would be over long before its faults are.
        late: if large { 0.8 } else { 0.3 },
        given_ip: 0.03,
        wait: 0.05,
    }
}

fn before(rng: &mut fastrand::Rng, end: Instant) -> Instant {
    Instant::from_micros(rng.u64(..end.as_micros().max(1)))
}

fn millis(rng: &mut fastrand::Rng, max: u64) -> Duration {
    Duration::from_micros(rng.u64(..max * 1000))
}

fn pick<T: Copy>(rng: &mut fastrand::Rng, list: &[T]) -> T {
    list[rng.usize(..list.len())]
}
