//! The fetcher of robots.txt against real web servers on loopback, which behave as badly as they can.

#[path = "support/web.rs"]
mod web;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use urlserver::document::Outcome;
use urlserver::robots::{Answer, BODY_MAX, FetchLimits, Fetcher, Rules, Verdict};
use urlserver::url::Url;
use web::{Reply, Web};

const DENY: &str = "User-agent: *\nDisallow: /private\n";

/// Time enough for any machine, when an answer is to come.
const PATIENT: FetchLimits =
    FetchLimits { connect: Duration::from_secs(600), total: Duration::from_secs(600) };

/// Little time, when none is to come.
const HASTY: FetchLimits =
    FetchLimits { connect: Duration::from_secs(600), total: Duration::from_millis(200) };

fn fetcher(limits: FetchLimits) -> Fetcher {
    Fetcher::new(limits, "TestBot/1.5 (+https://bot.example/)")
}

fn url(web: &Web, scheme: &str, host: &str) -> Url {
    Url::parse(&format!("{scheme}://{host}:{}/robots.txt", web.address().port())).expect("a URL")
}

async fn ask(limits: FetchLimits, reply: Reply) -> Answer {
    let web = Web::http("127.0.0.1", move |_| reply.clone());
    fetcher(limits).fetch(&url(&web, "http", "site.example"), web.address().ip()).await
}

fn rules(answer: Answer) -> Rules {
    match answer {
        Answer::Rules { rules, .. } => rules,
        other => panic!("no rules: {other:?}"),
    }
}

#[track_caller]
fn check_denies_private(answer: Answer) {
    let rules = rules(answer);
    assert_eq!(rules.verdict("/private"), Verdict::Denied { line: 2, rule: "/private" });
    assert_eq!(rules.verdict("/"), Verdict::Allowed);
}

/// A 200 with this body, packed by `pack` and called `name`.
fn packed(name: &str, body: &[u8], pack: fn(&[u8]) -> Vec<u8>) -> Reply {
    Reply::status(200, &[&format!("Content-Encoding: {name}")], &pack(body))
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

fn bare_deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

#[tokio::test]
async fn the_request_says_who_asks_for_what_and_whom() {
    let web = Web::http("127.0.0.1", |_| Reply::ok(DENY));
    let from =
        Url::parse(&format!("http://u:p@Site.Example.:{}/a%20b?c=d", web.address().port())).expect("URL");
    check_denies_private(fetcher(PATIENT).fetch(&from, web.address().ip()).await);
    let requests = web.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].head.starts_with("GET /a%20b?c=d HTTP/1.1\r\n"), "{}", requests[0].head);
    let host = format!("site.example:{}", web.address().port());
    assert_eq!(requests[0].header("host"), Some(host.as_str()));
    assert_eq!(requests[0].header("user-agent"), Some("TestBot/1.5 (+https://bot.example/)"));
    assert_eq!(requests[0].header("accept-encoding"), Some("gzip, deflate"));
    assert_eq!(requests[0].header("authorization"), None);
}

#[tokio::test]
async fn an_agent_that_is_no_header_is_said_as_far_as_it_can_be() {
    let web = Web::http("127.0.0.1", |_| Reply::ok("User-agent: bad\nDisallow: /\n"));
    let fetcher = Fetcher::new(PATIENT, "Bad\r\nBøt: 1");
    let answer = fetcher.fetch(&url(&web, "http", "a.example"), web.address().ip()).await;
    assert_ne!(rules(answer).verdict("/"), Verdict::Allowed);
    assert_eq!(web.requests()[0].header("user-agent"), Some("BadBt: 1"));
}

#[tokio::test]
async fn only_the_group_of_the_product_counts() {
    let reply = Reply::ok("User-agent: testbot\nDisallow: /ours\n\nUser-agent: *\nDisallow: /\n");
    let rules = rules(ask(PATIENT, reply).await);
    assert_eq!(rules.verdict("/"), Verdict::Allowed);
    assert_eq!(rules.verdict("/ours"), Verdict::Denied { line: 2, rule: "/ours" });
}

