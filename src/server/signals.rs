//! SIGTERM and SIGINT: the first asks to stop, the second does not ask.

use super::hub::Event;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Waits for signals, for ever.
pub(super) async fn watch(events: mpsc::Sender<Event>) {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return tracing::error!("signals cannot be watched: the server ends without saving anything");
    };
    for asked_before in [false, true] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
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
