//! Whole crawls in virtual time: thousands of small worlds with every fault at once, and named worlds for
//! single properties. In every one of them the ledger, the auditor and the scheduler's own laws find nothing,
//! and it ends drained.

#![allow(clippy::unwrap_used)]

use spider_sim::audit::Grouping;
use spider_sim::profile::{Latency, Profile};
use spider_sim::world::draw::address;
use spider_sim::world::plan::{NameManners, Outage, Plan, RobotsManners, Site, Storm};
use spider_sim::world::{Scale, SendSeen, Verdict, World, draw};
use std::collections::{HashMap, HashSet};
use urlserver::document::{DenyReason, Done, End, FailReason, Outcome};
use urlserver::hostdb::health::HealthRule;
use urlserver::scheduler::{Config, GroupRule, IpRange, Pace, Rest};
use urlserver::time::{Duration, Instant};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_world_heals_and_drains_without_a_broken_promise() {
    let first = number("SEED", 0);
    for seed in first..first + number("SEEDS", 2500) {
        let world = || World::new(draw(seed, &Scale::default())).run(|_| ());
        let again = format!("repeat with `spider-sim sim --seed {seed}`");
        let verdict = std::panic::catch_unwind(world).expect(&again);
        assert!(verdict.is_clean(), "{:#?}\n{again}", verdict.wrongs);
    }
}

/// Smaller than those that are run by hand (`spider-sim sim --hosts 100000 --addresses 2000 --hours 3`), and with
/// the same in them.
#[test]
fn large_worlds_with_all_faults_and_groups_drain_without_a_broken_promise() {
    let first = number("SEED", 0);
    let mut sends: HashMap<String, u64> = HashMap::new();
    let mut faults = [0; 7];
    for seed in first..first + 4 {
        let scale = Scale {
            hosts: Some(5000),
            addresses: Some(200),
            urls: Some(8000),
            faults: Some(secs(1800)),
            ..Scale::default()
        };
        let plan = Plan { keep_sends: true, ..draw(seed, &scale) };
        let grouping = Grouping::new(&plan.config.aliases, &plan.config.groups);
        let verdict = World::new(plan).run(|_| ());
        let again = "repeat with `spider-sim sim --hosts 5000 --addresses 200 --urls 8000 --hours 0.5";
        assert!(verdict.is_clean(), "{:#?}\n{again} --seed {seed}`", verdict.wrongs);
        for send in &verdict.sends {
            grouping.of(&send.host, send.ip).for_each(|key| *sends.entry(key.to_string()).or_default() += 1);
        }
        let c = verdict.stats.counters;
        let crashes = verdict.counts.iter().map(|counts| counts.crashes).sum();
        let seen =
            [c.holds, c.addresses_down, c.lookups_unanswered, c.expired, c.stale_status, c.denied, crashes];
        faults.iter_mut().zip(seen).for_each(|(all, seen)| *all += seen);
    }
    for group in ["alias0", "named", "domain", "four", "six", "cdn"] {
        let count = sends.get(&format!("group {group}")).copied().unwrap_or(0);
        assert!(count > 50, "{group}: {sends:?}");
    }
    assert!(faults.iter().all(|&count| count > 10), "{faults:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| World::new(draw(seed, &Scale::default())).run(|_| ()).trace;
    let mut seen = HashSet::new();
    for seed in 0..100 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
        seen.insert(trace(seed));
    }
    assert_eq!(seen.len(), 100, "and another seed another one");
}

