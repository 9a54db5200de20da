//! The spider protocol over real sockets: what spiders say, what they do not say, and how they end.

mod support;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use support::lines::{Came, DEADLINE, Door, Lines};
use support::server::{Server, Setup};
use support::spider::{Spider, Work};

/// Long enough to see what comes at once, where nothing should.
const QUIET: Duration = Duration::from_millis(150);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// `count` pages of one host.
fn pages(host: &str, count: usize) -> Vec<String> {
    (0..count).map(|page| format!("http://{host}/{page}")).collect()
}

/// One page of each of `count` hosts, each with an address of its own.
fn hosts(count: usize) -> Vec<String> {
    (0..count).map(|host| format!("http://127.1.{}.{}/", host / 250, host % 250 + 1)).collect()
}

fn seeded(urls: &[String]) -> Setup {
    Setup::new().seeds(&urls.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A server without documents, and a spider that is not given any.
fn without_work() -> (Server, Spider) {
    let server = Setup::new().start();
    let spider = server.spider();
    (server, spider)
}

fn urls(works: &[Work]) -> BTreeSet<String> {
    works.iter().map(|work| work.url.clone()).collect()
}

#[test]
fn the_first_bytes_are_work_and_work_has_four_words() {
    let server = Setup::new()
        .seeds(&[
            "17 HTTP://WWW.Example.COM.:80/a/../b c#d",
            "http://[::1]:8080/x?y#z",
            "18 https://127.0.0.9",
        ])
        .hosts(&["127.0.0.5 www.example.com"])
        .start();
    let mut spider = server.spider();
    let mut works = spider.works(2);
    works.sort_by_key(|work| work.ip);
    assert_eq!((works[0].doc, &*works[0].url), (18, "https://127.0.0.9/"));
    assert_eq!((works[1].ip.to_string(), &*works[1].url), ("::1".into(), "http://[::1]:8080/x?y"));
    assert_eq!(server.stat("in_flight"), 2, "a URL with a space is no seed");
}

#[test]
fn names_are_normalised_and_doc_ids_kept() {
    let server = Setup::new()
        .seeds(&["18446744073709551615 HTTP://WWW.Example.COM.:80/a/../b%20c#d"])
        .hosts(&["127.0.0.5 www.example.com"])
        .start();
    let work = server.spider().work();
    assert_eq!((work.doc, work.ip.to_string()), (u64::MAX, "127.0.0.5".into()));
    assert_eq!(work.url, "http://www.example.com./b%20c");
}

#[test]
fn statuses_are_understood_in_both_orders_with_cr_and_with_odd_words() {
    let server = seeded(&pages("127.0.0.1", 9)).start();
    let mut spider = server.spider();
    let forms: [fn(u64) -> String; 9] = [
        |id| format!("{id} DONE\n"),
        |id| format!("DONE {id}\n"),
        |id| format!("{id} DONE 200\r\n"),
        |id| format!("DONE {id} 404 size=3 nonsense more=1\r\n"),
        |id| format!("{id} WORKING\r\n\n\r\nWORKING {id} whatever\n{id} DONE 301\n"),
        |id| format!("  {id}   DONE   200  \n"),
        |id| format!("{id} DONE retry-after=soon 200\n"),
        |id| format!("000{id} DONE 999\n"),
        |id| format!("\n\n\n{id} DONE something-new\n"),
    ];
    for form in forms {
        let work = spider.work();
        spider.say(form(work.trans));
    }
    server.until_stat("done", 9);
    let stats = server.stats();
    assert_eq!((stats["stale_status"].as_u64(), stats["malformed_lines"].as_u64()), (Some(0), Some(0)));
    spider.silence(QUIET);
}

#[test]
fn lines_that_make_no_sense_are_answered_and_change_nothing() {
    let server = seeded(&pages("127.0.0.1", 2)).start();
    let mut spider = server.spider();
    let work = spider.work();
    let id = work.trans;
    let long = "x".repeat(16 * 1024 + 1);
    let bad = [
        format!("{id} done\n"),
        format!("done {id}\n"),
        format!("+{id} DONE\n"),
        format!("DONE +{id}\n"),
        format!("-{id} DONE\n"),
        format!("{id}.0 DONE\n"),
        "DONE\n".into(),
        "WORKING x\n".into(),
        "18446744073709551616 DONE\n".into(),
        "GET\n".into(),
        "GET +1\n".into(),
        "GET 1 2\n".into(),
        "get 1\n".into(),
        "GET -1\n".into(),
        "ADD\n".into(),
        "ADD nonsense\n".into(),
        "ADD ftp://127.0.0.2/\n".into(),
        "ADD http://127.0.0.2/ http://127.0.0.3/\n".into(),
        "ADD http://\n".into(),
        "add http://127.0.0.2/\n".into(),
        format!("{id} DONE\u{e5}\n"),
        format!("{long}\n"),
        format!("{long}{long}{long}\r\n"),
        "HTTP/1.1 200 OK\n".into(),
    ];
    for line in &bad {
        spider.say(line);
        spider.error();
    }
    // A line of just the limit is read, and a CR does not count.
    for end in ["\n", "\r\n"] {
        spider.say(format!("7 DONE {}{end}", "x".repeat(16 * 1024 - 7)));
    }
    spider.sync();
    let stats = server.stats();
    assert_eq!(stats["malformed_lines"].as_u64(), Some(bad.len() as u64 + 1));
    assert_eq!(stats["stale_status"].as_u64(), Some(2));
    assert_eq!((stats["in_flight"].as_u64(), stats["sent"].as_u64()), (Some(1), Some(1)));
    spider.done(&work, "200");
    assert_ne!(spider.work(), work);
}

#[test]
fn a_hundred_bad_lines_in_a_row_close_the_connection_and_not_one_less() {
    let (_server, mut spider) = without_work();
    for _ in 0..3 {
        spider.say("what\n".repeat(99) + "\n\nGET 0\n");
        (0..99).for_each(|_| drop(spider.error()));
    }
    // Good and bad lines in one write, and empty ones between that do not count.
    spider.say("what\n\n".repeat(99) + "1 DONE\n" + &"what\r\n\r\n".repeat(100));
    let errors = spider.rest();
    assert_eq!(errors.len(), 199);
    assert!(errors.iter().all(|line| line.starts_with("ERROR ")));
}

#[test]
fn what_was_said_before_too_much_nonsense_still_counts() {
    let server = seeded(&["http://127.0.0.1/".into()]).start();
    let mut spider = server.spider();
    let work = spider.work();
    let said = format!("ADD http://127.0.0.2/found\n{} DONE 200\n", work.trans);
    spider.say(said + &"nonsense\n".repeat(100));
    spider.rest();
    let mut next = server.spider();
    assert_eq!(next.work().url, "http://127.0.0.2/found");
    assert_eq!(server.stat("done"), 1);
}

#[test]
fn bytes_may_come_one_by_one() {
    let server = seeded(&pages("127.0.0.1", 2)).start();
    let mut spider = server.spider();
    let work = spider.work();
    for byte in format!("{} DONE 200\r\nADD http://127.0.0.2/\r\n", work.trans).bytes() {
        spider.say([byte]);
    }
    assert_eq!(spider.works(2).len(), 2);
}

#[test]
fn megabytes_without_an_end_are_one_bad_line() {
    let (server, mut spider) = without_work();
    let before = server.memory_kib();
    let megabyte = vec![b'x'; 1 << 20];
    (0..24).for_each(|_| spider.say(&megabyte));
    spider.say("\n");
    spider.error();
    spider.sync();
    assert_eq!(server.stat("malformed_lines"), 2);
    let growth = server.memory_kib().saturating_sub(before);
    assert!(growth < 8 * 1024, "{growth} KiB more after 24 MiB of nothing");
}

#[test]
fn stale_statuses_change_nothing_and_delay_nobody() {
    let server = seeded(&pages("127.0.0.1", 30)).start();
    let mut spider = server.spider();
    let work = spider.work();
    let mut noisy = server.spider();
    let invented: String = (0..10_000).map(|n| format!("{} DONE 200\n", n * 7_919)).collect();
    noisy.say(&invented);
    // Another connection's TRANS_ID is as stale as an invented one.
    noisy.say(format!("{0} DONE\n{0} WORKING\n", work.trans));
    spider.done(&work, "200");
    spider.done(&work, "200");
    spider.fetch(29, "200");
    server.until_stat("stale_status", 10_003);
    server.until_stat("done", 30);
    assert_eq!((server.stat("in_flight"), server.stat("retried")), (0, 0));
}

#[test]
fn a_flood_does_not_keep_others_from_being_served() {
    let (server, mut index, _door) = Setup::new().flag("queue-count", "3").start_with_index();
    let mut noisy = server.spider();
    noisy.say("GET 0\n");
    noisy.sync();
    let mut good = server.spider();
    let flood = std::thread::spawn(move || {
        let lines = "1234567 DONE 200\n".repeat(60_000);
        while noisy.try_say(&lines).is_ok() {}
    });
    // Every round needs the index, its reports, and the spider, while the flood goes on.
    for round in 0..20 {
        index.offer(&[&format!("{round} http://127.0.0.1/{round}")]);
        let work = good.work();
        assert_eq!(work.doc, round);
        good.done(&work, "200");
    }
    for round in 0..20 {
        assert_eq!(index.report(), format!("{round} DONE 200"));
    }
    assert!(server.stat("stale_status") > 0);
    // The flood is no reason not to stop, either.
    index.stream.shutdown(Shutdown::Both).expect("a connection");
    server.stop();
    flood.join().expect("no panic");
}

#[test]
fn half_a_connection_is_none_and_its_work_goes_to_another() {
    let server = seeded(&pages("127.0.0.1", 1)).start();
    let mut first = server.spider();
    let work = first.work();
    let mut second = server.spider();
    // Half a line counts for nothing.
    first.say(format!("{} DONE", work.trans));
    first.stream.shutdown(Shutdown::Write).expect("a connection");
    first.end();
    let again = second.work();
    assert_eq!((again.doc, &again.url), (work.doc, &work.url));
    assert_ne!(again.trans, work.trans);
    second.say(format!("{} DONE\n{} DONE\n", work.trans, again.trans));
    server.until_stat("done", 1);
    let stats = server.stats();
    assert_eq!((stats["stale_status"].as_u64(), stats["retried"].as_u64()), (Some(1), Some(1)));
}

#[test]
fn a_status_before_the_end_of_the_connection_counts() {
    let server = seeded(&pages("127.0.0.1", 2)).start();
    let mut spider = server.spider();
    let work = spider.work();
    spider.done(&work, "200");
    drop(spider);
    server.until_stat("done", 1);
    assert_ne!(server.spider().work().url, work.url);
}

#[test]
fn a_reconnect_gets_all_that_was_in_flight_first_and_inside_the_gap() {
    let gap = ms(300);
    let server = seeded(&pages("127.0.0.1", 6))
        .flag("req-host-concurrent", "3")
        .flag("req-host-per-sec", "3.3333333")
        .flag("max-attempts", "0")
        .start();
    let start = Instant::now();
    let mut spider = server.spider();
    let before = spider.works(3);
    assert!(start.elapsed() >= 2 * gap, "{:?}", start.elapsed());
    let third = Instant::now();
    drop(spider);
    let mut spider = server.spider();
    let after = spider.works(3);
    let docs = |works: &[Work]| works.iter().map(|work| work.doc).collect::<Vec<_>>();
    assert_eq!(docs(&after), docs(&before), "the same, in the same order, before the others");
    // The first connection's third line was written before `third`, three gaps after `start` at the earliest.
    assert!(start.elapsed() >= 5 * gap, "{:?}", start.elapsed());
    assert!(third.elapsed() >= 2 * gap, "{:?}", third.elapsed());
    for work in &after {
        spider.done(work, "");
    }
    assert!(!docs(&before).contains(&spider.work().doc));
}

#[test]
fn a_document_that_crashes_its_spiders_is_poison() {
    let (server, mut index, _door) = Setup::new().flag("max-attempts", "3").start_with_index();
    index.offer(&["1 http://127.0.0.1/poison", "2 http://127.0.0.1/fine"]);
    for _ in 0..3 {
        assert_eq!(server.spider().work().doc, 1);
    }
    let mut spider = server.spider();
    assert_eq!(spider.work().doc, 2);
    assert_eq!(index.report(), "1 FAILED poison");
    // A loss that is not the only reason.
    spider.say("DONE 0\n");
    drop(spider);
    let mut spider = server.spider();
    let work = spider.work();
    spider.done(&work, "500");
    drop(spider);
    server.until_stat("retried", 4);
}

#[test]
fn silence_takes_a_url_back_and_gives_it_to_another_after_the_retry_delay() {
    let (timeout, retry) = (ms(400), ms(300));
    let server = seeded(&pages("127.0.0.1", 1))
        .flag("timeout-spider-status", "0.4")
        .flag("retry-delay", "0.3")
        .start();
    let start = Instant::now();
    let mut silent = server.spider();
    let first = silent.work();
    let mut other = server.spider();
    let second = other.work();
    assert!(start.elapsed() >= timeout + retry, "{:?}", start.elapsed());
    assert_eq!(second.doc, first.doc);
    // Too late, and of no use any more.
    silent.done(&first, "200");
    server.until_stat("stale_status", 1);
    assert_eq!((server.stat("expired"), server.stat("done")), (1, 0));
    other.done(&second, "200");
    server.until_stat("done", 1);
}

#[test]
fn a_spider_that_hangs_does_not_take_the_address_down() {
    let server = seeded(&pages("127.0.0.1", 8))
        .flag("timeout-spider-status", "0.3")
        .flag("retry-delay", "0.05")
        .flag("req-host-concurrent", "4")
        .start();
    let mut silent = server.spider();
    assert_eq!(silent.works(4).len(), 4);
    let mut other = server.spider();
    server.until_stat("expired", 4);
    let mut docs = HashSet::new();
    while docs.len() < 8 {
        let work = other.work();
        other.done(&work, "200");
        docs.insert(work.doc);
    }
    assert_eq!(server.stat("addresses_down"), 0);
}

#[test]
fn a_document_nobody_says_anything_of_fails_in_the_end() {
    let (server, mut index, _door) = Setup::new()
        .flag("timeout-spider-status", "0.2")
        .flag("retry-delay", "0.05")
        .flag("max-attempts", "2")
        .start_with_index();
    index.offer(&["5 http://127.0.0.1/"]);
    let mut spider = server.spider();
    assert_ne!(spider.work().trans, spider.work().trans);
    assert_eq!(index.report(), "5 FAILED expired");
}

#[test]
fn working_keeps_a_url_but_not_for_ever() {
    let server = seeded(&pages("127.0.0.1", 1))
        .flag("timeout-spider-status", "1")
        .flag("lease-max", "2.5")
        .flag("retry-delay", "0")
        .start();
    let start = Instant::now();
    let mut spider = server.spider();
    let work = spider.work();
    // Said far more often than needed, so that a slow machine does not make it too seldom.
    let again = loop {
        spider.say(format!("{} WORKING\n", work.trans));
        if let Some(again) = spider.work_within(ms(50)) {
            break again;
        }
    };
    assert!(start.elapsed() >= ms(2500), "{:?}", start.elapsed());
    assert_eq!(again.doc, work.doc);
    spider.done(&again, "200");
    server.until_stat("done", 1);
    assert_eq!(server.stat("expired"), 1);
}

#[test]
fn a_status_received_in_time_counts_however_late_it_is_looked_at() {
    let server = seeded(&hosts(3)).flag("timeout-spider-status", "1").start();
    let mut spider = server.spider();
    let works = spider.works(3);
    server.signal("STOP");
    // Much has to be read before the status that counts.
    spider.say("GET 0\n\n".repeat(40_000));
    works.iter().for_each(|work| spider.done(work, "200"));
    spider.silence(ms(1500));
    server.signal("CONT");
    server.until_stat("done", 3);
    assert_eq!((server.stat("expired"), server.stat("stale_status")), (0, 0));
}

#[test]
fn credit_is_used_line_by_line() {
    let server = Setup::new().start();
    let mut spider = server.spider();
    spider.say("GET 2\nGET 1\n");
    spider.sync();
    spider.say(hosts(10).iter().map(|url| format!("ADD {url}\n")).collect::<String>());
    let works = spider.works(3);
    spider.idle(QUIET);
    // A status gives nothing back.
    works.iter().for_each(|work| spider.done(work, "200"));
    server.until_stat("done", 3);
    spider.idle(QUIET);
    spider.say("GET 4\n");
    assert_eq!(spider.works(4).len(), 4);
    spider.idle(QUIET);
    spider.say("GET 18446744073709551615\nGET 18446744073709551615\n");
    assert_eq!(spider.works(3).len(), 3);
}

#[test]
fn a_window_holds_per_connection() {
    let server = seeded(&hosts(8)).flag("spider-window", "2").start();
    let (mut one, mut two) = (server.spider(), server.spider());
    let works = one.works(2);
    two.works(2);
    one.idle(QUIET);
    two.idle(ms(1));
    one.done(&works[0], "200");
    one.work();
    one.idle(QUIET);
    assert_eq!(server.stat("in_flight"), 4);
}

#[test]
fn work_is_spread_and_a_host_stays_with_its_spider() {
    let server = Setup::new().start();
    let mut spiders = [server.spider(), server.spider(), server.spider()];
    server.until_stat("spiders", 3);
    let urls: Vec<String> =
        (1..=9).flat_map(|host| (0..4).map(move |page| format!("http://127.2.0.{host}/{page}"))).collect();
    spiders[0].say(urls.iter().map(|url| format!("ADD {url}\n")).collect::<String>());
    let mut homes: HashMap<String, usize> = HashMap::new();
    for round in 0..4 {
        for (number, spider) in spiders.iter_mut().enumerate() {
            for work in spider.works(3) {
                let home = *homes.entry(work.host().to_owned()).or_insert(number);
                assert_eq!(home, number, "{} in round {round}", work.host());
                spider.done(&work, "200");
            }
        }
    }
    server.until_stat("done", 36);
}

#[test]
fn a_spider_that_never_reads_stops_nobody_and_loses_nothing() {
    let long = "x".repeat(8_000);
    let urls: Vec<String> = (0..3_000)
        .map(|page| format!("http://127.3.{}.{}/{page}-{long}", page % 30, page % 200 + 1))
        .collect();
    let server = seeded(&urls)
        .flag("req-host-concurrent", "100")
        .flag("timeout-spider-status", "2")
        .flag("retry-delay", "0.05")
        .flag("max-attempts", "0")
        .start();
    let deaf = small_window(server.listen());
    let mut other = server.spider();
    let first = other.work();
    let sockets = server.open_sockets();
    other.done(&first, "200");
    let mut docs = HashSet::from([first.doc]);
    let mut most = 0;
    while docs.len() < 3_000 {
        let work = other.work();
        other.done(&work, "200");
        docs.insert(work.doc);
        if docs.len() % 500 == 0 {
            most = most.max(server.memory_kib());
        }
    }
    assert!(most < 250 * 1024, "{most} KiB");
    // It is closed in the end, and really so: its socket is not kept.
    server.until_stat("spiders", 1);
    let end = Instant::now() + DEADLINE;
    while server.open_sockets() >= sockets {
        assert!(Instant::now() < end, "{} open sockets, {sockets} before", server.open_sockets());
        std::thread::sleep(ms(10));
    }
    drop(deaf);
    server.until_stat("in_flight", 0);
    assert_eq!((server.stat("done"), server.stat("failed")), (3_000, 0));
}

/// A connection whose other end can hardly send anything until it is read.
fn small_window(address: std::net::SocketAddr) -> std::net::TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(1024).expect("a socket");
        socket.connect(address).await.expect("a connection").into_std().expect("a socket")
    })
}

