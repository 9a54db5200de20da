//! The one loop. It owns the scheduler and all spiders' connections, and never waits for anything but the
//! next event: reading, writing and asking are all done without blocking.

use super::alarm::Alarm;
use super::claims::Instructions;
use super::clock::Clock;
use super::connection::{Connection, ConnectionId};
use super::politeness::Politeness;
use super::rate::Rate;
use super::robots::RobotsDesk;
use crate::document::Candidate;
use crate::hostdb::{Resolution, Resolver};
use crate::ids::{FetchId, HostId, IpId, SpiderId};
use crate::index::{Adder, IndexEvent, IndexHandle};
use crate::robots::Answer;
use crate::scheduler::{Admission, Scheduler, Stats, Trying};
use crate::time::{Duration, Instant};
use crate::url::Url;
use hashbrown::DefaultHashBuilder;
use indexmap::{IndexMap, IndexSet};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Patience with the first question for a name. Most answers come in a fraction of it; the others are asked for
/// again, and then waited for as long as the settings say.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
/// Suspect addresses tried at the same time, and the longest wait for one.
const PROBES_MAX: usize = 64;
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// What is waited for is said when nothing has gone for this long.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Candidates taken in, and reports handed out, before anything else gets its turn.
const CANDIDATES_PER_TURN: usize = 256;
const REPORTS_PER_TURN: usize = 4096;
/// Longest wait, at the end, for URLs found by spiders to reach the index.
const ADDITIONS_TIMEOUT: Duration = Duration::from_millis(500);

/// What happens around the hub.
pub(super) enum Event {
    /// A spider is here.
    Connected(Box<Connection>),
    /// A connection has something to read.
    Readable(ConnectionId),
    /// A connection has room to write.
    Writable(ConnectionId),
    /// A spider has had its time to say the token.
    AuthOverdue(ConnectionId),
    /// A spider has had its time to read what was written.
    WriteOverdue(ConnectionId, u64),
    /// The answer to a look-up.
    Resolved(HostId, Resolution),
    /// The answer to a request for a robots.txt.
    Fetched(FetchId, Box<Answer>),
    /// Whether a suspect address could be connected to.
    Probed(IpId, bool),
    /// URLs found by spiders have reached the index.
    Added,
    /// All seeds have reached the index.
    Seeded,
    /// Somebody wants something done between two turns.
    Call(Box<dyn FnOnce(&mut Hub) + Send>),
    /// Stop.
    Stop,
}

/// How things stand with the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerStats {
    pub(super) scheduler: Stats,
    pub(super) malformed_lines: u64,
    pub(super) urls_per_sec: f64,
    pub(super) index_up: bool,
    /// Candidates that were given up before the scheduler saw them.
    pub(super) faulty_candidates: u64,
    pub(super) uptime: Duration,
}

/// What the hub needs from around it.
pub(super) struct Surroundings {
    pub(super) clock: Clock,
    /// With a durable index.
    pub(super) politeness: Option<Politeness>,
    pub(super) index: IndexHandle,
    pub(super) adder: Adder,
    pub(super) resolver: Arc<Resolver>,
    /// Where look-ups run.
    pub(super) rim: tokio::runtime::Handle,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) token: Option<String>,
    /// Longest time without any progress in writing to a spider.
    pub(super) stall_max: Duration,
    pub(super) exit_when_done: bool,
    /// Names looked up at the same time.
    pub(super) lookups_max: usize,
    pub(super) robots: RobotsDesk,
}

/// The loop's state.
pub(super) struct Hub {
    pub(super) around: Surroundings,
    pub(super) scheduler: Scheduler,
    pub(super) connections: IndexMap<ConnectionId, Connection, DefaultHashBuilder>,
    pub(super) by_spider: hashbrown::HashMap<SpiderId, ConnectionId>,
    pub(super) last_connection: u64,
    /// Connections that may have more to read at once.
    pub(super) readable: IndexSet<ConnectionId, DefaultHashBuilder>,
    /// Connections with something to write.
    pub(super) dirty: IndexSet<ConnectionId, DefaultHashBuilder>,
    /// Candidates that have arrived and are not taken in yet.
    arrivals: VecDeque<Candidate>,
    /// The end of the answer, behind those.
    answered: bool,
    lookups: usize,
    probes: usize,
    silence: Silence,
    pub(super) additions: usize,
    seeded: bool,
    index_up: bool,
    pub(super) malformed_lines: u64,
    pub(super) rate: Rate,
    done: Doneness,
    pub(super) instructions: Instructions,
}

