//! What is counted.

use super::Scheduler;
use super::slots::Lines;
use crate::time::Instant;

/// Counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Lines decided on for spiders.
    pub sent: u64,
    /// Documents that ended DONE.
    pub done: u64,
    /// Documents that ended FAILED.
    pub failed: u64,
    /// Documents that ended DENIED.
    pub denied: u64,
    /// Sends that ended without ending their document.
    pub retried: u64,
    /// Sends that nothing was said of in time.
    pub expired: u64,
    /// Statuses for what was not in flight on their connection.
    pub stale_status: u64,
    /// Candidates whose document was pending already.
    pub duplicates: u64,
    /// Questions put to the index.
    pub index_requests: u64,
    /// Questions put to name servers.
    pub lookups: u64,
    /// Those of them that got no answer.
    pub lookups_unanswered: u64,
    /// Times that an address was marked down.
    pub addresses_down: u64,
    /// Requests for a robots.txt.
    pub robots_fetches: u64,
    /// Those of them that left it open what is allowed.
    pub robots_failures: u64,
    /// Holds after 429 or 503.
    pub holds: u64,
    /// Hosts reserved by workers.
    pub reservations: u64,
    /// Hosts handed over to other servers that share the index.
    pub handed_over: u64,
}

/// How things stand now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// URLs in slots that are not in flight.
    pub queued: u64,
    /// URLs beyond the slots.
    pub leftover: u64,
    /// URLs sent, and neither ended nor taken back.
    pub in_flight: u64,
    /// Slots there are.
    pub slots: u64,
    /// Slots that have a host.
    pub slots_bound: u64,
    /// Spiders connected.
    pub spiders: u64,
    /// Hosts known.
    pub hosts: u64,
    /// Addresses known.
    pub addresses: u64,
    /// How many slots wait for what.
    pub waiting: Lines,
    /// Hosts with work that have given up their slot because they cannot send for a while.
    pub benched: u64,
    /// Hosts with work that an operator has stopped.
    pub stopped: u64,
    /// An operator has stopped everything.
    pub paused: bool,
    /// Documents that wait for their time: for a retry, or because the index said so.
    pub waiting_documents: u64,
    /// Hosts whose address is being asked for.
    pub unresolved: u64,
    /// Origins whose robots.txt is asked for, or will be again after a failure.
    pub robots_waiting: u64,
    /// Requests for a robots.txt under way.
    pub robots_in_flight: u64,
    /// When something may change by itself.
    pub next_timer: Option<Instant>,
    /// Counted since the start.
    pub counters: Counters,
}

impl Scheduler {
    /// How things stand now.
    pub fn stats(&self) -> Stats {
        Stats {
            queued: self.in_slots - self.in_flight,
            leftover: self.pending - self.in_slots,
            in_flight: self.in_flight,
            slots: u64::from(self.config.queue_count),
            slots_bound: self.slots.bound_count() as u64,
            spiders: self.spiders.len() as u64,
            hosts: self.hosts.table.len() as u64,
            addresses: self.ips.table.len() as u64,
            waiting: self.slots.lines,
            benched: self.benched as u64,
            stopped: self.stopped_hosts as u64,
            paused: self.orders.all_paused,
            waiting_documents: self.leases.waits.len() as u64,
            unresolved: self.unresolved,
            robots_waiting: self.origins.asking,
            robots_in_flight: self.origins.fetches.len() as u64,
            next_timer: self.deadline(),
            counters: self.counters,
        }
    }
}
