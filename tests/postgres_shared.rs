//! What servers that share an index know of each other by way of the database: claims that rest, attempts, orders and
//! holds; what they do about statements whose fate they do not know; and databases that earlier versions have made.

#[path = "support/peer.rs"]
mod peer;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;

use peer::{DEADLINE, LONG, Peer, SHORT, good, host, hosts, ip, sql_is};
use postgres::{assert_well_kept, database_of, new_database, new_watched_database, shared, sql};
use proxy::{Proxy, When};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use urlserver::claim::{ClaimAction, ClaimKey, ClaimNews, OwedClock, Wish};
use urlserver::document::Tried;
use urlserver::index::IndexEvent;
use urlserver::order::{Order, Standing, Subject};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn say(name: &str, order: Order) -> Subject {
    Subject::Host { host: name.into(), order }
}

#[test]
fn fail_while_a_claim_rests_is_over_after_the_first_expiry_and_its_clock_is_as_it_was_left() {
    // The second is far away.
    let url = new_watched_database();
    let expiries = (SHORT.0, LONG.1);
    let mut a = Peer::start(&url, "a", expiries);
    a.add(&["http://busy.example/1", "http://quiet.example/1"]);
    a.take(9);
    for key in [host("busy.example"), host("quiet.example"), ip("192.0.2.1")] {
        good(&a.want(&key));
    }
    let clock =
        OwedClock { opens_in: secs(3000), held_for: secs(5000), strikes: 2, gap: secs(9), dark_since: None };
    for key in [host("quiet.example"), ip("192.0.2.1")] {
        a.index.claim(ClaimAction::Rest { key, clock });
    }
    a.until_counted("rested", 2);
    a.kill();
    let mut b = Peer::start(&url, "b", expiries);
    assert_eq!(hosts(&b.take(9)), HashSet::from(["quiet.example"]));
    for key in [host("quiet.example"), ip("192.0.2.1")] {
        let found = good(&b.want(&key));
        assert!(found.opens_in > secs(2000) && found.held_for > secs(4000), "{found:?}");
        assert_eq!((found.strikes, found.dark_since), (2, None), "nothing was sent that it does not know of");
    }
    assert_eq!(sql(&url, "SELECT count(*) FROM hosts WHERE holder IS NOT NULL AND in_flight"), "2");
    assert_well_kept(&url);
}

#[test]
fn delay_a_claim_that_was_woken_in_time_is_not_taken_after_the_first_expiry() {
    let url = new_watched_database();
    let expiries = (SHORT.0, LONG.1);
    let mut a = Peer::start(&url, "a", expiries);
    a.add(&["http://h.example/1"]);
    a.take(9);
    good(&a.want(&host("h.example")));
    a.index.claim(ClaimAction::Rest { key: host("h.example"), clock: OwedClock::default() });
    good(&a.want(&host("h.example")));
    a.kill();
    let mut b = Peer::start(&url, "b", expiries);
    let late = sql_is(
        &url,
        "SELECT count(*) FROM instances WHERE name = 'a' AND expires_1 < clock_timestamp()",
        "1",
    );
    b.run_until(late);
    let renewed = sql(&url, "SELECT expires_1 FROM instances WHERE name = 'b'");
    b.run_until(|| sql(&url, "SELECT expires_1 FROM instances WHERE name = 'b'") != renewed);
    assert!(b.ask(9).0.is_empty(), "something is in flight");
    assert_well_kept(&url);
}

#[test]
fn delay_of_a_word_that_nobody_waits_for_any_more_cannot_come_after_a_later_one() {
    let url = new_watched_database();
    let mut a = Peer::start(&url, "a", LONG);
    a.add(&["http://h.example/1"]);
    a.take(9);
    good(&a.want(&host("h.example")));
    // What an earlier connection had sent, which was given up: it is carried out slowly.
    let name = database_of(&url).to_owned();
    let slow = std::thread::spawn(move || {
        let epoch = "(SELECT max(epoch) FROM instances)";
        let sql = format!(
            "BEGIN;
             INSERT INTO guards (epoch) SELECT {epoch} ON CONFLICT (epoch) DO UPDATE SET epoch = excluded.epoch;
             SELECT pg_sleep(1.5);
             UPDATE hosts SET in_flight = false WHERE holder = {epoch};
             COMMIT"
        );
        shared().run_sql(&name, &sql)
    });
    let begun =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(1.5)%' AND wait_event = 'PgSleep'";
    a.run_until(sql_is(&url, begun, "1"));
    good(&a.want(&host("h.example")));
    slow.join().expect("no panic");
    assert_eq!(sql(&url, "SELECT in_flight FROM hosts"), "t", "the later word counts");
}

