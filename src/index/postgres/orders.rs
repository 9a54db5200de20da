//! What operators order, over all servers: kept in the rows of the hosts, numbered by the database, told to whoever
//! holds a host within a cycle, and to whoever claims it with the claim. And holds of keys that nobody claims.

use super::claims::{self, Epoch, duration, micros};
use super::database::{Database, DatabaseError};
use super::{PostgresIndex, Todo};
use crate::claim::{ClaimKey, ClaimNews};
use crate::order::{Instruction, NotKept, Order, Standing, Subject};
use crate::time::Duration;
use deadpool_postgres::Object;
use tokio_postgres::Row;

/// Longest time for an order: somebody waits for the answer.
const ORDER_MAX: Duration = Duration::from_secs(5);
/// Orders that wait for the database.
const WAITING_MAX: usize = 256;
/// Orders heard of, blocks lifted and holds read in a cycle.
const BATCH: i64 = 500;

/// What is ordered for everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FleetOrder {
    pub(super) paused: bool,
    /// Larger is later.
    pub(super) ordered: i64,
}

/// What is ordered for one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HostOrder {
    pub(super) host: Box<str>,
    pub(super) standing: Standing,
    /// Larger is later; 0 if there never was an order.
    pub(super) ordered: i64,
}

/// A key that was told to stay away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hold {
    pub(super) key: ClaimKey,
    pub(super) held_for: Duration,
    pub(super) strikes: u8,
}

/// What an order came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Obeyed {
    Host { order: HostOrder, holder: Option<Epoch> },
    All(FleetOrder),
}

pub(super) fn fleet_order(row: &Row) -> FleetOrder {
    FleetOrder {
        paused: row.get::<_, Option<bool>>("paused").unwrap_or(false),
        ordered: row.get::<_, Option<i64>>("ordered").unwrap_or(0),
    }
}

pub(super) fn host_order(row: &Row) -> HostOrder {
    HostOrder {
        host: row.get::<_, &str>("host").into(),
        standing: Standing {
            paused: row.get("paused"),
            blocked_for: duration(row, "blocked_for"),
            delay: duration(row, "delay"),
        },
        ordered: row.get("ordered"),
    }
}

/// Keeps an order.
async fn keep(database: &Database, subject: &Subject) -> Result<Obeyed, DatabaseError> {
    let database = database.within(ORDER_MAX);
    match subject.clone() {
        Subject::All { paused } => {
            database.run(move |client| Box::pin(async move { keep_all(client, paused).await })).await
        }
        Subject::Host { host, order } => {
            database
                .run(move |client| {
                    let host = host.clone();
                    Box::pin(async move { keep_one(client, &host, order).await })
                })
                .await
        }
    }
}

async fn keep_all(client: &Object, paused: bool) -> Result<Obeyed, DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/order_all.sql")).await?;
    Ok(Obeyed::All(fleet_order(&client.query_one(&statement, &[&paused]).await?)))
}

async fn keep_one(client: &Object, host: &str, order: Order) -> Result<Obeyed, DatabaseError> {
    let (mut paused, mut blocked, mut delay) = (None, None, None);
    match order {
        Order::Pause => paused = Some(true),
        Order::Resume => paused = Some(false),
        Order::Block(time) => blocked = Some(micros(time)),
        Order::Delay(time) => delay = Some(micros(time)),
    }
    let statement = client.prepare_cached(include_str!("sql/order.sql")).await?;
    let row = client.query_one(&statement, &[&host, &paused, &blocked, &delay]).await?;
    Ok(Obeyed::Host { order: host_order(&row), holder: row.get::<_, Option<i64>>("holder").map(Epoch) })
}

/// Orders for hosts of ours that we may not have heard of; and lets those be claimed whose block is over.
pub(super) async fn unheard(client: &Object, us: Epoch) -> Result<Vec<HostOrder>, DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/lift_blocks.sql")).await?;
    client.execute(&statement, &[&BATCH]).await?;
    let statement = client.prepare_cached(include_str!("sql/unheard.sql")).await?;
    let rows = client.query(&statement, &[&us.0, &BATCH]).await?;
    Ok(rows.iter().map(host_order).collect())
}

/// We know of these.
pub(super) async fn heard(client: &Object, us: Epoch, list: &[(Box<str>, i64)]) -> Result<(), DatabaseError> {
    let hosts: Vec<&str> = list.iter().map(|(host, _)| &**host).collect();
    let numbers: Vec<i64> = list.iter().map(|(_, ordered)| *ordered).collect();
    let statement = client.prepare_cached(include_str!("sql/heard.sql")).await?;
    client.execute(&statement, &[&us.0, &hosts, &numbers]).await?;
    Ok(())
}

