//! `urlserver`: arguments → settings → run.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use urlserver::cli::{self, Request};
use urlserver::client;
use urlserver::logs::{self, LogOptions};
use urlserver::server;
use urlserver::settings::{Settings, Sources};

/// Failed at run time.
const FAILED: u8 = 1;
/// Bad usage or settings.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let request = match cli::parse(std::env::args_os()) {
        Ok(request) => request,
        Err(error) => error.exit(),
    };
    match request {
        Request::Serve(sources, log) => serve(&sources, &log),
        Request::Check(sources) => check(&sources),
        Request::Client(task) => match client::run(task) {
            Ok(code) => code,
            Err(error) => complain(error.exit_code(), &error),
        },
        Request::Index(command, log) => match logs::start(&log).map(|()| command.run()) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(error)) if error.is_refusal() => complain(REFUSED, &error),
            Ok(Err(error)) => complain(FAILED, &error),
            Err(error) => complain(REFUSED, &error),
        },
        Request::Completions(shell) => print(&cli::completions(shell)),
        Request::Man => match cli::man() {
            Ok(page) => print(&page),
            Err(error) => complain(FAILED, &error),
        },
    }
}

fn serve(sources: &Sources, log: &LogOptions) -> ExitCode {
    if let Err(error) = logs::start(log) {
        return complain(REFUSED, &error);
    }
    let effective = match Settings::load(sources) {
        Ok(effective) => effective,
        Err(error) => return complain(REFUSED, &error),
    };
    for warning in &effective.warnings {
        tracing::warn!("{warning}");
    }
    match server::run(effective.settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_refusal() => complain(REFUSED, &error),
        Err(error) => complain(FAILED, &error),
    }
}

fn check(sources: &Sources) -> ExitCode {
    match Settings::load(sources) {
        Ok(effective) => {
            for warning in &effective.warnings {
                eprintln!("urlserver: {warning}");
            }
            print(effective.to_toml().as_bytes())
        }
        Err(error) => complain(REFUSED, &error),
    }
}

/// A reader that has seen enough is no failure.
fn print(text: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => complain(FAILED, &error),
        _ => ExitCode::SUCCESS,
    }
}

fn complain(code: u8, error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("urlserver: {error}");
    ExitCode::from(code)
}
