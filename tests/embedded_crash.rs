//! The real binary with its index in a directory, killed (-9) at random moments, with a real spider over TCP.
//!
//! Over all lives: a document keeps its name; one that has ended is not sent again, but for those whose end the server
//! could not have told its index yet; at the end each has ended exactly once. `URLSERVER_TEST_KILLS=500` kills more often.

mod support;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::lines::{Came, DEADLINE};
use support::server::Setup;
use support::spider::{Spider, Work};

const KILLS: usize = 30;
const HOSTS: usize = 20;
/// What one life can do at most.
const WORK_MAX: usize = 400;
/// The server holds fewer documents than this (eight slots of four, and as many that wait for one), and with every
/// request for more it tells its index what has ended. So a DONE is with the index when so many more have come.
const FIRM_AFTER: usize = 200;

/// What the spider has seen.
#[derive(Default)]
struct Seen {
    urls: HashMap<u64, String>,
    /// Documents that were DONE in some life, with their place in the order of work of that life.
    done: HashMap<u64, usize>,
    /// Documents whose end is with the index for sure.
    firm: HashMap<u64, usize>,
    sent_again: usize,
}

impl Seen {
    fn note(&mut self, work: &Work, life: usize) {
        let url = self.urls.entry(work.doc).or_insert_with(|| work.url.clone());
        assert_eq!(*url, work.url, "document {} is another in life {life}", work.doc);
        assert_eq!(self.firm.get(&work.doc), None, "{} has ended, and comes again in life {life}", work.url);
        self.sent_again += usize::from(self.done.contains_key(&work.doc));
    }

    /// A life is over, in which so much work was done.
    fn end_life(&mut self, work: usize) {
        for (doc, place) in self.done.drain() {
            if place + FIRM_AFTER <= work {
                self.firm.insert(doc, place);
            }
        }
    }
}

fn setup(directory: &Path, seeds: &[&str]) -> Setup {
    Setup::new()
        .flag("index", &format!("dir:{}", directory.display()))
        .flag("queue-count", "8")
        .flag("queue-len", "4")
        .flag("req-host-concurrent", "4")
        .flag("req-ip-concurrent", "inf")
        .flag("req-ip-per-sec", "inf")
        .seeds(seeds)
}

/// Works until so much is done, or the server closes the connection; returns how much was done.
fn work(spider: &mut Spider, seen: &mut Seen, life: usize, most: usize) -> usize {
    let mut count = 0;
    while count < most {
        let line = match spider.within(DEADLINE) {
            Came::Line(line) => line,
            Came::End => break,
            Came::Nothing => panic!("no work in life {life}, after {count}"),
        };
        let work = Work::parse(&line);
        seen.note(&work, life);
        if spider.try_say(format!("{} DONE 200\n", work.trans)).is_err() {
            break;
        }
        seen.done.insert(work.doc, count);
        count += 1;
    }
    count
}

#[test]
fn killed_at_any_moment_it_loses_nothing_and_sends_nothing_again() {
    let kills = std::env::var("URLSERVER_TEST_KILLS").map_or(KILLS, |text| text.parse().expect("a number"));
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("data");
    let pages = kills * WORK_MAX / HOSTS;
    let url = |n: usize| format!("http://127.0.0.{}/page/{n}", 1 + n % HOSTS);
    let urls: Vec<String> = (0..pages * HOSTS).map(url).collect();
    let seeds: Vec<&str> = urls.iter().map(String::as_str).collect();
    let mut seen = Seen::default();
    for life in 0..kills {
        if rng.u32(..5) == 0 {
            // While it starts, and reads its files and seeds.
            let mut child = setup(&directory, &seeds).spawn();
            std::thread::sleep(Duration::from_millis(rng.u64(..80)));
            child.kill().expect("a child");
            child.wait().expect("a child");
            continue;
        }
        let server = setup(&directory, &seeds).start();
        let count = work(&mut server.spider(), &mut seen, life, rng.usize(..WORK_MAX));
        drop(server);
        seen.end_life(count);
    }
    let server = setup(&directory, &seeds).flag("exit-when-done", "true").start();
    work(&mut server.spider(), &mut seen, kills, usize::MAX);
    assert_eq!(server.end(DEADLINE).code, Some(0));
    assert_eq!(seen.urls.len(), urls.len());
    assert_each_has_ended_once(&directory, &seen, &urls);
}

/// Enough for some blocks of fingerprints.
const MANY: usize = 700_000;

/// Killed while it takes URLs and writes blocks of fingerprints, it knows all that it had said to be there, each once.
#[test]
fn killed_while_it_writes_fingerprints_it_knows_every_url_once() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let scratch = tempfile::tempdir().expect("a directory");
    let (directory, file) = (scratch.path().join("data"), scratch.path().join("many"));
    let lines: String = (0..MANY).map(|n| format!("http://h{}.example/page/{n}\n", n % 1_000)).collect();
    std::fs::write(&file, lines).expect("a file");
    let tool = |command: &str, file: &[&Path]| {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_urlserver"));
        let output = tool.args(["index", command]).arg(&directory).args(file).output().expect("the binary");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    for _ in 0..6 {
        let seeds = file.display().to_string();
        let mut child = setup(&directory, &[]).flag("seeds", &seeds).spawn();
        std::thread::sleep(Duration::from_millis(rng.u64(..1_000)));
        child.kill().expect("a child");
        child.wait().expect("a child");
    }
    tool("import", &[&file]);
    assert_eq!(tool("import", &[&file]).trim(), format!("accepted 0\nduplicate {MANY}\nrejected 0"));
    let blocks = std::fs::metadata(directory.join("prints-1")).expect("fingerprints").len();
    assert!(blocks > 16 * MANY as u64 / 2, "{blocks} bytes of fingerprints");
    let text = tool("export", &[]);
    let urls: HashSet<&str> = text.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!((urls.len(), text.lines().count()), (MANY, MANY));
}

/// By what the index itself writes out.
fn assert_each_has_ended_once(directory: &Path, seen: &Seen, urls: &[String]) {
    let export =
        Command::new(env!("CARGO_BIN_EXE_urlserver")).args(["index", "export"]).arg(directory).output();
    let text = String::from_utf8(export.expect("the binary").stdout).expect("text");
    let mut found = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [doc, url, "done", "200", _] = words[..] else { panic!("{line:?}") };
        assert_eq!(seen.urls.get(&doc.parse().expect("a number")).map(String::as_str), Some(url));
        assert_eq!(found.insert(url.to_owned(), doc.to_owned()), None, "{url} twice");
    }
    assert!(found.len() == urls.len() && urls.iter().all(|url| found.contains_key(url)), "{}", found.len());
}
