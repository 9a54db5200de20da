//! What people are told of the scheduler is true: views, pages, searches and histograms, in virtual time.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use urlserver::document::{Candidate, Outcome};
use urlserver::hostdb::Resolution;
use urlserver::ids::{DocId, SpiderId, TransId};
use urlserver::observe::explain;
use urlserver::scheduler::look::{HostPage, HostState, Standing, UrlPlace, UrlSearch};
use urlserver::scheduler::{Admission, Config, Rest, Scheduler};
use urlserver::time::{Duration, Instant};
use urlserver::url::Url;

const MS: u64 = 1_000;

fn at(millis: u64) -> Instant {
    Instant::from_micros(millis * MS)
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// One send a second and no rest, whatever the address.
fn config() -> Config {
    Config {
        rest: Rest { factor: 0.0, min: Duration::ZERO, max: Duration::ZERO },
        allow_private: true,
        ..Config::default()
    }
}

fn offer(scheduler: &mut Scheduler, now: Instant, doc: u64, text: &str, ip: &str) {
    let ip = Some(ip).filter(|ip| !ip.is_empty()).map(|ip| ip.parse().unwrap());
    let candidate =
        Candidate { doc: DocId(doc), url: url(text), ip, wait: Duration::ZERO, tried: Default::default() };
    assert_eq!(scheduler.handle_candidate(now, &candidate), Admission::Pending);
}

/// The next line, which is decided on and not written yet.
fn decide(scheduler: &mut Scheduler, now: Instant) -> Option<(SpiderId, TransId, u64)> {
    let work = scheduler.poll_send(now)?;
    Some((work.spider, work.trans, work.doc.0))
}

/// The same, and written at once.
#[track_caller]
fn send(scheduler: &mut Scheduler, now: Instant) -> (SpiderId, TransId, u64) {
    let sent = decide(scheduler, now).expect("something to send");
    scheduler.handle_written(now, sent.0, 1);
    scheduler.check(now).unwrap();
    sent
}

fn done(scheduler: &mut Scheduler, now: Instant, sent: (SpiderId, TransId, u64), status: u16) {
    assert!(scheduler.handle_done(now, sent.0, sent.1, Outcome::Status(status).into()));
    while scheduler.poll_report(now).is_some() {}
    scheduler.check(now).unwrap();
}

#[test]
fn delays_are_measured_from_when_a_url_may_go() {
    let mut scheduler = Scheduler::new(config());
    scheduler.handle_spider_connected();
    offer(&mut scheduler, at(0), 1, "http://a.example/1", "127.0.0.1");
    offer(&mut scheduler, at(0), 2, "http://a.example/2", "127.0.0.1");
    // Decided on after 3 ms, written after 5.
    let first = decide(&mut scheduler, at(3)).unwrap();
    scheduler.handle_written(at(5), first.0, 1);
    assert_eq!(scheduler.timings().send_delay.sum(), Duration::from_millis(5));
    assert_eq!(scheduler.timings().gap_error.count(), 0, "it waited for no clock");
    done(&mut scheduler, at(25), first, 200);
    assert_eq!(scheduler.timings().fetch.sum(), Duration::from_millis(20));
    // The gap ends at 1005; it is noticed at 1012, and the line written at 1015.
    scheduler.handle_timeout(at(1_012));
    let second = decide(&mut scheduler, at(1_012)).unwrap();
    scheduler.handle_written(at(1_015), second.0, 1);
    assert_eq!(scheduler.timings().gap_error.sum(), Duration::from_millis(10));
    assert_eq!(scheduler.timings().send_delay.sum(), Duration::from_millis(15));
    let counts = [scheduler.timings().send_delay, scheduler.timings().gap_error].map(|h| h.count());
    assert_eq!(counts, [2, 1]);
    done(&mut scheduler, at(1_020), second, 200);
    assert!(scheduler.is_drained());
}

#[test]
fn a_gap_that_is_kept_to_the_microsecond_has_no_error() {
    let mut scheduler = Scheduler::new(config());
    scheduler.handle_spider_connected();
    let mut now = at(0);
    for doc in 1..=50 {
        offer(&mut scheduler, now, doc, &format!("http://a.example/{doc}"), "127.0.0.1");
    }
    while !scheduler.is_drained() {
        match decide(&mut scheduler, now) {
            Some(sent) => {
                scheduler.handle_written(now, sent.0, 1);
                done(&mut scheduler, now, sent, 200);
            }
            None => {
                // The index is asked, and has no more.
                let _ = scheduler.poll_request(now).map(|_| scheduler.handle_answered(now));
                now = now.max(scheduler.deadline().expect("something to wait for"));
                scheduler.handle_timeout(now);
            }
        }
    }
    let gap_error = scheduler.timings().gap_error;
    assert_eq!((gap_error.count(), gap_error.sum()), (49, Duration::ZERO));
    assert!(scheduler.is_drained());
}

#[test]
fn hosts_in_line_for_an_address_are_told_their_earliest_turn() {
    let mut scheduler = Scheduler::new(config());
    scheduler.handle_spider_connected();
    let names = ["a.example", "b.example", "c.example", "d.example"];
    for (doc, name) in (1..).zip(names) {
        offer(&mut scheduler, at(0), doc, &format!("http://{name}/"), "192.0.2.7");
    }
    assert_eq!(scheduler.host(at(0), "a.example").unwrap().next_send_in, Some(Duration::ZERO));
    let sent = send(&mut scheduler, at(0));
    assert!(decide(&mut scheduler, at(0)).is_none(), "the others wait in line");
    let full = scheduler.host(at(10), "b.example").unwrap();
    assert_eq!((full.brief.state, full.next_send_in), (HostState::Busy, None));
    done(&mut scheduler, at(100), sent, 200);
    let idle = scheduler.host(at(100), "a.example").unwrap();
    assert_eq!((idle.brief.state, idle.standing), (HostState::Idle, Standing::Idle));
    let ip = scheduler.ip(at(100), "192.0.2.7".parse().unwrap()).unwrap();
    assert_eq!((ip.host_count, ip.pending, ip.next_send_in), (4, 3, Some(Duration::from_millis(900))));
    for (name, seconds) in [("b.example", 1.0), ("c.example", 2.0), ("d.example", 3.0)] {
        let view = scheduler.host(at(0), name).unwrap();
        assert_eq!(view.next_send_in, Some(Duration::from_secs_f64(seconds)), "{name}: {view:?}");
        assert_eq!(view.brief.state, HostState::Waiting);
        let why = explain::host(&view);
        assert!(why.contains("for ip 192.0.2.7 (shared with 3 hosts)"), "{why}");
    }
    // And so it comes.
    for (second, doc) in [(1, 2), (2, 3), (3, 4)] {
        let now = at(second * 1_000);
        scheduler.handle_timeout(now);
        let sent = send(&mut scheduler, now);
        assert_eq!(sent.2, doc);
        done(&mut scheduler, now, sent, 200);
    }
    assert!(scheduler.is_drained());
}

fn page(scheduler: &Scheduler, now: Instant, after: &str, limit: usize) -> (Vec<Box<str>>, bool) {
    let mut page = HostPage::new(after, None, limit);
    while scheduler.fill_page(now, &mut page, 7) {}
    page.finish()
}

#[test]
fn a_page_is_the_first_names_behind_the_last_one() {
    let mut rng = fastrand::Rng::with_seed(1);
    for hosts in [0, 1, 6, 7, 8, 100] {
        let mut scheduler = Scheduler::new(config());
        let mut names = BTreeSet::new();
        for doc in 0..hosts {
            let name = format!("h{}.example", rng.u32(..1_000_000));
            offer(&mut scheduler, at(0), doc, &format!("http://{name}/"), "127.0.0.1");
            names.insert(name);
        }
        let all: Vec<String> = names.into_iter().collect();
        for limit in [1, 2, 5, all.len().max(1), 1_000] {
            let (mut seen, mut after) = (Vec::new(), String::new());
            loop {
                let (found, more) = page(&scheduler, at(0), &after, limit);
                assert!(found.len() <= limit && (!more || found.len() == limit));
                seen.extend(found.iter().map(|name| name.to_string()));
                if !more {
                    break;
                }
                after = seen.last().unwrap().clone();
            }
            assert_eq!(seen, all, "{limit} of {hosts}");
        }
    }
}

/// Hosts come, end and are forgotten in the middle of pages; those that stay are seen exactly once.
#[test]
fn pages_are_whole_while_hosts_come_and_go() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut scheduler = Scheduler::new(Config { queue_count: 10_000, ..config() });
    scheduler.handle_spider_connected();
    let mut now = at(0);
    let stay: Vec<String> = (0..200).map(|n| format!("stay{n:03}.example")).collect();
    for (doc, name) in (0..).zip(&stay) {
        // A future that does not come: such a host is not sent, and stays.
        let candidate = Candidate {
            doc: DocId(doc),
            url: url(&format!("http://{name}/")),
            ip: None,
            wait: Duration::from_secs(1 << 40),
            tried: Default::default(),
        };
        assert_eq!(scheduler.handle_candidate(now, &candidate), Admission::Pending);
    }
    let (mut seen, mut after, mut doc) = (Vec::new(), String::new(), 1_000);
    loop {
        let mut page = HostPage::new(&after, None, 10);
        loop {
            for _ in 0..rng.usize(..5) {
                doc += 1;
                let name = format!("{}{doc}.example", ["a", "stay0", "z"][rng.usize(..3)]);
                offer(
                    &mut scheduler,
                    now,
                    doc,
                    &format!("http://{name}/"),
                    &format!("127.1.{}.{}", doc / 250, doc % 250 + 1),
                );
            }
            while let Some(sent) = decide(&mut scheduler, now) {
                scheduler.handle_written(now, sent.0, 1);
                done(&mut scheduler, now, sent, 200);
            }
            now = now + Duration::from_secs(10);
            for _ in 0..5 {
                scheduler.handle_timeout(now);
            }
            if !scheduler.fill_page(now, &mut page, 20) {
                break;
            }
        }
        let (found, more) = page.finish();
        seen.extend(found.iter().map(|name| name.to_string()));
        if !more {
            break;
        }
        after = seen.last().unwrap().clone();
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "repeated");
    let seen: BTreeSet<&String> = seen.iter().collect();
    assert!(stay.iter().all(|name| seen.contains(name)), "skipped");
}

