//! Looks names up: hosts file, then `localhost`, then the name servers in charge of the name.
//!
//! Every look-up ends within the configured time, and leaves nothing behind when its future is
//! dropped. Not here: caching, bounds on TTLs, one look-up per name, what an address may be used
//! for. Those belong to the records, which are told each [`Resolution`].

use super::Resolution;
use super::answers;
use super::hosts_file::{HostsFile, HostsFileError};
use super::name_servers::NameServers;
use crate::time::{Duration, Instant, micros_rounded_up};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::read_system_conf;
use indexmap::IndexMap;
use indexmap::map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;
use tracing::warn;

/// TTL of names in the hosts file: a change there is in force this soon.
pub const HOSTS_FILE_TTL: Duration = Duration::from_secs(10);

/// TTL of what cannot change: IP literals, `localhost`.
pub const FIXED_TTL: Duration = Duration::from_secs(365 * 24 * 3600);

/// While the system's configuration cannot be used it is tried this often at most.
const SYSTEM_RETRY: Duration = Duration::from_secs(1);

/// Longer timeouts are cut to this: the DNS library's clock overflows on absurd ones.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

const DNS_PORT: u16 = 53;

/// Family of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4, A records.
    V4,
    /// IPv6, AAAA records.
    V6,
}

impl Family {
    /// The family `ip` belongs to.
    pub fn of(ip: IpAddr) -> Family {
        match ip {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

/// Who is asked about names that no zone covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Servers {
    /// Those of the operating system; read when the first name needs them, and then kept.
    System,
    /// These, the first one first.
    List(Vec<SocketAddr>),
}

/// How names are looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolverConfig {
    /// Name servers for everything else.
    pub servers: Servers,
    /// Split DNS: names at or below a domain suffix are asked of these servers; the longest suffix wins.
    pub zones: Vec<(String, Vec<SocketAddr>)>,
    /// Names with fixed addresses, in the format of `/etc/hosts`.
    pub hosts_file: Option<PathBuf>,
    /// Longest time a look-up takes, whatever the name servers do.
    pub timeout: Duration,
    /// Families to use, in order of preference.
    pub families: Vec<Family>,
}

/// Why there is no resolver. All are settings to be corrected.
#[derive(Debug, Error)]
pub enum ResolverError {
    /// The hosts file.
    #[error(transparent)]
    HostsFile(#[from] HostsFileError),
    /// An empty list of servers.
    #[error("no name server given")]
    NoServer,
    /// A zone with an empty list of servers.
    #[error("no name server given for zone `{0}`")]
    NoZoneServer(String),
    /// A zone that is no domain name.
    #[error("zone `{0}` is not a domain name")]
    ZoneName(String),
    /// Two spellings of one zone.
    #[error("zone `{0}` is given twice")]
    ZoneTwice(String),
    /// No family to ask for.
    #[error("no address family given")]
    NoFamily,
    /// The DNS library refused its configuration.
    #[error("cannot set up name servers: {0}")]
    Library(#[from] NetError),
}

/// Looks names up. Shared by all look-ups; see [`Resolver::resolve`].
pub struct Resolver {
    hosts: Option<Mutex<HostsFile>>,
    zones: IndexMap<String, Arc<NameServers>>,
    default: DefaultServers,
    families: Vec<Family>,
    epoch: tokio::time::Instant,
}

impl Resolver {
    /// Checks the configuration and reads the hosts file. Nothing is asked yet.
    pub fn new(config: ResolverConfig) -> Result<Resolver, ResolverError> {
        if config.families.is_empty() {
            return Err(ResolverError::NoFamily);
        }
        let timeout = config.timeout.min(TIMEOUT_MAX);
        let default = match &config.servers {
            Servers::System => DefaultServers::system(system_servers, timeout),
            Servers::List(list) if list.is_empty() => return Err(ResolverError::NoServer),
            Servers::List(list) => DefaultServers::Given(NameServers::new(list, timeout)?),
        };
        Ok(Resolver {
            hosts: config.hosts_file.map(HostsFile::open).transpose()?.map(Mutex::new),
            zones: zones(config.zones, timeout)?,
            default,
            families: config.families,
            epoch: tokio::time::Instant::now(),
        })
    }

    /// Looks `name` up. Always ends, at the latest after the configured timeout.
    pub async fn resolve(&self, name: &str) -> Resolution {
        let name = plain(name);
        if let Some(resolution) = self.known(&name) {
            return resolution;
        }
        let Some(question) = question(&name) else {
            return Resolution::Nothing { ttl: None };
        };
        let Some(servers) = self.servers_for(&name) else {
            return Resolution::Unavailable;
        };
        let answers = servers.ask(&question, &self.families).await;
        answers::combine(&self.families, &answers)
    }

    /// What is known without asking anybody. A name in the hosts file is decided there, even if
    /// the file has no address for it that may be used.
    fn known(&self, name: &str) -> Option<Resolution> {
        if let Some(ip) = literal(name) {
            return Some(answers::settle(&self.families, vec![ip], FIXED_TTL));
        }
        if let Some(addresses) = self.in_hosts_file(name) {
            return Some(answers::settle(&self.families, addresses, HOSTS_FILE_TTL));
        }
        is_localhost(name).then(|| {
            let loopback = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            answers::settle(&self.families, loopback, FIXED_TTL)
        })
    }

    fn in_hosts_file(&self, name: &str) -> Option<Vec<IpAddr>> {
        let mut hosts = self.hosts.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.refresh(self.now());
        hosts.lookup(name).map(<[IpAddr]>::to_vec)
    }

    fn servers_for(&self, name: &str) -> Option<Arc<NameServers>> {
        let zone = suffixes(name).find_map(|suffix| self.zones.get(suffix));
        zone.cloned().or_else(|| self.default.current(self.now()))
    }

    fn now(&self) -> Instant {
        Instant::from_micros(micros_rounded_up(self.epoch.elapsed()))
    }
}

/// As the rest of the server spells names.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn literal(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse().ok()
}

/// RFC 6761, 6.3: these never leave the machine.
fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// `name` for the wire, absolute, so that no search domain is ever appended; none if no name
/// server can know it (an empty label, one over 63 bytes…).
fn question(name: &str) -> Option<Name> {
    if name.is_empty() {
        return None;
    }
    Name::from_ascii(format!("{name}.")).ok()
}

/// `a.b.c`, `b.c`, `c`.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |rest| rest.split_once('.').map(|(_, parent)| parent))
}

fn zones(
    given: Vec<(String, Vec<SocketAddr>)>,
    timeout: Duration,
) -> Result<IndexMap<String, Arc<NameServers>>, ResolverError> {
    let mut zones = IndexMap::new();
    for (zone, servers) in given {
        let suffix = plain(zone.strip_prefix('.').unwrap_or(&zone));
        if question(&suffix).is_none() {
            return Err(ResolverError::ZoneName(zone));
        }
        if servers.is_empty() {
            return Err(ResolverError::NoZoneServer(zone));
        }
        match zones.entry(suffix) {
            Entry::Occupied(_) => return Err(ResolverError::ZoneTwice(zone)),
            Entry::Vacant(place) => place.insert(NameServers::new(&servers, timeout)?),
        };
    }
    Ok(zones)
}

type ReadSystem = fn() -> Result<Vec<SocketAddr>, NetError>;

/// The system's own timeouts, search domains and options are left aside: ours are settings.
fn system_servers() -> Result<Vec<SocketAddr>, NetError> {
    let (config, _) = read_system_conf()?;
    Ok(config.name_servers().iter().map(|server| SocketAddr::new(server.ip, DNS_PORT)).collect())
}

enum DefaultServers {
    Given(Arc<NameServers>),
    System { read: ReadSystem, timeout: Duration, state: Mutex<SystemState> },
}

/// A machine without DNS is fine while all names are in the hosts file: so nothing is read before
/// it is needed, and what cannot be read may come later.
enum SystemState {
    Missing { next_try: Instant, warned: bool },
    Found(Arc<NameServers>),
}

impl DefaultServers {
    fn system(read: ReadSystem, timeout: Duration) -> DefaultServers {
        let state = SystemState::Missing { next_try: Instant::ZERO, warned: false };
        DefaultServers::System { read, timeout, state: Mutex::new(state) }
    }

