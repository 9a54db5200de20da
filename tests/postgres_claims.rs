//! Servers that share an index in PostgreSQL, as the index sees them: who may have which claim, and when.
//!
//! Nothing is asserted of how long things take: expiries are looked up in the database, and a trigger there writes
//! down every claim that changed hands too early.

#[path = "support/peer.rs"]
mod peer;
#[path = "support/postgres.rs"]
mod postgres;

use peer::{LONG, Peer, SHORT, good, host, hosts, ip, sql_is};
use postgres::{assert_well_kept, database_of, new_database, new_watched_database, shared, sql};
use std::collections::HashSet;
use std::time::Duration;
use urlserver::claim::{ClaimAction, ClaimNews, OwedClock, Wish};
use urlserver::index::{Added, Addition, IndexEvent};
use urlserver::url::Url;

#[test]
fn pass_two_servers_never_get_the_same_host() {
    let url = new_watched_database();
    let (mut a, mut b) = (Peer::start(&url, "a", LONG), Peer::start(&url, "b", LONG));
    let urls: Vec<String> = (0..40).map(|n| format!("http://h{}.example/{n}", n % 8)).collect();
    a.add(&urls.iter().map(String::as_str).collect::<Vec<_>>());
    let (first, second) = (a.take(12), b.take(100));
    let (a_hosts, b_hosts) = (hosts(&first), hosts(&second));
    assert!(a_hosts.is_disjoint(&b_hosts) && !a_hosts.is_empty() && !b_hosts.is_empty());
    let (nothing, complete) = b.ask(100);
    assert!(nothing.is_empty() && !complete, "what the other has may come to us yet");
    let rest = a.take(100);
    a.report(&first);
    a.report(&rest);
    b.report(&second);
    a.until_counted("done", (first.len() + rest.len()) as u64);
    b.until_counted("done", second.len() as u64);
    assert_eq!(sql(&url, "SELECT count(*) FROM docs WHERE state = 1"), "40");
    a.close();
    b.close();
    assert_well_kept(&url);
}

#[test]
fn pass_documents_that_are_open_under_claims_of_ours_are_more_to_come() {
    let url = new_watched_database();
    let mut a = Peer::start(&url, "a", SHORT);
    a.add(&["http://h.example/1"]);
    let list = a.take(9);
    let (nothing, complete) = a.ask(9);
    assert!(nothing.is_empty() && !complete, "it has not ended");
    a.report(&list);
    a.give_back(&host("h.example"), OwedClock::default(), None);
    assert_eq!(a.ask(9), (Vec::new(), true));
    // A claim that the database has given, and nobody has heard of.
    a.add(&["http://i.example/1"]);
    sql(&url, "UPDATE hosts SET holder = (SELECT epoch FROM instances) WHERE host = 'i.example'");
    let (nothing, complete) = a.ask(9);
    assert!(nothing.is_empty() && !complete, "it is looked for");
    let list = a.take(9);
    a.report(&list);
    a.give_back(&host("i.example"), OwedClock::default(), None);
    assert_eq!(a.ask(9), (Vec::new(), true));
    a.close();
    assert_well_kept(&url);
}

