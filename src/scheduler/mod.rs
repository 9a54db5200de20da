//! The scheduler: one value that owns everything that decides.
//!
//! There is no clock, no socket, no task and no lock in here. Things that happened come in through
//! `handle_*`, each with the time; decisions go out through `poll_*`; [`Scheduler::deadline`] says when to
//! come back at the latest. The server drives it with a real clock, the simulator with a virtual one.
//!
//! A document's way: `admit` puts it into its host's queue, `names` finds the host's address,
//! `permission` asks for its robots.txt and judges it, `send` passes it through the gates to a spider, `status`
//! hears of it, `ends` reports it. `demand` asks the index for more, and `look` lets people see how things stand.
//! What must always hold is written down, and run, in `check`.
//!
//! Costs: every operation is O(1), or O(log n) in the timers that are set. Only the number of spiders is
//! walked, and what is answered to a question for a list (the reject list) or lost with a spider.

mod addresses;
mod admit;
mod check;
mod claims;
mod clocks;
mod demand;
mod ends;
mod gates;
mod groups;
mod health;
mod hosts;
mod leases;
mod lists;
pub mod look;
mod names;
mod opinion;
mod orders;
mod origins;
mod permission;
mod places;
mod quiet;
mod reservations;
mod send;
mod slots;
mod spiders;
mod stats;
mod status;
mod table;
mod telling;
mod timers;
mod timings;

pub use admit::Admission;
pub use clocks::{CLOCK_MIN, ClockKey, Note};
pub use demand::Request;
pub use gates::{Closed, GateOwner, Pace, Trial, Why};
pub use groups::{GroupRule, IpRange};
pub use health::Trying;
pub use names::Lookup;
pub use opinion::Opinion;
pub use orders::{ORDERS_MAX, Order, Standing, TooManyOrders};
pub use permission::RobotsFetch;
pub use reservations::{ReleaseError, Reserved, ReservedUrl, Token};
pub use send::{APPROACHED, Work};
pub use slots::Lines;
pub use stats::{Counters, Stats};
pub use timings::{Histogram, Timings};

use crate::document::Report;
use crate::hostdb::health::HealthRule;
use crate::hostdb::records::TtlRule;
use crate::ids::{DocId, GateId, HostId, IpId};
use crate::time::{Duration, Instant, micros_rounded_up, scaled_micros};
use crate::url_queue::UrlStore;
use addresses::Ips;
use claims::Claims;
use clocks::Clocks;
use demand::Demand;
use gates::{GateOwner as Owner, Gates};
use groups::Groups;
use hashbrown::HashSet;
use hosts::Hosts;
use leases::Leases;
use lists::{Links, List};
use orders::Orders;
use origins::Origins;
use reservations::Reservations;
use slots::Slots;
use spiders::Spiders;
use std::collections::VecDeque;
use std::net::IpAddr;
use timers::Timers;

/// The rules a scheduler keeps, fixed for its life.
#[derive(Clone, Debug)]
pub struct Config {
    /// Host slots, at least one.
    pub queue_count: u32,
    /// URLs a slot holds, the active ones included; at least `host.concurrent`.
    pub queue_len: u32,
    /// For each host.
    pub host: Pace,
    /// For each address, over all hosts on it.
    pub ip: Pace,
    /// Pending URLs on one address beyond which its hosts are rejected; 0 is off.
    pub ip_max_urls: u32,
    /// The rest after a fetch.
    pub rest: Rest,
    /// Longest silence about a send.
    pub status_timeout: Duration,
    /// Longest life of a send, whatever is said about it.
    pub lease_max: Option<Duration>,
    /// Sends of one document before it is given up; 0 is never.
    pub max_attempts: u32,
    /// Least wait before the second send; doubles with each.
    pub retry_delay: Duration,
    /// Most sends in flight with one spider.
    pub spider_window: Option<u32>,
    /// Use addresses that are not public.
    pub allow_private: bool,
    /// Whether robots.txt is obeyed, where no group says otherwise.
    pub robots: bool,
    /// Origins that ask for a longer Crawl-delay are not crawled.
    pub crawl_delay_max: Option<Duration>,
    /// Families of addresses that are used.
    pub families: Families,
    /// How long answers to look-ups are believed.
    pub ttl: TtlRule,
    /// When an address is down.
    pub health: HealthRule,
    /// How it is tried then.
    pub trial: Trial,
    /// Aliases: their hosts behave as one. A host is in one at most.
    pub aliases: Vec<GroupRule>,
    /// Groups, in order of precedence.
    pub groups: Vec<GroupRule>,
    /// The index never offers a document that is pending, so that pending ids need not be remembered.
    pub index_is_exact: bool,
    /// The index is shared: nothing goes without a claim.
    pub claims: bool,
    /// Where jitter comes from, and the first TRANS_ID.
    pub seed: u64,
}

