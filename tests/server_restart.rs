//! Politeness over the lives of the real binary: killed without warning, it never asks a host too early, and forgets
//! no order and no hold.

mod support;

use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use support::lines::Came;
use support::mount::Mount;
use support::server::{Server, Setup};
use support::spider::Work;

/// Hosts of the loops: two of them share an address, and two an alias.
const HOSTS: [(&str, &str); 8] = [
    ("a.example", "127.0.0.2"),
    ("b.example", "127.0.0.3"),
    ("c.example", "127.0.0.4"),
    ("d.example", "127.0.0.5"),
    ("shared1.example", "127.0.0.6"),
    ("shared2.example", "127.0.0.6"),
    ("alias1.example", "127.0.0.7"),
    ("alias2.example", "127.0.0.8"),
];
const ALIAS: &str = "[alias]\nboth = [\"alias1.example\", \"alias2.example\"]\n";

fn setup(directory: &Path) -> Setup {
    let index = format!("dir:{}", directory.display());
    let names: Vec<String> = HOSTS.iter().map(|(host, ip)| format!("{ip} {host}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Setup::new().flag("index", &index).hosts(&names)
}

/// Ends it as nothing else can: no last words, no buffers written.
fn kill(server: Server) -> Instant {
    server.signal("KILL");
    let now = Instant::now();
    drop(server);
    now
}

#[test]
fn orders_survive_a_kill_and_a_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = setup(folder.path()).start();
    server.order("/api/hosts/a.example/pause");
    server.order("/api/hosts/b.example/block?seconds=1h");
    server.order("/api/hosts/unknown.example/delay?seconds=1000");
    server.order("/api/hosts/c.example/pause");
    server.order("/api/hosts/c.example/resume");
    server.order("/api/pause");
    kill(server);
    for _ in 0..2 {
        let server = setup(folder.path()).start();
        assert_eq!(server.stats()["paused"], json!(true));
        // Orders that change nothing, to see what stands.
        assert_eq!(server.order("/api/hosts/a.example/pause")["paused"], json!(true));
        let blocked = server.order("/api/hosts/b.example/resume")["blocked_for"].as_f64();
        assert!(blocked.is_some_and(|left| left > 3000.0 && left <= 3600.0), "{blocked:?}");
        assert_eq!(server.order("/api/hosts/unknown.example/resume")["delay"], json!(1000.0));
        assert_eq!(server.order("/api/hosts/c.example/resume")["paused"], json!(false));
        server.stop();
    }
    let server = setup(folder.path()).start();
    server.order("/api/resume");
    kill(server);
    assert_eq!(setup(folder.path()).start().stats()["paused"], json!(false));
}

#[test]
fn a_hold_survives_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = setup(folder.path()).seeds(&["http://a.example/1"]).start();
    let mut spider = server.spider();
    let work = spider.work();
    spider.done(&work, "429 retry-after=1000");
    server.until_stat("holds", 1);
    kill(server);
    let server = setup(folder.path()).seeds(&["http://b.example/2"]).start();
    let mut spider = server.spider();
    assert_eq!(spider.work().url, "http://b.example/2");
    spider.silence(Duration::from_secs(2));
    assert_eq!(server.stat("queued") + server.stat("leftover"), 1, "it is not forgotten either");
}

/// A disk that takes nothing more is seen in the figures.
#[test]
fn writes_of_politeness_that_fail_are_counted() {
    let scratch = tempfile::tempdir().expect("a folder");
    let Some(mount) = Mount::new(scratch.path().join("small"), "size=128k") else { return };
    let server = setup(&mount.0.join("data")).start();
    assert_eq!(server.stat("politeness_failures"), 0);
    assert!(std::fs::write(mount.0.join("ballast"), vec![1; 1 << 20]).is_err(), "the disk is full");
    let failed = (0..2_000).find(|n| {
        server.order(&format!("/api/hosts/h{n}.example/pause"));
        server.stat("politeness_failures") > 0
    });
    assert!(failed.is_some(), "{}", server.stats());
    let (_, text) = server.get("/metrics");
    assert!(text.contains("\nurlserver_politeness_failures_total 1\n"), "{text}");
}

#[test]
fn a_log_that_is_damaged_is_named_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    setup(folder.path()).start().stop();
    let path = folder.path().join("politeness.log");
    std::fs::write(&path, "something else").expect("a file");
    let (code, _, log) = setup(folder.path()).fails();
    assert!(code == Some(1) && log.contains("politeness.log"), "{code:?} {log}");
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "something else");
}

/// What a send counts for.
fn keys(work: &Work) -> Vec<String> {
    let host = work.url.split('/').nth(2).expect("a host").to_owned();
    let alias = host.starts_with("alias").then(|| "alias".to_owned());
    [Some(work.ip.to_string()), alias, Some(host)].into_iter().flatten().collect()
}

/// Kills the server again and again; between the last send of one life and the first of the next there is a whole gap,
/// for every host, address and alias.
fn kill_again_and_again(gap: f64, lives: usize, life_max_ms: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let urls: Vec<String> =
        HOSTS.iter().flat_map(|(host, _)| (0..200).map(move |n| format!("http://{host}/{n}"))).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let per_sec = (1.0 / gap).to_string();
    // In earlier lives, at the latest.
    let mut last: HashMap<String, Instant> = HashMap::new();
    let (mut sends, mut over_lives) = (0, 0);
    for life in 0..lives {
        let server = setup(folder.path()).file(ALIAS).seeds(&urls).flag("req-host-per-sec", &per_sec).start();
        let mut spider = server.spider();
        let mut seen: Vec<(Work, Instant)> = Vec::new();
        let end = Instant::now() + Duration::from_millis(fastrand::u64(50..life_max_ms));
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            match spider.within(left) {
                Came::Line(line) => {
                    let work = Work::parse(&line);
                    let _ = spider.try_say(format!("{} DONE 200\n", work.trans));
                    seen.push((work, Instant::now()));
                }
                Came::End => panic!("the connection is closed"),
                Came::Nothing => {}
            }
        }
        let killed = kill(server);
        // What was written before the kill, and is read only now.
        while let Came::Line(line) = spider.within(Duration::from_secs(5)) {
            seen.extend(line.ends_with(|c: char| c.is_ascii_digit()).then(|| (Work::parse(&line), killed)));
        }
        let mut first: HashMap<String, Instant> = HashMap::new();
        for (work, at) in &seen {
            for key in keys(work) {
                first.entry(key).or_insert(*at);
            }
        }
        for (key, at) in &first {
            let Some(before) = last.get(key) else { continue };
            let distance = at.duration_since(*before);
            assert!(distance.as_secs_f64() >= gap, "{key} after {distance:?} in life {life}");
            over_lives += 1;
        }
        sends += seen.len();
        for (work, at) in seen {
            last.extend(keys(&work).into_iter().map(|key| (key, at.min(killed))));
        }
    }
    assert!(sends > 0 && over_lives > 0, "{sends} sends, {over_lives} over two lives");
}

#[test]
fn a_long_gap_is_kept_over_kills() {
    kill_again_and_again(4.0, 12, 3000);
}

#[test]
fn a_short_gap_is_kept_over_kills() {
    kill_again_and_again(0.8, 12, 2000);
}