#[test]
fn pass_a_claim_given_back_is_free_at_once_and_its_clock_goes_with_it() {
    let url = new_watched_database();
    let (mut a, mut b) = (Peer::start(&url, "a", LONG), Peer::start(&url, "b", LONG));
    a.add(&["http://h.example/1", "http://h.example/2"]);
    let list = a.take(1);
    assert_eq!(good(&a.want(&host("h.example"))), OwedClock::default(), "new");
    assert_eq!(good(&a.want(&ip("192.0.2.1"))), OwedClock::default());
    assert!(matches!(b.want(&ip("192.0.2.1")), ClaimNews::Elsewhere { younger: false, .. }));
    a.report(&list);
    let owed = |opens, held, strikes| OwedClock {
        opens_in: Duration::from_secs(opens),
        held_for: Duration::from_secs(held),
        strikes,
        gap: Duration::from_secs(7),
        dark_since: None,
    };
    a.give_back(&host("h.example"), owed(3000, 5000, 3), None);
    a.give_back(&ip("192.0.2.1"), owed(4000, 0, 0), None);
    assert_eq!(b.take(9).len(), 1, "only what is open");
    let clock = good(&b.want(&host("h.example")));
    assert!((2000..=3000).contains(&clock.opens_in.as_secs()), "{clock:?}");
    assert!((4000..=5000).contains(&clock.held_for.as_secs()), "{clock:?}");
    assert_eq!((clock.strikes, clock.dark_since, clock.gap), (3, None, Duration::from_secs(7)));
    let clock = good(&b.want(&ip("192.0.2.1")));
    assert!((3000..=4000).contains(&clock.opens_in.as_secs()) && clock.held_for.is_zero(), "{clock:?}");
    assert_well_kept(&url);
}

#[test]
fn pass_a_host_goes_to_whoever_holds_its_address() {
    let url = new_watched_database();
    let (mut a, mut b) = (Peer::start(&url, "a", LONG), Peer::start(&url, "b", LONG));
    let mut c = Peer::start(&url, "c", LONG);
    a.add(&["http://h.example/1"]);
    good(&b.want(&ip("192.0.2.1")));
    a.take(9);
    assert!(matches!(a.want(&ip("192.0.2.1")), ClaimNews::Elsewhere { younger: true, .. }));
    a.give_back(&host("h.example"), OwedClock::default(), Some(ip("192.0.2.1")));
    assert!(a.ask(9).0.is_empty() && c.ask(9).0.is_empty(), "it is promised to another");
    assert_eq!(b.take(9).len(), 1);
    assert_well_kept(&url);
}

#[test]
fn pass_whoever_came_first_gets_the_key_that_it_insists_on() {
    let url = new_watched_database();
    let (mut a, mut b) = (Peer::start(&url, "a", SHORT), Peer::start(&url, "b", SHORT));
    let key = ip("192.0.2.1");
    good(&b.want(&key));
    a.index.claim(ClaimAction::Want { key: key.clone(), wish: Wish::Urgent });
    let wanted = sql_is(&url, "SELECT count(*) FROM keys WHERE wanted_by IS NOT NULL", "1");
    a.run_until(wanted);
    let told = ClaimNews::WantedElsewhere(key.clone());
    b.until(|event| matches!(event, IndexEvent::Claims(news) if news.contains(&told)));
    b.give_back(&key, OwedClock::default(), None);
    good(&a.answer_to(&key));
    assert_well_kept(&url);
}

#[test]
fn fail_while_claimed_with_nothing_in_flight_is_over_after_the_first_expiry() {
    // The second is far away.
    let url = new_watched_database();
    let expiries = (SHORT.0, LONG.1);
    let mut a = Peer::start(&url, "a", expiries);
    a.add(&["http://idle.example/1", "http://busy.example/1"]);
    assert_eq!(a.take(9).len(), 2);
    good(&a.want(&host("busy.example")));
    good(&a.want(&ip("192.0.2.1")));
    a.kill();
    let mut b = Peer::start(&url, "b", expiries);
    assert_eq!(hosts(&b.take(9)), HashSet::from(["idle.example"]));
    assert_eq!(good(&b.want(&host("idle.example"))).dark_since, None, "nothing was sent there");
    b.index.claim(ClaimAction::Want { key: ip("192.0.2.1"), wish: Wish::Plain });
    let again = sql(&url, "SELECT expires_1 FROM instances WHERE name = 'b'");
    b.run_until(|| sql(&url, "SELECT expires_1 FROM instances WHERE name = 'b'") != again);
    assert!(b.ask(9).0.is_empty(), "the other waits for the second expiry");
    assert_eq!(sql(&url, "SELECT count(*) FROM keys WHERE holder IS NOT NULL"), "1");
    assert_well_kept(&url);
}

