//! All tasks and sockets.
//!
//! Two threads of work: the `hub`, alone on its own, which owns the scheduler and the spiders'
//! connections, and around it the rim: look-ups, the document index, HTTP, signals. Nothing that the rim
//! does can make a send wait.

mod alarm;
mod claims;
mod clock;
mod connection;
mod doors;
mod http;
mod hub;
mod politeness;
mod rate;
mod robots;
mod rules;
mod signals;
mod spiders;

pub use rules::scheduler_config;

use crate::hostdb::{Resolver, ResolverError};
use crate::index::embedded::IndexError;
use crate::index::postgres::{DatabaseError, Migrated};
use crate::index::{
    self, Adder, EmbeddedIndex, IndexHandle, MemoryIndex, PostgresIndex, PostgresOptions, TcpIndex,
    TcpOptions, seeds,
};
use crate::scheduler::Scheduler;
use crate::settings::{IndexAt, Settings};
use crate::time::Duration;
use clock::Clock;
use hub::{Event, Hub, Surroundings};
use politeness::Politeness;
use robots::RobotsDesk;
use signals::Signals;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;
use tokio::sync::mpsc;

/// Events on their way to the hub.
const EVENTS_MAX: usize = 1024;
/// Open files asked of the system, and used if it says nothing.
const FILES_WANTED: u64 = 65_536;
const FILES_DEFAULT: u64 = 1024;
/// One name looked up is at most this share of them: two questions, each sent up to three times, to more than one
/// group of name servers; and spiders need some too.
const FILES_PER_LOOKUP: usize = 16;
/// Longest wait for the index to take the last reports.
const CLOSE_MAX: Duration = Duration::from_secs(4);

/// Why the server could not run.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({setting}): {source}")]
    Listen {
        /// Which of them.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Names cannot be looked up.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// A file of seeds cannot be read.
    #[error("cannot read the seeds {}: {source}", path.display())]
    Seeds {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The index in a directory cannot be used.
    #[error("cannot open the document index: {0}")]
    Index(#[from] IndexError),
    /// This version has no such index.
    #[error("this version has no document index of the kind {0}")]
    NoSuchIndex(String),
    /// What hosts are owed cannot be read or written.
    #[error(transparent)]
    Politeness(#[from] crate::politeness::LogError),
    /// The shared index cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The system refuses something basic.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl ServerError {
    /// Whether it is the settings that cannot be used, and not the world.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ServerError::Database(DatabaseError::Url(_)))
    }
}

/// Runs the server until a signal, or until all is done.
pub fn run(settings: Settings) -> Result<(), ServerError> {
    let rim = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let listener = bind("listen", settings.listen)?;
    let http_listener = bind("http", settings.http)?;
    check_seeds(&settings)?;
    let resolver = Arc::new(Resolver::new(rules::resolver_config(&settings))?);
    let mut scheduler = Scheduler::new(rules::scheduler_config(&settings, fastrand::u64(..)));
    let clock = Clock::start();
    let (events, events_in) = mpsc::channel(EVENTS_MAX);
    let (index, adder) = rim.block_on(async { open_index(&settings) })?;
    // Behind the index, whose directory is ours by now.
    let politeness = Politeness::open(&settings, clock, &mut scheduler)?;
    let surroundings = Surroundings {
        clock,
        politeness,
        index,
        adder: adder.clone(),
        resolver,
        rim: rim.handle().clone(),
        events: events.clone(),
        token: settings.spider_token.as_ref().map(|secret| secret.expose().to_owned()),
        stall_max: settings.timeout_spider_status,
        exit_when_done: settings.exit_when_done,
        lookups_max: raise_open_files() / FILES_PER_LOOKUP,
        robots: RobotsDesk::new(&settings),
    };
    let hub = Hub::new(scheduler, surroundings, settings.seeds.is_empty());
    let signals = rim.block_on(async { Signals::catch() })?;
    rim.spawn(signals::watch(signals, events.clone()));
    if let Some(listener) = &http_listener {
        let listener = listener.try_clone()?;
        let token = settings.http_token.as_ref().map(|secret| secret.expose().to_owned());
        let listener = rim.block_on(async { tokio::net::TcpListener::from_std(listener) })?;
        rim.spawn(http::serve(listener, events.clone(), adder.clone(), token));
    }
    rim.spawn(feed_seeds(settings.seeds.clone(), adder, events.clone()));
    say_ready(listener.as_ref(), http_listener.as_ref())?;
    let index = run_hub(hub, events_in, listener, &settings, events)?;
    if rim.block_on(async { tokio::time::timeout(CLOSE_MAX, index.close()).await }).is_err() {
        tracing::warn!("the document index did not take the last reports in time");
    }
    rim.shutdown_background();
    Ok(())
}

/// Creates or changes the tables of the shared index at `url`, as needed.
pub fn migrate(url: &str) -> Result<Migrated, ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(index::postgres::migrate(url))?)
}

