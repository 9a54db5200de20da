//! The commands that speak to a running server over HTTP: `add`, `explain`, `top`.

mod add;
pub mod arguments;
mod explain;
mod http;
mod top;

pub use http::{ClientError, Remote};

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// Feed files of URLs to the server; `-` is the standard input.
    Add(Remote, Vec<PathBuf>),
    /// Say why a URL waits.
    Explain(Remote, String),
    /// Show how things stand.
    Top(Remote),
}

/// Does it. The exit code says whether all went well; what could not be done at all is the error.
pub fn run(task: Task) -> Result<ExitCode, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        match task {
            Task::Add(remote, files) => add::run(&remote, &files).await,
            Task::Explain(remote, url) => explain::run(&remote, &url).await,
            Task::Top(remote) => top::run(&remote).await,
        }
    });
    // Whoever still waits for the standard input is not waited for.
    runtime.shutdown_background();
    code
}

/// A reader that has seen enough is no failure.
fn print(text: &str) -> Result<(), ClientError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
