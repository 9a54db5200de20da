//! The document index protocol, names and addresses, and politeness by the real clock.

#[path = "support/dns.rs"]
mod dns;
mod support;

use dns::{DnsServer, Reply};
use std::time::{Duration, Instant, SystemTime};
use support::lines::{DEADLINE, Door};
use support::scripted_index::{Index, Request};
use support::server::Setup;

const QUIET: Duration = Duration::from_millis(150);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn request(count: usize, reject: &[&str]) -> Request {
    Request { count, reject: reject.iter().map(|host| (*host).to_owned()).collect() }
}

#[test]
fn outcomes_become_reports() {
    let (server, mut index, _door) =
        Setup::new().flag("max-attempts", "1").flag("fail-threshold", "100").start_with_index();
    let said = [
        ("", "DONE"),
        ("200", "DONE 200"),
        ("204 size=0", "DONE 204"),
        ("304", "DONE 304"),
        ("404", "DONE 404"),
        ("410 retry-after=1", "DONE 410"),
        ("408", "FAILED 408"),
        ("429 retry-after=0", "FAILED 429"),
        ("500", "FAILED 500"),
        ("503 retry-after=0", "FAILED 503"),
        ("connect-failed", "FAILED connect-failed"),
        ("timeout", "FAILED timeout"),
        ("tls-failed", "FAILED tls-failed"),
        ("dns-failed", "FAILED dns-failed"),
        ("aborted", "FAILED aborted"),
        ("unheard-of", "DONE"),
    ];
    let candidates: Vec<String> =
        (0..said.len()).map(|doc| format!("{doc} http://127.5.0.{}/", doc + 1)).collect();
    index.offer(&candidates.iter().map(String::as_str).collect::<Vec<_>>());
    let mut spider = server.spider();
    for _ in &said {
        let work = spider.work();
        spider.done(&work, said[work.doc as usize].0);
    }
    let mut expected: Vec<String> =
        said.iter().enumerate().map(|(doc, (_, report))| format!("{doc} {report}")).collect();
    expected.sort();
    assert_eq!(index.reports(said.len()), expected);
    index.no_report(QUIET);
    let stats = server.stats();
    assert_eq!((stats["done"].as_u64(), stats["failed"].as_u64()), (Some(7), Some(9)));
}

#[test]
fn failures_that_may_pass_are_tried_again_later_and_later() {
    let (server, mut index, _door) =
        Setup::new().flag("max-attempts", "3").flag("retry-delay", "0.25").start_with_index();
    index.offer(&["1 http://127.0.0.1/a", "2 http://127.0.0.1/b"]);
    let mut spider = server.spider();
    let first = spider.work();
    let failed = Instant::now();
    spider.done(&first, "500");
    // While it waits, its host's other URLs may go.
    let other = spider.work();
    assert_eq!((first.doc, other.doc), (1, 2));
    spider.done(&other, "200");
    assert_eq!(index.report(), "2 DONE 200");
    let second = spider.work();
    assert!(failed.elapsed() >= ms(250), "{:?}", failed.elapsed());
    assert_eq!(second.doc, 1);
    let failed = Instant::now();
    spider.done(&second, "aborted");
    let third = spider.work();
    assert!(failed.elapsed() >= ms(500), "{:?}", failed.elapsed());
    spider.done(&third, "502");
    assert_eq!(index.report(), "1 FAILED 502");
    assert_eq!(server.stat("retried"), 2);
}

#[test]
fn a_host_that_asks_to_be_left_alone_is_and_others_on_its_address_are_not() {
    let (server, mut index, _door) = Setup::new().start_with_index();
    let held = "retry-after=1";
    index.offer(&[
        "1 http://a.example/1 ip=127.0.0.1",
        "2 http://a.example/2 ip=127.0.0.1",
        "3 http://b.example/ ip=127.0.0.1",
    ]);
    let mut spider = server.spider();
    let work = spider.work();
    assert_eq!(work.host(), "a.example");
    let said = Instant::now();
    spider.done(&work, &format!("503 {held}"));
    let work = spider.work();
    assert_eq!(work.host(), "b.example");
    spider.done(&work, "200");
    assert_eq!(spider.work().host(), "a.example");
    assert!(said.elapsed() >= ms(1000), "{:?}", said.elapsed());
}

