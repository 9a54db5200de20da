//! The HTTP interface of the real binary, as clients see it that behave.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::time::Instant;
use support::http::{body, connect, get, many_hosts, parsed, post, refused, status};
use support::lines::{DEADLINE, GLANCE};
use support::server::{Server, Setup};

fn explain(server: &Server, url: &str) -> Value {
    let escaped = url.replace('%', "%25").replace('&', "%26").replace('+', "%2B");
    get(server, &format!("/api/explain?url={escaped}"))
}

/// Asks until the sentence has this in it.
#[track_caller]
fn until_why(server: &Server, url: &str, words: &str) -> Value {
    let end = Instant::now() + DEADLINE;
    loop {
        let facts = explain(server, url);
        if facts["why"].as_str().unwrap().contains(words) {
            return facts;
        }
        assert!(Instant::now() < end, "no {words:?} in {facts}");
        std::thread::sleep(GLANCE);
    }
}

#[test]
fn posted_urls_are_counted_named_and_sent() {
    let server = Setup::new().seeds(&["http://127.0.0.1/known"]).start();
    let mut spider = server.spider();
    let known = spider.work();
    let text =
        "# comment\nhttp://127.0.0.2/a\n\nhttp://127.0.0.1/known#x\nno url\n7 http://127.0.0.3/b\nftp://a/\n";
    let (status, answer) = post(&server, "/api/urls", text);
    assert_eq!(status, 200);
    let counts = ["accepted", "duplicate", "rejected"].map(|name| answer[name].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 2], "{answer}");
    let lines: Vec<u64> =
        answer["errors"].as_array().unwrap().iter().map(|e| e["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [5, 7]);
    assert!(answer["errors"][1]["reason"].as_str().unwrap().contains("http"), "{answer}");
    let mut works = spider.works(2);
    works.sort_by_key(|work| work.url.clone());
    assert_eq!(works[0].url, "http://127.0.0.2/a");
    assert_eq!((works[1].doc, &*works[1].url), (7, "http://127.0.0.3/b"));
    spider.done(&known, "200");
}

#[test]
fn a_long_body_in_chunks_is_streamed_and_the_first_hundred_errors_are_told() {
    let server = Setup::new().start();
    let mut stream = connect(&server);
    write!(stream, "POST /api/urls HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        .unwrap();
    // Chunks that end in the middle of lines.
    let mut text = String::new();
    for n in 0..50_000 {
        let _ = writeln!(text, "http://127.0.0.{}/{n}", n % 100 + 1);
        if n % 100 == 0 {
            let _ = writeln!(text, "bad line {n}");
        }
    }
    for chunk in text.as_bytes().chunks(60_001) {
        write!(stream, "{:x}\r\n", chunk.len()).unwrap();
        stream.write_all(chunk).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), 200, "{answer}");
    // The answer is small, and has a length.
    let answer = parsed(body(&answer));
    assert_eq!((answer["accepted"].as_u64(), answer["rejected"].as_u64()), (Some(50_000), Some(500)));
    let errors = answer["errors"].as_array().unwrap();
    assert_eq!(json!([errors.len(), errors[0]["line"], errors[99]["line"]]), json!([100, 2, 99 * 101 + 2]));
}

#[test]
fn a_server_that_is_done_waits_for_those_who_add() {
    let server = Setup::new().flag("exit-when-done", "true").seeds(&["http://127.0.0.1/first"]).start();
    let mut spider = server.spider();
    let first = spider.work();
    let (mut stream, url) = (connect(&server), "http://127.0.0.1/late\n");
    let head = "POST /api/urls HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n", url.len()).unwrap();
    // Once the body is wanted, the server counts on it.
    let mut wanted = [0; 12];
    stream.read_exact(&mut wanted).unwrap();
    assert_eq!(&wanted, b"HTTP/1.1 100");
    spider.done(&first, "200");
    server.until_stat("done", 1);
    stream.write_all(url.as_bytes()).unwrap();
    let late = spider.work();
    assert_eq!(late.url, "http://127.0.0.1/late");
    spider.done(&late, "200");
    assert_eq!(server.end(DEADLINE).code, Some(0));
}