#[tokio::test]
async fn https_with_a_trusted_root_answers() {
    let web = Web::https("127.0.0.1", &["site.example", "127.0.0.1"], |_| Reply::ok(DENY));
    let trusting = fetcher(PATIENT).trusting(web.root());
    for host in ["site.example", "127.0.0.1", "site.example."] {
        let answer = trusting.fetch(&url(&web, "https", host), web.address().ip()).await;
        check_denies_private(answer);
    }
    assert_eq!(web.requests().len(), 3);
}

#[tokio::test]
async fn https_over_ipv6_answers() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return eprintln!("not tested: this machine has no IPv6");
    }
    let web = Web::https("::1", &["::1"], |_| Reply::ok(DENY));
    let trusting = fetcher(PATIENT).trusting(web.root());
    check_denies_private(trusting.fetch(&url(&web, "https", "[::1]"), web.address().ip()).await);
    let host = format!("[::1]:{}", web.address().port());
    assert_eq!(web.requests()[0].header("host"), Some(host.as_str()));
}

#[tokio::test]
async fn certificates_of_strangers_and_of_other_names_fail() {
    let web = Web::https("127.0.0.1", &["site.example"], |_| Reply::ok(DENY));
    let failed = Answer::Unreachable(Outcome::TlsFailed);
    let ip = web.address().ip();
    assert_eq!(fetcher(PATIENT).fetch(&url(&web, "https", "site.example"), ip).await, failed);
    let trusting = fetcher(PATIENT).trusting(web.root());
    assert_eq!(trusting.fetch(&url(&web, "https", "other.example"), ip).await, failed);
    assert_eq!(web.requests().len(), 0, "nothing was asked of a server that was not believed");
}

#[tokio::test]
async fn tls_with_a_server_that_speaks_none_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let _ = tcp.try_write(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let from = Url::parse(&format!("https://site.example:{}/robots.txt", address.port())).expect("a URL");
    assert_eq!(fetcher(PATIENT).fetch(&from, address.ip()).await, Answer::Unreachable(Outcome::TlsFailed));
    server.abort();
}

#[tokio::test]
async fn a_tls_handshake_that_never_ends_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let from = Url::parse(&format!("https://site.example:{}/robots.txt", address.port())).expect("a URL");
    assert_eq!(fetcher(HASTY).fetch(&from, address.ip()).await, Answer::Unreachable(Outcome::Timeout));
}

#[tokio::test]
async fn a_body_that_ends_with_the_connection_needs_no_good_bye() {
    let text = format!("HTTP/1.0 200 OK\r\n\r\n{DENY}").into_bytes();
    let web = Web::https("127.0.0.1", &["site.example"], move |_| Reply::Rude(text.clone()));
    let trusting = fetcher(PATIENT).trusting(web.root());
    check_denies_private(trusting.fetch(&url(&web, "https", "site.example"), web.address().ip()).await);
}

#[tokio::test]
async fn a_tls_body_of_known_length_that_is_cut_off_is_no_answer() {
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{DENY}").into_bytes();
    let web = Web::https("127.0.0.1", &["site.example"], move |_| Reply::Rude(text.clone()));
    let trusting = fetcher(PATIENT).trusting(web.root());
    let answer = trusting.fetch(&url(&web, "https", "site.example"), web.address().ip()).await;
    assert_eq!(answer, Answer::Unreachable(Outcome::ConnectFailed));
}

#[tokio::test]
async fn statuses_mean_what_the_rfc_says() {
    for status in [200, 203, 206, 299] {
        check_denies_private(ask(PATIENT, Reply::status(status, &[], DENY.as_bytes())).await);
    }
    for status in [400, 401, 403, 404, 410, 451, 499] {
        let answer = ask(PATIENT, Reply::status(status, &["Retry-After: 5"], DENY.as_bytes())).await;
        assert_eq!(answer, Answer::Missing { status });
    }
    for status in [429, 500, 503, 599, 600, 999] {
        let answer = ask(PATIENT, Reply::status(status, &[], DENY.as_bytes())).await;
        assert_eq!(answer, Answer::Refused { status, retry_after: None });
    }
    let nothing = ask(PATIENT, Reply::raw("HTTP/1.1 204 No Content\r\n\r\n")).await;
    assert_eq!(rules(nothing), Rules::everything_allowed());
}

