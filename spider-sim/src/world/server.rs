//! The server's half of a world: what the server's loop does between its clocks and its sockets.

use super::{Happening, SendSeen, World};
use bytes::BytesMut;
use urlserver::document::Candidate;
use urlserver::hostdb::Resolution;
use urlserver::ids::{HostId, SpiderId, TransId};
use urlserver::scheduler::Request;
use urlserver::time::{Duration, Instant};
use urlserver::url::Tail;
use urlserver::wire::{Command, CommandError, Line, work};

/// Questions to name servers under way at once.
const LOOKUPS_MAX: usize = 256;
/// Bad lines in a row that close a connection.
const BAD_RUN_MAX: u32 = 100;

impl World {
    /// What the server does once it has heard all there is to hear.
    pub(super) fn serve(&mut self) {
        if self.scheduler.deadline().is_some_and(|deadline| deadline <= self.now) {
            self.ledger.handle_timeout(self.now);
            self.scheduler.handle_timeout(self.now);
        }
        // Reports first: a host whose last document is given up may have new ones to send or a name to ask for.
        self.report();
        while self.write() || self.send() || self.fetch_robots() || self.deny() {}
        self.ask_names();
        if let Some(request) = self.scheduler.poll_request(self.now) {
            self.ask_index(&request);
        }
    }

    /// Ends what may not be fetched. True if there was something.
    fn deny(&mut self) -> bool {
        let any = self.scheduler.has_denied();
        self.report();
        any
    }

    fn report(&mut self) {
        while let Some(report) = self.scheduler.poll_report(self.now) {
            self.trace.note("report", self.now, report.doc.0);
            self.ledger.handle_report(self.now, report);
            if self.plan.keep_sends {
                self.reports.push((self.now, report));
            }
        }
    }

    /// Decides on all that may go now. True if that is anything.
    fn send(&mut self) -> bool {
        let mut any = false;
        while let Some(sent) = self.scheduler.poll_send(self.now) {
            any = true;
            self.ledger.handle_decided(self.now, &sent);
            let mut line = BytesMut::new();
            work::encode(&mut line, sent.trans, sent.doc, sent.ip, sent.host, sent.tail);
            let (spider, trans) = (sent.spider, sent.trans);
            let whole = (Box::<str>::from(sent.host), sent.tail.scheme, sent.tail.read().rest.to_owned());
            if self.plan.keep_sends {
                self.sends.push(SendSeen::new(self.now, &sent));
            }
            self.trace.note("send", self.now, trans.0);
            if let Some(fault) = self.objection(&whole.0, Tail { scheme: whole.1, rest: &whole.2 }) {
                self.ledger.faults.add(self.now, fault);
            }
            let Some(wire) = self.wires.get_mut(&spider) else { continue };
            wire.say(self.now, line, Some(trans));
            if let Some(choked) = wire.poll_choke() {
                self.scheduler.handle_choked(spider, choked);
            }
        }
        any
    }

    /// Writes what the wires take. True if a line was written to its end.
    fn write(&mut self) -> bool {
        let ready: Vec<SpiderId> = self
            .wires
            .iter()
            .filter(|(_, wire)| wire.has_news(&self.plan.wires))
            .map(|(&id, _)| id)
            .collect();
        let mut any = false;
        for id in ready {
            let Some(wire) = self.wires.get_mut(&id) else { continue };
            let (pieces, written) = wire.write(self.now, &self.plan.wires, &mut self.rng);
            if let Some(choked) = wire.poll_choke() {
                self.scheduler.handle_choked(id, choked);
            }
            self.scheduler.handle_written(self.now, id, written.len());
            written.iter().for_each(|&trans| self.ledger.handle_written(self.now, trans));
            any |= !written.is_empty();
            for piece in pieces {
                self.expect(
                    piece.at,
                    Happening::Arrived { wire: id, since: piece.since, bytes: piece.bytes },
                );
            }
        }
        any
    }

    fn ask_names(&mut self) {
        while self.lookups < LOOKUPS_MAX
            && let Some(lookup) = self.scheduler.poll_lookup()
        {
            let (host, name) = (lookup.host, Box::<str>::from(lookup.name));
            self.lookups += 1;
            let at = self.now + self.elsewhere.delay(&self.plan, &name, &mut self.rng);
            self.expect(at, Happening::Resolved { host, name });
        }
    }

    pub(super) fn resolve(&mut self, host: HostId, name: &str) {
        self.lookups -= 1;
        let resolution: Resolution = self.elsewhere.resolve(&self.plan, self.now, name, &mut self.rng);
        self.trace.note("resolved", self.now, u64::from(host.number()));
        self.ledger.handle_resolved(name, &resolution);
        self.scheduler.handle_resolved(self.now, host, resolution);
    }

