//! How connections come about: listening, and dialling; one kind of connection either way.

use super::connection::{Connection, ConnectionId};
use super::hub::Event;
use crate::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// Wait before accepting again after the system refused to.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const DIAL_WAIT_MIN: Duration = Duration::from_secs(1);
const DIAL_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait for an answer to a call.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Lets spiders in, for ever.
pub(super) async fn listen(listener: TcpListener, events: mpsc::Sender<Event>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if events.send(Event::Connected(open(stream, peer, None))).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a spider's connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Keeps one connection to a spider that listens, for ever.
pub(super) async fn dial(host: String, port: u16, events: mpsc::Sender<Event>) {
    let mut wait = DIAL_WAIT_MIN;
    loop {
        match call(&host, port).await {
            Ok((stream, peer)) => {
                tracing::info!(host, port, %peer, "spider dialled");
                let (closed, until_closed) = oneshot::channel();
                if events.send(Event::Connected(open(stream, peer, Some(closed)))).await.is_err() {
                    return;
                }
                let _ = until_closed.await;
                wait = DIAL_WAIT_MIN;
            }
            Err(error) => {
                tracing::warn!(host, port, %error, retry_in = ?wait, "cannot reach the spider");
                wait = (wait * 2).min(DIAL_WAIT_MAX);
            }
        }
        sleep(wait.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
    }
}

async fn call(host: &str, port: u16) -> std::io::Result<(TcpStream, SocketAddr)> {
    let stream = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect((host, port))).await??;
    let peer = stream.peer_addr()?;
    Ok((stream, peer))
}

fn open(stream: TcpStream, peer: SocketAddr, closed: Option<oneshot::Sender<()>>) -> Box<Connection> {
    // Lines are small and few at a time when politeness is what limits: they must not wait for company.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "no TCP_NODELAY");
    }
    Box::new(Connection::new(stream, peer, closed))
}

/// Tells the hub whenever there is something to read; once, until it is told to watch again.
pub(super) async fn watch(
    id: ConnectionId,
    stream: Arc<TcpStream>,
    again: Arc<tokio::sync::Notify>,
    events: mpsc::Sender<Event>,
) {
    loop {
        let _ = stream.ready(Interest::READABLE).await;
        if events.send(Event::Readable(id)).await.is_err() {
            return;
        }
        again.notified().await;
    }
}

/// Tells the hub, once, when there is room to write.
pub(super) async fn await_room(id: ConnectionId, stream: Arc<TcpStream>, events: mpsc::Sender<Event>) {
    let _ = stream.ready(Interest::WRITABLE).await;
    let _ = events.send(Event::Writable(id)).await;
}
