//! `spider-sim`: arguments, then [`spider_sim::cli`].

use clap::Parser;
use spider_sim::cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("spider-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
