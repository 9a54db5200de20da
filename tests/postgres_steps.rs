//! What may happen to a server at every step of its cycle, right before and right after: real servers on one database,
//! real spiders, one auditor that sees all of them. A proxy before the database knows which statement is under way and
//! holds it, so that nothing is left to chance.
//!
//! | event | PASS | DELAY | FAIL |
//! |---|---|---|---|
//! | before, after: `renew`, `take_over`, `claim`, `fetch_candidates`, `raise`, `report`, `rest`, `give_back` | goes on | the server is stopped past the first, or the second, expiry, and goes on | it is killed; it is cut from the database |
//!
//! Whatever was on its way to the database when its server was stopped or killed arrives in the end, far too late. Every
//! host, address and limit is kept over all servers, no claim is taken too early, and every document ends once.

#[path = "support/fleet.rs"]
mod fleet;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;

use fleet::{Fleet, Scene, claims_of, in_steps, is_late, step};
use postgres::sql;
use proxy::When;
use std::cell::Cell;
use std::time::Duration;

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    Killed,
    Cut,
    StoppedPast(&'static str),
}

/// When a test does something: when it is well under way.
const UNDER_WAY: u64 = 6;

/// Hosts on addresses that they share; documents of each.
fn small_fleet(servers: usize, addresses: usize, pages: usize) -> Fleet {
    let address = |n: usize| -> &'static str { format!("127.0.70.{}", 1 + n % addresses).leak() };
    Fleet {
        servers,
        sites: (0..18).map(|n| (format!("h{n}.example"), address(n), pages)).collect(),
        fetch: Duration::from_millis(40),
        queue_count: 6,
        spiders_each: 1,
        ..Fleet::default()
    }
}

fn name(n: usize) -> String {
    format!("server{n}")
}

/// Runs a fleet in which `fault` happens to whoever comes to `statement` first.
fn happens(statement: &str, when: When, fault: Fault) {
    let takes_over = statement == "free_hosts";
    let victim = Cell::new(0);
    let mut before = Vec::new();
    if takes_over {
        // Somebody to be taken over from.
        before.push(step(|scene: &mut Scene<'_>| {
            let open = "SELECT count(*) >= 3 FROM docs JOIN hosts ON hosts.host_id = docs.host_id
                JOIN instances ON epoch = holder WHERE name = 'server2' AND state = 0";
            let now = scene.sends >= UNDER_WAY && sql(scene.database, open) == "t";
            if now {
                scene.servers[2].signal("-KILL");
            }
            now
        }));
    }
    before.extend([
        step(|scene: &mut Scene<'_>| {
            let now = scene.sends >= UNDER_WAY;
            if now {
                scene.proxies[..2].iter().for_each(|proxy| proxy.arm(statement, when));
            }
            now
        }),
        step(|scene: &mut Scene<'_>| {
            let Some(n) = scene.proxies[..2].iter().position(proxy::Proxy::has_sprung) else { return false };
            victim.set(n + 1);
            scene.proxies[1 - n].release();
            strike(scene, n, fault);
            true
        }),
        step(|scene: &mut Scene<'_>| {
            let n = victim.get() - 1;
            let now = is_over(scene, n, fault);
            if now {
                heal(scene, n, fault);
            }
            now
        }),
    ]);
    let fleet = match statement {
        // All of them have something.
        "free_hosts" => small_fleet(3, 18, 12),
        // Hosts that rest for longer than two cycles, and so do their claims.
        "rest_hosts" => Fleet { settings: "delay_min = 1\n".into(), ..small_fleet(2, 18, 3) },
        _ => small_fleet(2, 3, 3),
    };
    fleet.run(in_steps(before));
    assert_ne!(victim.get(), 0, "nobody came to {statement}");
}

fn strike(scene: &mut Scene<'_>, n: usize, fault: Fault) {
    match fault {
        Fault::None => {}
        Fault::Killed => scene.servers[n].signal("-KILL"),
        Fault::Cut => scene.proxies[n].cut(),
        Fault::StoppedPast(_) => scene.servers[n].signal("-STOP"),
    }
}

fn is_over(scene: &mut Scene<'_>, n: usize, fault: Fault) -> bool {
    match fault {
        Fault::None => true,
        Fault::Killed | Fault::Cut => claims_of(scene.database, &name(n)) == "0",
        Fault::StoppedPast(expiry) => is_late(scene.database, &name(n), expiry),
    }
}

/// What was held arrives now.
fn heal(scene: &mut Scene<'_>, n: usize, fault: Fault) {
    scene.proxies[n].release();
    match fault {
        Fault::None | Fault::Killed => {}
        Fault::Cut => scene.proxies[n].mend(),
        Fault::StoppedPast(_) => scene.servers[n].signal("-CONT"),
    }
}

macro_rules! table {
    ($($event:ident $statement:literal $after:ident;)*) => {$(
        mod $event {
            table!(before $statement Before);
            table!(after $statement $after);
        }
    )*};
    ($name:ident $statement:literal $when:ident) => {
        mod $name {
            use crate::{Fault, When, happens};

            #[test]
            fn pass() {
                happens($statement, When::$when, Fault::None);
            }

            #[test]
            fn delay_past_the_first_expiry() {
                happens($statement, When::$when, Fault::StoppedPast("expires_1"));
            }

            #[test]
            fn delay_past_the_second_expiry() {
                happens($statement, When::$when, Fault::StoppedPast("expires_2"));
            }

            #[test]
            fn fail_killed() {
                happens($statement, When::$when, Fault::Killed);
            }

            #[test]
            fn fail_cut_from_the_database() {
                happens($statement, When::$when, Fault::Cut);
            }
        }
    };
}

table! {
    renew "renew" After;
    take_over "free_hosts" Committed;
    claim "claim_hosts" After;
    fetch_candidates "candidates" After;
    raise "want_hosts" Committed;
    report "report" After;
    rest "rest_hosts" Committed;
    give_back "give_hosts_back" Committed;
}