#[test]
fn requests_come_one_at_a_time_while_a_slot_is_empty() {
    let (server, mut index, _door) =
        Setup::new().flag("queue-count", "2").flag("queue-len", "2").start_with_index();
    assert_eq!(index.request(), request(4, &[]));
    // No second request before the first is answered, whatever happens.
    index.say("1 http://127.0.0.1/1\n");
    let mut spider = server.spider();
    let first = spider.work();
    index.silence(QUIET);
    index.say("2 http://127.0.0.1/2\nEND\n");
    // One slot is empty, and the other is full.
    assert_eq!(index.request(), request(2, &["127.0.0.1"]));
    index.give(&["3 http://127.0.0.2/"]);
    let second = spider.work();
    index.silence(QUIET);
    spider.done(&second, "200");
    assert_eq!(index.line(), "3 DONE 200");
    assert_eq!(index.request(), request(2, &["127.0.0.1"]));
    spider.done(&first, "200");
    let third = spider.work();
    spider.done(&third, "200");
    index.give(&[]);
    assert_eq!(index.reports(2), ["1 DONE 200", "2 DONE 200"]);
}

#[test]
fn empty_answers_are_not_asked_for_again_at_once() {
    let (server, mut index, _door) = Setup::new().start_with_index();
    index.offer(&[]);
    let start = Instant::now();
    index.offer(&[]);
    assert!(start.elapsed() >= ms(950), "{:?}", start.elapsed());
    let start = Instant::now();
    index.offer(&["1 http://127.0.0.1/"]);
    assert!(start.elapsed() >= ms(1950), "{:?}", start.elapsed());
    // Something of use: no more reason to wait.
    index.request();
    drop(server);
}

#[test]
fn the_reject_list_names_full_hosts_and_crowded_addresses_sorted_and_once() {
    let (server, mut index, _door) = Setup::new()
        .flag("queue-len", "3")
        .flag("queue-count", "100")
        .flag("ip-max-urls", "3")
        .start_with_index();
    assert_eq!(index.request().reject, [""; 0]);
    index.give(&[
        "1 http://z-full.example/1 ip=127.0.0.1",
        "2 https://z-full.example/2 ip=127.0.0.1",
        "3 http://z-full.example:8080/3 ip=127.0.0.1",
        "4 http://crowd.example/ ip=127.0.0.2",
        "5 http://b.crowd.example/ ip=127.0.0.2",
        "6 http://a.crowd.example/1 ip=127.0.0.2",
        "7 http://a.crowd.example/2 ip=127.0.0.2",
        "8 http://fine.example/1 ip=127.0.0.3",
        "9 http://fine.example/2 ip=127.0.0.3",
        "10 http://m-full.example/1 ip=127.0.0.4",
        "11 http://m-full.example/2 ip=127.0.0.4",
        "12 http://m-full.example/3 ip=127.0.0.4",
        "13 http://m-full.example/4 ip=127.0.0.4",
    ]);
    let all = ["a.crowd.example", "b.crowd.example", "crowd.example", "m-full.example", "z-full.example"];
    assert_eq!(index.request().reject, all);
    index.give(&[]);
    // Neither full nor crowded any more.
    let mut spider = server.spider();
    let works = spider.works(4);
    for work in &works {
        if work.host() != "fine.example" {
            spider.done(work, "200");
        }
    }
    server.until_stat("done", 3);
    let mut last = index.request().reject;
    while last != ["m-full.example"] {
        index.give(&[]);
        last = index.request().reject;
    }
}

#[test]
fn an_address_that_is_down_is_left_alone_and_its_hosts_are_rejected() {
    let (server, mut index, _door) = Setup::new()
        .flag("queue-count", "2")
        .flag("fail-threshold", "2")
        .flag("fail-window", "1.5")
        .flag("retry-delay", "0.05")
        .flag("max-attempts", "0")
        .start_with_index();
    index.offer(&["1 http://127.0.0.1/", "2 http://127.0.0.2/"]);
    let mut spider = server.spider();
    let mut works = spider.works(2);
    works.sort_by_key(|work| work.doc);
    spider.done(&works[0], "timeout");
    let again = spider.work();
    let said = Instant::now();
    spider.done(&again, "connect-failed");
    server.until_stat("addresses_down", 1);
    spider.done(&works[1], "200");
    assert_eq!(index.request().reject, ["127.0.0.1"]);
    index.give(&["3 http://127.0.0.2/"]);
    assert_eq!(spider.work().doc, 3);
    let back = spider.work();
    assert_eq!(back.doc, 1);
    assert!(said.elapsed() >= ms(1500), "{:?}", said.elapsed());
    assert_eq!(server.stat("addresses_down"), 1);
    spider.done(&back, "200");
}

