//! Pieces of work in the database, one at a time, and what follows from how they end.

use super::claims::{self, Clocks, Epoch, GivenBack, Wanted};
use super::database::{Database, DatabaseError};
use super::docs;
use super::held::{self, Ask, Held, Taken};
use super::orders::{self, Hold};
use super::{BATCH, PostgresIndex, Todo, unusable};
use crate::claim::{ClaimAction, ClaimKey, ClaimNews, Wish};
use crate::document::Report;
use crate::ids::DocId;
use crate::index::{Added, Addition, IndexEvent};
use crate::time::Duration;
use deadpool_postgres::Object;
use hashbrown::HashSet;
use std::collections::{BTreeMap, VecDeque};
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Instant;

/// One piece of work.
pub(super) enum Job {
    Report {
        list: Arc<[Report]>,
        again: bool,
    },
    /// Actions of one kind.
    Claims(Arc<[ClaimAction]>),
    Heard(Arc<[(Box<str>, i64)]>),
    Search,
    Follow {
        losses: i64,
        until: Instant,
    },
    Take {
        held: Held,
        ask: Ask,
    },
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
    let kind = actions.front().map(discriminant);
    let mut list = Vec::new();
    while list.len() < max && actions.front().map(discriminant) == kind {
        let Some(action) = actions.pop_front() else { break };
        list.push(action);
    }
    Job::Claims(list.into())
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
        Job::Claims(list) => act(database, us, promise, list).await,
        Job::Heard(list) => {
            let heard = database.run(|client| {
                let list = Arc::clone(list);
                Box::pin(async move { orders::heard(client, us, &list).await })
            });
            heard.await.map(|()| Done::Written)
        }
        Job::Search | Job::Follow { .. } => {
            let left = database.run(move |client| Box::pin(async move { claims::held(client, us).await }));
            left.await.map(|keys| Done::Followed(keys.into_iter().collect()))
        }
        Job::Take { held, ask } => held::take(database, us, held, ask).await.map(Done::Taken),
    }
}

/// Does what the scheduler wants done about claims; all of `list` is of one kind.
async fn act(
    database: &Database,
    us: Epoch,
    promise: Duration,
    list: &Arc<[ClaimAction]>,
) -> Result<Done, DatabaseError> {
    if matches!(list.first(), Some(ClaimAction::Want { .. })) {
        let wanted: Arc<[(ClaimKey, Wish)]> = list.iter().filter_map(want).collect();
        let answers = database.run(|client| {
            let wanted = Arc::clone(&wanted);
            Box::pin(async move { claims::want(client, us, &wanted).await })
        });
        return answers.await.map(Done::Wanted);
    }
    let written = database.run(|client| {
        let list = Arc::clone(list);
        Box::pin(async move { write(client, us, promise, &list).await })
    });
    written.await.map(|()| Done::Written)
}

fn want(action: &ClaimAction) -> Option<(ClaimKey, Wish)> {
    match action {
        ClaimAction::Want { key, wish } => Some((key.clone(), *wish)),
        _ => None,
    }
}

