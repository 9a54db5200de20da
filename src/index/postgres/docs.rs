//! Documents in the database: how they come in, go out as candidates, and end.

use super::claims::{Epoch, micros};
use super::database::DatabaseError;
use crate::document::{Candidate, End, Report, Tried};
use crate::ids::DocId;
use crate::index::{Added, Addition};
use crate::time::Duration;
use crate::url::Url;
use deadpool_postgres::{GenericClient, Object, Transaction};
use hashbrown::{HashMap, HashSet};
use xxhash_rust::xxh3::xxh3_64;

/// Attempts to find names for documents that have none.
const NAMING_MAX: usize = 16;

/// The end of the year 9999: later than that is never.
const LAST_SECOND: u64 = 253_402_300_799;

/// Where we are in a host's line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub(super) host: i64,
    /// The place of the last document that we have seen.
    pub(super) after: i64,
}

/// An open document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Open {
    /// Which of the lines asked for.
    pub(super) line: usize,
    pub(super) place: i64,
    pub(super) doc: DocId,
    /// What to fetch; none if somebody has put something in that is no URL.
    pub(super) candidate: Option<Candidate>,
}

/// The next open documents of each line, up to `each`.
pub(super) async fn open(client: &Object, lines: &[Line], each: usize) -> Result<Vec<Open>, DatabaseError> {
    let hosts: Vec<i64> = lines.iter().map(|line| line.host).collect();
    let after: Vec<i64> = lines.iter().map(|line| line.after).collect();
    let statement = client.prepare_cached(include_str!("sql/candidates.sql")).await?;
    let rows = client.query(&statement, &[&hosts, &after, &(each as i64)]).await?;
    Ok(rows
        .iter()
        .map(|row| {
            let doc = DocId(row.get::<_, i64>("doc") as u64);
            let url = Url::parse(row.get("url")).ok();
            let wait = row.get::<_, Option<i64>>("wait").and_then(|micros| u64::try_from(micros).ok());
            let wait = Duration::from_micros(wait.unwrap_or(0));
            let count = |column: &str| u32::try_from(row.get::<_, i32>(column)).unwrap_or(0);
            let tried = Tried { sends: count("attempts"), lost: count("lost") };
            Open {
                line: row.get::<_, i64>("nth") as usize - 1,
                place: row.get("place"),
                doc,
                candidate: url.map(|url| Candidate { doc, url, ip: None, wait, tried }),
            }
        })
        .collect())
}

/// Ends documents; those of them that were ended by this, or by us before.
pub(super) async fn report(
    client: &Object,
    us: Epoch,
    reports: &[Report],
    again: bool,
) -> Result<HashSet<DocId>, DatabaseError> {
    let docs: Vec<i64> = reports.iter().map(|report| report.doc.0 as i64).collect();
    let states: Vec<i16> = reports.iter().map(|report| state(report.end)).collect();
    let outcomes: Vec<String> = reports.iter().map(|report| outcome(report.end)).collect();
    let statement = client.prepare_cached(include_str!("sql/report.sql")).await?;
    let mut rows = client.query(&statement, &[&us.0, &docs, &states, &outcomes]).await?;
    if rows.len() < reports.len() && again {
        let statement = client.prepare_cached(include_str!("sql/ended_by_us.sql")).await?;
        rows.extend(client.query(&statement, &[&us.0, &docs]).await?);
    }
    Ok(rows.iter().map(|row| DocId(row.get::<_, i64>(0) as u64)).collect())
}

/// Notes how often documents were sent that have not ended, and when they may be sent again.
pub(super) async fn note_tried(
    client: &Object,
    us: Epoch,
    list: &[(DocId, Tried, Duration)],
) -> Result<(), DatabaseError> {
    let docs: Vec<i64> = list.iter().map(|(doc, _, _)| doc.0 as i64).collect();
    let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    let sends: Vec<i32> = list.iter().map(|(_, tried, _)| count(tried.sends)).collect();
    let lost: Vec<i32> = list.iter().map(|(_, tried, _)| count(tried.lost)).collect();
    let waits: Vec<i64> = list.iter().map(|(_, _, wait)| micros(*wait)).collect();
    let statement = client.prepare_cached(include_str!("sql/tried.sql")).await?;
    client.execute(&statement, &[&us.0, &docs, &sends, &lost, &waits]).await?;
    Ok(())
}

fn state(end: End) -> i16 {
    match end {
        End::Done(_) => 1,
        End::Failed(_) => 2,
        End::Denied(_) => 3,
    }
}

fn outcome(end: End) -> String {
    match end {
        End::Done(outcome) => outcome.to_string(),
        End::Failed(reason) => reason.to_string(),
        End::Denied(reason) => reason.to_string(),
    }
}

/// Puts URLs in, and says what became of each. All of it or nothing.
pub(super) async fn add(client: &mut Object, urls: &[Addition]) -> Result<Vec<Added>, DatabaseError> {
    let transaction = client.transaction().await?;
    let mut hosts = lock_lines(&transaction, urls).await?;
    let mut added: Vec<Option<Added>> = vec![None; urls.len()];
    let mut seen = HashSet::new();
    let prints: Vec<(i64, i64)> =
        urls.iter().map(|new| (hosts[new.url.host()].id, print(&new.url))).collect();
    for nth in known(&transaction, &prints).await? {
        added[nth] = Some(Added::Duplicate);
    }
    for (nth, print) in prints.iter().enumerate() {
        if added[nth].is_none() && !seen.insert(*print) {
            added[nth] = Some(Added::Duplicate);
        }
    }
    for _ in 0..NAMING_MAX {
        let open: Vec<usize> = (0..urls.len()).filter(|&nth| added[nth].is_none()).collect();
        if open.is_empty() {
            break;
        }
        insert(&transaction, urls, &prints, &open, &mut hosts, &mut added).await?;
    }
    lengthen(&transaction, &hosts).await?;
    transaction.commit().await?;
    Ok(added.into_iter().map(|added| added.unwrap_or(Added::NoRoom)).collect())
}

