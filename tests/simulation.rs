//! Whole crawls in virtual time: thousands of small worlds with every fault, and named worlds for single
//! properties. Every one of them ends drained.

#![allow(clippy::unwrap_used)]

use spider_sim::world::{Scale, World, draw};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_world_heals_and_drains_without_a_broken_promise() {
    let first = number("SEED", 0);
    let mut steps = 0;
    let mut bad = 0;
    for seed in first..first + number("SEEDS", 2000) {
        let verdict = std::panic::catch_unwind(|| World::new(draw(seed, &Scale::default())).run(|_| ()));
        match verdict {
            Ok(verdict) => {
                if !verdict.is_clean() {
                    bad += 1;
                    eprintln!("{:?}\nrepeat with `spider-sim sim --seed {seed}`", verdict.wrongs);
                }
                steps += verdict.steps;
            }
            Err(_) => {
                bad += 1;
                eprintln!("PANIC seed {seed}");
            }
        }
        if bad > 5 {
            break;
        }
    }
    eprintln!("{steps} steps");
    assert_eq!(bad, 0);
}