#[test]
fn fail_while_in_flight_is_over_after_the_second_expiry() {
    let url = new_watched_database();
    let mut a = Peer::start(&url, "a", SHORT);
    a.add(&["http://busy.example/1"]);
    let lost = a.take(9);
    good(&a.want(&host("busy.example")));
    good(&a.want(&ip("192.0.2.1")));
    let noted = OwedClock { held_for: Duration::from_secs(5000), strikes: 2, ..OwedClock::default() };
    a.index.claim(ClaimAction::Note { key: host("busy.example"), clock: noted });
    a.run_until(sql_is(&url, "SELECT strikes FROM hosts", "2"));
    a.kill();
    let mut b = Peer::start(&url, "b", SHORT);
    assert_eq!(b.take(9), lost, "nothing is lost");
    let clock = good(&b.want(&host("busy.example")));
    assert!(clock.dark_since.is_some(), "the other may have sent until its claim ended");
    assert!(clock.held_for > Duration::from_secs(4000) && clock.strikes == 2, "{clock:?}");
    b.index.claim(ClaimAction::Want { key: ip("192.0.2.1"), wish: Wish::Plain });
    assert!(good(&b.answer_to(&ip("192.0.2.1"))).dark_since.is_some());
    b.report(&lost);
    b.until_counted("done", 1);
    assert_eq!(sql(&url, "SELECT count(*) FROM instances"), "1", "the dead are buried");
    assert_well_kept(&url);
}

#[test]
fn delay_past_the_first_expiry_keeps_what_is_in_flight_and_says_what_is_lost() {
    let url = new_watched_database();
    let expiries = (SHORT.0, LONG.1);
    let (mut a, mut b) = (Peer::start(&url, "a", expiries), Peer::start(&url, "b", expiries));
    a.add(&["http://idle.example/1", "http://busy.example/1"]);
    let list = a.take(9);
    good(&a.want(&host("busy.example")));
    // a stops here; b goes on.
    assert_eq!(hosts(&b.take(9)), HashSet::from(["idle.example"]));
    a.heard.clear();
    a.report(&list);
    a.until(|event| matches!(event, IndexEvent::Claims(news) if news.iter().any(|news| matches!(news, ClaimNews::Renewed(_)))));
    let renewed = a.heard.iter().position(|news| matches!(news, ClaimNews::Renewed(_)));
    let lost = a.heard.iter().position(|news| *news == ClaimNews::Lost(host("idle.example")));
    assert!(lost.is_some() && lost < renewed, "it hears of the loss before it may go on: {:?}", a.heard);
    a.until_counted("refused", 1);
    a.until_counted("done", 1);
    assert_eq!(sql(&url, "SELECT url FROM docs WHERE state = 0"), "http://idle.example/1");
    assert_well_kept(&url);
}

#[test]
fn delay_past_the_second_expiry_loses_all_and_reports_are_refused() {
    let url = new_watched_database();
    let (mut a, mut b) = (Peer::start(&url, "a", SHORT), Peer::start(&url, "b", SHORT));
    a.add(&["http://busy.example/1"]);
    let list = a.take(9);
    good(&a.want(&host("busy.example")));
    good(&a.want(&ip("192.0.2.1")));
    assert_eq!(b.take(9), list);
    good(&b.want(&host("busy.example")));
    b.run_until(sql_is(&url, "SELECT count(*) FROM instances WHERE name = 'a'", "0"));
    a.heard.clear();
    a.report(&list);
    a.until(|event| matches!(event, IndexEvent::Claims(news) if news.contains(&ClaimNews::AllLost)));
    a.until_counted("refused", 1);
    assert_eq!(sql(&url, "SELECT count(*) FROM docs WHERE state = 0"), "1", "it changed nothing");
    b.report(&list);
    b.until_counted("done", 1);
    assert_eq!(sql(&url, "SELECT count(*) FROM ends"), "1");
    assert_well_kept(&url);
}