/// A host whose row is locked.
struct LockedLine {
    id: i64,
    /// The place behind its last document.
    next: i64,
    by: i64,
    /// In which order the hosts came.
    order: usize,
}

type LockedLines = HashMap<Box<str>, LockedLine>;

async fn lock_lines(transaction: &Transaction<'_>, urls: &[Addition]) -> Result<LockedLines, DatabaseError> {
    let mut order: HashMap<&str, usize> = HashMap::new();
    for new in urls {
        let next = order.len();
        order.entry(new.url.host()).or_insert(next);
    }
    let mut names: Vec<&str> = order.keys().copied().collect();
    names.sort_unstable();
    let statement = transaction.prepare_cached(include_str!("sql/new_hosts.sql")).await?;
    transaction.execute(&statement, &[&names]).await?;
    let statement = transaction.prepare_cached(include_str!("sql/lines.sql")).await?;
    let rows = transaction.query(&statement, &[&names]).await?;
    Ok(rows
        .iter()
        .map(|row| {
            let name: &str = row.get("host");
            let next = row.get("next_place");
            let line = LockedLine { id: row.get("host_id"), next, by: 0, order: order[name] };
            (name.into(), line)
        })
        .collect())
}

async fn known(transaction: &Transaction<'_>, prints: &[(i64, i64)]) -> Result<Vec<usize>, DatabaseError> {
    let hosts: Vec<i64> = prints.iter().map(|(host, _)| *host).collect();
    let marks: Vec<i64> = prints.iter().map(|(_, print)| *print).collect();
    let statement = transaction.prepare_cached(include_str!("sql/known.sql")).await?;
    let rows = transaction.query(&statement, &[&hosts, &marks]).await?;
    Ok(rows.iter().map(|row| row.get::<_, i64>(0) as usize - 1).collect())
}

/// Puts those that are `open` in. One whose chosen name is taken is refused; one that has none keeps its chance of
/// another name.
async fn insert(
    transaction: &Transaction<'_>,
    urls: &[Addition],
    prints: &[(i64, i64)],
    open: &[usize],
    hosts: &mut LockedLines,
    added: &mut [Option<Added>],
) -> Result<(), DatabaseError> {
    let unnamed = open.iter().filter(|&&nth| urls[nth].doc.is_none()).count();
    let mut drawn = draw(transaction, include_str!("sql/draw_ids.sql"), unnamed).await?.into_iter();
    let mut names = HashSet::new();
    let (mut docs, mut host_ids, mut places, mut marks, mut texts) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut times, mut given) = (Vec::new(), Vec::new());
    for &nth in open {
        let Some(doc) = urls[nth].doc.map(|doc| doc.0 as i64).or_else(|| drawn.next()) else { continue };
        if !names.insert(doc) {
            if urls[nth].doc.is_some() {
                added[nth] = Some(Added::IdTaken);
            }
            continue;
        }
        let Some(line) = hosts.get_mut(urls[nth].url.host()) else { continue };
        docs.push(doc);
        host_ids.push(line.id);
        places.push(line.next + line.by);
        marks.push(prints[nth].1);
        texts.push(urls[nth].url.as_str());
        times.push(urls[nth].not_before.map(|time| time.min(LAST_SECOND) as i64));
        line.by += 1;
        given.push((nth, doc));
    }
    let statement = transaction.prepare_cached(include_str!("sql/new_docs.sql")).await?;
    let rows = transaction.query(&statement, &[&docs, &host_ids, &places, &marks, &texts, &times]).await?;
    let taken: HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
    for (nth, doc) in given {
        if taken.contains(&doc) {
            added[nth] = Some(Added::Accepted(DocId(doc as u64)));
        } else if urls[nth].doc.is_some() {
            added[nth] = Some(Added::IdTaken);
        }
    }
    Ok(())
}

async fn draw(transaction: &Transaction<'_>, sql: &str, count: usize) -> Result<Vec<i64>, DatabaseError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let statement = transaction.prepare_cached(sql).await?;
    let rows = transaction.query(&statement, &[&(count as i64)]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

async fn lengthen(transaction: &Transaction<'_>, hosts: &LockedLines) -> Result<(), DatabaseError> {
    let mut longer: Vec<&LockedLine> = hosts.values().filter(|line| line.by > 0).collect();
    longer.sort_by_key(|line| line.order);
    if longer.is_empty() {
        return Ok(());
    }
    let mut turns = draw(transaction, include_str!("sql/draw_turns.sql"), longer.len()).await?;
    turns.sort_unstable();
    let ids: Vec<i64> = longer.iter().map(|line| line.id).collect();
    let by: Vec<i64> = longer.iter().map(|line| line.by).collect();
    let statement = transaction.prepare_cached(include_str!("sql/lengthen_lines.sql")).await?;
    transaction.execute(&statement, &[&ids, &by, &turns]).await?;
    Ok(())
}

/// The same in every process: many compare.
fn print(url: &Url) -> i64 {
    xxh3_64(url.as_str().as_bytes()) as i64
}
