//! The work that is measured: URLs over hosts of very different sizes, as the web has them.
//!
//! Host sizes follow Zipf's law (the n-th host has 1/n of the first), none above a cap, none empty; URLs
//! arrive shuffled, and are 70 bytes long in the mean. The same numbers always give the same work.

use std::io::{self, Write};
use std::net::Ipv4Addr;

/// Most URLs of one host.
pub const HOST_SIZE_MAX: u32 = 1000;
/// Hosts that 127.0.0.0/8 has addresses for.
pub const HOSTS_MAX: u32 = 1 << 23;

/// URLs over hosts.
#[derive(Debug)]
pub struct Workload {
    hosts: u32,
    /// The host of each URL, in order of arrival.
    order: Vec<u32>,
}

impl Workload {
    /// `urls` URLs over `hosts` hosts: at least one each, at most [`HOST_SIZE_MAX`].
    pub fn new(hosts: u32, urls: u32) -> Workload {
        let sizes = sizes(hosts, urls);
        let each = |(host, &size): (usize, &u32)| std::iter::repeat_n(host as u32, size as usize);
        let mut order: Vec<u32> = sizes.iter().enumerate().flat_map(each).collect();
        fastrand::Rng::with_seed(70).shuffle(&mut order);
        Workload { hosts, order }
    }

    /// Number of URLs.
    pub fn urls(&self) -> u64 {
        self.order.len() as u64
    }

    /// Bytes of all URLs.
    pub fn url_bytes(&self) -> u64 {
        self.each_url().map(|url| url.len() as u64).sum()
    }

    /// A seeds file.
    pub fn write_seeds(&self, out: &mut impl Write) -> io::Result<()> {
        self.each_url().try_for_each(|url| writeln!(out, "{url}"))
    }

    /// A hosts file: each host on an address of its own.
    pub fn write_hosts(&self, out: &mut impl Write) -> io::Result<()> {
        (0..self.hosts).try_for_each(|host| writeln!(out, "{} {}", address(host), name(host)))
    }

    fn each_url(&self) -> impl Iterator<Item = String> + '_ {
        self.order.iter().enumerate().map(|(number, &host)| url(host, number as u32))
    }
}

/// Zipf with a cap. What the cap and rounding leave over goes to the smallest hosts.
fn sizes(hosts: u32, urls: u32) -> Vec<u32> {
    let of_scale = |scale: f64| -> Vec<u32> {
        (1..=hosts).map(|rank| ((scale / f64::from(rank)) as u32).clamp(1, HOST_SIZE_MAX)).collect()
    };
    let total = |sizes: &[u32]| sizes.iter().map(|&n| u64::from(n)).sum::<u64>();
    let (mut low, mut high) = (0.0, f64::from(HOST_SIZE_MAX) * f64::from(hosts));
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if total(&of_scale(middle)) > u64::from(urls) { high = middle } else { low = middle }
    }
    let mut sizes = of_scale(low);
    let left = u64::from(urls).saturating_sub(total(&sizes));
    let smallest_first = (0..sizes.len()).rev().cycle();
    for host in smallest_first.take(left as usize) {
        sizes[host] += 1;
    }
    sizes
}

fn name(host: u32) -> String {
    format!("www.site{host:07}.example.com")
}

/// 127.128.0.0 and up: away from what listens on 127.0.0.1.
fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x7f80_0000 + host)
}

/// 56 to 84 bytes, different for each number.
fn url(host: u32, number: u32) -> String {
    let mut url = format!("http://{}/part{:02}/page-{number:07}", name(host), number % 89);
    let length = 57 + fastrand::Rng::with_seed(u64::from(number)).usize(0..=26);
    while url.len() < length {
        url.push(char::from(b'a' + (url.len() % 26) as u8));
    }
    url
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_asked_for_and_never_more_per_host_than_allowed() {
        for (hosts, urls) in [(1, 1), (10, 10), (100, 5_000), (1000, 100_000), (100, 99_999)] {
            let sizes = sizes(hosts, urls);
            assert_eq!(sizes.iter().sum::<u32>(), urls, "{hosts} {urls}");
            assert!(sizes.iter().all(|&n| (1..=HOST_SIZE_MAX + 1).contains(&n)), "{hosts} {urls}");
        }
    }

    #[test]
    fn urls_are_different_and_seventy_bytes_in_the_mean() {
        let workload = Workload::new(100, 20_000);
        let urls: std::collections::HashSet<String> = workload.each_url().collect();
        assert_eq!(urls.len(), 20_000);
        let mean = workload.url_bytes() as f64 / 20_000.0;
        assert!((69.0..71.0).contains(&mean), "{mean}");
        assert!(urls.iter().all(|u| urlserver::url::Url::parse(u).unwrap().as_str() == u));
    }
}
