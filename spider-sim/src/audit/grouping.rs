//! Which groups a send belongs to, by the server's rules, read the dull way: all rules, in order.
//!
//! Deliberately not the scheduler's tables: the same slip in both would be silent.

use super::gate::GateLimit;
use crate::violation::GateKey;
use std::net::IpAddr;
use std::sync::Arc;
use urlserver::scheduler::{GroupRule, Pace};

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
        let in_range = |rule: &GroupRule| rule.ranges.iter().any(|range| range.contains(ip));
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
        free.flat_map(|(_, rule)| &rule.ranges).any(|range| range.contains(ip))
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
