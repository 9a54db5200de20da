//! Names, addresses and their health.
//!
//! Everything here is told the time and given answers; only the resolver does I/O.

mod answers;
pub mod health;
mod hosts_file;
mod name_servers;
mod public;
pub mod records;
mod resolver;

pub use hosts_file::{BAD_LINES_MAX, BadLine, HostsFile, HostsFileError, LineFault};
pub use public::{is_public, normalised};
pub use resolver::{FIXED_TTL, Family, HOSTS_FILE_TTL, Resolver, ResolverConfig, ResolverError, Servers};

use crate::time::Duration;
use std::net::IpAddr;

/// What a look-up of a name came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// The name's addresses in order of preference: at least one, at most [`ADDRESSES_MAX`], each once,
    /// v4-mapped ones as IPv4, no unspecified ones. `ttl` is the name server's, without our bounds.
    Addresses {
        /// Where the name leads.
        addresses: Vec<IpAddr>,
        /// How long this may be believed.
        ttl: Duration,
    },
    /// The name does not exist, or has no address (NXDOMAIN, NODATA): final for the time given.
    Nothing {
        /// The name server's negative TTL, if it gave one.
        ttl: Option<Duration>,
    },
    /// No answer that can be believed (SERVFAIL, timeout, refused): ask again later.
    Unavailable,
}

/// Most addresses kept for one name.
pub const ADDRESSES_MAX: usize = 16;
