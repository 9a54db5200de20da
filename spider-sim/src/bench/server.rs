//! A server process: started on its core, known by its `ready` line, ended with its value.

use super::pin::Pinning;
use super::process;
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// A server that is not ready by then never will be.
const READY_MAX: Duration = Duration::from_secs(300);
/// Least that is waited for a server to come to rest; more for much work.
const LOAD_MIN: Duration = Duration::from_secs(300);
/// A slower load than this is none.
const LOAD_URLS_PER_SEC: u64 = 20_000;
/// Lines that are kept until somebody takes them: more than a server says that is measured.
const LINES_MAX: usize = 10_000;
/// Lines of its log that are shown.
const LOG_MAX: usize = 20;
/// How long an end may take before it is forced.
const END_MAX: Duration = Duration::from_secs(10);

/// Which server to start, and where it runs.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Its binary.
    pub(super) path: PathBuf,
    /// Arguments behind all others.
    pub(super) more: Vec<String>,
    /// Its core.
    pub(super) pinning: Pinning,
}

/// A server that is ready; it ends with this value.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// When it was started.
    pub(super) started: Instant,
    /// Where it listens for spiders.
    pub(super) listen: String,
    /// Its HTTP interface, or `none`.
    pub(super) http: String,
    log: Receiver<String>,
}

impl Program {
    /// Starts it, and waits until it is ready.
    pub(super) fn start(&self, arguments: &[String]) -> anyhow::Result<Server> {
        let mut command = Command::new(&self.path);
        command.args(arguments).args(&self.more).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let child = self.pinning.spawn(&mut command);
        let mut child = child.with_context(|| format!("cannot start {}", self.path.display()))?;
        let stdout = child.stdout.take().context("no stdout")?;
        let log = lines_of(child.stderr.take().context("no stderr")?);
        // From here on the child ends with the value, whatever goes wrong.
        let mut server = Server { child, started, listen: String::new(), http: String::new(), log };
        match ready(&lines_of(stdout)) {
            Ok((listen, http)) => (server.listen, server.http) = (listen, http),
            Err(error) => bail!("{error:#}; it said: {}", server.last_words()),
        }
        Ok(server)
    }
}

/// The lines of a stream as they come, until it ends. Of those that nobody takes the first are kept.
fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (say, hear) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        // Read on even if nobody listens: a full pipe would stop the server.
        lines.for_each(|line| {
            let _ = say.try_send(line);
        });
    });
    hear
}

/// Where the server listens, from the one line it prints.
fn ready(stdout: &Receiver<String>) -> anyhow::Result<(String, String)> {
    let line = stdout.recv_timeout(READY_MAX).context("no ready line")?;
    let value = |key: &str| {
        let words = line.strip_prefix("ready ")?;
        words.split_whitespace().find_map(|word| word.strip_prefix(key)).map(str::to_owned)
    };
    let listen = value("listen=").with_context(|| format!("no ready line, but {line:?}"))?;
    Ok((listen, value("http=").unwrap_or_else(|| "none".into())))
}

impl Server {
    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time it has used.
    pub(super) fn cpu(&self) -> Duration {
        process::cpu(self.pid())
    }

    /// Resident bytes.
    pub(super) fn rss(&self) -> u64 {
        process::rss(self.pid())
    }

    /// Waits until memory and CPU have come to rest, after being given `urls` URLs.
    pub(super) fn wait_calm(&self, urls: u64) -> anyhow::Result<()> {
        let patience = LOAD_MIN + Duration::from_secs(urls / LOAD_URLS_PER_SEC);
        let start = Instant::now();
        let mut before = (self.rss(), self.cpu());
        let mut calm = 0;
        while calm < 5 {
            if start.elapsed() > patience {
                bail!("the server is still busy after {patience:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
            let now = (self.rss(), self.cpu());
            let still = now.0.abs_diff(before.0) < 128 * 1024
                && now.1.saturating_sub(before.1) < Duration::from_millis(5);
            calm = if still { calm + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    /// Waits for a line of its log with these words.
    pub(super) fn wait_log(&self, words: &str, patience: Duration) -> anyhow::Result<String> {
        let end = Instant::now() + patience;
        loop {
            match self.log.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(words) => return Ok(line),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => bail!("the server has not said {words:?} in {patience:?}"),
                Err(RecvTimeoutError::Disconnected) => bail!("the server ended before it said {words:?}"),
            }
        }
    }

    /// Asks it to end, and waits for that.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.context("no pid")?, rustix::process::Signal::TERM)?;
        let end = Instant::now() + END_MAX;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                bail!("the server does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn last_words(&mut self) -> String {
        let _ = self.child.kill();
        let said: Vec<String> = self.log.iter().collect();
        said[said.len().saturating_sub(LOG_MAX)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already; there is nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn the_ready_line_is_read_and_anything_else_refused() {
        let ready = |text: &'static str| ready(&lines_of(Cursor::new(text)));
        let both = ("127.0.0.1:4332".to_owned(), "none".to_owned());
        assert_eq!(ready("ready listen=127.0.0.1:4332 http=none\n").unwrap(), both);
        assert!(ready("hello\n").is_err());
        assert!(ready("").is_err());
    }

    #[test]
    fn a_program_that_is_no_server_is_named_with_its_words() {
        let pinning = Pinning::new(false);
        let start = |path: &str, arguments: &[&str]| {
            let program = Program { path: path.into(), more: Vec::new(), pinning: pinning.clone() };
            let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
            format!("{:#}", program.start(&arguments).map(|_| ()).unwrap_err())
        };
        assert!(start("/no/such/program", &[]).contains("/no/such/program"));
        assert!(start("sh", &["-c", "echo bad setting >&2"]).contains("bad setting"));
    }
}
