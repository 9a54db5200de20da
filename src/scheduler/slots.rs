//! Host slots and their active cells, and where each slot waits.

use super::gates::{GateOwner, Gates};
use super::lists::{Links, List};
use super::spiders::NOBODY;
use super::table::{Key, RESERVE_MAX};
use crate::ids::{GateId, HostId, LeaseId, SlotId, SpiderId, TransId};
use crate::time::Instant;

/// One of `queue_count` places for a host with work.
pub(super) struct Slot {
    pub(super) host: Option<HostId>,
    pub(super) wait: Wait,
    /// The gate that woke it, until it has decided.
    pub(super) woken_by: Option<GateId>,
    /// Since when it wants to send: whoever has waited longer goes first, at whatever gate.
    pub(super) ticket: u64,
    /// The spider that serves its host, or nobody.
    pub(super) spider: SpiderId,
    /// Since when it may send, while it is in the ready line.
    pub(super) may_go: MayGo,
    free_cell: u32,
}

const _: () = assert!(size_of::<Slot>() <= 48);

/// Since when something may be sent, and whether a gate's clock has let it in: in the lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct MayGo(u64);

impl MayGo {
    pub(super) fn since(since: Instant, by_clock: bool) -> MayGo {
        MayGo(since.as_micros() << 1 | u64::from(by_clock))
    }

    pub(super) fn instant(self) -> Instant {
        Instant::from_micros(self.0 >> 1)
    }

    pub(super) fn by_clock(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Slot {
    /// The gate that it waits for.
    pub(super) fn gate(&self) -> Option<GateId> {
        match self.wait {
            Wait::Gate(gate) => Some(gate),
            Wait::Parked | Wait::Ready | Wait::Fetch => None,
        }
    }
}

/// Where a slot waits: always in exactly one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// For something to send, for an address or for rules: whoever brings it looks at the slot again.
    Parked,
    /// For its turn to be sent.
    Ready,
    /// For its turn to ask for a robots.txt.
    Fetch,
    /// For a gate.
    Gate(GateId),
}

/// How many slots wait for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lines {
    /// May send: for a spider with room.
    pub ready: u64,
    /// May ask for a robots.txt: for others to be answered.
    pub robots: u64,
    /// For their own host: something is in flight, or the gap, the rest or a hold lasts.
    pub host: u64,
    /// For an address.
    pub ip: u64,
    /// For an alias or a group.
    pub group: u64,
}

impl Lines {
    fn at(&mut self, owner: GateOwner) -> &mut u64 {
        match owner {
            GateOwner::Host(_) => &mut self.host,
            GateOwner::Ip(_) => &mut self.ip,
            GateOwner::Group(_) => &mut self.group,
        }
    }
}

/// What an active cell holds: the number of a lease, or, with the highest bit, the next free cell.
#[derive(Clone, Copy)]
struct Cell(u32);

const FREE: u32 = 1 << 31;
const NO_CELL: u32 = FREE - 1;

impl Cell {
    fn free(next: u32) -> Cell {
        Cell(FREE | next)
    }

    fn lease(self) -> Option<LeaseId> {
        (self.0 & FREE == 0).then(|| LeaseId::new(self.0))
    }

    /// The next free cell, for one that is free.
    fn next(self) -> u32 {
        self.0 & !FREE
    }
}

/// All slots. They come into being with the first host that needs them.
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<SlotId>,
    count: u32,
    cells: Vec<Cell>,
    cells_per_slot: u32,
    /// Slots that may send, first come first served.
    pub(super) ready: List,
    /// Slots that may ask for a robots.txt, likewise.
    pub(super) to_fetch: List,
    pub(super) lines: Lines,
    waiting: Links<SlotId>,
    slot_bits: u32,
    cell_bits: u32,
    generation: u64,
    last_ticket: u64,
}

impl Slots {
    pub(super) fn new(count: u32, cells_per_slot: u32, first_generation: u64) -> Slots {
        let room = (count as usize).min(RESERVE_MAX);
        Slots {
            slots: Vec::with_capacity(room),
            free: Vec::new(),
            count,
            cells: Vec::new(),
            cells_per_slot,
            ready: List::default(),
            to_fetch: List::default(),
            lines: Lines::default(),
            waiting: Links::with_room_for(room),
            slot_bits: bits_for(count),
            cell_bits: bits_for(cells_per_slot),
            generation: first_generation,
            last_ticket: 0,
        }
    }