impl Default for Config {
    /// The defaults of the settings, but that nobody asks for a robots.txt.
    fn default() -> Self {
        let pace = Pace { concurrent: 1, gap: Duration::from_secs(1) };
        Config {
            queue_count: 1000,
            queue_len: 100,
            host: pace,
            ip: pace,
            ip_max_urls: 100,
            rest: Rest { factor: 1.0, min: Duration::ZERO, max: Duration::from_secs(30) },
            status_timeout: Duration::from_secs(60),
            lease_max: Some(Duration::from_secs(1200)),
            max_attempts: 3,
            retry_delay: Duration::from_secs(5),
            spider_window: None,
            allow_private: false,
            families: Families { v4: true, v6: true },
            robots: false,
            crawl_delay_max: None,
            ttl: TtlRule {
                min: Duration::from_secs(1),
                max: Duration::from_secs(86_400),
                negative: Duration::from_secs(60),
                serve_stale: Duration::from_secs(3600),
            },
            health: HealthRule { fail_threshold: 3, fail_window: Duration::from_secs(60) },
            trial: Trial::OneUrl,
            aliases: Vec::new(),
            groups: Vec::new(),
            index_is_exact: false,
            claims: false,
            seed: 0,
        }
    }
}

/// Which addresses are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Families {
    fn have(self, ip: IpAddr) -> bool {
        if ip.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// How long to rest after a fetch: a multiple of the time it took, within bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rest {
    /// Multiple of the time it took.
    pub factor: f64,
    /// At least this.
    pub min: Duration,
    /// At most this.
    pub max: Duration,
}

impl Rest {
    /// In microseconds, like what it took.
    fn after(&self, took: u64) -> u64 {
        scaled_micros(took, self.factor).min(micros_rounded_up(self.max)).max(micros_rounded_up(self.min))
    }

    /// After a fetch of which nothing is known.
    fn longest(&self) -> Duration {
        if self.factor > 0.0 { self.max.max(self.min) } else { self.min }
    }
}

/// Decides which URL may be fetched now.
pub struct Scheduler {
    config: Config,
    rng: fastrand::Rng,
    counters: Counters,
    timings: Timings,

    hosts: Hosts,
    /// Family of `leftover` and `idle`.
    place_links: Links<HostId>,
    leftover: List,
    leftover_hosts: usize,
    idle: List,
    idle_hosts: usize,
    benched: usize,
    orders: Orders,
    clocks: Clocks,
    /// Hosts with work that an operator has stopped.
    stopped_hosts: usize,
    /// Hosts with a question that is not answered.
    unresolved: u64,
    /// When a name server last answered anything.
    last_answer: Instant,
    /// Family of `ask_first`, `ask_later` and `draining`.
    errand_links: Links<HostId>,
    ask_first: List,
    ask_later: List,
    draining: List,
    /// Hosts whose slot is full.
    full_links: Links<HostId>,
    full: List,
    /// When to ask for an address again, or when a benched host comes back.
    host_timers: Timers<HostId>,
    /// URLs that are in slots, the active ones included.
    in_slots: u64,
    pending: u64,
    in_flight: u64,

    ips: Ips,
    /// Hosts by address.
    ip_links: Links<HostId>,
    crowd_links: Links<IpId>,
    crowded: List,
    unwell_links: Links<IpId>,
    unwell: List,
    idle_ip_links: Links<IpId>,
    idle_ips: List,
    /// Addresses to be tried.
    probes: VecDeque<IpId>,

    gates: Gates,
    claims: Claims,
    aliases: Groups,
    alias_gates: Vec<GateId>,
    groups: Groups,
    group_gates: Vec<GateId>,

    slots: Slots,
    /// Slots at the head of the ready line whose next URL was looked at.
    approached: u32,
    leases: Leases,
    reservations: Reservations,
    origins: Origins,
    spiders: Spiders,
    store: UrlStore,
    /// Documents that have not ended, unless the index keeps track.
    pending_docs: Option<HashSet<DocId>>,
    reports: VecDeque<Report>,
    demand: Demand,
}

