//! The plainest structure that does the work: URLs in one arena, a record for each, a queue of records per host, a
//! ring of hosts that may be served, a table of what is in flight. One URL of a host at a time.

use super::line::put_number;
use super::socket::Source;
use crate::bench::workload::{address, read_url};
use anyhow::Context;
use std::collections::VecDeque;

/// Most URLs in flight.
const WINDOW: usize = 100_000;
/// The end of the list of free places.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Record {
    start: u32,
    document: u32,
    length: u16,
}

struct Host {
    queue: VecDeque<u32>,
    /// Its address as text, and the length of that.
    address: [u8; 15],
    address_length: u8,
}

/// All URLs.
pub(super) struct Frontier {
    arena: Vec<u8>,
    records: Vec<Record>,
    hosts: Vec<Host>,
    ready: VecDeque<u32>,
    /// The host of what is in flight under a number, or the next number that is free.
    flights: Vec<u32>,
    free: u32,
    in_flight: usize,
}

impl Frontier {
    pub(super) fn new(hosts: u32) -> Frontier {
        Frontier {
            arena: Vec::new(),
            records: Vec::new(),
            hosts: (0..hosts).map(Host::new).collect(),
            ready: VecDeque::new(),
            flights: Vec::new(),
            free: NONE,
            in_flight: 0,
        }
    }

    /// Puts a URL in. Which host it is of is written in it: no table of names is needed.
    pub(super) fn add(&mut self, url: &[u8]) -> anyhow::Result<()> {
        let host = read_url(url).context("not a URL of the bench")?.0;
        let start = u32::try_from(self.arena.len()).context("more than 4 GiB of URLs")?;
        let record = self.records.len() as u32;
        let length = u16::try_from(url.len())?;
        let queue = &mut self.hosts.get_mut(host as usize).context("more hosts than --hosts")?.queue;
        if queue.is_empty() {
            self.ready.push_back(host);
        }
        queue.push_back(record);
        self.arena.extend_from_slice(url);
        self.records.push(Record { start, document: record + 1, length });
        Ok(())
    }

    /// There will be no more.
    pub(super) fn loaded(&mut self) {
        self.arena.shrink_to_fit();
        self.records.shrink_to_fit();
    }

    #[inline]
    fn depart(&mut self, host: u32) -> u32 {
        self.in_flight += 1;
        if self.free == NONE {
            self.flights.push(host);
            return self.flights.len() as u32 - 1;
        }
        let flight = self.free;
        self.free = std::mem::replace(&mut self.flights[flight as usize], host);
        flight
    }
}

impl Host {
    fn new(number: u32) -> Host {
        let text = address(number).to_string();
        let mut address = [0; 15];
        address[..text.len()].copy_from_slice(text.as_bytes());
        Host { queue: VecDeque::new(), address, address_length: text.len() as u8 }
    }
}

impl Source for Frontier {
    #[inline]
    fn put_line(&mut self, out: &mut Vec<u8>) -> bool {
        if self.in_flight >= WINDOW {
            return false;
        }
        let Some(number) = self.ready.pop_front() else { return false };
        let Some(record) = self.hosts[number as usize].queue.pop_front() else { return false };
        let flight = self.depart(number);
        let (host, record) = (&self.hosts[number as usize], self.records[record as usize]);
        let start = record.start as usize;
        put_number(out, flight);
        out.push(b' ');
        put_number(out, record.document);
        out.push(b' ');
        out.extend_from_slice(&host.address[..usize::from(host.address_length)]);
        out.push(b' ');
        out.extend_from_slice(&self.arena[start..start + usize::from(record.length)]);
        out.push(b'\n');
        true
    }

    #[inline]
    fn handle_done(&mut self, flight: u32) {
        let Some(place) = self.flights.get_mut(flight as usize) else { return };
        let host = std::mem::replace(place, self.free);
        self.free = flight;
        self.in_flight -= 1;
        if !self.hosts[host as usize].queue.is_empty() {
            self.ready.push_back(host);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_url_of_a_host_at_a_time_and_each_once() {
        let mut frontier = Frontier::new(2);
        for (host, page) in [(0, 0), (0, 1), (1, 2)] {
            let url = format!("http://www.site{host:07}.example.com/part00/page-{page:07}");
            frontier.add(url.as_bytes()).unwrap();
        }
        frontier.loaded();
        let mut line = || {
            let mut out = Vec::new();
            frontier.put_line(&mut out).then(|| String::from_utf8(out).unwrap())
        };
        assert_eq!(line().unwrap(), "0 1 127.1.0.0 http://www.site0000000.example.com/part00/page-0000000\n");
        assert_eq!(line().unwrap(), "1 3 127.1.0.1 http://www.site0000001.example.com/part00/page-0000002\n");
        assert_eq!(line(), None);
        frontier.handle_done(1);
        frontier.handle_done(0);
        let mut out = Vec::new();
        assert!(frontier.put_line(&mut out));
        assert!(out.starts_with(b"0 2 127.1.0.0 "), "{}", String::from_utf8_lossy(&out));
        assert!(!frontier.put_line(&mut out));
        assert!(frontier.add(b"http://www.site0000002.example.com/page-0").is_err());
    }
}