    /// The answer comes in up to three parts.
    fn ask_index(&mut self, request: &Request) {
        self.trace.note("ask", self.now, request.reject.len() as u64);
        let ledger = &self.ledger;
        let manners = if self.healed { Default::default() } else { self.plan.index };
        let mut list = self
            .library
            .answer(request, &manners, &mut self.rng, |candidate| ledger.is_pending(candidate.doc));
        let most = manners.delay_max.as_micros() as u64;
        let mut at = self.now;
        self.answer_coming = true;
        for _ in 0..self.rng.u8(..3) {
            let part = list.split_off(self.rng.usize(..=list.len()));
            at = self.later(at, most);
            self.expect(at, Happening::Candidates { list: part, last: false });
        }
        at = self.later(at, most);
        self.expect(at, Happening::Candidates { list, last: true });
    }

    fn later(&mut self, at: Instant, most_micros: u64) -> Instant {
        at + Duration::from_micros(self.rng.u64(..=most_micros))
    }

    pub(super) fn offer(&mut self, list: Vec<Candidate>, last: bool) {
        // What has ended meanwhile, be it in this instant, would be another crawl of it.
        self.report();
        for mut candidate in list {
            if self.ledger.is_reported(candidate.doc) {
                continue;
            }
            if self.chance(self.plan.index.given_ip) {
                let site = self.elsewhere.site(&self.plan, candidate.url.host());
                candidate.ip = site.and_then(|site| self.rng.choice(&site.addresses)).copied();
            }
            self.trace.note("candidate", self.now, candidate.doc.0);
            let given = candidate.ip.map(|ip| (candidate.url.host(), ip));
            let admission = self.scheduler.handle_candidate(self.now, &candidate);
            self.ledger.handle_admitted(self.now, candidate.doc, given, admission);
        }
        if last {
            self.answer_coming = false;
            self.scheduler.handle_answered(self.now);
        }
    }

    /// Bytes of a spider: lines, each understood or answered with an ERROR.
    pub(super) fn hear(&mut self, id: SpiderId, bytes: &[u8]) {
        let Some(wire) = self.wires.get_mut(&id).filter(|wire| !wire.cut) else { return };
        self.trace.note_bytes("heard", self.now, bytes);
        wire.input.extend_from_slice(bytes);
        loop {
            let Some(wire) = self.wires.get_mut(&id) else { return };
            let Some(line) = wire.decoder.next_line(&mut wire.input) else { return };
            let heard = match &line {
                Line::Text(text) => Command::parse(text),
                Line::TooLong(_) => Err(CommandError::TooLong),
                Line::NotAscii => Err(CommandError::NotAscii),
            };
            match heard {
                Ok(None) => {}
                Ok(Some(command)) => {
                    wire.bad_run = 0;
                    self.obey(id, command);
                }
                Err(error) => self.complain(id, error),
            }
        }
    }

    fn obey(&mut self, id: SpiderId, command: Command<'_>) {
        match command {
            Command::Done { trans, said } => {
                let done = said.at(self.now.since(Instant::ZERO));
                let counted = self.scheduler.handle_done(self.now, id, trans, done);
                self.ledger.handle_done(self.now, id, trans, done, counted);
            }
            Command::Working { trans } => self.note_working(id, trans),
            Command::Get(lines) => self.scheduler.handle_credit(id, lines),
            Command::Add(url) => {
                if self.library.add(&url) {
                    self.scheduler.handle_index_news();
                }
            }
            Command::Auth(_) => {}
        }
    }

    fn note_working(&mut self, id: SpiderId, trans: TransId) {
        let counted = self.scheduler.handle_working(self.now, id, trans);
        self.ledger.handle_working(self.now, id, trans, counted);
    }

    fn complain(&mut self, id: SpiderId, error: CommandError) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let mut line = BytesMut::new();
        work::encode_error(&mut line, error);
        wire.say(self.now, line, None);
        wire.bad_run += 1;
        if wire.bad_run < BAD_RUN_MAX {
            return;
        }
        let seat = wire.seat;
        if self.seats[seat].wire == Some(id) {
            self.seats[seat].wire = None;
            self.seats[seat].spider.handle_closed(self.now);
        }
        self.hang_up(id);
    }

    /// The connection has ended, for the server too.
    pub(super) fn hang_up(&mut self, id: SpiderId) {
        if self.wires.remove(&id).is_some() {
            self.trace.note("gone", self.now, id.0);
            self.ledger.handle_gone(id);
            self.scheduler.handle_spider_gone(self.now, id);
        }
    }
}
