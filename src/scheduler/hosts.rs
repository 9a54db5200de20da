//! Hosts: who they are, what waits for them, where they stand.

use super::lists::List;
use super::table::Table;
use crate::hostdb::records::Record;
use crate::ids::{GateId, HostId, IpId, SlotId};
use crate::names::{Name, Names};
use crate::time::Instant;
use crate::url_queue::UrlQueue;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// A host that has, or had a moment ago, something to do with us. What every send looks at comes first, on one line of
/// the caches.
#[repr(C, align(64))]
pub(super) struct Host {
    /// Documents that were never sent, in order of arrival: the slot's queue and, behind it, the leftover.
    pub(super) urls: UrlQueue,
    /// Leases that go before them: sent once, and taken back.
    pub(super) front: List,
    pub(super) place: Place,
    /// Documents that have left `urls` and have not ended.
    pub(super) leases: u32,
    pub(super) in_flight: u32,
    pub(super) gate: GateId,
    pub(super) alias: Option<GateId>,
    pub(super) group: Option<GateId>,
    /// The address in use.
    pub(super) ip: Option<IpId>,
    pub(super) question: Question,
    pub(super) draining: bool,
    /// There is a robots.txt to be asked for through its gates.
    pub(super) errand: bool,
    /// On the list of hosts whose slot is full.
    pub(super) full: bool,
    /// A worker has it to itself.
    pub(super) reserved: bool,
    /// An operator has stopped it, and may have to be asked whether that is over.
    pub(super) stopped: bool,
    /// Questions in a row without an answer.
    pub(super) unanswered: u8,
    pub(super) record: Record,
    name: Name,
    /// When the wait ends that began last, of those documents that wait for their time.
    pub(super) last_wait: Instant,
    /// When the first of the questions failed that are not answered.
    pub(super) asked_first: Instant,
}

const _: () = assert!(size_of::<Host>() == 128 && std::mem::offset_of!(Host, record) == 64);

/// Where a host stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Nothing to do; kept for its clocks and its address.
    Idle,
    /// Waits for a slot.
    Leftover,
    /// Cannot send for a while, and lets others have the slot.
    Benched,
    /// An operator lets nothing be sent to it.
    Stopped,
    /// Has a slot.
    Slot(SlotId),
}

/// Where the question for a host's address stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// Not asked.
    No,
    /// To be asked soon; `urgent` if a slot waits for it.
    Queued { urgent: bool },
    /// Asked; exactly one answer will come.
    Asked,
    /// Asked in vain; the host's timer asks again.
    BackOff,
}

impl Host {
    /// Documents that have not ended.
    pub(super) fn pending(&self) -> usize {
        self.urls.len() + self.leases as usize
    }

    pub(super) fn has_sendable(&self) -> bool {
        !self.urls.is_empty() || !self.front.is_empty()
    }

    /// There is something for which it needs a slot.
    pub(super) fn has_work(&self) -> bool {
        self.pending() > 0 || self.errand
    }

    /// There is something that could pass its gates.
    pub(super) fn wants_to_go(&self) -> bool {
        self.has_sendable() || self.errand
    }

    pub(super) fn slot(&self) -> Option<SlotId> {
        match self.place {
            Place::Slot(slot) => Some(slot),
            Place::Idle | Place::Leftover | Place::Benched | Place::Stopped => None,
        }
    }
}

/// All hosts, found by id or by name.
#[derive(Default)]
pub(super) struct Hosts {
    pub(super) table: Table<HostId, Host>,
    names: Names,
    by_name: HashTable<HostId>,
    hasher: DefaultHashBuilder,
}

impl Hosts {
    pub(super) fn find(&self, name: &str) -> Option<HostId> {
        let hash = self.hasher.hash_one(name);
        self.by_name.find(hash, |&id| self.name(id) == name).copied()
    }

    pub(super) fn name(&self, id: HostId) -> &str {
        self.names.get(self.table[id].name)
    }

    /// Adds a host that must not be there yet.
    pub(super) fn add(&mut self, name: &str, gate: GateId, alias: Option<GateId>) -> HostId {
        let id = self.table.insert(Host {
            name: self.names.add(name),
            urls: UrlQueue::default(),
            front: List::default(),
            leases: 0,
            in_flight: 0,
            last_wait: Instant::ZERO,
            place: Place::Idle,
            gate,
            alias,
            group: None,
            ip: None,
            record: Record::Unknown,
            question: Question::No,
            unanswered: 0,
            asked_first: Instant::ZERO,
            draining: false,
            errand: false,
            full: false,
            reserved: false,
            stopped: false,
        });
        let hash = self.hasher.hash_one(name);
        let Hosts { table, names, by_name, hasher } = self;
        by_name.insert_unique(hash, id, |&id| hasher.hash_one(names.get(table[id].name)));
        id
    }

    pub(super) fn forget(&mut self, id: HostId) -> Host {
        let hash = self.hasher.hash_one(self.name(id));
        let host = self.table.remove(id);
        self.names.remove(host.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        host
    }
}

impl std::ops::Index<HostId> for Hosts {
    type Output = Host;

    fn index(&self, id: HostId) -> &Host {
        &self.table[id]
    }
}

impl std::ops::IndexMut<HostId> for Hosts {
    fn index_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.table[id]
    }
}
