//! The index in a directory when something is wrong with it: no room, nothing to write to, damaged or newer files, two
//! servers. And what a restart keeps, over real sockets.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use support::lines::DEADLINE;
use support::mount::Mount;
use support::server::Setup;
use tempfile::TempDir;
use tokio::time::timeout;
use urlserver::document::{Candidate, End, Outcome, Report};
use urlserver::index::embedded::IndexError;
use urlserver::index::{Added, Adder, Addition, EmbeddedIndex, IndexEvent, IndexHandle, spawn};
use urlserver::url::Url;

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn dir(path: &Path) -> String {
    format!("dir:{}", path.display())
}

fn addition(n: usize) -> Addition {
    let url = format!("http://h{}.example/a/page/of/some/length/{n}", n % 10);
    Addition { doc: None, url: Url::parse(&url).expect("a URL"), not_before: None }
}

async fn take(index: &mut IndexHandle, n: usize) -> Vec<Candidate> {
    assert!(index.ask(n, vec![]));
    let mut all = Vec::new();
    loop {
        match timeout(DEADLINE, index.event()).await.expect("in time").expect("an index") {
            IndexEvent::Candidates(list) => all.extend(list),
            IndexEvent::Answered { .. } => return all,
            IndexEvent::Claims(_) | IndexEvent::Grown | IndexEvent::Up | IndexEvent::Down => {}
        }
    }
}

/// Lets the index work until `condition` holds.
async fn until(index: &mut IndexHandle, condition: impl Fn(&IndexHandle) -> bool) {
    let work = async {
        while !condition(index) {
            let _ = timeout(Duration::from_millis(5), index.event()).await;
        }
    };
    timeout(DEADLINE, work).await.expect("in time");
}

/// Adds from `first` on until there is no room; how many were accepted.
async fn fill(adder: &Adder, first: usize) -> usize {
    for n in (first..).step_by(100) {
        let added = adder.add((n..n + 100).map(addition).collect()).await.expect("an index");
        let accepted = added.iter().filter(|added| matches!(added, Added::Accepted(_))).count();
        assert!(
            added[..accepted].iter().all(|added| matches!(added, Added::Accepted(_))),
            "all before the others"
        );
        assert!(added[accepted..].iter().all(|added| *added == Added::NoRoom));
        if accepted < 100 {
            return n + accepted;
        }
    }
    unreachable!("there is no end to numbers")
}

/// What holds on a disk of little room, however it is made. Ends with enough room.
async fn no_room(directory: &Path, make_room: impl FnOnce()) {
    let (mut index, adder) = spawn(EmbeddedIndex::open(directory, None).expect("an index"));
    let accepted = fill(&adder, 0).await;
    assert!(accepted >= 100, "{accepted}");
    let errors = index.counters().io_errors.value();
    assert!(errors > 0, "counted");
    assert_eq!(fill(&adder, accepted).await, accepted, "and again");
    let known = adder.add(vec![addition(0)]).await.expect("an index");
    assert_eq!(known, [Added::Duplicate], "nothing of what is known is forgotten");
    let list = take(&mut index, 50).await;
    assert_eq!(list.len(), 50, "what is known is served");
    for candidate in &list {
        index.report(Report { doc: candidate.doc, end: End::Done(Outcome::Status(200)) });
    }
    until(&mut index, |index| index.counters().done.value() == 50).await;
    make_room();
    let more = adder.add((accepted..accepted + 100).map(addition).collect()).await.expect("an index");
    assert!(more.iter().all(|added| matches!(added, Added::Accepted(_))), "there is room again");
    index.close().await;
    drop(adder);
    let mut index = EmbeddedIndex::open(directory, None).expect("nothing is damaged");
    assert_eq!((index.counts().pending, index.counts().done), (accepted as u64 + 50, 50));
    for candidate in list {
        let found = index.find(&candidate.url).expect("readable").expect("known");
        assert!(matches!(found.end, Some((End::Done(Outcome::Status(200)), _))));
    }
    let (mut index, _adder) = spawn(index);
    let mut urls: Vec<_> = take(&mut index, accepted + 100).await.into_iter().map(|one| one.url).collect();
    assert_eq!(urls.len(), accepted + 50);
    urls.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    urls.dedup();
    assert_eq!(urls.len(), accepted + 50);
}

