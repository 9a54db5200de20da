//! Which groups a send belongs to, by the server's rules, read the dull way: all rules, in order.
//!
//! Deliberately not the scheduler's tables: the same slip in both would be silent.

use super::gate::GateLimit;
use crate::violation::GateKey;
use std::net::IpAddr;
use std::sync::Arc;
use urlserver::scheduler::{GroupRule, IpRange, Pace};

/// Aliases and groups of a server. No two of them have one name.
#[derive(Clone, Default, Debug)]
pub struct Grouping {
    aliases: Vec<(GateKey, GroupRule)>,
    groups: Vec<(GateKey, GroupRule)>,
}

impl Grouping {
    /// By these rules, in their order.
    pub fn new(aliases: &[GroupRule], groups: &[GroupRule]) -> Grouping {
        let keyed = |rules: &[GroupRule]| {
            rules.iter().map(|rule| (GateKey::Group(Arc::from(&*rule.name)), rule.clone())).collect()
        };
        Grouping { aliases: keyed(aliases), groups: keyed(groups) }
    }

    /// The alias of `host`, if it has one, then the first group that names it, a domain above it, or `ip`.
    pub fn of(&self, host: &str, ip: IpAddr) -> impl Iterator<Item = GateKey> {
        let alias = self.aliases.iter().find(|(_, rule)| names(rule, host));
        let in_range = |rule: &GroupRule| rule.ranges.iter().any(|range| holds(range, ip));
        let group = self.groups.iter().find(|(_, rule)| names(rule, host) || in_range(rule));
        [alias, group].into_iter().flatten().map(|(key, _)| key.clone())
    }

    /// The rule behind a key that [`Grouping::of`] gave.
    pub fn rule(&self, key: &GateKey) -> Option<&GroupRule> {
        let mut rules = self.aliases.iter().chain(&self.groups);
        rules.find(|(other, _)| other == key).map(|(_, rule)| rule)
    }

    /// Whether addresses like this one have no limit of their own: those of a CDN.
    pub fn is_exempt(&self, ip: IpAddr) -> bool {
        let free = self.groups.iter().filter(|(_, rule)| rule.pace == Pace::FREE);
        free.flat_map(|(_, rule)| &rule.ranges).any(|range| holds(range, ip))
    }

    /// The limit of every alias and group.
    pub fn limits(&self) -> impl Iterator<Item = (GateKey, GateLimit)> + '_ {
        self.aliases.iter().chain(&self.groups).map(|(key, rule)| (key.clone(), GateLimit::from(rule.pace)))
    }
}

impl From<Pace> for GateLimit {
    fn from(pace: Pace) -> GateLimit {
        let concurrent = (pace.concurrent != u32::MAX).then_some(pace.concurrent);
        GateLimit { concurrent, gap: pace.gap }
    }
}

fn names(rule: &GroupRule, host: &str) -> bool {
    let below = |domain: &str| host.strip_suffix(domain).is_some_and(|sub| sub.ends_with('.'));
    rule.hosts.iter().any(|name| **name == *host) || rule.domains.iter().any(|domain| below(domain))
}

/// Bit by bit, from the first on. The families never match each other.
fn holds(range: &IpRange, ip: IpAddr) -> bool {
    range.address.is_ipv4() == ip.is_ipv4() && (0..range.bits).all(|n| bit(range.address, n) == bit(ip, n))
}

fn bit(ip: IpAddr, n: u8) -> Option<bool> {
    let octet = usize::from(n / 8);
    let octet = match ip {
        IpAddr::V4(ip) => ip.octets().get(octet).copied(),
        IpAddr::V6(ip) => ip.octets().get(octet).copied(),
    };
    octet.map(|octet| octet & (0x80 >> (n % 8)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, hosts: &[&str], domains: &[&str], ranges: &[(&str, u8)]) -> GroupRule {
        let range =
            |&(address, bits): &(&str, u8)| IpRange { address: address.parse().expect(address), bits };
        GroupRule {
            name: name.into(),
            hosts: hosts.iter().map(|&host| host.into()).collect(),
            domains: domains.iter().map(|&domain| domain.into()).collect(),
            ranges: ranges.iter().map(range).collect(),
            pace: Pace { concurrent: 1, gap: urlserver::time::Duration::ZERO },
            rest: None,
            robots: None,
        }
    }

    #[test]
    fn the_first_rule_that_matches_by_name_domain_or_range() {
        let cdn = GroupRule { pace: Pace::FREE, ..rule("cdn", &[], &[], &[("192.0.0.0", 16)]) };
        let aliases = [rule("both", &["a.example", "b.example"], &[], &[])];
        let groups = [
            rule("named", &["a.example"], &[], &[]),
            rule("below", &[], &["d.example"], &[("2001:db8::", 32)]),
            rule("range", &[], &[], &[("192.0.2.128", 25), ("127.0.0.0", 8)]),
            cdn,
        ];
        let grouping = Grouping::new(&aliases, &groups);
        let cases = [
            ("a.example", "192.0.2.200", "group both, group named"),
            ("b.example", "192.0.2.200", "group both, group range"),
            ("x.d.example", "192.0.2.200", "group below"),
            ("d.example", "192.0.2.127", "group cdn"),
            ("xd.example", "192.0.2.128", "group range"),
            ("c.example", "2001:db8:ffff::1", "group below"),
            ("c.example", "2001:db9::1", ""),
            ("c.example", "128.0.0.0", ""),
            ("c.example", "127.255.255.255", "group range"),
            ("c.example", "::7f00:1", ""),
        ];
        for (host, ip, expected) in cases {
            let ip = ip.parse().expect(ip);
            let seen: Vec<String> = grouping.of(host, ip).map(|key| key.to_string()).collect();
            assert_eq!(seen.join(", "), expected, "{host} {ip}");
        }
        let exempt = |ip: &str| grouping.is_exempt(ip.parse().expect(ip));
        assert!(exempt("192.0.2.200"), "whoever came first for the group");
        assert!(!exempt("192.1.0.0") && !exempt("127.0.0.1"));
    }
}
