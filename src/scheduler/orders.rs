//! Operators' orders: pause, resume, block, delay; for one host, or for everything.
//!
//! They are kept by name, beside the hosts: they hold for hosts that are not known yet, and outlive those
//! that are forgotten. A host that is stopped stands aside: it keeps its documents, and has no slot, no place
//! in any line, no question for its name and no timer but that of the end of its block.
//!
//! The latest word counts: a shorter block replaces a longer one, and `Block(ZERO)` lifts it. `Resume` lifts a
//! pause, not a block. A delay only ever raises a gap: it never undercuts the settings or robots.txt.

use super::Scheduler;
use super::claims::ClaimState;
use super::hosts::Place;
use crate::ids::HostId;
pub use crate::order::{Order, Standing};
use crate::time::{Duration, Instant};
use hashbrown::HashMap;
use indexmap::IndexMap;
use thiserror::Error;

/// Hosts that may have an order at the same time.
pub const ORDERS_MAX: usize = 1_000_000;

/// As many hosts as possible have orders already; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("orders are kept for {ORDERS_MAX} hosts at most")]
pub struct TooManyOrders;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Stop {
    paused: bool,
    blocked_until: Instant,
}

impl Stop {
    fn until(self) -> Instant {
        if self.paused { Instant::FAR } else { self.blocked_until }
    }
}

/// All orders, by the name of the host.
#[derive(Default)]
pub(super) struct Orders {
    pub(super) all_paused: bool,
    stops: IndexMap<Box<str>, Stop, hashbrown::DefaultHashBuilder>,
    delays: HashMap<Box<str>, Duration>,
    /// The stop that is looked at next, whether it is over.
    sweep_at: usize,
}

impl Orders {
    pub(super) fn delay_of(&self, name: &str) -> Duration {
        self.delays.get(name).copied().unwrap_or_default()
    }

    fn stopped_until(&self, name: &str) -> Option<Instant> {
        self.stops.get(name).map(|stop| stop.until())
    }

    /// Names of hosts that may not be sent to now.
    pub(super) fn stopped(&self, now: Instant) -> impl Iterator<Item = &str> {
        self.stops.iter().filter(move |(_, stop)| stop.until() > now).map(|(name, _)| &**name)
    }

    fn standing(&self, now: Instant, name: &str) -> Standing {
        let stop = self.stops.get(name).copied().unwrap_or_default();
        let blocked_for = stop.blocked_until.since(now);
        Standing { paused: stop.paused, blocked_for, delay: self.delay_of(name) }
    }

    /// Takes the order down. True if the host may be free to send because of it.
    fn note(&mut self, now: Instant, name: &str, order: Order) -> Result<bool, TooManyOrders> {
        let known = self.stops.contains_key(name) || self.delays.contains_key(name);
        let lifts =
            matches!(order, Order::Resume | Order::Block(Duration::ZERO) | Order::Delay(Duration::ZERO));
        if !known && !lifts && self.stops.len() + self.delays.len() >= ORDERS_MAX {
            return Err(TooManyOrders);
        }
        if let Order::Delay(delay) = order {
            if delay == Duration::ZERO {
                self.delays.remove(name);
            } else {
                self.delays.insert(name.into(), delay);
            }
            return Ok(false);
        }
        let mut stop = self.stops.get(name).copied().unwrap_or_default();
        match order {
            Order::Pause => stop.paused = true,
            Order::Resume => stop.paused = false,
            Order::Block(time) => stop.blocked_until = now + time,
            Order::Delay(_) => {}
        }
        if stop.until() > now {
            self.stops.insert(name.into(), stop);
            return Ok(false);
        }
        Ok(self.stops.swap_remove(name).is_some())
    }

    /// All that is ordered, instead of what was.
    fn replace(&mut self, now: Instant, name: &str, standing: Standing) {
        self.stops.swap_remove(name);
        self.delays.remove(name);
        self.restore(now, name, standing);
    }