    pub(super) fn free_count(&self) -> usize {
        self.count as usize - self.slots.len() + self.free.len()
    }

    pub(super) fn bound_count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives a free slot to `host`.
    pub(super) fn bind(&mut self, host: HostId) -> Option<SlotId> {
        if let Some(slot) = self.free.pop() {
            self[slot].host = Some(host);
            self.draw_ticket(slot);
            return Some(slot);
        }
        if self.slots.len() == self.count as usize {
            return None;
        }
        let slot = SlotId::from_index(self.slots.len());
        self.slots.push(Slot {
            host: Some(host),
            wait: Wait::Parked,
            woken_by: None,
            ticket: 0,
            spider: NOBODY,
            may_go: MayGo::default(),
            free_cell: 0,
        });
        self.cells.extend((1..self.cells_per_slot).chain([NO_CELL]).map(Cell::free));
        self.draw_ticket(slot);
        Some(slot)
    }

    /// The slot has had its turn, or is new: all that wait now come before it.
    pub(super) fn draw_ticket(&mut self, slot: SlotId) {
        self.last_ticket += 1;
        self[slot].ticket = self.last_ticket;
    }

    /// Takes the slot from its host; it must be parked and have nothing in flight.
    pub(super) fn unbind(&mut self, slot: SlotId) {
        debug_assert_eq!(self[slot].wait, Wait::Parked);
        self[slot].host = None;
        self[slot].spider = NOBODY;
        self.free.push(slot);
    }

    /// Puts `lease` into a cell and names the send.
    pub(super) fn use_cell(&mut self, slot: SlotId, lease: LeaseId) -> TransId {
        let cell = self[slot].free_cell;
        debug_assert_ne!(cell, NO_CELL, "the host's gate allows no more than there are cells");
        let index = self.cell_index(slot, cell);
        let free = std::mem::replace(&mut self.cells[index], Cell(lease.number()));
        self[slot].free_cell = free.next();
        self.generation = self.generation.wrapping_add(1);
        let name = (self.generation << self.cell_bits | u64::from(cell)) << self.slot_bits;
        TransId(name | u64::from(slot.number()))
    }

    /// Frees the cell that `trans` names.
    pub(super) fn free_cell(&mut self, trans: TransId) {
        let (slot, cell) = self.parts(trans);
        let index = self.cell_index(slot, cell);
        self.cells[index] = Cell::free(self[slot].free_cell);
        self[slot].free_cell = cell;
    }

    /// The lease in the cell that `trans` names, which may be another send's.
    pub(super) fn lease_at(&self, trans: TransId) -> Option<LeaseId> {
        let (slot, cell) = self.parts(trans);
        if slot.index() >= self.slots.len() || cell >= self.cells_per_slot {
            return None;
        }
        self.cells[self.cell_index(slot, cell)].lease()
    }

