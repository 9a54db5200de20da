//! How many documents a second go through 1, 2 and 4 servers on one database, and what that costs in claims:
//!
//! `cargo test --release --test postgres_speed -- --ignored --nocapture`

#[path = "support/fleet.rs"]
mod fleet;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;

use fleet::Fleet;
use std::time::Duration;

const HOSTS: usize = 500;
const PAGES: usize = 60;

#[test]
#[ignore = "a measurement"]
fn documents_per_second_through_several_servers() {
    for servers in [1, 2, 4] {
        let address = |n: usize| -> &'static str { format!("127.1.{}.{}", n / 250, 1 + n % 250).leak() };
        let sites = (0..HOSTS).map(|n| (format!("h{n}.example"), address(n), PAGES)).collect();
        let fleet = Fleet {
            servers,
            sites,
            fetch: Duration::ZERO,
            spiders_each: 4,
            queue_count: 64,
            hurried: true,
            ..Fleet::default()
        };
        let documents = fleet.documents();
        let mut first = None;
        let mut last = Duration::ZERO;
        let end = fleet.run(|scene| {
            if scene.sends > 0 {
                first.get_or_insert(scene.took);
            }
            if scene.sends < documents as u64 {
                last = scene.took;
            }
        });
        let took = last.saturating_sub(first.unwrap_or_default()).as_secs_f64();
        let (rate, claims) = (documents as f64 / took, end.claimed as f64 / HOSTS as f64);
        println!(
            "{servers} servers: {documents} documents in {took:.1} s, {rate:.0}/s; {claims:.1} claims per host"
        );
    }
}
