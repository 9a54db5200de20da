//! What the hub does about claims: it carries words between the scheduler and a shared index, and keeps what was
//! decided under claims from being written without them.

use super::connection::ConnectionId;
use super::hub::Hub;
use crate::claim::ClaimNews;
use crate::order::{Instruction, NotKept, Standing, Subject};
use crate::scheduler::TooManyOrders;
use hashbrown::HashMap;
use tokio::sync::oneshot;

/// Orders that the shared index is to keep, and who waits to hear of them. There are no more than HTTP clients.
#[derive(Default)]
pub(super) struct Instructions {
    last: u64,
    waiting: HashMap<u64, oneshot::Sender<Result<Standing, NotKept>>>,
}

impl Instructions {
    pub(super) fn answer(&mut self, ticket: u64, result: Result<Standing, NotKept>) {
        if let Some(reply) = self.waiting.remove(&ticket) {
            // Whoever asked may be gone.
            let _ = reply.send(result);
        }
    }
}

/// What an order comes to.
pub(super) enum Obedience {
    /// It holds, or there is no room for it.
    Now(Result<Standing, TooManyOrders>),
    /// It holds once the shared index has kept it; then all servers are told.
    Later(oneshot::Receiver<Result<Standing, NotKept>>),
}

impl Hub {
    /// Does what an operator says. With a shared index it is for all servers, and the index is told first: of two words
    /// the later one counts, and only the index knows which that is.
    pub(super) fn obey_operator(&mut self, subject: Subject) -> Obedience {
        if self.scheduler.shares_its_index() {
            let (reply, answer) = oneshot::channel();
            self.instructions.last += 1;
            let ticket = self.instructions.last;
            self.instructions.waiting.insert(ticket, reply);
            self.around.index.order(Instruction { ticket, subject });
            return Obedience::Later(answer);
        }
        let now = self.now();
        let result = match subject {
            Subject::Host { host, order } => self.scheduler.handle_order(now, &host, order),
            Subject::All { paused } => {
                self.scheduler.handle_pause_all(paused);
                Ok(Standing { paused, ..Standing::default() })
            }
        };
        self.save_notes();
        Obedience::Now(result)
    }

    /// Hands on what the scheduler wants done. All reports have been handed on before.
    pub(super) fn mind_claims(&mut self) {
        let now = self.now();
        while let Some(action) = self.scheduler.poll_claim(now) {
            self.around.index.claim(action);
        }
    }

    pub(super) fn handle_claims(&mut self, news: &[ClaimNews]) {
        let now = self.now();
        for news in news {
            match news {
                ClaimNews::Renewed(until) => {
                    self.scheduler.handle_claims_renewed(now, self.around.clock.at(*until));
                    self.write_on();
                }
                ClaimNews::Lost(_) | ClaimNews::AllLost => {
                    self.take_lines_back();
                    self.scheduler.handle_claim_news(now, news);
                }
                ClaimNews::Obeyed { ticket, result } => self.instructions.answer(*ticket, *result),
                ClaimNews::Good { .. }
                | ClaimNews::Elsewhere { .. }
                | ClaimNews::WantedElsewhere(_)
                | ClaimNews::Ordered { .. }
                | ClaimNews::PauseAll(_)
                | ClaimNews::Held { .. } => {
                    self.scheduler.handle_claim_news(now, news);
                }
            }
        }
    }

    /// What was not written while claims were not good may be written now.
    fn write_on(&mut self) {
        let waiting = self.connections.iter().filter(|(_, connection)| connection.has_output());
        self.dirty.extend(waiting.map(|(&id, _)| id));
    }

    /// Lines that were decided on under claims that are lost must never be written. They are in one buffer with others:
    /// the connection ends, and the spider comes again.
    fn take_lines_back(&mut self) {
        let stuck = self.connections.iter().filter(|(_, connection)| connection.has_output());
        for id in stuck.map(|(&id, _)| id).collect::<Vec<ConnectionId>>() {
            self.close(id, "what it has not read is not ours to send any more");
        }
    }
}