/// All pages, one after the other.
#[track_caller]
fn pages(server: &Server, limit: usize, mut between: impl FnMut(usize)) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), String::new());
    for page in 0.. {
        let answer = get(server, &format!("/api/hosts?limit={limit}&after={after}"));
        let hosts = answer["hosts"].as_array().unwrap();
        assert!(hosts.len() <= limit);
        names.extend(hosts.iter().map(|host| host["host"].as_str().unwrap().to_owned()));
        match answer["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
        between(page);
    }
    names
}

#[test]
fn pages_neither_skip_nor_repeat_while_hosts_come() {
    let server = many_hosts(300);
    let sorted: Vec<String> = (0..300).map(|n| format!("h{n:04}.example")).collect();
    assert_eq!(pages(&server, 1000, |_| ()), sorted);
    assert_eq!(pages(&server, 300, |_| ()), sorted);
    assert_eq!(pages(&server, 299, |_| ()), sorted);
    let seen = pages(&server, 7, |page| {
        // Hosts come before and behind the place where we are.
        let new = format!("http://a{page}.example/\nhttp://z{page}.example/\n");
        assert_eq!(post(&server, "/api/urls", &new).0, 200);
    });
    assert!(seen.is_sorted());
    let once: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(once.len(), seen.len(), "repeated");
    assert!(sorted.iter().all(|name| once.contains(name)), "skipped");
}

/// Some fields of an object, as a list.
fn fields(object: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| object[*name].clone()).collect()
}

/// Asks until some fields of the answer are these.
#[track_caller]
fn until(server: &Server, path: &str, names: &[&str], wanted: &Value) -> Value {
    let end = Instant::now() + DEADLINE;
    loop {
        let (_, body) = server.get(path);
        let answer = parsed(&body);
        if fields(&answer, names) == *wanted {
            return answer;
        }
        assert!(Instant::now() < end, "{names:?} not {wanted} in {answer}");
        std::thread::sleep(GLANCE);
    }
}