#[test]
fn lines_that_were_not_written_are_no_attempts() {
    let long = "x".repeat(15_000);
    let urls: Vec<String> = (0..1_000).map(|page| format!("http://127.4.0.1/{page}-{long}")).collect();
    let server = seeded(&urls)
        .flag("req-host-concurrent", "1000")
        .flag("queue-len", "1000")
        .flag("max-attempts", "1")
        .start();
    let deaf = small_window(server.listen());
    server.until_stat("spiders", 1);
    let end = Instant::now() + DEADLINE;
    while server.stat("in_flight") == 0 {
        assert!(Instant::now() < end);
    }
    let sent = server.stat("sent");
    assert!(sent < 1_000, "{sent} of 15 MB fit into no buffer");
    drop(deaf);
    server.until_stat("spiders", 0);
    // What it may have seen has had its one chance; what it cannot have seen has not.
    let mut spider = server.spider();
    let failed = server.stat("failed");
    assert!(failed < sent, "{failed} of {sent}");
    spider.fetch(1_000 - failed as usize, "200");
    server.until_stat("done", 1_000 - failed);
}

#[test]
fn a_token_is_asked_for_and_nothing_is_sent_before_it() {
    let server = seeded(&pages("127.0.0.1", 3)).flag("spider-token", "open-sesame").start();
    for first in
        ["AUTH wrong\n", "GET 1\n", "AUTH\n", "1 DONE\n", "auth open-sesame\n", "AUTH open-sesame2\n"]
    {
        let mut spider = server.spider();
        spider.say(first);
        assert_eq!(spider.rest(), [""; 0], "{first:?}");
    }
    let mut spider = server.spider();
    spider.idle(QUIET);
    assert_eq!(server.stat("sent"), 0);
    // Late is early enough, byte by byte is one line, and what follows is read.
    "AUTH open-ses".bytes().for_each(|byte| spider.say([byte]));
    spider.idle(QUIET);
    spider.say("ame\r\nADD http://127.0.0.2/\n");
    assert_eq!(urls(&spider.works(2)).len(), 2);
    let mut spider = server.spider();
    spider.say(vec![b'A'; 40_000]);
    assert_eq!(spider.rest(), [""; 0], "no line is read to its end in vain");
}

