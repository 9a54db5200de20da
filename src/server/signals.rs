//! SIGTERM and SIGINT: the first asks to stop, the second does not ask.

use super::hub::Event;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// From its making on, signals do not end the process by themselves.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Must be called inside a runtime.
    pub(super) fn catch() -> io::Result<Signals> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Signals { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }
}

/// Waits for signals, for ever.
pub(super) async fn watch(mut signals: Signals, events: mpsc::Sender<Event>) {
    for asked_before in [false, true] {
        tokio::select! {
            _ = signals.terminate.recv() => {}
            _ = signals.interrupt.recv() => {}
        }
        if asked_before {
            tracing::warn!("stopping at once");
            std::process::exit(1);
        }
        tracing::info!("stopping; a second signal stops at once");
        let events = events.clone();
        tokio::spawn(async move { events.send(Event::Stop).await });
    }
}