/// Holds of keys that nobody claims.
pub(super) async fn holds(client: &Object) -> Result<Vec<Hold>, DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/holds.sql")).await?;
    let rows = client.query(&statement, &[&BATCH]).await?;
    let hold = |row: &Row| {
        Some(Hold {
            key: claims::key_from(row.get("key"))?,
            held_for: duration(row, "held_for"),
            strikes: u8::try_from(row.get::<_, i16>("strikes")).unwrap_or(u8::MAX),
        })
    };
    Ok(rows.iter().filter_map(hold).collect())
}

/// Lets others know of holds.
pub(super) async fn hold(client: &Object, list: &[Hold]) -> Result<(), DatabaseError> {
    // One row is written once by one statement: of two holds of a key the last one is the longest.
    let last = |n: usize| !list[n + 1..].iter().any(|later| later.key == list[n].key);
    let list: Vec<&Hold> = (0..list.len()).filter(|&n| last(n)).map(|n| &list[n]).collect();
    let keys: Vec<String> = list.iter().map(|hold| hold.key.to_string()).collect();
    let times: Vec<i64> = list.iter().map(|hold| micros(hold.held_for)).collect();
    let strikes: Vec<i16> = list.iter().map(|hold| hold.strikes.into()).collect();
    let statement = client.prepare_cached(include_str!("sql/hold_keys.sql")).await?;
    client.execute(&statement, &[&keys, &times, &strikes]).await?;
    Ok(())
}

/// An order, and what it came to.
pub(super) type Ordering = (Instruction, Result<Obeyed, DatabaseError>);

impl PostgresIndex {
    pub(super) fn push_instruction(&mut self, instruction: Instruction) {
        if !self.up || self.instructions.len() >= WAITING_MAX {
            self.tell(vec![ClaimNews::Obeyed { ticket: instruction.ticket, result: Err(NotKept) }]);
        } else {
            self.instructions.push_back(instruction);
        }
    }

    /// Nobody waits for a database that is away.
    pub(super) fn refuse_instructions(&mut self) {
        let refused = self.instructions.drain(..);
        let refused =
            refused.map(|Instruction { ticket, .. }| ClaimNews::Obeyed { ticket, result: Err(NotKept) });
        let refused = refused.collect();
        self.tell(refused);
    }

    pub(super) fn start_ordering(&mut self) {
        if self.ordering.is_some() {
            return;
        }
        let Some(instruction) = self.instructions.pop_front() else { return };
        let database = self.database.clone();
        self.ordering = Some(tokio::spawn(async move {
            let result = keep(&database, &instruction.subject).await;
            (instruction, result)
        }));
    }

    pub(super) fn handle_obeyed(&mut self, ordering: Option<Ordering>) {
        let Some((Instruction { ticket, .. }, result)) = ordering else { return };
        let result = match result {
            Ok(Obeyed::Host { order, holder }) => {
                let standing = order.standing;
                if holder.is_some() && holder == self.epoch {
                    let news = self.hear(vec![order]);
                    self.tell(news);
                } else if holder.is_none() && self.hungry {
                    // It may be there for us now.
                    self.grow();
                }
                Ok(standing)
            }
            Ok(Obeyed::All(order)) => {
                let news = self.hear_all(order);
                self.tell(news.into_iter().collect());
                Ok(Standing { paused: order.paused, ..Standing::default() })
            }
            Err(error) => {
                tracing::warn!(%error, "an order was not kept");
                Err(NotKept)
            }
        };
        self.tell(vec![ClaimNews::Obeyed { ticket, result }]);
    }

    /// What is new of these. Words may overtake each other on their way here; their numbers do not.
    pub(super) fn hear(&mut self, orders: Vec<HostOrder>) -> Vec<ClaimNews> {
        let mut news = Vec::new();
        for HostOrder { host, standing, ordered } in orders {
            let known = self.heard.get(&host).copied().unwrap_or(0);
            if ordered > 0 && ordered >= known {
                self.heard.insert(host.clone(), ordered);
                news.push(ClaimNews::Ordered { host, standing });
            }
        }
        news
    }

    pub(super) fn hear_all(&mut self, order: FleetOrder) -> Option<ClaimNews> {
        (order.ordered > self.all_ordered).then(|| {
            self.all_ordered = order.ordered;
            ClaimNews::PauseAll(order.paused)
        })
    }

    /// Orders that the database says we may not know: we do now, and say so.
    pub(super) fn handle_unheard(&mut self, orders: Vec<HostOrder>) {
        if orders.is_empty() {
            return;
        }
        let list = orders.iter().map(|order| (order.host.clone(), order.ordered)).collect();
        let news = self.hear(orders);
        self.tell(news);
        self.todo.push_back(Todo::Heard(list));
    }
}
