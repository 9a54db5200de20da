//! Pieces of work in the database, one at a time, and what follows from how they end.

use super::claims::{self, Epoch, GivenBack, Wanted};
use super::database::{Database, DatabaseError};
use super::docs;
use super::held::{self, Ask, Held, Taken};
use super::{BATCH, PostgresIndex, Todo, unusable};
use crate::claim::{ClaimAction, ClaimKey, ClaimNews, OwedClock, Wish};
use crate::document::Report;
use crate::ids::DocId;
use crate::index::{Added, Addition, IndexEvent};
use crate::time::Duration;
use hashbrown::HashSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// One piece of work.
pub(super) enum Job {
    Report { list: Arc<[Report]>, again: bool },
    Want(Arc<[(ClaimKey, Wish)]>),
    GiveBack(Arc<[GivenBack]>),
    Note(Arc<[(ClaimKey, OwedClock)]>),
    Follow { losses: i64, until: Instant },
    Take { held: Held, ask: Ask },
}

/// How it ended.
pub(super) struct Outcome {
    /// In whose name it was done.
    epoch: Epoch,
    result: Result<Done, DatabaseError>,
    /// To be done again, if it failed.
    job: Job,
}

enum Done {
    Reported(HashSet<DocId>),
    Wanted(Vec<Wanted>),
    Written,
    Followed(HashSet<ClaimKey>),
    Taken(Taken),
}

