//! The real binary as a server on free ports, and its HTTP interface as a plain client sees it.

use super::lines::Door;
use super::lines::{DEADLINE, GLANCE};
use super::scripted_index::Index;
use super::spider::Spider;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Settings of a server that is not started yet. Unless told otherwise it knows no limits but the number in
/// flight, uses loopback addresses, and keeps its documents in memory.
pub(crate) struct Setup {
    scratch: TempDir,
    arguments: Vec<String>,
}

impl Setup {
    pub(crate) fn new() -> Setup {
        let setup =
            Setup { scratch: tempfile::tempdir().expect("a folder"), arguments: vec!["serve".into()] };
        setup
            .flag("listen", "127.0.0.1:0")
            .flag("http", "127.0.0.1:0")
            .flag("index", "memory")
            .flag("robots", "ignore")
            .flag("allow-private", "true")
            .flag("req-host-per-sec", "inf")
            .flag("delay-factor", "0")
    }

    /// Sets a flag, instead of what it was.
    pub(crate) fn flag(mut self, name: &str, value: &str) -> Setup {
        let flag = format!("--{name}");
        match self.arguments.iter().position(|argument| *argument == flag) {
            Some(place) => self.arguments[place + 1] = value.to_owned(),
            None => self.arguments.extend([flag, value.to_owned()]),
        }
        self
    }

    /// A settings file: beneath the flags.
    pub(crate) fn file(self, text: &str) -> Setup {
        let path = self.write("settings.toml", text);
        self.flag("config", &path)
    }

    pub(crate) fn seeds(self, lines: &[&str]) -> Setup {
        let path = self.write("seeds", &lines.join("\n"));
        self.flag("seeds", &path)
    }

    pub(crate) fn hosts(self, lines: &[&str]) -> Setup {
        let path = self.write("hosts", &lines.join("\n"));
        self.flag("hosts-file", &path)
    }

    /// The index is at the door, and speaks TCP.
    pub(crate) fn index(self, door: &Door) -> Setup {
        let address = format!("tcp://{}", door.address());
        self.flag("index", &address)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.scratch.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// Starts it, and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(self) -> Server {
        let mut child = self.spawn();
        let (stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let log = collect(stderr);
        let (line, stdout) = first_line(stdout);
        let addresses = line.strip_prefix("ready listen=").and_then(|rest| rest.split_once(" http="));
        let Some((listen, http)) = addresses else {
            let _ = child.kill();
            panic!("{line:?} instead of the ready line\n{}", log.recv().unwrap_or_default());
        };
        let address = |text: &str| text.parse().ok();
        let (listen, http) = (address(listen), address(http));
        Server { child, listen, http, stdout: Some(stdout), log, _scratch: self.scratch }
    }

    /// Starts it with an index that is a script, and waits until it is connected.
    #[track_caller]
    pub(crate) fn start_with_index(self) -> (Server, Index, Door) {
        let door = Door::open();
        let server = self.index(&door).start();
        let index = Index::accept(&door);
        (server, index, door)
    }

    /// Runs it in the expectation that it ends by itself, soon: exit code, stdout, stderr.
    #[track_caller]
    pub(crate) fn fails(self) -> (Option<i32>, String, String) {
        let mut child = self.spawn();
        let log = collect(child.stderr.take().expect("a pipe"));
        let out = collect(child.stdout.take().expect("a pipe"));
        let status = wait(&mut child, DEADLINE);
        let _ = child.kill();
        let status = status.expect("an end");
        (status.code(), out.recv().unwrap_or_default(), log.recv().unwrap_or_default())
    }

    /// Starts it, and waits for nothing.
    pub(crate) fn spawn(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_urlserver"));
        command.args(&self.arguments).env_remove("RUST_LOG");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("URLSERVER_") {
                command.env_remove(name);
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary")
    }
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    listen: Option<SocketAddr>,
    http: Option<SocketAddr>,
    stdout: Option<BufReader<ChildStdout>>,
    /// All of stderr, once it has ended.
    log: mpsc::Receiver<String>,
    _scratch: TempDir,
}

/// What a server left behind.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// What it printed after the ready line.
    pub(crate) stdout: String,
    pub(crate) log: String,
}

impl Server {
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen.expect("a listener")
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.http.expect("an HTTP interface")
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.listen.is_some()
    }

    pub(crate) fn has_http(&self) -> bool {
        self.http.is_some()
    }

    pub(crate) fn spider(&self) -> Spider {
        Spider::connect(self.listen())
    }

    /// Sends a signal: `TERM`, `INT`, `STOP`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status().expect("kill");
        assert!(status.success(), "no signal {name}");
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self, limit: Duration) -> Ended {
        let status = wait(&mut self.child, limit);
        if status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let log = self.log.recv().unwrap_or_default();
        let Some(status) = status else { panic!("no end in {limit:?}\n{log}") };
        let mut stdout = String::new();
        self.stdout.take().expect("once").read_to_string(&mut stdout).expect("text");
        Ended { code: status.code(), stdout, log }
    }

    /// Asks it to stop; it does, with exit code 0, in under 5 s.
    #[track_caller]
    pub(crate) fn stop(self) -> Ended {
        self.signal("TERM");
        let ended = self.end(Duration::from_secs(5));
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        ended
    }

    /// Memory in use, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Open sockets.
    pub(crate) fn open_sockets(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("a process");
        let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    /// CPU time used so far.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a process");
        let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
        let ticks: u64 = [11, 12].iter().map(|&field| fields[field].parse::<u64>().expect("ticks")).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Status and body.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.get_with(path, &[])
    }

    /// With further headers; `Host` is ours unless given.
    #[track_caller]
    pub(crate) fn get_with(&self, path: &str, headers: &[&str]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http()).expect("a connection");
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let host = format!("Host: {}", self.http());
        let host =
            if headers.iter().any(|header| header.starts_with("Host:")) { vec![] } else { vec![&*host] };
        let headers = [&host, headers, &["Connection: close"]].concat().join("\r\n");
        write!(stream, "GET {path} HTTP/1.1\r\n{headers}\r\n\r\n").expect("a connection");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status.unwrap_or_else(|| panic!("{text:?} is no answer")), body.to_owned())
    }

    #[track_caller]
    pub(crate) fn stats(&self) -> serde_json::Value {
        let (status, body) = self.get("/api/stats");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    #[track_caller]
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let stats = self.stats();
        stats[name].as_u64().unwrap_or_else(|| panic!("{name} in {stats}"))
    }

    /// Waits until a count has come to this.
    #[track_caller]
    pub(crate) fn until_stat(&self, name: &str, value: u64) {
        let end = Instant::now() + DEADLINE;
        let mut last = self.stat(name);
        while last != value {
            assert!(Instant::now() < end, "{name} is {last}, not {value}: {}", self.stats());
            std::thread::sleep(GLANCE);
            last = self.stat(name);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server said:\n{}", self.log.recv_timeout(DEADLINE).unwrap_or_default());
        }
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[track_caller]
fn first_line(stdout: ChildStdout) -> (String, BufReader<ChildStdout>) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let _ = stdout.read_line(&mut line);
        let _ = sender.send((line, stdout));
    });
    let (line, stdout) = receiver.recv_timeout(DEADLINE).expect("a line on stdout");
    (line.trim_end_matches('\n').to_owned(), stdout)
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(GLANCE);
    }
}