    /// The leases in the cells of `slot`.
    pub(super) fn leases_in(&self, slot: SlotId) -> impl Iterator<Item = LeaseId> + '_ {
        (0..self.cells_per_slot).filter_map(move |cell| self.cells[self.cell_index(slot, cell)].lease())
    }

    fn parts(&self, trans: TransId) -> (SlotId, u32) {
        let slot = trans.0 & ((1 << self.slot_bits) - 1);
        let cell = (trans.0 >> self.slot_bits) & ((1 << self.cell_bits) - 1);
        (SlotId::new(slot as u32), cell as u32)
    }

    fn cell_index(&self, slot: SlotId, cell: u32) -> usize {
        slot.index() * self.cells_per_slot as usize + cell as usize
    }

    /// Moves a parked slot to the end of the ready line.
    pub(super) fn wait_ready(&mut self, slot: SlotId, may_go: MayGo) {
        debug_assert_eq!(self[slot].wait, Wait::Parked);
        self[slot].may_go = may_go;
        self[slot].wait = Wait::Ready;
        self.lines.ready += 1;
        self.waiting.push_back(&mut self.ready, slot);
    }

    /// Moves a parked slot to the end of the line for requests of our own.
    pub(super) fn wait_to_fetch(&mut self, slot: SlotId) {
        debug_assert_eq!(self[slot].wait, Wait::Parked);
        self[slot].wait = Wait::Fetch;
        self.lines.robots += 1;
        self.waiting.push_back(&mut self.to_fetch, slot);
    }

    /// Moves a parked slot into the line at `gate`: to its end, or to its head if it has waited longer
    /// than all there (it was stopped elsewhere when its turn came).
    pub(super) fn wait_at(&mut self, gates: &mut Gates, gate: GateId, slot: SlotId) {
        debug_assert_eq!(self[slot].wait, Wait::Parked);
        self[slot].wait = Wait::Gate(gate);
        *self.lines.at(gates[gate].owner()) += 1;
        let line = &mut gates[gate].waiters;
        if line.front().is_some_and(|first| self[slot].ticket < self[first].ticket) {
            self.waiting.push_front(line, slot);
        } else {
            self.waiting.push_back(line, slot);
        }
    }

    /// Takes a slot from wherever it waits.
    pub(super) fn park(&mut self, gates: &mut Gates, slot: SlotId) {
        match self[slot].wait {
            Wait::Parked => {}
            Wait::Ready => {
                self.lines.ready -= 1;
                self.waiting.remove(&mut self.ready, slot);
            }
            Wait::Fetch => {
                self.lines.robots -= 1;
                self.waiting.remove(&mut self.to_fetch, slot);
            }
            Wait::Gate(gate) => {
                *self.lines.at(gates[gate].owner()) -= 1;
                self.waiting.remove(&mut gates[gate].waiters, slot);
            }
        }
        self[slot].wait = Wait::Parked;
    }

    pub(super) fn line<'a>(&'a self, list: &List) -> impl Iterator<Item = SlotId> + 'a {
        self.waiting.iter(list)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        self.slots.iter().enumerate().map(|(index, slot)| (SlotId::from_index(index), slot))
    }

    pub(super) fn used_cells(&self, slot: SlotId) -> usize {
        self.leases_of(slot).count()
    }

    /// What is in flight from `slot`.
    pub(super) fn leases_of(&self, slot: SlotId) -> impl Iterator<Item = LeaseId> {
        let start = self.cell_index(slot, 0);
        let cells = &self.cells[start..start + self.cells_per_slot as usize];
        cells.iter().filter_map(|cell| cell.lease())
    }
}

/// Bits that hold `0..count`.
fn bits_for(count: u32) -> u32 {
    u32::BITS - count.saturating_sub(1).leading_zeros()
}

impl std::ops::Index<SlotId> for Slots {
    type Output = Slot;

    fn index(&self, slot: SlotId) -> &Slot {
        &self.slots[slot.index()]
    }
}

impl std::ops::IndexMut<SlotId> for Slots {
    fn index_mut(&mut self, slot: SlotId) -> &mut Slot {
        &mut self.slots[slot.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_cell_and_is_never_given_twice() {
        for (count, cells) in [(1, 1), (1, 3), (1000, 1), (1000, 7), (1 << 24, 2)] {
            let mut slots = Slots::new(count, cells, 5);
            let mut seen = std::collections::HashSet::new();
            for round in 0..20 {
                let slot = slots.bind(HostId::new(round)).expect("free");
                let names: Vec<TransId> =
                    (0..cells).map(|cell| slots.use_cell(slot, LeaseId::new(cell))).collect();
                for (cell, &name) in (0..cells).zip(&names) {
                    assert_eq!(slots.parts(name).0, slot);
                    assert_eq!(slots.lease_at(name), Some(LeaseId::new(cell)));
                    assert!(seen.insert(name), "{name:?} given twice");
                }
                names.iter().for_each(|&name| slots.free_cell(name));
                assert!(names.iter().all(|&name| slots.lease_at(name).is_none()));
                slots.unbind(slot);
            }
        }
    }

    #[test]
    fn names_from_outside_are_bounds_checked() {
        let mut slots = Slots::new(1000, 3, 0);
        slots.bind(HostId::new(0));
        for name in [0, 1, 999, 1023, 1024, u64::MAX, 3 << 10, 1 << 63] {
            assert_eq!(slots.lease_at(TransId(name)), None);
        }
    }

    #[test]
    fn there_are_no_more_slots_than_counted() {
        let mut slots = Slots::new(2, 1, 0);
        assert_eq!(slots.free_count(), 2);
        let first = slots.bind(HostId::new(0));
        assert!(first.is_some() && slots.bind(HostId::new(1)).is_some());
        assert_eq!((slots.bind(HostId::new(2)), slots.free_count()), (None, 0));
        slots.unbind(first.expect("bound"));
        assert_eq!(slots.bind(HostId::new(3)), first);
    }
}
