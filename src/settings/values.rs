//! Settings that are not numbers: addresses, names, files, words to choose from.

use super::units::{Kind, NONE, Reader};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Where the documents come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexAt {
    /// In this process, for as long as it lives.
    Memory,
    /// In a directory, durable.
    Dir(PathBuf),
    /// In another process: `HOST:PORT`.
    Tcp(String),
    /// In a database shared with other servers: the whole URL.
    Postgres(String),
}

/// Who is asked for addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dns {
    /// The name servers this machine is set up with.
    System,
    /// These, in order; at least one.
    Servers(Vec<SocketAddr>),
}

/// One of the two kinds of address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// A records.
    Ipv4,
    /// AAAA records.
    Ipv6,
}

/// What robots.txt means to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Robots {
    /// It is fetched, and its rules hold.
    Obey,
    /// It is never asked for.
    Ignore,
}

/// How a suspect address is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probe {
    /// By sending one real URL.
    Url,
    /// By a TCP connect of our own.
    Connect,
}

/// A shared secret that no log or trace can show by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself, to compare with.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// Where to listen, or `none`.
pub(super) struct ListenAddress;

impl Reader for ListenAddress {
    type Value = Option<SocketAddr>;
    const UNIT: &'static str = "ADDR";

    fn allowed() -> String {
        "IP:PORT (port 0 = any free one) or `none`".into()
    }

    fn read(text: &str) -> Option<Self::Value> {
        if text == NONE {
            return Some(None);
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            return Some(Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into()));
        }
        text.parse().ok().map(Some)
    }
}

impl Reader for IndexAt {
    type Value = IndexAt;
    const UNIT: &'static str = "INDEX";

    fn allowed() -> String {
        "`memory`, `dir:PATH`, `tcp://HOST:PORT` or `postgres://…`".into()
    }

    fn read(text: &str) -> Option<IndexAt> {
        if text == "memory" {
            return Some(IndexAt::Memory);
        }
        if let Some(path) = text.strip_prefix("dir:") {
            return (!path.is_empty()).then(|| IndexAt::Dir(path.into()));
        }
        if let Some(address) = text.strip_prefix("tcp://") {
            return dialled(address).map(IndexAt::Tcp);
        }
        let (scheme, rest) = text.split_once("://")?;
        let postgres = matches!(scheme, "postgres" | "postgresql") && !rest.is_empty();
        postgres.then(|| IndexAt::Postgres(text.into()))
    }
}

/// `HOST:PORT` of somebody who listens.
fn dialled(text: &str) -> Option<String> {
    let text = text.strip_suffix('/').unwrap_or(text);
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let host = url::Host::parse(host).ok()?;
    (port != 0).then(|| format!("{host}:{port}"))
}

impl Reader for Dns {
    type Value = Dns;
    const UNIT: &'static str = "SERVERS";
    const KIND: Kind = Kind::Many;

    fn allowed() -> String {
        "`system` or IP[:PORT][,IP[:PORT]…]".into()
    }

    fn read(text: &str) -> Option<Dns> {
        if text == "system" { Some(Dns::System) } else { NameServers::read(text).map(Dns::Servers) }
    }

    fn read_items(items: &[String]) -> Option<Dns> {
        Self::read(&items.join(","))
    }
}

/// Name servers, at least one.
pub(super) struct NameServers;

impl Reader for NameServers {
    type Value = Vec<SocketAddr>;
    const UNIT: &'static str = "SERVERS";
    const KIND: Kind = Kind::Many;

    fn allowed() -> String {
        "IP[:PORT][,IP[:PORT]…]".into()
    }

    fn read(text: &str) -> Option<Self::Value> {
        text.split(',').map(|one| name_server(one.trim())).collect()
    }

    fn read_items(items: &[String]) -> Option<Self::Value> {
        Self::read(&items.join(","))
    }
}

fn name_server(text: &str) -> Option<SocketAddr> {
    const DNS_PORT: u16 = 53;
    let address = match text.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, DNS_PORT),
        Err(_) => text.parse().ok()?,
    };
    (address.port() != 0).then_some(address)
}

/// Address families in order of preference, each at most once.
pub(super) struct Families;

impl Reader for Families {
    type Value = Vec<Family>;
    const UNIT: &'static str = "FAMILIES";
    const KIND: Kind = Kind::Many;

    fn allowed() -> String {
        "`ipv4`, `ipv6`, or both with a comma in order of preference".into()
    }

    fn read(text: &str) -> Option<Self::Value> {
        let families: Vec<Family> = text.split(',').map(|one| family(one.trim())).collect::<Option<_>>()?;
        let distinct = !matches!(families[..], [a, b] if a == b) && families.len() <= 2;
        distinct.then_some(families)
    }

    fn read_items(items: &[String]) -> Option<Self::Value> {
        Self::read(&items.join(","))
    }
}

fn family(text: &str) -> Option<Family> {
    match text {
        "ipv4" => Some(Family::Ipv4),
        "ipv6" => Some(Family::Ipv6),
        _ => None,
    }
}