#[test]
fn reports_are_made_once_and_repeated_only_after_a_lost_connection() {
    let (server, mut index, door) = Setup::new().start_with_index();
    index.offer(&["1 http://127.0.0.1/", "2 http://127.0.0.2/", "3 http://127.0.0.3/"]);
    let mut spider = server.spider();
    let mut works = spider.works(3);
    works.sort_by_key(|work| work.doc);
    spider.done(&works[0], "200");
    assert_eq!(index.report(), "1 DONE 200");
    // The END of a request made after it confirms it.
    index.offer(&[]);
    spider.done(&works[1], "404");
    assert_eq!(index.report(), "2 DONE 404");
    drop(index);
    // Said while nobody hears it.
    spider.done(&works[2], "500");
    spider.say("ADD http://127.0.0.4/found\n");
    let mut index = Index::accept(&door);
    assert_eq!(index.report(), "2 DONE 404", "not confirmed, so said again, before anything else");
    assert_eq!(index.report(), "ADD http://127.0.0.4/found");
    // A document that is still pending is no second document.
    index.offer(&["3 http://127.0.0.3/"]);
    let again = spider.work();
    assert_eq!(again.doc, 3);
    spider.done(&again, "200");
    assert_eq!(index.report(), "3 DONE 200");
    index.no_report(QUIET);
    let stats = server.stats();
    assert_eq!((stats["done"].as_u64(), stats["duplicate_candidates"].as_u64()), (Some(3), Some(1)));
}

#[test]
fn an_index_that_breaks_the_rules_is_survived() {
    let (server, mut index, _door) =
        Setup::new().flag("queue-count", "1").flag("queue-len", "4").start_with_index();
    assert_eq!(index.request().count, 4);
    index.say("1 http://127.0.0.1/1\n1 http://127.0.0.1/1\n\n\r\nwhat is this\nTHE END\n");
    index.say("x http://127.0.0.1/\n2\n3 ftp://127.0.0.1/\n4 http://\n");
    index.say([&b"5 http://\xff\xfe/\n"[..], &vec![b'x'; 100_000], b"\n"].concat());
    index.say("6 http://127.0.0.1/2 ip=nonsense colour=red not-before=never\n");
    index.say("7 http://127.0.0.1/3\n8 http://127.0.0.2/\n9 http://127.0.0.3/\nEND\n");
    // The only slot is taken: nobody has asked for this.
    index.say("END\n77 http://127.0.0.7/unasked-for\n");
    let mut failed: Vec<String> = (0..7).map(|_| index.line()).collect();
    failed.sort();
    let bad = ["2 FAILED bad-url", "3 FAILED bad-url", "4 FAILED bad-url", "5 FAILED bad-url"];
    let surplus = ["77 FAILED surplus", "8 FAILED surplus", "9 FAILED surplus"];
    assert_eq!(failed, [&bad[..], &surplus].concat());
    let mut spider = server.spider();
    let mut docs = Vec::new();
    for _ in 0..3 {
        let work = spider.work();
        docs.push(work.doc);
        spider.done(&work, "200");
    }
    docs.sort_unstable();
    // The duplicate took its place among the four that were asked for.
    assert_eq!(docs, [1, 6, 7]);
    assert_eq!(index.reports(3), ["1 DONE 200", "6 DONE 200", "7 DONE 200"]);
    index.no_report(QUIET);
}

#[test]
fn candidates_of_rejected_hosts_break_no_limit() {
    let (server, mut index, _door) = Setup::new().flag("queue-len", "1").start_with_index();
    index.offer(&["1 http://127.0.0.1/1"]);
    assert_eq!(index.request().reject, ["127.0.0.1"]);
    index.give(&["2 http://127.0.0.1/2", "3 http://127.0.0.1/3"]);
    let mut spider = server.spider();
    for doc in 1..=3 {
        let work = spider.work();
        assert_eq!(work.doc, doc);
        spider.idle(ms(50));
        spider.done(&work, "200");
    }
    assert_eq!(index.reports(3).len(), 3);
}

