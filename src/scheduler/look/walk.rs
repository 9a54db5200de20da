//! What is too much to look at in one go: all hosts, all leases.

use super::{HostState, LINE_WALK_MAX, QUEUE_WALK_MAX, UrlPlace};
use crate::ids::{HostId, LeaseId};
use crate::scheduler::Scheduler;
use crate::scheduler::leases::{Lease, LeaseState};
use crate::scheduler::table::Key;
use crate::time::{Duration, Instant};
use crate::url::Url;
use std::collections::BinaryHeap;

/// The first hosts by name behind a given one, found in one pass over all hosts that is made in parts. A host that is
/// known from the beginning of the pass to its end is looked at exactly once, whatever comes and goes meanwhile.
#[derive(Debug)]
pub struct HostPage {
    after: Box<str>,
    state: Option<HostState>,
    limit: usize,
    /// The first ones seen so far, and one more, to know whether there are more; the last one on top.
    found: BinaryHeap<Box<str>>,
    next: usize,
}

impl HostPage {
    /// Up to `limit` hosts behind `after`, of all states or of one.
    pub fn new(after: &str, state: Option<HostState>, limit: usize) -> HostPage {
        HostPage { after: after.into(), state, limit, found: BinaryHeap::new(), next: 0 }
    }

    /// The names in order, and whether there are more behind them.
    pub fn finish(self) -> (Vec<Box<str>>, bool) {
        let mut names = self.found.into_sorted_vec();
        let more = names.len() > self.limit;
        names.truncate(self.limit);
        (names, more)
    }
}

impl Scheduler {
    /// Looks at the next `count` hosts for `page`; false if there are no more.
    pub fn fill_page(&self, now: Instant, page: &mut HostPage, count: usize) -> bool {
        let end = self.hosts.table.end();
        for id in (page.next..end.min(page.next + count)).map(HostId::from_index) {
            if self.hosts.table.get(id).is_none() {
                continue;
            }
            let name = self.hosts.name(id);
            let late = page.found.len() > page.limit && page.found.peek().is_some_and(|last| *name >= **last);
            if *name <= *page.after || late {
                continue;
            }
            if page.state.is_none_or(|state| self.state_of(&self.what_stops(now, id)) == state) {
                page.found.push(name.into());
                if page.found.len() > page.limit + 1 {
                    page.found.pop();
                }
            }
        }
        page.next = page.next.saturating_add(count);
        page.next < end
    }
}

/// The search for one URL among all that is pending, made in parts. A document goes from its host's queue into a lease,
/// keeps its lease until it ends, and never goes back: looked for in this order it cannot be missed.
#[derive(Debug)]
pub struct UrlSearch {
    url: Url,
    next: usize,
}

impl UrlSearch {
    /// Looks for `url`.
    pub fn new(url: Url) -> UrlSearch {
        UrlSearch { url, next: 0 }
    }
}

impl Scheduler {
    /// The next part of a search: its host's queue, then `count` leases at a time. `None` until all is searched.
    pub fn search(&self, now: Instant, search: &mut UrlSearch, count: usize) -> Option<UrlPlace> {
        let Some(host) = self.hosts.find(search.url.host()) else { return Some(UrlPlace::Absent) };
        if search.next == 0
            && let Some(place) = self.search_host(now, host, &search.url)
        {
            return Some(place);
        }
        let end = self.leases.table.end();
        for id in (search.next..end.min(search.next + count)).map(LeaseId::from_index) {
            if self.leases.table.get(id).is_some_and(|lease| is_for(lease, host, &search.url)) {
                return Some(self.lease_place(now, id));
            }
        }
        search.next = search.next.saturating_add(count);
        if search.next < end {
            return None;
        }
        let unseen = self.hosts[host].urls.len() > QUEUE_WALK_MAX;
        Some(if unseen { UrlPlace::NotSeen } else { UrlPlace::Absent })
    }

    /// Looks where it costs little: in the host's queue, and among what is in flight from its slot.
    fn search_host(&self, now: Instant, id: HostId, url: &Url) -> Option<UrlPlace> {
        let host = &self.hosts[id];
        if let Some((position, doc)) = self.store.position(&host.urls, url.tail(), QUEUE_WALK_MAX) {
            let front = self.leases.links.iter(&host.front).take(LINE_WALK_MAX).count();
            return Some(UrlPlace::Queued { doc, ahead: (front + position) as u64 });
        }
        if host.leases == 0 {
            let unseen = host.urls.len() > QUEUE_WALK_MAX;
            return Some(if unseen { UrlPlace::NotSeen } else { UrlPlace::Absent });
        }
        let mut in_flight = host.slot().into_iter().flat_map(|slot| self.slots.leases_in(slot));
        in_flight
            .find(|&lease| is_for(&self.leases[lease], id, url))
            .map(|lease| self.lease_place(now, lease))
    }

    fn lease_place(&self, now: Instant, id: LeaseId) -> UrlPlace {
        let lease = &self.leases[id];
        let (doc, attempts) = (lease.url.doc, lease.attempts);
        let (flight, written) = match &lease.state {
            LeaseState::Front => return UrlPlace::Again { doc, attempts },
            LeaseState::Waiting => {
                let left = self.leases.waits.at(id).map_or(Duration::ZERO, |at| at.since(now));
                return UrlPlace::Later { doc, attempts, left };
            }
            LeaseState::Reserved => return UrlPlace::Reserved { doc, attempts },
            LeaseState::Unwritten(flight) => (flight, None),
            LeaseState::Written { flight, at, .. } => (flight, Some(now.since(*at))),
        };
        let ip = self.ips[flight.ip].address;
        UrlPlace::InFlight { doc, attempts, spider: flight.spider, ip, written }
    }
}

fn is_for(lease: &Lease, host: HostId, url: &Url) -> bool {
    lease.host == host && lease.url.tail() == url.tail()
}
