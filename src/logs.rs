//! Logs, to stderr: as lines for people or as JSON for machines.

use std::io::{self, IsTerminal};
use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// How a log line is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// One line for people, in colour on a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// How.
    pub format: LogFormat,
    /// What, as `RUST_LOG` says it: `info`, `urlserver=debug,info`.
    pub filter: String,
}

/// Why logging could not begin.
#[derive(Debug, Error)]
pub enum LogError {
    /// A filter that makes no sense.
    #[error(
        "log = {filter}: {why}; must be a level (error, warn, info, debug, trace, off) or target=level,…"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// What the parser says.
        why: String,
    },
    /// Somebody else logs in this process already.
    #[error("logging was already set up")]
    Twice,
}

/// Logs from now on.
pub fn start(options: &LogOptions) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(&options.filter)
        .map_err(|error| LogError::Filter { filter: options.filter.clone(), why: error.to_string() })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match options.format {
        LogFormat::Text => lines.compact().with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().try_init(),
    }
    .map_err(|_| LogError::Twice)
}