#[test]
fn hosts_are_found_by_state() {
    let server = Setup::new()
        .hosts(&["127.0.0.1 a.example", "127.0.0.2 c.example"])
        .seeds(&["http://a.example/1", "http://a.example/2", "http://c.example/"])
        .start();
    let names = |state: &str| -> Vec<String> {
        let answer = get(&server, &format!("/api/hosts?state={state}"));
        answer["hosts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|host| host["host"].as_str().unwrap().to_owned())
            .collect()
    };
    until(&server, "/api/hosts/a.example", &["state"], &json!(["ready"]));
    until(&server, "/api/hosts/c.example", &["state"], &json!(["ready"]));
    assert_eq!(names("ready"), ["a.example", "c.example"]);
    let mut spider = server.spider();
    let works = spider.works(2);
    assert_eq!(names("busy"), ["a.example", "c.example"]);
    works.iter().filter(|work| work.url.contains("c.example")).for_each(|work| spider.done(work, "200"));
    server.until_stat("done", 1);
    assert_eq!(names("idle"), ["c.example"]);
    assert!(names("held").is_empty());
    let (status, error) = refused(&server, "/api/hosts?state=sleepy");
    assert_eq!(status, 400);
    for word in
        ["idle", "ready", "waiting", "busy", "held", "down", "resolving", "leftover", "delayed", "draining"]
    {
        assert!(error.contains(word), "{word} in {error}");
    }
}

#[test]
fn a_host_is_described_however_it_is_written() {
    let server = Setup::new()
        .flag("req-host-per-sec", "0.001")
        .file("[alias]\nboth = ['a.example', 'b.example']\n")
        .hosts(&["127.0.0.1 a.example b.example xn--blbr-roah.no"])
        .seeds(&["http://a.example/1", "http://a.example/2"])
        .start();
    let mut spider = server.spider();
    let work = spider.work();
    assert_eq!(work.url, "http://a.example/1");
    for path in ["a.example", "A.EXAMPLE", "a.example.", "%61.example"] {
        assert_eq!(get(&server, &format!("/api/hosts/{path}"))["host"], "a.example", "{path}");
    }
    let host = get(&server, "/api/hosts/a.example");
    let names = ["slot", "queued", "leftover", "in_flight", "ip", "alias", "group", "state", "next_send_in"];
    assert_eq!(fields(&host, &names), json!([0, 1, 0, 1, "127.0.0.1", "both", null, "busy", null]), "{host}");
    assert_eq!(host["addresses"], json!([{"ip": "127.0.0.1", "health": "up"}]));
    spider.done(&work, "200");
    server.until_stat("done", 1);
    let host = get(&server, "/api/hosts/a.example");
    assert_eq!(fields(&host, &["state", "gap"]), json!(["waiting", 1_000.0]), "{host}");
    let next = host["next_send_in"].as_f64().unwrap();
    assert!(next > 0.0 && next <= 1_000.0, "{host}");
    assert!(host["why"].as_str().unwrap().starts_with("a.example waits "), "{host}");
    assert_eq!(post(&server, "/api/urls", "http://blåbær.no/\n").0, 200);
    let path = "/api/hosts/bl%C3%A5b%C3%A6r.no";
    let other = until(&server, path, &["host", "state"], &json!(["xn--blbr-roah.no", "waiting"]));
    assert!(other["why"].as_str().unwrap().contains("ip 127.0.0.1 (shared with 1 host)"), "{other}");
    assert_eq!(refused(&server, "/api/hosts/nobody.example").0, 404);
    for bad in ["a%2Fb", "a:80", "%20", "%00", "%ff", "u%40a"] {
        assert_eq!(refused(&server, &format!("/api/hosts/{bad}")).0, 400, "{bad}");
    }
}

#[test]
fn an_address_is_described_with_its_hosts() {
    let server = Setup::new()
        .flag("fail-threshold", "1")
        .flag("retry-delay", "1000")
        .hosts(&["127.0.0.1 a.example b.example", "127.0.0.2 c.example"])
        .seeds(&["http://a.example/", "http://b.example/", "http://c.example/"])
        .start();
    let mut spider = server.spider();
    let works = spider.works(2);
    for path in ["127.0.0.1", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]"] {
        let wanted = json!(["127.0.0.1", 2, 2, 1, "up", null]);
        let names = ["ip", "host_count", "pending", "in_flight", "health", "next_send_in"];
        let ip = until(&server, &format!("/api/ips/{path}"), &names, &wanted);
        let hosts = ip["hosts"].as_array().unwrap();
        assert!(hosts.len() == 2 && hosts.contains(&json!("a.example")), "{ip}");
    }
    let down = works.iter().find(|work| work.url.contains("c.example")).unwrap();
    spider.done(down, "connect-failed");
    server.until_stat("retried", 1);
    let ip = get(&server, "/api/ips/127.0.0.2");
    assert_eq!(ip["health"], "down", "{ip}");
    assert!(ip["until"].as_f64().unwrap() > 0.0 && ip["next_send_in"].as_f64().unwrap() > 0.0);
    let host = get(&server, "/api/hosts/c.example");
    assert_eq!(host["addresses"][0]["health"], "down", "{host}");
    assert_eq!(refused(&server, "/api/ips/127.0.0.9").0, 404);
    for bad in ["127.0.0", "a.example", "127.0.0.1:80", "%ff"] {
        assert_eq!(refused(&server, &format!("/api/ips/{bad}")).0, 400, "{bad}");
    }
}

#[test]
fn a_url_is_explained_all_its_life() {
    let server = Setup::new()
        .flag("queue-count", "1")
        .flag("queue-len", "2")
        .flag("retry-delay", "1000")
        .hosts(&["127.0.0.1 a.example", "127.0.0.2 b.example"])
        .seeds(&[
            "http://a.example/1",
            "http://a.example/2",
            "http://a.example/3",
            "http://a.example/?x=1&y=+%20",
        ])
        .start();
    server.until_stat("queued", 2);
    let url = "http://a.example/1";
    let facts = until_why(&server, url, "queued as the next of its host; a.example may send now");
    assert_eq!(fields(&facts, &["state", "doc_id", "robots"]), json!(["queued", 1, "ignored"]));
    assert_eq!(facts["host"]["host"], "a.example");
    until_why(&server, "HTTP://A.example:80/%31/../2#x", "queued behind 1 URL of its host");
    let later = explain(&server, "http://a.example/?x=1&y=+%20");
    assert!(["queued", "waiting"].contains(&later["state"].as_str().unwrap()), "{later}");
    assert_eq!(explain(&server, "http://a.example/4")["why"], "unknown: nobody has added it");
    assert_eq!(explain(&server, "http://c.example/")["host"], Value::Null);
    post(&server, "/api/urls", "http://b.example/\n");
    let mut spider = server.spider();
    let work = spider.work();
    let facts = until_why(&server, url, "in flight at spider 127.0.0.1:");
    assert!(facts["why"].as_str().unwrap().ends_with("(attempt 1 of 3)"), "{facts}");
    assert_eq!(fields(&facts, &["ip", "attempts", "state"]), json!(["127.0.0.1", 1, "in_flight"]));
    spider.done(&work, "503 retry-after=0");
    until_why(&server, url, "waits for a retry (attempt 2 of 3) in ");
    let facts = explain(&server, url);
    assert!(facts["not_before_in"].as_f64().unwrap() > 0.0, "{facts}");
    let work = spider.work();
    assert_eq!(work.url, "http://a.example/2");
    spider.done(&work, "200");
    until_why(&server, "http://a.example/2", "it has ended");
}

