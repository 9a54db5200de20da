//! An index in PostgreSQL that many servers share. They know nothing of each other: all that they agree on is in
//! the database, by its clock alone.
//!
//! **Who is here.** A server that comes is a row in `instances`, under a new *epoch*: its fencing token. Once in a
//! third of `claim_expiry_1` it renews that one row, and with it all of its claims; what a cycle costs does not
//! depend on how many there are (`keeper`). By its own clock, counted from before it asked, and less a
//! margin, its claims are good until the first expiry; after that it sends nothing, and so it has stopped by itself
//! before anybody may take over. A renewal that comes too late but finds the row says how many claims were
//! taken meanwhile; if that number has grown, the server first learns which are left, and only then goes on. A row
//! that is gone means that all were taken: the server comes again, under a new epoch.
//!
//! **Claims.** A claim is the `holder` of a row in `hosts` or in `keys` (addresses, aliases, groups): an epoch.
//! Hosts are claimed when candidates are wanted, in turn; a claimed host gives its documents to its holder alone. Before
//! the first send under a claim its `in_flight` is raised: the scheduler sends only under gates whose claim is known to be
//! raised, and gives a claim back as soon as nothing is pending under it, with what it is owed. Who finds a server
//! late frees its claims: after the first expiry those under which nothing is in flight, after the second all. The
//! time until which the lost holder may have sent stays with the row, and the next holder counts its gap from there. A claim
//! that is needed, but was quiet from one renewal to the next, rests: its `in_flight` is lowered, with what it is owed, and
//! raised again before the next send.
//!
//! **Words that were long on their way.** A statement that we gave up waiting for may be carried out later, even after its
//! repetition. Whatever changes claims begins with a lock in our name (`guards`), so that it comes before its repetition
//! or to nothing; and the database ends a transaction of a server that was stopped in its midst. After a failure we look
//! for claims that were given to us without our knowing, and give them back.
//!
//! **Orders** of operators are written into the rows of their hosts, or that of the fleet, and numbered (`orders`).
//! Nobody claims a host that is stopped; whoever claims one is told its orders with the claim, before the first send; and
//! whoever holds one looks for news once in a cycle.
//!
//! **Hand-over.** A key that another server holds cannot be had: the host that needs it is given back with an
//! affinity for that server, and goes there. So all hosts on an address come to live on one server. A host that needs two
//! shared keys with two holders would go to and fro for ever; therefore it stays with the server that came first, which
//! insists on the key, and the one that came later hands over what it has under it. Keys only ever move to
//! older servers, so this ends.
//!
//! **Documents** are given out without writing anything: a holder remembers how far it is in each host's line, and
//! whoever takes the host over begins at its first open document. A report ends a document if it is open and its host
//! is claimed under the epoch of whoever reports; else it changes nothing, and is counted as refused. Sends that did not end
//! it are noted there, so that whoever sends it next counts on.
//!
//! **The database is away.** Reports and claims to be given back wait, in order; there are no more of them than
//! documents and keys held, because without the database nothing new comes in.
//!
//! Not here: when something may be sent (`scheduler::claims`). Not anywhere: clocks of machines that were suspended. A
//! monotonic clock may stand still meanwhile, and then a server that wakes up may send what it had decided to; its
//! reports are refused all the same. Nor a failover that forgets what was committed: who fails over does so to a
//! replica that has every commit, and whose clock is not ahead (`target_session_attrs=read-write` in the URL finds it).

mod additions;
mod claims;
mod database;
mod docs;
mod held;
mod keeper;
mod orders;
mod schema;
mod tls;
mod work;

pub use database::DatabaseError;
pub use schema::Migrated;

use super::{Added, Addition, Counters, DocumentIndex, IndexEvent};
use crate::claim::{ClaimAction, ClaimKey, ClaimNews, Wish};
use crate::document::{End, FailReason, Report};
use crate::order::Instruction;
use crate::time::Duration;
use additions::Adding;
use claims::{Epoch, Expiries};
use database::Database;
use hashbrown::{HashMap, HashSet};
use held::{Ask, Held};
use keeper::{Keeper, Kept, News};
use orders::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use work::{Job, Outcome};

