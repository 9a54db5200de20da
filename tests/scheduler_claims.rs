//! What a scheduler on a shared index asks of it, and tells it: claims that rest and are woken, attempts, holds of groups
//! without limits, reservations.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use urlserver::claim::{ClaimAction, ClaimKey, ClaimNews, OwedClock, Wish};
use urlserver::document::{Candidate, Done, End, FailReason, Outcome, Report, Tried};
use urlserver::ids::{DocId, SpiderId, TransId};
use urlserver::order::Standing;
use urlserver::scheduler::{Config, GroupRule, Pace, Rest, Scheduler, Token};
use urlserver::time::{Duration, Instant};
use urlserver::url::Url;

const HOST: &str = "h.example";
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn at(secs: u64) -> Instant {
    Instant::from_micros(secs * 1_000_000)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn host_key() -> ClaimKey {
    ClaimKey::Host(HOST.into())
}

/// A scheduler whose claims are good for long, with a spider.
fn start(config: Config) -> (Scheduler, SpiderId) {
    let rest = Rest { factor: 0.0, min: Duration::ZERO, max: Duration::ZERO };
    let mut scheduler = Scheduler::new(Config { claims: true, allow_private: true, rest, ..config });
    scheduler.handle_claims_renewed(at(0), at(1_000_000));
    let spider = scheduler.handle_spider_connected();
    (scheduler, spider)
}

fn add(scheduler: &mut Scheduler, now: Instant, doc: u64, tried: Tried) {
    let url = Url::parse(&format!("http://{HOST}/{doc}")).unwrap();
    let candidate = Candidate { doc: DocId(doc), url, ip: Some(ADDRESS), wait: Duration::ZERO, tried };
    let _ = scheduler.handle_candidate(now, &candidate);
    scheduler.handle_timeout(now);
}

fn actions(scheduler: &mut Scheduler, now: Instant) -> Vec<ClaimAction> {
    std::iter::from_fn(|| scheduler.poll_claim(now)).collect()
}

/// All that is asked for is given.
fn grant(scheduler: &mut Scheduler, now: Instant) -> usize {
    let mut granted = 0;
    for action in actions(scheduler, now) {
        if let ClaimAction::Want { key, .. } = action {
            granted += 1;
            scheduler.handle_claim_news(now, &ClaimNews::Good { key, clock: OwedClock::default() });
        }
    }
    granted
}

fn send(scheduler: &mut Scheduler, spider: SpiderId, now: Instant) -> Option<TransId> {
    scheduler.handle_timeout(now);
    let trans = scheduler.poll_send(now)?.trans;
    scheduler.handle_written(now, spider, 1);
    Some(trans)
}

#[test]
fn a_claim_that_was_quiet_from_one_renewal_to_the_next_rests_and_is_woken_before_the_next_send() {
    let gap = Pace { concurrent: 1, gap: secs(60) };
    let (mut scheduler, spider) = start(Config { host: gap, ip: Pace::FREE, ..Config::default() });
    add(&mut scheduler, at(0), 1, Tried::default());
    add(&mut scheduler, at(0), 2, Tried::default());
    assert_eq!(grant(&mut scheduler, at(0)), 1, "the address has no limits");
    let trans = send(&mut scheduler, spider, at(0)).unwrap();
    scheduler.handle_claims_renewed(at(5), at(1_000_000));
    scheduler.handle_claims_renewed(at(10), at(1_000_000));
    assert_eq!(actions(&mut scheduler, at(10)), [], "something is in flight");
    assert!(scheduler.handle_done(at(12), spider, trans, Done::from(Outcome::Status(200))));
    scheduler.handle_claims_renewed(at(15), at(1_000_000));
    assert_eq!(actions(&mut scheduler, at(15)), [], "something was in flight since the last time");
    scheduler.handle_claims_renewed(at(20), at(1_000_000));
    let clock = OwedClock { opens_in: secs(40), gap: secs(60), ..OwedClock::default() };
    assert_eq!(actions(&mut scheduler, at(20)), [ClaimAction::Rest { key: host_key(), clock }]);
    scheduler.handle_claims_renewed(at(25), at(1_000_000));
    assert_eq!(actions(&mut scheduler, at(25)), [], "it is said once");
    assert_eq!(send(&mut scheduler, spider, at(60)), None, "the index does not know yet");
    let want = ClaimAction::Want { key: host_key(), wish: Wish::Plain };
    assert_eq!(actions(&mut scheduler, at(60)), [want]);
    assert_eq!(send(&mut scheduler, spider, at(61)), None);
    scheduler.handle_claim_news(at(62), &ClaimNews::Good { key: host_key(), clock: OwedClock::default() });
    assert!(send(&mut scheduler, spider, at(62)).is_some());
    scheduler.check(at(62)).unwrap();
}

#[test]
fn what_was_lost_with_spiders_elsewhere_counts_as_poison_here() {
    let (mut scheduler, mut spider) = start(Config { max_attempts: 3, ..Config::default() });
    add(&mut scheduler, at(0), 1, Tried { sends: 1, lost: 1 });
    for second in [10, 20] {
        grant(&mut scheduler, at(second));
        send(&mut scheduler, spider, at(second)).unwrap();
        scheduler.handle_spider_gone(at(second + 1), spider);
        spider = scheduler.handle_spider_connected();
        let told = actions(&mut scheduler, at(second + 1)).into_iter().find_map(|action| match action {
            ClaimAction::Tried { tried, .. } => Some(tried),
            _ => None,
        });
        let expected = (second == 10).then_some(Tried { sends: 2, lost: 2 });
        assert_eq!(told, expected, "the last one is an end, which is reported");
    }
    let report = Report { doc: DocId(1), end: End::Failed(FailReason::Poison) };
    assert_eq!(scheduler.poll_report(at(22)), Some(report));
}

#[test]
fn a_retry_waits_as_long_wherever_it_is_made() {
    let (mut scheduler, spider) = start(Config { retry_delay: secs(7), ..Config::default() });
    add(&mut scheduler, at(0), 1, Tried::default());
    grant(&mut scheduler, at(0));
    let trans = send(&mut scheduler, spider, at(0)).unwrap();
    scheduler.handle_done(at(1), spider, trans, Done::from(Outcome::Status(500)));
    let tried = Tried { sends: 1, lost: 0 };
    assert!(actions(&mut scheduler, at(1)).contains(&ClaimAction::Tried {
        doc: DocId(1),
        tried,
        wait: secs(7)
    }));
}

#[test]
fn what_is_in_flight_at_the_end_counts_as_sent() {
    let (mut scheduler, spider) = start(Config::default());
    add(&mut scheduler, at(0), 1, Tried { sends: 1, lost: 0 });
    grant(&mut scheduler, at(0));
    send(&mut scheduler, spider, at(0)).unwrap();
    scheduler.give_all_back(at(1));
    let told = actions(&mut scheduler, at(1));
    let tried = Tried { sends: 2, lost: 0 };
    assert_eq!(told[0], ClaimAction::Tried { doc: DocId(1), tried, wait: Duration::ZERO }, "{told:?}");
    assert!(matches!(told[1], ClaimAction::GiveBack { .. }), "while the host is still ours");
}

#[test]
fn a_hold_of_a_group_without_limits_is_told_and_heard() {
    let group = GroupRule {
        name: "cdn".into(),
        hosts: vec![HOST.into()],
        domains: vec![],
        ranges: vec![],
        pace: Pace::FREE,
        rest: None,
        robots: None,
    };
    let key = ClaimKey::Group("cdn".into());
    let config = Config { groups: vec![group], ..Config::default() };
    let (mut here, spider) = start(config.clone());
    add(&mut here, at(0), 1, Tried::default());
    grant(&mut here, at(0));
    let trans = send(&mut here, spider, at(0)).unwrap();
    let done = Done { outcome: Outcome::Status(429), retry_after: Some(secs(90)) };
    here.handle_done(at(1), spider, trans, done);
    let hold = ClaimAction::Hold { key: key.clone(), held_for: secs(90), strikes: 1 };
    assert!(actions(&mut here, at(1)).contains(&hold));
    let (mut there, spider) = start(config);
    there.handle_claim_news(at(2), &ClaimNews::Held { key, held_for: secs(90), strikes: 1 });
    add(&mut there, at(2), 2, Tried::default());
    grant(&mut there, at(2));
    assert_eq!(send(&mut there, spider, at(91)), None, "it is on hold everywhere");
    grant(&mut there, at(92));
    assert!(send(&mut there, spider, at(92)).is_some());
}

#[test]
fn a_reservation_gets_no_more_time_while_claims_have_lapsed_and_is_waited_for_by_the_next_holder() {
    let (mut scheduler, _) = start(Config { status_timeout: secs(60), ..Config::default() });
    scheduler.handle_claims_renewed(at(0), at(100));
    add(&mut scheduler, at(0), 1, Tried::default());
    grant(&mut scheduler, at(0));
    let reserved = scheduler.poll_reservation(at(0), Token(7), 1).unwrap();
    assert_eq!(reserved.expires_in, secs(60));
    assert_eq!(scheduler.handle_renewed(at(10), Token(7)), Some(secs(60)));
    scheduler.give_all_back(at(20));
    let told = actions(&mut scheduler, at(20));
    let given = told.iter().find_map(|action| match action {
        ClaimAction::GiveBack { key, clock, .. } if *key == host_key() => *clock,
        _ => None,
    });
    assert_eq!(given.map(|clock| clock.opens_in), Some(secs(51)), "the worker's time, and a gap");
    // Nothing is good any more.
    assert_eq!(scheduler.handle_renewed(at(30), Token(7)), Some(secs(40)), "what is left of it");
}

#[test]
fn orders_come_with_the_claim_and_go_with_it() {
    let (mut scheduler, spider) = start(Config::default());
    let paused = Standing { paused: true, ..Standing::default() };
    let ordered = |standing| ClaimNews::Ordered { host: HOST.into(), standing };
    scheduler.handle_claim_news(at(0), &ordered(paused));
    assert_eq!(scheduler.standing(at(0), HOST), Standing::default(), "it is none of our business");
    add(&mut scheduler, at(0), 1, Tried::default());
    scheduler.handle_claim_news(at(0), &ordered(paused));
    grant(&mut scheduler, at(0));
    assert_eq!(send(&mut scheduler, spider, at(0)), None, "it is paused");
    assert_eq!(scheduler.standing(at(0), HOST), paused);
    scheduler.handle_claim_news(at(1), &ordered(Standing::default()));
    grant(&mut scheduler, at(1));
    let trans = send(&mut scheduler, spider, at(1)).unwrap();
    scheduler.handle_claim_news(at(2), &ordered(paused));
    scheduler.handle_done(at(3), spider, trans, Done::from(Outcome::Status(200)));
    assert_eq!(scheduler.standing(at(3), HOST), Standing::default(), "given back, with its orders");
    scheduler.check(at(3)).unwrap();
}

#[test]
fn hosts_that_wait_for_their_turn_at_a_busy_address_do_not_rest() {
    let (host, ip) = (Pace { concurrent: 1, gap: secs(1) }, Pace { concurrent: 1, gap: secs(10) });
    let (mut scheduler, spider) = start(Config { host, ip, ..Config::default() });
    for doc in 0..20 {
        let url = Url::parse(&format!("http://h{}.example/{doc}", doc % 4)).unwrap();
        let (wait, tried) = (Duration::ZERO, Tried::default());
        let candidate = Candidate { doc: DocId(doc), url, ip: Some(ADDRESS), wait, tried };
        let _ = scheduler.handle_candidate(at(0), &candidate);
    }
    let (mut sent, mut rested, mut wanted) = (0, 0, 0);
    for second in 0..150 {
        let now = at(second);
        if second % 15 == 0 {
            scheduler.handle_claims_renewed(now, at(1_000_000));
        }
        for action in actions(&mut scheduler, now) {
            match action {
                ClaimAction::Want { key, .. } => {
                    wanted += 1;
                    let clock = OwedClock::default();
                    scheduler.handle_claim_news(now, &ClaimNews::Good { key, clock });
                }
                ClaimAction::Rest { .. } => rested += 1,
                _ => {}
            }
        }
        if let Some(trans) = send(&mut scheduler, spider, now) {
            sent += 1;
            scheduler.handle_done(now, spider, trans, Done::from(Outcome::Status(200)));
        }
        scheduler.check(now).unwrap();
    }
    assert_eq!(
        (sent, rested, wanted),
        (15, 0, 5),
        "one claim each, and nothing more, however long they wait"
    );
}
