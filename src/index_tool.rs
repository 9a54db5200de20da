//! `urlserver index …`: what can be done with a directory's index while no server has it.

use crate::index::embedded::tool::{self, ToolError};
use clap::{Arg, ArgMatches, Command, ValueHint};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::PathBuf;
use thiserror::Error;

/// What is to be done, and with which directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexCommand {
    directory: PathBuf,
    action: Action,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Action {
    Stats,
    Export,
    Import(PathBuf),
    Compact,
    /// Of a shared index, which is in no directory.
    Migrate(String),
}

/// Why it was not done.
#[derive(Debug, Error)]
pub enum IndexCommandError {
    /// The tool says why.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A file to be imported cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Input {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The shared index cannot be used.
    #[error(transparent)]
    Shared(#[from] crate::server::ServerError),
    /// Some lines were not taken; each has been named.
    #[error("{0} lines were not taken")]
    Rejected(usize),
}

const ABOUT_EXPORT: &str = "\
Lines are DOC_ID URL pending [not-before=UNIX_SECONDS], or DOC_ID URL STATE OUTCOME UNIX_SECONDS where STATE is done, \
failed or denied, and OUTCOME is - if the spider said nothing. `urlserver index import` reads them, and seeds files, too. \
Documents whose URL was forgotten by `urlserver index compact` are comments.";

/// The command and its subcommands.
pub fn command() -> Command {
    let directory = || {
        let hint = ValueHint::DirPath;
        let parser = clap::value_parser!(PathBuf);
        Arg::new("directory").value_name("DIR").required(true).value_hint(hint).value_parser(parser)
    };
    let file = Arg::new("file")
        .value_name("FILE")
        .default_value("-")
        .value_hint(ValueHint::FilePath)
        .value_parser(clap::value_parser!(PathBuf))
        .help("Lines of an export or of a seeds file; `-` is the standard input");
    let sub = |name, about| Command::new(name).about(about).arg(directory());
    Command::new("index")
        .about(
            "Looks after the document index in a directory, which no server may have open, or a shared one",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(sub("stats", "Counts documents by state, hosts and bytes"))
        .subcommand(sub("export", "Writes all documents to the standard output").after_help(ABOUT_EXPORT))
        .subcommand(sub("import", "Puts documents in, with their ends").after_help(ABOUT_EXPORT).arg(file))
        .subcommand(sub(
            "compact",
            "Makes the files smaller: URLs of finished documents are forgotten, not that they are known",
        ))
        .subcommand(migrate())
}

fn migrate() -> Command {
    let url = Arg::new("url").value_name("URL").required(true).help("postgres://…");
    Command::new("migrate")
        .about("Creates or changes the tables of a shared index, as `serve` does when it starts")
        .arg(url)
}

impl IndexCommandError {
    /// Whether it is what was asked for that cannot be done, and not the world.
    pub fn is_refusal(&self) -> bool {
        matches!(self, IndexCommandError::Shared(error) if error.is_refusal())
    }
}

impl IndexCommand {
    /// What was asked for.
    pub fn from_matches(matches: &ArgMatches) -> IndexCommand {
        let (name, matches) = matches.subcommand().unwrap_or(("stats", matches));
        let path = |id: &str| matches.try_get_one::<PathBuf>(id).ok().flatten().cloned().unwrap_or_default();
        let action = match name {
            "export" => Action::Export,
            "import" => Action::Import(path("file")),
            "compact" => Action::Compact,
            "migrate" => Action::Migrate(matches.get_one::<String>("url").cloned().unwrap_or_default()),
            _ => Action::Stats,
        };
        IndexCommand { directory: path("directory"), action }
    }

    /// Does it. Results go to the standard output; what else is to be said, to the standard error.
    pub fn run(&self) -> Result<(), IndexCommandError> {
        match &self.action {
            Action::Stats => self.stats(),
            Action::Export => self.export(),
            Action::Import(file) => self.import(file),
            Action::Compact => {
                let (before, after) = tool::compact(&self.directory)?;
                Ok(say(&format!("bytes_before {before}\nbytes {after}\n"))?)
            }
            Action::Migrate(url) => {
                let done = crate::server::migrate(url)?;
                Ok(say(&format!("version_before {}\nversion {}\n", done.from, done.to))?)
            }
        }
    }

    fn stats(&self) -> Result<(), IndexCommandError> {
        let size = tool::stats(&self.directory)?;
        let of = size.documents;
        let documents = of.pending + of.done + of.failed + of.denied;
        Ok(say(&format!(
            "documents {documents}\npending {}\ndone {}\nfailed {}\ndenied {}\nhosts {}\nbytes {}\n",
            of.pending, of.done, of.failed, of.denied, size.hosts, size.bytes
        ))?)
    }

    fn export(&self) -> Result<(), IndexCommandError> {
        let forgotten = match tool::export(&self.directory, &mut BufWriter::new(io::stdout().lock())) {
            // A reader that has seen enough is no failure.
            Err(ToolError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        };
        if forgotten > 0 {
            eprintln!("urlserver: {forgotten} finished documents have no URL any more and are comments");
        }
        Ok(())
    }

    fn import(&self, path: &PathBuf) -> Result<(), IndexCommandError> {
        let imported = if path.as_os_str() == "-" {
            tool::import(&self.directory, io::stdin().lock())?
        } else {
            let open = |source| IndexCommandError::Input { path: path.clone(), source };
            tool::import(&self.directory, BufReader::new(File::open(path).map_err(open)?))?
        };
        for (line, reason) in &imported.rejected {
            eprintln!("urlserver: {}:{line}: {reason}", path.display());
        }
        let rejected = imported.rejected.len();
        say(&format!(
            "accepted {}\nduplicate {}\nrejected {rejected}\n",
            imported.accepted, imported.duplicate
        ))?;
        if rejected > 0 { Err(IndexCommandError::Rejected(rejected)) } else { Ok(()) }
    }
}

fn say(text: &str) -> Result<(), ToolError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