impl Reader for Robots {
    type Value = Robots;
    const UNIT: &'static str = "obey|ignore";

    fn allowed() -> String {
        "`obey` or `ignore`".into()
    }

    fn read(text: &str) -> Option<Robots> {
        match text {
            "obey" => Some(Robots::Obey),
            "ignore" => Some(Robots::Ignore),
            _ => None,
        }
    }
}

impl Reader for Probe {
    type Value = Probe;
    const UNIT: &'static str = "url|connect";

    fn allowed() -> String {
        "`url` or `connect`".into()
    }

    fn read(text: &str) -> Option<Probe> {
        match text {
            "url" => Some(Probe::Url),
            "connect" => Some(Probe::Connect),
            _ => None,
        }
    }
}

/// A host to dial: a name or an address, without brackets.
pub(super) struct HostToDial;

impl Reader for HostToDial {
    type Value = Option<String>;
    const UNIT: &'static str = "HOST";

    fn allowed() -> String {
        "a host name, an IP address or `none`".into()
    }

    fn read(text: &str) -> Option<Self::Value> {
        if text == NONE {
            return Some(None);
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Some(Some(ip.to_string()));
        }
        match url::Host::parse(text).ok()? {
            url::Host::Domain(name) => Some(Some(name)),
            url::Host::Ipv4(ip) => Some(Some(ip.to_string())),
            url::Host::Ipv6(ip) => Some(Some(ip.to_string())),
        }
    }
}

/// A file that need not be given.
pub(super) struct OptionalFile;

impl Reader for OptionalFile {
    type Value = Option<PathBuf>;
    const UNIT: &'static str = "FILE";

    fn allowed() -> String {
        "a file or `none`".into()
    }

    fn read(text: &str) -> Option<Self::Value> {
        match text {
            "" => None,
            NONE => Some(None),
            path => Some(Some(path.into())),
        }
    }
}

/// Any number of files, `-` for standard input at most once.
pub(super) struct Files;

impl Reader for Files {
    type Value = Vec<PathBuf>;
    const UNIT: &'static str = "FILE";
    const KIND: Kind = Kind::Many;

    fn allowed() -> String {
        "files, `-` (standard input, at most once)".into()
    }

    fn read(text: &str) -> Option<Self::Value> {
        Self::read_items(&[text.to_owned()])
    }

    fn read_items(items: &[String]) -> Option<Self::Value> {
        let standard_inputs = items.iter().filter(|item| *item == "-").count();
        let allowed = standard_inputs <= 1 && !items.iter().any(String::is_empty);
        allowed.then(|| items.iter().map(PathBuf::from).collect())
    }
}

/// A shared secret: it must fit on a line of the protocol and in an HTTP header.
pub(super) struct Token;

const TOKEN_MAX: usize = 1024;

impl Token {
    /// The secret in a file, whose last line may end as lines do.
    pub(super) fn in_file(content: &str) -> Option<Secret> {
        Self::secret(content.trim())
    }

    fn secret(text: &str) -> Option<Secret> {
        let fits = (1..=TOKEN_MAX).contains(&text.len());
        (fits && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Secret(text.into()))
    }
}

impl Reader for Token {
    type Value = Option<Secret>;
    const UNIT: &'static str = "TOKEN";
    const KIND: Kind = Kind::Secret;

    fn allowed() -> String {
        format!("1 to {TOKEN_MAX} printable ASCII characters without space, or `none`")
    }

    fn read(text: &str) -> Option<Self::Value> {
        if text == NONE { Some(None) } else { Self::secret(text).map(Some) }
    }
}

/// A product token as robots.txt knows them, and what an agent header may say behind it.
pub(super) struct UserAgent;

impl Reader for UserAgent {
    type Value = String;
    const UNIT: &'static str = "TEXT";

    fn allowed() -> String {
        "printable ASCII that begins with a letter, `_` or `-`".into()
    }

    fn read(text: &str) -> Option<String> {
        let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '-');
        let printable = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') && !text.ends_with(' ');
        (begins && printable).then(|| text.into())
    }
}

/// The name by which servers on one index tell each other apart.
pub(super) struct InstanceName;

const INSTANCE_MAX: usize = 64;

impl Reader for InstanceName {
    type Value = String;
    const UNIT: &'static str = "NAME";

    fn allowed() -> String {
        format!("1 to {INSTANCE_MAX} letters, digits, `_`, `-` and `.`")
    }

