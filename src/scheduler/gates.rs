//! Gates: the one mechanism of politeness.
//!
//! A gate is a clock and a counter, of a host, an address, an alias or a group. A send must pass all
//! gates that apply to it, or none. A slot that is stopped waits at the first closed gate; a gate that
//! opens wakes one waiter, and when that one has sent or was stopped elsewhere, the next.
//!
//! A gate knows nothing of what is queued behind it, and outlives it: it is forgotten only when it owes
//! nothing any more.

use super::lists::{Links, List};
use super::table::Table;
use super::timers::Timers;
use crate::ids::{GateId, HostId, IpId, SlotId};
use crate::time::{Duration, Instant, micros_rounded_up};

/// Strikes, and an address that has failed, are forgotten this long after a hold has ended.
pub(super) const QUIET: Duration = Duration::from_secs(600);

/// How often something may be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Most sends in flight; `u32::MAX` is no limit.
    pub concurrent: u32,
    /// Least time from one send to the next.
    pub gap: Duration,
}

impl Pace {
    /// No limit at all.
    pub const FREE: Pace = Pace { concurrent: u32::MAX, gap: Duration::ZERO };
}

/// Whose gate it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateOwner {
    /// One host.
    Host(HostId),
    /// One address, for all hosts on it.
    Ip(IpId),
    /// A group or alias of the settings, by its place there.
    Group(u32),
}

/// On one line of the caches, so that a look at a gate is one look at memory.
#[repr(align(64))]
pub(super) struct Gate {
    owner_number: u32,
    owner_kind: OwnerKind,
    /// The address has failed, and it is not known whether it has recovered.
    pub(super) suspect: Option<Trial>,
    /// On the list of gates to be noted.
    to_note: bool,
    /// Its timer is set.
    timed: bool,
    concurrent: u32,
    pub(super) in_flight: u32,
    gap_micros: u64,
    /// The gap is kept from here on; `FAR` from the decision to send until the line is written.
    opens_at: Instant,
    /// The rest after a fetch.
    rests_until: Instant,
    /// Few are ever held.
    hold: Option<Box<Hold>>,
    /// The rest after the last fetch that went well: quick errors do not shorten it.
    usual_rest_micros: u32,
    /// The waiter that was woken and has not decided yet.
    pub(super) woken: Option<SlotId>,
    pub(super) waiters: List,
}

const _: () = assert!(size_of::<Gate>() == 64);

#[derive(Clone, Copy)]
enum OwnerKind {
    Host,
    Ip,
    Group,
}

/// Told to stay away: 429, 503, an address that is down, an operator.
#[derive(Default)]
struct Hold {
    until: Instant,
    /// When the hold was last raised, so that a burst of refusals raises it once.
    since: Instant,
    /// Refusals without a success or a long quiet between them.
    strikes: u8,
}

/// Why a gate is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// As many in flight as allowed: opens with the end of one.
    Full,
    /// A line for it is on its way to the socket; the gap counts from there.
    Writing,
    /// Opens by time.
    Until(Instant, Why),
    /// The address is being tried by a connection of our own.
    OnTrial,
    /// Its key is not claimed, or claims are not good now: opens when they are.
    Claim,
}

/// How a suspect address is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trial {
    /// By real URLs, one at a time.
    OneUrl,
    /// By a connection of our own, before any URL.
    Connect,
}

/// What a gate waits for that opens by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The gap since the last send.
    Gap,
    /// The rest after the last fetch.
    Rest,
    /// A hold: 429 or 503, or the address is down.
    Hold,
}

impl Gate {
    pub(super) fn new(owner: GateOwner, pace: Pace) -> Gate {
        let mut gate = Gate {
            owner_number: 0,
            owner_kind: OwnerKind::Group,
            suspect: None,
            to_note: false,
            timed: false,
            concurrent: pace.concurrent,
            in_flight: 0,
            gap_micros: micros_rounded_up(pace.gap),
            opens_at: Instant::ZERO,
            rests_until: Instant::ZERO,
            hold: None,
            usual_rest_micros: 0,
            woken: None,
            waiters: List::default(),
        };
        gate.set_owner(owner);
        gate
    }

