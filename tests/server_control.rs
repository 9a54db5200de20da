//! Operators' orders over HTTP, and what spiders see of them.

mod support;

use serde_json::json;
use std::time::Duration;
use support::server::{Server, Setup};
use support::spider::{Spider, Work};

/// Long enough to see that nothing comes, on a machine that is not very busy; never the reason for a failure.
const A_WHILE: Duration = Duration::from_millis(300);

fn urls(host: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("http://{host}/{number}")).collect()
}

fn start(hosts: &[(&str, usize)]) -> (Server, Spider) {
    let lines: Vec<String> = hosts.iter().flat_map(|&(host, count)| urls(host, count)).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let names: Vec<String> = hosts.iter().map(|(host, _)| format!("127.0.0.1 {host}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let server = Setup::new().flag("req-ip-concurrent", "inf").seeds(&lines).hosts(&names).start();
    let spider = server.spider();
    (server, spider)
}

fn host_of(work: &Work) -> &str {
    work.url.split('/').nth(2).expect("a host")
}

#[test]
fn a_paused_host_waits_and_others_go_on() {
    let (server, mut spider) = start(&[("a.example", 2), ("b.example", 2)]);
    let mut first = spider.works(2);
    first.sort_by_key(|work| host_of(work).to_owned());
    let standing = server.order("/api/hosts/a.example/pause");
    assert_eq!(standing, json!({"host": "a.example", "paused": true, "blocked_for": 0.0, "delay": 0.0}));
    first.iter().for_each(|work| spider.done(work, "200"));
    let second = spider.work();
    assert_eq!(host_of(&second), "b.example");
    spider.done(&second, "200");
    server.until_stat("done", 3);
    spider.silence(A_WHILE);
    assert_eq!(server.order("/api/hosts/A.Example./resume")["paused"], json!(false), "however it is written");
    let last = spider.work();
    assert_eq!(host_of(&last), "a.example");
    spider.done(&last, "200");
    server.until_stat("done", 4);
}

#[test]
fn everything_paused_sends_nothing_and_statuses_count() {
    let (server, mut spider) = start(&[("a.example", 3)]);
    let first = spider.work();
    assert_eq!(server.order("/api/pause"), json!({"paused": true}));
    assert_eq!(server.stats()["paused"], json!(true));
    spider.done(&first, "200");
    server.until_stat("done", 1);
    spider.silence(A_WHILE);
    let mut late = server.spider();
    late.silence(A_WHILE);
    assert_eq!(server.order("/api/resume"), json!({"paused": false}));
    // It has come to the one or to the other.
    let second = spider.work_within(A_WHILE).map(|work| spider.done(&work, "200"));
    if second.is_none() {
        let work = late.work();
        late.done(&work, "200");
    }
    server.until_stat("done", 2);
}

#[test]
fn orders_for_hosts_not_known_yet_hold_when_they_come() {
    let server =
        Setup::new().flag("req-ip-concurrent", "inf").hosts(&["127.0.0.1 a.example b.example"]).start();
    server.order("/api/hosts/a.example/pause");
    assert_eq!(server.order("/api/hosts/b.example/delay?seconds=1000")["delay"], json!(1000.0));
    let mut spider = server.spider();
    spider.say("ADD http://a.example/1\nADD http://b.example/2\nADD http://b.example/3\n");
    let first = spider.work();
    assert_eq!(host_of(&first), "b.example");
    spider.done(&first, "200");
    server.until_stat("done", 1);
    spider.silence(A_WHILE);
    server.order("/api/hosts/b.example/delay?seconds=0");
    let second = spider.work();
    assert_eq!(host_of(&second), "b.example");
    spider.done(&second, "200");
    server.order("/api/hosts/a.example/resume");
    assert_eq!(host_of(&spider.work()), "a.example");
}

#[test]
fn a_block_says_how_long_it_lasts_and_is_lifted_by_zero() {
    let (server, mut spider) = start(&[("a.example", 2)]);
    let first = spider.work();
    let blocked = server.order("/api/hosts/a.example/block?seconds=1h");
    let left = blocked["blocked_for"].as_f64().expect("a number");
    assert!(left > 3000.0 && left <= 3600.0, "{blocked}");
    spider.done(&first, "200");
    server.until_stat("done", 1);
    spider.silence(A_WHILE);
    assert_eq!(server.order("/api/hosts/a.example/block?seconds=0")["blocked_for"], json!(0.0));
    spider.work();
}

#[test]
fn what_makes_no_sense_is_refused_and_named() {
    let server = Setup::new().start();
    for (path, status, words) in [
        ("/api/hosts/a%20b/pause", 400, "host name"),
        ("/api/hosts/*.example/pause", 400, "host name"),
        ("/api/hosts/a.example:80/pause", 400, "host name"),
        ("/api/hosts/a.example/stop", 404, "pause, resume, block and delay"),
        ("/api/hosts/a.example/pause?seconds=1", 400, "no parameters"),
        ("/api/hosts/a.example/block", 400, "seconds"),
        ("/api/hosts/a.example/block?seconds=-1", 400, "from 0"),
        ("/api/hosts/a.example/block?seconds=x", 400, "seconds=x"),
        ("/api/hosts/a.example/delay?second=1", 400, "second=1"),
        ("/api/hosts/a.example/delay?seconds=1&seconds=2", 400, "once"),
        ("/api/pause?x=1", 400, "x=1"),
    ] {
        let (got, body) = server.request("POST", path, "");
        let error = body["error"].as_str().unwrap_or_default();
        assert!(got == status && error.contains(words), "{path}: {got} {body}");
    }
    assert_eq!(server.get("/api/pause").0, 405);
    assert_eq!(server.stats()["paused"], json!(false));
    let standing = server.order("/api/hosts/BL%C3%85B%C3%86R.no/pause");
    assert_eq!(standing["host"], json!("xn--blbr-roah.no"));
}