/// Since when nothing was sent although something is pending.
#[derive(Default)]
struct Silence {
    sent: u64,
    since: Instant,
}

/// Whether the index has had nothing more since anything changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doneness {
    /// There was, or may be, something to do.
    Busy,
    /// Nothing is left here, but the index could not be asked; it is asked again after a while.
    Unanswered,
    /// Nothing is left here; the index is being asked whether it has more.
    Asking,
    /// It has not.
    Done,
}

impl Hub {
    pub(super) fn new(scheduler: Scheduler, around: Surroundings, seeded: bool) -> Hub {
        Hub {
            around,
            scheduler,
            connections: IndexMap::default(),
            by_spider: hashbrown::HashMap::new(),
            last_connection: 0,
            readable: IndexSet::default(),
            dirty: IndexSet::default(),
            arrivals: VecDeque::new(),
            answered: false,
            lookups: 0,
            probes: 0,
            silence: Silence::default(),
            additions: 0,
            seeded,
            index_up: false,
            malformed_lines: 0,
            rate: Rate::default(),
            done: Doneness::Busy,
            instructions: Instructions::default(),
        }
    }

    /// Runs until it is told to stop, or all is done; then gives the index back for its last reports.
    pub(super) async fn run(mut self, mut events: mpsc::Receiver<Event>) -> IndexHandle {
        let alarm = Alarm::new();
        loop {
            let more = self.turn().await;
            if self.is_done() {
                break;
            }
            if more {
                // Others on this thread, and the sockets, get their turn.
                tokio::task::yield_now().await;
            }
            match self.next_event(&mut events, &alarm, more).await {
                Some(Event::Stop) => break,
                Some(event) => self.handle(event),
                None => {}
            }
            if self.drain(&mut events) {
                break;
            }
        }
        self.stop(events).await
    }

    /// Handles what has happened already; true if it is time to stop.
    fn drain(&mut self, events: &mut mpsc::Receiver<Event>) -> bool {
        for _ in 0..64 {
            match events.try_recv() {
                Ok(Event::Stop) => return true,
                Ok(event) => self.handle(event),
                Err(_) => break,
            }
        }
        false
    }