/// Longest time for one piece of work in the database.
const WORK_MAX: Duration = Duration::from_secs(30);
/// Batches of new URLs that wait for the database; whoever adds more is told to come later.
const ADDS_MAX: usize = 256;
/// New URLs, reports and claims in one transaction.
const BATCH: usize = 500;
/// Longest time for the last words.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// How the index is shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostgresOptions {
    /// What this server is called.
    pub instance: String,
    /// URLs that a host's slot holds: by that it is known how many hosts there is room for.
    pub queue_len: u32,
    /// When a claim may be taken under which nothing is in flight.
    pub claim_expiry_1: Duration,
    /// When any claim may be taken.
    pub claim_expiry_2: Duration,
}

/// One server's view of the shared index.
pub struct PostgresIndex {
    database: Database,
    queue_len: usize,
    expiries: Expiries,
    keeper: JoinHandle<()>,
    kept: mpsc::Receiver<Kept>,
    /// None until the database was reached.
    epoch: Option<Epoch>,
    /// How many claims were taken from us, as far as we have followed.
    losses: i64,
    up: bool,
    held: Held,
    /// Addresses, aliases and groups that are ours, and hosts that are for something else than their documents.
    keys: HashSet<ClaimKey>,
    /// Wishes that could not be answered yet.
    later: Vec<(ClaimKey, Wish)>,
    todo: VecDeque<Todo>,
    ask: Option<Ask>,
    /// The last answer was not all that was asked for.
    hungry: bool,
    /// It was nothing, because others had it all.
    outdone: bool,
    /// Hosts with new documents while `held` was away with a piece of work.
    grown: Vec<Box<str>>,
    working: Option<JoinHandle<Outcome>>,
    /// Something failed: nothing is tried before the next renewal.
    stalled: bool,
    /// The number of the last order heard of, for hosts of ours that have some; and for everything.
    heard: HashMap<Box<str>, i64>,
    all_ordered: i64,
    instructions: VecDeque<Instruction>,
    ordering: Option<JoinHandle<Ordering>>,
    adds: VecDeque<(Vec<Addition>, oneshot::Sender<Vec<Added>>)>,
    adding: Option<JoinHandle<Adding>>,
    events: VecDeque<IndexEvent>,
    counters: Arc<Counters>,
}

/// What is to be done, in order.
enum Todo {
    Reports {
        list: Vec<Report>,
        again: bool,
    },
    Claims(VecDeque<ClaimAction>),
    /// To say that we know of orders.
    Heard(Vec<(Box<str>, i64)>),
    /// To find claims that are ours without our knowing.
    Search,
    /// To learn which claims are left, of those that we believe to have.
    Follow {
        losses: i64,
        until: Instant,
    },
}

/// Creates or changes the tables of the database at `url`, as needed.
pub async fn migrate(url: &str) -> Result<Migrated, DatabaseError> {
    schema::migrate(&Database::new(url, "urlserver index migrate", WORK_MAX, WORK_MAX)?).await
}

impl PostgresIndex {
    /// Will connect in its own time. To be called inside a runtime.
    pub fn new(url: &str, options: &PostgresOptions) -> Result<PostgresIndex, DatabaseError> {
        let name = format!("urlserver {}", options.instance);
        let database = Database::new(url, &name, WORK_MAX, options.claim_expiry_1.min(WORK_MAX))?;
        let expiries = Expiries { first: options.claim_expiry_1, second: options.claim_expiry_2 };
        let (news, kept) = mpsc::channel(4);
        let name = options.instance.as_str().into();
        let keeper = Keeper { database: database.clone(), name, expiries, news };
        Ok(PostgresIndex {
            database,
            queue_len: options.queue_len.max(1) as usize,
            expiries,
            keeper: tokio::spawn(keeper.run()),
            kept,
            epoch: None,
            losses: 0,
            up: false,
            held: Held::default(),
            keys: HashSet::new(),
            later: Vec::new(),
            todo: VecDeque::new(),
            ask: None,
            hungry: false,
            outdone: false,
            grown: Vec::new(),
            working: None,
            stalled: false,
            heard: HashMap::new(),
            all_ordered: 0,
            instructions: VecDeque::new(),
            ordering: None,
            adds: VecDeque::new(),
            adding: None,
            events: VecDeque::new(),
            counters: Arc::default(),
        })
    }