    fn current(&self, now: Instant) -> Option<Arc<NameServers>> {
        match self {
            DefaultServers::Given(servers) => Some(Arc::clone(servers)),
            DefaultServers::System { read, timeout, state } => {
                state.lock().unwrap_or_else(PoisonError::into_inner).current(*read, *timeout, now)
            }
        }
    }
}

impl SystemState {
    fn current(&mut self, read: ReadSystem, timeout: Duration, now: Instant) -> Option<Arc<NameServers>> {
        let warned = match self {
            SystemState::Found(servers) => return Some(Arc::clone(servers)),
            SystemState::Missing { next_try, .. } if now < *next_try => return None,
            SystemState::Missing { warned, .. } => *warned,
        };
        match build(read, timeout) {
            Ok(servers) => {
                *self = SystemState::Found(Arc::clone(&servers));
                Some(servers)
            }
            Err(error) => {
                if !warned {
                    warn!(%error, "the system has no usable DNS configuration, names cannot be looked up");
                }
                *self = SystemState::Missing { next_try: now + SYSTEM_RETRY, warned: true };
                None
            }
        }
    }
}

fn build(read: ReadSystem, timeout: Duration) -> Result<Arc<NameServers>, ResolverError> {
    let servers = read()?;
    if servers.is_empty() {
        return Err(ResolverError::NoServer);
    }
    Ok(NameServers::new(&servers, timeout)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn config() -> ResolverConfig {
        ResolverConfig {
            servers: Servers::System,
            zones: Vec::new(),
            hosts_file: None,
            timeout: Duration::from_secs(1),
            families: vec![Family::V4, Family::V6],
        }
    }

    fn refusal(config: ResolverConfig) -> String {
        Resolver::new(config).err().unwrap().to_string()
    }

    #[test]
    fn impossible_configurations_are_refused_by_name() {
        let servers = || vec!["192.0.2.53:53".parse().unwrap()];
        let zones = |zones: &[(&str, Vec<SocketAddr>)]| ResolverConfig {
            zones: zones.iter().map(|(zone, servers)| (zone.to_string(), servers.clone())).collect(),
            ..config()
        };
        assert_eq!(refusal(ResolverConfig { families: vec![], ..config() }), "no address family given");
        assert_eq!(
            refusal(ResolverConfig { servers: Servers::List(vec![]), ..config() }),
            "no name server given"
        );
        assert_eq!(refusal(zones(&[("a.test", vec![])])), "no name server given for zone `a.test`");
        assert_eq!(refusal(zones(&[("a..test", servers())])), "zone `a..test` is not a domain name");
        assert_eq!(refusal(zones(&[("", servers())])), "zone `` is not a domain name");
        let twice = zones(&[("a.test", servers()), (".A.test.", servers())]);
        assert_eq!(refusal(twice), "zone `.A.test.` is given twice");
        let hosts_file = Some(PathBuf::from("/nonexistent/hosts"));
        assert!(refusal(ResolverConfig { hosts_file, ..config() }).contains("/nonexistent/hosts"));
    }

    #[test]
    fn suffixes_are_whole_labels() {
        assert_eq!(suffixes("a.b.c").collect::<Vec<_>>(), ["a.b.c", "b.c", "c"]);
    }

    #[test]
    fn a_system_without_dns_is_tried_again_but_not_all_the_time() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        fn absent_twice() -> Result<Vec<SocketAddr>, NetError> {
            match TRIES.fetch_add(1, Ordering::Relaxed) {
                0 => Err(NetError::from("no such file")),
                1 => Ok(Vec::new()),
                _ => Ok(vec!["192.0.2.53:53".parse().unwrap()]),
            }
        }
        let system = DefaultServers::system(absent_twice, Duration::from_secs(1));
        assert!(system.current(Instant::ZERO).is_none());
        assert!(system.current(Instant::from_micros(999_999)).is_none());
        assert_eq!(TRIES.load(Ordering::Relaxed), 1);
        assert!(system.current(Instant::from_micros(1_000_000)).is_none());
        assert!(system.current(Instant::from_micros(2_000_000)).is_some());
        assert!(system.current(Instant::from_micros(2_000_000)).is_some());
        assert_eq!(TRIES.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_system_without_dns_still_knows_what_needs_none() {
        fn absent() -> Result<Vec<SocketAddr>, NetError> {
            Err(NetError::from("no such file"))
        }
        let mut resolver = Resolver::new(config()).unwrap();
        resolver.default = DefaultServers::system(absent, Duration::from_secs(1));
        assert_eq!(resolver.resolve("a.example").await, Resolution::Unavailable);
        let literal = resolver.resolve("192.0.2.7").await;
        assert_eq!(
            literal,
            Resolution::Addresses { addresses: vec!["192.0.2.7".parse().unwrap()], ttl: FIXED_TTL }
        );
    }
}