    pub(super) fn owner(&self) -> GateOwner {
        match self.owner_kind {
            OwnerKind::Host => GateOwner::Host(HostId::new(self.owner_number)),
            OwnerKind::Ip => GateOwner::Ip(IpId::new(self.owner_number)),
            OwnerKind::Group => GateOwner::Group(self.owner_number),
        }
    }

    pub(super) fn set_owner(&mut self, owner: GateOwner) {
        (self.owner_kind, self.owner_number) = match owner {
            GateOwner::Host(host) => (OwnerKind::Host, host.number()),
            GateOwner::Ip(ip) => (OwnerKind::Ip, ip.number()),
            GateOwner::Group(number) => (OwnerKind::Group, number),
        };
    }

    /// Whose turn it is here, if anybody waits.
    pub(super) fn first_in_line(&self) -> Option<SlotId> {
        self.woken.or_else(|| self.waiters.front())
    }

    pub(super) fn limit(&self) -> u32 {
        match self.suspect {
            None => self.concurrent,
            Some(Trial::OneUrl) => 1,
            Some(Trial::Connect) => 0,
        }
    }

    /// Whether there is nothing to do about it: nobody waits for it, or for nothing but the end of a fetch.
    pub(super) fn is_settled(&self) -> bool {
        !self.timed && (self.waiters.is_empty() || self.is_full())
    }

    /// Whether nothing but the end of a fetch can open it, and nothing is to be done until then.
    pub(super) fn waits_for_end(&self) -> bool {
        !self.timed && self.is_full()
    }

    fn is_full(&self) -> bool {
        let limit = self.limit();
        self.in_flight >= limit && limit > 0
    }

    pub(super) fn gap(&self) -> Duration {
        Duration::from_micros(self.gap_micros)
    }

    /// When the clocks of an open gate had run out.
    pub(super) fn opened_at(&self) -> Instant {
        self.opens_at.max(self.rests_until).max(self.held_until())
    }

    /// Another gap from now on, counted from the send that was last.
    pub(super) fn set_gap(&mut self, gap: Duration) {
        let before = std::mem::replace(&mut self.gap_micros, micros_rounded_up(gap));
        if self.opens_at != Instant::ZERO && self.opens_at != Instant::FAR {
            let sent = Instant::from_micros(self.opens_at.as_micros().saturating_sub(before));
            self.stamp(sent);
        }
    }

    /// A line was decided on when there was no gap yet: the gap counts from its write.
    pub(super) fn await_write(&mut self) {
        if self.gap_micros > 0 {
            self.opens_at = Instant::FAR;
        }
    }

    pub(super) fn closed(&self, now: Instant) -> Option<Closed> {
        let limit = self.limit();
        if self.is_full() {
            return Some(Closed::Full);
        }
        if self.opens_at == Instant::FAR {
            return Some(Closed::Writing);
        }
        let until = self.opened_at();
        if now < until {
            let why = match until {
                _ if until == self.held_until() => Why::Hold,
                _ if until == self.rests_until => Why::Rest,
                _ => Why::Gap,
            };
            return Some(Closed::Until(until, why));
        }
        (limit == 0).then_some(Closed::OnTrial)
    }

    /// A line was decided on: one more in flight, and nothing more until it is written.
    pub(super) fn enter(&mut self) {
        self.in_flight += 1;
        if self.gap_micros > 0 {
            self.opens_at = Instant::FAR;
        }
    }

    /// That line is written: the gap counts from now, also one that becomes known later.
    pub(super) fn stamp(&mut self, now: Instant) {
        self.opens_at = now.plus_micros(self.gap_micros);
    }

    /// One less in flight.
    pub(super) fn leave(&mut self) {
        self.in_flight -= 1;
    }