#[test]
fn a_host_that_was_refused_is_held() {
    let server = Setup::new().seeds(&["http://127.0.0.1/1", "http://127.0.0.1/2"]).start();
    let mut spider = server.spider();
    let work = spider.work();
    spider.done(&work, "429 retry-after=1000");
    server.until_stat("retried", 1);
    let held = get(&server, "/api/hosts/127.0.0.1");
    assert_eq!(fields(&held, &["state", "slot"]), json!(["held", null]), "{held}");
    assert!(held["why"].as_str().unwrap().contains("the web server asked to be left alone"), "{held}");
    assert_eq!(held["holds"][0]["on"], "host");
    let left = held["holds"][0]["for"].as_f64().unwrap();
    assert!(left > 0.0 && left <= 1_000.0 && held["next_send_in"].as_f64().unwrap() > 0.0, "{held}");
}

#[test]
fn hosts_beyond_the_slots_know_how_many_come_first() {
    let seeds: Vec<String> = (1..=4).map(|n| format!("http://127.0.0.{n}/")).collect();
    let server = Setup::new().flag("queue-count", "1").start_with_index();
    let (server, mut index, _door) = server;
    let lines: Vec<String> = (1..).zip(&seeds).map(|(doc, url)| format!("{doc} {url}")).collect();
    index.offer(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    server.until_stat("leftover", 3);
    let last = get(&server, "/api/hosts/127.0.0.4");
    assert_eq!(last["why"], "127.0.0.4 waits in the leftover behind 2 others for a slot");
    assert_eq!(
        fields(&last, &["state", "slot", "leftover", "next_send_in"]),
        json!(["leftover", null, 1, null])
    );
    let facts = explain(&server, "http://127.0.0.4/");
    assert_eq!(fields(&facts, &["state", "index"]), json!(["queued", "unsaid"]));
    let unsaid = "not pending here; the document index does not say whether it knows it";
    assert_eq!(explain(&server, "http://127.0.0.9/")["why"], unsaid);
}

#[test]
fn metrics_are_there_in_both_formats() {
    let server = Setup::new()
        .flag("req-host-per-sec", "1000")
        .seeds(&["http://127.0.0.1/1", "http://127.0.0.1/2", "http://127.0.0.1/3"])
        .start();
    let mut spider = server.spider();
    spider.fetch(3, "200");
    server.until_stat("done", 3);
    let (status, text) = server.get("/metrics");
    assert_eq!(status, 200);
    for line in [
        "# TYPE urlserver_sent_total counter",
        "urlserver_sent_total 3",
        "urlserver_done_total 3",
        "# TYPE urlserver_queued gauge",
        "urlserver_queued 0",
        "urlserver_spiders 1",
        "urlserver_index_up 1",
        "urlserver_index_added_total 3",
        "# TYPE urlserver_send_delay_seconds histogram",
        "urlserver_send_delay_seconds_count 3",
        "urlserver_fetch_duration_seconds_count 3",
        "urlserver_fetch_duration_seconds_bucket{le=\"+Inf\"} 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    let mut names = BTreeSet::new();
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        assert!(name.starts_with("urlserver_") && names.insert(name.to_owned()), "{name} twice");
    }
    let (_, open) = server.get_with("/metrics", &["Accept: application/openmetrics-text;version=1.0.0"]);
    assert!(open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn the_front_page_links_the_rest() {
    let server = Setup::new().start();
    let (status, page) = server.get("/");
    assert_eq!(status, 200);
    assert!(page.contains("/api/stats") && page.contains("/metrics"));
}
