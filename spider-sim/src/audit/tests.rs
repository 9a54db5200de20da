//! Each kind of violation, provoked; and what must raise no alarm.
#![allow(clippy::unwrap_used)]

use super::*;
use urlserver::url::Url;

fn ms(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

fn limits() -> Limits {
    Limits {
        host: GateLimit { concurrent: Some(1), gap: Duration::from_secs(1) },
        ip: GateLimit { concurrent: Some(2), gap: Duration::from_millis(100) },
        status_timeout: Duration::from_secs(60),
        lease_max: Some(Duration::from_secs(200)),
        max_attempts: Some(3),
        rest: Rest { factor: 0.0, min: Duration::ZERO, max: Duration::from_secs(30) },
    }
}

fn auditor() -> Auditor {
    Auditor::new(limits(), Slack::NONE)
}

/// A line of `host` on address 192.0.2.`ip`, written and read at `at`.
fn sent(at: u64, trans: u64, doc: u64, host: &str, ip: u8) -> Event {
    late(at, at, trans, doc, host, ip)
}

fn late(since: u64, at: u64, trans: u64, doc: u64, host: &str, ip: u8) -> Event {
    let url = Url::parse(&format!("http://{host}/{doc}")).unwrap();
    let ip = [192, 0, 2, ip].into();
    Event::Sent(Sent { at: ms(at), since: ms(since), trans: TransId(trans), doc: DocId(doc), ip, url })
}

fn done(at: u64, trans: u64, outcome: Outcome) -> Event {
    Event::Done { at: ms(at), trans: TransId(trans), done: outcome.into() }
}

const OK: Outcome = Outcome::Status(200);

/// What came out, as text.
#[track_caller]
fn expect(auditor: &Auditor, expected: &[&str]) {
    let seen: Vec<String> = auditor.violations().iter().map(Violation::to_string).collect();
    assert_eq!(seen, expected);
}

fn play(auditor: &mut Auditor, events: impl IntoIterator<Item = Event>) {
    events.into_iter().for_each(|event| auditor.handle(0, event));
}

#[test]
fn a_clean_crawl_drains_without_alarm() {
    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), done(900, 1, OK), sent(1000, 2, 2, "a", 1), done(1001, 2, OK)]);
    a.finish(ms(2000), &[DocId(1), DocId(2)]);
    expect(&a, &[]);
    assert_eq!((a.documents_seen(), a.documents_ended(), a.in_flight()), (2, 2, 0));
    assert_eq!(a.extremes(Kind::Host).smallest_gap, Some(Duration::from_secs(1)));
    assert_eq!(a.extremes(Kind::Host).most_in_flight, 1);
}

#[test]
fn too_many_in_flight_per_host_ip_and_group() {
    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), sent(1000, 2, 2, "a", 2)]);
    expect(&a, &["at 1.000000s, host a had 2 URLs in flight with document 2, 1 allowed"]);

    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), sent(100, 2, 2, "b", 1), sent(200, 3, 3, "c", 1)]);
    expect(&a, &["at 0.200000s, ip 192.0.2.1 had 3 URLs in flight with document 3, 2 allowed"]);

    let mut a = auditor();
    a.assign("a", "g");
    a.assign("b", "g");
    a.set_limit(GateKey::Group("g".into()), GateLimit { concurrent: Some(1), gap: Duration::ZERO });
    play(&mut a, [sent(0, 1, 1, "a", 1), sent(0, 2, 2, "b", 2)]);
    expect(&a, &["at 0.000000s, group g had 2 URLs in flight with document 2, 1 allowed"]);
}

#[test]
fn a_lifted_limit_is_none() {
    let mut a = auditor();
    a.set_limit(GateKey::Ip([192, 0, 2, 1].into()), GateLimit::NONE);
    play(&mut a, (0..50).map(|n| sent(0, n, n, &format!("h{n}"), 1)));
    expect(&a, &[]);
}

#[test]
fn gaps_hold_to_the_microsecond_per_host_ip_and_group() {
    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), done(1, 1, OK), sent(999, 2, 2, "a", 2)]);
    expect(&a, &["at 0.999000s, host a was sent document 2 999ms after another, 1s is the least"]);

    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), sent(99, 2, 2, "b", 1)]);
    expect(&a, &["at 0.099000s, ip 192.0.2.1 was sent document 2 99ms after another, 100ms is the least"]);

    let mut a = auditor();
    a.assign("a", "g");
    a.assign("b", "g");
    a.set_limit(GateKey::Group("g".into()), GateLimit { concurrent: None, gap: Duration::from_secs(2) });
    play(&mut a, [sent(0, 1, 1, "a", 1), sent(1500, 2, 2, "b", 2)]);
    expect(&a, &["at 1.500000s, group g was sent document 2 1.5s after another, 2s is the least"]);
}

