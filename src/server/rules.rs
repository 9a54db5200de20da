//! Settings into the rules of the scheduler and of the resolver.

use crate::hostdb::health::HealthRule;
use crate::hostdb::records::TtlRule;
use crate::hostdb::{Family, ResolverConfig, Servers};
use crate::scheduler::{Config, Families, GroupRule, IpRange, Pace, Rest, Trial};
use crate::settings::{self, Alias, Group, HostPattern, IndexAt, Robots, Settings};
use std::num::NonZeroU32;

/// What the scheduler keeps to; `seed` is where its jitter comes from.
pub fn scheduler_config(settings: &Settings, seed: u64) -> Config {
    Config {
        queue_count: settings.queue_count,
        queue_len: settings.queue_len,
        host: host_pace(settings),
        ip: Pace {
            concurrent: settings.req_ip_concurrent.map_or(u32::MAX, NonZeroU32::get),
            gap: settings.req_ip_per_sec.gap(),
        },
        ip_max_urls: settings.ip_max_urls.map_or(0, NonZeroU32::get),
        rest: host_rest(settings),
        status_timeout: settings.timeout_spider_status,
        lease_max: settings.lease_max,
        max_attempts: settings.max_attempts.map_or(0, NonZeroU32::get),
        retry_delay: settings.retry_delay,
        spider_window: settings.spider_window.map(NonZeroU32::get),
        allow_private: settings.allow_private,
        families: Families {
            v4: settings.address_family.contains(&settings::Family::Ipv4),
            v6: settings.address_family.contains(&settings::Family::Ipv6),
        },
        robots: settings.robots == Robots::Obey,
        crawl_delay_max: settings.crawl_delay_max,
        ttl: TtlRule {
            min: settings.dns_ttl_min,
            max: settings.dns_ttl_max,
            negative: settings.dns_negative_ttl,
            serve_stale: settings.dns_serve_stale,
        },
        health: HealthRule {
            fail_threshold: settings.fail_threshold.get(),
            fail_window: settings.fail_window,
        },
        trial: match settings.probe {
            settings::Probe::Url => Trial::OneUrl,
            settings::Probe::Connect => Trial::Connect,
        },
        aliases: settings.aliases.iter().map(|alias| alias_rule(settings, alias)).collect(),
        groups: settings.groups.iter().map(|group| group_rule(settings, group)).collect(),
        index_is_exact: matches!(settings.index, IndexAt::Memory | IndexAt::Dir(_)),
        claims: matches!(settings.index, IndexAt::Postgres(_)),
        seed,
    }
}

/// Whom the resolver asks.
pub(super) fn resolver_config(settings: &Settings) -> ResolverConfig {
    let family = |family: &settings::Family| match family {
        settings::Family::Ipv4 => Family::V4,
        settings::Family::Ipv6 => Family::V6,
    };
    ResolverConfig {
        servers: match &settings.dns {
            settings::Dns::System => Servers::System,
            settings::Dns::Servers(servers) => Servers::List(servers.clone()),
        },
        zones: settings.dns_zones.clone().into_iter().collect(),
        hosts_file: settings.hosts_file.clone(),
        timeout: settings.dns_timeout,
        families: settings.address_family.iter().map(family).collect(),
    }
}

fn host_pace(settings: &Settings) -> Pace {
    Pace { concurrent: settings.req_host_concurrent.get(), gap: settings.req_host_per_sec.gap() }
}

fn host_rest(settings: &Settings) -> Rest {
    Rest { factor: settings.delay_factor, min: settings.delay_min, max: settings.delay_max }
}

/// The hosts of an alias behave as one: what holds for a host holds for all of them together.
fn alias_rule(settings: &Settings, alias: &Alias) -> GroupRule {
    GroupRule {
        name: alias.name.as_str().into(),
        hosts: alias.hosts.iter().map(|host| host.as_str().into()).collect(),
        domains: Vec::new(),
        ranges: Vec::new(),
        pace: host_pace(settings),
        rest: Some(host_rest(settings)),
        robots: None,
    }
}

/// What a group does not say is as for a host.
fn group_rule(settings: &Settings, group: &Group) -> GroupRule {
    let host = host_pace(settings);
    let rest = Rest {
        factor: group.delay_factor.unwrap_or(settings.delay_factor),
        min: group.delay_min.unwrap_or(settings.delay_min),
        max: group.delay_max.unwrap_or(settings.delay_max),
    };
    let mut rule = GroupRule {
        name: group.name.as_str().into(),
        hosts: Vec::new(),
        domains: Vec::new(),
        ranges: group
            .cidr
            .iter()
            .map(|cidr| IpRange { address: cidr.first(), bits: cidr.prefix() })
            .collect(),
        pace: Pace {
            concurrent: group
                .concurrent
                .map_or(host.concurrent, |limit| limit.map_or(u32::MAX, NonZeroU32::get)),
            gap: group.per_sec.map_or(host.gap, |rate| rate.gap()),
        },
        rest: (!group.lifts_ip_limit()).then_some(rest),
        robots: group.robots.map(|robots| robots == Robots::Obey),
    };
    for pattern in &group.hosts {
        match pattern {
            HostPattern::Exact(host) => rule.hosts.push(host.as_str().into()),
            HostPattern::Below(domain) => rule.domains.push(domain.as_str().into()),
        }
    }
    rule
}
