//! `urlserver add`: files of URLs, as fast as the server takes them.

use super::{ClientError, Remote, print};
use crate::observe::words::grouped;
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll, ready};
use tokio::fs::File;
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes read at once.
const READ_MAX: usize = 128 * 1024;

pub(super) async fn run(remote: &Remote, paths: &[PathBuf]) -> Result<ExitCode, ClientError> {
    let mut files = Vec::new();
    for path in paths {
        files.push(open(path)?);
    }
    // Who is not let in should hear it before anything is read.
    remote.get("/api/stats").await?;
    let progress = progress(&files);
    let mut total = Fed::default();
    for (name, file, _) in files {
        let body = FileBody { file, buffer: vec![0; READ_MAX], progress: progress.clone() };
        let answer = remote.post("/api/urls", body).await?;
        let fed = Fed::read(&answer);
        progress.suspend(|| complain(&name, &answer, &fed));
        total = total.and(&fed);
    }
    progress.finish_and_clear();
    print(&format!(
        "{} accepted, {} duplicate, {} rejected\n",
        grouped(total.accepted),
        grouped(total.duplicate),
        grouped(total.rejected)
    ))?;
    Ok(ExitCode::from(u8::from(total.rejected > 0)))
}

/// What became of the lines of one file, or of all.
#[derive(Default)]
struct Fed {
    accepted: u64,
    duplicate: u64,
    rejected: u64,
}

impl Fed {
    fn read(answer: &Value) -> Fed {
        let number = |name: &str| answer[name].as_u64().unwrap_or(0);
        Fed { accepted: number("accepted"), duplicate: number("duplicate"), rejected: number("rejected") }
    }

    fn and(&self, other: &Fed) -> Fed {
        Fed {
            accepted: self.accepted + other.accepted,
            duplicate: self.duplicate + other.duplicate,
            rejected: self.rejected + other.rejected,
        }
    }
}

/// Names the lines that were not taken.
fn complain(name: &str, answer: &Value, fed: &Fed) {
    let errors = answer["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    for error in errors {
        eprintln!("{name}:{}: {}", error["line"], error["reason"].as_str().unwrap_or_default());
    }
    let more = fed.rejected.saturating_sub(errors.len() as u64);
    if more > 0 {
        eprintln!("{name}: and {} more", grouped(more));
    }
}

/// Its name, itself, and its size if it has one.
type Opened = (String, File, Option<u64>);

fn open(path: &Path) -> Result<Opened, ClientError> {
    let name = path.display().to_string();
    let opened = if name == "-" {
        io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from)
    } else {
        std::fs::File::open(path)
    };
    let checked = opened.and_then(|file| {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok((File::from_std(file), meta.is_file().then_some(meta.len())))
    });
    match checked {
        Ok((file, size)) => Ok((name, file, size)),
        Err(source) => Err(ClientError::File { name, source }),
    }
}

/// A bar where somebody looks at it; without an end where the size is not known.
fn progress(files: &[Opened]) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let size: Option<u64> = files.iter().map(|(_, _, size)| *size).sum();
    let (bar, template) = match size {
        Some(size) => {
            (ProgressBar::new(size), "{wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}, {bytes_per_sec}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A file as the body of a request.
struct FileBody {
    file: File,
    buffer: Vec<u8>,
    progress: ProgressBar,
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let FileBody { file, buffer, progress } = self.get_mut();
        let mut read = ReadBuf::new(buffer);
        Poll::Ready(match ready!(Pin::new(file).poll_read(cx, &mut read)) {
            Ok(()) if read.filled().is_empty() => None,
            Ok(()) => {
                progress.inc(read.filled().len() as u64);
                Some(Ok(Frame::data(BytesMut::from(read.filled()).freeze())))
            }
            Err(error) => Some(Err(error)),
        })
    }
}