    /// What was ordered in an earlier life.
    pub(super) fn restore(&mut self, now: Instant, name: &str, standing: Standing) {
        let stop = Stop { paused: standing.paused, blocked_until: now + standing.blocked_for };
        if stop.until() > now {
            self.stops.insert(name.into(), stop);
        }
        if standing.delay > Duration::ZERO {
            self.delays.insert(name.into(), standing.delay);
        }
    }

    /// Looks at one stop, and takes it out if it is over: whose it was.
    fn sweep(&mut self, now: Instant) -> Option<Box<str>> {
        if self.sweep_at >= self.stops.len() {
            self.sweep_at = 0;
        }
        let (_, stop) = self.stops.get_index(self.sweep_at)?;
        if stop.until() <= now {
            return self.stops.swap_remove_index(self.sweep_at).map(|(name, _)| name);
        }
        self.sweep_at += 1;
        None
    }
}

impl Scheduler {
    /// An operator's order for a host, known or not. The name must be as URLs spell it.
    pub fn handle_order(
        &mut self,
        now: Instant,
        name: &str,
        order: Order,
    ) -> Result<Standing, TooManyOrders> {
        if self.orders.note(now, name, order)? {
            self.demand.handle_change();
        }
        self.note_order(name);
        if let Some(host) = self.hosts.find(name) {
            self.obey_new_orders(now, host);
        }
        Ok(self.orders.standing(now, name))
    }

    fn obey_new_orders(&mut self, now: Instant, host: HostId) {
        self.obey_orders(now, host);
        // What it waited for may be over.
        self.unbench(now, host);
        if self.hosts[host].has_work() {
            self.look_at(now, host);
        }
    }

    /// What operators have ordered, here or elsewhere, for a host that is ours or about to be. Of others nothing is kept:
    /// it comes with the claim.
    pub(super) fn handle_ordered(&mut self, now: Instant, name: &str, standing: Standing) {
        let Some(host) = self.hosts.find(name) else { return };
        if self.claims.of(self.hosts[host].gate).state == ClaimState::No
            || self.orders.standing(now, name) == standing
        {
            return;
        }
        self.orders.replace(now, name, standing);
        self.demand.handle_change();
        self.obey_new_orders(now, host);
    }

    /// The host is not ours any more, and neither are its orders.
    pub(super) fn forget_orders(&mut self, now: Instant, host: HostId) {
        let name = self.hosts.name(host);
        if self.orders.stops.contains_key(name) || self.orders.delays.contains_key(name) {
            let name: Box<str> = name.into();
            self.orders.replace(now, &name, Standing::default());
            self.demand.handle_change();
            self.obey_orders(now, host);
        }
    }

    /// Stops all sends, or lets them go on. Whatever waits for its turn stays where it is meanwhile.
    pub fn handle_pause_all(&mut self, paused: bool) {
        self.orders.all_paused = paused;
        self.note_pause();
    }

    /// Whether all sends are stopped.
    pub fn is_paused(&self) -> bool {
        self.orders.all_paused
    }

    /// What is ordered for a host.
    pub fn standing(&self, now: Instant, name: &str) -> Standing {
        self.orders.standing(now, name)
    }

    /// Applies to a host, which may be new, what is ordered for its name.
    pub(super) fn obey_orders(&mut self, now: Instant, host: HostId) {
        self.hosts[host].stopped = self.orders.stopped_until(self.hosts.name(host)).is_some();
        self.renew_gap(now, host);
    }

    /// Until when an operator wants nothing sent to `host`, if so.
    pub(super) fn stopped_until(&self, now: Instant, host: HostId) -> Option<Instant> {
        if !self.hosts[host].stopped {
            return None;
        }
        self.orders.stopped_until(self.hosts.name(host)).filter(|&until| until > now)
    }

