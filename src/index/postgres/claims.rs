//! Claims in the database: one function for each thing that is done with them, each one transaction.

use super::database::DatabaseError;
use super::orders::{self, FleetOrder, HostOrder};
use crate::claim::{ClaimKey, OwedClock, Wish};
use crate::time::{Duration, micros_rounded_up};
use deadpool_postgres::{GenericClient, Object, Transaction};
use tokio_postgres::Row;

/// Servers that are late looked at per cycle, and claims taken from each.
const LATE_MAX: i64 = 16;
const FREED_MAX: i64 = 500;

/// A server's fencing token: larger for whoever came later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Epoch(pub(super) i64);

/// How long claims live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Expiries {
    /// With nothing in flight.
    pub(super) first: Duration,
    /// In any case.
    pub(super) second: Duration,
}

/// What is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outlook {
    /// Hosts that we could claim.
    pub(super) something: bool,
    /// Hosts that others have, or are about to; or that nobody may have, for a while.
    pub(super) others_at_work: bool,
}

/// A host that was claimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClaimedHost {
    pub(super) id: i64,
    pub(super) name: Box<str>,
}

/// What became of a wish for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// It is ours, with what operators have ordered, if it is a host.
    Good(OwedClock, Option<HostOrder>),
    /// It is not, and will not be soon.
    Elsewhere {
        /// The holder came later than we.
        younger: bool,
    },
    /// Its holder is late: it may be ours soon.
    Later,
}

/// A claim that is given back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GivenBack {
    pub(super) key: ClaimKey,
    /// None: as it was.
    pub(super) clock: Option<OwedClock>,
    pub(super) to_holder_of: Option<ClaimKey>,
}

pub(super) async fn register(
    client: &Object,
    name: &str,
    expiries: Expiries,
) -> Result<(Epoch, FleetOrder), DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/register.sql")).await?;
    let (first, second) = (micros(expiries.first), micros(expiries.second));
    let row = client.query_one(&statement, &[&name, &first, &second]).await?;
    Ok((Epoch(row.get("epoch")), orders::fleet_order(&row)))
}

/// How many claims were taken from us since we came, and what is ordered for everything; `None` if all were, and we are
/// forgotten.
pub(super) async fn renew(
    client: &Object,
    epoch: Epoch,
    expiries: Expiries,
) -> Result<Option<(i64, FleetOrder)>, DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/renew.sql")).await?;
    let (first, second) = (micros(expiries.first), micros(expiries.second));
    let row = client.query_opt(&statement, &[&epoch.0, &first, &second]).await?;
    Ok(row.map(|row| (row.get("losses"), orders::fleet_order(&row))))
}

/// Some servers that are late, or dead.
pub(super) async fn late(client: &Object, us: Epoch) -> Result<Vec<Epoch>, DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/late.sql")).await?;
    let rows = client.query(&statement, &[&us.0, &LATE_MAX]).await?;
    Ok(rows.iter().map(|row| Epoch(row.get(0))).collect())
}

/// Frees what a server that is late, or dead, has held for too long, or some of it.
pub(super) async fn free_late(client: &mut Object, late: Epoch) -> Result<(), DatabaseError> {
    let transaction = client.transaction().await?;
    let statement = transaction.prepare_cached(include_str!("sql/expired.sql")).await?;
    // Else it was not late after all, or another looks at it.
    if let Some(row) = transaction.query_opt(&statement, &[&late.0]).await? {
        free_one(&transaction, late, row.get("dead")).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Frees hosts that were promised to a server which does not come for them.
pub(super) async fn free_forgotten(client: &Object) -> Result<(), DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/free_forgotten.sql")).await?;
    client.execute(&statement, &[&FREED_MAX]).await?;
    Ok(())
}

async fn free_one(transaction: &impl GenericClient, late: Epoch, dead: bool) -> Result<u64, DatabaseError> {
    let mut freed = 0;
    for sql in [include_str!("sql/free_hosts.sql"), include_str!("sql/free_keys.sql")] {
        let statement = transaction.prepare_cached(sql).await?;
        freed += transaction.execute(&statement, &[&late.0, &dead, &FREED_MAX]).await?;
    }
    if freed > 0 {
        let statement = transaction.prepare_cached(include_str!("sql/count_losses.sql")).await?;
        transaction.execute(&statement, &[&late.0, &(freed as i64)]).await?;
    }
    if dead {
        let statement = transaction.prepare_cached(include_str!("sql/free_promised.sql")).await?;
        let promised = transaction.execute(&statement, &[&late.0, &FREED_MAX]).await?;
        if promised < FREED_MAX as u64 {
            for sql in [include_str!("sql/bury.sql"), include_str!("sql/bury_guard.sql")] {
                let statement = transaction.prepare_cached(sql).await?;
                transaction.execute(&statement, &[&late.0]).await?;
            }
        }
    }
    Ok(freed)
}

pub(super) async fn outlook(client: &Object, us: Epoch) -> Result<Outlook, DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/outlook.sql")).await?;
    let row = client.query_one(&statement, &[&us.0]).await?;
    let is = |column: &str| row.get::<_, bool>(column);
    Ok(Outlook {
        something: is("for_us") || is("for_anyone"),
        others_at_work: is("for_others") || is("held_by_others") || is("stopped"),
    })
}