#[tokio::test]
async fn retry_after_is_heard_in_seconds_and_as_a_date() {
    let answer = ask(PATIENT, Reply::status(503, &["Retry-After: 120"], b"")).await;
    assert_eq!(answer, Answer::Refused { status: 503, retry_after: Some(Duration::from_secs(120)) });
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(7200));
    let answer = ask(PATIENT, Reply::status(429, &[&format!("Retry-After: {date}")], b"")).await;
    let Answer::Refused { status: 429, retry_after: Some(delay) } = answer else { panic!("{answer:?}") };
    assert!(delay > Duration::ZERO && delay <= Duration::from_secs(7200), "{delay:?}");
    let answer = ask(PATIENT, Reply::status(503, &["Retry-After: soon"], b"")).await;
    assert_eq!(answer, Answer::Refused { status: 503, retry_after: None });
}

#[tokio::test]
async fn a_lifetime_is_passed_on() {
    let reply = Reply::status(200, &["Cache-Control: max-age=600", "Age: 100"], b"");
    let answer = ask(PATIENT, reply).await;
    let expected = Some(Duration::from_secs(500));
    assert_eq!(answer, Answer::Rules { rules: Rules::everything_allowed(), max_age: expected });
    let answer = ask(PATIENT, Reply::ok("")).await;
    assert_eq!(answer, Answer::Rules { rules: Rules::everything_allowed(), max_age: None });
}

#[tokio::test]
async fn redirects_are_named_and_not_followed() {
    let web = Web::http("127.0.0.1", |request| match request.path.as_str() {
        "/robots.txt?far" => Reply::moved("https://Other.Example:81/r.txt#x"),
        "/robots.txt?path" => Reply::moved("/elsewhere?a=b"),
        "/robots.txt?near" => Reply::status(308, &["Location: sub/robots.txt"], b""),
        "/robots.txt?same" => Reply::status(302, &["Location: //mirror.example/robots.txt"], b""),
        "/robots.txt?raw" => Reply::status(307, &["Location: /å ä"], b""),
        "/robots.txt?ftp" => Reply::moved("ftp://other.example/robots.txt"),
        "/robots.txt?bad" => Reply::moved("http://[/"),
        _ => Reply::status(301, &[], DENY.as_bytes()),
    });
    let port = web.address().port();
    let here = |rest: &str| format!("http://site.example:{port}{rest}");
    for (query, to) in [
        ("far", Some("https://other.example:81/r.txt".to_owned())),
        ("path", Some(here("/elsewhere?a=b"))),
        ("near", Some(here("/sub/robots.txt"))),
        ("same", Some("http://mirror.example/robots.txt".to_owned())),
        ("raw", Some(here("/%C3%A5%20%C3%A4"))),
        ("ftp", None),
        ("bad", None),
        ("none", None),
    ] {
        let from = Url::parse(&here(&format!("/robots.txt?{query}"))).expect("a URL");
        let answer = fetcher(PATIENT).fetch(&from, web.address().ip()).await;
        let expected = match to {
            Some(to) => Answer::Moved { to: Url::parse(&to).expect("a URL") },
            None => Answer::Missing { status: 301 },
        };
        assert_eq!(answer, expected, "{query}");
    }
    assert_eq!(web.requests().len(), 8, "one request each");
}

#[tokio::test]
async fn bodies_come_in_many_ways() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                   d\r\nUser-agent: *\r\n15\r\n\nDisallow: /private\r\n\r\n0\r\nTrailer: x\r\n\r\n";
    let chunked = chunked.replace("/private\r\n\r\n0", "/private\n\r\n0").replace("15\r\n", "14\r\n");
    for text in [
        chunked,
        format!("HTTP/1.0 200 OK\r\n\r\n{DENY}"),
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{DENY}"),
        format!("HTTP/1.1 200\nContent-Length: {}\n\n{DENY}", DENY.len()),
        format!(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{DENY}",
            DENY.len()
        ),
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{DENY}and more", DENY.len()),
        format!("HTTP/1.1 200 OK\r\nBad Header: x\r\nX-Folded: a\r\n b\r\n\r\n{DENY}"),
        format!("HTTP/1.1 200 Sm\u{f8}rebr\u{f8}d\r\nX-Raw: \u{e5}\r\n\r\n{DENY}"),
    ] {
        check_denies_private(ask(PATIENT, Reply::raw(&text)).await);
    }
}