    /// Rests for so many microseconds from `now`, or longer if it does already. A fetch that failed rests no shorter
    /// than the last one that went well: error pages are fast, and must not speed things up.
    pub(super) fn rest(&mut self, now: Instant, micros: u64, went_well: bool) {
        let mut micros = micros;
        if went_well {
            self.usual_rest_micros = u32::try_from(micros).unwrap_or(u32::MAX);
        } else {
            micros = micros.max(self.usual_rest_micros.into());
        }
        self.rests_until = self.rests_until.max(now.plus_micros(micros));
    }

    /// Stays away until `until`, or longer if it does already.
    pub(super) fn hold(&mut self, until: Instant) {
        let hold = self.hold.get_or_insert_default();
        hold.until = hold.until.max(until);
    }

    /// The hold is over: whatever it was for is well.
    pub(super) fn release(&mut self) {
        self.hold = self.hold.take().filter(|hold| hold.strikes > 0);
        if let Some(hold) = &mut self.hold {
            hold.until = Instant::ZERO;
        }
    }

    /// A refusal of something sent at `sent`: the number of strikes before it, or none if it belongs
    /// to a burst that has raised the hold already.
    pub(super) fn strike(&mut self, now: Instant, sent: Instant) -> Option<u8> {
        let forgiven = self.is_forgiven(now);
        let hold = self.hold.get_or_insert_default();
        if hold.strikes > 0 && sent <= hold.since {
            return None;
        }
        let before = if forgiven { 0 } else { hold.strikes };
        hold.strikes = before.saturating_add(1);
        hold.since = now;
        Some(before)
    }

    /// A success of something sent after the last refusal: forgive one strike.
    pub(super) fn forgive(&mut self, sent: Instant) {
        if let Some(hold) = self.hold.as_mut().filter(|hold| sent > hold.since) {
            hold.strikes = hold.strikes.saturating_sub(1);
        }
    }

    fn is_forgiven(&self, now: Instant) -> bool {
        self.strikes() == 0 || now >= self.held_until() + QUIET
    }

    /// Whether it never stops anything by itself.
    pub(super) fn is_free(&self) -> bool {
        self.concurrent == u32::MAX && self.gap_micros == 0
    }

    /// A line for it is on its way to the socket.
    pub(super) fn is_writing(&self) -> bool {
        self.opens_at == Instant::FAR
    }

    /// Until when gap and rest last, as far as is known.
    pub(super) fn owes_until(&self) -> Instant {
        if self.is_writing() { self.rests_until } else { self.opens_at.max(self.rests_until) }
    }

    pub(super) fn held_until(&self) -> Instant {
        self.hold.as_ref().map_or(Instant::ZERO, |hold| hold.until)
    }

    pub(super) fn strikes(&self) -> u8 {
        self.hold.as_ref().map_or(0, |hold| hold.strikes)
    }

    /// Goes on where an earlier life has left it, or stays away longer if it does already.
    pub(super) fn restore(&mut self, now: Instant, owed: Instant, held: Instant, strikes: u8) {
        self.rests_until = self.rests_until.max(owed);
        if held > Instant::ZERO || strikes > 0 {
            self.hold(held);
        }
        if let Some(hold) = self.hold.as_mut().filter(|hold| strikes > hold.strikes) {
            hold.strikes = strikes;
            hold.since = now;
        }
    }

    /// Whether nothing would be lost by forgetting it.
    pub(super) fn owes_nothing(&self, now: Instant) -> bool {
        self.in_flight == 0
            && self.waiters.is_empty()
            && (self.suspect.is_none() || now >= self.held_until() + QUIET)
            && self.is_forgiven(now)
            && matches!(self.closed(now), None | Some(Closed::OnTrial))
    }
}

/// All gates, with one timer each at most.
#[derive(Default)]
pub(super) struct Gates {
    pub(super) table: Table<GateId, Gate>,
    timers: Timers<GateId>,
    note_links: Links<GateId>,
    /// Gates to be noted.
    to_note: List,
}

