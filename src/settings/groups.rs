//! The tables of the settings file: hosts that share one politeness, and zones with their own name servers.
//!
//! Not here: which gate a group becomes. That is the scheduler's.

use super::file::{Content, Entry, File, Node};
use super::units::{Factor, PerSecond, PositiveOrInf, Rate, Reader, Time};
use super::values::{NameServers, Robots};
use crate::url::host_name;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

/// Hosts that are one to politeness.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alias {
    /// One word; never a domain name.
    pub name: String,
    /// Lower case, punycode, no trailing dot; in no other alias.
    pub hosts: Vec<String>,
}

/// Hosts or addresses with a limit of their own, on top of the hosts'.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// One word; never a domain name.
    pub name: String,
    /// Members by name.
    pub hosts: Vec<HostPattern>,
    /// Members by address.
    pub cidr: Vec<Cidr>,
    /// Most URLs of the group in flight; `Some(None)` = no limit; `None` = not given: as for a host.
    pub concurrent: Option<Option<NonZeroU32>>,
    /// Most sends per second; `None` = not given: as for a host.
    pub per_sec: Option<Rate>,
    /// Not given: as for a host.
    pub delay_factor: Option<f64>,
    /// Not given: as for a host.
    pub delay_min: Option<Duration>,
    /// Not given: as for a host.
    pub delay_max: Option<Duration>,
    /// Not given: as for all hosts.
    pub robots: Option<Robots>,
}

impl Group {
    /// Whether the limit per IP address is lifted for the addresses in `cidr`, as for a CDN.
    pub fn lifts_ip_limit(&self) -> bool {
        let unlimited = self.per_sec.is_some_and(Rate::is_unlimited) && self.concurrent == Some(None);
        unlimited && !self.cidr.is_empty()
    }
}

/// Which hosts a group means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostPattern {
    /// This one.
    Exact(String),
    /// Every name below this domain, itself not included.
    Below(String),
}

impl HostPattern {
    /// Whether `host` (lower case, no trailing dot) is meant.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Exact(name) => host == name,
            HostPattern::Below(domain) => {
                host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }

