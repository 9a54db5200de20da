//! Chains of ids with O(1) insertion and removal anywhere, without an allocation per entry.
//!
//! A [`Links`] is a family: an id is in at most one [`List`] of a family at a time, so that "waits in
//! exactly one place" is not a promise but the shape of the data.

use super::table::{Key, RESERVE_MAX};
use std::marker::PhantomData;

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    prev: u32,
    next: u32,
}

/// The links of one family of lists.
pub(super) struct Links<K> {
    nodes: Vec<Node>,
    key: PhantomData<K>,
}

/// One list of a family: its two ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        List { head: NIL, tail: NIL }
    }
}

impl List {
    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    pub(super) fn front<K: Key>(&self) -> Option<K> {
        key(self.head)
    }

    pub(super) fn back<K: Key>(&self) -> Option<K> {
        key(self.tail)
    }
}

impl<K> Default for Links<K> {
    fn default() -> Self {
        Links { nodes: Vec::new(), key: PhantomData }
    }
}

impl<K: Key> Links<K> {
    /// For about so many ids; what is not used of that is not taken from the system.
    pub(super) fn with_room_for(count: usize) -> Links<K> {
        Links { nodes: Vec::with_capacity(count.min(RESERVE_MAX)), key: PhantomData }
    }

    pub(super) fn push_back(&mut self, list: &mut List, id: K) {
        let id = self.node(id);
        self.nodes[id as usize] = Node { prev: list.tail, next: NIL };
        match list.tail {
            NIL => list.head = id,
            tail => self.nodes[tail as usize].next = id,
        }
        list.tail = id;
    }

    pub(super) fn push_front(&mut self, list: &mut List, id: K) {
        let id = self.node(id);
        self.nodes[id as usize] = Node { prev: NIL, next: list.head };
        match list.head {
            NIL => list.tail = id,
            head => self.nodes[head as usize].prev = id,
        }
        list.head = id;
    }

    /// Takes `id` out of `list`, in which it must be.
    pub(super) fn remove(&mut self, list: &mut List, id: K) {
        let Node { prev, next } = self.nodes[id.index()];
        match prev {
            NIL => list.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
    }

    pub(super) fn pop_front(&mut self, list: &mut List) -> Option<K> {
        let id = list.front()?;
        self.remove(list, id);
        Some(id)
    }

    pub(super) fn next(&self, id: K) -> Option<K> {
        key(self.nodes[id.index()].next)
    }

    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = K> + '_ {
        std::iter::successors(list.front(), |&id| self.next(id))
    }

    fn node(&mut self, id: K) -> u32 {
        if id.index() >= self.nodes.len() {
            self.nodes.resize(id.index() + 1, Node { prev: NIL, next: NIL });
        }
        id.index() as u32
    }
}

fn key<K: Key>(id: u32) -> Option<K> {
    (id != NIL).then(|| K::from_index(id as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SlotId;
    use std::collections::VecDeque;

    #[test]
    fn behaves_like_a_deque_under_random_operations() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut links = Links::<SlotId>::default();
        let mut lists = [List::default(); 3];
        let mut model: [VecDeque<u32>; 3] = Default::default();
        for _ in 0..20_000 {
            let (l, id) = (rng.usize(..3), rng.u32(..40));
            match model.iter().position(|m| m.contains(&id)) {
                Some(home) if rng.bool() => {
                    links.remove(&mut lists[home], SlotId::new(id));
                    model[home].retain(|&x| x != id);
                }
                Some(home) => {
                    assert_eq!(
                        links.pop_front(&mut lists[home]).map(|s| s.number()),
                        model[home].pop_front()
                    );
                }
                None if rng.bool() => {
                    links.push_back(&mut lists[l], SlotId::new(id));
                    model[l].push_back(id);
                }
                None => {
                    links.push_front(&mut lists[l], SlotId::new(id));
                    model[l].push_front(id);
                }
            }
            for (list, model) in lists.iter().zip(&model) {
                assert!(links.iter(list).map(|s| s.number()).eq(model.iter().copied()));
            }
        }
    }
}
