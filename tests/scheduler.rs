//! Single properties of the scheduler that a conversation cannot show.

#![allow(clippy::unwrap_used)]

use urlserver::document::{Candidate, End, FailReason, Outcome, Report};
use urlserver::hostdb::Resolution;
use urlserver::hostdb::health::HealthRule;
use urlserver::ids::{DocId, SpiderId};
use urlserver::scheduler::{Admission, Config, Pace, Scheduler, Trial};
use urlserver::time::{Duration, Instant};
use urlserver::url::Url;

#[test]
fn reports_go_on_from_one_name_that_does_not_exist_to_the_next() {
    let now = Instant::ZERO;
    let mut scheduler = Scheduler::new(Config { queue_count: 1, ..Config::default() });
    for (doc, url) in (1..).zip(["http://a.example/1", "http://a.example/2", "http://b.example/"]) {
        let candidate = Candidate {
            doc: DocId(doc),
            url: Url::parse(url).unwrap(),
            ip: None,
            wait: Duration::ZERO,
            tried: Default::default(),
        };
        assert_eq!(scheduler.handle_candidate(now, &candidate), Admission::Pending);
    }
    while let Some(lookup) = scheduler.poll_lookup() {
        let host = lookup.host;
        scheduler.handle_resolved(now, host, Resolution::Nothing { ttl: None });
    }
    let failed = |doc| Report { doc: DocId(doc), end: End::Failed(FailReason::Dns) };
    let reports: Vec<Report> = std::iter::from_fn(|| scheduler.poll_report(now)).collect();
    assert_eq!(reports, [failed(1), failed(2), failed(3)]);
    assert!(scheduler.is_drained());
    assert_eq!(scheduler.check(now), Ok(()));
}

/// Asks for a name again and again, and gets no answer; another name is answered after the first failure, or not.
fn ask_in_vain(other_is_answered: bool) -> (Scheduler, usize) {
    let mut scheduler = Scheduler::new(Config::default());
    assert!(scheduler.poll_request(Instant::ZERO).is_some(), "never answered");
    let mut now = Instant::ZERO;
    for (doc, url) in [(1, "http://broken.example/"), (2, "http://other.example/")] {
        let url = Url::parse(url).unwrap();
        let candidate =
            Candidate { doc: DocId(doc), url, ip: None, wait: Duration::ZERO, tried: Default::default() };
        assert_eq!(scheduler.handle_candidate(now, &candidate), Admission::Pending);
    }
    let mut questions = 0;
    while questions < 15 {
        while let Some(lookup) = scheduler.poll_lookup() {
            let (host, broken) = (lookup.host, lookup.name == "broken.example");
            assert_eq!(lookup.first, questions == 0 || !broken && questions < 2);
            questions += usize::from(broken);
            let answered = other_is_answered && !broken && questions > 1;
            let nothing = Resolution::Nothing { ttl: None };
            let resolution = if answered { nothing } else { Resolution::Unavailable };
            scheduler.handle_resolved(now, host, resolution);
        }
        while scheduler.poll_report(now).is_some() {}
        let Some(deadline) = scheduler.deadline().filter(|_| !scheduler.is_drained()) else { break };
        now = now.max(deadline);
        scheduler.handle_timeout(now);
        scheduler.check(now).unwrap();
    }
    (scheduler, questions)
}

#[test]
fn a_name_that_alone_gets_no_answer_is_given_up_in_the_end() {
    let (scheduler, questions) = ask_in_vain(true);
    assert_eq!((questions, scheduler.is_drained()), (10, true));
    assert_eq!(scheduler.stats().counters.failed, 2);
}

#[test]
fn nothing_is_given_up_while_the_name_servers_are_out() {
    let (scheduler, questions) = ask_in_vain(false);
    assert_eq!((questions, scheduler.is_drained()), (15, false));
    assert_eq!(scheduler.stats().counters.failed, 0);
}

const WINDOW: Duration = Duration::from_secs(20);

fn seconds(s: u64) -> Instant {
    Instant::from_micros(s * 1_000_000)
}

/// A scheduler whose only address has just gone down, with one URL in vain and one pending.
fn down_at_zero() -> (Scheduler, SpiderId) {
    let mut scheduler = Scheduler::new(Config {
        host: Pace { concurrent: 1, gap: Duration::ZERO },
        ip: Pace::FREE,
        retry_delay: Duration::from_secs(1),
        max_attempts: 0,
        allow_private: true,
        health: HealthRule { fail_threshold: 1, fail_window: WINDOW },
        trial: Trial::Connect,
        ..Config::default()
    });
    let spider = scheduler.handle_spider_connected();
    let url = Url::parse("https://a.example:8443/").unwrap();
    let candidate = Candidate {
        doc: DocId(1),
        url,
        ip: "192.0.2.1".parse().ok(),
        wait: Duration::ZERO,
        tried: Default::default(),
    };
    assert_eq!(scheduler.handle_candidate(Instant::ZERO, &candidate), Admission::Pending);
    let trans = scheduler.poll_send(Instant::ZERO).unwrap().trans;
    scheduler.handle_written(Instant::ZERO, spider, 1);
    assert!(scheduler.handle_done(Instant::ZERO, spider, trans, Outcome::ConnectFailed.into()));
    (scheduler, spider)
}

fn pass(scheduler: &mut Scheduler, now: Instant) {
    while let Some(deadline) = scheduler.deadline().filter(|&deadline| deadline <= now) {
        scheduler.handle_timeout(deadline);
        scheduler.check(deadline).unwrap();
        if scheduler.poll_request(deadline).is_some() {
            continue; // never answered
        }
    }
}

#[test]
fn no_url_is_burnt_on_an_address_that_does_not_answer_and_the_first_answer_frees_it() {
    let (mut scheduler, spider) = down_at_zero();
    pass(&mut scheduler, Instant::from_micros(19_999_999));
    assert!(scheduler.poll_probe().is_none(), "the window lasts");
    pass(&mut scheduler, seconds(20));
    let probe = scheduler.poll_probe().unwrap();
    assert_eq!(probe.address, "192.0.2.1:8443".parse().unwrap(), "the port that failed");
    assert!(scheduler.poll_probe().is_none(), "one at a time");
    assert!(scheduler.poll_send(seconds(20)).is_none());
    scheduler.handle_probed(seconds(21), probe.ip, false);
    pass(&mut scheduler, Instant::from_micros(40_999_999));
    assert!(scheduler.poll_probe().is_none(), "a new window, from the failure on");
    pass(&mut scheduler, seconds(41));
    let probe = scheduler.poll_probe().unwrap();
    assert!(scheduler.poll_send(seconds(41)).is_none());
    scheduler.handle_probed(seconds(41), probe.ip, true);
    let trans = scheduler.poll_send(seconds(41)).unwrap().trans;
    scheduler.handle_written(seconds(41), spider, 1);
    assert!(scheduler.handle_done(seconds(41), spider, trans, Outcome::Status(200).into()));
    assert!(scheduler.poll_report(seconds(41)).is_some() && scheduler.is_drained());
    assert_eq!(scheduler.stats().counters.sent, 2, "one in vain, one for good");
}

#[test]
fn an_answer_nobody_asked_for_changes_nothing() {
    let (mut scheduler, _) = down_at_zero();
    pass(&mut scheduler, seconds(20));
    let probe = scheduler.poll_probe().unwrap();
    scheduler.handle_probed(seconds(20), probe.ip, false);
    scheduler.handle_probed(seconds(20), probe.ip, true);
    assert!(scheduler.poll_send(seconds(20)).is_none());
    scheduler.check(seconds(20)).unwrap();
}
