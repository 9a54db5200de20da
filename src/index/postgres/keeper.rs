//! The cycle that keeps claims alive: renew our own, free those of servers that are late, see what there is.
//!
//! A task of its own, so that nothing else that takes long can let our claims expire.

use super::claims::{self, Epoch, Expiries};
use super::database::{Database, DatabaseError};
use super::orders::{self, FleetOrder, Hold, HostOrder};
use super::schema;
use crate::claim::ClaimKey;
use crate::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Renewals in the time that a claim lives.
const RENEWALS: u32 = 3;
/// What is left of a claim's life when we cease to use it: clocks do not all run at the same speed, and between the
/// decision to send and the last byte time passes.
const MARGIN: u32 = 10;
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What all servers are to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct News {
    pub(super) fleet: FleetOrder,
    pub(super) holds: Vec<Hold>,
}

/// What a cycle came to.
#[derive(Debug)]
pub(super) enum Kept {
    /// We are known under a new name: no claim of before is ours.
    Registered { epoch: Epoch, until: Instant, news: News },
    /// Our claims are good for longer.
    Renewed {
        until: Instant,
        /// How many claims were taken from us so far.
        losses: i64,
        news: News,
    },
    /// What else there is to know.
    Seen {
        /// Whether there are hosts that we could claim.
        something: bool,
        /// Whether others have hosts, or are about to.
        others_at_work: bool,
        /// Keys of ours that others need more.
        wanted: Vec<ClaimKey>,
        /// Orders for hosts of ours that we may not know.
        orders: Vec<HostOrder>,
    },
    /// The database cannot be reached, or does not do what it should.
    Unreachable(DatabaseError),
}

pub(super) struct Keeper {
    pub(super) database: Database,
    pub(super) name: Arc<str>,
    pub(super) expiries: Expiries,
    pub(super) news: mpsc::Sender<Kept>,
}

impl Keeper {
    /// Until nobody listens.
    pub(super) async fn run(self) {
        let mut epoch = None;
        let mut failures = 0;
        loop {
            let kept = self.cycle(&mut epoch).await.unwrap_or_else(Kept::Unreachable);
            let failed = matches!(kept, Kept::Unreachable(_));
            failures = if failed { failures + 1 } else { 0 };
            if self.news.send(kept).await.is_err() {
                return;
            }
            if let Some(us) = epoch.filter(|_| !failed) {
                let seen = self.look_around(us).await;
                if self.news.send(seen).await.is_err() {
                    return;
                }
            }
            sleep(self.pause(failures)).await;
        }
    }

    /// After a failure sooner, then later and later; never all servers at once. Nothing else is tried meanwhile: a
    /// database that comes back sees one connection of each server, in its own time.
    fn pause(&self, failures: u32) -> Duration {
        let period = self.expiries.first / RENEWALS;
        let pause = match failures {
            0 => period,
            n => {
                let longest = RETRY_MIN.saturating_mul(1 << (n - 1).min(16)).min(RETRY_MAX);
                return longest.mul_f64(0.25 + 0.75 * fastrand::f64());
            }
        };
        pause.mul_f64(0.75 + 0.25 * fastrand::f64())
    }

    async fn cycle(&self, epoch: &mut Option<Epoch>) -> Result<Kept, DatabaseError> {
        let (expiries, quick) = (self.expiries, self.database.within(self.expiries.first / RENEWALS));
        if let Some(us) = *epoch {
            let asked = Instant::now();
            let renewed = quick.run(move |client| {
                Box::pin(async move {
                    let renewed = claims::renew(client, us, expiries).await?;
                    Ok((renewed, orders::holds(client).await?))
                })
            });
            if let (Some((losses, fleet)), holds) = renewed.await? {
                let news = News { fleet, holds };
                return Ok(Kept::Renewed { until: self.good_until(asked), losses, news });
            }
            *epoch = None;
        }
        schema::migrate(&self.database).await?;
        let asked = Instant::now();
        let registered = quick.run(|client| {
            let name = Arc::clone(&self.name);
            Box::pin(async move {
                let registered = claims::register(client, &name, expiries).await?;
                Ok((registered, orders::holds(client).await?))
            })
        });
        let ((us, fleet), holds) = registered.await?;
        *epoch = Some(us);
        let news = News { fleet, holds };
        Ok(Kept::Registered { epoch: us, until: self.good_until(asked), news })
    }

    /// Sees what there is, and frees what others have held for too long. Must not make the next renewal late.
    async fn look_around(&self, us: Epoch) -> Kept {
        let quick = self.database.within(self.expiries.first / RENEWALS);
        if let Err(error) = self.free_late(us).await {
            tracing::debug!(%error, "cannot look after the claims of others");
        }
        let looked = quick.run(move |client| {
            Box::pin(async move {
                let orders = orders::unheard(client, us).await?;
                let wanted = claims::wanted_elsewhere(client, us).await?;
                Ok((claims::outlook(client, us).await?, wanted, orders))
            })
        });
        let (outlook, wanted, orders) = looked.await.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot see what there is");
            (claims::Outlook { something: false, others_at_work: true }, Vec::new(), Vec::new())
        });
        let claims::Outlook { something, others_at_work } = outlook;
        Kept::Seen { something, others_at_work, wanted, orders }
    }

    /// Frees what others have held for too long: of one after the other, each for itself, as many as there is time for. One
    /// that takes long is not always the first.
    async fn free_late(&self, us: Epoch) -> Result<(), DatabaseError> {
        let (start, limit) = (Instant::now(), self.expiries.first / RENEWALS / 2);
        let quick = self.database.within(limit);
        let late = quick.run(move |client| {
            Box::pin(async move {
                claims::free_forgotten(client).await?;
                claims::late(client, us).await
            })
        });
        let mut late = late.await?;
        fastrand::shuffle(&mut late);
        let mut result = Ok(());
        for late in late {
            if start.elapsed() > limit {
                break;
            }
            let freed = quick.run(move |client| Box::pin(claims::free_late(client, late))).await;
            result = result.and(freed);
        }
        result
    }

    /// By our own clock, from before we asked: never later than by the database's.
    fn good_until(&self, asked: Instant) -> Instant {
        asked + self.expiries.first - self.expiries.first / MARGIN
    }
}
