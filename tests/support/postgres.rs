//! A PostgreSQL server of our own for the tests: on a free port of loopback, in a scratch directory, gone when the
//! test process is. Where no server is installed, Debian's is, if we may.
#![allow(dead_code, unreachable_pub, reason = "every test that includes this uses a part of it")]

#[path = "debian.rs"]
mod debian;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for it to be ready, on the slowest machine.
const START_MAX: Duration = Duration::from_secs(120);

/// The running server.
pub struct Postgres {
    pub port: u16,
    /// A certificate that its own is made with, as PEM.
    pub root_certificate: PathBuf,
    bin: PathBuf,
    scratch: PathBuf,
    /// Ends the server when its standard input ends, with us.
    _janitor: Child,
}

static SHARED: OnceLock<Postgres> = OnceLock::new();
static LAST_DATABASE: AtomicU32 = AtomicU32::new(0);

/// The URL of a new, empty database on the server that all tests of this process share.
pub fn new_database() -> String {
    shared().new_database()
}

/// The server that all tests of this process share.
pub fn shared() -> &'static Postgres {
    SHARED.get_or_init(Postgres::start)
}

impl Postgres {
    /// One of our own.
    pub fn start() -> Postgres {
        let bin = debian::installed("postgresql", find);
        let scratch = tempfile::Builder::new().prefix("urlserver-pg-").tempdir().expect("a directory").keep();
        let port = free_port();
        let data = scratch.join("data");
        give_to_postgres(&scratch);
        let initdb = as_postgres(&bin.join("initdb"))
            .arg("-D")
            .arg(&data)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
            .output();
        succeeded("initdb", &initdb.expect("initdb"));
        let root_certificate = write_certificates(&data, &scratch);
        let mut settings =
            std::fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).expect("a file");
        write!(
            settings,
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\nfsync = off\n\
             max_connections = 200\nautovacuum_naptime = 5s\nssl = on\nlog_min_messages = warning\n",
            scratch.display()
        )
        .expect("a file");
        let start = as_postgres(&bin.join("pg_ctl"))
            .args(["start", "-W", "-D"])
            .arg(&data)
            .arg("-l")
            .arg(scratch.join("log"))
            .output();
        succeeded("pg_ctl start", &start.expect("pg_ctl"));
        let janitor = janitor(&bin, &data, &scratch);
        let server = Postgres { port, root_certificate, bin, scratch, _janitor: janitor };
        server.wait_until_ready();
        server
    }

    /// A replica of it, which has every commit before whoever committed hears of it.
    pub fn replica(&self) -> Postgres {
        let scratch = tempfile::Builder::new().prefix("urlserver-pg-").tempdir().expect("a directory").keep();
        let (data, port) = (scratch.join("data"), free_port());
        give_to_postgres(&scratch);
        let copy = as_postgres(&self.bin.join("pg_basebackup"))
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres", "-R", "-X", "stream"])
            .args(["-c", "fast", "--no-sync", "-D"])
            .arg(&data)
            .output();
        succeeded("pg_basebackup", &copy.expect("pg_basebackup"));
        let mut settings =
            std::fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).expect("a file");
        write!(settings, "port = {port}\nunix_socket_directories = '{}'\n", scratch.display())
            .expect("a file");
        let start = as_postgres(&self.bin.join("pg_ctl"))
            .args(["start", "-W", "-D"])
            .arg(&data)
            .arg("-l")
            .arg(scratch.join("log"))
            .output();
        succeeded("pg_ctl start", &start.expect("pg_ctl"));
        let janitor = janitor(&self.bin, &data, &scratch);
        let root_certificate = self.root_certificate.clone();
        let replica = Postgres { port, root_certificate, bin: self.bin.clone(), scratch, _janitor: janitor };
        replica.wait_until_ready();
        self.run_sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.run_sql("postgres", "SELECT pg_reload_conf()");
        let end = Instant::now() + START_MAX;
        let in_step = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while self.run_sql("postgres", in_step) != "1" {
            assert!(Instant::now() < end, "the replica is not in step");
            std::thread::sleep(Duration::from_millis(20));
        }
        replica
    }

    /// Ends it as a crash would; `start`, `promote`: what pg_ctl does then, or with another one.
    pub fn control(&self, words: &[&str]) {
        let output = as_postgres(&self.bin.join("pg_ctl"))
            .args(words)
            .arg("-D")
            .arg(self.scratch.join("data"))
            .arg("-l")
            .arg(self.scratch.join("log"))
            .output();
        succeeded(&format!("pg_ctl {words:?}"), &output.expect("pg_ctl"));
    }

    /// The URL of a new, empty database.
    pub fn new_database(&self) -> String {
        let name = format!("test_{}", LAST_DATABASE.fetch_add(1, Ordering::Relaxed));
        self.run_sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Where to find a database; without TLS.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// What psql prints for these statements, without frills.
    #[track_caller]
    pub fn run_sql(&self, database: &str, sql: &str) -> String {
        self.run_sql_at(&self.port.to_string(), database, sql)
    }

    #[track_caller]
    fn run_sql_at(&self, port: &str, database: &str, sql: &str) -> String {
        let output = Command::new(self.bin.join("psql"))
            .args(["-h", "127.0.0.1", "-p", port, "-U", "postgres", "-d", database])
            .env("PGSSLMODE", "disable")
            .env("PGGSSENCMODE", "disable")
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .output()
            .expect("psql");
        succeeded(sql, &output);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn wait_until_ready(&self) {
        let end = Instant::now() + START_MAX;
        loop {
            let ready = Command::new(self.bin.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status();
            if ready.is_ok_and(|status| status.success()) {
                return;
            }
            let log = || std::fs::read_to_string(self.scratch.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The name of the database in a URL made here.
pub fn database_of(url: &str) -> &str {
    url.rsplit('/').next().and_then(|rest| rest.split('?').next()).expect("a database")
}

/// What psql prints, for a database made here, by whatever way the URL leads there.
#[track_caller]
pub fn sql(url: &str, text: &str) -> String {
    let port = url.split_once('@').and_then(|(_, rest)| rest.split(['/', ':']).nth(1)).expect("a port");
    shared().run_sql_at(port, database_of(url), text)
}

/// The newest server that is installed.
fn find() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all: Vec<PathBuf> = debian.chain(std::env::split_paths(&path)).collect();
    let needed = ["initdb", "pg_ctl", "pg_isready", "psql"];
    all.retain(|bin| needed.iter().all(|program| bin.join(program).exists()));
    all.sort();
    all.pop()
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t")))
}

/// PostgreSQL refuses to run as root.
fn as_postgres(program: &Path) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.stdin(Stdio::null()).current_dir("/tmp");
    command
}

fn give_to_postgres(path: &Path) {
    if is_root() {
        let output = Command::new("chown").args(["-R", "postgres:"]).arg(path).output().expect("chown");
        succeeded("chown", &output);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound socket").port()
}

/// A root, and a server's certificate for 127.0.0.1 and localhost that is made with it.
fn write_certificates(data: &Path, scratch: &Path) -> PathBuf {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let root_key = KeyPair::generate().expect("a key");
    let mut root = CertificateParams::new(Vec::new()).expect("a certificate");
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_certificate = root.self_signed(&root_key).expect("a certificate");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let key = KeyPair::generate().expect("a key");
    let issuer = Issuer::new(root, root_key);
    let server = CertificateParams::new(names).expect("a certificate").signed_by(&key, &issuer);
    let path = scratch.join("root.pem");
    std::fs::write(&path, root_certificate.pem()).expect("a file");
    std::fs::write(data.join("server.crt"), server.expect("a certificate").pem()).expect("a file");
    std::fs::write(data.join("server.key"), key.serialize_pem()).expect("a file");
    use std::os::unix::fs::PermissionsExt;
    let secret = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(data.join("server.key"), secret).expect("a file");
    give_to_postgres(data);
    path
}

fn janitor(bin: &Path, data: &Path, scratch: &Path) -> Child {
    let stop = as_postgres(&bin.join("pg_ctl"));
    let words = std::iter::once(stop.get_program()).chain(stop.get_args());
    let stop: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let script = format!(
        "trap '' INT TERM HUP; cat >/dev/null; {} stop -m immediate -D '{}' >/dev/null 2>&1; rm -rf '{}'",
        stop.join(" "),
        data.display(),
        scratch.display()
    );
    Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/tmp")
        .spawn()
        .expect("a shell")
}

#[track_caller]
fn succeeded(what: &str, output: &Output) {
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{what}: {}", said());
}

/// Watches over a database from inside: whoever frees a claim that is not his, or ends a document that is not his to
/// end or has ended, is written down in `audit`.
const AUDIT: &str = "
CREATE TABLE audit (fault text NOT NULL);
CREATE TABLE ends (doc bigint NOT NULL, by bigint);
CREATE FUNCTION watch_claim() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    late instances%ROWTYPE;
BEGIN
    IF OLD.holder IS NOT NULL AND NEW.holder IS DISTINCT FROM OLD.holder THEN
        SELECT * INTO late FROM instances WHERE epoch = OLD.holder;
        IF current_setting('application_name') <> 'urlserver ' || late.name
            AND clock_timestamp() <= (CASE WHEN OLD.in_flight THEN late.expires_2 ELSE late.expires_1 END) THEN
            INSERT INTO audit VALUES (format('%s took a claim of %s too early: %s',
                current_setting('application_name'), late.name, to_json(OLD)));
        END IF;
        IF NEW.holder IS NOT NULL THEN
            INSERT INTO audit VALUES (format('a claim went from %s to %s', OLD.holder, NEW.holder));
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER watch BEFORE UPDATE ON hosts FOR EACH ROW EXECUTE FUNCTION watch_claim();
CREATE TRIGGER watch BEFORE UPDATE ON keys FOR EACH ROW EXECUTE FUNCTION watch_claim();
CREATE FUNCTION watch_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = 0 THEN
        RETURN NEW;
    END IF;
    INSERT INTO ends VALUES (NEW.doc, NEW.ended_by);
    IF OLD.state <> 0 THEN
        INSERT INTO audit VALUES (format('document %s ended twice', NEW.doc));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER watch BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION watch_end();
";

/// The URL of a new database with tables, that is watched over.
pub fn new_watched_database() -> String {
    watched(new_database())
}

/// The same, for one that is empty.
pub fn watched(url: String) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(urlserver::index::postgres::migrate(&url)).expect("tables");
    sql(&url, AUDIT);
    url
}

/// No claim was taken too early, and no document ended twice.
#[track_caller]
pub fn assert_well_kept(url: &str) {
    assert_eq!(sql(url, "SELECT fault FROM audit LIMIT 20"), "");
}
