//! How many documents a second go through 1, 2 and 4 servers on one database, and what that costs in claims:
//!
//! `cargo test --release --test postgres_speed -- --ignored --nocapture`

#[path = "support/fleet.rs"]
mod fleet;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;

use fleet::{Counts, Fleet};
use postgres::sql;
use std::time::Duration;

const HOSTS: usize = 1500;
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
        let end = fleet.run(|_| ());
        // By the database's clock, and without the first quarter: much of that was in RAM before any spider came.
        let later = sql(
            &end.database,
            "SELECT count(*) || ' ' || extract(epoch FROM max(ended_at) - min(ended_at)) FROM docs
             WHERE ended_at > (SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY ended_at) FROM docs)",
        );
        let (documents, took) = later.split_once(' ').expect("two numbers");
        let (documents, took): (f64, f64) =
            (documents.parse().expect("a count"), took.parse().expect("a time"));
        let rate = documents / took;
        let per_host = |count: u64| count as f64 / HOSTS as f64;
        let Counts { handed_over, claimed, raised, rested, given_back } = end.counts;
        println!(
            "{servers} servers: {documents} documents in {took:.1} s, {rate:.0}/s; per host: {:.2} claims of hosts and \
             addresses, {:.2} raised, {:.2} rested, {:.2} given back, {:.2} handed over",
            per_host(claimed),
            per_host(raised),
            per_host(rested),
            per_host(given_back),
            per_host(handed_over)
        );
    }
}
