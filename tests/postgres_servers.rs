//! Several real servers on one database, with real spiders under one auditor that sees all of them: what may happen to
//! one of them, and that no host, address, alias or group is ever asked too often, nothing is lost, and every
//! document is reported once.
//!
//! | | PASS | DELAY | FAIL |
//! |---|---|---|---|
//! | a server | goes on, leaves cleanly | is stopped past either expiry, and goes on | is killed |
//! | its way to the database | is there | is silent for a while | is cut, and mended |
//! | the database | is there | | is away for all |
//! | all of them, at any step | | | by chance, from a seed |
//!
//! What a single claim goes through is in `postgres_claims.rs`.

#[path = "support/fleet.rs"]
mod fleet;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;

use fleet::{Fleet, GAP, claims_of, in_steps, is_late, step};
use std::time::Duration;
use urlserver::scheduler::{GroupRule, IpRange, Pace};

/// When a test does something: in the middle of things.
const MIDST: u64 = 40;

fn rule(name: &str, hosts: &[&str]) -> GroupRule {
    GroupRule {
        name: name.into(),
        hosts: hosts.iter().map(|&host| host.into()).collect(),
        domains: Vec::new(),
        ranges: Vec::new(),
        pace: Pace { concurrent: 1, gap: GAP },
        rest: None,
        robots: None,
    }
}

#[test]
fn pass_hosts_on_one_address_come_to_live_on_one_server() {
    let end = Fleet::default().run(|_| ());
    assert!(end.counts.handed_over > 0, "hosts of one address began on both");
}

#[test]
fn pass_aliases_and_groups_hold_over_all_servers() {
    let sites = |prefix: &str, net: &'static [&'static str]| {
        let prefix = prefix.to_owned();
        net.iter()
            .enumerate()
            .map(move |(n, &ip)| (format!("{prefix}{n}.example"), ip, 6))
            .collect::<Vec<_>>()
    };
    // Aliases over several addresses, a group over a range, and addresses that both share: chains of keys.
    let mut all = sites("a", &["127.0.60.1", "127.0.60.2", "127.0.60.3", "127.0.60.4"]);
    all.extend(sites("b", &["127.0.60.1", "127.0.61.2", "127.0.61.3", "127.0.61.4"]));
    all.extend(sites("c", &["127.0.61.2", "127.0.62.2", "127.0.62.3", "127.0.61.9"]));
    let range = IpRange { address: "127.0.61.0".parse().expect("an address"), bits: 24 };
    let pair = ["a0.example", "a1.example", "b2.example"];
    let fleet = Fleet {
        servers: 3,
        sites: all,
        aliases: vec![rule("pair", &pair)],
        groups: vec![GroupRule { ranges: vec![range], ..rule("rack", &[]) }],
        settings: "[alias]\npair = ['a0.example', 'a1.example', 'b2.example']\n\
                   [[group]]\nname = 'rack'\ncidr = ['127.0.61.0/24']\nconcurrent = 1\nper_sec = 10\n"
            .into(),
        ..Fleet::default()
    };
    fleet.run(|_| ());
}

#[test]
fn pass_a_server_that_leaves_gives_all_back_at_once() {
    let mut fleet = Fleet { fetch: Duration::from_millis(100), ..Fleet::default() };
    fleet.sites.iter_mut().for_each(|(_, _, count)| *count = 6);
    let mut left = None;
    fleet.run(in_steps(vec![
        step(|scene| {
            let now = scene.sends >= MIDST;
            if now {
                scene.servers[0].signal("-TERM");
            }
            now
        }),
        step(|scene| scene.servers[0].has_ended()),
        step(|scene| {
            left = Some(claims_of(scene.database, "server0"));
            true
        }),
    ]));
    assert_eq!(left.as_deref(), Some("0"));
}

#[test]
fn fail_a_server_is_killed_with_urls_in_flight() {
    let fleet = Fleet { fetch: Duration::from_millis(200), ..Fleet::default() };
    fleet.run(in_steps(vec![step(|scene| {
        let now = scene.sends >= MIDST && scene.in_flight > 2;
        if now {
            scene.servers[0].signal("-KILL");
        }
        now
    })]));
}

#[test]
fn fail_all_servers_but_one_are_killed() {
    let fleet = Fleet { servers: 3, ..Fleet::default() };
    fleet.run(in_steps(vec![step(|scene| {
        let now = scene.sends >= MIDST;
        if now {
            scene.servers[0].signal("-KILL");
            scene.servers[2].signal("-KILL");
        }
        now
    })]));
}

