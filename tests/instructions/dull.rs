//! The dull structure that ours is compared with: a queue for each host, a line of hosts for each address, and a ring of
//! addresses that may be sent to. It knows one clock for each address, and nothing of what goes wrong. Of the project's
//! code it uses none but plain values, so that no change there makes it slower or faster.

use super::phases::{HandsOut, Rules};
use bytes::BytesMut;
use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::net::IpAddr;
use urlserver::document::Candidate;
use urlserver::time::{Duration, Instant};

/// Not seeded: every run is the same.
type Map<K> = HashMap<K, usize, BuildHasherDefault<DefaultHasher>>;

pub(crate) struct Dull {
    gap: Duration,
    rest: bool,
    host_by_name: Map<Box<str>>,
    hosts: Vec<Host>,
    place_by_address: Map<IpAddr>,
    places: Vec<Place>,
    /// Places with hosts in line that may be sent to now, or when their clock has run out.
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    flights: Vec<Flight>,
    free: Vec<usize>,
    reports: VecDeque<u64>,
    /// The line that is put together.
    text: Vec<u8>,
}

struct Host {
    place: usize,
    urls: VecDeque<(u64, Box<str>)>,
}

/// What shares a clock.
struct Place {
    address: Box<str>,
    line: VecDeque<usize>,
    opens: Instant,
    busy: bool,
    /// In `ready` or in `timers`.
    listed: bool,
}

struct Flight {
    doc: u64,
    host: usize,
    sent: Instant,
    heard: Instant,
    /// Told apart from what had this place before.
    generation: u64,
}

/// Flights that can be named.
const FLIGHTS: u64 = 1 << 20;

impl Dull {
    fn host(&mut self, candidate: &Candidate) -> usize {
        if let Some(&host) = self.host_by_name.get(candidate.url.host()) {
            return host;
        }
        let address = candidate.ip.expect("an address");
        let place = *self.place_by_address.entry(address).or_insert_with(|| {
            let address = address.to_string().into();
            let line = VecDeque::new();
            self.places.push(Place { address, line, opens: Instant::ZERO, busy: false, listed: false });
            self.places.len() - 1
        });
        self.hosts.push(Host { place, urls: VecDeque::new() });
        self.host_by_name.insert(candidate.url.host().into(), self.hosts.len() - 1);
        self.hosts.len() - 1
    }

    /// Lets a place wait for its turn, or for its clock.
    fn list(&mut self, now: Instant, place: usize) {
        let entry = &mut self.places[place];
        if entry.listed || entry.busy || entry.line.is_empty() {
            return;
        }
        entry.listed = true;
        if entry.opens > now {
            self.timers.push(Reverse((entry.opens, place)));
        } else {
            self.ready.push_back(place);
        }
    }

    fn find(&mut self, trans: u64) -> Option<usize> {
        let place = (trans % FLIGHTS) as usize;
        let flight = self.flights.get(place)?;
        (flight.generation == trans / FLIGHTS).then_some(place)
    }

    fn take_flight(&mut self, now: Instant, host: usize, doc: u64) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.flights.push(Flight { doc, host, sent: now, heard: now, generation: 1 << 18 });
            self.flights.len() - 1
        });
        let flight = &mut self.flights[place];
        let generation = flight.generation + 1;
        *flight = Flight { doc, host, sent: now, heard: now, generation };
        generation * FLIGHTS + place as u64
    }
}

impl HandsOut for Dull {
    fn new(rules: Rules) -> Dull {
        Dull {
            gap: rules.ip_gap.unwrap_or_default().max(rules.host_gap),
            rest: rules.rest,
            host_by_name: Map::default(),
            hosts: Vec::new(),
            place_by_address: Map::default(),
            places: Vec::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            flights: Vec::new(),
            free: Vec::new(),
            reports: VecDeque::new(),
            text: Vec::new(),
        }
    }

    fn admit(&mut self, now: Instant, candidate: &Candidate) {
        let host = self.host(candidate);
        let entry = &mut self.hosts[host];
        entry.urls.push_back((candidate.doc.0, candidate.url.as_str().into()));
        let place = entry.place;
        if entry.urls.len() == 1 {
            self.places[place].line.push_back(host);
        }
        self.list(now, place);
    }

    fn send(&mut self, now: Instant, out: &mut BytesMut, sent: &mut Vec<u64>) {
        while let Some(place) = self.ready.pop_front() {
            let entry = &mut self.places[place];
            entry.listed = false;
            entry.busy = true;
            entry.opens = now + self.gap;
            let Some(host) = entry.line.pop_front() else { continue };
            let Some((doc, url)) = self.hosts[host].urls.pop_front() else { continue };
            let trans = self.take_flight(now, host, doc);
            self.text.clear();
            put_number(&mut self.text, trans);
            put_number(&mut self.text, doc);
            self.text.extend_from_slice(self.places[place].address.as_bytes());
            self.text.push(b' ');
            self.text.extend_from_slice(url.as_bytes());
            self.text.push(b'\n');
            out.extend_from_slice(&self.text);
            sent.push(trans);
        }
    }

    fn hear(&mut self, now: Instant, input: &[u8]) -> u64 {
        let mut understood = 0;
        for line in input.split(|&byte| byte == b'\n') {
            let mut words = line.split(|&byte| byte == b' ');
            let Some(trans) = words.next().and_then(number) else { continue };
            let known = match words.next() {
                Some(b"DONE") => words.next().and_then(number).is_some() && self.done(now, trans),
                Some(b"WORKING") => {
                    self.find(trans).inspect(|&flight| self.flights[flight].heard = now).is_some()
                }
                Some(_) | None => false,
            };
            understood += u64::from(known);
        }
        understood
    }

    fn done(&mut self, now: Instant, trans: u64) -> bool {
        let Some(place) = self.find(trans) else { return false };
        self.free.push(place);
        let flight = &mut self.flights[place];
        flight.generation += 1;
        self.reports.push_back(flight.doc);
        let (host, sent) = (flight.host, flight.sent);
        let place = self.hosts[host].place;
        let entry = &mut self.places[place];
        entry.busy = false;
        if self.rest {
            entry.opens = entry.opens.max(now + now.since(sent));
        }
        if !self.hosts[host].urls.is_empty() {
            entry.line.push_back(host);
        }
        self.list(now, place);
        true
    }

    fn report(&mut self, _now: Instant) -> u64 {
        std::iter::from_fn(|| self.reports.pop_front()).count() as u64
    }

    fn pass_time(&mut self, now: Instant) {
        while self.timers.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((_, place))) = self.timers.pop() {
                self.ready.push_back(place);
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }
}

/// The number and a space.
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b' '; 21];
    let mut first = 20;
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
