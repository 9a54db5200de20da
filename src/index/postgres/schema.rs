//! The tables, and how they come to be what this version expects.

use super::database::{Database, DatabaseError};
use crate::time::Duration;
use deadpool_postgres::Object;
use tokio_postgres::error::SqlState;

/// What leads from each version to the next.
const STEPS: &[&str] = &[include_str!("sql/schema_1.sql"), include_str!("sql/schema_2.sql")];
/// Longest time for all steps: indexes of large tables are made anew.
const MIGRATION_MAX: Duration = Duration::from_secs(3600);
const NO_LIMIT: &str = "SET LOCAL statement_timeout = 0";
const VERSION_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_version (
    id integer PRIMARY KEY,
    version integer NOT NULL
)";
const FIRST_VERSION: &str =
    "INSERT INTO schema_version (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING";
/// Whoever comes second waits for the first, and then has nothing to do.
const LOCK: &str = "SELECT version FROM schema_version WHERE id = 1 FOR UPDATE";
const LOOK: &str = "SELECT version FROM schema_version WHERE id = 1";
const SET: &str = "UPDATE schema_version SET version = $1 WHERE id = 1";

/// What somebody is told whose table another has made meanwhile: of its row in a catalogue, its name, or its type.
const MADE_MEANWHILE: [SqlState; 3] =
    [SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT];

/// What `migrate` found and left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// The version before; 0 for an empty database.
    pub from: i32,
    /// The version now.
    pub to: i32,
}

/// Creates or changes the tables, as needed. As many as like may do so at the same time.
pub(super) async fn migrate(database: &Database) -> Result<Migrated, DatabaseError> {
    let known = STEPS.len() as i32;
    // Most of the time there is nothing to do, and nobody needs the right to do it.
    let found = match database.run(|client| Box::pin(look(client))).await {
        Err(DatabaseError::Statement(error)) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => 0,
        found => found?,
    };
    if found < known {
        database.run(|client| Box::pin(prepare(client))).await?;
        return database.within(MIGRATION_MAX).run(|client| Box::pin(step_up(client))).await;
    }
    if found > known {
        return Err(DatabaseError::TooNew { found, known });
    }
    Ok(Migrated { from: found, to: known })
}

async fn look(client: &mut Object) -> Result<i32, DatabaseError> {
    Ok(client.query_opt(LOOK, &[]).await?.map_or(0, |row| row.get(0)))
}

async fn prepare(client: &mut Object) -> Result<(), DatabaseError> {
    // Two that create the same table at the same time: the slower one is told in one of several ways.
    if let Err(error) = client.batch_execute(VERSION_TABLE).await
        && !error.code().is_some_and(|code| MADE_MEANWHILE.contains(code))
    {
        return Err(error.into());
    }
    client.execute(FIRST_VERSION, &[]).await?;
    Ok(())
}

async fn step_up(client: &mut Object) -> Result<Migrated, DatabaseError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(NO_LIMIT).await?;
    let from: i32 = transaction.query_one(LOCK, &[]).await?.get(0);
    let to = STEPS.len() as i32;
    for step in STEPS.iter().skip(from.max(0) as usize) {
        transaction.batch_execute(step).await?;
    }
    if from < to {
        transaction.execute(SET, &[&to]).await?;
    }
    transaction.commit().await?;
    Ok(Migrated { from, to: to.max(from) })
}
