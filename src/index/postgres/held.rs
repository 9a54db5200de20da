//! Hosts that are ours, and how they are served: in turn, each a queue full at a time.

use super::claims::{self, ClaimedHost, Epoch, GivenBack};
use super::database::{Database, DatabaseError};
use super::docs::{self, Line};
use crate::claim::ClaimKey;
use crate::document::Candidate;
use crate::ids::DocId;
use crate::index::memory::TURN;
use crate::time::Duration;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// Hosts looked at with one statement.
const HOSTS_AT_ONCE: usize = 256;

/// All hosts that are ours.
#[derive(Default)]
pub(super) struct Held {
    hosts: HashMap<Box<str>, HeldHost>,
    /// Those that may have more open documents, the next to be served first. One that was given back meanwhile is
    /// known by its serial.
    ring: VecDeque<(Box<str>, u64)>,
    last_serial: u64,
}

struct HeldHost {
    id: i64,
    serial: u64,
    /// The place of the last document that was given out.
    after: i64,
    in_ring: bool,
}

/// What there was for an answer.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) candidates: Vec<Candidate>,
    /// Documents that are no URLs.
    pub(super) unusable: Vec<DocId>,
    pub(super) claimed: usize,
    /// Whoever gets nothing now may get something later: others have hosts with open documents, or have just lost them.
    pub(super) more_later: bool,
    /// Nobody else has anything, but documents are open under claims of ours.
    pub(super) open_here: bool,
}

/// A request for candidates.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) count: usize,
    /// Hosts that may be claimed for it: no more than there are slots for.
    pub(super) hosts: usize,
    /// Sorted.
    pub(super) reject: Arc<[Box<str>]>,
}

impl Held {
    pub(super) fn remove(&mut self, host: &str) {
        self.hosts.remove(host);
    }

    pub(super) fn knows(&self, host: &str) -> bool {
        self.hosts.contains_key(host)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(|name| &**name)
    }

    /// There may be more documents of this host.
    pub(super) fn handle_growth(&mut self, host: &str) {
        if let Some(entry) = self.hosts.get_mut(host)
            && !std::mem::replace(&mut entry.in_ring, true)
        {
            self.ring.push_back((host.into(), entry.serial));
        }
    }

    fn add(&mut self, host: ClaimedHost) {
        self.last_serial += 1;
        let entry = HeldHost { id: host.id, serial: self.last_serial, after: 0, in_ring: true };
        self.ring.push_back((host.name.clone(), entry.serial));
        self.hosts.insert(host.name, entry);
    }

    /// Up to `count` hosts whose turn it is; those of `reject` are put into `passed`, and keep their turn.
    fn next(
        &mut self,
        count: usize,
        reject: &[Box<str>],
        passed: &mut Vec<(Box<str>, u64)>,
    ) -> Vec<Box<str>> {
        let mut list = Vec::new();
        while list.len() < count
            && let Some((name, serial)) = self.ring.pop_front()
        {
            match self.hosts.get_mut(&name) {
                Some(entry) if entry.serial == serial => {
                    if reject.binary_search(&name).is_ok() {
                        passed.push((name, serial));
                    } else {
                        entry.in_ring = false;
                        list.push(name);
                    }
                }
                Some(_) | None => {}
            }
        }
        list
    }

    fn pass(&mut self, passed: Vec<(Box<str>, u64)>) {
        for host in passed.into_iter().rev() {
            self.ring.push_front(host);
        }
    }

    fn line(&self, host: &str) -> Line {
        self.hosts
            .get(host)
            .map_or(Line { host: 0, after: 0 }, |entry| Line { host: entry.id, after: entry.after })
    }
}

/// Candidates of our hosts, and of hosts that become ours. What was claimed is in `held`, whatever fails.
pub(super) async fn take(
    database: &Database,
    us: Epoch,
    held: &mut Held,
    ask: &Ask,
) -> Result<Taken, DatabaseError> {
    let mut taken = Taken::default();
    let mut passed = Vec::new();
    let result = fill(database, us, held, ask, &mut taken, &mut passed).await;
    held.pass(passed);
    result?;
    if taken.candidates.is_empty() {
        let outlook = database.run(move |client| {
            Box::pin(async move {
                let claims::Outlook { something, others_at_work } = claims::outlook(client, us).await?;
                let more_later = something || others_at_work;
                Ok((more_later, !more_later && claims::has_open(client, us).await?))
            })
        });
        (taken.more_later, taken.open_here) = outlook.await?;
    }
    Ok(taken)
}