#[test]
fn an_address_from_the_index_needs_no_name_server() {
    let dns = DnsServer::start();
    let (server, mut index, _door) = Setup::new().flag("dns", &dns.address().to_string()).start_with_index();
    index.offer(&[
        "1 http://given.test/ ip=127.0.0.9",
        "2 http://six.test/ ip=::1",
        "3 http://four.test/ ip=::ffff:127.0.0.8",
    ]);
    let mut works = server.spider().works(3);
    works.sort_by_key(|work| work.doc);
    let ips: Vec<String> = works.iter().map(|work| work.ip.to_string()).collect();
    assert_eq!(ips, ["127.0.0.9", "::1", "127.0.0.8"]);
    assert_eq!(dns.asked(), []);
}

#[test]
fn names_that_nobody_answers_for_do_not_hold_up_the_others() {
    let dns = DnsServer::answering(|asked| match asked.name.starts_with("dead") {
        true => Reply::Silence,
        false => Reply::ips(&["127.0.0.9"], 600),
    });
    let dead: Vec<String> = (0..900).map(|n| format!("{} http://dead{n}.test/", n + 100)).collect();
    let (server, mut index, _door) = Setup::new()
        .flag("dns", &dns.address().to_string())
        .flag("dns-timeout", "60")
        .flag("address-family", "ipv4")
        .flag("queue-count", "2000")
        .start_with_index();
    let mut offers: Vec<&str> = dead.iter().map(String::as_str).collect();
    offers.push("1 http://alive.test/");
    index.offer(&offers);
    assert_eq!(server.spider().work().doc, 1);
}

#[test]
fn names_are_looked_up_and_names_that_do_not_exist_fail() {
    let dns = DnsServer::start();
    dns.set("here.test", Reply::ips(&["127.0.0.9"], 60));
    dns.set("empty.test", Reply::NoAddress(Some(60)));
    let (server, mut index, _door) = Setup::new()
        .flag("dns", &dns.address().to_string())
        .hosts(&["127.0.0.7 static.test", "0.0.0.0 blocked.test"])
        .start_with_index();
    index.offer(&[
        "1 http://here.test/",
        "2 http://nowhere.test/1",
        "3 http://nowhere.test/2",
        "4 http://empty.test/",
        "5 http://static.test/",
        "6 http://blocked.test/",
    ]);
    assert_eq!(
        index.reports(4),
        ["2 FAILED dns", "3 FAILED dns", "4 FAILED dns", "6 FAILED dns"],
        "without any spider"
    );
    let mut spider = server.spider();
    let mut works = spider.works(2);
    works.sort_by_key(|work| work.doc);
    assert_eq!((works[0].ip.to_string(), works[1].ip.to_string()), ("127.0.0.9".into(), "127.0.0.7".into()));
    assert_eq!((dns.count("static.test"), dns.count("blocked.test")), (0, 0));
    assert_eq!(server.stat("failed"), 4);
}

#[test]
fn a_slow_name_delays_no_other_and_comes_in_the_end() {
    let dns = DnsServer::start();
    dns.set("slow.test", Reply::After(ms(600), Box::new(Reply::ips(&["127.0.0.9"], 60))));
    dns.set("quick.test", Reply::ips(&["127.0.0.10"], 60));
    let server = Setup::new()
        .flag("dns", &dns.address().to_string())
        .seeds(&["http://slow.test/", "http://quick.test/"])
        .start();
    let mut spider = server.spider();
    assert_eq!(spider.work().host(), "quick.test");
    assert_eq!(spider.work().host(), "slow.test");
}

