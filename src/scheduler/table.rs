//! Dense tables that are indexed by their own id type.

use crate::ids::{GateId, HostId, IpId, LeaseId, ReservationId, SlotId};
use slab::Slab;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Most values that room is made for before they come. Whatever is beyond that is moved page by page, not copied.
pub(super) const RESERVE_MAX: usize = 1 << 20;

/// An id that counts from zero.
pub(super) trait Key: Copy {
    fn from_index(index: usize) -> Self;
    fn index(self) -> usize;
}

macro_rules! key {
    ($($id:ident)*) => {$(
        impl Key for $id {
            fn from_index(index: usize) -> Self {
                $id::new(index as u32)
            }
            fn index(self) -> usize {
                self.number() as usize
            }
        }
    )*};
}
key!(GateId HostId IpId LeaseId ReservationId SlotId);

/// Values with stable ids; an id is used again after its value was removed.
pub(super) struct Table<K, T> {
    slab: Slab<T>,
    key: PhantomData<K>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Table { slab: Slab::new(), key: PhantomData }
    }
}

impl<K: Key, T> Table<K, T> {
    /// Has room for some, so that growing neither copies nor leaves holes. What is not used of it is not taken from
    /// the system.
    pub(super) fn reserve(&mut self, count: usize) {
        self.slab.reserve(count.min(RESERVE_MAX));
    }

    pub(super) fn insert(&mut self, value: T) -> K {
        K::from_index(self.slab.insert(value))
    }

    pub(super) fn remove(&mut self, id: K) -> T {
        self.slab.remove(id.index())
    }

    pub(super) fn get(&self, id: K) -> Option<&T> {
        self.slab.get(id.index())
    }

    /// One beyond the last id there can be.
    pub(super) fn end(&self) -> usize {
        self.slab.capacity()
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.slab.iter().map(|(index, value)| (K::from_index(index), value))
    }
}

impl<K: Key, T> Index<K> for Table<K, T> {
    type Output = T;

    fn index(&self, id: K) -> &T {
        &self.slab[id.index()]
    }
}

impl<K: Key, T> IndexMut<K> for Table<K, T> {
    fn index_mut(&mut self, id: K) -> &mut T {
        &mut self.slab[id.index()]
    }
}
