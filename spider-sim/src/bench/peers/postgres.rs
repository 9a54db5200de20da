//! PostgreSQL: a table of hosts, a table of URLs, claims with SKIP LOCKED, in batches; unlogged tables, no fsync.
//!
//! Its memory is shared between its processes, so the size of tables and indexes stands for it.

use super::{Peer, free_port};
use crate::bench::client::{Verified, Watch};
use crate::bench::meter::{Drained, Meter};
use crate::bench::pin::Pinning;
use crate::bench::process;
use crate::bench::workload::{Names, Workload, address, put_url};
use anyhow::{Context, bail};
use std::cell::RefCell;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tokio_postgres::{Client, NoTls, Statement};

/// URLs in one statement.
pub(in crate::bench) const BATCH: usize = 100;
/// Connections that claim at the same time.
const CONNECTIONS: usize = 4;
/// Rows put in at once.
const LOAD: usize = 5_000;
/// Answers without a URL, in a row, after which there is none.
const EMPTY_MAX: usize = 10_000;

const TABLES: &str = "
CREATE UNLOGGED TABLE host (id int PRIMARY KEY, address text NOT NULL, flying bool NOT NULL DEFAULT false,
    next_at timestamptz NOT NULL DEFAULT '2020-01-01', given_up_at timestamptz, urls int NOT NULL)
    WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNLOGGED TABLE url (host int NOT NULL, number bigint NOT NULL, url text NOT NULL);";
const PUT: &str = "INSERT INTO url SELECT * FROM unnest($1::int[], $2::bigint[], $3::text[])";
const HOSTS: &str = "INSERT INTO host (id, address, urls) SELECT id, address, count FROM
    unnest($1::int[], $2::text[]) AS new (id, address) JOIN
    (SELECT host, count(*)::int FROM url GROUP BY host) AS counted (host, count) ON host = id";
const INDEXES: &str = "
ALTER TABLE url ADD PRIMARY KEY (host, number);
CREATE INDEX host_ready ON host (next_at) WHERE NOT flying AND urls > 0;";
const SIZE: &str = "SELECT (pg_total_relation_size('url') + pg_total_relation_size('host'))::bigint";
const TAKE: &str = "
WITH ready AS (SELECT id FROM host WHERE NOT flying AND urls > 0 AND next_at <= now()
        ORDER BY next_at LIMIT $1 FOR UPDATE SKIP LOCKED),
    taken AS (UPDATE host SET flying = true, given_up_at = now() + interval '600 s'
        FROM ready WHERE host.id = ready.id RETURNING host.id, host.address)
SELECT taken.id, taken.address, first.number, first.url FROM taken CROSS JOIN LATERAL
    (SELECT number, url FROM url WHERE url.host = taken.id ORDER BY number LIMIT 1) AS first";
const RELEASE: &str = "
WITH ended AS (SELECT * FROM unnest($1::int[], $2::bigint[]) AS ended (host, number)),
    gone AS (DELETE FROM url USING ended WHERE url.host = ended.host AND url.number = ended.number)
UPDATE host SET flying = false, urls = urls - 1, next_at = now(), given_up_at = NULL
    FROM ended WHERE host.id = ended.host";

/// Where the programs of Debian's packages are, beside `PATH`.
pub(in crate::bench) fn elsewhere() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.map(|version| version.path().join("bin")).collect()
}

/// A server with data of its own.
pub(in crate::bench) struct Database {
    peer: Peer,
    _data: tempfile::TempDir,
}

impl Database {
    /// Makes the data, in RAM where that is possible, and starts a server on it.
    pub(in crate::bench) fn start(bin: &Path, pinning: &Pinning, scratch: &Path) -> anyhow::Result<Database> {
        let ram = Path::new("/dev/shm");
        let data = tempfile::tempdir_in(if ram.is_dir() { ram } else { scratch })?;
        let owner = owner()?;
        if let Some((uid, gid)) = owner {
            std::os::unix::fs::chown(data.path(), Some(uid), Some(gid))?;
        }
        let command = |program: &str| {
            let mut command = Command::new(bin.join(program));
            command.arg("-D").arg(data.path()).current_dir("/");
            if let Some((uid, gid)) = owner {
                command.uid(uid).gid(gid);
            }
            command
        };
        let made = command("initdb").args(["-A", "trust", "-U", "bench", "--no-sync"]).output()?;
        if !made.status.success() {
            bail!("initdb: {}", String::from_utf8_lossy(&made.stderr));
        }
        let port = free_port()?;
        let mut server = command("postgres");
        for (name, value) in settings(port) {
            server.arg("-c").arg(format!("{name}={value}"));
        }
        Ok(Database { peer: Peer::start(&mut server, port, pinning, scratch)?, _data: data })
    }

    /// Its first process.
    pub(in crate::bench) fn pid(&self) -> u32 {
        self.peer.pid()
    }

