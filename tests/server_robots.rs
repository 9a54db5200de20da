//! robots.txt over real sockets: the server asks real web servers before anything is sent, and keeps to what they
//! say.

mod support;
#[path = "support/web.rs"]
mod web;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::lines::{DEADLINE, GLANCE};
use support::server::{Server, Setup};
use web::{Reply, Web};

/// Long enough to see what comes at once, where nothing should.
const QUIET: Duration = Duration::from_millis(300);

fn obeying() -> Setup {
    Setup::new().flag("robots", "obey")
}

fn serving(ip: &str, rules: &'static str) -> Web {
    Web::http(ip, move |_| Reply::ok(rules))
}

fn url(web: &Web, path: &str) -> String {
    format!("http://{}{path}", web.address())
}

/// `DOC_ID URL` for each, numbered from 1.
fn numbered(urls: &[String]) -> Vec<String> {
    (1..).zip(urls).map(|(doc, url)| format!("{doc} {url}")).collect()
}

fn as_strs(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

#[track_caller]
fn robots(server: &Server, name: &str) -> u64 {
    let stats = server.stats();
    stats["robots"][name].as_u64().unwrap_or_else(|| panic!("robots.{name} in {stats}"))
}

/// Waits until a count about robots.txt is at least this.
#[track_caller]
fn until_robots(server: &Server, name: &str, least: u64) {
    let end = Instant::now() + DEADLINE;
    while robots(server, name) < least {
        assert!(Instant::now() < end, "robots.{name} is not {least}: {}", server.stats());
        std::thread::sleep(GLANCE);
    }
}

#[test]
fn nothing_goes_before_the_rules_and_what_they_deny_is_reported() {
    let web = serving("127.0.0.21", "User-agent: *\nDisallow: /private\n");
    let (server, mut index, _door) = obeying().start_with_index();
    let mut spider = server.spider();
    let urls = [url(&web, "/private/1"), url(&web, "/2"), url(&web, "/private/3"), url(&web, "/4")];
    index.offer(&as_strs(&numbered(&urls)));
    let works = spider.fetch(2, "200");
    assert_eq!(works.iter().map(|work| work.doc).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(index.reports(4), ["1 DENIED robots", "2 DONE 200", "3 DENIED robots", "4 DONE 200"]);
    let requests = web.requests();
    assert_eq!(requests.len(), 1, "asked once: {requests:?}");
    assert_eq!(requests[0].path, "/robots.txt");
    assert_eq!(requests[0].header("host"), Some(&*web.address().to_string()));
    assert!(requests[0].header("user-agent").is_some_and(|agent| agent.starts_with("urlserver/")));
    assert_eq!((robots(&server, "fetches"), robots(&server, "failures")), (1, 0));
    assert_eq!((server.stat("denied"), server.stat("sent")), (2, 2));
    server.stop();
}

#[test]
fn rules_are_for_our_product_token() {
    let rules =
        "User-agent: other\nDisallow: /\n\nUser-agent: shybot\nDisallow: /shy\n\nUser-agent: *\nAllow: /\n";
    let web = serving("127.0.0.22", rules);
    let (server, mut index, _door) =
        obeying().flag("user-agent", "ShyBot/2.1 (+http://a.example)").start_with_index();
    let mut spider = server.spider();
    index.offer(&as_strs(&numbered(&[url(&web, "/shy"), url(&web, "/bold")])));
    assert_eq!(spider.fetch(1, "200")[0].doc, 2);
    assert_eq!(index.reports(2), ["1 DENIED robots", "2 DONE 200"]);
    assert_eq!(web.requests()[0].header("user-agent"), Some("ShyBot/2.1 (+http://a.example)"));
}

#[test]
fn a_web_server_that_says_nothing_stops_only_its_own_host() {
    let stuck = Web::http("127.0.0.23", |_| Reply::Stuck(Vec::new()));
    let drip = Web::http("127.0.0.24", |_| {
        Reply::Drip(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), b"#\n".to_vec(), Duration::from_millis(10))
    });
    let well = Web::http("127.0.0.25", |_| Reply::status(404, &[], b""));
    let (server, mut index, _door) = obeying().flag("robots-timeout", "1").start_with_index();
    let mut spider = server.spider();
    index.offer(&as_strs(&numbered(&[
        url(&stuck, "/1"),
        url(&drip, "/2"),
        url(&well, "/3"),
        url(&well, "/4"),
    ])));
    let works = spider.fetch(2, "200");
    assert_eq!(works.iter().map(|work| work.doc).collect::<Vec<_>>(), [3, 4]);
    until_robots(&server, "failures", 2);
    spider.idle(QUIET);
    assert_eq!(robots(&server, "waiting"), 2, "they are asked again later");
    server.stop();
}

#[test]
fn errors_allow_nothing_until_there_is_an_answer() {
    let asked = AtomicUsize::new(0);
    let web = Web::http("127.0.0.26", move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(500, &[], b"User-agent: *\nAllow: /\n"),
        1 => Reply::raw("no HTTP at all\r\n\r\n"),
        _ => Reply::ok("User-agent: *\nDisallow: /no\n"),
    });
    let (server, mut index, _door) = obeying().flag("retry-delay", "0").start_with_index();
    let mut spider = server.spider();
    index.offer(&as_strs(&numbered(&[url(&web, "/no"), url(&web, "/yes")])));
    assert_eq!(spider.fetch(1, "200")[0].doc, 2);
    assert_eq!(index.reports(2), ["1 DENIED robots", "2 DONE 200"]);
    assert_eq!(web.requests().len(), 3);
    assert_eq!(robots(&server, "failures"), 2);
}

