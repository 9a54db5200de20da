//! The way to the database: pool, TLS, limits of time, and what is tried again.
//!
//! TLS follows libpq: `sslmode` is `disable`, `prefer` (default), `require`, `verify-ca` or `verify-full`;
//! `sslrootcert` names a file of certificates to trust instead of the public ones. Only the last two modes, and
//! `require` with `sslrootcert`, look at the server's certificate; `verify-ca` checks its name, too.

use super::tls;
use crate::time::Duration;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use std::pin::Pin;
use thiserror::Error;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

/// Connections: one for renewals, one for work, one for new URLs, one to spare.
const CONNECTIONS: usize = 4;
/// Attempts at a transaction that the database asks to try again.
const ATTEMPTS: u32 = 8;
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// Why something could not be done in the database.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// The URL makes no sense.
    #[error("the database's URL cannot be used: {0}")]
    Url(String),
    /// No connection.
    #[error("cannot reach the database: {0}")]
    Connection(String),
    /// It refuses, or the connection was lost.
    #[error("the database says: {}", in_words(.0))]
    Statement(#[from] tokio_postgres::Error),
    /// It takes too long.
    #[error("the database does not answer in time")]
    Slow,
    /// Somebody uses a later version of this program.
    #[error("the database has schema version {found}; this program knows versions up to {known}")]
    TooNew {
        /// What is there.
        found: i32,
        /// What is known.
        known: i32,
    },
}

/// What the database says, with its own words where there are some.
fn in_words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => error.to_string(),
    }
}

/// What is done with a connection.
pub(super) type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 'a>>;

/// The pool, and how long one piece of work may take.
#[derive(Clone)]
pub(super) struct Database {
    pool: Pool,
    limit: Duration,
}

impl Database {
    /// Nothing is connected yet. `idle`: how long the database keeps a transaction open in which nothing happens, and the
    /// locks that it has.
    pub(super) fn new(
        url: &str,
        name: &str,
        limit: Duration,
        idle: Duration,
    ) -> Result<Database, DatabaseError> {
        let (mut config, tls) = tls::configure(url)?;
        config.connect_timeout(limit);
        if config.get_application_name().is_none() {
            config.application_name(name);
        }
        // Should we be gone, or stopped, the database must not go on for long. What the URL says comes later, and counts.
        let ours = format!(
            "-c statement_timeout={} -c idle_in_transaction_session_timeout={}",
            limit.as_millis().max(1),
            idle.as_millis().max(1)
        );
        let theirs = config.get_options().map(|options| format!(" {options}")).unwrap_or_default();
        config.options(ours + &theirs);
        let manager =
            Manager::from_config(config, tls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = Pool::builder(manager).max_size(CONNECTIONS).build();
        let pool = pool.map_err(|error| DatabaseError::Connection(error.to_string()))?;
        Ok(Database { pool, limit })
    }

    /// The same, with another limit.
    pub(super) fn within(&self, limit: Duration) -> Database {
        Database { pool: self.pool.clone(), limit }
    }

    /// Does `work`, again if the database says that it might go well then, all of it within the limit.
    pub(super) async fn run<T>(
        &self,
        work: impl for<'a> Fn(&'a mut Object) -> Work<'a, T>,
    ) -> Result<T, DatabaseError> {
        let mut pause = PAUSE_MIN;
        for attempt in 1.. {
            let mut client = self.client().await?;
            let result = timeout(self.limit, work(&mut client)).await;
            let Ok(result) = result else {
                // What becomes of it is not waited for: the connection is closed.
                drop(Object::take(client));
                return Err(DatabaseError::Slow);
            };
            match result {
                Err(error) if attempt < ATTEMPTS && is_passing(&error) => {
                    drop(client);
                    tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                    pause *= 2;
                }
                Err(error) => {
                    if !matches!(&error, DatabaseError::Statement(error) if error.as_db_error().is_some()) {
                        drop(Object::take(client));
                    }
                    return Err(error);
                }
                Ok(value) => return Ok(value),
            }
        }
        Err(DatabaseError::Slow)
    }

    async fn client(&self) -> Result<Object, DatabaseError> {
        match timeout(self.limit, self.pool.get()).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(DatabaseError::Connection(causes(&error))),
            Err(_) => Err(DatabaseError::Slow),
        }
    }
}

/// An error with what is behind it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Two transactions were in each other's way, and this one lost nothing but time.
fn is_passing(error: &DatabaseError) -> bool {
    let DatabaseError::Statement(error) = error else { return false };
    matches!(error.code(), Some(code) if *code == SqlState::T_R_SERIALIZATION_FAILURE
        || *code == SqlState::T_R_DEADLOCK_DETECTED)
}
