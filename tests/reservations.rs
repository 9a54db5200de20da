//! Reservations over HTTP: workers that ask instead of being sent to.

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;
use support::lines::{DEADLINE, GLANCE};
use support::server::{Server, Setup};

fn start(setup: Setup, hosts: &[(&str, usize)]) -> Server {
    let lines: Vec<String> = hosts
        .iter()
        .flat_map(|&(host, count)| (0..count).map(move |number| format!("http://{host}/{number}")))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let names: Vec<String> = hosts.iter().map(|(host, _)| format!("127.0.0.1 {host}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    setup.flag("req-ip-concurrent", "inf").seeds(&lines).hosts(&names).start()
}

/// Asks until there is something to reserve.
#[track_caller]
fn reserve(server: &Server, urls: usize) -> Value {
    let end = Instant::now() + DEADLINE;
    loop {
        let (status, body) = server.request("POST", &format!("/api/reservations?urls={urls}"), "");
        if status == 200 {
            return body;
        }
        assert!(status == 204 && Instant::now() < end, "{status} {body}: {}", server.stats());
        std::thread::sleep(GLANCE);
    }
}

fn path(reservation: &Value) -> String {
    format!("/api/reservations/{}", reservation["token"].as_str().expect("a token"))
}

/// The body that says the same of all its documents.
fn all(reservation: &Value, outcome: &str) -> String {
    let docs = reservation["urls"].as_array().expect("URLs").iter().map(|url| url["doc_id"].to_string());
    let outcomes: serde_json::Map<String, Value> = docs.map(|doc| (doc, json!(outcome))).collect();
    Value::from(outcomes).to_string()
}

#[test]
fn a_worker_crawls_all_hosts_without_a_spider() {
    let server = start(Setup::new(), &[("a.example", 5), ("b.example", 3), ("c.example", 1)]);
    let mut seen = BTreeSet::new();
    while seen.len() < 9 {
        let reservation = reserve(&server, 2);
        assert!(reservation["expires_in"].as_f64().is_some_and(|time| time > 0.0 && time <= 60.0));
        let host = reservation["host"].as_str().expect("a host");
        let urls = reservation["urls"].as_array().expect("URLs");
        assert!((1..=2).contains(&urls.len()), "{reservation}");
        for url in urls {
            assert!(url["url"].as_str().is_some_and(|url| url.starts_with(&format!("http://{host}/"))));
            assert_eq!(url["ip"], json!("127.0.0.1"));
            assert!(seen.insert(url["doc_id"].as_u64().expect("a number")), "{url} twice");
        }
        let (status, body) = server.request("DELETE", &path(&reservation), &all(&reservation, "200"));
        assert_eq!(status, 200, "{body}");
    }
    server.until_stat("done", 9);
    assert_eq!(server.request("POST", "/api/reservations", ""), (204, Value::Null));
}

#[test]
fn a_reserved_host_is_nobody_elses_until_it_is_released() {
    let server = start(Setup::new().flag("req-host-concurrent", "2"), &[("a.example", 3)]);
    let reservation = reserve(&server, 1);
    assert_eq!(server.request("POST", "/api/reservations", "").0, 204);
    let mut spider = server.spider();
    spider.silence(std::time::Duration::from_millis(200));
    let (status, renewed) = server.request("POST", &format!("{}/renew", path(&reservation)), "");
    assert!(status == 200 && renewed["expires_in"].as_f64().is_some_and(|time| time > 0.0), "{renewed}");
    assert_eq!(server.request("DELETE", &path(&reservation), "").0, 200);
    // Not spoken of: it is pending again, and goes first.
    assert_eq!(json!(spider.work().doc), reservation["urls"][0]["doc_id"]);
    spider.work();
}

#[test]
fn what_runs_out_is_given_to_others_and_late_words_change_nothing() {
    let setup = Setup::new().flag("timeout-spider-status", "0.2").flag("retry-delay", "0");
    let server = start(setup, &[("a.example", 2)]);
    let lost = reserve(&server, 2);
    server.until_stat("expired", 2);
    let server_says = |method: &str, path: String, body: &str| server.request(method, &path, body).0;
    assert_eq!(server_says("POST", format!("{}/renew", path(&lost)), ""), 404);
    assert_eq!(server_says("DELETE", path(&lost), &all(&lost, "200")), 404);
    assert_eq!(server.stat("done"), 0);
    let mut spider = server.spider();
    for _ in 0..2 {
        let work = spider.work();
        spider.done(&work, "200");
    }
    server.until_stat("done", 2);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let server = start(Setup::new(), &[("a.example", 1)]);
    for query in ["urls=0", "urls=101", "urls=x", "url=1", "urls=1&urls=1"] {
        let (status, body) = server.request("POST", &format!("/api/reservations?{query}"), "");
        assert!(
            status == 400 && body["error"].as_str().is_some_and(|why| why.contains("1 to 100")),
            "{body}"
        );
    }
    let reservation = reserve(&server, 1);
    let doc = reservation["urls"][0]["doc_id"].to_string();
    for (body, words) in [
        (format!("{{\"{doc}\": \"fine\"}}"), "outcome"),
        (format!("{{\"{doc}\": 200}}"), "DOC_ID"),
        ("{\"x\": \"200\"}".to_owned(), "DOC_ID"),
        (format!("{{\"{doc}\": \"200\", \"12345678901\": \"200\"}}"), "12345678901"),
        ("[".to_owned(), "DOC_ID"),
    ] {
        let (status, answer) = server.request("DELETE", &path(&reservation), &body);
        let why = answer["error"].as_str().unwrap_or_default();
        assert!(status == 400 && why.contains(words), "{body}: {status} {answer}");
    }
    let long = format!("{{\"{doc}\": \"{}\"}}", " ".repeat(100_000));
    assert_eq!(server.request("DELETE", &path(&reservation), &long).0, 413);
    for token in ["0", "00000000000000000000000000000000", "..", "%00"] {
        assert_eq!(server.request("DELETE", &format!("/api/reservations/{token}"), "").0, 404, "{token}");
    }
    assert_eq!((server.stat("in_flight"), server.stat("done")), (1, 0));
    assert_eq!(server.request("DELETE", &path(&reservation), &all(&reservation, "200")).0, 200);
    server.until_stat("done", 1);
}

#[test]
fn a_refusal_of_the_web_server_holds_the_host() {
    let server = start(Setup::new(), &[("a.example", 2)]);
    let reservation = reserve(&server, 1);
    let body = all(&reservation, "429 retry-after=1000");
    assert_eq!(server.request("DELETE", &path(&reservation), &body).0, 200);
    assert_eq!(server.stat("holds"), 1);
    assert_eq!(server.request("POST", "/api/reservations", "").0, 204);
}
