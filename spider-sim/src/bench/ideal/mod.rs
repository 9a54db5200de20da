//! Servers that nobody can beat: the bounds that a real one is measured against.
//!
//! They are a process of their own (`spider-sim bench-server`), speak the same lines over the same sockets, and
//! say when they are ready as the real server does. None of them knows a limit, a lease or an index.

mod constant;
mod frontier;
mod line;
mod socket;
mod timetable;

use anyhow::Context;
use clap::{Args, ValueEnum};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// `bench-server`.
#[derive(Args, Clone, Debug)]
pub struct IdealArgs {
    #[arg(long)]
    mode: Mode,
    /// Hosts
    #[arg(long, default_value_t = 0)]
    hosts: u32,
    /// The URLs, as `spider-sim bench` makes them
    #[arg(long)]
    seeds: Option<PathBuf>,
    /// Time between two lines of one host
    #[arg(long, value_parser = crate::cli::seconds, default_value = "10")]
    gap: Duration,
}

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Mode {
    /// The plainest structure that sends each URL once, and one of a host at a time
    Frontier,
    /// Always the same line
    Constant,
    /// A line of every host at its time
    Timetable,
}

/// Serves one connection after the other, until it is killed.
pub fn run(args: &IdealArgs) -> anyhow::Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ready = || -> anyhow::Result<()> {
        println!("ready listen={} http=none", listener.local_addr()?);
        Ok(std::io::stdout().flush()?)
    };
    match args.mode {
        Mode::Frontier => {
            let mut frontier = frontier::Frontier::new(args.hosts);
            let path = args.seeds.as_ref().context("--seeds is needed")?;
            let mut seeds = BufReader::with_capacity(1 << 16, File::open(path)?);
            let mut line = Vec::new();
            while seeds.read_until(b'\n', &mut line)? > 0 {
                frontier.add(line.trim_ascii_end())?;
                line.clear();
            }
            frontier.loaded();
            ready()?;
            socket::serve(&listener, &mut frontier)?;
        }
        Mode::Constant => {
            ready()?;
            socket::serve(&listener, &mut constant::Constant::default())?;
        }
        Mode::Timetable => {
            ready()?;
            super::pin::exact_timers();
            socket::serve(&listener, &mut timetable::Timetable::new(args.hosts, args.gap))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
