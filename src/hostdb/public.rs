//! Which addresses are in public space.
//!
//! From the IANA special-purpose address registries: what they do not call globally reachable is
//! not public, and neither is multicast. An IPv6 address that carries an IPv4 one (mapped, NAT64,
//! 6to4) is judged by that one, so that no translator on the way leads into a private network.
//!
//! Not here: what to do about it (`allow_private` is the scheduler's).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Can `ip` be reached from anywhere, as one machine?
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => v4_inside(ip).map_or_else(|| is_public_v6(ip), is_public_v4),
    }
}

/// The one spelling of an address: v4-mapped IPv6 is IPv4. Limits per address count on it.
pub fn normalised(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let within = |nets: &[V4Net]| nets.iter().any(|net| net.contains(ip));
    within(&EXCEPTIONS_V4) || !within(&SPECIAL_V4)
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let within = |nets: &[V6Net]| nets.iter().any(|net| net.contains(ip));
    within(&EXCEPTIONS_V6) || (GLOBAL_UNICAST.contains(ip) && !within(&SPECIAL_V6))
}

/// The IPv4 address that a translator or tunnel would take out of `ip`.
fn v4_inside(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = ip.to_bits();
    let at = |shift: u32| Some(Ipv4Addr::from_bits((bits >> shift) as u32));
    if MAPPED.contains(ip) || NAT64.contains(ip) {
        at(0)
    } else if SIX_TO_FOUR.contains(ip) {
        at(80)
    } else {
        None
    }
}

struct V4Net(Ipv4Addr, u32);

impl V4Net {
    fn contains(&self, ip: Ipv4Addr) -> bool {
        (ip.to_bits() ^ self.0.to_bits()) >> (32 - self.1) == 0
    }
}

struct V6Net(Ipv6Addr, u32);

impl V6Net {
    fn contains(&self, ip: Ipv6Addr) -> bool {
        (ip.to_bits() ^ self.0.to_bits()) >> (128 - self.1) == 0
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u32) -> V4Net {
    V4Net(Ipv4Addr::new(a, b, c, d), bits)
}

/// A network given by the first four groups of its prefix.
const fn v6(a: u16, b: u16, c: u16, d: u16, bits: u32) -> V6Net {
    V6Net(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), bits)
}

const SPECIAL_V4: [V4Net; 15] = [
    v4(0, 0, 0, 0, 8),       // this network
    v4(10, 0, 0, 0, 8),      // private
    v4(100, 64, 0, 0, 10),   // carrier-grade NAT
    v4(127, 0, 0, 0, 8),     // loopback
    v4(169, 254, 0, 0, 16),  // link-local: cloud metadata lives here
    v4(172, 16, 0, 0, 12),   // private
    v4(192, 0, 0, 0, 24),    // protocol assignments
    v4(192, 0, 2, 0, 24),    // documentation
    v4(192, 88, 99, 0, 24),  // 6to4 relays, withdrawn
    v4(192, 168, 0, 0, 16),  // private
    v4(198, 18, 0, 0, 15),   // benchmarks
    v4(198, 51, 100, 0, 24), // documentation
    v4(203, 0, 113, 0, 24),  // documentation
    v4(224, 0, 0, 0, 4),     // multicast
    v4(240, 0, 0, 0, 4),     // reserved, broadcast
];

const EXCEPTIONS_V4: [V4Net; 2] = [
    v4(192, 0, 0, 9, 32),  // port control anycast
    v4(192, 0, 0, 10, 32), // TURN anycast
];

const MAPPED: V6Net = V6Net(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);
const NAT64: V6Net = v6(0x64, 0xff9b, 0, 0, 96);
const SIX_TO_FOUR: V6Net = v6(0x2002, 0, 0, 0, 16);

/// All that has been given out so far; the rest (loopback, unique local, link-local, site-local,
/// multicast, v4-compatible, discard-only, local NAT64, segment routing…) lies outside.
const GLOBAL_UNICAST: V6Net = v6(0x2000, 0, 0, 0, 3);

const SPECIAL_V6: [V6Net; 3] = [
    v6(0x2001, 0, 0, 0, 23),     // protocol assignments, Teredo among them
    v6(0x2001, 0xdb8, 0, 0, 32), // documentation
    v6(0x3fff, 0, 0, 0, 20),     // documentation
];