/// Stops the first server until something is true, and lets it go on.
fn stopped_until(is_over: impl Fn(&str) -> bool) {
    let mut fleet = Fleet { fetch: Duration::from_millis(100), ..Fleet::default() };
    fleet.sites.iter_mut().for_each(|(_, _, count)| *count = 6);
    fleet.run(in_steps(vec![
        step(|scene| {
            let now = scene.sends >= MIDST;
            if now {
                scene.servers[0].signal("-STOP");
            }
            now
        }),
        step(|scene| {
            let now = is_over(scene.database);
            if now {
                scene.servers[0].signal("-CONT");
            }
            now
        }),
    ]));
}

#[test]
fn delay_a_server_is_stopped_past_the_first_expiry() {
    stopped_until(|database| is_late(database, "server0", "expires_1"));
}

#[test]
fn delay_a_server_is_stopped_past_the_second_expiry() {
    stopped_until(|database| is_late(database, "server0", "expires_2"));
}

#[test]
fn delay_a_server_is_stopped_until_all_it_had_is_anothers() {
    stopped_until(|database| claims_of(database, "server0") == "0");
}

#[test]
fn fail_a_server_is_cut_from_the_database_and_comes_back() {
    let mut fleet = Fleet { fetch: Duration::from_millis(100), ..Fleet::default() };
    fleet.sites.iter_mut().for_each(|(_, _, count)| *count = 6);
    fleet.run(in_steps(vec![
        step(|scene| {
            let now = scene.sends >= MIDST;
            if now {
                scene.proxies[0].cut();
            }
            now
        }),
        step(|scene| {
            let now = claims_of(scene.database, "server0") == "0";
            if now {
                scene.proxies[0].mend();
            }
            now
        }),
    ]));
}

#[test]
fn delay_the_database_is_silent_for_one_server() {
    let mut fleet = Fleet { fetch: Duration::from_millis(100), ..Fleet::default() };
    fleet.sites.iter_mut().for_each(|(_, _, count)| *count = 6);
    fleet.run(in_steps(vec![
        step(|scene| {
            let now = scene.sends >= MIDST;
            if now {
                scene.proxies[0].silence();
            }
            now
        }),
        step(|scene| {
            let now = is_late(scene.database, "server0", "expires_2");
            if now {
                scene.proxies[0].mend();
            }
            now
        }),
    ]));
}

#[test]
fn fail_the_database_is_away_for_all() {
    let mut since = None;
    Fleet::default().run(in_steps(vec![
        step(|scene| {
            let now = scene.sends >= MIDST;
            if now {
                scene.proxies.iter().for_each(proxy::Proxy::cut);
                since = Some(scene.took);
            }
            now
        }),
        step(|scene| {
            let names = ["server0", "server1"];
            let now = names.iter().all(|name| is_late(scene.database, name, "expires_2"));
            if now {
                scene.proxies.iter().for_each(proxy::Proxy::mend);
            }
            now
        }),
    ]));
}

#[test]
fn fail_and_delay_by_chance_at_any_step() {
    let mut rng = fastrand::Rng::with_seed(7);
    let fleet = Fleet { servers: 3, ..Fleet::default() };
    let mut next = Duration::from_millis(300);
    let mut stopped = [false; 3];
    let mut left = 12;
    fleet.run(move |scene| {
        if scene.took < next {
            return;
        }
        next = scene.took + Duration::from_millis(rng.u64(50..1500));
        let one = rng.usize(..3);
        if left == 0 {
            // Then all heals.
            for (n, stopped) in stopped.iter_mut().enumerate().filter(|(_, stopped)| **stopped) {
                scene.servers[n].signal("-CONT");
                *stopped = false;
            }
            scene.proxies.iter().for_each(proxy::Proxy::mend);
            return;
        }
        left -= 1;
        match rng.u8(..4) {
            0 if !scene.servers[one].has_ended() => {
                scene.servers[one].signal(if stopped[one] { "-CONT" } else { "-STOP" });
                stopped[one] = !stopped[one];
            }
            1 => scene.proxies[one].cut(),
            2 => scene.proxies[one].silence(),
            _ => scene.proxies[one].mend(),
        }
    });
}
