//! A database that is not what it should be: away, slow, locked, restarted, failed over to a replica. Servers go on as
//! long as their claims are good, stop by themselves, come back one by one, and lose nothing. One auditor sees all
//! requests of all servers.

#[path = "support/fleet.rs"]
mod fleet;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;

use fleet::{Fleet, Scene, in_steps, is_late, step};
use postgres::{Postgres, database_of, new_watched_database, shared, sql, watched};
use proxy::Proxy;
use std::cell::Cell;
use std::thread::JoinHandle;
use std::time::Duration;

/// When a test does something: in the midst of things.
const MIDST: u64 = 40;

fn busy_fleet() -> Fleet {
    let mut fleet = Fleet::default();
    fleet.sites.iter_mut().for_each(|(_, _, count)| *count = 6);
    fleet
}

/// With more in the database's URL.
fn busy_fleet_with(database: &str, url_end: &'static str) -> Fleet {
    Fleet { database: Some(database.to_owned()), url_end, ..busy_fleet() }
}

fn all_are_late(database: &str, expiry: &str) -> bool {
    ["server0", "server1"].iter().all(|name| is_late(database, name, expiry))
}

#[test]
fn fail_over_to_a_replica_in_the_midst_of_a_crawl() {
    let primary = Postgres::start();
    let database = watched(primary.new_database());
    let replica = primary.replica();
    let front = Proxy::to(&database);
    let fleet = Fleet { database: Some(front.url.clone()), ..busy_fleet() };
    fleet.run(in_steps(vec![step(|scene: &mut Scene<'_>| {
        let now = scene.sends >= MIDST;
        if now {
            front.cut();
            primary.control(&["stop", "-m", "immediate"]);
            replica.control(&["promote"]);
            front.send_to_port(replica.port);
            front.mend();
        }
        now
    })]));
    // Without a proxy the URL names both, and the one that can be written to is found.
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{}?sslmode=disable&target_session_attrs=read-write",
        primary.port,
        replica.port,
        database_of(&database)
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let found = runtime.block_on(urlserver::index::postgres::migrate(&url)).expect("the replica");
    assert_eq!(found.from, found.to, "all is there");
}

#[test]
fn fail_the_database_crashes_and_is_started_again() {
    let server = Postgres::start();
    let database = watched(server.new_database());
    let front = Proxy::to(&database);
    let fleet = Fleet { database: Some(front.url.clone()), ..busy_fleet() };
    fleet.run(in_steps(vec![step(|scene: &mut Scene<'_>| {
        let now = scene.sends >= MIDST;
        if now {
            // Not by way of the proxy: whoever comes too early is refused, as it is in life.
            server.control(&["stop", "-m", "immediate"]);
            server.control(&["start", "-w"]);
        }
        now
    })]));
}

#[test]
fn delay_the_database_is_slow_for_all() {
    busy_fleet().run(in_steps(vec![step(|scene: &mut Scene<'_>| {
        let now = scene.sends >= MIDST / 2;
        if now {
            scene.proxies.iter().for_each(Proxy::slow_down);
        }
        now
    })]));
}

#[test]
fn delay_whoever_is_in_the_way_is_told_to_begin_anew() {
    let database = new_watched_database();
    busy_fleet_with(&database, "&options=-c%20default_transaction_isolation%3Dserializable").run(|_| ());
    let given_up = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let given_up: u64 = sql(&database, given_up).parse().expect("a number");
    assert!(given_up > 0, "nobody was in anybody's way");
}

/// Locks a table for longer than claims live; statements that wait for it are given up sooner than they would be.
fn locked(table: &str) {
    let database = new_watched_database();
    let fleet = busy_fleet_with(&database, "&options=-c%20statement_timeout%3D300");
    let since = Cell::new(Duration::ZERO);
    let run = |sql: &str| {
        shared().run_sql("postgres", &format!("{sql} AND datname = '{}'", database_of(&database)))
    };
    let mut lock: Option<JoinHandle<()>> = None;
    fleet.run(in_steps(vec![
        step(|scene: &mut Scene<'_>| {
            let now = scene.sends >= MIDST;
            if now {
                let name = database_of(&database).to_owned();
                let sql = format!("BEGIN; LOCK TABLE {table}; SELECT pg_sleep(3600)");
                // It ends by being ended.
                let wait = move || drop(std::panic::catch_unwind(|| shared().run_sql(&name, &sql)));
                lock = Some(std::thread::spawn(wait));
                since.set(scene.took);
            }
            now
        }),
        step(|_| run("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "t"),
        step(|scene: &mut Scene<'_>| {
            let now = scene.took > since.get() + fleet::EXPIRY_2 + fleet::EXPIRY_1;
            if now {
                run("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE query LIKE '%pg_sleep(3600)%' AND pid <> pg_backend_pid()");
            }
            now
        }),
    ]));
    lock.expect("it was locked").join().expect("no panic");
}

#[test]
fn delay_statements_time_out_while_claims_are_renewed() {
    locked("hosts");
}

#[test]
fn delay_statements_time_out_and_so_do_renewals() {
    locked("instances");
}

#[test]
fn fail_servers_do_not_storm_a_database_that_is_away() {
    let before = Cell::new(Vec::new());
    let knocks = |scene: &Scene<'_>| scene.proxies.iter().map(Proxy::knocks).collect::<Vec<_>>();
    let during = Cell::new(Vec::new());
    busy_fleet().run(in_steps(vec![
        step(|scene: &mut Scene<'_>| {
            let now = scene.sends >= MIDST;
            if now {
                scene.proxies.iter().for_each(Proxy::cut);
                before.set(knocks(scene));
            }
            now
        }),
        step(|scene: &mut Scene<'_>| {
            let now = all_are_late(scene.database, "expires_2");
            if now {
                during.set(knocks(scene));
                scene.proxies.iter().for_each(Proxy::mend);
            }
            now
        }),
    ]));
    // They try again sooner at first, and then later and later: a few times in the seconds until the second expiry.
    for (before, during) in before.take().into_iter().zip(during.take()) {
        let tried = during - before;
        assert!((1..=24).contains(&tried), "tried {tried} times");
    }
}
