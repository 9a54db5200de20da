//! The IP-to-host map: addresses, the hosts on each, and what is pending for them.

use super::lists::List;
use super::table::Table;
use crate::hostdb::health::Health;
use crate::ids::{GateId, IpId};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::net::IpAddr;

/// On one line of the caches.
#[repr(align(64))]
pub(super) struct Ip {
    pub(super) address: IpAddr,
    pub(super) gate: GateId,
    /// Hosts that use it now.
    pub(super) hosts: List,
    pub(super) host_count: u32,
    /// Documents of those hosts that have not ended.
    pub(super) pending: u32,
    /// Records that name it.
    pub(super) records: u32,
    pub(super) health: Health,
    pub(super) probe: Probe,
    /// The port that was last tried in vain.
    pub(super) port: u16,
    /// On the list of addresses with too much pending.
    pub(super) crowded: bool,
    /// On the list of addresses that are not up.
    pub(super) unwell: bool,
}

const _: () = assert!(size_of::<Ip>() == 64);

/// Where a connection of our own to a suspect address stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Probe {
    /// None is wanted.
    No,
    /// To be made.
    Queued,
    /// Being made; exactly one answer will come.
    Asked,
}

/// All addresses, found by id or by address.
#[derive(Default)]
pub(super) struct Ips {
    pub(super) table: Table<IpId, Ip>,
    by_address: HashTable<IpId>,
    hasher: DefaultHashBuilder,
}

impl Ips {
    pub(super) fn find(&self, address: IpAddr) -> Option<IpId> {
        let hash = self.hasher.hash_one(address);
        self.by_address.find(hash, |&id| self.table[id].address == address).copied()
    }

    /// Adds an address that must not be there yet.
    pub(super) fn add(&mut self, address: IpAddr, gate: GateId) -> IpId {
        let id = self.table.insert(Ip {
            address,
            gate,
            hosts: List::default(),
            host_count: 0,
            pending: 0,
            records: 0,
            health: Health::default(),
            probe: Probe::No,
            port: 80,
            crowded: false,
            unwell: false,
        });
        let Ips { table, by_address, hasher } = self;
        by_address.insert_unique(hasher.hash_one(address), id, |&id| hasher.hash_one(table[id].address));
        id
    }

    pub(super) fn forget(&mut self, id: IpId) -> Ip {
        let ip = self.table.remove(id);
        let hash = self.hasher.hash_one(ip.address);
        if let Ok(entry) = self.by_address.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        ip
    }
}

impl std::ops::Index<IpId> for Ips {
    type Output = Ip;

    fn index(&self, id: IpId) -> &Ip {
        &self.table[id]
    }
}

impl std::ops::IndexMut<IpId> for Ips {
    fn index_mut(&mut self, id: IpId) -> &mut Ip {
        &mut self.table[id]
    }
}