    /// Waits for an event, for the index, or for the deadline; for nothing if there is `more` to do. Who is
    /// heard first is left to chance: a flood from one side does not drown the other.
    async fn next_event(
        &mut self,
        events: &mut mpsc::Receiver<Event>,
        alarm: &Alarm,
        more: bool,
    ) -> Option<Event> {
        let pending = !self.scheduler.is_drained();
        let silence = pending.then_some(self.silence.since + SILENCE_MAX);
        let deadline = self.scheduler.deadline().into_iter().chain(silence).min();
        let deadline = deadline.and_then(|at| self.around.clock.to_system(at));
        let sleep = async {
            match deadline {
                _ if more => {}
                Some(at) => alarm.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = events.recv() => Some(event.unwrap_or(Event::Stop)),
            event = self.around.index.event() => {
                self.handle_index(event);
                None
            }
            () = sleep => None,
        }
    }

    /// Does all that can be done now; true if there is more to do at once.
    async fn turn(&mut self) -> bool {
        let mut more = self.read_all();
        self.keep_clocks().await;
        more |= self.admit();
        if self.report_all() {
            more = true;
        } else {
            self.mind_claims();
        }
        self.send_all();
        while self.fetch_robots() {
            self.send_all();
        }
        more |= self.scheduler.has_denied();
        self.save_notes();
        self.look_up();
        self.try_addresses();
        self.ask_index();
        self.mind_silence();
        more
    }

    pub(super) fn now(&self) -> Instant {
        self.around.clock.now()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected(connection) => self.handle_connected(*connection),
            Event::Readable(id) => {
                self.readable.insert(id);
            }
            Event::Writable(id) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.awaits_room = false;
                    self.dirty.insert(id);
                }
            }
            Event::AuthOverdue(id) => {
                if self.connections.get(&id).is_some_and(|connection| connection.spider.is_none()) {
                    self.close(id, "no AUTH in time");
                }
            }
            Event::WriteOverdue(id, written) => {
                if self.connections.get(&id).is_some_and(|connection| connection.is_stuck_at(written)) {
                    self.close(id, "it does not read");
                }
            }
            Event::Resolved(host, resolution) => {
                self.lookups -= 1;
                self.scheduler.handle_resolved(self.now(), host, resolution);
            }
            Event::Fetched(id, answer) => self.handle_fetched(id, *answer),
            Event::Probed(ip, reachable) => {
                self.probes -= 1;
                self.scheduler.handle_probed(self.now(), ip, reachable);
            }
            // Whether there is anything new is for the index to say.
            Event::Added => {
                self.additions -= 1;
                self.done = Doneness::Busy;
            }
            Event::Seeded => {
                self.seeded = true;
                self.done = Doneness::Busy;
            }
            Event::Call(task) => task(self),
            Event::Stop => {}
        }
    }

    /// Whether a URL was given by the index, and is not taken in yet.
    pub(super) fn is_arriving(&self, url: &Url) -> bool {
        self.arrivals.iter().any(|candidate| candidate.url == *url)
    }

    /// Something may be to do again.
    fn change(&mut self) {
        self.done = Doneness::Busy;
        self.scheduler.handle_index_news();
    }

    pub(super) fn stats(&self) -> ServerStats {
        let (now, index) = (self.now(), self.around.index.counters());
        ServerStats {
            scheduler: self.scheduler.stats(),
            malformed_lines: self.malformed_lines,
            urls_per_sec: self.rate.per_sec(now),
            index_up: self.index_up,
            faulty_candidates: index.surplus.value() + index.unusable.value(),
            uptime: now.since(Instant::ZERO),
        }
    }

    /// Lets clocks run out; what was received in time is handled first.
    async fn keep_clocks(&mut self) {
        let now = self.now();
        if self.scheduler.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        if self.scheduler.lease_deadline().is_some_and(|deadline| deadline <= now) {
            // The sockets are looked at before this goes on.
            tokio::task::yield_now().await;
            self.catch_up();
        }
        self.scheduler.handle_timeout(now);
    }

    /// Takes in candidates that have arrived; true if there are more.
    fn admit(&mut self) -> bool {
        let now = self.now();
        for _ in 0..CANDIDATES_PER_TURN {
            let Some(candidate) = self.arrivals.pop_front() else { break };
            if self.scheduler.handle_candidate(now, &candidate) == Admission::Duplicate {
                tracing::debug!(doc = %candidate.doc, "candidate is pending already");
            }
            self.done = Doneness::Busy;
        }
        if self.arrivals.is_empty() && std::mem::take(&mut self.answered) {
            self.scheduler.handle_answered(now);
        }
        !self.arrivals.is_empty()
    }

    fn handle_index(&mut self, event: Option<IndexEvent>) {
        match event {
            Some(IndexEvent::Candidates(candidates)) => self.arrivals.extend(candidates),
            Some(IndexEvent::Answered { given, complete }) => {
                self.answered = true;
                if self.done == Doneness::Asking {
                    self.done = match (complete, given) {
                        (true, 0) => Doneness::Done,
                        (false, 0) => Doneness::Unanswered,
                        (_, _) => Doneness::Busy,
                    };
                }
            }
            Some(IndexEvent::Claims(news)) => self.handle_claims(&news),
            Some(IndexEvent::Grown) => self.change(),
            Some(IndexEvent::Up) => {
                self.index_up = true;
                // A request that is open by now was made over this connection.
                if !self.around.index.is_asking() {
                    self.change();
                }
            }
            Some(IndexEvent::Down) => self.index_up = false,
            None => {
                tracing::error!("the document index has stopped");
                let _ = self.around.events.try_send(Event::Stop);
            }
        }
    }

    fn ask_index(&mut self) {
        if self.answered || !self.arrivals.is_empty() {
            return;
        }
        if self.is_idle() && self.done == Doneness::Busy && !self.around.index.is_asking() {
            self.scheduler.handle_index_news();
        }
        let Some(request) = self.scheduler.poll_request(self.now()) else { return };
        if self.is_idle() {
            self.done = Doneness::Asking;
        }
        if !self.around.index.ask(request.count, request.reject) {
            self.answered = true;
        }
    }

    /// Nothing is left to do here, as far as is known.
    fn is_idle(&self) -> bool {
        self.around.exit_when_done && self.seeded && self.additions == 0 && self.scheduler.is_drained()
    }

    fn is_done(&self) -> bool {
        self.done == Doneness::Done && self.is_idle() && !self.around.index.is_asking()
    }

    fn look_up(&mut self) {
        while self.lookups < self.around.lookups_max
            && let Some(lookup) = self.scheduler.poll_lookup()
        {
            let (host, name) = (lookup.host, lookup.name.to_owned());
            let patience = if lookup.first { FIRST_PATIENCE } else { Duration::MAX };
            let (resolver, events) = (Arc::clone(&self.around.resolver), self.around.events.clone());
            self.lookups += 1;
            self.around.rim.spawn(async move {
                let resolution = tokio::time::timeout(patience, resolver.resolve(&name)).await;
                let resolution = resolution.unwrap_or(Resolution::Unavailable);
                let _ = events.send(Event::Resolved(host, resolution)).await;
            });
        }
    }

    fn try_addresses(&mut self) {
        while self.probes < PROBES_MAX
            && let Some(Trying { ip, address }) = self.scheduler.poll_probe()
        {
            let events = self.around.events.clone();
            self.probes += 1;
            self.around.rim.spawn(async move {
                let connected = tokio::time::timeout(PROBE_TIMEOUT, TcpStream::connect(address)).await;
                let _ = events.send(Event::Probed(ip, matches!(connected, Ok(Ok(_))))).await;
            });
        }
    }

    /// Says what is waited for when nothing goes: a crawl that only waits must not look like one that hangs.
    fn mind_silence(&mut self) {
        let (now, stats) = (self.now(), self.scheduler.stats());
        if stats.counters.sent != self.silence.sent || stats.queued + stats.leftover == 0 {
            self.silence = Silence { sent: stats.counters.sent, since: now };
        } else if now.since(self.silence.since) >= SILENCE_MAX {
            self.silence.since = now;
            let next_in = stats.next_timer.map(|at| at.since(now));
            tracing::info!(
                next_in = next_in.map(|delay| format!("{:.1}s", delay.as_secs_f64())),
                for_spider = stats.waiting.ready,
                for_host = stats.waiting.host,
                for_ip = stats.waiting.ip,
                for_group = stats.waiting.group,
                for_address = stats.unresolved,
                for_robots = stats.robots_waiting,
                for_time = stats.waiting_documents,
                benched = stats.benched,
                "nothing may go now; hosts wait"
            );
        }
    }

    /// Reports what has ended; true if there is more.
    fn report_all(&mut self) -> bool {
        let now = self.now();
        for _ in 0..REPORTS_PER_TURN {
            let Some(report) = self.scheduler.poll_report(now) else { return false };
            tracing::trace!(%report, "document ended");
            self.around.index.report(report);
        }
        true
    }

    /// The last words: what spiders have said so far still counts.
    async fn stop(mut self, mut events: mpsc::Receiver<Event>) -> IndexHandle {
        // The sockets are looked at once more.
        tokio::task::yield_now().await;
        self.catch_up();
        self.save_all();
        while self.report_all() {}
        self.scheduler.give_all_back(self.around.clock.now());
        self.mind_claims();
        let _ = tokio::time::timeout(ADDITIONS_TIMEOUT, self.settle_additions(&mut events)).await;
        let stats = self.scheduler.stats();
        let (pending, in_flight) = (stats.queued + stats.leftover, stats.in_flight);
        let handed_over = stats.counters.handed_over;
        tracing::info!(done = stats.counters.done, pending, in_flight, handed_over, "stopped");
        self.around.index
    }

    /// Waits until all that spiders have found is with the index.
    async fn settle_additions(&mut self, events: &mut mpsc::Receiver<Event>) {
        while self.additions > 0
            && let Some(event) = events.recv().await
        {
            if let Event::Added = event {
                self.additions -= 1;
            }
        }
    }
}
