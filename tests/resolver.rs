//! The resolver against a real name server on loopback.
#![allow(clippy::unwrap_used)]

#[path = "support/dns.rs"]
mod dns;

use dns::{DnsServer, Reply, Transport, address, alias};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use urlserver::hostdb::{FIXED_TTL, Family, HOSTS_FILE_TTL, Resolution, Resolver, ResolverConfig, Servers};

/// Longer than any test that works needs, even on a busy machine.
const FAR: Duration = Duration::from_secs(20);

/// For look-ups whose name server never answers.
const SHORT: Duration = Duration::from_secs(1);

fn config(servers: &[&DnsServer]) -> ResolverConfig {
    ResolverConfig {
        servers: Servers::List(addresses(servers)),
        zones: Vec::new(),
        hosts_file: None,
        timeout: FAR,
        families: vec![Family::V4, Family::V6],
    }
}

fn addresses(servers: &[&DnsServer]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.address()).collect()
}

fn resolver(server: &DnsServer) -> Resolver {
    Resolver::new(config(&[server])).unwrap()
}

fn impatient(server: &DnsServer) -> Resolver {
    Resolver::new(ResolverConfig { timeout: SHORT, ..config(&[server]) }).unwrap()
}

fn found(texts: &[&str], ttl: u64) -> Resolution {
    let addresses = texts.iter().map(|text| text.parse().unwrap()).collect();
    Resolution::Addresses { addresses, ttl: Duration::from_secs(ttl) }
}

fn nothing(ttl: u64) -> Resolution {
    Resolution::Nothing { ttl: Some(Duration::from_secs(ttl)) }
}

fn boxed(reply: Reply) -> Box<Reply> {
    Box::new(reply)
}

#[tokio::test]
async fn families_come_in_order_of_preference_with_the_smallest_ttl() {
    let server = DnsServer::start();
    let both = Reply::per_family(Reply::ips(&["192.0.2.1"], 300), Reply::ips(&["2001:db8::1"], 200));
    server.set("a.example", both);
    assert_eq!(resolver(&server).resolve("a.example").await, found(&["192.0.2.1", "2001:db8::1"], 200));

    let families = vec![Family::V6, Family::V4];
    let reversed = Resolver::new(ResolverConfig { families, ..config(&[&server]) }).unwrap();
    assert_eq!(reversed.resolve("a.example").await, found(&["2001:db8::1", "192.0.2.1"], 200));
}

#[tokio::test]
async fn a_family_left_out_is_never_asked_for() {
    let server = DnsServer::start();
    server.set("a.example", Reply::ips(&["192.0.2.1", "2001:db8::1"], 300));
    server.set("six.example", Reply::ips(&["2001:db8::1"], 300));
    let only_v4 = Resolver::new(ResolverConfig { families: vec![Family::V4], ..config(&[&server]) }).unwrap();
    assert_eq!(only_v4.resolve("a.example").await, found(&["192.0.2.1"], 300));
    assert_eq!(only_v4.resolve("six.example").await, nothing(300));
    assert_eq!(only_v4.resolve("[2001:db8::1]").await, nothing(FIXED_TTL.as_secs()));
    assert!(server.asked().iter().all(|asked| asked.record_type == RecordType::A));
}