impl Gates {
    pub(super) fn add(&mut self, owner: GateOwner, pace: Pace) -> GateId {
        self.table.insert(Gate::new(owner, pace))
    }

    /// When the first of their timers fires.
    pub(super) fn first_timer(&self) -> Option<Instant> {
        self.timers.first()
    }

    /// When the timer of `id` fires.
    pub(super) fn timer(&self, id: GateId) -> Option<Instant> {
        if self.table[id].timed { self.timers.at(id) } else { None }
    }

    pub(super) fn set_timer(&mut self, id: GateId, at: Instant) {
        self.table[id].timed = at != Instant::FAR;
        self.timers.set(id, at);
    }

    pub(super) fn cancel_timer(&mut self, id: GateId) {
        if std::mem::take(&mut self.table[id].timed) {
            self.timers.cancel(id);
        }
    }

    /// Takes out the first timer that is due, with the time for which it was set.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(GateId, Instant)> {
        let (id, at) = self.timers.pop_due_at(now)?;
        self.table[id].timed = false;
        Some((id, at))
    }

    pub(super) fn forget(&mut self, id: GateId) {
        self.cancel_timer(id);
        if self.table.remove(id).to_note {
            self.note_links.remove(&mut self.to_note, id);
        }
    }

    /// What the gate owes is to be noted.
    pub(super) fn mark_to_note(&mut self, id: GateId) {
        if !std::mem::replace(&mut self.table[id].to_note, true) {
            self.note_links.push_back(&mut self.to_note, id);
        }
    }

    /// The next gate to be noted.
    pub(super) fn next_to_note(&mut self) -> Option<GateId> {
        let id = self.note_links.pop_front(&mut self.to_note)?;
        self.table[id].to_note = false;
        Some(id)
    }
}

impl std::ops::Index<GateId> for Gates {
    type Output = Gate;

    fn index(&self, id: GateId) -> &Gate {
        &self.table[id]
    }
}

impl std::ops::IndexMut<GateId> for Gates {
    fn index_mut(&mut self, id: GateId) -> &mut Gate {
        &mut self.table[id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros)
    }

    fn gate(concurrent: u32, gap_micros: u64) -> Gate {
        let pace = Pace { concurrent, gap: Duration::from_micros(gap_micros) };
        Gate::new(GateOwner::Host(HostId::new(0)), pace)
    }

    #[test]
    fn the_gap_counts_from_the_write_and_ends_exactly() {
        let mut gate = gate(9, 100);
        gate.enter();
        assert_eq!(gate.closed(at(500)), Some(Closed::Writing));
        gate.stamp(at(500));
        assert_eq!(gate.closed(at(599)), Some(Closed::Until(at(600), Why::Gap)));
        assert_eq!(gate.closed(at(600)), None);
    }

    #[test]
    fn another_gap_holds_at_once_and_counts_from_the_last_send() {
        let mut gate = gate(9, 100);
        gate.enter();
        gate.stamp(at(500));
        gate.set_gap(Duration::from_micros(300));
        assert_eq!(gate.closed(at(799)), Some(Closed::Until(at(800), Why::Gap)));
        gate.set_gap(Duration::from_micros(10));
        assert_eq!(gate.closed(at(509)), Some(Closed::Until(at(510), Why::Gap)));
        assert_eq!(gate.closed(at(510)), None);
        gate.set_gap(Duration::from_micros(300));
        assert_eq!(gate.closed(at(799)), Some(Closed::Until(at(800), Why::Gap)), "to and fro adds nothing");
    }

    #[test]
    fn full_until_one_leaves_and_one_at_a_time_while_suspect() {
        let mut gate = gate(2, 0);
        gate.enter();
        assert_eq!(gate.closed(at(0)), None);
        gate.enter();
        assert_eq!(gate.closed(at(0)), Some(Closed::Full));
        gate.leave();
        assert_eq!(gate.closed(at(0)), None);
        gate.suspect = Some(Trial::OneUrl);
        assert_eq!(gate.closed(at(0)), Some(Closed::Full));
    }

