//! Where a setting came from, and what is wrong with it.

use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Where a setting's value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Nobody gave it.
    Default,
    /// A line of the settings file.
    File {
        /// The file's name, as given.
        path: Arc<str>,
        /// Counted from one.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// The command line.
    Flag(String),
}

impl Origin {
    /// The stronger of two origins of one setting has the greater strength.
    pub(super) fn strength(&self) -> u8 {
        match self {
            Origin::Default => 0,
            Origin::File { .. } => 1,
            Origin::Environment(_) => 2,
            Origin::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{path}:{line}"),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::Flag(name) => write!(f, "flag --{name}"),
        }
    }
}

/// One thing that keeps the settings from being used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Problem {
    /// A value that is not allowed.
    #[error("{setting} = {value} ({origin}): must be {allowed}")]
    Value {
        /// The setting's name.
        setting: String,
        /// What was given.
        value: String,
        /// Who gave it.
        origin: Origin,
        /// Completes "must be …".
        allowed: String,
    },
    /// A name that is no setting.
    #[error("{key} ({origin}): there is no such setting; `urlserver serve --help` names them all")]
    Unknown {
        /// What was given.
        key: String,
        /// Where.
        origin: Origin,
    },
    /// One key twice in one place: keys differ by more than upper and lower case.
    #[error("{key} ({origin}): given twice")]
    Twice {
        /// The setting's name.
        key: String,
        /// The second place.
        origin: Origin,
    },
    /// The file is not TOML.
    #[error("{origin}: {message}")]
    Syntax {
        /// Where it stops making sense.
        origin: Origin,
        /// What the parser says.
        message: String,
    },
    /// A file that could not be read.
    #[error("{setting} = {path}: {why}")]
    Unreadable {
        /// The setting that names the file.
        setting: String,
        /// The file.
        path: String,
        /// What the system says.
        why: String,
    },
    /// Values that are allowed alone but not together.
    #[error("{0}")]
    Together(String),
}

/// All that is wrong with the settings: at least one problem.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the settings cannot be used:{}", indented(.problems))]
pub struct SettingsError {
    /// What is wrong, in order of discovery.
    pub problems: Vec<Problem>,
}

fn indented(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