#[test]
fn fail_a_claim_that_was_given_without_our_knowing_is_given_back() {
    let url = new_watched_database();
    let proxy = Proxy::to(&url);
    let mut a = Peer::start(&proxy.url, "a", SHORT);
    a.add(&["http://h.example/1"]);
    proxy.arm("claim_hosts", When::After);
    assert!(a.index.ask(9, Vec::new()));
    a.run_until(|| proxy.has_sprung());
    assert_eq!(sql(&url, "SELECT count(*) FROM hosts WHERE holder IS NOT NULL"), "1", "it was claimed");
    // The way to the database is lost, and found again at once: we are who we were.
    proxy.cut();
    proxy.mend();
    a.until(|event| matches!(event, IndexEvent::Answered { .. }));
    assert_eq!(a.take(9).len(), 1, "it is not lost");
    assert_eq!(sql(&url, "SELECT count(*) FROM instances"), "1");
}

#[test]
fn pass_what_others_lose_between_our_claim_and_our_look_around_is_not_the_end() {
    let url = new_watched_database();
    let proxy = Proxy::to(&url);
    let mut a = Peer::start(&url, "a", LONG);
    a.add(&["http://h.example/1"]);
    a.take(9);
    let mut b = Peer::start(&proxy.url, "b", LONG);
    proxy.arm("claim_hosts", When::After);
    assert!(b.index.ask(9, Vec::new()));
    b.run_until(|| proxy.has_sprung());
    a.give_back(&host("h.example"), OwedClock::default(), None);
    proxy.release();
    let said = b.until(|event| matches!(event, IndexEvent::Answered { .. }));
    assert!(matches!(said.last(), Some(IndexEvent::Answered { complete: false, .. })), "{said:?}");
    assert_eq!(b.take(9).len(), 1);
}

#[test]
fn pass_a_transaction_that_cannot_be_serialized_is_done_again() {
    let url = new_watched_database();
    let proxy = Proxy::to(&url);
    let strict = format!("{}&options=-c%20default_transaction_isolation%3Dserializable", proxy.url);
    // Whatever waits for the next renewal waits for too long.
    let mut a = Peer::start(&strict, "a", (secs(3600), secs(7200)));
    a.add(&["http://h.example/1"]);
    a.take(9);
    proxy.arm("guard", When::After);
    a.index.claim(ClaimAction::Want { key: host("h.example"), wish: Wish::Plain });
    a.run_until(|| proxy.has_sprung());
    sql(&url, "UPDATE hosts SET strikes = 7");
    proxy.release();
    assert_eq!(good(&a.answer_to(&host("h.example"))).strikes, 7);
    a.close();
    assert_well_kept(&url);
}

#[test]
fn attempts_go_with_the_document_and_are_fenced() {
    let url = new_watched_database();
    let (mut a, mut b) = (Peer::start(&url, "a", LONG), Peer::start(&url, "b", LONG));
    a.add(&["http://h.example/1", "http://h.example/2"]);
    let list = a.take(9);
    assert_eq!(list[0].tried, Tried::default());
    let note = |doc, sends, lost, wait| {
        let tried = Tried { sends, lost };
        ClaimAction::Tried { doc, tried, wait: secs(wait) }
    };
    a.index.claim(note(list[0].doc, 1, 0, 5));
    a.index.claim(note(list[0].doc, 2, 1, 5000));
    a.give_back(&host("h.example"), OwedClock::default(), None);
    let again = b.take(9);
    assert_eq!((again[0].doc, again[0].tried), (list[0].doc, Tried { sends: 2, lost: 1 }));
    assert!(again[0].wait > secs(4000) && again[1].wait == Duration::ZERO, "{again:?}");
    assert_eq!(again[1].tried, Tried::default());
    // Whoever has lost the host counts no more.
    a.index.claim(note(list[1].doc, 3, 3, 5));
    a.give_back(&host("x.example"), OwedClock::default(), None);
    assert_eq!(sql(&url, "SELECT sum(attempts) FROM docs"), "2");
}

#[test]
fn orders_are_numbered_by_the_database_and_the_holder_hears_the_last_one() {
    let url = new_watched_database();
    let (mut a, mut b) = (Peer::start(&url, "a", SHORT), Peer::start(&url, "b", SHORT));
    a.add(&["http://h.example/1"]);
    a.take(9);
    good(&a.want(&host("h.example")));
    let paused = Standing { paused: true, ..Standing::default() };
    assert_eq!(b.order(say("h.example", Order::Pause)), Ok(paused));
    let delayed = Standing { delay: secs(7), ..paused };
    assert_eq!(a.order(say("h.example", Order::Delay(secs(7)))), Ok(delayed));
    let said = |standing| ClaimNews::Ordered { host: "h.example".into(), standing };
    assert_eq!(a.heard.iter().rfind(|news| matches!(news, ClaimNews::Ordered { .. })), Some(&said(delayed)));
    let resumed = Standing { paused: false, ..delayed };
    assert_eq!(b.order(say("h.example", Order::Resume)), Ok(resumed));
    a.until(|event| matches!(event, IndexEvent::Claims(news) if news.contains(&said(resumed))));
    a.run_until(sql_is(&url, "SELECT count(*) FROM hosts WHERE unheard", "0"));
    assert!(
        !b.heard.iter().any(|news| matches!(news, ClaimNews::Ordered { .. })),
        "it is none of its business"
    );
    // It comes with the claim, too.
    let blocked = b.order(say("h.example", Order::Block(secs(5000)))).expect("kept");
    assert!(blocked.blocked_for > secs(4000) && blocked.delay == secs(7), "{blocked:?}");
    a.give_back(&host("h.example"), OwedClock::default(), None);
    assert!(b.ask(9).0.is_empty(), "nobody claims what is blocked");
    assert_eq!(b.order(say("h.example", Order::Block(Duration::ZERO))), Ok(resumed));
    assert_eq!(b.take(9).len(), 1);
    good(&b.want(&host("h.example")));
    let heard = b.heard.iter().rposition(|news| *news == said(resumed));
    let claimed = b.heard.iter().rposition(|news| matches!(news, ClaimNews::Good { .. }));
    assert!(heard.is_some() && heard < claimed, "before it may send: {:?}", b.heard);
    assert_well_kept(&url);
}