#[tokio::test]
async fn packed_bodies_are_unpacked() {
    for reply in [
        packed("gzip", DENY.as_bytes(), gzip),
        packed("X-GZIP", DENY.as_bytes(), gzip),
        packed("deflate", DENY.as_bytes(), zlib),
        packed("deflate", DENY.as_bytes(), bare_deflate),
        packed("identity", DENY.as_bytes(), <[u8]>::to_vec),
        packed("gzip", DENY.as_bytes(), <[u8]>::to_vec),
    ] {
        check_denies_private(ask(PATIENT, reply).await);
    }
    let two = Reply::status(
        200,
        &["Content-Encoding: gzip"],
        &[gzip(b"User-agent: *\n"), gzip(b"Disallow: /private\n")].concat(),
    );
    check_denies_private(ask(PATIENT, two).await);
    let empty = ask(PATIENT, Reply::status(200, &["Content-Encoding: gzip"], b"")).await;
    assert_eq!(rules(empty), Rules::everything_allowed());
}

#[tokio::test]
async fn bodies_that_cannot_be_unpacked_are_no_answer() {
    let cut = |pack: fn(&[u8]) -> Vec<u8>| pack(DENY.as_bytes())[..20].to_vec();
    let mut broken = gzip(DENY.as_bytes());
    broken[15] ^= 0xff;
    for (name, body) in [
        ("gzip", cut(gzip)),
        ("gzip", broken),
        ("deflate", cut(zlib)),
        ("deflate", cut(bare_deflate)),
        ("br", DENY.into()),
        ("gzip, gzip", gzip(&gzip(DENY.as_bytes()))),
    ] {
        let answer = ask(PATIENT, Reply::status(200, &[&format!("Content-Encoding: {name}")], &body)).await;
        assert_eq!(answer, Answer::Unreachable(Outcome::ConnectFailed), "{name}");
    }
}

/// Rules, then filling up to exactly the limit, then a rule that must not be seen.
fn beyond_the_limit() -> Vec<u8> {
    let mut body = DENY.as_bytes().to_vec();
    body.resize(BODY_MAX - 1, b'#');
    body.extend_from_slice(b"\nDisallow: /\n");
    body
}

#[tokio::test]
async fn only_the_first_bytes_count_however_they_come() {
    let body = beyond_the_limit();
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", String::from_utf8_lossy(&body)).into_bytes();
    for reply in [
        Reply::ok(&body),
        packed("gzip", &body, gzip),
        packed("deflate", &body, zlib),
        Reply::Endless(endless, b"\nDisallow: /\n".to_vec()),
    ] {
        check_denies_private(ask(PATIENT, reply).await);
    }
}

#[tokio::test]
async fn a_bomb_is_unpacked_up_to_the_limit() {
    // 1 GiB of zeros in members of 1 MiB: a megabyte on the wire.
    let zeros = gzip(&vec![0; 1 << 20]);
    let body = [gzip(DENY.as_bytes()), zeros.repeat(1024)].concat();
    check_denies_private(ask(PATIENT, Reply::status(200, &["Content-Encoding: gzip"], &body)).await);
}

#[tokio::test]
async fn what_is_no_answer_is_unreachable() {
    let many: String = (0..300).map(|n| format!("X-{n}: y\r\n")).collect();
    for text in [
        String::new(),
        "garbage\r\n\r\n".to_owned(),
        "SSH-2.0-OpenSSH_9.6\r\n".to_owned(),
        DENY.to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Len".to_owned(),
        "HTTP/1.1 99999 OK\r\n\r\n".to_owned(),
        "HTTP/2.0 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{DENY}"),
        format!("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{DENY}"),
        format!("HTTP/1.1 200 OK\r\nContent-Length: 33\r\nContent-Length: 34\r\n\r\n{DENY}"),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\nUser-agent: *\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{DENY}"),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n{DENY}"),
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n{DENY}", "y".repeat(1 << 20)),
    ] {
        let shown = &text[..text.len().min(70)];
        let answer = ask(PATIENT, Reply::raw(&text)).await;
        assert_eq!(answer, Answer::Unreachable(Outcome::ConnectFailed), "{shown}");
    }
}

