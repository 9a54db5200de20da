//! Spiders: who may be given work, and whose turn it is.

use super::lists::List;
use crate::ids::{LeaseId, SpiderId};
use crate::time::Instant;

/// No connection: they are numbered from one.
pub(super) const NOBODY: SpiderId = SpiderId(0);

/// One connection.
#[derive(Default)]
pub(super) struct Spider {
    /// Its sends in order, the unwritten ones last.
    pub(super) sends: List,
    pub(super) first_unwritten: Option<LeaseId>,
    /// When its unwritten lines were last noted.
    pub(super) noted: Instant,
    pub(super) in_flight: u32,
    /// Slots that stay with it.
    pub(super) hosts: u32,
    /// Lines it has asked for, in pull mode.
    pub(super) credit: Option<u64>,
    /// Its buffer is full: nothing more until it has been read.
    pub(super) choked: bool,
    /// Hosts it may still take over from spiders that were here before it.
    pub(super) share: u32,
    /// When it last said something of any send.
    pub(super) spoke: Option<Instant>,
    /// It has let a send run out and said nothing since: until then others are given work first.
    pub(super) silent_until: Instant,
}

impl Spider {
    pub(super) fn has_room(&self, window: Option<u32>) -> bool {
        !self.choked && self.credit != Some(0) && window.is_none_or(|window| self.in_flight < window)
    }

    fn is_silent(&self, now: Instant) -> bool {
        now < self.silent_until
    }
}

/// Bits of an id that tell its place among the spiders. The others count those that ever were.
const PLACE_BITS: u32 = 20;

/// All spiders, in order of arrival but for those that took a gone one's place.
#[derive(Default)]
pub(super) struct Spiders {
    places: Vec<Option<(SpiderId, Spider)>>,
    len: usize,
    window: Option<u32>,
    last: u64,
    /// All that newcomers are still owed.
    shares: u32,
}

impl Spiders {
    pub(super) fn new(window: Option<u32>) -> Spiders {
        Spiders { window, ..Spiders::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a spider, which may take its share of `hosts` from the others.
    pub(super) fn add(&mut self, hosts: usize) -> SpiderId {
        let place = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        self.last += 1;
        let id = SpiderId(self.last << PLACE_BITS | place as u64);
        let share = (hosts / (self.len + 1)) as u32;
        self.len += 1;
        self.shares += share;
        let spider = Some((id, Spider { share, ..Spider::default() }));
        match self.places.get_mut(place) {
            Some(free) => *free = spider,
            None => self.places.push(spider),
        }
        id
    }

    pub(super) fn remove(&mut self, id: SpiderId) -> Option<Spider> {
        let (_, spider) = self.places.get_mut(place(id))?.take_if(|(its, _)| *its == id)?;
        self.len -= 1;
        self.shares -= spider.share;
        Some(spider)
    }

    pub(super) fn get(&self, id: SpiderId) -> Option<&Spider> {
        let (its, spider) = self.places.get(place(id))?.as_ref()?;
        (*its == id).then_some(spider)
    }

    pub(super) fn get_mut(&mut self, id: SpiderId) -> Option<&mut Spider> {
        let (its, spider) = self.places.get_mut(place(id))?.as_mut()?;
        (*its == id).then_some(spider)
    }

    pub(super) fn any_room(&self) -> bool {
        self.iter().any(|(_, spider)| spider.has_room(self.window))
    }

    /// The spider for a host that has been with `home` so far: the same while it has room, unless a
    /// newcomer with fewer hosts is owed a share; else the one with the fewest hosts. One that has gone
    /// silent only if there is no other.
    pub(super) fn pick(&mut self, now: Instant, home: SpiderId) -> Option<SpiderId> {
        if let Some(at_home) = self.get(home)
            && at_home.has_room(self.window)
            && !at_home.is_silent(now)
        {
            let hosts = at_home.hosts;
            return Some(self.newcomer(now, hosts).unwrap_or(home));
        }
        let room = self.iter().filter(|(_, spider)| spider.has_room(self.window));
        room.min_by_key(|(_, spider)| (spider.is_silent(now), spider.hosts, spider.in_flight))
            .map(|(id, _)| id)
    }

    fn newcomer(&mut self, now: Instant, hosts_at_home: u32) -> Option<SpiderId> {
        if self.shares == 0 {
            return None;
        }
        let window = self.window;
        let fit = |spider: &Spider| spider.has_room(window) && !spider.is_silent(now);
        let owed = |spider: &Spider| spider.share > 0 && spider.hosts + 1 < hosts_at_home && fit(spider);
        let (id, spider) = self.places.iter_mut().flatten().find(|(_, spider)| owed(spider))?;
        spider.share -= 1;
        self.shares -= 1;
        Some(*id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SpiderId, &Spider)> {
        self.places.iter().flatten().map(|(id, spider)| (*id, spider))
    }
}

fn place(id: SpiderId) -> usize {
    (id.0 & ((1 << PLACE_BITS) - 1)) as usize
}
