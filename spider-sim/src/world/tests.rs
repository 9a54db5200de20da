//! A scheduler that goes by other rules than promised is found out, by the ledger and by the auditor alone.
#![allow(clippy::unwrap_used)]

use super::draw::address;
use super::plan::{RobotsManners, Site};
use super::*;
use urlserver::scheduler::{GroupRule, IpRange, Pace, Rest};

fn pace(concurrent: u32, gap_secs: u64) -> Pace {
    Pace { concurrent, gap: Duration::from_secs(gap_secs) }
}

fn group(name: &str, pace: Pace) -> GroupRule {
    let (hosts, domains, ranges) = (Vec::new(), Vec::new(), Vec::new());
    GroupRule { name: name.into(), hosts, domains, ranges, pace, rest: None, robots: None }
}

fn range(n: u32, bits: u8) -> Vec<IpRange> {
    vec![IpRange { address: address(n), bits }]
}

/// Two hosts under each kind of rule, all at different addresses but those of the address and of the CDN.
fn promised() -> Plan {
    let alias =
        GroupRule { hosts: vec!["a1.example".into(), "a2.example".into()], ..group("alias", pace(9, 2)) };
    let named =
        GroupRule { hosts: vec!["n1.example".into(), "n2.example".into()], ..group("named", pace(1, 0)) };
    let domain = GroupRule { domains: vec!["below.example".into()], ..group("domain", pace(9, 3)) };
    // Addresses 32 and 33 are of one family, 37 and 45 of the other.
    let four = GroupRule { ranges: range(32, 31), ..group("four", pace(9, 3)) };
    let six = GroupRule { ranges: range(37, 120), ..group("six", pace(1, 0)) };
    let slow = Rest { factor: 0.0, min: Duration::from_secs(4), max: Duration::from_secs(4) };
    let rests = GroupRule {
        hosts: vec!["r1.example".into(), "r2.example".into()],
        rest: Some(slow),
        ..group("rests", pace(9, 0))
    };
    let cdn = GroupRule { ranges: range(64, 32), ..group("cdn", Pace::FREE) };
    let homes = [
        ("a1.example", 0),
        ("a2.example", 1),
        ("n1.example", 2),
        ("n2.example", 3),
        ("x.below.example", 4),
        ("y.below.example", 6),
        ("four1.example", 32),
        ("four2.example", 33),
        ("six1.example", 37),
        ("six2.example", 45),
        ("r1.example", 7),
        ("r2.example", 8),
        ("cdn1.example", 64),
        ("cdn2.example", 64),
        ("shared1.example", 9),
        ("shared2.example", 9),
        ("alone.example", 10),
    ];
    let sites = homes.iter().map(|&(name, n)| Site::new(name, 20, &[address(n)])).collect();
    let config = Config {
        host: pace(2, 1),
        ip: pace(2, 1),
        rest: Rest { factor: 0.0, min: Duration::ZERO, max: Duration::ZERO },
        ip_max_urls: 0,
        aliases: vec![alias],
        groups: vec![named, domain, four, six, rests, cdn],
        ..Config::default()
    };
    let mut plan = Plan::peaceful(1, config, sites);
    let latency = crate::profile::Latency::Uniform(Duration::from_millis(100), Duration::from_millis(1500));
    plan.spiders[0].latency = latency;
    plan
}

#[test]
fn as_promised_nothing_is_found_and_all_drains() {
    let verdict = World::new(promised()).run(|_| ());
    assert!(verdict.is_clean(), "{:#?}", verdict.wrongs);
    assert_eq!(verdict.stats.counters.done, 17 * 20);
}

/// What the ledger and the auditor find, each by itself, if the scheduler goes by rules changed so.
fn found(change: impl Fn(&mut Config)) -> (String, String) {
    let world = || {
        let plan = promised();
        let mut rules = plan.config.clone();
        change(&mut rules);
        World::with_rules(plan, rules)
    };
    let mut first = world();
    while first.ledger.faults.count() == 0 && !first.is_drained() {
        first.step();
    }
    let mut second = world();
    while second.auditor.violation_count() == 0 && !second.is_drained() {
        second.step();
    }
    let ledger = first.ledger.faults.texts().next().unwrap_or_default();
    let auditor = second.auditor.violations().first().map(ToString::to_string).unwrap_or_default();
    (ledger, auditor)
}

