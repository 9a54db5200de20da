//! Which hosts and addresses share one politeness, beyond what a host and an address are by themselves.
//!
//! An alias makes several hosts behave as one. A group is a set of hosts (by name or by domain) and of
//! address ranges with limits of its own. A host has at most one alias, and one group: the first in the
//! order of the settings that names the host or holds its address.

use super::Rest;
use super::gates::Pace;
use hashbrown::HashMap;
use std::net::IpAddr;

/// One alias or group of the settings.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupRule {
    /// One word.
    pub name: Box<str>,
    /// Host names.
    pub hosts: Vec<Box<str>>,
    /// Domains: every host below them, not the domain itself. Without leading dot.
    pub domains: Vec<Box<str>>,
    /// Address ranges.
    pub ranges: Vec<IpRange>,
    /// How often the whole may be asked.
    pub pace: Pace,
    /// How long the whole rests after a fetch; `None`: only the hosts do.
    pub rest: Option<Rest>,
    /// Whether robots.txt is obeyed; `None`: as everywhere.
    pub robots: Option<bool>,
}

/// An address range in CIDR form. IPv4 and IPv6 never match each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpRange {
    /// Any address of the range.
    pub address: IpAddr,
    /// Bits that count.
    pub bits: u8,
}

impl IpRange {
    /// Whether `ip` lies in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let drop = 32 - u32::from(self.bits.min(32));
                (net.to_bits() ^ ip.to_bits()).checked_shr(drop).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let drop = 128 - u32::from(self.bits.min(128));
                (net.to_bits() ^ ip.to_bits()).checked_shr(drop).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The rules, ready to be asked.
#[derive(Default)]
pub(super) struct Groups {
    by_host: HashMap<Box<str>, u32>,
    by_domain: HashMap<Box<str>, u32>,
    ranges: Vec<(IpRange, u32)>,
    /// Ranges in which addresses have no limit of their own.
    exempt: Vec<IpRange>,
}

impl Groups {
    pub(super) fn new(rules: &[GroupRule]) -> Groups {
        let mut groups = Groups::default();
        for (number, rule) in (0..).zip(rules) {
            for host in &rule.hosts {
                groups.by_host.entry(host.clone()).or_insert(number);
            }
            for domain in &rule.domains {
                groups.by_domain.entry(domain.clone()).or_insert(number);
            }
            groups.ranges.extend(rule.ranges.iter().map(|&range| (range, number)));
            if rule.pace == Pace::FREE {
                groups.exempt.extend(&rule.ranges);
            }
        }
        groups
    }

    /// The first rule that names `host`, a domain above it, or a range around `ip`.
    pub(super) fn of(&self, host: &str, ip: Option<IpAddr>) -> Option<u32> {
        let named = self.by_host.get(host).copied();
        let domain = domains_above(host).filter_map(|d| self.by_domain.get(d).copied()).min();
        let range = ip.and_then(|ip| {
            self.ranges.iter().find(|(range, _)| range.contains(ip)).map(|&(_, number)| number)
        });
        [named, domain, range].into_iter().flatten().min()
    }

    /// Whether an address has no limit of its own.
    pub(super) fn is_exempt(&self, ip: IpAddr) -> bool {
        self.exempt.iter().any(|range| range.contains(ip))
    }
}

/// For `a.b.c`: `b.c`, `c`.
fn domains_above(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(host), |domain| domain.split_once('.').map(|(_, above)| above)).skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: &str, bits: u8) -> IpRange {
        IpRange { address: address.parse().expect(address), bits }
    }

    fn ip(address: &str) -> IpAddr {
        address.parse().expect(address)
    }

    fn rule(hosts: &[&str], domains: &[&str], ranges: &[IpRange]) -> GroupRule {
        GroupRule {
            name: "g".into(),
            hosts: hosts.iter().map(|&h| h.into()).collect(),
            domains: domains.iter().map(|&d| d.into()).collect(),
            ranges: ranges.to_vec(),
            pace: Pace { concurrent: 1, gap: crate::time::Duration::ZERO },
            rest: None,
            robots: None,
        }
    }

    #[test]
    fn ranges_hold_at_both_ends_also_across_the_sign_bit() {
        let wide = range("96.0.0.0", 2);
        for (address, inside) in
            [("63.255.255.255", false), ("64.0.0.0", true), ("127.255.255.255", true), ("128.0.0.0", false)]
        {
            assert_eq!(wide.contains(ip(address)), inside, "{address}");
        }
        assert!(range("0.0.0.0", 0).contains(ip("255.255.255.255")));
        assert!(!range("0.0.0.0", 0).contains(ip("::1")), "families never mix");
        assert!(range("2001:db8::", 32).contains(ip("2001:db8:ffff::1")));
        assert!(!range("2001:db8::", 32).contains(ip("2001:db9::")));
        assert!(range("192.0.2.7", 32).contains(ip("192.0.2.7")));
        assert!(!range("192.0.2.7", 32).contains(ip("192.0.2.6")));
    }

    #[test]
    fn the_first_rule_in_order_wins_however_it_matches() {
        let groups = Groups::new(&[
            rule(&["www.a.example"], &[], &[]),
            rule(&[], &["b.example"], &[range("192.0.2.0", 24)]),
            rule(&["x.b.example"], &["example"], &[range("192.0.0.0", 16)]),
        ]);
        assert_eq!(groups.of("www.a.example", Some(ip("192.0.2.1"))), Some(0));
        assert_eq!(groups.of("x.b.example", None), Some(1), "the domain stands before the name");
        assert_eq!(groups.of("xb.example", None), Some(2), "a domain ends at a dot");
        assert_eq!(groups.of("b.example", None), Some(2), "a domain does not hold itself");
        assert_eq!(groups.of("other.test", Some(ip("192.0.2.1"))), Some(1));
        assert_eq!(groups.of("other.test", Some(ip("192.0.3.1"))), Some(2));
        assert_eq!(groups.of("other.test", Some(ip("198.51.100.1"))), None);
    }

    #[test]
    fn only_a_limitless_range_exempts_its_addresses() {
        let mut cdn = rule(&[], &[], &[range("192.0.2.0", 24)]);
        cdn.pace = Pace::FREE;
        let groups = Groups::new(&[cdn, rule(&[], &[], &[range("198.51.100.0", 24)])]);
        assert!(groups.is_exempt(ip("192.0.2.9")));
        assert!(!groups.is_exempt(ip("198.51.100.9")));
    }
}
