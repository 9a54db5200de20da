//! `spider-sim bench`: the server beside what one would use instead, and beside the best there can be.
//!
//! Everything runs on loopback, server and client on a core each. Cases take turns in every repetition, so that
//! noise hits all alike; medians are shown, with the least and the most. Trust the CPU per URL where others use the
//! machine too; rates move with them. Nothing here judges the server by an absolute time.

mod args;
mod client;
mod exactness;
mod feed;
mod goals;
pub mod ideal;
mod idle;
mod loading;
mod meter;
mod peers;
mod pin;
mod plot;
mod process;
mod report;
mod rig;
mod scale;
mod server;
mod start;
mod stats;
mod throughput;
mod workload;

pub use args::BenchArgs;

use args::{Part, Parts};
use report::Results;
use rig::Rig;
use std::process::ExitCode;

/// Measures, and prints.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let parts = match args.parts() {
        Ok(parts) => parts,
        Err(problem) => {
            eprintln!("spider-sim: {problem}");
            return Ok(ExitCode::from(2));
        }
    };
    let rig = Rig::new(args)?;
    let results = measure(&rig, &parts)?;
    if let Some(directory) = &args.plots {
        plot::write(directory, &results)?;
    }
    if args.json {
        println!("{}", serde_json::to_string(&results)?);
    } else {
        print!("{results}");
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(rig: &Rig, parts: &Parts) -> anyhow::Result<Results> {
    let mut results = Results::new(rig);
    let begin = |part: Part| {
        if parts.has(part) {
            eprintln!("{}", part.words());
        }
        parts.has(part)
    };
    if begin(Part::Throughput) {
        (results.throughput, results.skipped) = throughput::measure(rig, &parts.cases)?;
    }
    if begin(Part::Loading) {
        results.loading = loading::measure(rig)?;
    }
    if begin(Part::Exactness) {
        results.exactness = Some(exactness::measure(rig)?);
    }
    if begin(Part::Idle) {
        results.idle = Some(idle::measure(rig)?);
    }
    if begin(Part::Start) {
        results.start = Some(start::measure(rig)?);
    }
    if begin(Part::Scale) {
        results.scale = scale::measure(rig, parts.is_selection)?;
    }
    results.goals = goals::judge(&results);
    Ok(results)
}
