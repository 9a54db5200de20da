//! One end of a TCP connection that speaks in lines, with a deadline for everything that must happen.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Nothing in these tests takes this long unless it never happens.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// How often something is looked at that nobody announces.
pub(crate) const GLANCE: Duration = Duration::from_millis(10);

pub(crate) struct Lines {
    pub(crate) stream: TcpStream,
    input: Vec<u8>,
}

/// What came within a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    Line(String),
    /// The other end has closed the connection, or broken it off.
    End,
    Nothing,
}

impl Lines {
    pub(crate) fn connect(address: SocketAddr) -> Lines {
        Lines::over(TcpStream::connect_timeout(&address, DEADLINE).expect("a connection"))
    }

    pub(crate) fn over(stream: TcpStream) -> Lines {
        stream.set_nodelay(true).expect("a socket");
        stream.set_write_timeout(Some(DEADLINE)).expect("a socket");
        Lines { stream, input: Vec::new() }
    }

    pub(crate) fn say(&mut self, text: impl AsRef<[u8]>) {
        self.stream.write_all(text.as_ref()).expect("a connection");
    }

    /// The same, over a connection that the other end may be closing meanwhile.
    pub(crate) fn try_say(&mut self, text: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(text.as_ref())
    }

    /// What comes within `limit`. Lines are given without their end.
    pub(crate) fn within(&mut self, limit: Duration) -> Came {
        let end = Instant::now() + limit;
        loop {
            if let Some(length) = self.input.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=length).collect();
                return Came::Line(String::from_utf8(line[..length].to_vec()).expect("ASCII"));
            }
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left)).expect("a socket");
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Came::End,
                Ok(length) => self.input.extend_from_slice(&buffer[..length]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if Instant::now() >= end => {
                        return Came::Nothing;
                    }
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Came::End,
                },
            }
        }
    }

    /// The next line, which must come.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        match self.within(DEADLINE) {
            Came::Line(line) => line,
            other => panic!("{other:?} instead of a line"),
        }
    }

    /// Nothing is said for `time`: the only way in which a test lets time pass.
    #[track_caller]
    pub(crate) fn silence(&mut self, time: Duration) {
        assert_eq!(self.within(time), Came::Nothing);
    }

    /// The connection is closed by the other end, after nothing more is said.
    #[track_caller]
    pub(crate) fn end(&mut self) {
        assert_eq!(self.within(DEADLINE), Came::End);
    }
}

/// Waits for somebody who dials.
pub(crate) struct Door(TcpListener);

impl Door {
    pub(crate) fn open() -> Door {
        Door::at("127.0.0.1:0".parse().expect("an address"))
    }

    pub(crate) fn at(address: SocketAddr) -> Door {
        let listener = TcpListener::bind(address).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        Door(listener)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    #[track_caller]
    pub(crate) fn accept(&self) -> Lines {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).expect("a socket");
                    return Lines::over(stream);
                }
                Err(_) => std::thread::sleep(GLANCE),
            }
        }
        panic!("nobody dials");
    }
}
