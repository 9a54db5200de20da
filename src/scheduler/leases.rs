//! Leases: documents that have left their host's queue, in flight or waiting to be sent again.

use super::lists::{Links, List};
use super::origins::Permit;
use super::slots::MayGo;
use super::table::Table;
use super::timers::Timers;
use crate::ids::{GateId, HostId, IpId, LeaseId, SpiderId, TransId};
use crate::time::{Duration, Instant};
use crate::url_queue::QueuedUrl;

pub(super) struct Lease {
    pub(super) url: QueuedUrl,
    pub(super) host: HostId,
    /// Sends so far.
    pub(super) attempts: u32,
    /// Those of them that ended with the loss of the spider.
    pub(super) lost: u32,
    pub(super) state: LeaseState,
    pub(super) permit: Permit,
}

/// Where a lease stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeaseState {
    /// Not before its time, which its timer knows.
    Waiting,
    /// At the head of its host.
    Front,
    /// Part of a reservation.
    Reserved,
    /// Decided on; its line is not written yet.
    Unwritten(Flight),
    /// With the spider.
    Written {
        flight: Flight,
        /// When its line was written.
        at: Instant,
        /// When the spider last said something of it.
        status: Instant,
    },
}

/// One send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) trans: TransId,
    pub(super) spider: SpiderId,
    pub(super) ip: IpId,
    /// The gates it has passed, and is counted at until it ends.
    pub(super) gates: GateSet,
    pub(super) may_go: MayGo,
}

/// The gates that apply to one send: host, address, alias, group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GateSet {
    pub(super) host: GateId,
    pub(super) ip: GateId,
    pub(super) alias: Option<GateId>,
    pub(super) group: Option<GateId>,
}

impl GateSet {
    /// Those that apply. The most shared come last, so that a slot waits there only if nothing of its
    /// own stops it.
    pub(super) fn iter(self) -> impl Iterator<Item = GateId> {
        [Some(self.host), self.alias, self.group, Some(self.ip)].into_iter().flatten()
    }

    pub(super) fn contains(self, gate: GateId) -> bool {
        self.iter().any(|other| other == gate)
    }

    /// Where a refusal by the web server is felt: the alias or group if there is one, else the host.
    pub(super) fn holder(self) -> GateId {
        self.alias.or(self.group).unwrap_or(self.host)
    }
}

impl Lease {
    pub(super) fn flight(&self) -> Option<&Flight> {
        match &self.state {
            LeaseState::Unwritten(flight) | LeaseState::Written { flight, .. } => Some(flight),
            LeaseState::Waiting | LeaseState::Front | LeaseState::Reserved => None,
        }
    }
}

/// All leases. Every one in flight has the same timeout, so the list in the order of the last status *is* the timer
/// queue. The longest life is longer than that, and matters to those only of which something was said: they have a timer.
#[derive(Default)]
pub(super) struct Leases {
    pub(super) table: Table<LeaseId, Lease>,
    /// A host's front, or a spider's sends in order.
    pub(super) links: Links<LeaseId>,
    pub(super) status_links: Links<LeaseId>,
    pub(super) by_status: List,
    /// Ends of the longest life of those that somebody is still at.
    pub(super) lives: Timers<LeaseId>,
    /// Ends of waits.
    pub(super) waits: Timers<LeaseId>,
    /// Buffers to be used again.
    spare: Vec<QueuedUrl>,
}

/// Buffers kept for the next lease.
const SPARE_MAX: usize = 16 * 1024;
/// Bytes of one: the few that are longer are not kept.
const SPARE_ROOM_MAX: usize = 512;

impl Leases {
    /// An empty buffer for a URL.
    pub(super) fn buffer(&mut self) -> QueuedUrl {
        self.spare.pop().unwrap_or_default()
    }

    /// Looks at the buffers that are used next, so that they are near then.
    pub(super) fn approach_buffers(&self, count: usize) -> u8 {
        let next = self.spare.iter().rev().take(count);
        next.fold(0, |seen, url| seen ^ url.look())
    }

    /// Adds a lease of a document that was never sent.
    pub(super) fn add(&mut self, host: HostId, url: QueuedUrl) -> LeaseId {
        self.table.insert(Lease {
            url,
            host,
            attempts: 0,
            lost: 0,
            state: LeaseState::Front,
            permit: Permit::default(),
        })
    }

    /// Ends a lease that is in no list.
    pub(super) fn forget(&mut self, id: LeaseId) {
        let lease = self.table.remove(id);
        if self.spare.len() < SPARE_MAX && lease.url.room() <= SPARE_ROOM_MAX {
            self.spare.push(lease.url);
        }
    }

    /// The line is written: its clocks start.
    pub(super) fn start_clocks(&mut self, now: Instant, id: LeaseId, flight: Flight) {
        self.table[id].state = LeaseState::Written { flight, at: now, status: now };
        self.status_links.push_back(&mut self.by_status, id);
    }

    /// The spider is at it: its status clock starts again. It lives no longer than `max`.
    pub(super) fn restart_status_clock(&mut self, now: Instant, id: LeaseId, max: Option<Duration>) {
        if let LeaseState::Written { status, at, .. } = &mut self.table[id].state {
            *status = now;
            if let Some(max) = max {
                self.lives.set(id, *at + max);
            }
            self.status_links.remove(&mut self.by_status, id);
            self.status_links.push_back(&mut self.by_status, id);
        }
    }

    pub(super) fn stop_clocks(&mut self, id: LeaseId) {
        self.status_links.remove(&mut self.by_status, id);
        self.lives.cancel(id);
    }

    /// The lease that has been without a status longest, and since when.
    pub(super) fn most_silent(&self) -> Option<(LeaseId, Instant)> {
        let id = self.by_status.front()?;
        match self.table[id].state {
            LeaseState::Written { status, .. } => Some((id, status)),
            LeaseState::Waiting | LeaseState::Front | LeaseState::Reserved | LeaseState::Unwritten(_) => None,
        }
    }
}

impl std::ops::Index<LeaseId> for Leases {
    type Output = Lease;

    fn index(&self, id: LeaseId) -> &Lease {
        &self.table[id]
    }
}

impl std::ops::IndexMut<LeaseId> for Leases {
    fn index_mut(&mut self, id: LeaseId) -> &mut Lease {
        &mut self.table[id]
    }
}