/// Runs the hub on this thread, with a runtime of its own for the spiders' sockets.
fn run_hub(
    hub: Hub,
    events_in: mpsc::Receiver<Event>,
    listener: Option<TcpListener>,
    settings: &Settings,
    events: mpsc::Sender<Event>,
) -> Result<IndexHandle, ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let index = runtime.block_on(async {
        if let Some(listener) = listener {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(doors::listen(listener, events.clone()));
        }
        if let Some((host, port)) = settings.spider_to_dial() {
            tokio::spawn(doors::dial(host.to_owned(), port, events));
        }
        Ok::<_, io::Error>(hub.run(events_in).await)
    })?;
    runtime.shutdown_background();
    Ok(index)
}

fn bind(setting: &'static str, address: Option<SocketAddr>) -> Result<Option<TcpListener>, ServerError> {
    let Some(address) = address else { return Ok(None) };
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen().map(Some).map_err(|source| ServerError::Listen { setting, address, source })
}

fn open_index(settings: &Settings) -> Result<(IndexHandle, Adder), ServerError> {
    match &settings.index {
        IndexAt::Memory => Ok(index::spawn(MemoryIndex::default())),
        IndexAt::Tcp(address) => Ok(index::spawn(TcpIndex::new(address.clone(), TcpOptions::default()))),
        IndexAt::Dir(path) => Ok(index::spawn(EmbeddedIndex::open(path, settings.recrawl_after)?)),
        IndexAt::Postgres(url) => Ok(index::spawn(PostgresIndex::new(url, &postgres_options(settings))?)),
    }
}

fn postgres_options(settings: &Settings) -> PostgresOptions {
    PostgresOptions {
        instance: settings.instance.clone(),
        queue_len: settings.queue_len,
        claim_expiry_1: settings.claim_expiry_1,
        claim_expiry_2: settings.claim_expiry_2,
    }
}

/// A file of seeds that is not there is noticed before anybody is told that the server is ready.
fn check_seeds(settings: &Settings) -> Result<(), ServerError> {
    let check = |path: &PathBuf| {
        let meta = std::fs::metadata(path)?;
        if meta.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // A pipe is opened once only, and waits for whoever writes into it.
        if meta.is_file() { std::fs::File::open(path).map(drop) } else { Ok(()) }
    };
    for path in settings.seeds.iter().filter(|path| path.as_os_str() != "-") {
        check(path).map_err(|source| ServerError::Seeds { path: path.clone(), source })?;
    }
    Ok(())
}

async fn feed_seeds(paths: Vec<PathBuf>, adder: Adder, events: mpsc::Sender<Event>) {
    for path in &paths {
        let shown = path.display();
        match seeds::feed_file(&path.to_string_lossy(), &adder).await {
            Ok(fed) => {
                let (accepted, duplicate, rejected) = (fed.accepted, fed.duplicate, fed.rejected);
                tracing::info!(file = %shown, accepted, duplicate, rejected, "seeds read");
            }
            Err(error) => tracing::error!(file = %shown, %error, "seeds not read to their end"),
        }
    }
    let _ = events.send(Event::Seeded).await;
}

/// The one line on the standard output.
fn say_ready(listener: Option<&TcpListener>, http: Option<&TcpListener>) -> io::Result<()> {
    let shown = |listener: Option<&TcpListener>| match listener {
        Some(listener) => listener.local_addr().map(|address| address.to_string()),
        None => Ok("none".to_owned()),
    };
    let mut out = io::stdout().lock();
    writeln!(out, "ready listen={} http={}", shown(listener)?, shown(http)?)?;
    out.flush()
}

/// As many open files as the system grants; bounded, so that what is derived from it is.
fn raise_open_files() -> usize {
    let files = rlimit::increase_nofile_limit(FILES_WANTED).unwrap_or(FILES_DEFAULT);
    files.clamp(64, FILES_DEFAULT * 16) as usize
}

/// Compares without telling by its time where the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
}
