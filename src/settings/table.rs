//! Every setting, once: name, type, how it is read, default and meaning.
//!
//! From this table come the fields of [`Settings`], the flags and their help, the environment variables, the
//! keys of the settings file, what `check` prints and the README's table.

use super::groups::{Alias, Group};
use super::units::*;
use super::values::*;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

/// Most host slots.
pub const QUEUE_COUNT_MAX: u32 = 1 << 24;
/// Most URLs in one slot.
pub const QUEUE_LEN_MAX: u32 = 1 << 24;

/// What a setting is when nobody gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// This.
    Text(&'static str),
    /// Nothing at all: the empty list.
    Empty,
    /// What the setting of this name is.
    SameAs(&'static str),
    /// So many times the duration of this name.
    Times(u32, &'static str),
    /// A new name in every run.
    Random,
}

/// One setting.
#[derive(Debug)]
pub struct Definition {
    /// As in the settings file.
    pub name: &'static str,
    /// The help's heading above it.
    pub heading: &'static str,
    /// What it means, in a sentence.
    pub meaning: &'static str,
    /// What it is when nobody gives it.
    pub preset: Preset,
    /// Stands for the value in usage lines.
    pub unit: &'static str,
    /// How it is given.
    pub kind: Kind,
    /// Completes "must be …".
    pub allowed: fn() -> String,
}

impl Definition {
    /// The flag, without the dashes before it.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The environment variable.
    pub fn variable(&self) -> String {
        format!("URLSERVER_{}", self.name.to_ascii_uppercase())
    }
}

/// Where the reader of one setting gets its text from, and leaves its refusal.
pub(super) trait Texts {
    fn read<R: Reader>(&mut self, name: &'static str) -> R::Value;
}

macro_rules! settings {
    ($($heading:literal {
        $($(#[doc = $meaning:literal])+ $name:ident: $type:ty, $reader:ty, $preset:expr;)+
    })+) => {
        /// What the server was told to do: every value allowed, and all of them together.
        #[derive(Clone, PartialEq, Debug)]
        pub struct Settings {
            $($($(#[doc = $meaning])+ pub $name: $type,)+)+
            /// Domain → name servers asked for every name in it; the longest domain wins.
            pub dns_zones: BTreeMap<String, Vec<SocketAddr>>,
            /// Hosts that share one politeness.
            pub aliases: Vec<Alias>,
            /// Hosts and addresses with limits of their own, in the order of the file.
            pub groups: Vec<Group>,
        }

        /// All settings but the tables, in the order people read them.
        pub static DEFINITIONS: &[Definition] = &[$($(Definition {
            name: stringify!($name),
            heading: $heading,
            meaning: concat!($($meaning),+),
            preset: $preset,
            unit: <$reader as Reader>::UNIT,
            kind: <$reader as Reader>::KIND,
            allowed: <$reader as Reader>::allowed,
        },)+)+];

        /// Settings without tables.
        pub(super) fn read(texts: &mut impl Texts) -> Settings {
            Settings {
                $($($name: texts.read::<$reader>(stringify!($name)),)+)+
                dns_zones: BTreeMap::new(),
                aliases: Vec::new(),
                groups: Vec::new(),
            }
        }
    };
}

use Preset::{Empty, Random, SameAs, Text, Times};

settings! {
    "Connections" {
        /// Where spiders connect.
        listen: Option<SocketAddr>, ListenAddress, Text("127.0.0.1:4332");
        /// Dial the spider at this host, beside listening; needs `spider_port`.
        spider_host: Option<String>, HostToDial, Text(NONE);
        /// The port of `spider_host`.
        spider_port: Option<NonZeroU16>, Port, Text(NONE);
        /// Most URLs in flight per spider connection.
        spider_window: Option<NonZeroU32>, PositiveOrNone, Text(NONE);
        /// Shared secret that spiders must know.
        spider_token: Option<Secret>, Token, Text(NONE);
        /// File that holds `spider_token`.
        spider_token_file: Option<PathBuf>, OptionalFile, Text(NONE);
        /// Control, metrics and dashboard.
        http: Option<SocketAddr>, ListenAddress, Text("127.0.0.1:4333");
        /// Shared secret that HTTP clients must know.
        http_token: Option<Secret>, Token, Text(NONE);
        /// File that holds `http_token`.
        http_token_file: Option<PathBuf>, OptionalFile, Text(NONE);
    }
    "Documents" {
        /// Document index.
        index: IndexAt, IndexAt, Text("dir:urlserver-data");
        /// Files of URLs put into the index at start; lines `URL` or `DOC_ID URL`, `#` comments.
        seeds: Vec<PathBuf>, Files, Empty;
        /// A finished URL that is added again is crawled again after this long; for `dir:` indexes.
        recrawl_after: Option<Duration>, TimeOrNone, Text(NONE);
        /// Exit once the index has nothing more, nothing is queued and nothing is in flight.
        exit_when_done: bool, Truth, Text("false");
    }
    "Queues" {
        /// Host slots.
        queue_count: u32, Whole<1, QUEUE_COUNT_MAX>, Text("1000");
        /// URLs a slot holds, the active ones included.
        queue_len: u32, Whole<1, QUEUE_LEN_MAX>, Text("100");
        /// Pending URLs on one IP beyond which its hosts are put on the reject list; 0 = off.
        ip_max_urls: Option<NonZeroU32>, ZeroIsOff, SameAs("queue_len");
    }
    "Politeness" {
        /// Most URLs of one host in flight.
        req_host_concurrent: NonZeroU32, Positive, Text("1");
        /// Most sends per second to one host: two sends are at least 1/x apart.
        req_host_per_sec: Rate, PerSecond, Text("1.0");
        /// Most URLs of one IP address in flight, over all hosts on it.
        req_ip_concurrent: Option<NonZeroU32>, PositiveOrInf, SameAs("req_host_concurrent");
        /// Most sends per second to one IP address, over all hosts on it.
        req_ip_per_sec: Rate, PerSecond, SameAs("req_host_per_sec");
        /// After DONE, the host rests for this × the time the fetch took.
        delay_factor: f64, Factor, Text("1.0");
        /// Shortest rest.
        delay_min: Duration, Time, Text("0");
        /// Longest rest.
        delay_max: Duration, Time, Text("30");
        /// Whether robots.txt is fetched and its rules hold.
        robots: Robots, Robots, Text("obey");
        /// Product token for robots.txt, and the agent header of the server's own requests.
        user_agent: String, UserAgent, Text(concat!("urlserver/", env!("CARGO_PKG_VERSION")));
        /// Hosts whose Crawl-delay is longer are not crawled, and reported; no Crawl-delay is ever shortened.
        crawl_delay_max: Option<Duration>, TimeOrNone, Text(NONE);
        /// Most requests for robots.txt at the same time.
        robots_concurrent: NonZeroU32, Positive, Text("64");
        /// Longest time that one of them may take.
        robots_timeout: Duration, TimeAboveZero, Text("10");
        /// Hand the `Sitemap:` lines of robots.txt to the index, as URLs that were found.
        sitemaps: bool, Truth, Text("false");
    }
    "Retries" {
        /// No DONE or WORKING for this long: the URL is retried.
        timeout_spider_status: Duration, TimeAboveZero, Text("60");
        /// However many WORKINGs, a URL is taken back after this; 0 = off.
        lease_max: Option<Duration>, TimeZeroIsOff, Times(20, "timeout_spider_status");
        /// Sends of one URL before it is reported FAILED; 0 = for ever.
        max_attempts: Option<NonZeroU32>, ZeroIsOff, Text("3");
        /// Least wait before a retry; doubles with each attempt.
        retry_delay: Duration, Time, Text("5");
    }
    "Addresses" {
        /// Connection failures in a row that mark an address down.
        fail_threshold: NonZeroU32, Positive, Text("3");
        /// How long a down address is left alone.
        fail_window: Duration, Time, Text("60");
        /// How a suspect address is tried: one real URL, or a TCP connect of the server's own.
        probe: Probe, Probe, Text("url");
        /// Name servers.
        dns: Dns, Dns, Text("system");
        /// Static names in the format of /etc/hosts, re-read when the file changes.
        hosts_file: Option<PathBuf>, OptionalFile, Text(NONE);
        /// How long an answer is waited for.
        dns_timeout: Duration, TimeAboveZero, Text("5");
        /// Answers are believed at least this long, and never less than a second.
        dns_ttl_min: Duration, Time, Text("1");
        /// Answers are believed at most this long.
        dns_ttl_max: Duration, Time, Text("1d");
        /// How long a name that does not exist is believed not to, where its zone does not say.
        dns_negative_ttl: Duration, Time, Text("60");
        /// How long past its time an answer is used while no name server answers; 0 = never.
        dns_serve_stale: Duration, Time, Text("1h");
        /// Order of preference; leave one out to never use it.
        address_family: Vec<Family>, Families, Text("ipv4,ipv6");
        /// Send URLs whose address is loopback, private, link-local or otherwise not public.
        allow_private: bool, Truth, Text("false");
    }
    "Shared index" {
        /// A claim on a host may be taken by another server after this, if nothing is in flight under it.
        claim_expiry_1: Duration, TimeAboveZero, Text("30");
        /// A claim on a host may be taken by another server after this, whatever is in flight.
        claim_expiry_2: Duration, TimeAboveZero, Text("180");
        /// This server's name among those that share the index.
        instance: String, InstanceName, Random;
    }
}
