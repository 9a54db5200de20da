//! A spider talked to line by line, on a clock of our own.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::line::LINE_MAX;
use crate::profile::Latency;

fn ms(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

fn persona(seed: u64, profile: Profile) -> Persona {
    Persona { seed, profile, token: None, working_every: Duration::from_secs(20) }
}

fn spider(profile: Profile) -> Spider {
    let mut spider = Spider::new(persona(1, profile));
    assert_eq!(spider.poll_action(), Some(Action::Connect));
    spider.handle_connected(ms(0));
    spider
}

fn slow(seconds: u64) -> Profile {
    Profile { latency: Latency::Constant(Duration::from_secs(seconds)), ..Profile::original() }
}

fn hear(spider: &mut Spider, at: u64, text: &str) {
    spider.handle_bytes(ms(at), ms(at), text.as_bytes());
}

fn said(spider: &mut Spider) -> String {
    let bytes: Vec<u8> = std::iter::from_fn(|| spider.poll_output()).flatten().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn events(spider: &mut Spider) -> Vec<Event> {
    std::iter::from_fn(|| spider.poll_event()).collect()
}

fn complaints(spider: &mut Spider) -> Vec<String> {
    let broken = |event| match event {
        Event::Broken(violation) => Some(violation.to_string()),
        _ => None,
    };
    events(spider).into_iter().filter_map(broken).collect()
}

/// A server that sends `urls` lines, one per 10 ms, and answers nothing: all that is said.
fn transcript(seed: u64, profile: Profile, urls: u64) -> (Vec<u8>, Counts) {
    let mut spider = Spider::new(persona(seed, profile));
    let mut bytes = Vec::new();
    let mut sent = 0;
    for tick in 0..urls * 2 {
        let now = ms(tick * 10);
        spider.handle_timeout(now);
        bytes.extend(std::iter::from_fn(|| spider.poll_output()).flatten());
        while let Some(action) = spider.poll_action() {
            if action == Action::Connect {
                spider.handle_connected(now);
            }
        }
        if spider.is_connected() && sent < urls {
            sent += 1;
            hear(&mut spider, tick * 10, &format!("{sent} {sent} 192.0.2.1 http://a.example/{sent}\n"));
        }
        bytes.extend(std::iter::from_fn(|| spider.poll_output()).flatten());
        events(&mut spider);
    }
    (bytes, spider.counts().clone())
}

#[test]
fn same_seed_same_bytes() {
    for name in Profile::NAMES {
        let profile = Profile::named(name).unwrap();
        let first = transcript(7, profile.clone(), 2000);
        assert!(first == transcript(7, profile.clone(), 2000), "{name}");
        assert!(name == "original" || first != transcript(8, profile, 2000), "{name}");
    }
}

#[test]
fn the_original_spider_says_done_and_nothing_else() {
    let (bytes, counts) = transcript(1, Profile::original(), 500);
    let text = String::from_utf8(bytes).unwrap();
    let plain = |line: &str| line.strip_suffix(" DONE").is_some_and(|id| id.parse::<u64>().is_ok());
    assert!(text.lines().all(plain));
    assert_eq!((counts.urls, counts.dones, counts.errors_provoked), (500, 500, 0));
}

#[test]
fn chaos_does_everything() {
    let (bytes, counts) = transcript(1, Profile::chaos(), 5000);
    let said = |words: &[u8]| bytes.windows(words.len()).any(|w| w == words);
    for words in
        [" DONE 200\n", " DONE 429 retry-after=", "DONE 1", " done\n", "\r\n", "ADD http://a.example/f"]
    {
        assert!(said(words.as_bytes()), "{words}");
    }
    let Counts { stale, adds, errors_provoked, crashes, hangs, stalls, .. } = counts;
    assert!([stale, adds, errors_provoked, crashes, hangs, stalls].iter().all(|&n| n > 0), "{counts:?}");
    assert_eq!(counts.connections, crashes + 1);
}

#[test]
fn a_pulling_spider_keeps_its_credit_up() {
    let mut spider = spider(Profile { pull: Some(2), ..slow(1) });
    assert_eq!(said(&mut spider), "GET 2\n");
    hear(&mut spider, 2000, "1 1 192.0.2.1 http://a/\n2 2 192.0.2.2 http://b/\n");
    spider.handle_timeout(ms(3000));
    assert_eq!(said(&mut spider), "1 DONE\nGET 1\n2 DONE\nGET 1\n");
    hear(&mut spider, 3000, "3 3 192.0.2.1 http://a/\n4 4 192.0.2.2 http://b/\n");
    assert_eq!(complaints(&mut spider), Vec::<String>::new());
    hear(&mut spider, 3000, "5 5 192.0.2.3 http://c/\n");
    assert_eq!(
        complaints(&mut spider),
        ["at 3.000000s, document 5 came beyond the 4 that GET had asked for"]
    );
}

#[test]
fn slow_fetches_say_working() {
    let mut spider = spider(slow(50));
    hear(&mut spider, 0, "7 1 192.0.2.1 http://a/\n");
    let mut lines = Vec::new();
    while spider.deadline() < Instant::FAR {
        let now = spider.deadline();
        spider.handle_timeout(now);
        lines.push((now, said(&mut spider)));
    }
    lines.retain(|(_, line)| !line.is_empty());
    let expected = [(20_000, "7 WORKING\n"), (40_000, "7 WORKING\n"), (50_000, "7 DONE\n")];
    assert_eq!(lines, expected.map(|(at, line)| (ms(at), line.to_owned())));
    assert_eq!(spider.fetching(), 0);
}

#[test]
fn the_token_is_the_first_line() {
    let mut spider = Spider::new(Persona { token: Some("s3cret".into()), ..persona(1, Profile::pull()) });
    spider.handle_connected(ms(0));
    assert_eq!(said(&mut spider), "AUTH s3cret\nGET 16\n");
}

#[test]
fn lines_may_come_in_pieces_and_keep_their_oldest_moment() {
    let mut spider = spider(slow(1));
    spider.handle_bytes(ms(5), ms(1), b"7 1 192.0");
    spider.handle_bytes(ms(6), ms(5), b".2.1 http://a/\n8 2 192.0.2.1 http://b/");
    spider.handle_bytes(ms(9), ms(8), b"\n");
    let times: Vec<(Instant, Instant)> = events(&mut spider)
        .into_iter()
        .map(|event| match event {
            Event::Sent(sent) => (sent.since, sent.at),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(times, [(ms(1), ms(6)), (ms(5), ms(9))]);
}

#[test]
fn deviations_of_the_server_are_complained_about() {
    let mut spider = spider(slow(1));
    hear(&mut spider, 1, "welcome\n");
    hear(&mut spider, 2, "ERROR what?\n");
    hear(&mut spider, 3, &format!("1 1 192.0.2.1 http://a/{}", "x".repeat(LINE_MAX)));
    hear(&mut spider, 4, "xxx\n1 2 [::1] http://a/\n");
    let complaints = complaints(&mut spider);
    let expected = ["neither a digit", "an ERROR that nothing had deserved", "longer than", "brackets"];
    assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
    for (complaint, words) in complaints.iter().zip(expected) {
        assert!(complaint.contains(words), "{complaint}");
    }
}

#[test]
fn a_trans_id_does_not_come_back() {
    let mut spider = spider(slow(1));
    hear(&mut spider, 0, "7 1 192.0.2.1 http://a/\n");
    spider.handle_timeout(ms(1000));
    hear(&mut spider, 1000, "7 2 192.0.2.1 http://a/2\n");
    assert_eq!(
        complaints(&mut spider),
        ["at 1.000000s, TRANS_ID 7 of a finished send came again for document 2"]
    );
}

#[test]
fn errors_deserved_are_counted_against_errors_received() {
    let mut spider = spider(Profile { garbage: 1.0, ..slow(1) });
    hear(&mut spider, 0, "7 1 192.0.2.1 http://a/\n8 2 192.0.2.1 http://b/\n");
    hear(&mut spider, 1, "ERROR unknown\n");
    assert_eq!((spider.counts().errors_provoked, spider.counts().errors_received), (2, 1));
    spider.handle_timeout(ms(9_999));
    assert_eq!(complaints(&mut spider), Vec::<String>::new());
    spider.handle_timeout(ms(10_000));
    assert!(complaints(&mut spider)[0].contains("had got no ERROR yet"));
}

#[test]
fn a_crash_loses_all_and_comes_back_with_late_statuses() {
    let mut spider = spider(Profile { crash: 1.0, late: 1.0, ..slow(1) });
    hear(&mut spider, 0, "7 1 192.0.2.1 http://a/\n");
    spider.handle_timeout(ms(1000));
    let cut = said(&mut spider);
    assert!(cut.is_empty() || cut == "7 DO", "{cut}");
    assert_eq!(spider.poll_action(), Some(Action::Close));
    assert!(matches!(events(&mut spider).last(), Some(Event::Closed { .. })));
    spider.handle_timeout(spider.deadline());
    assert_eq!(spider.poll_action(), Some(Action::Connect));
    spider.handle_connected(ms(3000));
    assert_eq!(said(&mut spider), "7 DONE 200\n");
    assert_eq!((spider.fetching(), spider.counts().stale), (0, 1));
}

#[test]
fn a_stall_stops_reading_for_a_while() {
    let mut spider = spider(Profile { stall: 1.0, ..slow(100) });
    hear(&mut spider, 0, "7 1 192.0.2.1 http://a/\n");
    assert_eq!(spider.poll_action(), Some(Action::StopReading));
    spider.handle_timeout(ms(2000));
    assert_eq!(spider.poll_action(), Some(Action::ResumeReading));
}

#[test]
fn a_hung_url_is_never_done() {
    let mut spider = spider(Profile { hang: 1.0, ..slow(1) });
    hear(&mut spider, 0, "7 1 192.0.2.1 http://a/\n");
    assert_eq!(spider.deadline(), Instant::FAR);
    assert_eq!(spider.counts().hangs, 1);
}

#[test]
fn a_lost_connection_is_made_again() {
    let mut spider = spider(slow(1));
    hear(&mut spider, 0, "7 1 192.0.2.1 http://a/\n");
    spider.handle_closed(ms(10));
    assert_eq!(events(&mut spider).last(), Some(&Event::Closed { at: ms(10) }));
    spider.handle_timeout(spider.deadline());
    assert_eq!(spider.poll_action(), Some(Action::Connect));
    spider.handle_closed(ms(2000));
    assert!(spider.deadline() < Instant::FAR, "a failed connect is tried again");
}
