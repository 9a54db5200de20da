//! The health of addresses: what fetches say of it, and how a suspect one is tried.

use super::Scheduler;
use super::addresses::Probe;
use crate::ids::{HostId, IpId};
use crate::time::Instant;
use std::net::SocketAddr;

/// A connection to be made to a suspect address: exactly one [`Scheduler::handle_probed`] must follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trying {
    /// To be given back with the answer.
    pub ip: IpId,
    /// Where to connect to.
    pub address: SocketAddr,
}

impl Scheduler {
    /// The next address to connect to. The caller bounds how many are under way.
    #[must_use]
    pub fn poll_probe(&mut self) -> Option<Trying> {
        if self.orders.all_paused {
            return None;
        }
        let ip = self.probes.pop_front()?;
        self.ips[ip].probe = Probe::Asked;
        Some(Trying { ip, address: SocketAddr::new(self.ips[ip].address, self.ips[ip].port) })
    }

    /// The answer to a [`Trying`].
    pub fn handle_probed(&mut self, now: Instant, ip: IpId, reachable: bool) {
        if self.ips.table.get(ip).is_none_or(|ip| ip.probe != Probe::Asked) {
            return;
        }
        self.ips[ip].probe = Probe::No;
        if reachable {
            self.handle_reachable(now, ip);
        } else {
            self.handle_unreachable(now, ip);
        }
    }

    /// Somebody waits for an address that must be tried first.
    pub(super) fn want_probe(&mut self, ip: IpId) {
        if self.ips[ip].probe == Probe::No {
            self.ips[ip].probe = Probe::Queued;
            self.probes.push_back(ip);
        }
    }

    /// A fetch got through to `ip`. If it was down, the window is over, and its hosts need not wait for its end.
    pub(super) fn handle_reachable(&mut self, now: Instant, ip: IpId) {
        self.ips[ip].health.handle_success();
        if !self.ips[ip].unwell {
            return;
        }
        self.ips[ip].unwell = false;
        self.unwell_links.remove(&mut self.unwell, ip);
        let gate = self.ips[ip].gate;
        self.gates[gate].suspect = None;
        self.gates[gate].release();
        self.settle(now, gate);
        self.demand.handle_change();
        let hosts: Vec<HostId> = self.ip_links.iter(&self.ips[ip].hosts).collect();
        for host in hosts {
            self.unbench(now, host);
        }
    }

    /// A fetch did not get through to `ip`.
    pub(super) fn handle_unreachable(&mut self, now: Instant, ip: IpId) {
        if !self.ips[ip].health.handle_failure(now, self.config.health) {
            return;
        }
        if !self.ips[ip].unwell {
            self.ips[ip].unwell = true;
            self.unwell_links.push_back(&mut self.unwell, ip);
        }
        self.counters.addresses_down += 1;
        let gate = self.ips[ip].gate;
        self.gates[gate].suspect = Some(self.config.trial);
        self.gates[gate].hold(now + self.config.health.fail_window);
        let hosts: Vec<HostId> = self.ip_links.iter(&self.ips[ip].hosts).collect();
        for host in hosts {
            self.choose_address(now, host);
            if self.hosts[host].has_work() {
                self.stop_waiting(now, host);
                self.look_at(now, host);
            }
        }
    }
}