#[test]
fn a_certificate_that_nobody_vouches_for_allows_nothing() {
    let web = Web::https("127.0.0.27", &["127.0.0.27"], |_| Reply::ok("User-agent: *\nAllow: /\n"));
    let (server, mut index, _door) = obeying().start_with_index();
    let mut spider = server.spider();
    index.offer(&[&format!("1 https://{}/", web.address())]);
    until_robots(&server, "failures", 1);
    spider.idle(QUIET);
    assert_eq!(server.stat("sent"), 0);
}

#[test]
fn redirects_are_followed_to_other_hosts_and_the_rules_belong_to_whom_was_asked() {
    let rules = serving("127.0.0.28", "User-agent: *\nDisallow: /x\n");
    let to = url(&rules, "/all-rules");
    let moved = Web::http("127.0.0.29", move |_| Reply::moved(&to));
    let around = Web::http("127.0.0.30", |request| match request.path.as_str() {
        "/robots.txt" => Reply::moved("/1"),
        _ => Reply::moved("/robots.txt"),
    });
    let (server, mut index, _door) = obeying().start_with_index();
    let mut spider = server.spider();
    index.offer(&as_strs(&numbered(&[url(&moved, "/x"), url(&moved, "/y"), url(&around, "/x")])));
    let mut docs: Vec<u64> = spider.fetch(2, "200").iter().map(|work| work.doc).collect();
    docs.sort_unstable();
    assert_eq!(docs, [2, 3], "one that leads in a circle has no rules");
    assert_eq!(index.reports(3), ["1 DENIED robots", "2 DONE 200", "3 DONE 200"]);
    assert_eq!((moved.requests().len(), rules.requests().len(), around.requests().len()), (1, 1, 6));
}

#[test]
fn a_redirect_does_not_lead_to_addresses_that_may_not_be_used() {
    // Nobody listens there; but nobody must even try.
    let secret = Web::http("127.0.0.31", |_| Reply::ok("User-agent: *\nAllow: /\n"));
    let to = url(&secret, "/robots.txt");
    let web = Web::http("127.0.0.32", move |_| Reply::moved(&to));
    let (server, mut index, _door) = obeying().flag("allow-private", "false").start_with_index();
    index.offer(&as_strs(&numbered(&[url(&web, "/1")])));
    assert_eq!(index.report(), "1 DENIED private-address");
    assert!(web.requests().is_empty() && secret.requests().is_empty());
    assert_eq!(robots(&server, "fetches"), 0);
}

