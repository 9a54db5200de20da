//! The work that is measured: URLs over hosts of very different sizes, as the web has them.
//!
//! Host sizes follow Zipf's law (the n-th host has 1/n of the first), none above a cap, none empty; URLs
//! arrive shuffled, and are 70 bytes long in the mean. The same numbers always give the same work.

use std::io::{self, Write};
use std::net::Ipv4Addr;

/// Most URLs of one host.
pub(super) const HOST_SIZE_MAX: u32 = 1000;
/// Hosts that 127.0.0.0/8 has addresses for, and a server slots.
pub(super) const HOSTS_MAX: u32 = 16_000_000;
/// Bytes handed on at once.
const CHUNK: usize = 64 * 1024;

/// What hosts are called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Names {
    /// `www.site0000001.example.com`: addresses are in a hosts file.
    Sites,
    /// `127.1.0.1`: needs neither name server nor hosts file, however many there are.
    Addresses,
}

/// URLs over hosts.
#[derive(Debug)]
pub(super) struct Workload {
    names: Names,
    hosts: u32,
    /// The host of each URL, in order of arrival.
    order: Vec<u32>,
    /// URLs end in letters at random.
    unlike: bool,
}

impl Workload {
    /// `urls` URLs over `hosts` hosts: at least one each, at most [`HOST_SIZE_MAX`].
    pub(super) fn skewed(names: Names, hosts: u32, urls: u32) -> Workload {
        let sizes = sizes(hosts, urls);
        let mut order = Vec::with_capacity(urls as usize);
        for (host, &size) in (0u32..).zip(&sizes) {
            order.extend(std::iter::repeat_n(host, size as usize));
        }
        fastrand::Rng::with_seed(70).shuffle(&mut order);
        Workload { names, hosts, order, unlike: false }
    }

    /// The same with URLs that have less in common, if `unlike`.
    pub(super) fn unlike(self, unlike: bool) -> Workload {
        Workload { unlike, ..self }
    }

    /// `each` URLs on every host, host after host and round again.
    pub(super) fn even(names: Names, hosts: u32, each: u32) -> Workload {
        Workload { names, hosts, order: (0..each).flat_map(|_| 0..hosts).collect(), unlike: false }
    }

    /// Number of hosts.
    pub(super) fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Number of URLs.
    pub(super) fn urls(&self) -> u64 {
        self.order.len() as u64
    }

    /// Mean length of a URL.
    pub(super) fn url_bytes_mean(&self) -> f64 {
        let mut url = Vec::new();
        // As good as all of them, which may be a hundred million.
        let sample = self.order.len().min(100_000);
        let bytes: usize = (0..sample).map(|number| self.url(number, &mut url).len()).sum();
        bytes as f64 / sample.max(1) as f64
    }

    /// Each URL's number and host, in order of arrival.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..).zip(self.order.iter().copied())
    }

    /// The lines of a seeds file.
    pub(super) fn write_seeds(&self, out: &mut impl Write) -> io::Result<()> {
        let mut chunk = Vec::with_capacity(CHUNK + 128);
        for (number, host) in self.each() {
            self.put(&mut chunk, host, number);
            chunk.push(b'\n');
            if chunk.len() >= CHUNK {
                out.write_all(&chunk)?;
                chunk.clear();
            }
        }
        out.write_all(&chunk)
    }

    /// A hosts file: each host on an address of its own. Empty where addresses are the names.
    pub(super) fn write_hosts(&self, out: &mut impl Write) -> io::Result<()> {
        match self.names {
            Names::Sites => {
                (0..self.hosts).try_for_each(|host| writeln!(out, "{} {}", address(host), site(host)))
            }
            Names::Addresses => Ok(()),
        }
    }

    fn url<'a>(&self, number: usize, out: &'a mut Vec<u8>) -> &'a [u8] {
        out.clear();
        self.put(out, self.order[number], number as u32);
        out
    }

    fn put(&self, out: &mut Vec<u8>, host: u32, number: u32) {
        put_url(out, self.names, host, number);
        if self.unlike {
            let mut letters = fastrand::Rng::with_seed(!u64::from(number));
            let end = out.iter_mut().rev().take_while(|byte| byte.is_ascii_lowercase());
            end.for_each(|byte| *byte = letters.u8(b'a'..=b'z'));
        }
    }
}