#[test]
fn addresses_that_are_not_public_are_denied_wherever_they_come_from() {
    let dns = DnsServer::start();
    dns.set("inside.test", Reply::ips(&["10.1.2.3"], 60));
    dns.set("both.test", Reply::ips(&["192.168.0.1", "192.0.2.1", "8.8.8.8"], 60));
    let (server, mut index, _door) = Setup::new()
        .flag("allow-private", "false")
        .flag("dns", &dns.address().to_string())
        .hosts(&["127.0.0.1 static.test", "9.9.9.9 fine.test"])
        .start_with_index();
    index.offer(&[
        "1 http://127.0.0.1/",
        "2 http://[::1]/",
        "3 http://169.254.169.254/latest/meta-data",
        "4 http://0x7f.1/",
        "5 http://[::ffff:10.0.0.1]/",
        "6 http://inside.test/",
        "7 http://static.test/",
        "8 http://given.test/ ip=192.168.1.1",
        "9 http://both.test/",
        "10 http://fine.test/",
        "11 http://1.1.1.1/",
    ]);
    let mut reports = index.reports(8);
    reports.sort_by_key(|report| report.split(' ').next().and_then(|doc| doc.parse::<u64>().ok()));
    let expected: Vec<String> = (1..=8).map(|doc| format!("{doc} DENIED private-address")).collect();
    assert_eq!(reports, expected);
    let mut works = server.spider().works(3);
    works.sort_by_key(|work| work.doc);
    let ips: Vec<String> = works.iter().map(|work| work.ip.to_string()).collect();
    assert_eq!(ips, ["8.8.8.8", "9.9.9.9", "1.1.1.1"]);
    assert_eq!(server.stat("denied"), 8);
}

#[test]
fn not_before_is_kept() {
    let (server, mut index, _door) = Setup::new().start_with_index();
    let mut spider = server.spider();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let due = now.as_secs() + 2;
    index.offer(&[
        &format!("1 http://127.0.0.1/later not-before={due}"),
        "2 http://127.0.0.1/now not-before=1",
        "3 http://127.0.0.1/never not-before=18446744073709551615",
    ]);
    let work = spider.work();
    assert_eq!(work.doc, 2);
    spider.done(&work, "200");
    assert_eq!(spider.work().doc, 1);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    assert!(now >= Duration::from_secs(due), "{now:?}");
}

#[test]
fn sends_to_a_host_keep_their_gap_whatever_its_scheme_and_port() {
    let gap = ms(200);
    let server = Setup::new()
        .flag("req-host-per-sec", "5")
        .flag("req-host-concurrent", "4")
        .flag("req-ip-per-sec", "inf")
        .flag("req-ip-concurrent", "inf")
        .seeds(&["http://h.example/", "https://H.example/", "http://h.example:81/", "http://h.example./x"])
        .hosts(&["127.0.0.1 h.example"])
        .start();
    let start = Instant::now();
    let mut spider = server.spider();
    for sends in 0..4 {
        spider.work();
        assert!(start.elapsed() >= sends * gap, "{sends} after {:?}", start.elapsed());
    }
}

#[test]
fn sends_to_an_address_keep_their_gap_and_number_whatever_the_host() {
    let server = Setup::new()
        .flag("req-ip-per-sec", "4")
        .seeds(&["http://a.example/1", "http://b.example/1", "http://c.example/1", "http://d.example/1"])
        .hosts(&["127.0.0.1 a.example b.example c.example d.example"])
        .start();
    let start = Instant::now();
    let mut spider = server.spider();
    let first = spider.work();
    // One in flight per host, so one per address, by default.
    spider.idle(ms(400));
    spider.done(&first, "200");
    let done = Instant::now();
    let rest = spider.fetch(3, "200");
    assert!(start.elapsed() >= ms(900) && done.elapsed() >= ms(500), "{:?}", start.elapsed());
    let mut hosts: Vec<&str> = rest.iter().chain([&first]).map(|work| work.host()).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["a.example", "b.example", "c.example", "d.example"]);
}

#[test]
fn a_slow_host_rests_as_long_as_the_fetch_took() {
    let server = Setup::new()
        .flag("delay-factor", "2")
        .seeds(&["http://127.0.0.1/1", "http://127.0.0.1/2", "http://127.0.0.2/"])
        .start();
    let mut spider = server.spider();
    let works = spider.works(2);
    let received = Instant::now();
    spider.idle(ms(300));
    let said = Instant::now();
    works.iter().for_each(|work| spider.done(work, "200"));
    spider.work();
    let took = said.duration_since(received);
    assert!(said.elapsed() >= 2 * took, "{:?} after {took:?}", said.elapsed());
}

#[test]
fn no_more_than_allowed_are_in_flight_and_as_many_as_allowed() {
    let seeds: Vec<String> = (0..12).map(|page| format!("http://127.0.0.1/{page}")).collect();
    let server = Setup::new()
        .flag("req-host-concurrent", "3")
        .seeds(&seeds.iter().map(String::as_str).collect::<Vec<_>>())
        .start();
    let mut spider = server.spider();
    let mut open = spider.works(3);
    for _ in 0..9 {
        spider.idle(ms(20));
        let work = open.remove(0);
        spider.done(&work, "200");
        open.push(spider.work());
    }
    assert_eq!(server.stat("in_flight"), 3);
}