#[test]
fn a_gap_survives_the_loss_of_the_connection() {
    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), Event::Closed { at: ms(1) }, sent(500, 2, 1, "a", 1)]);
    expect(&a, &["at 0.500000s, host a was sent document 1 500ms after another, 1s is the least"]);
}

#[test]
fn lines_that_lay_in_the_socket_prove_nothing() {
    let mut a = auditor();
    a.set_limit(GateKey::Host("a".into()), GateLimit { concurrent: None, gap: Duration::from_secs(1) });
    // Both read after a stall of 5 s; then one that is certainly too soon after the last possible moment.
    play(&mut a, [late(0, 5000, 1, 1, "a", 1), late(0, 5000, 2, 2, "a", 1), sent(5001, 3, 3, "b", 2)]);
    expect(&a, &[]);
    // An old line read now does not hide how close the two narrow ones are.
    play(&mut a, [sent(6000, 4, 4, "a", 3), late(0, 6100, 5, 5, "a", 5), sent(6200, 6, 6, "a", 4)]);
    expect(&a, &["at 6.200000s, host a was sent document 6 200ms after another, 1s is the least"]);
}

#[test]
fn jitter_is_forgiven_as_far_as_told() {
    let slack = Slack { jitter: Duration::from_millis(20), settle: Duration::ZERO };
    for (gap, count) in [(980, 0), (979, 1)] {
        let mut a = Auditor::new(limits(), slack);
        play(&mut a, [sent(100, 1, 1, "a", 1), done(150, 1, OK), sent(100 + gap, 2, 2, "a", 1)]);
        assert_eq!(a.violation_count(), count, "{gap}");
    }
}

#[test]
fn a_host_rests_after_done_and_after_retry_after() {
    let mut a = auditor();
    a.limits.rest = Rest { factor: 2.0, min: Duration::ZERO, max: Duration::from_secs(30) };
    play(&mut a, [sent(0, 1, 1, "a", 1), done(1000, 1, OK), sent(2999, 2, 2, "a", 1)]);
    expect(&a, &["at 2.999000s, host a was sent document 2 although it was to rest until 3.000000s"]);

    let mut a = auditor();
    let wait = Done { outcome: Outcome::Status(429), retry_after: Some(Duration::from_secs(9)) };
    let held = Event::Done { at: ms(1), trans: TransId(1), done: wait };
    play(&mut a, [sent(0, 1, 1, "a", 1), held, sent(9000, 2, 2, "a", 1), sent(9001, 3, 3, "b", 2)]);
    expect(&a, &["at 9.000000s, host a was sent document 2 although it was to rest until 9.001000s"]);
}

#[test]
fn a_trans_id_names_one_send() {
    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), sent(0, 1, 2, "b", 2)]);
    expect(&a, &["at 0.000000s, TRANS_ID 1 came for document 2 while in flight for document 1"]);
}

#[test]
fn a_document_is_in_flight_once_and_not_after_its_end() {
    let mut a = auditor();
    a.set_limit(GateKey::Host("a".into()), GateLimit::NONE);
    play(&mut a, [sent(0, 1, 1, "a", 1), sent(1000, 2, 1, "a", 1)]);
    expect(&a, &["at 1.000000s, document 1 was sent while it was in flight"]);

    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), done(1, 1, Outcome::Status(404)), sent(1000, 2, 1, "a", 1)]);
    expect(&a, &["at 1.000000s, document 1 was sent again after it had ended for good at 0.001000s"]);

    let mut a = auditor();
    a.handle_reported(ms(1), DocId(1));
    play(&mut a, [sent(1000, 2, 1, "a", 1)]);
    assert_eq!(a.violation_count(), 1);
}

#[test]
fn unfinished_documents_come_again_but_not_for_ever() {
    let mut a = auditor();
    for n in 0..3 {
        play(&mut a, [sent(n * 1000, n, 1, "a", 1), done(n * 1000 + 1, n, Outcome::Status(503))]);
    }
    a.finish(ms(4000), &[DocId(1)]);
    expect(&a, &[]);
    play(&mut a, [sent(5000, 9, 1, "a", 1)]);
    expect(&a, &["at 5.000000s, document 1 was sent for the 4. time, 3 are the most"]);
}

#[test]
fn a_hung_url_frees_its_host_at_the_expiry_and_not_before() {
    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), sent(60_000, 2, 2, "a", 1)]);
    expect(&a, &[]);
    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), sent(59_999, 2, 2, "a", 1)]);
    assert_eq!(a.violation_count(), 1);
}

