//! How the server starts, is asked how it is, and ends.

mod support;

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use support::http::post;
use support::lines::{DEADLINE, Door, GLANCE};
use support::scripted_index::Index;
use support::server::Setup;

/// In under 5 s, it is promised; most ends have no reason to take longer than this on a busy machine.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn one_line_on_stdout_names_the_addresses() {
    let server = Setup::new().start();
    assert_ne!(server.listen().port(), 0);
    assert_ne!(server.http().port(), 0);
    assert_ne!(server.listen().port(), server.http().port());
    drop(server.spider());
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.stop().stdout, "");
}

#[test]
fn what_is_switched_off_is_none() {
    let server = Setup::new().flag("listen", "none").flag("http", "none").start();
    assert!(!server.has_listener() && !server.has_http());
    server.stop();
}

#[test]
fn an_address_in_use_is_named_with_its_setting() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address").to_string();
    for setting in ["listen", "http"] {
        let (code, out, log) = Setup::new().flag(setting, &address).fails();
        assert_eq!((code, &*out), (Some(1), ""));
        assert!(log.contains(setting) && log.contains(&address), "{log}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    for setting in ["seeds", "hosts-file"] {
        let (code, out, log) = Setup::new().flag(setting, "/no/such/file").fails();
        assert_eq!((code, &*out), (Some(1), ""), "{log}");
        assert!(log.contains("/no/such/file"), "{log}");
    }
    let (code, _, log) = Setup::new().flag("seeds", "/").fails();
    assert_eq!(code, Some(1), "{log}");
}

#[test]
fn settings_that_make_no_sense_are_refused_with_another_code() {
    for (setting, value) in [("queue-count", "0"), ("queue-len", "x"), ("index", "carrier-pigeon:")] {
        let (code, out, log) = Setup::new().flag(setting, value).fails();
        assert_eq!((code, &*out), (Some(2), ""), "{log}");
        assert!(log.contains(&setting.replace('-', "_")) && log.contains(value), "{log}");
    }
    let (code, _, log) = Setup::new().flag("queue-len", "3").flag("req-host-concurrent", "4").fails();
    assert_eq!(code, Some(2), "{log}");
}

#[test]
fn a_signal_ends_it_with_spiders_and_work_in_flight() {
    for signal in ["TERM", "INT"] {
        let server = Setup::new().seeds(&["http://127.0.0.1/", "http://127.0.0.1/2"]).start();
        let mut spiders = [server.spider(), server.spider()];
        server.until_stat("in_flight", 1);
        server.signal(signal);
        let ended = server.end(SOON);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        spiders.iter_mut().for_each(|spider| drop(spider.rest()));
    }
}

#[test]
fn a_signal_right_after_ready_is_heard() {
    for _ in 0..5 {
        Setup::new().start().stop();
    }
}

