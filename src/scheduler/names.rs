//! Names and addresses: whom to ask for, what the answers change.

use super::Scheduler;
use super::gates::{GateOwner, Pace};
use super::hosts::{Place, Question};
use super::slots::Wait;
use super::table::Key;
use crate::hostdb::health::HealthState;
use crate::hostdb::records::{Advice, Record};
use crate::hostdb::{ADDRESSES_MAX, Resolution, is_public, normalised};
use crate::ids::{HostId, IpId};
use crate::time::{Duration, Instant};
use std::net::IpAddr;

/// A question for a name's addresses: exactly one [`Scheduler::handle_resolved`] must follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookup<'a> {
    /// To be given back with the answer.
    pub host: HostId,
    /// The name to ask for.
    pub name: &'a str,
    /// Not asked in vain before. Such questions go first, and need less patience: where many names are dead, the
    /// others must not wait for each of them to time out.
    pub first: bool,
}

/// Questions in a row without an answer, after which a name is given up, if others are answered.
const QUESTIONS_MAX: u8 = 10;

/// Longest wait before a question that got no answer is asked again.
const BACK_OFF_MAX: Duration = Duration::from_secs(64);

impl Scheduler {
    /// The next name to look up. The caller bounds how many are under way.
    #[must_use]
    pub fn poll_lookup(&mut self) -> Option<Lookup<'_>> {
        let first = self.errand_links.pop_front(&mut self.ask_first);
        let host = first.or_else(|| self.errand_links.pop_front(&mut self.ask_later))?;
        self.set_question(host, Question::Asked);
        self.counters.lookups += 1;
        let first = self.hosts[host].unanswered == 0;
        Some(Lookup { host, name: self.hosts.name(host), first })
    }

    /// The answer to a [`Lookup`].
    pub fn handle_resolved(&mut self, now: Instant, host: HostId, resolution: Resolution) {
        if self.hosts.table.get(host).is_none_or(|host| host.question != Question::Asked) {
            return;
        }
        self.set_question(host, Question::No);
        if self.has_given_address(host) {
            return;
        }
        if resolution != Resolution::Unavailable {
            self.last_answer = now;
        }
        match resolution {
            Resolution::Addresses { addresses, ttl } => {
                self.hosts[host].unanswered = 0;
                let expires = self.config.ttl.expiry(now, ttl);
                self.handle_addresses(now, host, addresses, expires);
            }
            Resolution::Nothing { ttl } => {
                self.hosts[host].unanswered = 0;
                let until = self.config.ttl.negative_expiry(now, ttl);
                self.replace_record(now, host, Record::Nothing { until });
            }
            Resolution::Unavailable => self.handle_unanswered(now, host),
        }
        self.look_at_anew(now, host);
    }

    /// The index, or the name itself, says which address to use: no name server is asked.
    pub(super) fn handle_given_address(&mut self, now: Instant, host: HostId, address: IpAddr) {
        let current = self.hosts[host].record.addresses();
        let same = matches!(current, [only] if self.ips[*only].address == normalised(address));
        if same && self.has_given_address(host) {
            return;
        }
        self.withdraw_question(host);
        self.handle_addresses(now, host, vec![address], Instant::FAR);
        self.look_at_anew(now, host);
    }

    /// Whether the host's address was given, and no name server has a say in it.
    fn has_given_address(&self, host: HostId) -> bool {
        matches!(self.hosts[host].record, Record::Known { expires: Instant::FAR, .. })
    }

    /// Does not ask what was to be asked. What has been asked already is answered, and not heard.
    pub(super) fn withdraw_question(&mut self, host: HostId) {
        match self.hosts[host].question {
            Question::Queued { urgent: true } => self.errand_links.remove(&mut self.ask_first, host),
            Question::Queued { urgent: false } => self.errand_links.remove(&mut self.ask_later, host),
            Question::No | Question::BackOff => {}
            Question::Asked => return,
        }
        self.set_question(host, Question::No);
    }

    fn handle_addresses(&mut self, now: Instant, host: HostId, given: Vec<IpAddr>, expires: Instant) {
        let families = self.config.families;
        let mut addresses: Vec<IpAddr> = given.into_iter().map(normalised).collect();
        addresses.retain(|&ip| families.have(ip));
        let until = expires.min(self.config.ttl.negative_expiry(now, None));
        if addresses.is_empty() {
            return self.replace_record(now, host, Record::Nothing { until });
        }
        addresses.retain(|&ip| self.may_use(ip));
        in_stable_order(&mut addresses);
        if addresses.is_empty() {
            return self.replace_record(now, host, Record::Private { until });
        }
        let addresses = addresses.into_iter().map(|address| self.ip_of(now, address)).collect();
        self.replace_record(now, host, Record::Known { addresses, expires });
    }

    /// Whether URLs may be sent to this address.
    pub(super) fn may_use(&self, ip: IpAddr) -> bool {
        self.config.allow_private || is_public(ip)
    }

    /// A name that gets no answer however often it is asked for, while others do, is as good as none. When no
    /// name gets an answer, the name servers are out, and nothing is given up.
    fn handle_unanswered(&mut self, now: Instant, host: HostId) {
        let others_are_answered = self.last_answer > self.hosts[host].asked_first;
        if self.config.max_attempts > 0
            && self.hosts[host].unanswered >= QUESTIONS_MAX - 1
            && others_are_answered
            && self.hosts[host].ip.is_none()
        {
            self.hosts[host].unanswered = 0;
            let until = self.config.ttl.negative_expiry(now, None);
            return self.replace_record(now, host, Record::Nothing { until });
        }
        self.back_off(now, host);
    }

    /// The name servers did not say: try again later, and later still.
    fn back_off(&mut self, now: Instant, host: HostId) {
        if self.hosts[host].unanswered == 0 {
            self.hosts[host].asked_first = now;
        }
        let unanswered = &mut self.hosts[host].unanswered;
        let delay = Duration::from_secs(1 << (*unanswered).min(6)).min(BACK_OFF_MAX);
        *unanswered = unanswered.saturating_add(1);
        self.set_question(host, Question::BackOff);
        let jitter = Duration::from_micros(self.rng.u64(..delay.as_micros() as u64 / 4));
        self.host_timers.set(host, now + delay + jitter);
        self.counters.lookups_unanswered += 1;
    }

    /// A host's timer: its name is to be asked for again, or it may leave the bench.
    pub(super) fn handle_host_timer(&mut self, now: Instant, host: HostId) {
        if self.hosts[host].question == Question::BackOff {
            self.set_question(host, Question::No);
        }
        if self.hosts[host].ip.is_some() {
            self.unbench(now, host);
        }
        if self.hosts[host].has_work() {
            self.look_at(now, host);
        }
    }

    /// What to do about the host's name.
    pub(super) fn advice(&self, now: Instant, host: HostId) -> Advice {
        let host = &self.hosts[host];
        host.record.advice(now, &self.config.ttl, host.unanswered > 0)
    }

    /// Asks for what is not known of a host with work, and ends its documents if there is no hope.
    pub(super) fn mind_name(&mut self, now: Instant, host: HostId) {
        let waits_for_slot = self.hosts[host].place == Place::Leftover;
        match self.advice(now, host) {
            Advice::Use => {}
            // In the leftover its turn may be far away: a stale address is good enough for the IP map.
            Advice::UseAndRefresh | Advice::Ask if waits_for_slot && self.hosts[host].ip.is_some() => {}
            Advice::UseAndRefresh | Advice::Ask => self.ask(host),
            Advice::Fail | Advice::Deny => self.start_draining(now, host),
        }
    }

    fn set_question(&mut self, host: HostId, question: Question) {
        let before = std::mem::replace(&mut self.hosts[host].question, question);
        self.unresolved += u64::from(question != Question::No);
        self.unresolved -= u64::from(before != Question::No);
    }

    fn ask(&mut self, host: HostId) {
        if self.hosts[host].draining {
            return;
        }
        let urgent = self.hosts[host].place != Place::Leftover && self.hosts[host].unanswered == 0;
        match self.hosts[host].question {
            Question::No => {}
            Question::Queued { urgent: false } if urgent => {
                self.errand_links.remove(&mut self.ask_later, host);
            }
            Question::Queued { .. } | Question::Asked | Question::BackOff => return,
        }
        self.set_question(host, Question::Queued { urgent });
        let line = if urgent { &mut self.ask_first } else { &mut self.ask_later };
        self.errand_links.push_back(line, host);
    }

    /// Whether the host has an address to send to.
    pub(super) fn has_address(&mut self, now: Instant, host: HostId) -> bool {
        match self.advice(now, host) {
            Advice::Use => {}
            Advice::UseAndRefresh => self.ask(host),
            Advice::Ask | Advice::Fail | Advice::Deny => return false,
        }
        self.hosts[host].ip.is_some()
    }

    /// Replaces all that is known of a name. What is in flight stays with the address it went to.
    pub(super) fn replace_record(&mut self, now: Instant, host: HostId, record: Record) {
        for &ip in record.addresses() {
            if self.ips[ip].records == 0 {
                self.idle_ip_links.remove(&mut self.idle_ips, ip);
            }
            self.ips[ip].records += 1;
        }
        let old = std::mem::replace(&mut self.hosts[host].record, record);
        self.choose_address(now, host);
        for &ip in old.addresses() {
            self.ips[ip].records -= 1;
            if self.ips[ip].records == 0 {
                self.idle_ip_links.push_back(&mut self.idle_ips, ip);
            }
        }
    }

    /// Moves the host to the first address that is up, else to the first that may be tried, else to the one
    /// that may be tried soonest. The order is stable, so hosts with the same addresses use the same one.
    pub(super) fn choose_address(&mut self, now: Instant, host: HostId) {
        let rank = |&ip: &IpId| match self.ips[ip].health.state(now) {
            HealthState::Up => (0, Instant::ZERO),
            HealthState::Suspect => (1, Instant::ZERO),
            HealthState::Down { until } => (2, until),
        };
        let best = self.hosts[host].record.addresses().iter().copied().min_by_key(rank);
        if best != self.hosts[host].ip {
            self.move_to(now, host, best);
        }
    }

    fn move_to(&mut self, now: Instant, host: HostId, ip: Option<IpId>) {
        let pending = self.hosts[host].pending() as u32;
        if let Some(old) = self.hosts[host].ip {
            self.ip_links.remove(&mut self.ips[old].hosts, host);
            self.ips[old].host_count -= 1;
            self.drop_pending_on(old, pending);
        }
        self.hosts[host].ip = ip;
        if let Some(new) = ip {
            self.ip_links.push_back(&mut self.ips[new].hosts, host);
            self.ips[new].host_count += 1;
            self.add_pending_on(new, pending);
        }
        let address = ip.map(|ip| self.ips[ip].address);
        let group = self.groups.of(self.hosts.name(host), address);
        self.hosts[host].group = group.map(|number| self.group_gates[number as usize]);
        self.stop_waiting(now, host);
    }

    /// The host waits for the wrong thing, or for nothing any more: look at it again from the beginning.
    fn look_at_anew(&mut self, now: Instant, host: HostId) {
        if self.hosts[host].ip.is_some() {
            self.unbench(now, host);
        }
        if self.hosts[host].has_work() {
            self.look_at(now, host);
        }
        if self.hosts[host].question == Question::BackOff && self.hosts[host].ip.is_none() {
            self.bench_without_answer(now, host);
        }
        self.refresh_in_line(now, host);
    }

    /// A host that waits for its address is asked for again when its record ends: it may have moved to where
    /// nobody waits.
    pub(super) fn refresh_in_line(&mut self, now: Instant, host: HostId) {
        let Some(Wait::Gate(gate)) = self.hosts[host].slot().map(|slot| self.slots[slot].wait) else {
            return;
        };
        let at_ip = matches!(self.gates[gate].owner(), GateOwner::Ip(_));
        let Record::Known { expires, .. } = self.hosts[host].record else { return };
        if at_ip && expires != Instant::FAR && self.hosts[host].question == Question::No {
            self.host_timers.set(host, expires.max(now));
        }
    }

    fn ip_of(&mut self, now: Instant, address: IpAddr) -> IpId {
        if let Some(ip) = self.ips.find(address) {
            return ip;
        }
        let pace = if self.groups.is_exempt(address) { Pace::FREE } else { self.config.ip };
        let gate = self.gates.add(GateOwner::Ip(IpId::from_index(0)), pace);
        let ip = self.ips.add(address, gate);
        self.gates[gate].set_owner(GateOwner::Ip(ip));
        self.idle_ip_links.push_back(&mut self.idle_ips, ip);
        self.restore_ip(now, ip);
        ip
    }
}

/// The families as given, each sorted, each address once, no more than [`ADDRESSES_MAX`].
fn in_stable_order(addresses: &mut Vec<IpAddr>) {
    let v6_first = addresses.first().is_some_and(IpAddr::is_ipv6);
    addresses.sort_by_key(|ip| (ip.is_ipv6() != v6_first, *ip));
    addresses.dedup();
    addresses.truncate(ADDRESSES_MAX);
}

/// The address that a name is by itself.
pub(super) fn literal(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    bare.unwrap_or(name).parse().ok()
}
