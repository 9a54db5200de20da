//! The IP-to-host map: addresses, the hosts on each, and what is pending for them.

use super::lists::List;
use super::table::Table;
use crate::hostdb::health::Health;
use crate::ids::{GateId, IpId};
use hashbrown::HashMap;
use std::net::IpAddr;

pub(super) struct Ip {
    pub(super) address: IpAddr,
    pub(super) gate: GateId,
    /// Hosts that use it now.
    pub(super) hosts: List,
    /// Documents of those hosts that have not ended.
    pub(super) pending: u64,
    /// Records that name it.
    pub(super) records: u32,
    pub(super) health: Health,
    /// On the list of addresses with too much pending.
    pub(super) crowded: bool,
    /// On the list of addresses that are not up.
    pub(super) unwell: bool,
}

/// All addresses, found by id or by address.
#[derive(Default)]
pub(super) struct Ips {
    pub(super) table: Table<IpId, Ip>,
    by_address: HashMap<IpAddr, IpId>,
}

impl Ips {
    pub(super) fn find(&self, address: IpAddr) -> Option<IpId> {
        self.by_address.get(&address).copied()
    }

    /// Adds an address that must not be there yet.
    pub(super) fn add(&mut self, address: IpAddr, gate: GateId) -> IpId {
        let id = self.table.insert(Ip {
            address,
            gate,
            hosts: List::default(),
            pending: 0,
            records: 0,
            health: Health::default(),
            crowded: false,
            unwell: false,
        });
        self.by_address.insert(address, id);
        id
    }

    pub(super) fn forget(&mut self, id: IpId) -> Ip {
        let ip = self.table.remove(id);
        self.by_address.remove(&ip.address);
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