#[track_caller]
fn find(scheduler: &Scheduler, now: Instant, text: &str) -> UrlPlace {
    let mut search = UrlSearch::new(url(text));
    for _ in 0..1_000 {
        if let Some(place) = scheduler.search(now, &mut search, 1) {
            return place;
        }
    }
    panic!("the search for {text} does not end");
}

#[test]
fn a_url_is_found_wherever_it_is() {
    let mut scheduler = Scheduler::new(Config { retry_delay: Duration::from_secs(100), ..config() });
    let spider = scheduler.handle_spider_connected();
    for doc in 1..=40 {
        offer(&mut scheduler, at(0), doc, &format!("http://a.example/{doc}"), "127.0.0.1");
        offer(&mut scheduler, at(0), 100 + doc, &format!("http://b.example/{doc}"), "127.0.0.2");
    }
    let queued = |doc, ahead| UrlPlace::Queued { doc: DocId(doc), ahead };
    assert_eq!(find(&scheduler, at(0), "http://a.example/1"), queued(1, 0));
    assert_eq!(find(&scheduler, at(0), "http://a.example/40"), queued(40, 39));
    assert_eq!(find(&scheduler, at(0), "http://a.example/41"), UrlPlace::Absent);
    assert_eq!(find(&scheduler, at(0), "https://a.example/1"), UrlPlace::Absent);
    assert_eq!(find(&scheduler, at(0), "http://c.example/1"), UrlPlace::Absent);
    let (_, trans, doc) = decide(&mut scheduler, at(0)).unwrap();
    let ip = "127.0.0.1".parse().unwrap();
    let flight = |attempts, written| UrlPlace::InFlight { doc: DocId(doc), attempts, spider, ip, written };
    assert_eq!(find(&scheduler, at(0), "http://a.example/1"), flight(1, None));
    scheduler.handle_written(at(0), spider, 1);
    let since = Some(Duration::from_secs(12));
    assert_eq!(find(&scheduler, at(12_000), "http://a.example/1"), flight(1, since));
    done(&mut scheduler, at(12_000), (spider, trans, doc), 500);
    let later = UrlPlace::Later { doc: DocId(1), attempts: 1, left: Duration::from_secs(90) };
    assert_eq!(find(&scheduler, at(22_000), "http://a.example/1"), later);
    // Both hosts send, and the spider is lost: what was in flight is the first to go again.
    let (first, second) = (send(&mut scheduler, at(22_000)), send(&mut scheduler, at(22_000)));
    let name = if first.2 < 100 { first.2 } else { second.2 };
    scheduler.handle_spider_gone(at(23_000), spider);
    let again = UrlPlace::Again { doc: DocId(name), attempts: 1 };
    assert_eq!(find(&scheduler, at(23_000), &format!("http://a.example/{name}")), again);
    assert_eq!(find(&scheduler, at(23_000), "http://a.example/40"), queued(40, 38));
    scheduler.check(at(23_000)).unwrap();
}

