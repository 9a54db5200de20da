//! What a world is made of. A plan is plain data: drawn from a seed, or written by hand for a named world.

use crate::profile::Profile;
use std::net::IpAddr;
use urlserver::document::Done;
use urlserver::scheduler::Config;
use urlserver::time::{Duration, Instant};

/// Everything a world is made of. The same plan always gives the same world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is not in the plan is drawn from this.
    pub seed: u64,
    /// The scheduler's rules.
    pub config: Config,
    /// The hosts and their documents.
    pub sites: Vec<Site>,
    /// What each spider is like until all is healed.
    pub spiders: Vec<Profile>,
    /// The wires between spiders and server.
    pub wires: Wires,
    /// How the document index behaves until all is healed.
    pub index: IndexManners,
    /// Addresses that are dead for a while.
    pub outages: Vec<Outage>,
    /// When all faults end.
    pub heal_at: Instant,
    /// The scheduler's laws are checked after every so many steps.
    pub check_every: u64,
    /// Keep every send in the verdict.
    pub keep_sends: bool,
}

impl Plan {
    /// A world without faults: one polite spider, one address per site.
    pub fn peaceful(seed: u64, config: Config, sites: Vec<Site>) -> Plan {
        Plan {
            seed,
            config,
            sites,
            spiders: vec![Profile::polite()],
            wires: Wires::default(),
            index: IndexManners::default(),
            outages: Vec::new(),
            heal_at: Instant::ZERO,
            check_every: 1,
            keep_sends: true,
        }
    }
}

/// One host.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name.
    pub name: Box<str>,
    /// Documents on it.
    pub urls: u32,
    /// Where it lives.
    pub addresses: Vec<IpAddr>,
    /// How its name servers behave.
    pub names: NameManners,
    /// What its web server says instead of what it should, and when.
    pub storms: Vec<Storm>,
    /// What it says when it is asked for a robots.txt.
    pub robots: RobotsManners,
}

impl Site {
    /// A site that behaves.
    pub fn new(name: &str, urls: u32, addresses: &[IpAddr]) -> Site {
        Site {
            name: name.into(),
            urls,
            addresses: addresses.to_vec(),
            names: NameManners::default(),
            storms: Vec::new(),
            robots: RobotsManners::default(),
        }
    }
}

/// How the name servers of a site behave until all is healed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NameManners {
    /// NXDOMAIN otherwise, healed or not.
    pub exists: bool,
    /// Of every answer.
    pub ttl: Duration,
    /// An answer takes up to this.
    pub delay_max: Duration,
    /// Nothing but SERVFAIL until then.
    pub silent_until: Instant,
    /// Probability of a SERVFAIL, or of a time-out, which is as good.
    pub servfail: f64,
    /// Probability of an NXDOMAIN that is not true.
    pub nxdomain: f64,
    /// Only one address at a time, the next one after so long.
    pub moves_every: Option<Duration>,
}

impl Default for NameManners {
    fn default() -> Self {
        NameManners {
            exists: true,
            ttl: Duration::from_secs(3600),
            delay_max: Duration::from_millis(20),
            silent_until: Instant::ZERO,
            servfail: 0.0,
            nxdomain: 0.0,
            moves_every: None,
        }
    }
}

/// What a web server says when it is asked for a robots.txt. It never changes its mind, so that whatever is sent
/// against it is wrong; but it may be silent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RobotsManners {
    /// 404 otherwise.
    pub exists: bool,
    /// URLs whose path begins with this digit are denied; with the next one on each other port.
    pub denies: Option<u8>,
    /// Crawl-delay.
    pub delay: Option<Duration>,
    /// How long it may be believed.
    pub max_age: Option<Duration>,
    /// Redirects before it. More than five are as good as a 404.
    pub hops: u8,
    /// Each leads so many sites further.
    pub stride: usize,
    /// Probability of no answer, or a bad one, until all is healed.
    pub failures: f64,
    /// Nothing but failures, healed or not.
    pub dead: bool,
    /// An answer takes up to this.
    pub latency_max: Duration,
}

impl Default for RobotsManners {
    fn default() -> Self {
        RobotsManners {
            exists: false,
            denies: None,
            delay: None,
            max_age: None,
            hops: 0,
            stride: 0,
            failures: 0.0,
            dead: false,
            latency_max: Duration::from_millis(20),
        }
    }
}

/// A web server that answers in its own way for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storm {
    /// From when.
    pub from: Instant,
    /// Until when.
    pub until: Instant,
    /// What it says.
    pub done: Done,
    /// How long that takes.
    pub latency: Duration,
}

/// An address that nobody can connect to for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Which.
    pub ip: IpAddr,
    /// From when.
    pub from: Instant,
    /// Until when.
    pub until: Instant,
}

/// The wires between spiders and server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wires {
    /// Bytes take up to this, in each direction.
    pub latency_max: Duration,
    /// Bytes that fit into one on its way to a spider, the spider's unread ones included.
    pub capacity: usize,
    /// Probability that what is written arrives in pieces.
    pub split: f64,
    /// Probability that a connection breaks of itself, until all is healed.
    pub cut: f64,
    /// Probability that an attempt to connect fails, until all is healed.
    pub refuse: f64,
}

impl Default for Wires {
    fn default() -> Self {
        let latency_max = Duration::from_millis(1);
        Wires { latency_max, capacity: 16 * 1024, split: 0.0, cut: 0.0, refuse: 0.0 }
    }
}

/// How the document index behaves until all is healed. Probabilities are per answer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IndexManners {
    /// An answer takes up to this.
    pub delay_max: Duration,
    /// Has nothing, whatever it has.
    pub empty: f64,
    /// Does not look at the reject list.
    pub deaf: f64,
    /// Gives more than was asked for.
    pub surplus: f64,
    /// Offers again what is pending.
    pub repeats: f64,
    /// Per document: comes to the index later.
    pub late: f64,
    /// Per candidate: names the address to use.
    pub given_ip: f64,
    /// Per candidate: must wait a while.
    pub wait: f64,
}

impl Default for IndexManners {
    fn default() -> Self {
        IndexManners {
            delay_max: Duration::from_millis(1),
            empty: 0.0,
            deaf: 0.0,
            surplus: 0.0,
            repeats: 0.0,
            late: 0.0,
            given_ip: 0.0,
            wait: 0.0,
        }
    }
}