async fn fill(
    database: &Database,
    us: Epoch,
    held: &mut Held,
    ask: &Ask,
    taken: &mut Taken,
    passed: &mut Vec<(Box<str>, u64)>,
) -> Result<(), DatabaseError> {
    // How many documents a host turns out to have, at worst.
    let mut yields = TURN;
    while taken.candidates.len() < ask.count {
        let room = ask.count - taken.candidates.len();
        let count = room.div_ceil(yields).clamp(1, HOSTS_AT_ONCE);
        let mut hosts = held.next(count, &ask.reject, passed);
        if hosts.is_empty() && taken.claimed < ask.hosts {
            for host in claim(database, us, count.min(ask.hosts - taken.claimed), ask).await? {
                taken.claimed += 1;
                held.add(host);
            }
            hosts = held.next(count, &ask.reject, passed);
        }
        if hosts.is_empty() {
            break;
        }
        let given = serve(database, us, held, &hosts, room, taken).await?;
        yields = (given / hosts.len()).clamp(1, TURN);
    }
    Ok(())
}

async fn claim(
    database: &Database,
    us: Epoch,
    count: usize,
    ask: &Ask,
) -> Result<Vec<ClaimedHost>, DatabaseError> {
    let reject = Arc::clone(&ask.reject);
    database
        .run(move |client| {
            let reject = Arc::clone(&reject);
            Box::pin(async move { claims::claim_hosts(client, us, count, &reject).await })
        })
        .await
}

/// Up to `room` documents of these hosts, a queue full each. Hosts that have nothing at all are given back.
async fn serve(
    database: &Database,
    us: Epoch,
    held: &mut Held,
    hosts: &[Box<str>],
    room: usize,
    taken: &mut Taken,
) -> Result<usize, DatabaseError> {
    let each = TURN.min(room);
    let lines: Arc<[Line]> = hosts.iter().map(|host| held.line(host)).collect();
    let open = database.run(|client| {
        let lines = Arc::clone(&lines);
        Box::pin(async move { docs::open(client, &lines, each).await })
    });
    let open = match open.await {
        Ok(open) => open,
        Err(error) => {
            hosts.iter().for_each(|host| held.handle_growth(host));
            return Err(error);
        }
    };
    let mut counts = vec![0; hosts.len()];
    let mut given = 0;
    for document in open.into_iter().take(room) {
        counts[document.line] += 1;
        given += 1;
        if let Some(entry) = held.hosts.get_mut(&hosts[document.line]) {
            entry.after = document.place;
        }
        match document.candidate {
            Some(candidate) => taken.candidates.push(candidate),
            None => taken.unusable.push(document.doc),
        }
    }
    let mut empty = Vec::new();
    for (nth, host) in hosts.iter().enumerate() {
        // Fewer than asked for, because there are no more; or because there was no room for more.
        if counts[nth] == each || given == room {
            held.handle_growth(host);
        } else if counts[nth] == 0 && lines[nth].after == 0 {
            empty.push(host.clone());
        }
    }
    give_empty_back(database, us, held, empty).await?;
    Ok(given)
}

async fn give_empty_back(
    database: &Database,
    us: Epoch,
    held: &mut Held,
    empty: Vec<Box<str>>,
) -> Result<(), DatabaseError> {
    if empty.is_empty() {
        return Ok(());
    }
    empty.iter().for_each(|host| held.remove(host));
    let unused = |host| GivenBack { key: ClaimKey::Host(host), clock: None, to_holder_of: None };
    let empty: Arc<[GivenBack]> = empty.into_iter().map(unused).collect();
    database
        .run(move |client| {
            let empty = Arc::clone(&empty);
            Box::pin(async move { claims::give_back(client, us, &empty, Duration::ZERO).await })
        })
        .await
}