#[test]
fn a_crawl_delay_is_kept_from_the_request_on_whatever_the_concurrency() {
    let web = serving("127.0.0.33", "User-agent: *\nCrawl-delay: 1\n");
    let setup = obeying().flag("req-host-concurrent", "5").flag("req-ip-concurrent", "5");
    let (server, mut index, _door) = setup.start_with_index();
    let mut spider = server.spider();
    let start = Instant::now();
    index.offer(&as_strs(&numbered(&[url(&web, "/1"), url(&web, "/2")])));
    for least in 1..=2 {
        let work = spider.work();
        assert!(start.elapsed() >= Duration::from_secs(least), "{work:?} came too soon");
    }
    assert_eq!(server.stat("in_flight"), 2);
}

#[test]
fn hosts_that_ask_for_too_long_a_delay_are_reported() {
    let web = serving("127.0.0.34", "User-agent: *\nCrawl-delay: 11\n");
    let (_server, mut index, _door) = obeying().flag("crawl-delay-max", "10").start_with_index();
    index.offer(&as_strs(&numbered(&[url(&web, "/1"), url(&web, "/2")])));
    assert_eq!(index.reports(2), ["1 DENIED crawl-delay", "2 DENIED crawl-delay"]);
}

#[test]
fn no_more_are_asked_at_once_than_allowed() {
    let webs: Vec<Web> =
        (40..46).map(|n| Web::http(&format!("127.0.0.{n}"), |_| Reply::Stuck(Vec::new()))).collect();
    let setup = obeying().flag("robots-concurrent", "2").flag("robots-timeout", "60");
    let (server, mut index, _door) = setup.start_with_index();
    index.offer(&as_strs(&numbered(&webs.iter().map(|web| url(web, "/")).collect::<Vec<_>>())));
    until_robots(&server, "in_flight", 2);
    until_robots(&server, "waiting", 6);
    assert_eq!(robots(&server, "fetches"), 2);
    let asked = || webs.iter().map(|web| web.requests().len()).sum::<usize>();
    let end = Instant::now() + DEADLINE;
    while asked() < 2 && Instant::now() < end {
        std::thread::sleep(GLANCE);
    }
    assert_eq!(asked(), 2);
    server.stop();
}

#[test]
fn sitemaps_are_handed_to_the_index_if_a_setting_says_so() {
    let rules = "Sitemap: http://a.example/map.xml\nsitemap: nonsense\nSitemap: HTTP://B.example/2#x\n";
    for wanted in [true, false] {
        let web = serving("127.0.0.35", rules);
        let (server, mut index, _door) =
            obeying().flag("sitemaps", if wanted { "true" } else { "false" }).start_with_index();
        let mut spider = server.spider();
        index.offer(&as_strs(&numbered(&[url(&web, "/1")])));
        spider.fetch(1, "200");
        let all = index.reports(if wanted { 3 } else { 1 });
        let maps = ["1 DONE 200", "ADD http://a.example/map.xml", "ADD http://b.example/2"];
        assert_eq!(all, if wanted { &maps[..] } else { &maps[..1] });
    }
}

#[test]
fn thousands_of_denied_urls_stall_nobody() {
    let shut = serving("127.0.0.36", "User-agent: *\nDisallow: /\n");
    let open = serving("127.0.0.37", "User-agent: *\nAllow: /\n");
    let denied = (0..5000).map(|n| url(&shut, &format!("/{n}")));
    let allowed = (0..50).map(|n| url(&open, &format!("/{n}")));
    let seeds: Vec<String> = denied.chain(allowed).collect();
    let server = obeying().seeds(&as_strs(&seeds)).start();
    let mut spider = server.spider();
    spider.fetch(50, "200");
    server.until_stat("denied", 5000);
    server.until_stat("done", 50);
    assert_eq!((server.stat("sent"), shut.requests().len()), (50, 1));
    server.stop();
}