    /// Takes a host that is stopped, and has work, out of everybody's way. One with something in flight keeps its
    /// slot until that has ended.
    pub(super) fn stand_aside(&mut self, now: Instant, host: HostId, until: Instant) {
        self.withdraw_question(host);
        self.host_timers.set(host, until);
        match self.hosts[host].place {
            Place::Stopped => return,
            Place::Idle => {
                self.place_links.remove(&mut self.idle, host);
                self.idle_hosts -= 1;
            }
            Place::Leftover => {
                self.place_links.remove(&mut self.leftover, host);
                self.leftover_hosts -= 1;
            }
            Place::Benched => self.benched -= 1,
            Place::Slot(slot) => {
                self.leave_line(now, slot);
                if self.hosts[host].in_flight > 0 {
                    return;
                }
                self.leave_slot(slot, host);
            }
        }
        self.hosts[host].place = Place::Stopped;
        self.stopped_hosts += 1;
        self.fill_slots(now);
    }

    /// Forgets a block that is over.
    pub(super) fn sweep_order(&mut self, now: Instant) {
        if let Some(name) = self.orders.sweep(now) {
            if let Some(host) = self.hosts.find(&name) {
                self.hosts[host].stopped = false;
            }
            self.demand.handle_change();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::from_micros(secs * 1_000_000)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn the_latest_word_counts() {
        let mut orders = Orders::default();
        assert_eq!(orders.note(at(0), "a", Order::Block(secs(100))), Ok(false));
        assert_eq!(orders.note(at(0), "a", Order::Block(secs(10))), Ok(false));
        assert_eq!(orders.standing(at(4), "a").blocked_for, secs(6));
        assert_eq!(orders.note(at(4), "a", Order::Resume), Ok(false), "a block is no pause");
        assert_eq!(orders.note(at(4), "a", Order::Block(Duration::ZERO)), Ok(true));
        assert_eq!(orders.standing(at(4), "a"), Standing::default());
    }

    #[test]
    fn pause_and_block_are_lifted_each_by_its_own() {
        let mut orders = Orders::default();
        assert_eq!(orders.note(at(0), "a", Order::Pause), Ok(false));
        assert_eq!(orders.note(at(0), "a", Order::Block(secs(5))), Ok(false));
        assert_eq!(orders.note(at(1), "a", Order::Resume), Ok(false));
        assert_eq!(orders.stopped_until("a"), Some(at(5)));
        assert_eq!(orders.stopped(at(4)).collect::<Vec<_>>(), ["a"]);
        assert_eq!(orders.stopped(at(5)).count(), 0, "ends exactly");
    }

    #[test]
    fn blocks_that_are_over_are_forgotten_and_nothing_else_is() {
        let mut orders = Orders::default();
        for (name, order) in [("a", Order::Pause), ("b", Order::Block(secs(5))), ("c", Order::Pause)] {
            assert_eq!(orders.note(at(0), name, order), Ok(false));
        }
        assert_eq!((0..9).find_map(|_| orders.sweep(at(4))), None);
        assert_eq!((0..9).find_map(|_| orders.sweep(at(5))).as_deref(), Some("b"));
        assert_eq!((0..9).find_map(|_| orders.sweep(at(6))), None);
        assert_eq!(orders.stopped(at(6)).collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn there_is_an_end_to_orders_and_lifting_one_makes_room() {
        let mut orders = Orders::default();
        for number in 0..ORDERS_MAX {
            assert!(orders.note(at(0), &number.to_string(), Order::Pause).is_ok());
        }
        assert_eq!(orders.note(at(0), "x", Order::Pause), Err(TooManyOrders));
        assert_eq!(orders.note(at(0), "x", Order::Delay(secs(1))), Err(TooManyOrders));
        assert_eq!(orders.note(at(0), "x", Order::Resume), Ok(false));
        assert_eq!(orders.note(at(0), "7", Order::Block(secs(1))), Ok(false), "it has one already");
        assert_eq!(orders.note(at(0), "8", Order::Resume), Ok(true));
        assert_eq!(orders.note(at(0), "x", Order::Pause), Ok(false));
    }
}
