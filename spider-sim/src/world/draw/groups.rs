//! Aliases and groups, drawn: by name, by domain and by range, overlapping as they like, and ranges
//! without limits, as CDNs are.
//!
//! A small world has some of these, a large one has all of them. There the limits leave room for all that is
//! behind them: a seventh of a large world behind a slow clock would take weeks.

use super::{address, name, pace, pick, rest};
use std::net::IpAddr;
use urlserver::scheduler::{GroupRule, IpRange, Pace};
use urlserver::time::Duration;

/// Hosts of one alias.
const ALIASED: u32 = 3;
/// Most aliases of a large world, and most hosts of a group that names them.
const ALIASES_LARGE: u32 = 20;
const NAMED_LARGE: u32 = 20;
/// Domains of a world.
const DOMAINS: u8 = 7;

pub(super) fn aliases(rng: &mut fastrand::Rng, large: bool) -> Vec<GroupRule> {
    let rule = |rng: &mut fastrand::Rng, number: u32| GroupRule {
        hosts: (0..ALIASED).map(|n| name(number * ALIASED + n).into()).collect(),
        pace: pace(rng, large),
        rest: rng.bool().then(|| rest(rng)),
        ..nobody(format!("alias{number}"))
    };
    let count = if large { rng.u32(1..=ALIASES_LARGE) } else { rng.u32(..3) };
    (0..count).map(|number| rule(rng, number)).collect()
}

pub(super) fn groups(rng: &mut fastrand::Rng, large: bool, hosts: u32, addresses: u32) -> Vec<GroupRule> {
    let mut rules: Vec<GroupRule> = if large {
        vec![
            named(rng, hosts),
            domain(rng),
            range(rng, "four", addresses, IpAddr::is_ipv4, 22..30),
            range(rng, "six", addresses, IpAddr::is_ipv6, 118..126),
            cdn(rng, addresses),
        ]
    } else {
        (0..rng.u32(..=3)).map(|number| small(rng, number, addresses)).collect()
    };
    // The first that matches counts.
    rng.shuffle(&mut rules);
    rules
}

fn small(rng: &mut fastrand::Rng, number: u32, addresses: u32) -> GroupRule {
    let base = GroupRule {
        pace: pace(rng, false),
        rest: rng.bool().then(|| rest(rng)),
        ..nobody(format!("group{number}"))
    };
    let range = IpRange { address: address(rng.u32(..addresses)), bits: rng.u8(30..33) };
    match rng.u8(..4) {
        0 => GroupRule { hosts: (0..2).map(|_| name(rng.u32(..20)).into()).collect(), ..base },
        1 => GroupRule { domains: vec![format!("d{}.example", rng.u8(..DOMAINS)).into()], ..base },
        2 => GroupRule { ranges: vec![range], ..base },
        _ => GroupRule { ranges: vec![range], pace: Pace::FREE, rest: None, ..base },
    }
}

/// Some of the great hosts, and some of the others.
fn named(rng: &mut fastrand::Rng, hosts: u32) -> GroupRule {
    let great = |rng: &mut fastrand::Rng| rng.u32(..hosts.min(5 * NAMED_LARGE));
    let mut number = |n: u32| if n.is_multiple_of(2) { great(rng) } else { rng.u32(..hosts) };
    let hosts = (0..NAMED_LARGE).map(|n| name(number(n)).into()).collect();
    let rest = rng.bool().then(|| rest(rng));
    GroupRule { hosts, pace: wide(rng, &[200, 500, 1000]), rest, ..nobody("named".to_owned()) }
}

fn domain(rng: &mut fastrand::Rng) -> GroupRule {
    let domains = vec![format!("d{}.example", rng.u8(..DOMAINS)).into()];
    GroupRule { domains, pace: wide(rng, &[0, 20, 50, 100]), ..nobody("domain".to_owned()) }
}

/// A range of one family around one of the world's addresses.
fn range(
    rng: &mut fastrand::Rng,
    name: &str,
    addresses: u32,
    family: fn(&IpAddr) -> bool,
    bits: std::ops::Range<u8>,
) -> GroupRule {
    let ranges = vec![some_range(rng, addresses, family, bits)];
    GroupRule { ranges, pace: wide(rng, &[0, 20, 100, 200]), ..nobody(name.to_owned()) }
}

fn cdn(rng: &mut fastrand::Rng, addresses: u32) -> GroupRule {
    let ranges = vec![
        some_range(rng, addresses, IpAddr::is_ipv4, 24..32),
        some_range(rng, addresses, IpAddr::is_ipv6, 120..128),
    ];
    GroupRule { ranges, pace: Pace::FREE, ..nobody("cdn".to_owned()) }
}

fn some_range(
    rng: &mut fastrand::Rng,
    addresses: u32,
    family: fn(&IpAddr) -> bool,
    bits: std::ops::Range<u8>,
) -> IpRange {
    // One in eight is of the other family.
    let first = rng.u32(..addresses);
    let address = (first..first + 8).map(address).find(family).unwrap_or(address(first));
    IpRange { address, bits: rng.u8(bits) }
}

/// For many hosts at once.
fn wide(rng: &mut fastrand::Rng, gaps: &[u64]) -> Pace {
    Pace { concurrent: rng.u32(2..12), gap: Duration::from_millis(pick(rng, gaps)) }
}

fn nobody(name: String) -> GroupRule {
    let (hosts, domains, ranges) = (Vec::new(), Vec::new(), Vec::new());
    GroupRule { name: name.into(), hosts, domains, ranges, pace: Pace::FREE, rest: None, robots: None }
}