/// What a list of one kind of actions comes to, each once: of two for one thing the later one counts.
async fn write(
    client: &mut Object,
    us: Epoch,
    promise: Duration,
    list: &[ClaimAction],
) -> Result<(), DatabaseError> {
    let (mut given, mut noted, mut rest) = (Vec::new(), BTreeMap::new(), Vec::new());
    let (mut holds, mut tried) = (Vec::new(), BTreeMap::new());
    for action in list.iter().cloned() {
        match action {
            ClaimAction::Want { .. } => {}
            ClaimAction::GiveBack { key, clock, to_holder_of } => {
                given.push(GivenBack { key, clock, to_holder_of });
            }
            ClaimAction::Note { key, clock } => drop(noted.insert(key, clock)),
            ClaimAction::Rest { key, clock } => rest.push((key, clock)),
            ClaimAction::Hold { key, held_for, strikes } => holds.push(Hold { key, held_for, strikes }),
            ClaimAction::Tried { doc, tried: count, wait } => drop(tried.insert(doc, (count, wait))),
        }
    }
    let noted: Vec<_> = noted.into_iter().collect();
    let tried: Vec<_> = tried.into_iter().map(|(doc, (count, wait))| (doc, count, wait)).collect();
    match list.first() {
        Some(ClaimAction::GiveBack { .. }) => claims::give_back(client, us, &given, promise).await,
        Some(ClaimAction::Note { .. }) => claims::write(client, us, Clocks::Note, &noted).await,
        Some(ClaimAction::Rest { .. }) => claims::write(client, us, Clocks::Rest, &rest).await,
        Some(ClaimAction::Hold { .. }) => orders::hold(client, &holds).await,
        Some(ClaimAction::Tried { .. }) => docs::note_tried(client, us, &tried).await,
        Some(ClaimAction::Want { .. }) | None => Ok(()),
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
            (Ok(Done::Wanted(answers)), Job::Claims(list)) => self.handle_wanted(&list, answers),
            (Ok(Done::Written), Job::Claims(list)) => self.handle_written(&list),
            (Ok(Done::Followed(all)), Job::Search) => self.give_strays_back(all),
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
                    self.search();
                }
                self.ask = Some(ask);
                return self.refuse_ask();
            }
            _ if !ours => return,
            Job::Claims(list) => {
                self.search();
                Todo::Claims(list.to_vec().into())
            }
            Job::Heard(list) => Todo::Heard(list.to_vec()),
            Job::Search => Todo::Search,
            // The next renewal says it again.
            Job::Follow { .. } => return,
        };
        self.todo.push_front(todo);
    }

    /// It is not known what became of something: there may be claims that nobody here knows.
    fn search(&mut self) {
        if !self.todo.iter().any(|todo| matches!(todo, Todo::Search)) {
            self.todo.push_back(Todo::Search);
        }
    }

    /// Gives back what is ours by accident. What is still to be done decides itself what is ours.
    fn give_strays_back(&mut self, mut all: HashSet<ClaimKey>) {
        all.retain(|key| match key {
            ClaimKey::Host(host) => !self.held.knows(host) && !self.keys.contains(key),
            key => !self.keys.contains(key),
        });
        for todo in &self.todo {
            if let Todo::Claims(actions) = todo {
                for key in actions.iter().filter_map(key_of) {
                    all.remove(key);
                }
            }
        }
        for (key, _) in &self.later {
            all.remove(key);
        }
        let mut strays: Vec<ClaimKey> = all.into_iter().collect();
        strays.sort_unstable();
        if !strays.is_empty() {
            tracing::info!(strays = strays.len(), "claims that were given to us without our knowing");
        }
        let back = |key| ClaimAction::GiveBack { key, clock: None, to_holder_of: None };
        self.push_claims(strays.into_iter().map(back).collect());
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
        self.outdone = taken.more_later;
        if given > 0 {
            self.events.push_back(IndexEvent::Candidates(taken.candidates));
        }
        if taken.open_here && self.held.is_empty() {
            self.search();
        }
        self.answer(given, !taken.more_later && !taken.open_here);
    }

    fn handle_wanted(&mut self, list: &[ClaimAction], answers: Vec<Wanted>) {
        let mut news = Vec::new();
        for ((key, wish), answer) in list.iter().filter_map(want).zip(answers) {
            match answer {
                Wanted::Good(clock, order) => {
                    let held = matches!(&key, ClaimKey::Host(host) if self.held.knows(host));
                    if !held && self.keys.insert(key.clone()) {
                        self.counters.claimed.add(1);
                    }
                    self.counters.raised.add(1);
                    news.extend(self.hear(order.into_iter().collect()));
                    news.push(ClaimNews::Good { key, clock });
                }
                Wanted::Elsewhere { younger } => {
                    self.forget(&key);
                    news.push(ClaimNews::Elsewhere { key, younger });
                }
                Wanted::Later => self.later.push((key, wish)),
            }
        }
        self.tell(news);
    }

    /// The key is not ours.
    fn forget(&mut self, key: &ClaimKey) {
        self.keys.remove(key);
        if let ClaimKey::Host(host) = key {
            self.held.remove(host);
            self.heard.remove(host);
        }
    }

    fn handle_written(&mut self, list: &[ClaimAction]) {
        for action in list {
            match action {
                ClaimAction::GiveBack { key, .. } => {
                    self.counters.given_back.add(1);
                    self.forget(key);
                }
                ClaimAction::Rest { .. } => self.counters.rested.add(1),
                ClaimAction::Want { .. }
                | ClaimAction::Note { .. }
                | ClaimAction::Hold { .. }
                | ClaimAction::Tried { .. } => {}
            }
        }
    }

    /// Only what is ours and theirs to say is left; then the renewal counts.
    fn handle_followed(&mut self, left: &HashSet<ClaimKey>, losses: i64, until: Instant) {
        let hosts = self.held.names().map(|name| ClaimKey::Host(name.into()));
        let believed = hosts.chain(self.keys.iter().cloned());
        let mut lost: Vec<ClaimKey> = believed.filter(|key| !left.contains(key)).collect();
        lost.sort_unstable();
        lost.iter().for_each(|key| self.forget(key));
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

/// What an action is about, if it is a key that is claimed.
fn key_of(action: &ClaimAction) -> Option<&ClaimKey> {
    match action {
        ClaimAction::Want { key, .. }
        | ClaimAction::GiveBack { key, .. }
        | ClaimAction::Rest { key, .. }
        | ClaimAction::Note { key, .. } => Some(key),
        ClaimAction::Hold { .. } | ClaimAction::Tried { .. } => None,
    }
}