/// Zipf with a cap. What the cap and rounding leave over goes to the smallest hosts.
fn sizes(hosts: u32, urls: u32) -> Vec<u32> {
    let of_scale =
        |scale: f64| (1..=hosts).map(move |rank| ((scale / f64::from(rank)) as u32).clamp(1, HOST_SIZE_MAX));
    let total = |scale: f64| of_scale(scale).map(u64::from).sum::<u64>();
    let (mut low, mut high) = (0.0, f64::from(HOST_SIZE_MAX) * f64::from(hosts));
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if total(middle) > u64::from(urls) { high = middle } else { low = middle }
    }
    let mut sizes: Vec<u32> = of_scale(low).collect();
    let left = u64::from(urls).saturating_sub(total(low));
    let smallest_first = (0..sizes.len()).rev().cycle();
    for host in smallest_first.take(left as usize) {
        sizes[host] += 1;
    }
    sizes
}

fn site(host: u32) -> String {
    format!("www.site{host:07}.example.com")
}

/// 127.1.0.0 and up: away from what listens on 127.0.0.1.
pub(super) fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x7f01_0000 + host)
}

/// The host that has an address.
pub(super) fn host_at(address: Ipv4Addr) -> Option<u32> {
    u32::from(address).checked_sub(0x7f01_0000)
}

/// 57 to 83 bytes, different for each number.
pub(super) fn put_url(out: &mut Vec<u8>, names: Names, host: u32, number: u32) {
    let start = out.len();
    // Nothing can go wrong when writing to a vector.
    let _ = match names {
        Names::Sites => write!(out, "http://www.site{host:07}.example.com"),
        Names::Addresses => write!(out, "http://{}", address(host)),
    };
    let _ = write!(out, "/part{:02}/page-{number:07}", number % 89);
    let length = 57 + fastrand::Rng::with_seed(u64::from(number)).usize(0..=26);
    let padding = (out.len() - start..length).map(|at| b'a' + (at % 26) as u8);
    out.extend(padding);
}

/// Host and number of a URL with [`Names::Sites`], from its bytes.
pub(super) fn read_url(url: &[u8]) -> Option<(u32, u32)> {
    let digits = |from: usize| {
        let text = url.get(from..)?;
        let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
        std::str::from_utf8(&text[..end]).ok()?.parse().ok()
    };
    let host: u32 = digits(b"http://www.site".len())?;
    let page = b"/page-";
    let number = url.windows(page.len()).position(|part| part == page)? + page.len();
    Some((host, digits(number)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::BufRead;

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
        for names in [Names::Sites, Names::Addresses] {
            let workload = Workload::skewed(names, 100, 20_000);
            let mut seeds = Vec::new();
            workload.write_seeds(&mut seeds).unwrap();
            let text = String::from_utf8(seeds).unwrap();
            let urls: std::collections::HashSet<&str> = text.lines().collect();
            assert_eq!(urls.len(), 20_000);
            assert!((69.0..71.0).contains(&workload.url_bytes_mean()), "{}", workload.url_bytes_mean());
            assert!(urls.iter().all(|u| urlserver::url::Url::parse(u).unwrap().as_str() == *u));
        }
    }

    #[test]
    fn urls_that_are_unlike_are_as_long_and_say_the_same() {
        let (mut like, mut unlike) = (Vec::new(), Vec::new());
        let work = |is| Workload::skewed(Names::Sites, 10, 1_000).unlike(is);
        work(false).write_seeds(&mut like).unwrap();
        work(true).write_seeds(&mut unlike).unwrap();
        let lines = |text: &[u8]| -> Vec<String> { text.lines().map(Result::unwrap).collect() };
        let (like, unlike) = (lines(&like), lines(&unlike));
        assert!(like.iter().zip(&unlike).all(|(a, b)| a.len() == b.len()));
        assert!(like.iter().zip(&unlike).all(|(a, b)| read_url(a.as_bytes()) == read_url(b.as_bytes())));
        assert!(like.iter().zip(&unlike).filter(|(a, b)| a != b).count() > 900);
    }

    #[test]
    fn a_url_says_whose_it_is() {
        let mut url = Vec::new();
        put_url(&mut url, Names::Sites, 1_234_567, 89_123_456);
        assert_eq!(read_url(&url), Some((1_234_567, 89_123_456)));
        assert_eq!(read_url(b"http://www.alpha.example/"), None);
        assert_eq!(host_at(address(HOSTS_MAX - 1)), Some(HOSTS_MAX - 1));
        assert!(address(HOSTS_MAX - 1).is_loopback());
    }

    #[test]
    fn an_even_work_goes_round() {
        let work = Workload::even(Names::Addresses, 3, 2);
        let hosts: Vec<u32> = work.each().map(|(_, host)| host).collect();
        assert_eq!(hosts, [0, 1, 2, 0, 1, 2]);
    }
}