#[test]
fn every_rule_that_the_scheduler_widens_is_found_out() {
    type Change = fn(&mut Config);
    let changes: [(&str, Change); 9] = [
        ("host", |c| c.host.gap = Duration::from_millis(900)),
        ("ip 11.0.0.9", |c| c.ip = Pace::FREE),
        ("group alias", |c| c.aliases[0].pace.gap = Duration::from_secs(1)),
        ("group named", |c| c.groups[0].pace.concurrent = 2),
        ("group domain", |c| c.groups[1].pace.gap = Duration::from_millis(2900)),
        ("group four", |c| c.groups[2].ranges[0].bits = 32),
        ("group six", |c| c.groups[3].ranges[0].bits = 128),
        ("group rests", |c| c.groups[4].rest = None),
        ("ip 11.0.0.9", |c| c.groups[5].ranges.push(IpRange { address: address(9), bits: 32 })),
    ];
    for (number, (gate, change)) in changes.into_iter().enumerate() {
        let (ledger, auditor) = found(change);
        assert!(ledger.contains(gate), "{number}, {gate}, the ledger: `{ledger}`");
        assert!(auditor.contains(gate), "{number}, {gate}, the auditor: `{auditor}`");
    }
}

/// A site that denies a tenth of its documents, one that asks for time, and a server that promises to obey.
fn with_robots() -> Plan {
    let manners = RobotsManners { exists: true, ..RobotsManners::default() };
    let denies = RobotsManners { denies: Some(1), ..manners };
    let slow = RobotsManners { delay: Some(Duration::from_secs(5)), ..manners };
    let site = |name, n, robots| Site { robots, ..Site::new(name, 20, &[address(n)]) };
    let mut plan = promised();
    plan.sites = vec![site("denies.example", 0, denies), site("slow.example", 1, slow)];
    plan.config.robots = true;
    plan
}

#[test]
fn who_obeys_is_not_accused() {
    let verdict = World::new(with_robots()).run(|_| ());
    assert!(verdict.is_clean(), "{:#?}", verdict.wrongs);
    assert_eq!(verdict.stats.counters.denied + verdict.stats.counters.done, 40);
    assert!(verdict.stats.counters.denied > 0);
}

#[test]
fn who_does_not_ask_for_rules_is_found_out() {
    let careless = || {
        let plan = with_robots();
        let rules = Config { robots: false, ..plan.config.clone() };
        World::with_rules(plan, rules)
    };
    let mut first = careless();
    while first.ledger.faults.count() == 0 && !first.is_drained() {
        first.step();
    }
    let found = first.ledger.faults.texts().next().unwrap();
    assert!(found.contains("before its robots.txt was known"), "{found}");
    let mut second = careless();
    while second.auditor.violation_count() == 0 && !second.is_drained() {
        second.step();
    }
    let found = second.auditor.violations().first().unwrap().to_string();
    assert!(found.contains("host slow.example"), "{found}");
}

#[test]
fn who_sends_what_is_denied_is_found_out() {
    let mut world = World::new(with_robots());
    while world.scheduler.stats().counters.sent < 10 {
        world.step();
    }
    assert!(world.is_sound());
    let object = |text: &str| {
        let url = urlserver::url::Url::parse(text).unwrap();
        world.objection(url.host(), url.tail()).map(|fault| fault.to_string()).unwrap_or_default()
    };
    // The digit goes with the port: 80 and 1 make 1.
    assert_eq!(object("http://denies.example/2"), "");
    assert!(object("http://denies.example/1").contains("denies it"));
    assert!(object("http://denies.example:81/2").contains("before its robots.txt was known"));
}