#[test]
fn names_that_are_looked_up_or_do_not_exist_are_told_so() {
    let mut scheduler = Scheduler::new(config());
    offer(&mut scheduler, at(0), 1, "http://a.example/", "");
    let state = |scheduler: &Scheduler, now| scheduler.host(now, "a.example").unwrap().standing;
    assert_eq!(state(&scheduler, at(0)), Standing::Resolving { again_in: None });
    let host = scheduler.poll_lookup().unwrap().host;
    scheduler.handle_resolved(at(0), host, Resolution::Unavailable);
    let Standing::Resolving { again_in: Some(again) } = state(&scheduler, at(0)) else {
        panic!("no back-off")
    };
    assert!(again >= Duration::from_secs(1) && again <= Duration::from_millis(1_250), "{again:?}");
    scheduler.handle_timeout(at(2_000));
    let host = scheduler.poll_lookup().unwrap().host;
    scheduler.handle_resolved(at(2_000), host, Resolution::Nothing { ttl: None });
    assert_eq!(state(&scheduler, at(2_000)), Standing::NoSuchName);
    assert_eq!(scheduler.host(at(2_000), "a.example").unwrap().brief.state, HostState::Draining);
    while scheduler.poll_report(at(2_000)).is_some() {}
    assert!(scheduler.is_drained());
}