    fn read(text: &str) -> Option<String> {
        let fits = (1..=INSTANCE_MAX).contains(&text.len());
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
        (fits && plain).then(|| text.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn list(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| item.to_string()).collect()
    }

    #[test]
    fn listen_addresses() {
        let read = |text| ListenAddress::read(text).map(|a| a.map(|a| a.to_string()));
        assert_eq!(read("127.0.0.1:0"), Some(Some("127.0.0.1:0".into())));
        assert_eq!(read("[::1]:4332"), Some(Some("[::1]:4332".into())));
        assert_eq!(read("localhost:80"), Some(Some("127.0.0.1:80".into())));
        assert_eq!(read("none"), Some(None));
        for text in ["", "127.0.0.1", "127.0.0.1:65536", "::1:80:", "example.com:80", ":80", "localhost:"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn indexes() {
        assert_eq!(IndexAt::read("memory"), Some(IndexAt::Memory));
        assert_eq!(IndexAt::read("dir:a/b"), Some(IndexAt::Dir("a/b".into())));
        assert_eq!(IndexAt::read("tcp://Index:99"), Some(IndexAt::Tcp("index:99".into())));
        assert_eq!(IndexAt::read("tcp://[::1]:99/"), Some(IndexAt::Tcp("[::1]:99".into())));
        assert!(matches!(IndexAt::read("postgres://u@h/d"), Some(IndexAt::Postgres(_))));
        assert!(matches!(IndexAt::read("postgresql://h"), Some(IndexAt::Postgres(_))));
        for text in [
            "",
            "Memory",
            "dir:",
            "tcp://",
            "tcp://h",
            "tcp://:1",
            "tcp://h:0",
            "tcp://h:65536",
            "tcp://h/x:1",
            "postgres://",
            "mysql://h",
            "file",
        ] {
            assert_eq!(IndexAt::read(text), None, "{text}");
        }
    }

    #[test]
    fn name_servers_have_a_port_of_their_own() {
        assert_eq!(Dns::read("system"), Some(Dns::System));
        let servers = |items| NameServers::read_items(&list(items)).unwrap();
        let expected: Vec<SocketAddr> =
            ["1.1.1.1:53", "[::1]:53", "127.0.0.1:5353"].map(|a| a.parse().unwrap()).into();
        assert_eq!(servers(&["1.1.1.1, ::1", "127.0.0.1:5353"]), expected);
        for text in ["", "system,1.1.1.1", "1.1.1.1,", "1.1.1.1:0", "dns.example:53"] {
            assert_eq!(Dns::read(text), None, "{text}");
        }
        assert_eq!(Dns::read_items(&[]), None);
    }

    #[test]
    fn families_keep_their_order() {
        use Family::{Ipv4, Ipv6};
        assert_eq!(Families::read("ipv4,ipv6"), Some(vec![Ipv4, Ipv6]));
        assert_eq!(Families::read_items(&list(&["ipv6", "ipv4"])), Some(vec![Ipv6, Ipv4]));
        assert_eq!(Families::read("ipv6"), Some(vec![Ipv6]));
        for text in ["", "ipv5", "ipv4,ipv4", "ipv4,ipv6,ipv4", "ipv4,"] {
            assert_eq!(Families::read(text), None, "{text}");
        }
    }

    #[test]
    fn hosts_to_dial() {
        let read = |text| HostToDial::read(text).map(Option::unwrap_or_default);
        assert_eq!(read("Spider.Example"), Some("spider.example".into()));
        assert_eq!(read("::1"), Some("::1".into()));
        assert_eq!(read("[::1]"), Some("::1".into()));
        assert_eq!(read("none"), Some(String::new()));
        for text in ["", "a b", "a:1", "http://a"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn standard_input_is_read_once() {
        assert_eq!(Files::read_items(&[]), Some(vec![]));
        assert_eq!(Files::read_items(&list(&["a,b", "-"])), Some(vec!["a,b".into(), "-".into()]));
        assert_eq!(Files::read_items(&list(&["-", "-"])), None);
        assert_eq!(Files::read(""), None);
    }

    #[test]
    fn tokens_are_one_printable_word_and_never_shown() {
        let token = Token::read("s3cret!").unwrap().unwrap();
        assert_eq!(token.expose(), "s3cret!");
        assert!(!format!("{token:?}").contains("s3cret"));
        assert_eq!(Token::in_file("s3cret!\r\n"), Some(token));
        assert_eq!(Token::read("none"), Some(None));
        assert_eq!(Token::in_file("none").unwrap().expose(), "none");
        assert!(Token::read(&"x".repeat(TOKEN_MAX)).is_some());
        for text in ["", "a b", "é", "a\n", &"x".repeat(TOKEN_MAX + 1)] {
            assert_eq!(Token::read(text), None, "{text}");
        }
    }

    #[test]
    fn names() {
        assert!(UserAgent::read("urlserver/1.0 (+https://example.com/)").is_some());
        for text in ["", " a", "a ", "1a", "a\tb", "é"] {
            assert_eq!(UserAgent::read(text), None, "{text}");
        }
        assert!(InstanceName::read("node-1.example").is_some());
        assert!(InstanceName::read(&"x".repeat(INSTANCE_MAX)).is_some());
        for text in ["", "a b", &"x".repeat(INSTANCE_MAX + 1)] {
            assert_eq!(InstanceName::read(text), None, "{text}");
        }
    }
}
