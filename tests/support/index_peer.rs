//! The other end of an index connection, played line by line by a test.

use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Nothing in these tests takes this long unless it never happens.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Listener(TcpListener);

impl Listener {
    pub(crate) async fn bind(address: &str) -> Listener {
        Listener(TcpListener::bind(address).await.expect("a port"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    pub(crate) async fn accept(&self) -> Peer {
        let (stream, _) =
            timeout(DEADLINE, self.0.accept()).await.expect("a connection in time").expect("a connection");
        Peer { stream: BufReader::new(stream) }
    }
}

pub(crate) struct Peer {
    stream: BufReader<TcpStream>,
}

impl Peer {
    pub(crate) async fn say(&mut self, text: impl AsRef<[u8]>) {
        self.stream.write_all(text.as_ref()).await.expect("a connection");
    }

    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(DEADLINE, self.stream.read_line(&mut line)).await.expect("a line in time").expect("a line");
        line
    }

    /// The next lines are exactly these.
    pub(crate) async fn expect(&mut self, lines: &[&str]) {
        for line in lines {
            assert_eq!(self.line().await, format!("{line}\n"));
        }
    }

    /// The server has closed the connection.
    pub(crate) async fn expect_end(&mut self) {
        assert_eq!(self.line().await, "");
    }
}
