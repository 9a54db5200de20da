//! One request, one answer, over a connection of its own.

use crate::time::Duration;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::error::Error;
use std::io;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for a connection, and for an answer that is not waited for by design.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest answer.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// A running server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// `HOST:PORT`.
    pub address: String,
    /// Its `http_token`.
    pub token: Option<String>,
}

/// Why something could not be done.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody answers there.
    #[error("cannot reach {address}: {source}")]
    Unreachable {
        /// Where.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The conversation broke off.
    #[error("no answer from {address}: {reason}")]
    Broken {
        /// Where.
        address: String,
        /// What happened.
        reason: String,
    },
    /// The server refuses.
    #[error("{why} ({status})")]
    Refused {
        /// The status of its answer.
        status: StatusCode,
        /// What it says.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read {name}: {source}")]
    File {
        /// Which.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// Not something that can be asked for.
    #[error("{0}")]
    Usage(String),
    /// The system refuses something basic.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl ClientError {
    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            ClientError::Usage(_) => 2,
            ClientError::Unreachable { .. }
            | ClientError::Broken { .. }
            | ClientError::Refused { .. }
            | ClientError::File { .. }
            | ClientError::System(_) => 1,
        }
    }
}

impl Remote {
    /// What the server answers.
    pub(super) async fn get(&self, path: &str) -> Result<Value, ClientError> {
        let answer = timeout(ANSWER_TIMEOUT, self.ask(Method::GET, path, Empty::<Bytes>::new())).await;
        answer.unwrap_or_else(|_| Err(self.broken("it takes too long")))
    }

    /// Sends `body`, however long that takes; what the server answers.
    pub(super) async fn post<B>(&self, path: &str, body: B) -> Result<Value, ClientError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.ask(Method::POST, path, body).await
    }

    async fn ask<B>(&self, method: Method, path: &str, body: B) -> Result<Value, ClientError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let stream = self.connect().await?;
        // By its address: a server that is asked by another name takes it for a trick.
        let host = stream.peer_addr()?.to_string();
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken_by(&error))?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(HOST, host);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(body).map_err(|error| ClientError::Usage(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|error| self.broken_by(&error))?;
        let answer = self.read(answer).await;
        connection.abort();
        answer
    }

    async fn connect(&self) -> Result<TcpStream, ClientError> {
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.address)).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        connected.map_err(|source| ClientError::Unreachable { address: self.address.clone(), source })
    }

    async fn read(&self, answer: Response<Incoming>) -> Result<Value, ClientError> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|error| self.broken(&error.to_string()))?.to_bytes();
        let value: Option<Value> = serde_json::from_slice(&body).ok();
        if status.is_success() {
            return value.ok_or_else(|| self.broken("its answer is not JSON"));
        }
        let why = value.as_ref().and_then(|value| value["error"].as_str());
        Err(ClientError::Refused { status, why: why.unwrap_or("the server refuses").to_owned() })
    }

    fn broken(&self, reason: &str) -> ClientError {
        ClientError::Broken { address: self.address.clone(), reason: reason.to_owned() }
    }

    /// The reason of a reason is what people can use.
    fn broken_by(&self, error: &hyper::Error) -> ClientError {
        self.broken(&error.source().map_or_else(|| error.to_string(), ToString::to_string))
    }
}