    /// One thing that happens. May be dropped at any time: all that runs, runs in tasks of its own.
    async fn step(&mut self) {
        self.start_work();
        self.start_adding();
        self.start_ordering();
        tokio::select! {
            Some(kept) = self.kept.recv() => self.handle_kept(kept),
            outcome = join(&mut self.working) => self.handle_outcome(outcome),
            added = join(&mut self.adding) => self.handle_added(added),
            ordering = join(&mut self.ordering) => self.handle_obeyed(ordering),
        }
    }

    fn handle_kept(&mut self, kept: Kept) {
        match kept {
            Kept::Registered { epoch, until, news } => self.handle_registered(epoch, until, news),
            Kept::Renewed { until, losses, news } => {
                self.set_up(true);
                self.stalled = false;
                self.handle_news(news);
                if losses == self.losses {
                    self.tell(vec![ClaimNews::Renewed(until)]);
                } else if !self.todo.iter().any(|todo| matches!(todo, Todo::Follow { .. })) {
                    self.todo.push_front(Todo::Follow { losses, until });
                }
            }
            Kept::Seen { something, others_at_work, wanted, orders } => {
                self.handle_unheard(orders);
                // When others have ended, too, all has.
                if something && self.hungry || !others_at_work && self.outdone {
                    self.grow();
                }
                let wanted = wanted.into_iter().filter(|key| self.keys.contains(key));
                let wanted: Vec<_> = wanted.map(ClaimNews::WantedElsewhere).collect();
                self.tell(wanted);
                self.ask_later_again();
            }
            Kept::Unreachable(error) => {
                if self.up || self.epoch.is_none() {
                    tracing::warn!(%error, "the shared index is out of reach");
                }
                self.set_up(false);
                self.refuse_ask();
                self.refuse_instructions();
            }
        }
    }

    /// What all are to know, before anything more is sent.
    fn handle_news(&mut self, news: News) {
        let held = |hold: orders::Hold| {
            let orders::Hold { key, held_for, strikes } = hold;
            ClaimNews::Held { key, held_for, strikes }
        };
        let all = self.hear_all(news.fleet);
        self.tell(all.into_iter().chain(news.holds.into_iter().map(held)).collect());
    }

    fn handle_registered(&mut self, epoch: Epoch, until: Instant, news: News) {
        tracing::info!(epoch = epoch.0, "in the shared index");
        if self.epoch.replace(epoch).is_some() {
            tracing::warn!("all claims were lost");
            self.counters.claims_lost.add(self.held.names().count() + self.keys.len());
            self.held = Held::default();
            self.keys.clear();
            self.later.clear();
            self.heard.clear();
            self.todo.retain(|todo| matches!(todo, Todo::Reports { .. }));
            self.tell(vec![ClaimNews::AllLost]);
        }
        self.losses = 0;
        self.stalled = false;
        self.set_up(true);
        self.handle_news(news);
        self.tell(vec![ClaimNews::Renewed(until)]);
    }

    /// Those whose holders were late may be free by now.
    fn ask_later_again(&mut self) {
        let later = std::mem::take(&mut self.later);
        let wants = later.into_iter().map(|(key, wish)| ClaimAction::Want { key, wish });
        self.push_claims(wants.collect());
    }

    fn set_up(&mut self, up: bool) {
        if std::mem::replace(&mut self.up, up) != up {
            self.counters.lost.add(usize::from(!up));
            self.events.push_back(if up { IndexEvent::Up } else { IndexEvent::Down });
        }
    }

    fn tell(&mut self, news: Vec<ClaimNews>) {
        if !news.is_empty() {
            self.events.push_back(IndexEvent::Claims(news));
        }
    }

    fn grow(&mut self) {
        (self.hungry, self.outdone) = (false, false);
        if !self.events.contains(&IndexEvent::Grown) {
            self.events.push_back(IndexEvent::Grown);
        }
    }

    fn answer(&mut self, given: usize, complete: bool) {
        self.events.push_back(IndexEvent::Answered { given, complete });
    }

    /// Nobody waits for a database that is away.
    fn refuse_ask(&mut self) {
        if self.ask.take().is_some() {
            self.hungry = true;
            self.answer(0, false);
        }
    }