#[tokio::test]
async fn a_full_disk_is_survived() {
    let scratch = scratch();
    let Some(mount) = Mount::new(scratch.path().join("small"), "size=256k") else { return };
    no_room(&mount.0.join("data"), || mount.remount("size=16m")).await;
}

/// The same where nobody may mount anything: files may not grow beyond a limit, which is a process's own.
#[test]
fn files_that_may_not_grow_are_survived() {
    let child = std::env::current_exe().expect("this test");
    let scratch = scratch();
    // Without the trap the system would end the process.
    let script = "trap '' XFSZ; exec \"$0\" --exact limited_files --ignored --nocapture";
    let output =
        Command::new("sh").args(["-c", script]).arg(child).env("EMBEDDED_TEST_DIR", scratch.path()).output();
    let output = output.expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
#[ignore = "run in a process of its own by files_that_may_not_grow_are_survived"]
async fn limited_files() {
    let directory = PathBuf::from(std::env::var_os("EMBEDDED_TEST_DIR").expect("a directory"));
    let (_, most) = rlimit::Resource::FSIZE.get().expect("a limit");
    rlimit::Resource::FSIZE.set(50_001, most).expect("a limit");
    no_room(&directory.join("data"), || rlimit::Resource::FSIZE.set(most, most).expect("a limit")).await;
}

#[test]
fn what_cannot_be_written_to_is_refused_by_name() {
    let scratch = scratch();
    let file = scratch.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let mount = Mount::new(scratch.path().join("fixed"), "size=1m");
    if let Some(mount) = &mount {
        mount.remount("ro");
    }
    let fixed = mount.as_ref().map(|mount| mount.0.join("data"));
    let paths = [file.clone(), file.join("below"), PathBuf::from("/proc/urlserver-data")];
    for path in paths.into_iter().chain(fixed) {
        let (code, out, log) = Setup::new().flag("index", &dir(&path)).fails();
        assert_eq!((code, &*out), (Some(1), ""), "{log}");
        assert!(
            log.contains("cannot open the document index") && log.contains(path.to_str().expect("UTF-8")),
            "{log}"
        );
    }
}

#[test]
fn a_second_server_is_refused_and_so_are_the_tools() {
    let scratch = scratch();
    let server = Setup::new().flag("index", &dir(scratch.path())).start();
    let (code, out, log) = Setup::new().flag("index", &dir(scratch.path())).fails();
    assert_eq!((code, &*out), (Some(1), ""));
    assert!(
        log.contains("in use by another process") && log.contains(scratch.path().to_str().expect("UTF-8")),
        "{log}"
    );
    for action in ["stats", "export", "compact"] {
        let output = tool(&[action], scratch.path());
        assert_eq!(output.status.code(), Some(1), "{action}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("in use by another process"), "{action}");
    }
    server.stop();
    assert_eq!(tool(&["stats"], scratch.path()).status.code(), Some(0));
    Setup::new().flag("index", &dir(scratch.path())).start().stop();
}

fn tool(arguments: &[&str], directory: &Path) -> Output {
    let binary = env!("CARGO_BIN_EXE_urlserver");
    let (action, rest) = arguments.split_first().expect("an action");
    Command::new(binary).arg("index").arg(action).arg(directory).args(rest).output().expect("the binary")
}

/// A closed index with a few documents, some of which have ended.
async fn filled(directory: &Path) {
    let (mut index, adder) = spawn(EmbeddedIndex::open(directory, None).expect("an index"));
    adder.add((0..1_000).map(addition).collect()).await.expect("an index");
    for candidate in take(&mut index, 300).await {
        index.report(Report { doc: candidate.doc, end: End::Done(Outcome::Status(200)) });
    }
    index.close().await;
}

fn file_named(directory: &Path, prefix: &str) -> PathBuf {
    let entries =
        std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    entries.into_iter().find(named).expect("a file")
}

#[tokio::test]
async fn damaged_files_are_refused_with_their_place() {
    for prefix in ["documents-", "ends-"] {
        let scratch = scratch();
        filled(scratch.path()).await;
        let path = file_named(scratch.path(), prefix);
        let whole = std::fs::read(&path).expect("a file");
        for at in [0, 9, 40, whole.len() / 2, whole.len() - 60] {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            std::fs::write(&path, &bytes).expect("a file");
            let error = EmbeddedIndex::open(scratch.path(), None).err().expect("refused");
            let IndexError::Damaged { path: named, offset, .. } = &error else { panic!("{error}") };
            assert!(*named == path && *offset <= at as u64, "{error}");
            assert_eq!(std::fs::read(&path).expect("a file"), bytes, "and not touched");
        }
        let (code, _, log) = Setup::new().flag("index", &dir(scratch.path())).fails();
        assert!(
            code == Some(1) && log.contains("damaged at byte") && log.contains(path.to_str().expect("UTF-8")),
            "{log}"
        );
    }
}

#[tokio::test]
async fn files_of_a_newer_version_are_refused() {
    let scratch = scratch();
    filled(scratch.path()).await;
    let path = file_named(scratch.path(), "documents-");
    let mut bytes = std::fs::read(&path).expect("a file");
    bytes[8] = 2;
    let check = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[..24], 0);
    bytes[24..32].copy_from_slice(&check.to_le_bytes());
    std::fs::write(&path, bytes).expect("a file");
    let (code, _, log) = Setup::new().flag("index", &dir(scratch.path())).fails();
    assert!(
        code == Some(1) && log.contains("format 2") && log.contains(path.to_str().expect("UTF-8")),
        "{log}"
    );
}

#[test]
fn a_restart_offers_what_has_not_ended_and_nothing_else() {
    let scratch = scratch();
    let seeds = ["5 http://127.0.0.1/a", "http://127.0.0.1/b", "http://127.0.0.2/c", "http://127.0.0.3/d"];
    let setup = || Setup::new().flag("index", &dir(scratch.path())).seeds(&seeds);
    let server = setup().start();
    let mut spider = server.spider();
    let work = spider.works(3);
    let first = work.iter().find(|work| work.doc == 5).expect("the first URL");
    spider.done(first, "200");
    let second = spider.work();
    assert_eq!(second.url, "http://127.0.0.1/b");
    server.stop();
    let server = setup().start();
    let mut spider = server.spider();
    let mut again: Vec<_> = spider.works(3).into_iter().map(|work| (work.doc, work.url)).collect();
    again.sort();
    assert_eq!(again.iter().map(|(_, url)| &url[16..]).collect::<Vec<_>>(), ["/b", "/c", "/d"]);
    assert!(again.contains(&(second.doc, second.url)), "under its old name");
    spider.idle(Duration::from_millis(100));
    server.stop();
    let text = String::from_utf8(tool(&["stats"], scratch.path()).stdout).expect("text");
    assert!(
        text.starts_with("documents 4\npending 3\ndone 1\nfailed 0\ndenied 0\nhosts 3\nbytes "),
        "{text}"
    );
}

#[test]
fn a_document_is_not_sent_before_its_time_and_is_waited_for() {
    let scratch = scratch();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
    let later = format!("http://127.0.0.1/later not-before={}", now + 3);
    let server = Setup::new()
        .flag("index", &dir(scratch.path()))
        .flag("exit-when-done", "true")
        .seeds(&[&later, "http://127.0.0.1/now"])
        .start();
    let mut spider = server.spider();
    assert!(spider.fetch(1, "200")[0].url.ends_with("/now"));
    let work = spider.work();
    assert!(work.url.ends_with("/later"));
    let sent = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
    assert!(sent >= now + 3, "{sent} {now}");
    spider.done(&work, "200");
    assert_eq!(server.end(DEADLINE).code, Some(0));
}

#[test]
fn the_tools_write_out_what_they_read() {
    let scratch = scratch();
    let lines = "3 http://a.example/ done 200 1000\n4 http://a.example/x pending\n";
    let file = scratch.path().join("lines");
    std::fs::write(&file, format!("{lines}nonsense\n")).expect("a file");
    let data = scratch.path().join("data");
    let output = tool(&["import", file.to_str().expect("UTF-8")], &data);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "accepted 2\nduplicate 0\nrejected 1\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("lines:3: "));
    assert_eq!(String::from_utf8_lossy(&tool(&["export"], &data).stdout), lines);
    assert_eq!(tool(&["compact"], &data).status.code(), Some(0));
    assert_eq!(
        String::from_utf8_lossy(&tool(&["export"], &data).stdout),
        "# 3 done 200 1000\n4 http://a.example/x pending\n"
    );
    assert_eq!(tool(&["stats"], &scratch.path().join("none")).status.code(), Some(1));
}