#[test]
fn a_hold_of_a_key_that_nobody_claims_is_known_to_all_before_they_send() {
    let url = new_watched_database();
    let (mut a, mut b) = (Peer::start(&url, "a", SHORT), Peer::start(&url, "b", SHORT));
    let key = ClaimKey::Group("g".into());
    a.index.claim(ClaimAction::Hold { key: key.clone(), held_for: secs(500), strikes: 1 });
    a.index.claim(ClaimAction::Hold { key: key.clone(), held_for: secs(5000), strikes: 2 });
    let held = |news: &ClaimNews| match news {
        ClaimNews::Held { key: of, held_for, strikes: 2 } => *of == key && *held_for > secs(4000),
        _ => false,
    };
    let told = |event: &IndexEvent| matches!(event, IndexEvent::Claims(news) if news.iter().any(held));
    a.until(told);
    b.until(told);
    let mut c = Peer::start(&url, "c", LONG);
    c.until(|event| matches!(event, IndexEvent::Claims(news) if news.iter().any(|news| matches!(news, ClaimNews::Renewed(_)))));
    let (known, may_send) = (
        c.heard.iter().position(held),
        c.heard.iter().position(|news| matches!(news, ClaimNews::Renewed(_))),
    );
    assert!(known.is_some() && known < may_send, "{:?}", c.heard);
}

#[test]
fn a_database_of_the_first_version_is_taken_over_with_all_that_is_in_it() {
    let url = new_database();
    sql(
        &url,
        "CREATE TABLE schema_version (id integer PRIMARY KEY, version integer NOT NULL);
        INSERT INTO schema_version VALUES (1, 1)",
    );
    sql(&url, include_str!("../src/index/postgres/sql/schema_1.sql"));
    // A server that is long dead, with a host in flight; one that is held back; open documents and ended ones.
    sql(
        &url,
        "INSERT INTO instances VALUES (nextval('epochs'), 'old', now() - interval '1 hour', now() - interval '1 hour', 0);
         INSERT INTO hosts (host, next_place, turn, holder, in_flight) VALUES ('busy.example', 3, 1, 1, true);
         INSERT INTO hosts (host, next_place, turn, held_until, strikes)
             VALUES ('held.example', 2, 2, now() + interval '1 hour', 4);
         INSERT INTO keys (key, holder, in_flight) VALUES ('ip:192.0.2.1', 1, true);
         INSERT INTO docs (doc, host_id, place, print, url, state, outcome, ended_by) VALUES
             (1, 1, 1, 11, 'http://busy.example/1', 1, '200', 1), (2, 1, 2, 12, 'http://busy.example/2', 0, NULL, NULL),
             (3, 2, 1, 13, 'http://held.example/1', 0, NULL, NULL);
         SELECT nextval('turns'), nextval('turns'), setval('doc_ids', 3)",
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let migrated = runtime.block_on(urlserver::index::postgres::migrate(&url)).expect("tables");
    assert_eq!((migrated.from, migrated.to), (1, 2));
    let mut a = Peer::start(&url, "a", SHORT);
    let (mut all, end) = (Vec::new(), Instant::now() + DEADLINE);
    while all.len() < 2 {
        assert!(Instant::now() < end, "{all:?}");
        all.extend(a.take(9));
    }
    let docs: HashSet<u64> = all.iter().map(|candidate| candidate.doc.0).collect();
    assert_eq!(docs, HashSet::from([2, 3]), "what is open, and nothing else");
    assert!(good(&a.want(&host("busy.example"))).dark_since.is_some());
    let clock = good(&a.want(&host("held.example")));
    assert!(clock.held_for > secs(3000) && clock.strikes == 4, "{clock:?}");
    assert!(good(&a.want(&ip("192.0.2.1"))).dark_since.is_some());
    assert!(a.order(say("busy.example", Order::Pause)).is_ok_and(|standing| standing.paused));
    a.report(&all);
    a.until_counted("done", 2);
    assert_eq!(sql(&url, "SELECT count(*) FROM docs WHERE state = 0"), "0");
}