#[test]
fn the_hosts_of_an_alias_behave_as_one() {
    let server = Setup::new()
        .file("[alias]\nkommune = [\"rana.kommune.no\", \"vefsn.kommune.no\"]\n")
        .flag("delay-factor", "1")
        .seeds(&["http://rana.kommune.no/", "http://vefsn.kommune.no/", "http://other.kommune.no/"])
        .hosts(&["127.0.0.1 rana.kommune.no", "127.0.0.2 vefsn.kommune.no", "127.0.0.3 other.kommune.no"])
        .start();
    let mut spider = server.spider();
    let mut works = spider.works(2);
    let received = Instant::now();
    spider.idle(ms(250));
    works.sort_by_key(|work| work.host() == "other.kommune.no");
    assert_eq!(works[1].host(), "other.kommune.no");
    let said = Instant::now();
    spider.done(&works[0], "200");
    assert_ne!(spider.work().host(), works[0].host());
    assert!(said.elapsed() >= said.duration_since(received), "{:?}", said.elapsed());
}

#[test]
fn a_group_has_limits_of_its_own_and_may_lift_those_of_its_addresses() {
    let server = Setup::new()
        .file(
            "[[group]]\nname = \"slow\"\nhosts = [\"*.slow.example\"]\nconcurrent = 2\nper_sec = 4\n\
             [[group]]\nname = \"cdn\"\ncidr = [\"127.9.0.0/16\"]\nconcurrent = \"inf\"\nper_sec = \"inf\"\n",
        )
        .seeds(&[
            "http://a.slow.example/",
            "http://b.slow.example/",
            "http://c.slow.example/",
            "http://a.cdn.example/",
            "http://b.cdn.example/1",
            "http://b.cdn.example/2",
        ])
        .hosts(&[
            "127.0.0.1 a.slow.example",
            "127.0.0.2 b.slow.example",
            "127.0.0.3 c.slow.example",
            "127.9.0.1 a.cdn.example b.cdn.example",
        ])
        .start();
    let start = Instant::now();
    let mut spider = server.spider();
    let mut works = spider.works(4);
    assert!(start.elapsed() >= ms(250), "{:?}", start.elapsed());
    spider.idle(ms(350));
    works.sort_by(|a, b| a.host().cmp(b.host()));
    let hosts: Vec<&str> = works.iter().map(|work| work.host()).collect();
    assert_eq!(hosts[..1], ["a.cdn.example"]);
    assert_eq!(hosts.iter().filter(|host| host.ends_with(".cdn.example")).count(), 2);
}

#[test]
fn more_documents_than_slots_are_all_fetched() {
    let seeds: Vec<String> = (0..400).map(|n| format!("http://127.6.{}.1/{n}", n % 40)).collect();
    let server = Setup::new()
        .flag("queue-count", "7")
        .flag("queue-len", "5")
        .seeds(&seeds.iter().map(String::as_str).collect::<Vec<_>>())
        .flag("exit-when-done", "true")
        .start();
    let mut spider = server.spider();
    let mut docs: Vec<u64> = spider.fetch(400, "200").iter().map(|work| work.doc).collect();
    docs.sort_unstable();
    docs.dedup();
    assert_eq!(docs.len(), 400);
    assert_eq!(server.end(DEADLINE).code, Some(0));
}

#[test]
fn an_index_that_is_not_there_yet_is_dialled_until_it_is() {
    let door = Door::open();
    let address = door.address();
    let setup = Setup::new().index(&door);
    drop(door);
    let server = setup.start();
    assert_eq!(server.get("/readyz").0, 503);
    assert_eq!(server.get("/healthz").0, 200);
    let door = Door::at(address);
    let mut index = Index::accept(&door);
    index.offer(&["1 http://127.0.0.1/"]);
    server.spider().work();
    assert_eq!(server.get("/readyz").0, 200);
    drop((index, door));
    let end = Instant::now() + DEADLINE;
    while server.get("/readyz").0 != 503 {
        assert!(Instant::now() < end, "the index is gone");
    }
}