const EXCEPTIONS_V6: [V6Net; 7] = [
    V6Net(Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 1), 128), // port control anycast
    V6Net(Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 2), 128), // TURN anycast
    V6Net(Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 3), 128), // service registration anycast
    v6(0x2001, 3, 0, 0, 32),                                // automatic multicast tunnelling
    v6(0x2001, 4, 0x112, 0, 48),                            // AS112
    v6(0x2001, 0x20, 0, 0, 28),                             // ORCHIDv2
    v6(0x2001, 0x30, 0, 0, 28),                             // drone identifiers
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn public(text: &str) -> bool {
        is_public(text.parse().unwrap())
    }

    #[test]
    fn special_v4_networks_end_where_they_end() {
        // (last public one before, first inside, last inside, first public one after)
        let edges = [
            ("", "0.0.0.0", "0.255.255.255", "1.0.0.0"),
            ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
            ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"),
            ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"),
            ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"),
            ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"),
            ("191.255.255.255", "192.0.0.0", "192.0.0.8", "192.0.0.9"),
            ("192.0.0.10", "192.0.0.11", "192.0.0.255", "192.0.1.0"),
            ("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"),
            ("192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0"),
            ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"),
            ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"),
            ("198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0"),
            ("203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0"),
            ("223.255.255.255", "224.0.0.0", "255.255.255.255", ""),
        ];
        check(&edges);
    }

    #[test]
    fn special_v6_networks_end_where_they_end() {
        let edges = [
            ("", "::", "::1", ""),
            ("", "::2", "::ffff", ""),
            ("", "::8.8.8.8", "::fffe:ffff:ffff", ""),
            ("", "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", ""),
            ("", "64:ff9b::1:808:808", "64:ff9a:ffff:ffff:ffff:ffff:808:808", ""),
            ("", "100::", "100::ffff:ffff:ffff:ffff", ""),
            ("", "100:0:0:1::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2000::"),
            ("2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001::", "2001:1::", "2001:1::1"),
            ("2001:1::3", "2001:1::4", "2001:2:ffff:ffff:ffff:ffff:ffff:ffff", "2001:3::"),
            ("2001:3:ffff:ffff:ffff:ffff:ffff:ffff", "2001:4::", "2001:4:111::1", "2001:4:112::"),
            ("2001:4:112:ffff:ffff:ffff:ffff:ffff", "2001:4:113::", "2001:1f::", "2001:20::"),
            ("2001:3f::1", "2001:40::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"),
            ("2001:db7:ffff::", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"),
            ("3ffe:ffff::", "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"),
            ("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "4000::", "5f00::1", ""),
            ("", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
            ("", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
            ("", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
            ("", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
        ];
        check(&edges);
    }

    fn check(edges: &[(&str, &str, &str, &str)]) {
        for &(before, first, last, after) in edges {
            assert!(!public(first), "{first}");
            assert!(!public(last), "{last}");
            assert!(before.is_empty() || public(before), "{before}");
            assert!(after.is_empty() || public(after), "{after}");
        }
    }

    #[test]
    fn carried_v4_addresses_are_judged_themselves() {
        for carrier in ["::ffff:", "64:ff9b::"] {
            assert!(public(&format!("{carrier}8.8.8.8")), "{carrier}");
            assert!(!public(&format!("{carrier}169.254.169.254")), "{carrier}");
            assert!(!public(&format!("{carrier}127.0.0.1")), "{carrier}");
        }
        assert!(public("2002:808:808::1"));
        assert!(!public("2002:a9fe:a9fe::1"));
        assert!(!public("2002:7f00:1::"));
    }

    #[test]
    fn only_mapped_addresses_have_another_spelling() {
        let normal = |text: &str| normalised(text.parse().unwrap()).to_string();
        assert_eq!(normal("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(normal("192.0.2.7"), "192.0.2.7");
        assert_eq!(normal("2001:db8::7"), "2001:db8::7");
        assert_eq!(normal("::192.0.2.7"), "::c000:207");
        assert_eq!(normal("64:ff9b::192.0.2.7"), "64:ff9b::c000:207");
    }
}
