//! A group of name servers that know the same names, asked one after the other.
//!
//! Every server has a resolver of its own, because hickory's pool takes the first reply of any
//! kind: a broken server that refuses at once would silence the good one behind it. Here a
//! server that fails, or is silent for a while, costs one question to the next, and nothing
//! else. Each is asked once per question (its lost packets are sent again up to twice); asking
//! again later is the caller's decision.

use super::answers::{self, Answer};
use super::resolver::Family;
use crate::time::Duration;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RecordType};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// Most questions under way to one group; more wait in line, on their own time. Every question has a socket of
/// its own, three when its packets are lost: whoever asks bounds them by the open files there are.
pub(super) const QUESTIONS_MAX: usize = 2048;

/// Once one family has addresses, how long the other may still take. Enough for one lost packet of
/// the other (hickory sends it again after 333 ms), and the most that a dead AAAA path delays a name.
const FAMILY_GRACE: Duration = Duration::from_millis(500);

/// A server silent for this long is not waited for alone any more.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

pub(super) struct NameServers {
    servers: Vec<TokioResolver>,
    /// The one that answered last: a dead first server is found out once, not for every name.
    preferred: AtomicUsize,
    line: Semaphore,
    timeout: Duration,
}

impl NameServers {
    pub(super) fn new(addresses: &[SocketAddr], timeout: Duration) -> Result<Arc<NameServers>, NetError> {
        let servers = addresses.iter().map(|address| server(*address, timeout)).collect::<Result<_, _>>()?;
        let line = Semaphore::new(QUESTIONS_MAX);
        Ok(Arc::new(NameServers { servers, preferred: AtomicUsize::new(0), line, timeout }))
    }

    /// Asks about all `families` of `name` at once, and returns what is known in time.
    pub(super) async fn ask(self: &Arc<Self>, name: &Name, families: &[Family]) -> Vec<Answer> {
        let mut asked = JoinSet::new();
        for family in families {
            asked.spawn(Arc::clone(self).ask_family(name.clone(), *family));
        }
        let mut deadline = Instant::now() + self.timeout;
        let mut answers = Vec::new();
        while let Ok(Some(ended)) = timeout_at(deadline, asked.join_next()).await {
            let answer = ended.unwrap_or(Answer::Failed);
            // Not after NXDOMAIN: it may be wrong for one family, and it costs documents.
            if matches!(answer, Answer::Addresses { .. }) {
                deadline = deadline.min(Instant::now() + FAMILY_GRACE);
            }
            answers.push(answer);
        }
        answers
    }

    /// The first answer of any server. Those that were slow may still win while the next is asked.
    async fn ask_family(self: Arc<Self>, name: Name, family: Family) -> Answer {
        let mut untried = self.in_order();
        let mut asked = JoinSet::new();
        loop {
            let next = untried.next();
            let last = next.is_none();
            if let Some(server) = next {
                asked.spawn(Arc::clone(&self).ask_server(server, name.clone(), family));
            } else if asked.is_empty() {
                return Answer::Failed;
            }
            let patience = if last { self.timeout } else { self.patience() };
            if let Ok(Some(Ok((server, answer)))) = timeout(patience, asked.join_next()).await
                && answer != Answer::Failed
            {
                self.preferred.store(server, Ordering::Relaxed);
                return answer;
            }
        }
    }

    async fn ask_server(self: Arc<Self>, server: usize, name: Name, family: Family) -> (usize, Answer) {
        let Ok(_place) = self.line.acquire().await else { return (server, Answer::Failed) };
        let reply = self.servers[server].lookup(name.clone(), record_type(family)).await;
        (server, answers::read(&name, reply))
    }

    fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.servers.len();
        let first = self.preferred.load(Ordering::Relaxed);
        (0..count).map(move |step| (first + step) % count)
    }

    fn patience(&self) -> Duration {
        let shares = u32::try_from(self.servers.len()).unwrap_or(u32::MAX).saturating_add(1);
        (self.timeout / shares).min(PATIENCE_MAX)
    }
}

fn record_type(family: Family) -> RecordType {
    match family {
        Family::V4 => RecordType::A,
        Family::V6 => RecordType::AAAA,
    }
}

fn server(address: SocketAddr, timeout: Duration) -> Result<TokioResolver, NetError> {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    let server = NameServerConfig::new(address.ip(), true, connections.into());
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        .with_options(options(timeout))
        .build()
}

/// Caching, hosts, search domains and retries are ours; hickory only talks.
fn options(timeout: Duration) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = timeout;
    options.attempts = 0;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.max_active_requests = QUESTIONS_MAX;
    options.positive_max_ttl = Some(Duration::from_secs(u32::MAX.into()));
    // Without the intermediate records the TTL of an alias in an earlier reply would be lost.
    options.preserve_intermediates = true;
    options
}