/// Runs a named world to its end, drained.
#[track_caller]
fn run(plan: Plan) -> Verdict {
    let verdict = World::new(plan).run(|_| ());
    assert!(verdict.is_clean(), "{:#?}", verdict.wrongs);
    verdict
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pace(concurrent: u32, gap: Duration) -> Pace {
    Pace { concurrent, gap }
}

/// One in flight and one a second, per host and per address; no rest after a fetch.
fn config() -> Config {
    let rest = Rest { factor: 0.0, min: Duration::ZERO, max: Duration::ZERO };
    Config { rest, ip_max_urls: 0, ..Config::default() }
}

fn constant(latency: Duration) -> Profile {
    let outcomes = vec![(1, Outcome::Status(200))];
    Profile { latency: Latency::Constant(latency), outcomes, ..Profile::polite() }
}

fn sends_of<'a>(verdict: &'a Verdict, host: &'a str) -> Vec<&'a SendSeen> {
    verdict.sends.iter().filter(|send| &*send.host == host).collect()
}

fn gaps(sends: &[&SendSeen]) -> Vec<Duration> {
    sends.windows(2).map(|pair| pair[1].at.since(pair[0].at)).collect()
}

#[test]
fn a_clock_survives_its_queue_and_its_slot() {
    let names = NameManners { ttl: secs(1), ..NameManners::default() };
    let site = |name, urls, n| Site { names, ..Site::new(name, urls, &[address(n)]) };
    let rules = Config { queue_count: 1, host: pace(1, secs(3)), ..config() };
    let mut plan = Plan::peaceful(1, rules, vec![site("a.example", 40, 0), site("b.example", 40, 1)]);
    plan.index.late = 1.0;
    plan.heal_at = at(600);
    let verdict = run(plan);
    for host in ["a.example", "b.example"] {
        let gaps = gaps(&sends_of(&verdict, host));
        assert!(gaps.iter().all(|&gap| gap >= secs(3)), "{host}: {gaps:?}");
        assert!(gaps.iter().any(|&gap| gap > secs(6)), "{host} was never without work");
    }
}

#[test]
fn two_hosts_on_one_address_in_two_slots_do_not_double_its_load() {
    let site = |name| Site::new(name, 20, &[address(0)]);
    let verdict = run(Plan::peaceful(2, config(), vec![site("a.example"), site("b.example")]));
    let all: Vec<&SendSeen> = verdict.sends.iter().collect();
    assert!(gaps(&all).iter().all(|&gap| gap >= secs(1)));
    let turns = all.windows(2).filter(|pair| pair[0].host != pair[1].host).count();
    assert!(turns >= 36, "they take turns: {turns}");
}

#[test]
fn a_host_whose_address_is_not_known_does_not_go_out_and_stops_no_one() {
    let silent = NameManners { silent_until: at(100), ..NameManners::default() };
    let unknown = Site { names: silent, ..Site::new("a.example", 5, &[address(0)]) };
    let mut plan = Plan::peaceful(3, config(), vec![unknown, Site::new("b.example", 50, &[address(1)])]);
    plan.heal_at = at(100);
    let verdict = run(plan);
    assert!(sends_of(&verdict, "a.example")[0].at >= at(100));
    assert!(sends_of(&verdict, "b.example").last().unwrap().at < at(60));
    assert_eq!(verdict.stats.counters.done, 55);
}

fn refusals(until: Instant, retry_after: Option<Duration>) -> Storm {
    let done = Done { outcome: Outcome::Status(429), retry_after };
    Storm { from: Instant::ZERO, until, done, latency: Duration::from_millis(500) }
}

#[test]
fn a_burst_of_429_raises_the_hold_once() {
    let mut site = Site::new("a.example", 20, &[address(0)]);
    site.storms.push(refusals(at(1), None));
    let free = pace(10, Duration::ZERO);
    let rules = Config { host: free, ip: free, retry_delay: secs(4), ..config() };
    let mut plan = Plan::peaceful(4, rules, vec![site]);
    plan.heal_at = at(5);
    let verdict = run(plan);
    assert_eq!(verdict.stats.counters.holds, 1);
    assert_eq!(verdict.sends[9].at, verdict.sends[0].at, "ten at once");
    let pause = verdict.sends[10].at.since(verdict.sends[9].at);
    assert!(pause >= secs(4) && pause < secs(6), "{pause:?}");
    assert_eq!(verdict.stats.counters.done, 20);
}

#[test]
fn only_held_hosts_left_is_not_a_hang() {
    let mut sites = vec![Site::new("a.example", 3, &[address(0)]), Site::new("b.example", 3, &[address(1)])];
    sites.iter_mut().for_each(|site| site.storms.push(refusals(at(10), Some(secs(7200)))));
    let mut plan = Plan::peaceful(5, config(), sites);
    plan.heal_at = at(10);
    let verdict = run(plan);
    assert!(verdict.ended_at > at(7200) && verdict.ended_at < at(7200 * 3 / 2), "{:?}", verdict.ended_at);
    assert_eq!(verdict.stats.counters.done, 6);
}

#[test]
fn a_late_done_of_an_expired_lease_frees_nothing() {
    let slow = Profile { silent: 1.0, ..constant(secs(5)) };
    let site = Site::new("a.example", 5, &[address(0)]);
    let health = HealthRule { fail_threshold: 1000, fail_window: secs(1) };
    let rules = Config { status_timeout: secs(3), max_attempts: 0, retry_delay: secs(1), health, ..config() };
    let mut plan = Plan::peaceful(6, rules, vec![site]);
    plan.spiders = vec![slow];
    plan.heal_at = at(100);
    let counters = run(plan).stats.counters;
    assert!(counters.expired >= 20 && counters.stale_status >= 20, "{counters:?}");
    assert_eq!(counters.done, 5);
}

#[test]
fn a_thousand_hosts_on_one_address_are_served_in_turn_and_slow_no_one() {
    let crowd = (0..1000).map(|n| Site::new(&format!("c{n}.example"), 2, &[address(0)]));
    let sites = crowd.chain([Site::new("a.example", 100, &[address(1)])]).collect();
    let mut plan = Plan::peaceful(7, Config { queue_count: 2000, ..config() }, sites);
    plan.spiders = vec![constant(Duration::from_millis(10))];
    plan.check_every = 100;
    let verdict = run(plan);
    let alone = sends_of(&verdict, "a.example");
    assert!(alone.last().unwrap().at.since(alone[0].at) < secs(99) + Duration::from_millis(1));
    let crowd: Vec<&SendSeen> = verdict.sends.iter().filter(|send| send.ip == address(0)).collect();
    let first: HashSet<&str> = crowd[..1000].iter().map(|send| &*send.host).collect();
    assert_eq!(first.len(), 1000, "each once before any twice");
    assert!(gaps(&crowd).iter().all(|&gap| gap < secs(1) + Duration::from_millis(5)), "and without a pause");
}

#[test]
fn a_moved_name_takes_its_waiting_urls_along_and_what_is_in_flight_stays_charged() {
    let names = NameManners { ttl: secs(1), moves_every: Some(secs(10)), ..NameManners::default() };
    let mover = Site { names, ..Site::new("a.example", 40, &[address(0), address(1)]) };
    let sites =
        vec![mover, Site::new("b.example", 20, &[address(0)]), Site::new("c.example", 20, &[address(1)])];
    let mut plan = Plan::peaceful(8, config(), sites);
    plan.spiders = vec![constant(secs(4))];
    let verdict = run(plan);
    let homes = sends_of(&verdict, "a.example");
    let moves = homes.windows(2).filter(|pair| pair[0].ip != pair[1].ip).count();
    assert!(moves >= 4, "{moves} moves");
    assert_eq!(verdict.stats.counters.done, 80);
}

#[test]
fn fast_error_pages_do_not_speed_things_up() {
    let done = Outcome::Status(404).into();
    let mut site = Site::new("a.example", 40, &[address(0)]);
    site.storms.push(Storm { from: at(20), until: at(60), done, latency: Duration::from_millis(1) });
    let free = pace(1, Duration::ZERO);
    let rest = Rest { factor: 1.0, min: Duration::ZERO, max: secs(30) };
    let mut plan = Plan::peaceful(9, Config { host: free, ip: free, rest, ..config() }, vec![site]);
    plan.spiders = vec![constant(secs(2))];
    plan.heal_at = at(60);
    let verdict = run(plan);
    let before_healing: Vec<&SendSeen> = verdict.sends.iter().filter(|send| send.at < at(60)).collect();
    let gaps = gaps(&before_healing);
    assert!(gaps.iter().all(|&gap| gap >= secs(2)), "{gaps:?}");
    assert!(gaps.iter().filter(|&&gap| gap < secs(3)).count() > 10, "the storm was seen: {gaps:?}");
}

#[test]
fn an_address_that_is_down_does_not_burn_its_urls() {
    let mut plan = Plan::peaceful(10, config(), vec![Site::new("a.example", 30, &[address(0)])]);
    plan.outages = vec![Outage { ip: address(0), from: Instant::ZERO, until: at(600) }];
    plan.heal_at = at(600);
    let verdict = run(plan);
    let in_vain = verdict.sends.iter().filter(|send| send.at < at(600)).count();
    assert!(in_vain <= 3 + 600 / 60 + 1, "{in_vain} sends in vain");
    assert!(verdict.stats.counters.failed <= in_vain as u64 / 3, "{:?}", verdict.stats.counters);
}

#[test]
fn a_second_address_takes_over_from_one_that_is_down() {
    let mut plan = Plan::peaceful(11, config(), vec![Site::new("a.example", 30, &[address(0), address(1)])]);
    plan.outages = vec![Outage { ip: address(0), from: Instant::ZERO, until: at(600) }];
    plan.heal_at = at(600);
    let verdict = run(plan);
    assert!(verdict.ended_at <= at(600), "all was done before the first came back");
    assert_eq!(verdict.stats.counters.done, 30);
    assert!(verdict.sends.iter().filter(|send| send.ip == address(0)).count() <= 3);
}

#[test]
fn names_that_do_not_exist_fail_and_private_addresses_are_denied_unsent() {
    let missing = NameManners { exists: false, ..NameManners::default() };
    let sites = vec![
        Site { names: missing, ..Site::new("a.example", 10, &[address(0)]) },
        Site::new("b.example", 10, &["169.254.169.254".parse().unwrap()]),
        Site::new("c.example", 10, &[address(1)]),
    ];
    let verdict = run(Plan::peaceful(12, config(), sites));
    assert!(verdict.sends.iter().all(|send| &*send.host == "c.example"));
    let count = |end| verdict.reports.iter().filter(|(_, report)| report.end == end).count();
    assert_eq!(count(End::Failed(FailReason::Dns)), 10);
    assert_eq!(count(End::Denied(DenyReason::PrivateAddress)), 10);
    assert_eq!(verdict.stats.counters.done, 10);
}

fn group(name: &str, pace: Pace) -> GroupRule {
    let (hosts, domains, ranges) = (Vec::new(), Vec::new(), Vec::new());
    GroupRule { name: name.into(), hosts, domains, ranges, pace, rest: None, robots: None }
}

#[test]
fn hosts_of_one_alias_share_one_clock_and_one_hold() {
    let mut alias = group("both", pace(1, secs(2)));
    alias.hosts = vec!["a.example".into(), "b.example".into()];
    let mut sites =
        vec![Site::new("a.example", 10, &[address(0)]), Site::new("b.example", 10, &[address(1)])];
    sites[0].storms.push(refusals(at(1), Some(secs(50))));
    let mut plan = Plan::peaceful(13, Config { aliases: vec![alias], ..config() }, sites);
    plan.heal_at = at(10);
    let verdict = run(plan);
    let all: Vec<&SendSeen> = verdict.sends.iter().collect();
    assert!(gaps(&all).iter().all(|&gap| gap >= secs(2)));
    assert!(gaps(&all).iter().any(|&gap| gap >= secs(50)), "b rests for what a was told");
}

#[test]
fn addresses_of_a_cdn_have_no_limit_of_their_own_but_their_hosts_do() {
    let mut cdn = group("cdn", Pace::FREE);
    cdn.ranges = vec![IpRange { address: address(0), bits: 24 }];
    let sites: Vec<Site> = (0..10).map(|n| Site::new(&format!("h{n}.example"), 10, &[address(0)])).collect();
    let mut plan = Plan::peaceful(14, Config { groups: vec![cdn], ..config() }, sites);
    plan.spiders = vec![constant(Duration::from_millis(10))];
    let verdict = run(plan);
    assert!(verdict.ended_at < at(11), "ten hosts side by side: {:?}", verdict.ended_at);
    for host in 0..10 {
        assert!(gaps(&sends_of(&verdict, &format!("h{host}.example"))).iter().all(|&gap| gap >= secs(1)));
    }
}

#[test]
fn a_spider_that_does_not_read_stops_no_other() {
    let stalled = Profile { stall: 1.0, stall_max: secs(300), ..Profile::polite() };
    let sites = (0..40).map(|n| Site::new(&format!("h{n}.example"), 10, &[address(n)])).collect();
    let mut plan = Plan::peaceful(15, Config { max_attempts: 0, ..config() }, sites);
    plan.spiders = vec![stalled, Profile::polite()];
    plan.wires.capacity = 200;
    plan.heal_at = at(60);
    let verdict = run(plan);
    let in_time = verdict.reports.iter().filter(|(when, _)| *when < at(60)).count();
    assert!(in_time >= 200, "the other one did {in_time}");
    assert_eq!(verdict.stats.counters.done, 400);
}

#[test]
fn robots_of_every_kind_are_obeyed_and_stop_nobody_else() {
    let well = RobotsManners { exists: true, ..RobotsManners::default() };
    let site = |name, n, robots| Site { robots, ..Site::new(name, 10, &[address(n)]) };
    let sites = vec![
        site("allows.example", 0, well),
        site("denies.example", 1, RobotsManners { denies: Some(3), ..well }),
        site("slow.example", 2, RobotsManners { delay: Some(secs(20)), ..well }),
        site("too-slow.example", 3, RobotsManners { delay: Some(secs(21)), ..well }),
        site("dead.example", 4, RobotsManners { dead: true, ..well }),
        site("moved.example", 6, RobotsManners { hops: 5, stride: 1, denies: Some(7), ..well }),
        site("in-circles.example", 7, RobotsManners { hops: 6, denies: Some(7), ..well }),
        site("without.example", 8, RobotsManners::default()),
    ];
    let rules = Config {
        robots: true,
        crawl_delay_max: Some(secs(20)),
        host: pace(3, secs(1)),
        ip: pace(3, secs(1)),
        ..config()
    };
    let verdict = run(Plan::peaceful(20, rules, sites));
    let counters = verdict.stats.counters;
    assert_eq!(counters.done + counters.denied + counters.failed, 80);
    assert_eq!(counters.failed, 10, "nobody can know what the dead one denies");
    let failed = |report: &End| matches!(report, End::Failed(FailReason::Robots));
    assert_eq!(verdict.reports.iter().filter(|(_, report)| failed(&report.end)).count(), 10);
    let too_slow = |end: &End| *end == End::Denied(DenyReason::CrawlDelay);
    assert_eq!(verdict.reports.iter().filter(|(_, report)| too_slow(&report.end)).count(), 10);
    let slow = sends_of(&verdict, "slow.example");
    assert!(slow.len() == 10 && gaps(&slow).iter().all(|&gap| gap >= secs(20)), "{:?}", gaps(&slow));
    for name in ["too-slow.example", "dead.example"] {
        assert_eq!(sends_of(&verdict, name).len(), 0, "{name}");
    }
    for name in ["allows.example", "in-circles.example", "without.example"] {
        let sends = sends_of(&verdict, name);
        assert_eq!(sends.len(), 10, "{name}");
        assert!(sends.last().unwrap().at < at(60), "{name} was held up");
    }
}
