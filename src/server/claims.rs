//! What the hub does about claims: it carries words between the scheduler and a shared index, and keeps what was
//! decided under claims from being written without them.

use super::connection::ConnectionId;
use super::hub::Hub;
use crate::claim::ClaimNews;

impl Hub {
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
                ClaimNews::Good { .. } | ClaimNews::Elsewhere { .. } | ClaimNews::WantedElsewhere(_) => {
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
