//! Requests that change something: any method, any body.

use super::lines::DEADLINE;
use super::server::Server;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Status and body of the answer.
#[track_caller]
pub(crate) fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}", body.len());
    write!(stream, "{head}\r\nConnection: close\r\n\r\n{body}").expect("a connection");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or_else(|| panic!("{text:?} is no answer")), body.to_owned())
}

impl Server {
    #[track_caller]
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
        let (status, body) = request(self.http(), method, path, body);
        let value = if body.is_empty() { Ok(serde_json::Value::Null) } else { serde_json::from_str(&body) };
        (status, value.unwrap_or_else(|_| panic!("{body:?} is no JSON")))
    }

    /// An order that must be understood.
    #[track_caller]
    pub(crate) fn order(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.request("POST", path, "");
        assert_eq!(status, 200, "{body}");
        body
    }
}
