//! What the hub does with spiders: lets them in, hears them, sends to them, lets them go.

use super::clock::Clock;
use super::connection::{Connection, ConnectionId, Heard, Read, hear};
use super::doors;
use super::hub::{Event, Hub};
use crate::document::{Done, Outcome};
use crate::ids::{SpiderId, TransId};
use crate::index::Addition;
use crate::scheduler::APPROACHED;
use crate::time::{Duration, Instant};
use crate::url::Url;
use crate::wire::{Command, CommandError, LineRef};
use std::sync::Arc;

/// Reads of one connection before the others get their turn.
const READS_PER_TURN: usize = 4;
/// Reads of one connection before a clock runs out: more than a socket holds. And the longest time for it.
const READS_TO_CATCH_UP: usize = 256;
const CATCH_UP_MAX: Duration = Duration::from_secs(1);
/// URLs found by spiders on their way to the index. A spider that finds more waits for its ADDs to be read.
const ADDITIONS_MAX: usize = 64;
/// Longest wait for the first line where a token is asked for.
const AUTH_TIMEOUT: Duration = Duration::from_secs(10);

impl Hub {
    pub(super) fn handle_connected(&mut self, mut connection: Connection) {
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        let (stream, watch) = (Arc::clone(&connection.stream), Arc::clone(&connection.watch));
        tracing::info!(spider = id.0, peer = %connection.peer, "spider connected");
        let watcher = tokio::spawn(doors::watch(id, stream, watch, self.around.events.clone()));
        connection.watcher = Some(watcher.abort_handle());
        self.connections.insert(id, connection);
        if self.around.token.is_none() {
            self.welcome(id);
        } else {
            self.later(AUTH_TIMEOUT, Event::AuthOverdue(id));
        }
    }

    /// The spider may be given work.
    fn welcome(&mut self, id: ConnectionId) -> SpiderId {
        let spider = self.scheduler.handle_spider_connected();
        self.by_spider.insert(spider, id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.spider = Some(spider);
        }
        spider
    }