    fn push_claims(&mut self, actions: VecDeque<ClaimAction>) {
        match self.todo.back_mut() {
            _ if actions.is_empty() => {}
            Some(Todo::Claims(list)) => list.extend(actions),
            _ => self.todo.push_back(Todo::Claims(actions)),
        }
    }

    fn push_reports(&mut self, reports: Vec<Report>) {
        match self.todo.back_mut() {
            _ if reports.is_empty() => {}
            Some(Todo::Reports { list, again: false }) if list.len() + reports.len() <= BATCH => {
                list.extend(reports);
            }
            _ => {
                for list in reports.chunks(BATCH) {
                    self.todo.push_back(Todo::Reports { list: list.to_vec(), again: false });
                }
            }
        }
    }

    /// Begins the next piece of work, if none is under way.
    fn start_work(&mut self) {
        let Some(epoch) = self.epoch.filter(|_| self.working.is_none() && !self.stalled) else { return };
        let job = match self.todo.pop_front() {
            Some(Todo::Reports { list, again }) => Job::Report { list: list.into(), again },
            Some(Todo::Claims(mut actions)) => {
                let job = work::claim_job(&mut actions, BATCH);
                if !actions.is_empty() {
                    self.todo.push_front(Todo::Claims(actions));
                }
                job
            }
            Some(Todo::Heard(list)) => Job::Heard(list.into()),
            Some(Todo::Search) => Job::Search,
            Some(Todo::Follow { losses, until }) => Job::Follow { losses, until },
            None => match self.ask.take() {
                Some(ask) => Job::Take { held: std::mem::take(&mut self.held), ask },
                None => return,
            },
        };
        let (database, promise) = (self.database.clone(), self.expiries.second);
        self.working = Some(tokio::spawn(work::run(database, epoch, promise, job)));
    }
}

/// What a task came to; waits for ever if there is none.
async fn join<T>(task: &mut Option<JoinHandle<T>>) -> Option<T> {
    match task {
        Some(handle) => {
            let result = handle.await;
            *task = None;
            result.ok()
        }
        None => std::future::pending().await,
    }
}

impl DocumentIndex for PostgresIndex {
    fn ask(&mut self, n: usize, reject: Vec<Box<str>>) {
        self.counters.requests.add(1);
        self.ask = Some(Ask { count: n, hosts: n.div_ceil(self.queue_len), reject: reject.into() });
        if !self.up {
            self.refuse_ask();
        }
    }

    fn report(&mut self, reports: Vec<Report>) {
        self.push_reports(reports);
    }

    fn claim(&mut self, actions: Vec<ClaimAction>) {
        self.push_claims(actions.into());
    }

    fn order(&mut self, instruction: Instruction) {
        self.push_instruction(instruction);
    }

    fn add(&mut self, urls: Vec<Addition>, reply: oneshot::Sender<Vec<Added>>) {
        if self.adds.len() >= ADDS_MAX {
            let _ = reply.send(vec![Added::NoRoom; urls.len()]);
        } else {
            self.adds.push_back((urls, reply));
        }
    }

    async fn event(&mut self) -> IndexEvent {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            self.step().await;
        }
    }

    async fn close(&mut self) {
        let last_words = async {
            self.ask = None;
            self.stalled = false;
            while !self.todo.is_empty() || self.working.is_some() {
                self.step().await;
                self.events.clear();
            }
            if let Some(us) = self.epoch {
                let left =
                    self.database.run(move |client| Box::pin(async move { claims::leave(client, us).await }));
                if let Err(error) = left.await {
                    tracing::warn!(%error, "claims were not given back");
                }
                let Counters { claimed, raised, rested, given_back, claims_lost, refused, .. } =
                    &*self.counters;
                tracing::info!(
                    claimed = claimed.value(),
                    raised = raised.value(),
                    rested = rested.value(),
                    given_back = given_back.value(),
                    claims_lost = claims_lost.value(),
                    refused = refused.value(),
                    "left the shared index"
                );
            }
        };
        if tokio::time::timeout(CLOSE_MAX, last_words).await.is_err() {
            tracing::warn!("the shared index has not taken the last reports");
        }
        self.keeper.abort();
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Drop for PostgresIndex {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// A document that is no URL.
fn unusable(doc: crate::ids::DocId) -> Report {
    Report { doc, end: End::Failed(FailReason::BadUrl) }
}
