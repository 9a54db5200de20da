//! The clock at its best: every host has a time, and a line of it goes at that time. Since all gaps are the same,
//! hosts in order of their last line are in order of their next.

use super::line::put_number;
use super::socket::Source;
use crate::bench::workload::{Names, address, put_url};
use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

/// When which host is next.
pub(super) struct Timetable {
    hosts: u32,
    gap: Duration,
    next: VecDeque<(Instant, u32)>,
    /// Hosts whose line is not written yet.
    going: Vec<u32>,
    sent: u32,
}

impl Timetable {
    /// A line of each host every `gap`.
    pub(super) fn new(hosts: u32, gap: Duration) -> Timetable {
        Timetable { hosts, gap, next: VecDeque::new(), going: Vec::new(), sent: 0 }
    }
}

impl Source for Timetable {
    /// The first lines are spread over one gap.
    fn handle_start(&mut self) {
        let start = Instant::now();
        let share = |host: u32| f64::from(host) / f64::from(self.hosts);
        self.next = (0..self.hosts).map(|host| (start + self.gap.mul_f64(share(host)), host)).collect();
    }

    fn put_line(&mut self, out: &mut Vec<u8>) -> bool {
        let now = Instant::now();
        let Some(&(_, host)) = self.next.front().filter(|(due, _)| *due <= now) else { return false };
        self.next.pop_front();
        self.going.push(host);
        self.sent += 1;
        put_number(out, self.sent);
        // Nothing can go wrong when writing to a vector.
        let _ = write!(out, " {} {} ", self.sent, address(host));
        put_url(out, Names::Sites, host, self.sent);
        out.push(b'\n');
        true
    }

    fn handle_done(&mut self, _: u32) {}

    /// The gap counts from here.
    fn handle_written(&mut self) {
        let next = Instant::now() + self.gap;
        self.next.extend(self.going.drain(..).map(|host| (next, host)));
    }

    fn due(&self) -> Option<Instant> {
        self.next.front().map(|&(due, _)| due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_before_its_time() {
        let mut table = Timetable::new(2, Duration::from_secs(1000));
        table.handle_start();
        let mut out = Vec::new();
        assert!(table.put_line(&mut out));
        assert!(!table.put_line(&mut out), "the second host is half a gap later");
        assert!(table.due().is_some_and(|due| due > Instant::now()));
        assert_eq!(table.next.len(), 1, "not before the first line is written");
        table.handle_written();
        assert_eq!(table.next.len(), 2);
        assert!(out.starts_with(b"1 1 127.1.0.0 http://www.site0000000.example.com/"));
    }
}