/// The first actions of one kind, up to `max`, as one piece of work.
pub(super) fn claim_job(actions: &mut VecDeque<ClaimAction>, max: usize) -> Job {
    let (mut wants, mut given, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    while wants.len() + given.len() + notes.len() < max
        && let Some(action) = actions.pop_front()
    {
        match action {
            ClaimAction::Want { key, wish } if given.is_empty() && notes.is_empty() => {
                wants.push((key, wish));
            }
            ClaimAction::GiveBack { key, clock, to_holder_of } if wants.is_empty() && notes.is_empty() => {
                given.push(GivenBack { key, clock, to_holder_of });
            }
            ClaimAction::Note { key, clock } if wants.is_empty() && given.is_empty() => {
                notes.push((key, clock));
            }
            other => {
                actions.push_front(other);
                break;
            }
        }
    }
    match (wants.is_empty(), given.is_empty()) {
        (false, _) => Job::Want(wants.into()),
        (_, false) => Job::GiveBack(given.into()),
        _ => Job::Note(notes.into()),
    }
}

pub(super) async fn run(database: Database, epoch: Epoch, promise: Duration, mut job: Job) -> Outcome {
    let result = attempt(&database, epoch, promise, &mut job).await;
    Outcome { epoch, result, job }
}

async fn attempt(
    database: &Database,
    us: Epoch,
    promise: Duration,
    job: &mut Job,
) -> Result<Done, DatabaseError> {
    match job {
        Job::Report { list, again } => {
            let (list, again) = (&*list, *again);
            let ended = database.run(|client| {
                let list = Arc::clone(list);
                Box::pin(async move { docs::report(client, us, &list, again).await })
            });
            ended.await.map(Done::Reported)
        }
        Job::Want(list) => {
            let answers = database.run(|client| {
                let list = Arc::clone(list);
                Box::pin(async move { claims::want(client, us, &list).await })
            });
            answers.await.map(Done::Wanted)
        }
        Job::GiveBack(list) => {
            let written = database.run(|client| {
                let list = Arc::clone(list);
                Box::pin(async move { claims::give_back(client, us, &list, promise).await })
            });
            written.await.map(|()| Done::Written)
        }
        Job::Note(list) => {
            let written = database.run(|client| {
                let list = Arc::clone(list);
                Box::pin(async move { claims::note(client, us, &list).await })
            });
            written.await.map(|()| Done::Written)
        }
        Job::Follow { .. } => {
            let left = database.run(move |client| Box::pin(async move { claims::held(client, us).await }));
            left.await.map(|keys| Done::Followed(keys.into_iter().collect()))
        }
        Job::Take { held, ask } => held::take(database, us, held, ask).await.map(Done::Taken),
    }
}

/// Puts URLs in, a bounded number at a time, and says what became of each.
pub(super) async fn add(database: &Database, urls: &[Addition]) -> Result<Vec<Added>, DatabaseError> {
    let mut all = Vec::with_capacity(urls.len());
    for batch in urls.chunks(BATCH) {
        let batch: Arc<[Addition]> = batch.into();
        let added = database.run(|client| {
            let batch = Arc::clone(&batch);
            Box::pin(async move { docs::add(client, &batch).await })
        });
        all.extend(added.await?);
    }
    Ok(all)
}

impl PostgresIndex {
    pub(super) fn handle_outcome(&mut self, outcome: Option<Outcome>) {
        // A task that panicked has lost what it had; nothing of it was promised to anybody but the answer.
        let Some(Outcome { epoch, result, job }) = outcome else { return self.answer(0, false) };
        let ours = self.epoch == Some(epoch);
        match (result, job) {
            (Err(error), job) => {
                tracing::warn!(%error, "work in the shared index is tried again later");
                self.stalled = true;
                self.put_back(job, ours);
            }
            (Ok(Done::Reported(ended)), Job::Report { list, .. }) => self.handle_reported(&list, &ended),
            (Ok(Done::Taken(taken)), Job::Take { held, ask }) => self.handle_taken(held, &ask, taken, ours),
            // What was done in the name of somebody who is no more is not ours.
            (Ok(_), _) if !ours => {}
            (Ok(Done::Wanted(answers)), Job::Want(list)) => self.handle_wanted(&list, answers),
            (Ok(Done::Written), Job::GiveBack(list)) => self.handle_given_back(&list),
            (Ok(Done::Followed(left)), Job::Follow { losses, until }) => {
                self.handle_followed(&left, losses, until);
            }
            (Ok(_), _) => {}
        }
    }

    fn put_back(&mut self, job: Job, ours: bool) {
        let todo = match job {
            Job::Report { list, .. } => Todo::Reports { list: list.to_vec(), again: true },
            Job::Take { held, ask } => {
                if ours {
                    self.held = held;
                }
                self.ask = Some(ask);
                return self.refuse_ask();
            }
            _ if !ours => return,
            Job::Want(list) => {
                let want =
                    |(key, wish): &(ClaimKey, Wish)| ClaimAction::Want { key: key.clone(), wish: *wish };
                Todo::Claims(list.iter().map(want).collect())
            }
            Job::GiveBack(list) => Todo::Claims(
                list.iter()
                    .map(|given| ClaimAction::GiveBack {
                        key: given.key.clone(),
                        clock: given.clock,
                        to_holder_of: given.to_holder_of.clone(),
                    })
                    .collect(),
            ),
            Job::Note(list) => Todo::Claims(
                list.iter()
                    .map(|(key, clock)| ClaimAction::Note { key: key.clone(), clock: *clock })
                    .collect(),
            ),
            // The next renewal says it again.
            Job::Follow { .. } => return,
        };
        self.todo.push_front(todo);
    }

    fn handle_reported(&mut self, list: &[Report], ended: &HashSet<DocId>) {
        let (ended, refused): (Vec<Report>, Vec<Report>) =
            list.iter().partition(|report| ended.contains(&report.doc));
        self.counters.count_reports(&ended);
        if !refused.is_empty() {
            self.counters.refused.add(refused.len());
            tracing::info!(refused = refused.len(), "reports came after their claim was lost");
        }
    }

    fn handle_taken(&mut self, held: Held, ask: &Ask, taken: Taken, ours: bool) {
        if !ours {
            return self.answer(0, false);
        }
        self.held = held;
        for host in std::mem::take(&mut self.grown) {
            self.held.handle_growth(&host);
        }
        let given = taken.candidates.len();
        self.counters.claimed.add(taken.claimed);
        self.counters.candidates.add(given);
        if !taken.unusable.is_empty() {
            self.counters.unusable.add(taken.unusable.len());
            self.push_reports(taken.unusable.into_iter().map(unusable).collect());
        }
        self.hungry = given < ask.count;
        self.outdone = taken.others_at_work;
        if given > 0 {
            self.events.push_back(IndexEvent::Candidates(taken.candidates));
        }
        // While others are at work there may be more: what they lose comes to us.
        self.answer(given, !taken.others_at_work);
    }

    fn handle_wanted(&mut self, list: &[(ClaimKey, Wish)], answers: Vec<Wanted>) {
        let mut news = Vec::new();
        for ((key, wish), answer) in list.iter().zip(answers) {
            let key = key.clone();
            match answer {
                Wanted::Good(clock) => {
                    if !matches!(key, ClaimKey::Host(_)) && self.keys.insert(key.clone()) {
                        self.counters.claimed.add(1);
                    }
                    news.push(ClaimNews::Good { key, clock });
                }
                Wanted::Elsewhere { younger } => {
                    if let ClaimKey::Host(host) = &key {
                        self.held.remove(host);
                    }
                    news.push(ClaimNews::Elsewhere { key, younger });
                }
                Wanted::Later => self.later.push((key, *wish)),
            }
        }
        self.tell(news);
    }

    fn handle_given_back(&mut self, list: &[GivenBack]) {
        self.counters.given_back.add(list.len());
        for given in list {
            match &given.key {
                ClaimKey::Host(host) => self.held.remove(host),
                key => drop(self.keys.remove(key)),
            }
        }
    }

    /// Only what is ours and theirs to say is left; then the renewal counts.
    fn handle_followed(&mut self, left: &HashSet<ClaimKey>, losses: i64, until: Instant) {
        let hosts = self.held.names().map(|name| ClaimKey::Host(name.into()));
        let believed = hosts.chain(self.keys.iter().cloned());
        let mut lost: Vec<ClaimKey> = believed.filter(|key| !left.contains(key)).collect();
        lost.sort_unstable();
        for key in &lost {
            match key {
                ClaimKey::Host(host) => self.held.remove(host),
                key => drop(self.keys.remove(key)),
            }
        }
        if !lost.is_empty() {
            tracing::warn!(lost = lost.len(), "claims were taken by other servers");
        }
        self.counters.claims_lost.add(lost.len());
        self.losses = losses;
        let mut news: Vec<ClaimNews> = lost.into_iter().map(ClaimNews::Lost).collect();
        news.push(ClaimNews::Renewed(until));
        self.tell(news);
    }
}