#[test]
fn delay_of_an_answer_that_never_comes_does_not_hide_a_loss() {
    // a renews, and the answer is lost; meanwhile a claim was taken. The next renewal is in time, and must say so.
    let url = new_watched_database();
    let expiries = (SHORT.0, LONG.1);
    let (mut a, mut b) = (Peer::start(&url, "a", expiries), Peer::start(&url, "b", expiries));
    a.add(&["http://idle.example/1"]);
    a.take(9);
    b.take(9);
    sql(&url, "UPDATE instances SET expires_1 = clock_timestamp() + interval '1 hour' WHERE name = 'a'");
    a.heard.clear();
    a.until(|event| matches!(event, IndexEvent::Claims(news) if news.iter().any(|news| matches!(news, ClaimNews::Renewed(_)))));
    assert_eq!(a.heard.first(), Some(&ClaimNews::Lost(host("idle.example"))), "{:?}", a.heard);
}

#[test]
fn a_report_that_arrived_though_nobody_could_say_so_is_no_refusal() {
    let url = new_watched_database();
    let mut a = Peer::start(&url, "a", LONG);
    a.add(&["http://h.example/1"]);
    let list = a.take(9);
    a.report(&list);
    a.until_counted("done", 1);
    a.report(&list);
    a.until_counted("refused", 1);
    assert_eq!(sql(&url, "SELECT count(*) FROM ends"), "1");
    assert_well_kept(&url);
}

#[test]
fn names_and_urls_are_each_taken_once() {
    let url = new_database();
    let mut a = Peer::start(&url, "a", LONG);
    let mut add = |doc: Option<u64>, text: &str| {
        let url = Url::parse(text).expect(text);
        let new = Addition { doc: doc.map(urlserver::ids::DocId), url, not_before: None };
        a.add_all(vec![new])[0]
    };
    let accepted = |doc| Added::Accepted(urlserver::ids::DocId(doc));
    assert_eq!(add(Some(2), "http://h.example/a"), accepted(2));
    assert_eq!(add(Some(2), "http://h.example/b"), Added::IdTaken);
    assert_eq!(add(Some(3), "http://h.example/a"), Added::Duplicate);
    assert_eq!(add(None, "http://h.example/b"), accepted(1));
    assert_eq!(add(None, "http://h.example/c"), accepted(3), "2 is taken");
    assert_eq!(add(Some(u64::MAX), "http://h.example/d"), accepted(u64::MAX));
}

#[test]
fn tables_are_made_once_however_many_begin_at_once() {
    let url = new_database();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(urlserver::index::postgres::migrate(&url))
            })
        })
        .collect();
    let versions: HashSet<i32> =
        threads.into_iter().map(|thread| thread.join().expect("no panic").expect("tables").to).collect();
    assert_eq!(versions, HashSet::from([2]));
    sql(&url, "UPDATE schema_version SET version = 99");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let error = runtime.block_on(urlserver::index::postgres::migrate(&url)).expect_err("from the future");
    assert!(error.to_string().contains("99"), "{error}");
}

#[test]
fn tls_is_used_and_checked_as_the_url_says() {
    let url = new_database();
    let server = shared();
    let at = |host: &str, query: &str| {
        format!("postgres://postgres@{host}:{}/{}?{query}", server.port, database_of(&url))
    };
    let migrate = |url: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(urlserver::index::postgres::migrate(url))
    };
    let root = server.root_certificate.display();
    migrate(&at("127.0.0.1", "sslmode=require")).expect("encrypted, to whomever");
    migrate(&at("127.0.0.1", &format!("sslmode=verify-full&sslrootcert={root}"))).expect("the right one");
    migrate(&at("localhost", &format!("sslmode=verify-full&sslrootcert={root}"))).expect("by name");
    let error = migrate(&at("127.0.0.1", "sslmode=verify-full")).expect_err("nobody the public trusts");
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
}