    fn later(&self, delay: Duration, event: Event) {
        let events = self.around.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let _ = events.send(event).await;
        });
    }

    pub(super) fn close(&mut self, id: ConnectionId, why: &str) {
        let Some(connection) = self.connections.swap_remove(&id) else { return };
        self.readable.swap_remove(&id);
        self.dirty.swap_remove(&id);
        tracing::info!(spider = id.0, peer = %connection.peer, why, "spider's connection ended");
        if let Some(spider) = connection.spider {
            self.by_spider.remove(&spider);
            self.scheduler.handle_spider_gone(self.now(), spider);
        }
    }

    /// Reads what spiders have said; true if some have said more.
    pub(super) fn read_all(&mut self) -> bool {
        for id in std::mem::take(&mut self.readable) {
            self.read(id, READS_PER_TURN);
        }
        !self.readable.is_empty()
    }

    fn read(&mut self, id: ConnectionId, reads: usize) {
        for _ in 0..reads {
            // URLs that were found wait for the index: the sockets hold back what comes next.
            if self.additions >= ADDITIONS_MAX {
                self.readable.insert(id);
                return;
            }
            if !self.read_once(id) {
                return;
            }
        }
        self.readable.insert(id);
    }

    /// Reads all that had come when it was called. One that goes on talking holds up nobody for long, and
    /// the others are heard first.
    pub(super) fn catch_up(&mut self) {
        let end = self.now() + CATCH_UP_MAX;
        let mut talking: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for _ in 0..READS_TO_CATCH_UP {
            talking.retain(|&id| self.read_once(id));
            if talking.is_empty() || self.now() >= end {
                break;
            }
        }
        self.readable.extend(talking);
    }

    /// Reads a connection once, and does what it says; false if there is nothing more for now.
    fn read_once(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        match connection.read() {
            Read::More => return self.handle_lines(id),
            Read::Empty => connection.watch.notify_one(),
            Read::Gone => self.close(id, "the spider closed it"),
        }
        false
    }

    /// Handles the lines that were read; false if the connection is closed now.
    fn handle_lines(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let (mut input, mut spider) = (connection.take_input(), connection.spider);
        // All of it had come by now.
        let now = self.now();
        let (mut dones, mut found) = (Vec::with_capacity(APPROACHED), Vec::new());
        let mut open = true;
        while open {
            while let Some(known) = spider
                && let Some(done) = input.next_done()
            {
                dones.push(done);
                if dones.len() == APPROACHED {
                    self.end_fetches(now, known, &mut dones);
                }
            }
            let Some(line) = input.next_line() else { break };
            let Some(known) = spider else {
                spider = self.authenticate(id, line);
                open = spider.is_some();
                continue;
            };
            self.end_fetches(now, known, &mut dones);
            let understood = match hear(line) {
                None => continue,
                Some(Heard::Command(command)) => self.obey(now, id, known, command, &mut found),
                Some(Heard::Bad(error)) => {
                    self.complain(id, error);
                    false
                }
            };
            if !input.count_line(understood) {
                self.write(id);
                self.close(id, "too many lines that make no sense");
                open = false;
            }
        }
        if let Some(known) = spider {
            self.end_fetches(now, known, &mut dones);
        }
        self.add(found);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.put_back(input);
        }
        open
    }

    /// Fetches have ended, in this order.
    fn end_fetches(&mut self, now: Instant, spider: SpiderId, dones: &mut Vec<(TransId, Outcome)>) {
        self.scheduler.approach(dones.iter().map(|(trans, _)| *trans));
        for (trans, outcome) in dones.drain(..) {
            self.scheduler.handle_done(now, spider, trans, Done { outcome, retry_after: None });
        }
    }

    /// Lets a spider in that says the right token, or lets it go.
    fn authenticate(&mut self, id: ConnectionId, line: LineRef<'_>) -> Option<SpiderId> {
        let said = match hear(line) {
            Some(Heard::Command(Command::Auth(said))) => said,
            Some(Heard::Command(_) | Heard::Bad(_)) | None => "",
        };
        let right =
            self.around.token.as_deref().is_none_or(|token| super::same(said.as_bytes(), token.as_bytes()));
        if right {
            return Some(self.welcome(id));
        }
        self.close(id, "no AUTH with the right token");
        None
    }

    /// Does what a spider says; false if it makes no sense.
    fn obey(
        &mut self,
        now: Instant,
        id: ConnectionId,
        spider: SpiderId,
        command: Command<'_>,
        found: &mut Vec<Url>,
    ) -> bool {
        match command {
            Command::Done { trans, said } => {
                let dated = said.retry_after.is_some();
                let since_1970 = if dated { Clock::since_1970() } else { Duration::ZERO };
                self.scheduler.handle_done(now, spider, trans, said.at(since_1970));
            }
            Command::Working { trans } => {
                self.scheduler.handle_working(now, spider, trans);
            }
            Command::Get(lines) => self.scheduler.handle_credit(spider, lines),
            Command::Add(url) => found.push(url),
            Command::Auth(_) if self.around.token.is_none() => {}
            Command::Auth(said) => {
                let right = self.around.token.as_deref() == Some(said);
                if !right {
                    self.complain(id, CommandError::Verb);
                }
                return right;
            }
        }
        true
    }

    fn complain(&mut self, id: ConnectionId, error: CommandError) {
        self.malformed_lines += 1;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.push_error(error);
            self.dirty.insert(id);
        }
    }

    /// Hands URLs that were found to the index.
    pub(super) fn add(&mut self, found: Vec<Url>) {
        if found.is_empty() {
            return;
        }
        self.additions += 1;
        let (adder, events) = (self.around.adder.clone(), self.around.events.clone());
        let urls = found.into_iter().map(|url| Addition { doc: None, url, not_before: None }).collect();
        tokio::spawn(async move {
            if adder.add(urls).await.is_err() {
                tracing::debug!("URLs found by a spider came after the index was closed");
            }
            let _ = events.send(Event::Added).await;
        });
    }

    /// Sends all that may go. A socket that takes all of what it had not taken before makes room for more.
    pub(super) fn send_all(&mut self) {
        loop {
            self.send_what_may_go();
            let mut freed = false;
            for id in std::mem::take(&mut self.dirty) {
                freed |= self.write(id);
            }
            if !freed {
                return;
            }
        }
    }

    /// Decides on line after line, each into its connection's buffer; a buffer that is full is written at once.
    fn send_what_may_go(&mut self) {
        let mut now = self.now();
        // Most lines go where the last one went.
        let mut last = None;
        let mut count = 0;
        while let Some(work) = self.scheduler.poll_send(now) {
            count += 1;
            let place = match last {
                Some((spider, place)) if spider == work.spider => Some(place),
                Some(_) | None => {
                    let id = self.by_spider.get(&work.spider);
                    let place = id.and_then(|id| self.connections.get_index_of(id));
                    self.dirty.extend(id);
                    last = place.map(|place| (work.spider, place));
                    place
                }
            };
            let Some((&id, connection)) = place.and_then(|place| self.connections.get_index_mut(place))
            else {
                continue;
            };
            if !connection.push_work(&work) {
                self.write(id);
                last = None;
                now = self.now();
            }
        }
        self.rate.count(now, count);
    }

    /// Writes what the socket takes. What it does not take stops more from being sent there; true if there was
    /// something like that, and is no more.
    fn write(&mut self, id: ConnectionId) -> bool {
        if let Some(spider) = self.connections.get(&id).and_then(|connection| connection.spider) {
            self.save_before_write(spider);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        if self.scheduler.claims_have_lapsed(self.around.clock.now()) {
            return false;
        }
        let Ok(lines) = connection.write() else {
            self.close(id, "it cannot be written to");
            return false;
        };
        let stuck = connection.has_output();
        let was_stuck = std::mem::replace(&mut connection.stuck, stuck);
        if let Some(spider) = connection.spider {
            let now = self.around.clock.now();
            self.scheduler.handle_written(now, spider, lines);
            self.scheduler.handle_choked(spider, stuck);
        }
        if stuck && !std::mem::replace(&mut connection.awaits_room, true) {
            let (stream, written) = (Arc::clone(&connection.stream), connection.written());
            let waiter = tokio::spawn(doors::await_room(id, stream, self.around.events.clone()));
            connection.waiter = Some(waiter.abort_handle());
            self.later(self.around.stall_max, Event::WriteOverdue(id, written));
        }
        was_stuck && !stuck
    }
}
