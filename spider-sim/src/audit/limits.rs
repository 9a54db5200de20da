//! What to audit against, how exactly, and how near things came.

use super::gate::{GateLimit, Rest};
use crate::violation::GateKey;
use urlserver::time::Duration;

/// What the server was told to keep.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    /// For one host.
    pub host: GateLimit,
    /// For one address.
    pub ip: GateLimit,
    /// After this long without a status a URL is taken back.
    pub status_timeout: Duration,
    /// After this long it is, whatever status came.
    pub lease_max: Option<Duration>,
    /// Most sends of a document; `None` = for ever.
    pub max_attempts: Option<u32>,
    /// Rest of a host after a DONE.
    pub rest: Rest,
}

/// How far observation may lag behind what it observes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slack {
    /// Between the server's decision to send and the bytes at our socket, and the other way.
    pub jitter: Duration,
    /// Until what was written is certainly read, and an end of a connection certainly noticed.
    pub settle: Duration,
}

impl Slack {
    /// Virtual time: what is written is read in the same instant.
    pub const NONE: Slack = Slack { jitter: Duration::ZERO, settle: Duration::ZERO };
    /// Loopback and good networks. The jitter is not that of our reading (see [`Sent::since`](crate::event::Sent::since)) but of the
    /// server between decision and write: a few scheduler ticks of a busy machine.
    pub const TCP: Slack = Slack { jitter: Duration::from_millis(20), settle: Duration::from_secs(1) };
}

/// The kinds of gate, as indices of [`Auditor::extremes`](super::Auditor::extremes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Hosts.
    Host = 0,
    /// Addresses.
    Ip = 1,
    /// Aliases and groups.
    Group = 2,
}

impl Kind {
    /// Of this gate.
    pub fn of(key: &GateKey) -> Kind {
        match key {
            GateKey::Host(_) => Kind::Host,
            GateKey::Ip(_) => Kind::Ip,
            GateKey::Group(_) => Kind::Group,
        }
    }
}

/// The nearest that any gate of a kind came to its limits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extremes {
    /// Smallest gap between two sends, as the longest it can have been.
    pub smallest_gap: Option<Duration>,
    /// Most in flight at once.
    pub most_in_flight: u32,
}