/// Whether documents are open that nobody else may end.
pub(super) async fn has_open(client: &Object, us: Epoch) -> Result<bool, DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/open_under_us.sql")).await?;
    Ok(client.query_opt(&statement, &[&us.0]).await?.is_some())
}

/// Up to `count` hosts with open documents: those that are promised to us first, then in turn.
pub(super) async fn claim_hosts(
    client: &Object,
    us: Epoch,
    count: usize,
    reject: &[Box<str>],
) -> Result<Vec<ClaimedHost>, DatabaseError> {
    let reject: Vec<&str> = reject.iter().map(|host| &**host).collect();
    let mut hosts = Vec::new();
    for sql in [include_str!("sql/claim_hosts_for_us.sql"), include_str!("sql/claim_hosts.sql")] {
        let statement = client.prepare_cached(sql).await?;
        let room = count as i64 - hosts.len() as i64;
        let mut rows = client.query(&statement, &[&us.0, &room, &reject]).await?;
        rows.sort_by_key(|row| row.get::<_, i64>("turn"));
        hosts.extend(
            rows.iter()
                .map(|row| ClaimedHost { id: row.get("host_id"), name: row.get::<_, &str>("host").into() }),
        );
        if hosts.len() >= count {
            break;
        }
    }
    Ok(hosts)
}

/// A transaction that changes claims of ours. What an earlier one has sent, and nobody waits for any more, is over by the
/// time that this has begun, or comes to nothing.
async fn begin(client: &mut Object, us: Epoch) -> Result<Transaction<'_>, DatabaseError> {
    let transaction = client.transaction().await?;
    let statement = transaction.prepare_cached(include_str!("sql/guard.sql")).await?;
    transaction.execute(&statement, &[&us.0]).await?;
    Ok(transaction)
}

/// Claims keys, and says of hosts that something is about to be sent to them. The answers are in the same order.
pub(super) async fn want(
    client: &mut Object,
    us: Epoch,
    wanted: &[(ClaimKey, Wish)],
) -> Result<Vec<Wanted>, DatabaseError> {
    let mut answers = Vec::with_capacity(wanted.len());
    let transaction = begin(client, us).await?;
    let hosts = want_hosts(&transaction, us, wanted).await?;
    let (keys, holders) = want_keys(&transaction, us, wanted).await?;
    transaction.commit().await?;
    for (key, wish) in wanted {
        let (name, rows) = match key {
            ClaimKey::Host(name) => (name.to_string(), &hosts),
            key => (key.to_string(), &keys),
        };
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == name);
        answers.push(match row {
            Some(row) => {
                let is_host = matches!(key, ClaimKey::Host(_));
                Wanted::Good(clock(row), is_host.then(|| orders::host_order(row)))
            }
            None if matches!(key, ClaimKey::Host(_)) => Wanted::Elsewhere { younger: false },
            None => match holders.iter().find(|row| row.get::<_, &str>("key") == name) {
                Some(row) if row.get::<_, Option<bool>>("alive") == Some(true) => {
                    let younger = row.get::<_, i64>("holder") > us.0;
                    // Whoever we insist against will give it up.
                    if younger && *wish == Wish::Urgent {
                        Wanted::Later
                    } else {
                        Wanted::Elsewhere { younger }
                    }
                }
                Some(_) | None => Wanted::Later,
            },
        });
    }
    Ok(answers)
}

async fn want_hosts(
    client: &impl GenericClient,
    us: Epoch,
    wanted: &[(ClaimKey, Wish)],
) -> Result<Vec<Row>, DatabaseError> {
    let (mut ours, mut any) = (Vec::new(), Vec::new());
    for (key, wish) in wanted {
        if let ClaimKey::Host(name) = key {
            if *wish == Wish::Errand { &mut any } else { &mut ours }.push(&**name);
        }
    }
    let mut rows = Vec::new();
    if !ours.is_empty() {
        let statement = client.prepare_cached(include_str!("sql/lock_hosts.sql")).await?;
        client.query(&statement, &[&us.0, &ours]).await?;
        let statement = client.prepare_cached(include_str!("sql/want_hosts.sql")).await?;
        rows.extend(client.query(&statement, &[&us.0, &ours]).await?);
    }
    if !any.is_empty() {
        let statement = client.prepare_cached(include_str!("sql/want_any_hosts.sql")).await?;
        rows.extend(client.query(&statement, &[&us.0, &any]).await?);
    }
    Ok(rows)
}