#[tokio::test]
async fn addresses_are_normalised_and_bounded() {
    let server = DnsServer::start();
    let mapped = Reply::ips(&["::ffff:192.0.2.1", "::", "2001:db8::1", "2001:db8::1"], 60);
    server.set("a.example", Reply::per_family(Reply::ips(&["192.0.2.1", "0.0.0.0"], 60), mapped));
    server.set("blocked.example", Reply::ips(&["0.0.0.0", "::"], 60));
    let many: Vec<String> = (1..=40).map(|n| format!("192.0.2.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    server.set("many.example", Reply::ips(&many, 60));

    let resolver = resolver(&server);
    assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.1", "2001:db8::1"], 60));
    assert_eq!(resolver.resolve("blocked.example").await, nothing(60));
    assert_eq!(resolver.resolve("many.example").await, found(&many[..16], 60));
}

#[tokio::test]
async fn lifetimes_are_the_name_servers() {
    let server = DnsServer::start();
    let resolver = resolver(&server);
    // Over 31 bits is nonsense, and counts as zero.
    for (ttl, meant) in [(0, 0), (30 * 86_400, 30 * 86_400), (u32::MAX, 0)] {
        server.set("a.example", Reply::ips(&["192.0.2.1"], ttl));
        assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.1"], meant));
    }
}

#[tokio::test]
async fn names_that_do_not_exist_are_final_for_as_long_as_the_zone_says() {
    let server = DnsServer::start();
    server.set("a.example", Reply::NoName(Some(77)));
    server.set("b.example", Reply::NoName(None));
    server.set("broken.example", Reply::per_family(Reply::ips(&["192.0.2.1"], 60), Reply::NoName(Some(9))));
    let slow = Reply::After(Duration::from_millis(600), boxed(Reply::ips(&["192.0.2.1"], 60)));
    server.set("slow.example", Reply::per_family(slow, Reply::NoName(Some(9))));

    let resolver = resolver(&server);
    assert_eq!(resolver.resolve("a.example").await, nothing(77));
    assert_eq!(resolver.resolve("b.example").await, Resolution::Nothing { ttl: None });
    assert_eq!(resolver.resolve("broken.example").await, found(&["192.0.2.1"], 60));
    assert_eq!(resolver.resolve("slow.example").await, found(&["192.0.2.1"], 60));

    server.set("c.example", Reply::per_family(Reply::NoName(Some(5)), Reply::Silence));
    assert_eq!(impatient(&server).resolve("c.example").await, nothing(5));
}

#[tokio::test]
async fn names_without_addresses_are_final_only_if_all_families_say_so() {
    let server = DnsServer::start();
    let (long, short) = (Reply::NoAddress(Some(90)), Reply::NoAddress(Some(30)));
    server.set("a.example", Reply::per_family(long, short));
    server.set("b.example", Reply::NoAddress(None));
    server.set("c.example", Reply::per_family(Reply::NoAddress(Some(30)), Reply::Silence));
    server.set("d.example", Reply::Records(vec![address("unrelated.example", "192.0.2.66", 60)]));

    let resolver = impatient(&server);
    assert_eq!(resolver.resolve("d.example").await, Resolution::Nothing { ttl: None });
    assert_eq!(resolver.resolve("a.example").await, nothing(30));
    assert_eq!(resolver.resolve("b.example").await, Resolution::Nothing { ttl: None });
    assert_eq!(resolver.resolve("c.example").await, Resolution::Unavailable);
}

#[tokio::test]
async fn what_cannot_be_believed_is_no_answer() {
    let server = DnsServer::start();
    let resolver = impatient(&server);
    let replies = [
        Reply::Code(ResponseCode::ServFail),
        Reply::Code(ResponseCode::Refused),
        Reply::Code(ResponseCode::FormErr),
        Reply::Code(ResponseCode::NotImp),
        Reply::Code(ResponseCode::Unknown(12)),
        Reply::Referral,
        Reply::Garbage,
        Reply::Silence,
    ];
    for (n, reply) in replies.into_iter().enumerate() {
        let name = format!("n{n}.example");
        server.set(&name, reply.clone());
        assert_eq!(resolver.resolve(&name).await, Resolution::Unavailable, "{reply:?}");
    }
}

#[tokio::test]
async fn a_failing_name_is_not_asked_again_and_again() {
    let server = DnsServer::start();
    server.set("a.example", Reply::Code(ResponseCode::ServFail));
    assert_eq!(resolver(&server).resolve("a.example").await, Resolution::Unavailable);
    assert_eq!(server.count("a.example"), 2, "once per family");
}

#[tokio::test]
async fn a_dead_family_does_not_delay_the_other() {
    let server = DnsServer::start();
    server.set("a.example", Reply::per_family(Reply::ips(&["192.0.2.1"], 60), Reply::Silence));
    server.set("b.example", Reply::per_family(Reply::Silence, Reply::ips(&["2001:db8::1"], 60)));
    let failed = Reply::Code(ResponseCode::ServFail);
    server.set("c.example", Reply::per_family(Reply::ips(&["192.0.2.1"], 60), failed));

    let resolver = resolver(&server);
    let started = Instant::now();
    assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.1"], 60));
    assert_eq!(resolver.resolve("b.example").await, found(&["2001:db8::1"], 60));
    assert_eq!(resolver.resolve("c.example").await, found(&["192.0.2.1"], 60));
    assert!(started.elapsed() < FAR / 2, "waited {:?}", started.elapsed());
}

#[tokio::test]
async fn the_slower_family_is_waited_for_a_little() {
    let server = DnsServer::start();
    let later = Reply::After(Duration::from_millis(20), boxed(Reply::ips(&["2001:db8::1"], 60)));
    server.set("a.example", Reply::per_family(Reply::ips(&["192.0.2.1"], 60), later));
    assert_eq!(resolver(&server).resolve("a.example").await, found(&["192.0.2.1", "2001:db8::1"], 60));
}

#[tokio::test]
async fn silence_ends_with_the_timeout() {
    let server = DnsServer::answering(|_| Reply::Silence);
    let started = Instant::now();
    let ended = timeout(FAR, impatient(&server).resolve("a.example")).await;
    assert_eq!(ended, Ok(Resolution::Unavailable));
    assert!(started.elapsed() >= SHORT);

    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let servers = Servers::List(vec![nobody]);
    let config = ResolverConfig { servers, timeout: SHORT, ..config(&[]) };
    let ended = timeout(FAR, Resolver::new(config).unwrap().resolve("a.example")).await;
    assert_eq!(ended, Ok(Resolution::Unavailable));
}

#[tokio::test]
async fn absurd_timeouts_are_survived() {
    let server = DnsServer::start();
    server.set("a.example", Reply::ips(&["192.0.2.1"], 60));
    let with = |timeout| Resolver::new(ResolverConfig { timeout, ..config(&[&server]) }).unwrap();
    assert_eq!(with(Duration::MAX).resolve("a.example").await, found(&["192.0.2.1"], 60));
    assert_eq!(with(Duration::ZERO).resolve("a.example").await, Resolution::Unavailable);
}

#[tokio::test]
async fn a_lost_packet_is_sent_again() {
    let server = DnsServer::start();
    server.set("a.example", Reply::Each(vec![Reply::Silence, Reply::ips(&["192.0.2.1"], 60)]));
    assert_eq!(resolver(&server).resolve("a.example").await, found(&["192.0.2.1"], 60));
}

#[tokio::test]
async fn packets_with_a_wrong_id_are_ignored() {
    let server = DnsServer::start();
    server.set("a.example", Reply::Spoofed(boxed(Reply::ips(&["192.0.2.1"], 60))));
    assert_eq!(resolver(&server).resolve("a.example").await, found(&["192.0.2.1"], 60));
    assert_eq!(server.count("a.example"), 2, "once per family");
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_fails() {
    for reply in [Reply::Code(ResponseCode::Refused), Reply::Code(ResponseCode::ServFail), Reply::Garbage] {
        let broken = DnsServer::answering(move |_| reply.clone());
        let good = DnsServer::start();
        good.set("a.example", Reply::ips(&["192.0.2.1", "2001:db8::1"], 60));
        let resolver = Resolver::new(config(&[&broken, &good])).unwrap();
        assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.1", "2001:db8::1"], 60));
        assert_eq!(resolver.resolve("b.example").await, nothing(60));
    }
}

#[tokio::test]
async fn a_dead_server_is_found_out_once() {
    let dead = DnsServer::answering(|_| Reply::Silence);
    let good = DnsServer::start();
    good.set("a.example", Reply::ips(&["192.0.2.1"], 60));
    let resolver = Resolver::new(config(&[&dead, &good])).unwrap();
    assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.1"], 60));
    let before = dead.asked().len();
    assert!(before > 0);
    assert_eq!(resolver.resolve("b.example").await, nothing(60));
    assert_eq!(dead.count("b.example"), 0);
}

#[tokio::test]
async fn a_slow_server_may_still_be_the_first_to_answer() {
    let slow = DnsServer::start();
    slow.set("a.example", Reply::After(Duration::from_millis(1500), boxed(Reply::ips(&["192.0.2.1"], 60))));
    let dead = DnsServer::answering(|_| Reply::Silence);
    let resolver = Resolver::new(config(&[&slow, &dead])).unwrap();
    assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.1"], 60));
    assert!(dead.count("a.example") > 0);
}

#[tokio::test]
async fn truncated_answers_are_asked_for_over_tcp() {
    let server = DnsServer::start();
    server.set("a.example", Reply::Truncated(boxed(Reply::ips(&["192.0.2.1", "2001:db8::1"], 60))));
    assert_eq!(resolver(&server).resolve("a.example").await, found(&["192.0.2.1", "2001:db8::1"], 60));
    let over_tcp = server.asked().iter().filter(|asked| asked.transport == Transport::Tcp).count();
    assert_eq!(over_tcp, 2, "once per family");
}

#[tokio::test]
async fn the_shortest_link_of_a_chain_decides() {
    let server = DnsServer::start();
    let chain = || vec![alias("a.example", "b.example", 50), alias("b.example", "c.example", 40)];
    let mut whole = chain();
    whole.push(address("c.example", "192.0.2.1", 300));
    whole.push(address("unrelated.example", "192.0.2.66", 1));
    let v6 = Reply::NoAddress(Some(5));
    server.set("a.example", Reply::per_family(Reply::Records(whole), v6.clone()));
    let only_v4 = || ResolverConfig { families: vec![Family::V4], ..config(&[&server]) };
    let resolver = Resolver::new(only_v4()).unwrap();
    assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.1"], 40));

    // The same chain in two replies.
    server.set("a.example", Reply::Records(chain()));
    server.set("c.example", Reply::per_family(Reply::ips(&["192.0.2.2"], 300), v6));
    assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.2"], 40));

    // The end of the chain is the first to expire.
    server.set("c.example", Reply::ips(&["192.0.2.3"], 30));
    assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.3"], 30));
}

#[tokio::test]
async fn chains_that_lead_nowhere_end() {
    let server = DnsServer::start();
    server.set("a.example", Reply::Records(vec![alias("a.example", "gone.example", 50)]));
    server.set("gone.example", Reply::NoName(Some(20)));
    server.set("x.example", Reply::Records(vec![alias("x.example", "y.example", 50)]));
    server.set("y.example", Reply::Records(vec![alias("y.example", "x.example", 50)]));
    let resolver = resolver(&server);
    assert_eq!(resolver.resolve("a.example").await, nothing(20));
    assert_eq!(resolver.resolve("x.example").await, Resolution::Nothing { ttl: None });
}

#[tokio::test]
async fn names_are_asked_as_they_are_and_every_time() {
    let server = DnsServer::start();
    server.set("a.example", Reply::ips(&["192.0.2.1"], 3600));
    server.set("short", Reply::ips(&["192.0.2.2"], 3600));
    let resolver = resolver(&server);
    for name in ["a.example", "A.Example."] {
        assert_eq!(resolver.resolve(name).await, found(&["192.0.2.1"], 3600));
    }
    assert_eq!(server.count_of("a.example", RecordType::A), 2, "caching is not the resolver's");
    assert_eq!(resolver.resolve("short").await, found(&["192.0.2.2"], 3600));
    assert_eq!(server.asked().len(), 6, "no search domains: {:?}", server.asked());
}

#[tokio::test]
async fn names_that_no_server_can_know_are_not_asked() {
    let server = DnsServer::start();
    let resolver = resolver(&server);
    let (long_label, long_name) = ("a".repeat(64), "a.".repeat(130));
    for name in ["", ".", "a..example", ".example", &long_label, &long_name] {
        assert_eq!(resolver.resolve(name).await, Resolution::Nothing { ttl: None }, "{name:?}");
    }
    assert_eq!(server.asked(), []);
}

#[tokio::test]
async fn literals_and_localhost_are_not_asked() {
    let server = DnsServer::start();
    let resolver = resolver(&server);
    let fixed = FIXED_TTL.as_secs();
    assert_eq!(resolver.resolve("192.0.2.7").await, found(&["192.0.2.7"], fixed));
    assert_eq!(resolver.resolve("2001:DB8::7").await, found(&["2001:db8::7"], fixed));
    assert_eq!(resolver.resolve("[2001:db8::7]").await, found(&["2001:db8::7"], fixed));
    assert_eq!(resolver.resolve("[::ffff:192.0.2.7]").await, found(&["192.0.2.7"], fixed));
    assert_eq!(resolver.resolve("0.0.0.0").await, nothing(fixed));
    for name in ["localhost", "LOCALHOST.", "a.b.localhost"] {
        assert_eq!(resolver.resolve(name).await, found(&["127.0.0.1", "::1"], fixed), "{name}");
    }
    assert_eq!(server.asked(), []);
    assert_eq!(resolver.resolve("notlocalhost").await, nothing(60));
}

#[tokio::test]
async fn the_hosts_file_comes_first_and_is_read_again() {
    let server = DnsServer::start();
    server.set("a.example", Reply::ips(&["192.0.2.99"], 60));
    server.set("b.example", Reply::ips(&["192.0.2.98"], 60));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hosts");
    std::fs::write(&path, "2001:db8::1 a.example\n192.0.2.1 a.example app.localhost\n::1%lo six.example\n")
        .unwrap();
    let hosts_file = Some(path.clone());
    let resolver = Resolver::new(ResolverConfig { hosts_file, ..config(&[&server]) }).unwrap();

    let ttl = HOSTS_FILE_TTL.as_secs();
    assert_eq!(resolver.resolve("A.example").await, found(&["192.0.2.1", "2001:db8::1"], ttl));
    assert_eq!(resolver.resolve("app.localhost").await, found(&["192.0.2.1"], ttl));
    assert_eq!(resolver.resolve("six.example").await, found(&["::1"], ttl));
    assert_eq!(resolver.resolve("b.example").await, found(&["192.0.2.98"], 60));
    assert_eq!(server.count("a.example"), 0);

    std::fs::write(&path, "# nothing but\n192.0.2.2 b.example\n").unwrap();
    until("the new file is in force", async || {
        resolver.resolve("b.example").await == found(&["192.0.2.2"], ttl)
    })
    .await;
    assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.99"], 60));
}

/// Asks until `condition` holds, at most [`FAR`].
async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + FAR;
    while !condition().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_name_in_the_hosts_file_is_decided_there() {
    let server = DnsServer::answering(|_| Reply::ips(&["192.0.2.99"], 60));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hosts");
    std::fs::write(&path, "0.0.0.0 blocked.example\n2001:db8::1 six.example\n").unwrap();
    let config = ResolverConfig { hosts_file: Some(path), families: vec![Family::V4], ..config(&[&server]) };
    let resolver = Resolver::new(config).unwrap();
    assert_eq!(resolver.resolve("blocked.example").await, nothing(HOSTS_FILE_TTL.as_secs()));
    assert_eq!(resolver.resolve("six.example").await, nothing(HOSTS_FILE_TTL.as_secs()));
    assert_eq!(server.asked(), []);
}

#[tokio::test]
async fn the_longest_zone_is_asked() {
    let [outside, corp, lab] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
        .map(|ip| DnsServer::answering(move |_| Reply::ips(&[ip], 60)));
    let zones =
        vec![("Corp.Test.".into(), addresses(&[&corp])), (".lab.corp.test".into(), addresses(&[&lab]))];
    let resolver = Resolver::new(ResolverConfig { zones, ..config(&[&outside]) }).unwrap();
    let cases = [
        ("corp.test", "192.0.2.2"),
        ("www.corp.test", "192.0.2.2"),
        ("lab.corp.test", "192.0.2.3"),
        ("a.b.lab.CORP.test", "192.0.2.3"),
        ("notlab.corp.test", "192.0.2.2"),
        ("notcorp.test", "192.0.2.1"),
        ("test", "192.0.2.1"),
        ("corp.test.example", "192.0.2.1"),
    ];
    for (name, ip) in cases {
        assert_eq!(resolver.resolve(name).await, found(&[ip], 60), "{name}");
    }
    assert_eq!(outside.count("www.corp.test"), 0);
}

#[tokio::test]
async fn a_dead_zone_does_not_fall_back_to_the_servers_outside() {
    let outside = DnsServer::answering(|_| Reply::ips(&["192.0.2.1"], 60));
    let dead = DnsServer::answering(|_| Reply::Silence);
    let zones = vec![("corp.test".into(), addresses(&[&dead]))];
    let config = ResolverConfig { zones, timeout: SHORT, ..config(&[&outside]) };
    assert_eq!(Resolver::new(config).unwrap().resolve("a.corp.test").await, Resolution::Unavailable);
    assert_eq!(outside.asked(), []);
}

#[tokio::test]
async fn a_dropped_look_up_leaves_nothing_stuck() {
    let server = DnsServer::start();
    server.set("a.example", Reply::Silence);
    let resolver = resolver(&server);
    for _ in 0..300 {
        let dropped = timeout(Duration::from_millis(1), resolver.resolve("a.example")).await;
        assert!(dropped.is_err());
    }
    server.set("a.example", Reply::ips(&["192.0.2.1"], 60));
    server.set("b.example", Reply::ips(&["192.0.2.2"], 60));
    assert_eq!(resolver.resolve("a.example").await, found(&["192.0.2.1"], 60));
    assert_eq!(resolver.resolve("b.example").await, found(&["192.0.2.2"], 60));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_names_at_once_are_all_answered() {
    let server = DnsServer::answering(|_| Reply::ips(&["192.0.2.1", "2001:db8::1"], 60));
    let ended = resolve_thousand(resolver(&server)).await;
    let answered = |resolution: &&Resolution| matches!(resolution, Resolution::Addresses { .. });
    assert_eq!(ended.iter().filter(answered).count(), 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_names_at_once_all_end_when_nobody_answers() {
    let server = DnsServer::answering(|_| Reply::Silence);
    let ended = resolve_thousand(impatient(&server)).await;
    assert_eq!(ended, vec![Resolution::Unavailable; 1000]);
}

async fn resolve_thousand(resolver: Resolver) -> Vec<Resolution> {
    let resolver = Arc::new(resolver);
    let mut asked = JoinSet::new();
    for n in 0..1000 {
        let resolver = Arc::clone(&resolver);
        asked.spawn(async move { resolver.resolve(&format!("host-{n}.example")).await });
    }
    timeout(FAR, asked.join_all()).await.expect("every look-up ends")
}