#[test]
fn working_keeps_a_url_until_the_lease_ends() {
    let working = |at| Event::Working { at: ms(at), trans: TransId(1) };
    for (at, count) in [(199_999, 1), (200_000, 0)] {
        let mut a = auditor();
        play(&mut a, [sent(0, 1, 1, "a", 1)]);
        play(&mut a, (1..5).map(|n| working(n * 45_000)));
        play(&mut a, [sent(at, 2, 2, "a", 1)]);
        assert_eq!(a.violation_count(), count, "{at}");
    }
}

#[test]
fn a_done_after_the_expiry_is_stale() {
    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1), done(61_000, 1, OK), sent(65_000, 2, 1, "a", 1)]);
    expect(&a, &[]);
    a.finish(ms(66_000), &[DocId(1)]);
    expect(&a, &["by 66.000000s, document 1 had been sent, but not brought to an end"]);
}

#[test]
fn a_status_at_the_very_expiry_leaves_doubt() {
    for again in [false, true] {
        let mut a = auditor();
        play(&mut a, [sent(0, 1, 1, "a", 1), done(60_000, 1, OK)]);
        if again {
            play(&mut a, [sent(65_000, 2, 1, "a", 1), done(65_001, 2, OK)]);
        }
        a.finish(ms(70_000), &[DocId(1)]);
        expect(&a, &[]);
    }
}

#[test]
fn a_done_just_before_the_end_of_the_connection_leaves_doubt() {
    let slack = Slack { jitter: Duration::ZERO, settle: Duration::from_secs(1) };
    for (closed, count) in [(1500, 0), (2500, 1)] {
        let mut a = Auditor::new(limits(), slack);
        let closed = Event::Closed { at: ms(closed) };
        play(&mut a, [sent(0, 1, 1, "a", 1), done(1000, 1, OK), closed, sent(3000, 2, 1, "a", 1)]);
        assert_eq!(a.violation_count(), count);
    }
}

#[test]
fn a_rest_after_a_done_that_may_never_have_been_read_is_no_alarm() {
    let slack = Slack { jitter: Duration::ZERO, settle: Duration::from_secs(1) };
    // When the first spider's connection ends: soon, after the second send, long after, never.
    for (closed, count) in [(Some(1500), 0), (Some(2100), 0), (Some(2700), 1), (None, 1)] {
        let mut a = Auditor::new(limits(), slack);
        a.limits.rest = Rest { factor: 10.0, min: Duration::ZERO, max: Duration::from_secs(30) };
        play(&mut a, [sent(0, 1, 1, "a", 1), done(1000, 1, OK)]);
        let second = sent(1600, 2, 2, "a", 1);
        let close = |a: &mut Auditor, at| a.handle(0, Event::Closed { at: ms(at) });
        if let Some(at) = closed.filter(|&at| at < 1600) {
            close(&mut a, at);
        }
        a.handle(1, second);
        if let Some(at) = closed.filter(|&at| at > 1600) {
            a.handle_timeout(ms(at));
            close(&mut a, at);
        }
        a.handle_timeout(ms(5000));
        assert_eq!(a.violation_count(), count, "closed at {closed:?}");
    }
}

#[test]
fn an_end_of_a_connection_noticed_late_is_no_alarm() {
    for closed in [true, false] {
        let mut a = Auditor::new(limits(), Slack::TCP);
        a.handle(0, sent(0, 1, 1, "a", 1));
        a.handle(1, sent(2000, 2, 1, "a", 1));
        if closed {
            a.handle(0, Event::Closed { at: ms(2001) });
        }
        a.handle_timeout(ms(4000));
        // The document, and the host's limit.
        assert_eq!(a.violation_count(), if closed { 0 } else { 2 });
    }
}

#[test]
fn losses_are_named() {
    let mut a = auditor();
    play(&mut a, [sent(0, 1, 1, "a", 1)]);
    a.finish(ms(1000), &[DocId(1), DocId(2)]);
    expect(
        &a,
        &[
            "by 1.000000s, document 1 had been sent, but not brought to an end",
            "by 1.000000s, document 2 had never been sent",
        ],
    );
    assert!(a.violations().iter().all(Violation::is_loss));
}

#[test]
fn memory_follows_what_is_live() {
    let mut a = auditor();
    for n in 0..100_000 {
        play(&mut a, [sent(n * 1000, n, n, &format!("h{n}"), 1), done(n * 1000 + 1, n, OK)]);
    }
    assert!(a.gates.len() < 2 * SWEEP_FROM, "{}", a.gates.len());
    assert_eq!(a.lapsed.len() + a.live.len() + a.deadlines.len(), 0);
}