#[test]
fn a_token_of_no_use_is_no_error() {
    let (_server, mut spider) = without_work();
    spider.say("AUTH whatever\n");
    spider.sync();
}

#[test]
fn a_spider_that_listens_is_dialled_and_dialled_again() {
    let door = Door::open();
    let port = door.address().port().to_string();
    let setup = seeded(&hosts(2)).flag("spider-host", "127.0.0.1").flag("spider-port", &port);
    let server = setup.flag("listen", "none").start();
    assert!(!server.has_listener());
    let works = Spider(door.accept()).works(2);
    let mut spider = Spider(door.accept());
    assert_eq!(urls(&spider.works(2)), urls(&works), "the first connection has ended");
    spider.say("ADD http://127.0.0.77/\n");
    spider.work();
    assert_eq!(server.stat("spiders"), 1);
}

#[test]
fn listening_goes_on_beside_dialling_a_spider_that_is_not_there_yet() {
    let door = Door::open();
    let address = door.address();
    drop(door);
    let server = seeded(&hosts(6))
        .flag("spider-host", "localhost")
        .flag("spider-port", &address.port().to_string())
        .flag("spider-window", "3")
        .start();
    let mut listening = server.spider();
    assert_eq!(listening.works(3).len(), 3);
    let door = Door::at(address);
    assert_eq!(Spider(door.accept()).works(3).len(), 3);
}

#[test]
fn garbage_of_all_kinds_leaves_the_server_well_and_small() {
    let server = seeded(&pages("127.0.0.1", 3)).start();
    let before = server.memory_kib();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random.to_le_bytes()
    };
    for round in 0..40 {
        let mut garbage: Vec<u8> = (0..16_384).flat_map(|_| noise()).collect();
        if round % 2 == 0 {
            garbage.retain(|byte| *byte != b'\n');
        }
        let mut line = Lines::connect(server.listen());
        let _ = line.try_say(&garbage);
        while let Came::Line(_) = line.within(ms(1)) {}
    }
    let growth = server.memory_kib().saturating_sub(before);
    assert!(growth < 16 * 1024, "{growth} KiB more");
    server.until_stat("spiders", 0);
    let mut spider = server.spider();
    let mut docs = HashSet::new();
    while server.stat("done") + server.stat("failed") < 3 {
        if let Some(work) = spider.work_within(QUIET) {
            spider.done(&work, "200");
            docs.insert(work.doc);
        }
    }
}