    /// Loads everything, takes and acknowledges `urls` of it. Returns the bytes that all took on disk, too.
    pub(in crate::bench) fn measure(
        &self,
        workload: &Workload,
        urls: u64,
    ) -> anyhow::Result<(Drained, Verified, u64)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let bytes = load(&self.connect().await?, workload).await?;
            let (drained, found) = self.drain(workload, urls).await?;
            Ok((drained, found, bytes))
        })
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        let url = format!("host=127.0.0.1 port={} user=bench dbname=postgres", self.peer.port);
        // It listens before it is ready.
        for _ in 0..300 {
            if let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await {
                tokio::task::spawn_local(connection);
                return Ok(client);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("no connection")
    }

    async fn drain(&self, workload: &Workload, urls: u64) -> anyhow::Result<(Drained, Verified)> {
        let pid = self.peer.pid();
        let meter = Meter::new(urls, move || process::cpu_of_tree(pid));
        let watch = Watch::new(workload.urls(), workload.hosts());
        let ledger = Rc::new(RefCell::new(Ledger { total: urls, done: 0, meter, watch }));
        let mut claimers = Vec::new();
        for _ in 0..CONNECTIONS {
            let claimer = Claimer::new(self.connect().await?).await?;
            claimers.push(tokio::task::spawn_local(claimer.run(Rc::clone(&ledger))));
        }
        for claimer in claimers {
            claimer.await??;
        }
        let ledger = ledger.borrow();
        Ok((ledger.meter.drained().context("nothing to measure")?, ledger.watch.found()))
    }
}

fn settings(port: u16) -> [(&'static str, String); 14] {
    [
        ("port", port.to_string()),
        ("listen_addresses", "127.0.0.1".into()),
        ("unix_socket_directories", String::new()),
        ("shared_buffers", "1GB".into()),
        ("max_wal_size", "16GB".into()),
        ("checkpoint_timeout", "1h".into()),
        ("autovacuum_naptime", "1s".into()),
        ("autovacuum_vacuum_cost_delay", "0".into()),
        ("max_connections", "20".into()),
        ("jit", "off".into()),
        ("work_mem", "64MB".into()),
        ("fsync", "off".into()),
        ("synchronous_commit", "off".into()),
        ("full_page_writes", "off".into()),
    ]
}

/// It refuses to run as root: then it runs as the user that its package has made.
fn owner() -> anyhow::Result<Option<(u32, u32)>> {
    if !rustix::process::getuid().is_root() {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    let ids = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            ["postgres", _, uid, gid, ..] => Some((uid, gid)),
            _ => None,
        }
    });
    let (uid, gid) = ids.map(|(uid, gid)| (uid.parse(), gid.parse())).context("no user postgres")?;
    Ok(Some((uid?, gid?)))
}

async fn load(client: &Client, workload: &Workload) -> anyhow::Result<u64> {
    client.batch_execute(TABLES).await?;
    let put = client.prepare(PUT).await?;
    let mut each = workload.each();
    loop {
        let (mut hosts, mut numbers, mut urls) = (Vec::new(), Vec::new(), Vec::new());
        for (number, host) in each.by_ref().take(LOAD) {
            let mut url = Vec::new();
            put_url(&mut url, Names::Sites, host, number);
            hosts.push(i32::try_from(host)?);
            numbers.push(i64::from(number));
            urls.push(String::from_utf8(url)?);
        }
        if hosts.is_empty() {
            break;
        }
        client.execute(&put, &[&hosts, &numbers, &urls]).await?;
    }
    let ids: Vec<i32> = (0..workload.hosts()).map(i32::try_from).collect::<Result<_, _>>()?;
    let addresses: Vec<String> = (0..workload.hosts()).map(|host| address(host).to_string()).collect();
    client.execute(HOSTS, &[&ids, &addresses]).await?;
    client.batch_execute(INDEXES).await?;
    for statement in ["VACUUM ANALYZE host", "VACUUM ANALYZE url", "CHECKPOINT"] {
        client.batch_execute(statement).await?;
    }
    let bytes: i64 = client.query_one(SIZE, &[]).await?.get(0);
    Ok(u64::try_from(bytes)?)
}

/// What all connections together have done.
struct Ledger<C> {
    total: u64,
    done: u64,
    meter: Meter<C>,
    watch: Watch,
}

struct Claimer {
    client: Client,
    take: Statement,
    release: Statement,
}

impl Claimer {
    async fn new(client: Client) -> anyhow::Result<Claimer> {
        let take = client.prepare(TAKE).await?;
        let release = client.prepare(RELEASE).await?;
        Ok(Claimer { client, take, release })
    }

    async fn run<C: Fn() -> Duration>(self, ledger: Rc<RefCell<Ledger<C>>>) -> anyhow::Result<()> {
        let mut empty = 0;
        while ledger.borrow().done < ledger.borrow().total {
            let (mut hosts, mut numbers) = (Vec::<i32>::new(), Vec::<i64>::new());
            for row in self.client.query(&self.take, &[&(BATCH as i64)]).await? {
                let (host, _address, number, _url): (i32, &str, i64, &str) =
                    (row.get(0), row.get(1), row.get(2), row.get(3));
                ledger.borrow_mut().watch.came(u32::try_from(host)?, u32::try_from(number)?)?;
                hosts.push(host);
                numbers.push(number);
            }
            empty = if hosts.is_empty() { empty + 1 } else { 0 };
            if empty > EMPTY_MAX {
                bail!("nothing comes any more");
            }
            if hosts.is_empty() {
                continue;
            }
            for &host in &hosts {
                ledger.borrow_mut().watch.goes(u32::try_from(host)?);
            }
            self.client.execute(&self.release, &[&hosts, &numbers]).await?;
            let mut ledger = ledger.borrow_mut();
            ledger.done += hosts.len() as u64;
            let done = ledger.done;
            ledger.meter.reached(done);
        }
        Ok(())
    }
}
