//! What name servers say, read and combined: no I/O.
//!
//! A name is asked about once per family. Here each reply becomes an [`Answer`], and the answers
//! of all families one [`Resolution`].

use super::public::normalised;
use super::resolver::Family;
use super::{ADDRESSES_MAX, Resolution};
use crate::time::Duration;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record};
use std::net::IpAddr;
use tracing::debug;

/// What one question about one family came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// At least one record; its address may still be one that nobody can use.
    Addresses { addresses: Vec<IpAddr>, ttl: Duration },
    /// The name is there, without an address of this family (NODATA).
    NoAddress { ttl: Option<Duration> },
    /// The name does not exist (NXDOMAIN).
    NoName { ttl: Option<Duration> },
    /// Nothing that can be believed.
    Failed,
}

/// Reads the reply to a question about `name`.
pub(super) fn read(name: &Name, reply: Result<Lookup, NetError>) -> Answer {
    match reply {
        Ok(lookup) => read_records(name, lookup.answers()),
        Err(NetError::Dns(DnsError::NoRecordsFound(nothing))) => read_nothing(&nothing),
        Err(error) => {
            debug!(%name, %error, "no answer from a name server");
            Answer::Failed
        }
    }
}

fn read_nothing(nothing: &NoRecords) -> Answer {
    let ttl = nothing.negative_ttl.map(lifetime);
    // Name servers to ask instead, and no word about the zone: this one does not recurse for us.
    let referral = nothing.soa.is_none() && nothing.ns.is_some();
    match nothing.response_code {
        ResponseCode::NXDomain => Answer::NoName { ttl },
        ResponseCode::NoError if !referral => Answer::NoAddress { ttl },
        _ => Answer::Failed,
    }
}

/// Only what lies on the chain of aliases from `name` counts; the shortest-lived link decides.
fn read_records(name: &Name, records: &[Record]) -> Answer {
    let (end, chain_ttl) = follow_aliases(name, records);
    let mut ttl = chain_ttl;
    let mut addresses = Vec::new();
    for record in records.iter().filter(|record| record.name == *end) {
        if let Some(address) = address(&record.data) {
            addresses.push(address);
            ttl = ttl.min(lifetime(record.ttl));
        }
    }
    if addresses.is_empty() { Answer::Failed } else { Answer::Addresses { addresses, ttl } }
}

/// Where the aliases among `records` lead, in whatever order they stand; a loop is left after as many
/// steps as there are records.
fn follow_aliases<'a>(name: &'a Name, records: &'a [Record]) -> (&'a Name, Duration) {
    let mut end = name;
    let mut ttl = Duration::MAX;
    for _ in records {
        let alias = records.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *end => Some((&target.0, record.ttl)),
            _ => None,
        });
        let Some((target, link_ttl)) = alias else { break };
        end = target;
        ttl = ttl.min(lifetime(link_ttl));
    }
    (end, ttl)
}

fn address(data: &RData) -> Option<IpAddr> {
    match data {
        RData::A(ip) => Some(ip.0.into()),
        RData::AAAA(ip) => Some(ip.0.into()),
        _ => None,
    }
}

/// A TTL with its highest bit set counts as zero (RFC 2181, 8).
fn lifetime(ttl_seconds: u32) -> Duration {
    let believable = i32::try_from(ttl_seconds).is_ok();
    Duration::from_secs(if believable { ttl_seconds.into() } else { 0 })
}

/// One answer from those of all families asked. `families` are asked once each; an answer that
/// is missing has failed.
///
/// An address wins over everything: some name servers say NXDOMAIN to AAAA for names that have A
/// records (RFC 4074, 4.2). Without one, a name that does not exist for one family does not
/// exist; NODATA is final only if all families say it.
pub(super) fn combine(families: &[Family], answers: &[Answer]) -> Resolution {
    let mut addresses = Vec::new();
    let mut ttl = Duration::MAX;
    let mut negative_ttl: Option<Duration> = None;
    let mut no_name = false;
    let mut failed = answers.len() < families.len();
    for answer in answers {
        match answer {
            Answer::Addresses { addresses: found, ttl: lifetime } => {
                addresses.extend_from_slice(found);
                ttl = ttl.min(*lifetime);
            }
            Answer::NoAddress { ttl } => negative_ttl = shorter(negative_ttl, *ttl),
            Answer::NoName { ttl } => {
                no_name = true;
                negative_ttl = shorter(negative_ttl, *ttl);
            }
            Answer::Failed => failed = true,
        }
    }
    if !addresses.is_empty() {
        settle(families, addresses, ttl)
    } else if no_name || !failed {
        Resolution::Nothing { ttl: negative_ttl }
    } else {
        Resolution::Unavailable
    }
}

fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

/// The usable ones of `addresses`, in order of preference. A name whose addresses are all of no
/// use (a block list's 0.0.0.0, a family that is switched off) has none, for as long.
pub(super) fn settle(families: &[Family], addresses: Vec<IpAddr>, ttl: Duration) -> Resolution {
    let mut usable = Vec::new();
    for family in families {
        for ip in addresses.iter().copied().map(normalised) {
            if Family::of(ip) == *family && !ip.is_unspecified() && !usable.contains(&ip) {
                usable.push(ip);
            }
        }
    }
    usable.truncate(ADDRESSES_MAX);
    if usable.is_empty() {
        Resolution::Nothing { ttl: Some(ttl) }
    } else {
        Resolution::Addresses { addresses: usable, ttl }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BOTH: [Family; 2] = [Family::V4, Family::V6];

    fn seconds(ttl: u64) -> Duration {
        Duration::from_secs(ttl)
    }

    fn found(texts: &[&str], ttl: u64) -> Answer {
        Answer::Addresses {
            addresses: texts.iter().map(|text| text.parse().unwrap()).collect(),
            ttl: seconds(ttl),
        }
    }

    fn resolved(texts: &[&str], ttl: u64) -> Resolution {
        Resolution::Addresses {
            addresses: texts.iter().map(|text| text.parse().unwrap()).collect(),
            ttl: seconds(ttl),
        }
    }

    #[test]
    fn every_pair_of_answers_has_one_meaning() {
        let v4 = || found(&["192.0.2.1"], 30);
        let no_address = |ttl: u64| Answer::NoAddress { ttl: Some(seconds(ttl)) };
        let no_name = |ttl: u64| Answer::NoName { ttl: Some(seconds(ttl)) };
        let nothing = |ttl: u64| Resolution::Nothing { ttl: Some(seconds(ttl)) };
        let alone = resolved(&["192.0.2.1"], 30);
        let cases = [
            (v4(), found(&["2001:db8::1"], 20), resolved(&["192.0.2.1", "2001:db8::1"], 20)),
            (v4(), no_address(5), alone.clone()),
            (v4(), no_name(5), alone.clone()),
            (v4(), Answer::Failed, alone),
            (no_address(9), no_address(7), nothing(7)),
            (no_address(9), Answer::NoAddress { ttl: None }, nothing(9)),
            (no_name(9), no_address(7), nothing(7)),
            (no_name(9), no_name(7), nothing(7)),
            (no_name(9), Answer::Failed, nothing(9)),
            (no_address(9), Answer::Failed, Resolution::Unavailable),
            (Answer::Failed, Answer::Failed, Resolution::Unavailable),
        ];
        for (one, other, meaning) in cases {
            assert_eq!(combine(&BOTH, &[one.clone(), other.clone()]), meaning, "{one:?} {other:?}");
            assert_eq!(combine(&BOTH, &[other.clone(), one.clone()]), meaning, "{other:?} {one:?}");
        }
    }

    #[test]
    fn an_answer_that_is_missing_has_failed() {
        assert_eq!(combine(&BOTH, &[]), Resolution::Unavailable);
        assert_eq!(combine(&BOTH, &[Answer::NoAddress { ttl: None }]), Resolution::Unavailable);
        assert_eq!(combine(&BOTH, &[found(&["192.0.2.1"], 3)]), resolved(&["192.0.2.1"], 3));
        let only_v4 = combine(&[Family::V4], &[Answer::NoAddress { ttl: None }]);
        assert_eq!(only_v4, Resolution::Nothing { ttl: None });
    }

    #[test]
    fn a_mapped_address_counts_as_the_family_it_is() {
        let answers = [found(&["::ffff:192.0.2.1", "2001:db8::1"], 9), found(&["192.0.2.1"], 9)];
        assert_eq!(combine(&BOTH, &answers), resolved(&["192.0.2.1", "2001:db8::1"], 9));
        assert_eq!(combine(&[Family::V6], &answers[..1]), resolved(&["2001:db8::1"], 9));
    }

    #[test]
    fn lifetimes_out_of_range_count_as_zero() {
        assert_eq!(lifetime(i32::MAX as u32), seconds(i32::MAX as u64));
        assert_eq!(lifetime(i32::MAX as u32 + 1), Duration::ZERO);
        assert_eq!(lifetime(u32::MAX), Duration::ZERO);
    }
}
