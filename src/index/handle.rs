//! An index in a task of its own, and what the server holds of it.
//!
//! Every channel is bounded: one open request, `REPORT_BATCHES`, `ADD_BATCHES`, `LOOK_UPS`, `EVENTS`. The server's
//! loop never waits to hand something over: reports wait in the handle, which holds no more of them than
//! there were pending documents, since a document has one report. Whoever adds URLs does wait.

use super::{Added, Addition, Counters, DocumentIndex, IndexEvent, Known};
use crate::claim::ClaimAction;
use crate::document::Report;
use crate::order::Instruction;
use crate::url::Url;
use std::sync::Arc;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Batches of reports on their way to the index's task.
const REPORT_BATCHES: usize = 4;
/// Batches of new URLs on their way to the index's task.
const ADD_BATCHES: usize = 4;
/// Questions for single URLs on their way to the index's task.
const LOOK_UPS: usize = 4;
/// Events on their way to the server.
const EVENTS: usize = 4;

/// The index's task is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the document index is closed")]
pub struct IndexGone;

/// The server's end: asks, reports, and hears what the index says.
#[derive(Debug)]
pub struct IndexHandle {
    asks: mpsc::Sender<Ask>,
    reports: mpsc::Sender<Told>,
    events: mpsc::Receiver<IndexEvent>,
    unsent: Told,
    asking: bool,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

/// Puts URLs into the index, and asks after them; as many of these as you like.
#[derive(Clone, Debug)]
pub struct Adder {
    batches: mpsc::Sender<Batch>,
    look_ups: mpsc::Sender<LookUp>,
}

/// URLs that are on their way into the index.
#[derive(Debug)]
pub(super) struct Adding(oneshot::Receiver<Vec<Added>>);

impl Adding {
    /// What became of each, in the same order.
    pub(super) async fn end(self) -> Result<Vec<Added>, IndexGone> {
        self.0.await.map_err(|_| IndexGone)
    }
}

#[derive(Debug)]
struct Ask {
    n: usize,
    reject: Vec<Box<str>>,
    /// What was said before: the index hears of it before it is asked.
    told: Told,
}

/// What the index is told, in this order.
#[derive(Default, Debug)]
struct Told {
    reports: Vec<Report>,
    claims: Vec<ClaimAction>,
    orders: Vec<Instruction>,
}

impl Told {
    fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.claims.is_empty() && self.orders.is_empty()
    }

    fn tell(self, index: &mut impl DocumentIndex) {
        index.report(self.reports);
        index.claim(self.claims);
        self.orders.into_iter().for_each(|instruction| index.order(instruction));
    }
}

#[derive(Debug)]
struct Batch {
    urls: Vec<Addition>,
    reply: oneshot::Sender<Vec<Added>>,
}

#[derive(Debug)]
struct LookUp {
    url: Url,
    reply: oneshot::Sender<Known>,
}

/// Runs `index` in a task of its own.
pub fn spawn(index: impl DocumentIndex) -> (IndexHandle, Adder) {
    let (asks, asks_in) = mpsc::channel(1);
    let (reports, reports_in) = mpsc::channel(REPORT_BATCHES);
    let (batches, adds_in) = mpsc::channel(ADD_BATCHES);
    let (look_ups, look_ups_in) = mpsc::channel(LOOK_UPS);
    let (events_out, events) = mpsc::channel(EVENTS);
    let counters = index.counters();
    let inbox = Inbox { asks: asks_in, reports: reports_in, adds: adds_in, look_ups: look_ups_in };
    let task = tokio::spawn(run(index, inbox, events_out));
    (
        IndexHandle { asks, reports, events, unsent: Told::default(), asking: false, counters, task },
        Adder { batches, look_ups },
    )
}

impl IndexHandle {
    /// Asks for up to `n` documents; false if the last request is still open.
    pub fn ask(&mut self, n: usize, mut reject: Vec<Box<str>>) -> bool {
        if self.asking {
            return false;
        }
        reject.sort_unstable();
        reject.dedup();
        let told = std::mem::take(&mut self.unsent);
        // There is room: the last request has been answered, so it has been taken out.
        self.asking = self.asks.try_send(Ask { n, reject, told }).is_ok();
        self.asking
    }