impl Scheduler {
    /// An empty scheduler.
    pub fn new(config: Config) -> Scheduler {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        // Not counted from zero, so that a TRANS_ID of an earlier life is not taken for one of this life.
        let first_generation = rng.u64(1 << 20..1 << 28);
        let mut gates = Gates::default();
        let alias_gates = group_gates(&mut gates, &config.aliases, 0);
        let group_gates = group_gates(&mut gates, &config.groups, config.aliases.len());
        let (mut hosts, mut ips, slots) = (Hosts::default(), Ips::default(), config.queue_count as usize);
        hosts.table.reserve(slots);
        ips.table.reserve(slots);
        // Each host has one, and its address.
        gates.table.reserve(slots.saturating_mul(2));
        let many = || Links::with_room_for(slots);
        Scheduler {
            rng,
            counters: Counters::default(),
            timings: Timings::default(),
            hosts,
            place_links: many(),
            leftover: List::default(),
            leftover_hosts: 0,
            idle: List::default(),
            idle_hosts: 0,
            benched: 0,
            orders: Orders::default(),
            clocks: Clocks::default(),
            stopped_hosts: 0,
            unresolved: 0,
            last_answer: Instant::ZERO,
            errand_links: many(),
            ask_first: List::default(),
            ask_later: List::default(),
            draining: List::default(),
            full_links: Links::default(),
            full: List::default(),
            host_timers: Timers::default(),
            in_slots: 0,
            pending: 0,
            in_flight: 0,
            ips,
            ip_links: many(),
            crowd_links: Links::default(),
            crowded: List::default(),
            unwell_links: Links::default(),
            unwell: List::default(),
            idle_ip_links: Links::default(),
            idle_ips: List::default(),
            probes: VecDeque::new(),
            gates,
            claims: Claims::new(config.claims),
            aliases: Groups::new(&config.aliases),
            alias_gates,
            groups: Groups::new(&config.groups),
            group_gates,
            slots: Slots::new(config.queue_count, config.host.concurrent, first_generation),
            approached: 0,
            leases: Leases::default(),
            reservations: Reservations::default(),
            origins: Origins::default(),
            spiders: Spiders::new(config.spider_window),
            store: UrlStore::default(),
            pending_docs: (!config.index_is_exact).then(HashSet::default),
            reports: VecDeque::new(),
            demand: Demand::default(),
            config,
        }
    }

    /// When [`Scheduler::handle_timeout`] must be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let timers = [self.gates.first_timer(), self.leases.waits.first(), self.host_timers.first()];
        let timers =
            timers.into_iter().chain([self.reservations.timers.first(), self.origins.timers.first()]);
        let demand = self.wants_candidates().then_some(self.demand.not_before()).flatten();
        [self.lease_deadline(), demand].into_iter().chain(timers).flatten().min()
    }

    /// When the next send is taken back, unless a spider says something of it first.
    pub fn lease_deadline(&self) -> Option<Instant> {
        let silent = self.leases.most_silent().map(|(_, since)| since + self.silence_max());
        silent.into_iter().chain(self.leases.lives.first()).min()
    }

    /// Time has passed. Everything that was received by `now` must have been handled before: a status
    /// that came in time counts, however late its clock is looked at.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire_leases(now);
        self.expire_reservations(now);
        while let Some(lease) = self.leases.waits.pop_due(now) {
            self.end_wait(now, lease);
        }
        while let Some(host) = self.host_timers.pop_due(now) {
            self.handle_host_timer(now, host);
        }
        while let Some(host) = self.origins.timers.pop_due(now) {
            self.handle_origin_timer(now, host);
        }
        while let Some((gate, opened)) = self.gates.pop_due(now) {
            self.settle_opened(now, gate, Some(opened));
        }
        self.sweep(now);
    }

    /// Nothing queued, nothing in flight, nothing left to report.
    pub fn is_drained(&self) -> bool {
        self.pending == 0 && self.reports.is_empty()
    }
}

fn group_gates(gates: &mut Gates, rules: &[GroupRule], first: usize) -> Vec<GateId> {
    let numbers = first as u32..;
    numbers.zip(rules).map(|(number, rule)| gates.add(Owner::Group(number), rule.pace)).collect()
}