/// Those that are ours now, and who has the others.
async fn want_keys(
    client: &impl GenericClient,
    us: Epoch,
    wanted: &[(ClaimKey, Wish)],
) -> Result<(Vec<Row>, Vec<Row>), DatabaseError> {
    let shared = wanted.iter().filter(|(key, _)| !matches!(key, ClaimKey::Host(_)));
    let names: Vec<String> = shared.clone().map(|(key, _)| key.to_string()).collect();
    if names.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let statement = client.prepare_cached(include_str!("sql/want_keys.sql")).await?;
    let ours = client.query(&statement, &[&us.0, &names]).await?;
    if ours.len() == names.len() {
        return Ok((ours, Vec::new()));
    }
    let urgent: Vec<String> =
        shared.filter(|(_, wish)| *wish == Wish::Urgent).map(|(key, _)| key.to_string()).collect();
    if !urgent.is_empty() {
        let statement = client.prepare_cached(include_str!("sql/insist.sql")).await?;
        client.execute(&statement, &[&us.0, &urgent]).await?;
    }
    let statement = client.prepare_cached(include_str!("sql/holders.sql")).await?;
    let holders = client.query(&statement, &[&names]).await?;
    Ok((ours, holders))
}

/// Keys of ours that others need more.
pub(super) async fn wanted_elsewhere(client: &Object, us: Epoch) -> Result<Vec<ClaimKey>, DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/wanted.sql")).await?;
    let rows = client.query(&statement, &[&us.0]).await?;
    Ok(rows.iter().filter_map(|row| key_from(row.get(0))).collect())
}