#[tokio::test]
async fn endless_headers_end() {
    for again in ["X-Again: yes\r\n", "y", "\r\n X"] {
        let reply = Reply::Endless(b"HTTP/1.1 200 OK\r\nX: ".to_vec(), again.as_bytes().to_vec());
        assert_eq!(ask(PATIENT, reply).await, Answer::Unreachable(Outcome::ConnectFailed), "{again:?}");
    }
}

#[tokio::test]
async fn slow_servers_are_left_when_the_time_is_over() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec();
    let pause = Duration::from_millis(10);
    for reply in [
        Reply::Stuck(Vec::new()),
        Reply::Stuck(b"HTTP/1.1 200 OK\r\n".to_vec()),
        Reply::Stuck(head.clone()),
        Reply::Drip(head, b"#".to_vec(), pause),
        Reply::Drip(b"HTTP/1.1 200 OK\r\n".to_vec(), b"X: y\r\n".to_vec(), Duration::from_millis(50)),
        Reply::Drip(Vec::new(), b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec(), pause),
    ] {
        let shown = format!("{reply:?}");
        assert_eq!(ask(HASTY, reply).await, Answer::Unreachable(Outcome::Timeout), "{shown}");
    }
}

#[tokio::test]
async fn a_status_needs_no_body() {
    let stuck = |status: u16| {
        Reply::Stuck(format!("HTTP/1.1 {status} x\r\nContent-Length: 9999\r\n\r\n").into_bytes())
    };
    assert_eq!(ask(PATIENT, stuck(404)).await, Answer::Missing { status: 404 });
    assert_eq!(ask(PATIENT, stuck(500)).await, Answer::Refused { status: 500, retry_after: None });
}

#[tokio::test]
async fn a_closed_port_is_a_failed_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let from = Url::parse(&format!("http://site.example:{}/robots.txt", address.port())).expect("a URL");
    let answer = fetcher(PATIENT).fetch(&from, address.ip()).await;
    assert_eq!(answer, Answer::Unreachable(Outcome::ConnectFailed));
}

#[tokio::test]
async fn a_connection_that_is_never_accepted_is_given_up() {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(1).expect("a listener");
    let address = listener.local_addr().expect("an address");
    // Connections that nobody accepts, until the kernel takes no more.
    let mut waiting = Vec::new();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await
    {
        waiting.push(connected.expect("a connection"));
        assert!(waiting.len() < 64, "the kernel takes any number");
    }
    let limits = FetchLimits { connect: Duration::from_millis(100), ..PATIENT };
    let from = Url::parse(&format!("http://site.example:{}/robots.txt", address.port())).expect("a URL");
    assert_eq!(fetcher(limits).fetch(&from, address.ip()).await, Answer::Unreachable(Outcome::Timeout));
}

#[tokio::test]
async fn absurd_limits_are_survived() {
    let absurd = FetchLimits { connect: Duration::MAX, total: Duration::MAX };
    check_denies_private(ask(absurd, Reply::ok(DENY)).await);
    let none = FetchLimits { connect: Duration::ZERO, total: Duration::ZERO };
    assert_eq!(ask(none, Reply::Stuck(Vec::new())).await, Answer::Unreachable(Outcome::Timeout));
}

#[tokio::test]
async fn the_address_given_is_the_one_asked() {
    let other: IpAddr = "127.0.0.9".parse().expect("an address");
    let web = Web::http("127.0.0.9", |_| Reply::ok(DENY));
    // A name that no name server knows, and one that leads elsewhere.
    for host in ["no-such-name.invalid", "127.0.0.1"] {
        check_denies_private(fetcher(PATIENT).fetch(&url(&web, "http", host), other).await);
    }
    assert_eq!(web.requests().len(), 2);
}