    fn parse(text: &str) -> Option<HostPattern> {
        match text.strip_prefix("*.").or_else(|| text.strip_prefix('.')) {
            Some(domain) => host_name(domain).map(HostPattern::Below),
            None => host_name(text).map(HostPattern::Exact),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

/// A block of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cidr {
    first: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Its first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// How many bits count.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether `address` lies in the block. A v4-mapped address is an IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        masked(address.to_canonical(), self.prefix) == Some(self.first)
    }

    /// `ADDRESS/BITS`, or one address. Bits of the host part must be zero: else one of the two is a slip.
    fn parse(text: &str) -> Option<Cidr> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let first: IpAddr = address.parse().ok()?;
        let whole = if first.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => whole,
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        (masked(first, prefix) == Some(first)).then_some(Cidr { first, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

/// The first address of the block of this size around `address`; `None` if there is no such size.
fn masked(address: IpAddr, prefix: u8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => {
            let host_bits = 32_u32.checked_sub(prefix.into())?;
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(Ipv4Addr::from_bits(v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let host_bits = 128_u32.checked_sub(prefix.into())?;
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(Ipv6Addr::from_bits(v6.to_bits() & mask).into())
        }
    }
}

/// All tables of one file.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Tables {
    pub(super) aliases: Vec<Alias>,
    pub(super) groups: Vec<Group>,
    pub(super) dns_zones: BTreeMap<String, Vec<SocketAddr>>,
}

impl Tables {
    /// Takes the entry if it is one of the tables.
    pub(super) fn take(&mut self, key: &str, entry: &Entry, file: &mut File) -> bool {
        match key {
            "alias" => self.take_aliases(&entry.value, file),
            "group" => self.take_groups(&entry.value, file),
            "dns_zones" => self.take_zones(&entry.value, file),
            _ => return false,
        }
        true
    }

    fn take_aliases(&mut self, node: &Node, file: &mut File) {
        let Content::Table(entries) = &node.content else {
            return file.refuse("alias", node, "a table: NAME = [\"HOST\", …]");
        };
        for Entry { key: name, line, value } in entries {
            let setting = format!("alias.{name}");
            if !is_word(name) {
                file.refuse("alias", &name_node(name, *line), WORD);
            }
            if self.is_named(name) {
                file.twice(&setting, *line);
            }
            let hosts = hosts(&setting, value, file, host_name);
            for host in &hosts {
                if self.aliases.iter().any(|alias| alias.hosts.contains(host)) {
                    file.refuse(&setting, &name_node(host, value.line), "in one alias only");
                }
            }
            self.aliases.push(Alias { name: name.clone(), hosts });
        }
    }

    fn take_groups(&mut self, node: &Node, file: &mut File) {
        let Content::List(tables) = &node.content else {
            return file.refuse("group", node, "tables: [[group]]");
        };
        for table in tables {
            let Content::Table(entries) = &table.content else {
                file.refuse("group", table, "tables: [[group]]");
                continue;
            };
            let group = group(entries, table, file);
            if !group.name.is_empty() && self.is_named(&group.name) {
                file.twice(format!("group.{}", group.name), table.line);
            }
            self.groups.push(group);
        }
    }

    fn take_zones(&mut self, node: &Node, file: &mut File) {
        let Content::Table(entries) = &node.content else {
            return file.refuse("dns_zones", node, "a table: \"DOMAIN\" = [\"IP:PORT\", …]");
        };
        for Entry { key, line, value } in entries {
            let domain = key.strip_prefix("*.").or_else(|| key.strip_prefix('.')).unwrap_or(key);
            let servers = read::<NameServers>(&format!("dns_zones.{key}"), value, file);
            match host_name(domain) {
                None => file.refuse("dns_zones", &name_node(key, *line), "a domain name"),
                Some(domain) if self.dns_zones.contains_key(&domain) => {
                    file.twice(format!("dns_zones.{domain}"), *line)
                }
                Some(domain) => drop(self.dns_zones.insert(domain, servers.unwrap_or_default())),
            }
        }
    }

    /// Aliases and groups share one set of names, whatever their case.
    fn is_named(&self, name: &str) -> bool {
        let aliases = self.aliases.iter().map(|alias| &alias.name);
        let groups = self.groups.iter().map(|group| &group.name);
        aliases.chain(groups).any(|other| other.eq_ignore_ascii_case(name))
    }
}

fn group(entries: &[Entry], table: &Node, file: &mut File) -> Group {
    let mut fields = Fields::new(entries, table, file);
    let group = Group {
        name: std::mem::take(&mut fields.name),
        hosts: fields.hosts("hosts", HostPattern::parse),
        cidr: fields.list("cidr", Cidr::parse, "addresses or blocks like `192.0.2.0/24`, host bits zero"),
        concurrent: fields.value::<PositiveOrInf>("concurrent"),
        per_sec: fields.value::<PerSecond>("per_sec"),
        delay_factor: fields.value::<Factor>("delay_factor"),
        delay_min: fields.value::<Time>("delay_min"),
        delay_max: fields.value::<Time>("delay_max"),
        robots: fields.value::<Robots>("robots"),
    };
    fields.refuse_the_rest();
    if group.hosts.is_empty() && group.cidr.is_empty() {
        file.refuse(format!("group.{}", group.name), table, "given `hosts` or `cidr`");
    }
    group
}

/// The entries of one `[[group]]`, taken one by one.
struct Fields<'a> {
    name: String,
    /// What problems call the group.
    label: String,
    left: BTreeMap<String, &'a Entry>,
    file: &'a mut File,
}

impl<'a> Fields<'a> {
    fn new(entries: &'a [Entry], table: &Node, file: &'a mut File) -> Fields<'a> {
        let mut fields = Fields { name: String::new(), label: "group".into(), left: BTreeMap::new(), file };
        for entry in entries {
            if fields.left.insert(entry.key.to_ascii_lowercase(), entry).is_some() {
                fields.file.twice(format!("group.{}", entry.key), entry.line);
            }
        }
        match fields.left.remove("name").map(|entry| &entry.value) {
            Some(Node { content: Content::Scalar(name), .. }) if is_word(name) => {
                fields.label = format!("group.{name}");
                fields.name = name.clone();
            }
            Some(node) => fields.file.refuse("group.name", node, WORD),
            None => fields.file.refuse("group", table, format!("given a `name`: {WORD}")),
        }
        fields
    }

    fn value<R: Reader>(&mut self, key: &str) -> Option<R::Value> {
        let entry = self.left.remove(key)?;
        read::<R>(&format!("{}.{key}", self.label), &entry.value, self.file)
    }

    fn hosts<T>(&mut self, key: &str, parse: fn(&str) -> Option<T>) -> Vec<T> {
        self.list(key, parse, HOSTS)
    }

    fn list<T>(&mut self, key: &str, parse: fn(&str) -> Option<T>, allowed: &str) -> Vec<T> {
        let Some(entry) = self.left.remove(key) else { return Vec::new() };
        list(&format!("{}.{key}", self.label), &entry.value, self.file, parse, allowed)
    }

    fn refuse_the_rest(self) {
        for entry in self.left.values() {
            self.file.unknown(format!("{}.{}", self.label, entry.key), entry.line);
        }
    }
}

const WORD: &str = "one word of letters, digits, `_` and `-`";
const HOSTS: &str = "a list of host names, at least one (in groups also `*.example.com`)";

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn read<R: Reader>(setting: &str, node: &Node, file: &mut File) -> Option<R::Value> {
    let value = node.items().and_then(|items| R::read_items(&items));
    if value.is_none() {
        file.refuse(setting, node, R::allowed());
    }
    value
}

fn hosts<T>(setting: &str, node: &Node, file: &mut File, parse: fn(&str) -> Option<T>) -> Vec<T> {
    list(setting, node, file, parse, HOSTS)
}

/// One or many; what is refused is named and left out.
fn list<T>(
    setting: &str,
    node: &Node,
    file: &mut File,
    parse: fn(&str) -> Option<T>,
    allowed: &str,
) -> Vec<T> {
    let Some(items) = node.items().filter(|items| !items.is_empty()) else {
        file.refuse(setting, node, allowed);
        return Vec::new();
    };
    let mut values = Vec::with_capacity(items.len());
    for item in &items {
        match parse(item) {
            Some(value) => values.push(value),
            None => file.refuse(setting, &name_node(item, node.line), allowed),
        }
    }
    values
}

fn name_node(name: &str, line: usize) -> Node {
    Node { line, content: Content::Scalar(name.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(text: &str) -> (Tables, Vec<String>) {
        let (mut file, entries) = File::parse("x.toml", text);
        let mut tables = Tables::default();
        for entry in &entries {
            assert!(tables.take(&entry.key.to_ascii_lowercase(), entry, &mut file));
        }
        (tables, file.problems.iter().map(|problem| problem.to_string()).collect())
    }

    fn refused(text: &str, because: &str) {
        let (_, problems) = tables(text);
        assert!(problems.iter().any(|problem| problem.contains(because)), "{text}\n{problems:?}");
    }

    #[test]
    fn aliases_are_normalised() {
        let (tables, problems) =
            tables("[Alias]\nkommune = ['Rana.Kommune.NO.', 'bücher.example']\none = 'a.example'");
        assert_eq!(problems, [""; 0]);
        assert_eq!(tables.aliases[0].hosts, ["rana.kommune.no", "xn--bcher-kva.example"]);
        assert_eq!(tables.aliases[1].hosts, ["a.example"]);
    }

    #[test]
    fn aliases_that_cannot_be_are_refused() {
        refused(
            "[alias]\na = ['x.example']\nb = ['X.example.']",
            "alias.b = x.example (x.toml:3): must be in one",
        );
        refused("[alias]\n'a.b' = ['x.example']", "alias = a.b (x.toml:2): must be one word");
        refused("[alias]\na = []", "alias.a = [] (x.toml:2)");
        refused("[alias]\na = ['b c', '*.example']", "alias.a = *.example");
        refused("[alias]\na = ['b c', '*.example']", "alias.a = b c");
        refused("[alias]\na = 'x'\nA = 'y'", "alias.A (x.toml:3): given twice");
        refused("alias = 3", "alias = 3 (x.toml:1): must be a table");
    }

    #[test]
    fn groups_are_read_whole() {
        let (tables, problems) = tables(
            "[[group]]\nName = 'cdn'\nHosts = ['a.example', '*.B.example', '.c.example']\n\
             cidr = ['192.0.2.0/24', '2001:db8::/32', '198.51.100.7']\nconcurrent = inf\nper_sec = inf\n\
             delay_factor = 0\ndelay_min = '1ms'\ndelay_max = 2\nrobots = 'ignore'\n\
             [[group]]\nname = 'slow'\nhosts = 'd.example'\nper_sec = 0.5\nconcurrent = 2",
        );
        assert_eq!(problems, [""; 0]);
        let [cdn, slow] = &tables.groups[..] else { panic!("two groups") };
        let hosts: Vec<_> = cdn.hosts.iter().map(HostPattern::to_string).collect();
        assert_eq!(hosts, ["a.example", "*.b.example", "*.c.example"]);
        let blocks: Vec<_> = cdn.cidr.iter().map(Cidr::to_string).collect();
        assert_eq!(blocks, ["192.0.2.0/24", "2001:db8::/32", "198.51.100.7/32"]);
        assert!(cdn.lifts_ip_limit());
        assert_eq!(cdn.delay_min, Some(Duration::from_millis(1)));
        assert_eq!(cdn.robots, Some(Robots::Ignore));
        assert!(!slow.lifts_ip_limit());
        assert_eq!(slow.concurrent, Some(NonZeroU32::new(2)));
        assert_eq!(slow.delay_factor, None);
    }

    #[test]
    fn groups_that_cannot_be_are_refused() {
        refused("[[group]]\nhosts = ['a']", "given a `name`");
        refused("[[group]]\nname = 'a.b'\nhosts = ['a']", "group.name = a.b");
        refused("[[group]]\nname = 'a'", "must be given `hosts` or `cidr`");
        refused(
            "[[group]]\nname = 'a'\nhosts = ['a']\nspeed = 1",
            "group.a.speed (x.toml:4): there is no such",
        );
        refused("[[group]]\nname = 'a'\nhosts = ['a']\nper_sec = 0", "group.a.per_sec = 0 (x.toml:4)");
        refused("[[group]]\nname = 'a'\nhosts = ['a']\nconcurrent = 0", "group.a.concurrent = 0");
        refused("[[group]]\nname = 'a'\ncidr = ['192.0.2.1/24']", "group.a.cidr = 192.0.2.1/24");
        refused("[[group]]\nname = 'a'\nhosts = ['a']\nHosts = ['b']", "given twice");
        refused("[alias]\na = 'x'\n[[group]]\nname = 'A'\nhosts = ['a']", "group.A (x.toml:3): given twice");
        refused("[group]\nname = 'a'", "group = a table (x.toml:1): must be tables: [[group]]");
    }

    #[test]
    fn zones_have_their_own_servers() {
        let (tables, problems) =
            tables("[dns_zones]\n'Corp.Example.' = '10.0.0.1'\n'.lan' = ['10.0.0.2:5353']");
        assert_eq!(problems, [""; 0]);
        let zones: Vec<_> = tables.dns_zones.iter().map(|(zone, s)| format!("{zone} {}", s[0])).collect();
        assert_eq!(zones, ["corp.example 10.0.0.1:53", "lan 10.0.0.2:5353"]);
        refused("[dns_zones]\na = 'x'\n", "dns_zones.a = x (x.toml:2)");
        refused("[dns_zones]\n'a b' = '1.1.1.1'", "dns_zones = a b");
        refused("[dns_zones]\na = '1.1.1.1'\n'.A' = '1.1.1.1'", "dns_zones.a (x.toml:3): given twice");
    }

    #[test]
    fn patterns_mean_whole_labels() {
        let below = HostPattern::Below("example.com".into());
        assert!(below.matches("a.example.com"));
        assert!(below.matches("a.b.example.com"));
        for host in ["example.com", ".example.com", "anexample.com", "example.com.evil", ""] {
            assert!(!below.matches(host), "{host}");
        }
        assert!(HostPattern::Exact("a".into()).matches("a"));
        assert!(!HostPattern::Exact("a".into()).matches("b.a"));
    }

    #[test]
    fn blocks_hold_both_their_ends_and_no_more() {
        let holds = |block: &str, address: &str| {
            Cidr::parse(block).expect(block).contains(address.parse().expect(address))
        };
        for (first, last) in [("192.0.2.0", "192.0.2.255"), ("::ffff:192.0.2.0", "::ffff:192.0.2.255")] {
            assert!(holds("192.0.2.0/24", first) && holds("192.0.2.0/24", last));
        }
        assert!(!holds("192.0.2.0/24", "192.0.1.255") && !holds("192.0.2.0/24", "192.0.3.0"));
        assert!(holds("0.0.0.0/0", "255.255.255.255") && !holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("::/0", "2001:db8::1") && holds("2001:db8::1", "2001:db8::1"));
        assert!(!holds("2001:db8::/127", "2001:db8::2"));
        for text in ["", "/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/-1", "a/8"] {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }
}