/// Gives claims back, with what is owed to them. What is not ours is left alone.
pub(super) async fn give_back(
    client: &mut Object,
    us: Epoch,
    given: &[GivenBack],
    promise: Duration,
) -> Result<(), DatabaseError> {
    let transaction = begin(client, us).await?;
    let (hosts, keys): (Vec<_>, Vec<_>) = given.iter().partition(|g| matches!(g.key, ClaimKey::Host(_)));
    if !hosts.is_empty() {
        let columns = Columns::of(hosts.iter().map(|given| (&given.key, given.clock)));
        let because: Vec<Option<String>> =
            hosts.iter().map(|given| given.to_holder_of.as_ref().map(ToString::to_string)).collect();
        let statement = transaction.prepare_cached(include_str!("sql/lock_hosts.sql")).await?;
        transaction.query(&statement, &[&us.0, &columns.names]).await?;
        let statement = transaction.prepare_cached(include_str!("sql/give_hosts_back.sql")).await?;
        let Columns { names, opens, held, strikes, gaps } = &columns;
        let promise = micros(promise);
        transaction
            .execute(&statement, &[&us.0, names, &promise, opens, held, strikes, gaps, &because])
            .await?;
    }
    if !keys.is_empty() {
        let columns = Columns::of(keys.iter().map(|given| (&given.key, given.clock)));
        write_key_clocks(&transaction, include_str!("sql/give_keys_back.sql"), us, &columns).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// What a clock is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clocks {
    /// The key is held on, and something may be in flight under it.
    Note,
    /// It is held on, and nothing is in flight.
    Rest,
}

/// Writes what is owed to keys that are held on.
pub(super) async fn write(
    client: &mut Object,
    us: Epoch,
    what: Clocks,
    notes: &[(ClaimKey, OwedClock)],
) -> Result<(), DatabaseError> {
    let transaction = begin(client, us).await?;
    let (hosts_sql, keys_sql) = match what {
        Clocks::Note => (include_str!("sql/note_hosts.sql"), include_str!("sql/note_keys.sql")),
        Clocks::Rest => (include_str!("sql/rest_hosts.sql"), include_str!("sql/rest_keys.sql")),
    };
    let (hosts, keys): (Vec<_>, Vec<_>) = notes.iter().partition(|(key, _)| matches!(key, ClaimKey::Host(_)));
    if !hosts.is_empty() {
        let columns = Columns::of(hosts.iter().map(|(key, clock)| (key, Some(*clock))));
        let Columns { names, opens, held, strikes, gaps } = &columns;
        let statement = transaction.prepare_cached(include_str!("sql/lock_hosts.sql")).await?;
        transaction.query(&statement, &[&us.0, names]).await?;
        let statement = transaction.prepare_cached(hosts_sql).await?;
        transaction.execute(&statement, &[&us.0, names, opens, held, strikes, gaps]).await?;
    }
    if !keys.is_empty() {
        let columns = Columns::of(keys.iter().map(|(key, clock)| (key, Some(*clock))));
        write_key_clocks(&transaction, keys_sql, us, &columns).await?;
    }
    transaction.commit().await?;
    Ok(())
}

async fn write_key_clocks(
    client: &impl GenericClient,
    sql: &str,
    us: Epoch,
    columns: &Columns,
) -> Result<(), DatabaseError> {
    let statement = client.prepare_cached(sql).await?;
    let Columns { names, opens, held, strikes, .. } = columns;
    client.execute(&statement, &[&us.0, names, opens, held, strikes]).await?;
    Ok(())
}

/// All that the database says is ours.
pub(super) async fn held(client: &Object, us: Epoch) -> Result<Vec<ClaimKey>, DatabaseError> {
    let hosts = client.prepare_cached(include_str!("sql/held_hosts.sql")).await?;
    let keys = client.prepare_cached(include_str!("sql/held_keys.sql")).await?;
    let hosts = client.query(&hosts, &[&us.0]).await?;
    let keys = client.query(&keys, &[&us.0]).await?;
    let hosts = hosts.iter().map(|row| ClaimKey::Host(row.get::<_, &str>(0).into()));
    Ok(hosts.chain(keys.iter().filter_map(|row| key_from(row.get(0)))).collect())
}

/// We go, and what we have not given back is free at once; or may be taken at once, should we not get that far.
pub(super) async fn leave(client: &mut Object, us: Epoch) -> Result<(), DatabaseError> {
    let statement = client.prepare_cached(include_str!("sql/leave.sql")).await?;
    client.execute(&statement, &[&us.0]).await?;
    loop {
        let transaction = client.transaction().await?;
        let freed = free_one(&transaction, us, true).await?;
        transaction.commit().await?;
        if freed == 0 {
            return Ok(());
        }
    }
}

/// Keys and clocks as the arrays that statements take.
struct Columns {
    names: Vec<String>,
    opens: Vec<Option<i64>>,
    held: Vec<Option<i64>>,
    strikes: Vec<Option<i16>>,
    gaps: Vec<Option<i64>>,
}

impl Columns {
    fn of<'a>(clocks: impl Iterator<Item = (&'a ClaimKey, Option<OwedClock>)>) -> Columns {
        let mut columns =
            Columns { names: vec![], opens: vec![], held: vec![], strikes: vec![], gaps: vec![] };
        for (key, clock) in clocks {
            columns.names.push(match key {
                ClaimKey::Host(name) => name.to_string(),
                key => key.to_string(),
            });
            columns.opens.push(clock.map(|clock| micros(clock.opens_in)));
            columns.held.push(clock.map(|clock| micros(clock.held_for)));
            columns.strikes.push(clock.map(|clock| clock.strikes.into()));
            columns.gaps.push(clock.map(|clock| micros(clock.gap)));
        }
        columns
    }
}

fn clock(row: &Row) -> OwedClock {
    let owed = |column: &str| duration(row, column);
    OwedClock {
        opens_in: owed("opens_in"),
        held_for: owed("held_for"),
        strikes: u8::try_from(row.get::<_, i16>("strikes")).unwrap_or(u8::MAX),
        gap: owed("gap"),
        dark_since: row.get::<_, Option<i64>>("dark_since").map(|_| owed("dark_since")),
    }
}

/// Microseconds in a column; none, and less than none, is zero.
pub(super) fn duration(row: &Row, column: &str) -> Duration {
    let micros = row.get::<_, Option<i64>>(column).unwrap_or(0);
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(super) fn key_from(text: &str) -> Option<ClaimKey> {
    let (kind, name) = text.split_once(':')?;
    match kind {
        "ip" => name.parse().ok().map(ClaimKey::Ip),
        "alias" => Some(ClaimKey::Alias(name.into())),
        "group" => Some(ClaimKey::Group(name.into())),
        _ => None,
    }
}

/// A century at most: later than that is never.
pub(super) fn micros(duration: Duration) -> i64 {
    const CENTURY: u64 = 100 * 365 * 86_400 * 1_000_000;
    micros_rounded_up(duration).min(CENTURY) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let keys = [
            ClaimKey::Ip("192.0.2.7".parse().expect("an address")),
            ClaimKey::Ip("2001:db8::7".parse().expect("an address")),
            ClaimKey::Alias("a-b".into()),
            ClaimKey::Group("g_1".into()),
        ];
        for key in keys {
            assert_eq!(key_from(&key.to_string()), Some(key));
        }
        assert_eq!(key_from("host:a.example"), None, "hosts have a table of their own");
    }
}
