//! No clear regression of the scheduler's hot paths: counts the instructions of each phase of [`phases`], in the
//! scheduler and in a dull structure that does the same work, and compares their ratio with
//! `fixtures/instructions.txt`. Instructions, not time: machines are noisy, counts are the same in every run.
//!
//! The program that is measured is this one: each structure is a test of its own, which callgrind runs.

mod baseline;
mod callgrind;
mod dull;
mod ours;
mod phases;

use baseline::Cost;
use callgrind::{Counts, Ended, Run};
use std::path::Path;

const OURS: &str = "ours_hands_out_everything_once";
const DULL: &str = "dull_hands_out_everything_once";

#[test]
fn ours_hands_out_everything_once() {
    phases::run::<ours::Ours>();
}

#[test]
fn dull_hands_out_everything_once() {
    phases::run::<dull::Dull>();
}

/// The figures are those of the dev profile, where more is checked.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "what is written down was counted in the dev profile")]
fn hot_paths_cost_what_is_written_down() {
    let runs = [OURS, DULL].map(callgrind::start).map(Run::end);
    let [ours, dull] = runs.each_ref().map(Ended::counts);
    let costs = phases::PHASES.map(|(phase, operations)| Cost {
        phase: phase.to_owned(),
        ours: each(&ours, phase, operations),
        dull: each(&dull, phase, operations),
    });
    let text = baseline::write(&costs);
    println!("{text}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/instructions.txt");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        return std::fs::write(&path, text).expect("fixtures can be written");
    }
    let written = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    let written = written.and_then(|text| baseline::read(&text));
    let written = written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let faults: Vec<String> = baseline::compare(&written, &costs).iter().map(ToString::to_string).collect();
    assert!(
        faults.is_empty(),
        "{}\n\nWhere the instructions are: callgrind_annotate --inclusive=yes --tree=calling {}\n\
         (of one phase: valgrind --tool=callgrind --toggle-collect='{}' {} --exact {OURS})\n\
         If it must be so: UPDATE_FIXTURES=1 cargo test --test instructions",
        faults.join("\n"),
        runs[0].profile.display(),
        function("PHASE"),
        std::env::current_exe().unwrap_or_default().display(),
    );
}

/// Instructions for each operation of a phase.
fn each(counts: &Counts, phase: &str, operations: u64) -> f64 {
    let function = function(phase);
    let count = counts.get(&function).unwrap_or_else(|| panic!("{function} is not in the profile"));
    *count as f64 / operations as f64
}

fn function(phase: &str) -> String {
    format!("instructions::phases::{phase}")
}