    /// Whether a request is open.
    pub fn is_asking(&self) -> bool {
        self.asking
    }

    /// Reports the end of a document. It leaves with the next call of [`IndexHandle::event`].
    pub fn report(&mut self, report: Report) {
        self.unsent.reports.push(report);
    }

    /// Says what is to be done about claims, after all that was reported. It leaves like a report.
    pub fn claim(&mut self, action: ClaimAction) {
        self.unsent.claims.push(action);
    }

    /// Has an order kept for all servers that share the index. It leaves like a report.
    pub fn order(&mut self, instruction: Instruction) {
        self.unsent.orders.push(instruction);
    }

    /// What the index says next; `None` if it is gone. May be dropped at any time and called again.
    pub async fn event(&mut self) -> Option<IndexEvent> {
        loop {
            tokio::select! {
                Ok(permit) = self.reports.reserve(), if !self.unsent.is_empty() => {
                    permit.send(std::mem::take(&mut self.unsent));
                }
                event = self.events.recv() => {
                    if matches!(event, None | Some(IndexEvent::Answered { .. })) {
                        self.asking = false;
                    }
                    return event;
                }
            }
        }
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Hands over the last reports and waits until the index has done what it can. The caller sets the limit.
    pub async fn close(mut self) {
        // Nobody reads events any more: the task must not wait for room among them.
        self.events.close();
        if !self.unsent.is_empty() {
            let _ = self.reports.send(std::mem::take(&mut self.unsent)).await;
        }
        drop((self.asks, self.reports));
        let _ = self.task.await;
    }
}

impl Adder {
    /// Puts `urls` into the index and says what became of each, in the same order.
    pub async fn add(&self, urls: Vec<Addition>) -> Result<Vec<Added>, IndexGone> {
        self.begin(urls).await?.end().await
    }

    /// The same in two steps: what comes between them is done while the index is at it.
    pub(super) async fn begin(&self, urls: Vec<Addition>) -> Result<Adding, IndexGone> {
        let (reply, answer) = oneshot::channel();
        self.batches.send(Batch { urls, reply }).await.map_err(|_| IndexGone)?;
        Ok(Adding(answer))
    }

    /// What the index knows of `url`.
    pub async fn look_up(&self, url: Url) -> Result<Known, IndexGone> {
        let (reply, answer) = oneshot::channel();
        self.look_ups.send(LookUp { url, reply }).await.map_err(|_| IndexGone)?;
        answer.await.map_err(|_| IndexGone)
    }
}

struct Inbox {
    asks: mpsc::Receiver<Ask>,
    reports: mpsc::Receiver<Told>,
    adds: mpsc::Receiver<Batch>,
    look_ups: mpsc::Receiver<LookUp>,
}

/// Until the handle is dropped; then the reports that are left.
async fn run(mut index: impl DocumentIndex, mut inbox: Inbox, events: mpsc::Sender<IndexEvent>) {
    loop {
        tokio::select! {
            ask = inbox.asks.recv() => match ask {
                Some(Ask { n, reject, told }) => {
                    while let Ok(earlier) = inbox.reports.try_recv() {
                        earlier.tell(&mut index);
                    }
                    told.tell(&mut index);
                    index.ask(n, reject);
                }
                None => break,
            },
            Some(told) = inbox.reports.recv() => told.tell(&mut index),
            Some(Batch { urls, reply }) = inbox.adds.recv() => index.add(urls, reply),
            Some(LookUp { url, reply }) = inbox.look_ups.recv() => index.look_up(url, reply),
            open = pass_on(&mut index, &events) => if !open { break },
        }
    }
    while let Some(told) = inbox.reports.recv().await {
        told.tell(&mut index);
    }
    index.close().await;
}

/// One event, once there is room for it; false if nobody listens.
async fn pass_on(index: &mut impl DocumentIndex, events: &mpsc::Sender<IndexEvent>) -> bool {
    let Ok(room) = events.reserve().await else { return false };
    room.send(index.event().await);
    true
}