    #[test]
    fn nothing_passes_an_address_that_is_tried_by_a_connection() {
        let mut gate = gate(2, 0);
        gate.hold(at(100));
        gate.suspect = Some(Trial::Connect);
        assert_eq!(gate.closed(at(99)), Some(Closed::Until(at(100), Why::Hold)));
        assert_eq!(gate.closed(at(100)), Some(Closed::OnTrial));
    }

    #[test]
    fn the_longer_delay_wins_in_either_order() {
        for (a, b) in [(10, 20), (20, 10)] {
            let mut gate = gate(1, 0);
            gate.rest(at(0), a, true);
            gate.rest(at(0), b, true);
            assert_eq!(gate.closed(at(19)), Some(Closed::Until(at(20), Why::Rest)));
            gate.hold(at(a + 100));
            gate.hold(at(b + 100));
            assert_eq!(gate.closed(at(119)), Some(Closed::Until(at(120), Why::Hold)));
            assert_eq!(gate.closed(at(120)), None);
        }
    }

    #[test]
    fn a_burst_of_refusals_is_one_strike_and_success_forgives() {
        let mut gate = gate(5, 0);
        assert_eq!(gate.strike(at(100), at(10)), Some(0));
        assert_eq!(gate.strike(at(110), at(20)), None, "sent before the hold began");
        assert_eq!(gate.strike(at(110), at(100)), None, "sent in the same instant");
        assert_eq!(gate.strike(at(300), at(200)), Some(1));
        gate.forgive(at(300));
        assert_eq!(gate.strike(at(500), at(400)), Some(2), "an old success forgives nothing");
        gate.forgive(at(501));
        gate.forgive(at(502));
        assert_eq!(gate.strike(at(600), at(503)), Some(1));
    }

    #[test]
    fn strikes_are_forgiven_after_quiet_and_not_before() {
        let quiet = QUIET.as_micros() as u64;
        for (later, strikes) in [(99 + quiet, 1), (100 + quiet, 0)] {
            let mut gate = gate(1, 0);
            assert_eq!(gate.strike(at(50), at(10)), Some(0));
            gate.hold(at(100));
            assert_eq!(gate.strike(at(later), at(200)), Some(strikes));
        }
    }

    #[test]
    fn strikes_and_a_suspect_address_are_remembered_for_the_quiet_time_and_no_longer() {
        let quiet = QUIET.as_micros() as u64;
        let mut struck = gate(1, 0);
        assert_eq!(struck.strike(at(50), at(10)), Some(0));
        let mut suspect = gate(1, 0);
        suspect.suspect = Some(Trial::OneUrl);
        for mut gate in [struck, suspect] {
            gate.hold(at(100));
            assert_eq!(gate.closed(at(100)), None);
            assert!(!gate.owes_nothing(at(99 + quiet)));
            assert!(gate.owes_nothing(at(100 + quiet)));
        }
    }

    #[test]
    fn a_quick_error_rests_as_long_as_a_good_fetch() {
        let mut gate = gate(1, 0);
        gate.rest(at(0), 500, true);
        gate.rest(at(1000), 1, false);
        assert_eq!(gate.closed(at(1499)), Some(Closed::Until(at(1500), Why::Rest)));
        gate.rest(at(2000), 1, true);
        assert_eq!(gate.closed(at(2001)), None);
    }

    #[test]
    fn a_clock_that_is_owed_is_not_forgotten() {
        let mut gate = gate(1, 100);
        assert!(gate.owes_nothing(at(0)));
        gate.enter();
        gate.stamp(at(0));
        gate.leave();
        assert!(!gate.owes_nothing(at(99)));
        assert!(gate.owes_nothing(at(100)));
    }
}