#[test]
fn what_spiders_have_said_is_reported_before_the_end() {
    let (server, mut index, _door) = Setup::new().start_with_index();
    index.offer(&["1 http://127.0.0.1/", "2 http://127.0.0.2/", "3 http://127.0.0.3/"]);
    let mut spider = server.spider();
    let works = spider.works(3);
    // It hears all this at once, when it wakes up.
    server.signal("STOP");
    spider.say("ADD http://127.0.0.4/found\n");
    works[..2].iter().for_each(|work| spider.done(work, "200"));
    server.signal("TERM");
    server.signal("CONT");
    let mut expected: Vec<String> = works[..2].iter().map(|work| format!("{} DONE 200", work.doc)).collect();
    expected.push("ADD http://127.0.0.4/found".to_owned());
    expected.sort();
    assert_eq!(index.reports(3), expected);
    index.stream.shutdown(Shutdown::Both).expect("a connection");
    let ended = server.end(SOON);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

#[test]
fn an_index_that_does_not_answer_does_not_hold_up_the_end() {
    // Nobody accepts, or accepts and says nothing, or has gone with a report unheard.
    let door = Door::open();
    let server = Setup::new().index(&door).start();
    server.stop();
    let (server, index, _door) = Setup::new().start_with_index();
    server.stop();
    drop(index);
    let (server, mut index, door) = Setup::new().start_with_index();
    index.offer(&["1 http://127.0.0.1/"]);
    let mut spider = server.spider();
    let work = spider.work();
    drop((index, door));
    spider.done(&work, "200");
    server.until_stat("done", 1);
    server.stop();
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let (server, mut index, _door) = Setup::new().start_with_index();
    index.offer(&["1 http://127.0.0.1/"]);
    let mut spider = server.spider();
    let work = spider.work();
    spider.done(&work, "200");
    assert_eq!(index.report(), "1 DONE 200");
    let start = Instant::now();
    server.signal("TERM");
    // The spider's connection ends when the first signal has been heard.
    spider.rest();
    server.signal("TERM");
    let ended = server.end(SOON);
    // Whichever way the race between the two ends, it has ended; by itself it waits for the index longer.
    assert!(ended.code == Some(1) || start.elapsed() > Duration::from_millis(900), "{:?}", ended.code);
}

#[test]
fn it_exits_when_all_is_done() {
    let server = Setup::new()
        .flag("exit-when-done", "true")
        .hosts(&["0.0.0.0 nowhere.example"])
        .seeds(&["http://127.0.0.1/1", "http://127.0.0.1/2", "http://nowhere.example/"])
        .start();
    let mut spider = server.spider();
    let first = spider.work();
    // What is found keeps it running, too.
    spider.say("ADD http://127.0.0.2/found\nADD http://127.0.0.1/1\n");
    spider.done(&first, "200");
    let works = spider.works(2);
    assert!(works.iter().any(|work| work.url == "http://127.0.0.2/found"));
    works.iter().for_each(|work| spider.done(work, "404"));
    let ended = server.end(DEADLINE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

#[test]
fn it_exits_when_there_is_nothing_that_can_be_fetched() {
    for seeds in [&[][..], &["# none"], &["http://nowhere.example/1", "http://nowhere.example/2"]] {
        let server = Setup::new()
            .flag("exit-when-done", "true")
            .hosts(&["0.0.0.0 nowhere.example"])
            .seeds(seeds)
            .start();
        assert_eq!(server.end(DEADLINE).code, Some(0), "{seeds:?}");
    }
}

#[test]
fn it_exits_when_the_index_has_no_more() {
    let (server, mut index, _door) = Setup::new().flag("exit-when-done", "true").start_with_index();
    let mut spider = server.spider();
    index.offer(&["1 http://127.0.0.1/1", "2 http://127.0.0.1/2"]);
    let first = spider.work();
    spider.done(&first, "200");
    let second = spider.work();
    assert_eq!(index.report(), "1 DONE 200");
    spider.say("ADD http://127.0.0.1/3\n");
    assert_eq!(index.report(), "ADD http://127.0.0.1/3");
    index.no_report(Duration::from_millis(100));
    spider.done(&second, "200");
    assert_eq!(index.report(), "2 DONE 200");
    // It asks once more before it goes, and takes what it gets.
    index.offer(&["3 http://127.0.0.1/3"]);
    let third = spider.work();
    spider.done(&third, "200");
    assert_eq!(index.until_end(), ["3 DONE 200"]);
    let ended = server.end(DEADLINE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

#[test]
fn documents_of_a_host_that_is_paused_keep_it_running() {
    let scratch = tempfile::tempdir().expect("a directory");
    for index in ["memory".to_owned(), format!("dir:{}", scratch.path().display())] {
        let server = Setup::new()
            .flag("exit-when-done", "true")
            .flag("index", &index)
            .seeds(&["http://127.0.0.1/"])
            .start();
        let mut spider = server.spider();
        let first = spider.work();
        post(&server, "/api/hosts/127.0.0.2/pause", "");
        assert_eq!(post(&server, "/api/urls", "http://127.0.0.2/").1["accepted"], 1);
        spider.done(&first, "200");
        server.until_stat("done", 1);
        // Nothing is pending here by now, and the index gives nothing.
        let (asked, end) = (server.stat("index_requests"), Instant::now() + DEADLINE);
        while server.stat("index_requests") < asked + 2 {
            assert!(Instant::now() < end, "it has ceased to ask");
            std::thread::sleep(GLANCE);
        }
        assert_eq!(post(&server, "/api/hosts/127.0.0.2/resume", "").0, 200, "{index}");
        let second = spider.work();
        assert_eq!(second.url, "http://127.0.0.2/");
        spider.done(&second, "200");
        assert_eq!(server.end(DEADLINE).code, Some(0), "{index}");
    }
}

#[test]
fn an_end_without_candidates_of_rejected_hosts_is_not_the_last_word() {
    let (server, mut index, _door) = Setup::new().flag("exit-when-done", "true").start_with_index();
    let mut spider = server.spider();
    index.offer(&["1 http://127.0.0.1/"]);
    let first = spider.work();
    post(&server, "/api/hosts/127.0.0.2/pause", "");
    spider.done(&first, "200");
    assert_eq!(index.report(), "1 DONE 200");
    while index.offer(&[]).reject != ["127.0.0.2"] {}
    assert_eq!(index.offer(&[]).reject, ["127.0.0.2"], "it may have more");
    post(&server, "/api/hosts/127.0.0.2/resume", "");
    while !index.offer(&["2 http://127.0.0.2/"]).reject.is_empty() {}
    let second = spider.work();
    spider.done(&second, "200");
    assert!(index.until_end().contains(&"2 DONE 200".to_owned()));
    assert_eq!(server.end(DEADLINE).code, Some(0));
}

#[test]
fn an_index_that_cannot_be_reached_is_not_one_that_has_no_more() {
    let door = Door::open();
    let address = door.address();
    let setup = Setup::new().flag("exit-when-done", "true").index(&door);
    drop(door);
    let server = setup.start();
    let mut spider = server.spider();
    spider.idle(Duration::from_secs(1));
    let (cpu, requests) = (server.cpu(), server.stat("index_requests"));
    assert!(cpu < Duration::from_millis(500), "{cpu:?} for doing nothing");
    assert!(requests < 20, "{requests} requests of nobody");
    let door = Door::at(address);
    assert_eq!(Index::accept(&door).until_end(), [""; 0]);
    assert_eq!(server.end(DEADLINE).code, Some(0));
}

#[test]
fn doing_nothing_costs_nothing() {
    let server = Setup::new().seeds(&["http://127.0.0.1/1", "http://127.0.0.1/2"]).start();
    let mut spider = server.spider();
    spider.work();
    let before = server.cpu();
    spider.idle(Duration::from_secs(1));
    let used = server.cpu() - before;
    assert!(used < Duration::from_millis(200), "{used:?}");
}

#[test]
fn the_stats_have_all_their_fields_and_add_up() {
    let server = Setup::new()
        .flag("queue-count", "3")
        .flag("queue-len", "2")
        .flag("max-attempts", "1")
        .seeds(&[
            "1 http://127.0.0.1/1",
            "2 http://127.0.0.1/2",
            "3 http://127.0.0.2/1",
            "4 http://127.0.0.3/1",
            "5 http://nowhere.example/",
        ])
        .hosts(&["0.0.0.0 nowhere.example"])
        .start();
    let fields = [
        "queued",
        "leftover",
        "in_flight",
        "slots",
        "slots_bound",
        "spiders",
        "sent",
        "done",
        "failed",
        "denied",
        "retried",
        "expired",
        "stale_status",
        "malformed_lines",
        "index_requests",
    ];
    let end = Instant::now() + DEADLINE;
    let add_up = |stats: &serde_json::Value| -> u64 {
        ["queued", "leftover", "in_flight", "done", "failed", "denied"]
            .iter()
            .filter_map(|n| stats[n].as_u64())
            .sum()
    };
    while add_up(&server.stats()) < 5 {
        assert!(Instant::now() < end, "{}", server.stats());
        std::thread::sleep(GLANCE);
    }
    let mut spider = server.spider();
    let works = spider.works(3);
    spider.done(&works[0], "200");
    spider.done(&works[1], "500");
    spider.say("0 DONE\nnonsense\n");
    loop {
        let stats = server.stats();
        assert_eq!(add_up(&stats), 5, "{stats}");
        if stats["malformed_lines"].as_u64() == Some(1) {
            break;
        }
    }
    let stats = server.stats();
    for field in fields {
        assert!(stats[field].is_u64(), "{field} in {stats}");
    }
    assert!(stats["urls_per_sec"].is_number());
    assert_eq!((stats["slots"].as_u64(), stats["spiders"].as_u64()), (Some(3), Some(1)));
    assert_eq!((stats["stale_status"].as_u64(), stats["done"].as_u64()), (Some(1), Some(1)));
    assert_eq!(stats["failed"].as_u64(), Some(2));
}

#[test]
fn errors_are_json_with_a_fitting_status() {
    let server = Setup::new().start();
    for path in ["/nothing", "/api/nothing", "/api/stats/x"] {
        let (status, body) = server.get(path);
        let json: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(status, 404);
        assert!(json["error"].is_string(), "{body}");
    }
}

#[test]
fn pages_of_other_origins_get_nothing() {
    let server = Setup::new().start();
    let own = format!("Origin: http://{}", server.http());
    let port = server.http().port();
    for allowed in [&[][..], &[&*own], &["Host: localhost"], &[&format!("Host: localhost:{port}")]] {
        assert_eq!(server.get_with("/api/stats", allowed).0, 200, "{allowed:?}");
    }
    for refused in [
        "Host: evil.example",
        "Host: localhost.evil.example",
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: https://localhost",
    ] {
        let (status, body) = server.get_with("/api/stats", &[refused]);
        assert_eq!(status, 403, "{refused}");
        assert!(body.contains("\"error\"") && !body.contains("queued"), "{body}");
    }
}

#[test]
fn a_token_is_asked_for_except_for_being_alive() {
    let server = Setup::new().flag("http-token", "secret").start();
    assert_eq!(server.get("/healthz").0, 200);
    for path in ["/api/stats", "/readyz", "/nothing"] {
        assert_eq!(server.get(path).0, 401, "{path}");
        assert_eq!(server.get_with(path, &["Authorization: Bearer wrong"]).0, 401);
        assert_eq!(server.get_with(path, &["Authorization: Bearer secretx"]).0, 401);
    }
    assert_eq!(server.get_with("/api/stats", &["Authorization: Bearer secret"]).0, 200);
    assert_eq!(server.get_with("/readyz", &["Authorization: Bearer secret"]).0, 200);
}

#[test]
fn http_clients_that_say_nothing_are_let_go_and_stop_nobody() {
    let server = Setup::new().start();
    let idle: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.http()).expect("a connection")).collect();
    // They take all places; the crawl does not notice.
    server.spider().idle(GLANCE);
    idle[0].set_read_timeout(Some(DEADLINE)).expect("a socket");
    (&idle[0]).read_to_end(&mut Vec::new()).expect("closed in time");
    assert_eq!(server.get("/healthz").0, 200);
    assert!(server.open_sockets() < 100);
}
