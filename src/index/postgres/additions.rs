//! New URLs, beside all other work: whoever has them waits for the answer, and nobody else for them.

use super::database::DatabaseError;
use super::{PostgresIndex, work};
use crate::index::{Added, Addition};
use tokio::sync::oneshot;

/// New URLs, whoever waits, and what became of them.
pub(super) type Adding = (Vec<Addition>, oneshot::Sender<Vec<Added>>, Result<Vec<Added>, DatabaseError>);

impl PostgresIndex {
    pub(super) fn start_adding(&mut self) {
        if self.adding.is_some() || self.epoch.is_none() || !self.up {
            return;
        }
        let Some((urls, reply)) = self.adds.pop_front() else { return };
        let database = self.database.clone();
        self.adding = Some(tokio::spawn(async move {
            let result = work::add(&database, &urls).await;
            (urls, reply, result)
        }));
    }

    pub(super) fn handle_added(&mut self, added: Option<Adding>) {
        let Some((urls, reply, result)) = added else { return };
        match result {
            Ok(list) => {
                let accepted = list.iter().filter(|added| matches!(added, Added::Accepted(_))).count();
                self.counters.added.add(accepted);
                self.counters
                    .duplicates
                    .add(list.iter().filter(|added| matches!(added, Added::Duplicate)).count());
                if self.working.is_some() {
                    self.grown.extend(urls.iter().map(|new| new.url.host().into()));
                }
                for new in &urls {
                    self.held.handle_growth(new.url.host());
                }
                // Whoever asked may be gone.
                let _ = reply.send(list);
                if accepted > 0 {
                    self.grow();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "new URLs wait for the shared index");
                self.set_up(false);
                self.adds.push_front((urls, reply));
            }
        }
    }
}
