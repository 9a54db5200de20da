//! One spider as a state machine without I/O: no clock, no sockets, everything drawn from one seed.
//!
//! The driver tells it what happened (`handle_*`, with the time), and then takes, in this order, what it
//! wants written ([`Spider::poll_output`]), what it wants done ([`Spider::poll_action`]) and
//! what it saw ([`Spider::poll_event`], for the auditor), each until there is no more; then it sleeps until
//! [`Spider::deadline`] or news. Same seed and same input: same bytes.

mod counts;
mod incoming;
mod pull;

pub use counts::Counts;

use crate::event::{Event, Sent};
use crate::line::{self, Line, Work};
use crate::profile::Profile;
use crate::speech::{self, Dialect};
use crate::violation::Violation;
use incoming::{Incoming, Piece};
use pull::Pull;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use urlserver::document::Done;
use urlserver::ids::{DocId, TransId};
use urlserver::time::{Duration, Instant};

/// An ERROR that has not come after this long will not come.
pub const ERROR_PATIENCE: Duration = Duration::from_secs(10);
/// WORKINGs do not come faster, whatever the persona says: time must pass between two.
const WORKING_EVERY_MIN: Duration = Duration::from_millis(1);
/// Sends remembered after their end, for repeated and late statuses.
const ENDED_KEPT: usize = 256;
/// Bad lines in a row that a spider dares: the server closes at 100.
const BAD_RUN_MAX: u32 = 90;
/// Most of a bad line that a violation quotes.
const QUOTE_MAX: usize = 200;

/// Who a spider is.
#[derive(Clone, PartialEq, Debug)]
pub struct Persona {
    /// Everything it does follows from this.
    pub seed: u64,
    /// What it is like.
    pub profile: Profile,
    /// Said first on each connection, if there is one.
    pub token: Option<String>,
    /// Time between two WORKINGs: well below the server's `timeout_spider_status`.
    pub working_every: Duration,
}

/// What the driver should do with the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Connect (or wait to be dialled), then `handle_connected`, or `handle_closed` if that failed.
    Connect,
    /// Drop the connection now, after what was to be written. No `handle_closed`.
    Close,
    /// Leave what arrives in the socket.
    StopReading,
    /// Read again.
    ResumeReading,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Down,
    Connecting,
    Up,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Task {
    Finish(TransId),
    Working(TransId),
    ResumeReading,
    Crash,
    Reconnect,
    MissError,
}

/// A URL being fetched.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    done: Done,
    /// [`Instant::FAR`] if it is held for ever.
    ends_at: Instant,
    dialect: Dialect,
    repeat: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Spider {
    persona: Persona,
    /// The time since 1970 at [`Instant::ZERO`], for dates.
    unix_start: Option<Duration>,
    rng: fastrand::Rng,
    link: Link,
    reading: bool,
    timers: BinaryHeap<Reverse<(Instant, u64, Task)>>,
    timer_seq: u64,
    fetches: HashMap<TransId, Fetch>,
    /// Ended on this connection, newest last.
    ended: VecDeque<TransId>,
    /// Sent on the connection before, ended or lost.
    late: VecDeque<TransId>,
    incoming: Incoming,
    owed_errors: VecDeque<Instant>,
    bad_run: u32,
    pull: Option<Pull>,
    output: VecDeque<Vec<u8>>,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
    counts: Counts,
}

impl Spider {
    /// A spider that wants to connect.
    pub fn new(persona: Persona) -> Spider {
        Spider {
            rng: fastrand::Rng::with_seed(persona.seed),
            persona,
            unix_start: None,
            link: Link::Connecting,
            reading: true,
            timers: BinaryHeap::new(),
            timer_seq: 0,
            fetches: HashMap::new(),
            ended: VecDeque::new(),
            late: VecDeque::new(),
            incoming: Incoming::default(),
            owed_errors: VecDeque::new(),
            bad_run: 0,
            pull: None,
            output: VecDeque::new(),
            actions: VecDeque::from([Action::Connect]),
            events: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Tells it the time since 1970 at [`Instant::ZERO`]: from now on it knows dates.
    pub fn set_unix_start(&mut self, unix_start: Duration) {
        self.unix_start = Some(unix_start);
    }

    /// From now on another character, as after healing. What is under way stays as it was drawn.
    pub fn set_profile(&mut self, profile: Profile) {
        self.persona.profile = profile;
    }

    /// The web server of a URL just read has a will of its own: the fetch ends so, after so long. What is
    /// held for ever stays held, and a spider that never says outcomes does not say this one.
    pub fn handle_answer(&mut self, now: Instant, trans: TransId, done: Done, latency: Duration) {
        let mute = self.persona.profile.unsaid >= 1.0;
        let form = Dialect::draw_form(&self.persona.profile, &mut self.rng);
        let Some(fetch) = self.fetches.get_mut(&trans).filter(|fetch| fetch.ends_at != Instant::FAR) else {
            return;
        };
        fetch.ends_at = now + latency;
        if !mute {
            fetch.done = done;
            fetch.dialect.verb_first = false;
            fetch.dialect.wait = form;
        }
        let ends_at = fetch.ends_at;
        self.schedule(ends_at, Task::Finish(trans));
    }

    /// The connection is there.
    pub fn handle_connected(&mut self, now: Instant) {
        self.link = Link::Up;
        self.reading = true;
        self.counts.connections += 1;
        if let Some(token) = self.persona.token.clone() {
            self.say(format!("AUTH {token}\n").as_bytes());
        }
        if let Some(keep) = self.persona.profile.pull {
            self.pull = Some(Pull::new(now, keep));
            self.say(format!("GET {keep}\n").as_bytes());
        }
        if self.chance(self.persona.profile.late) {
            self.say_late();
        }
    }

    /// The server closed the connection, or it could not be made.
    pub fn handle_closed(&mut self, now: Instant) {
        match self.link {
            Link::Down => {}
            Link::Connecting => self.go_down(now),
            Link::Up => {
                self.output.clear();
                self.events.push_back(Event::Closed { at: now });
                self.go_down(now);
            }
        }
    }

    /// Bytes arrived, none of them written before `since`. In virtual time that is when they were
    /// written; over TCP the last moment at which the socket was seen empty.
    pub fn handle_bytes(&mut self, now: Instant, since: Instant, bytes: &[u8]) {
        if self.link != Link::Up {
            return;
        }
        let mut rest = bytes;
        while let Some(piece) = self.incoming.poll_piece(since, &mut rest) {
            match piece {
                Piece::Line { since, line } => {
                    self.handle_line(now, since, &line);
                    self.incoming.recycle(line);
                }
                Piece::TooLong(line) => self.complain(now, &line, line::Fault::TooLong),
            }
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&Reverse((due, _, task))) = self.timers.peek() {
            if due > now {
                break;
            }
            self.timers.pop();
            self.run(now, task);
        }
    }

    /// The next bytes to write, in a write of their own.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        if let Some(pull) = &mut self.pull {
            pull.handle_taken();
        }
        // An empty chunk only marks where a dribbled line ends.
        while self.output.front().is_some_and(Vec::is_empty) {
            self.output.pop_front();
        }
        self.output.pop_front()
    }

    /// The next thing to do.
    #[must_use]
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next thing for the auditor.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call `handle_timeout`; [`Instant::FAR`] if there is no need.
    pub fn deadline(&self) -> Instant {
        self.timers.peek().map_or(Instant::FAR, |Reverse((due, _, _))| *due)
    }

    /// What it did so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// URLs being fetched; those held for ever are not among them.
    pub fn fetching(&self) -> usize {
        self.fetches.len()
    }

    /// True while connected.
    pub fn is_connected(&self) -> bool {
        self.link == Link::Up
    }

    fn handle_line(&mut self, now: Instant, since: Instant, line: &[u8]) {
        match line::parse(line) {
            Ok(Line::Work(work)) => self.handle_work(now, since, work),
            Ok(Line::Error(reason)) => self.handle_error(now, reason),
            Err(fault) => self.complain(now, line, fault),
        }
    }

    fn handle_work(&mut self, now: Instant, since: Instant, work: Work) {
        let Work { trans, doc, ip, url } = work;
        self.counts.urls += 1;
        if self.ended.contains(&trans) {
            self.events.push_back(Event::Broken(Violation::TransRepeated { at: now, trans, doc }));
        }
        self.use_credit(now, since, doc);
        let host = url.host().to_owned();
        self.events.push_back(Event::Sent(Sent { at: now, since, trans, doc, ip, url }));
        self.fetch(now, trans);
        self.misbehave(now, trans, &host);
    }

    /// Draws how the fetch will go.
    fn fetch(&mut self, now: Instant, trans: TransId) {
        let profile = &self.persona.profile;
        let latency = profile.latency.draw(&mut self.rng);
        let dialect = Dialect::draw(profile, &mut self.rng);
        let done = speech::draw_done(profile, dialect, &mut self.rng);
        let (repeat, silent, hang, crash) = (profile.repeat, profile.silent, profile.hang, profile.crash);
        let ends_at = now + latency;
        let fetch = Fetch { done, ends_at, dialect, repeat: self.chance(repeat) };
        let (silent, hang, crash) = (self.chance(silent), self.chance(hang), self.chance(crash));
        let ends_at = if hang { Instant::FAR } else { ends_at };
        self.fetches.insert(trans, Fetch { ends_at, ..fetch });
        if crash {
            let after = latency.mul_f64(self.rng.f64());
            self.schedule(now + after, Task::Crash);
        }
        if hang {
            self.counts.hangs += 1;
            self.return_credit();
            return;
        }
        self.schedule(ends_at, Task::Finish(trans));
        if !silent && latency > self.persona.working_every {
            self.schedule(now + self.persona.working_every, Task::Working(trans));
        }
    }

    /// What a spider does beside fetching.
    fn misbehave(&mut self, now: Instant, trans: TransId, host: &str) {
        let Profile { stall, flood, garbage, add, .. } = self.persona.profile;
        if self.chance(stall) && self.reading {
            self.reading = false;
            self.counts.stalls += 1;
            self.actions.push_back(Action::StopReading);
            let pause = self.persona.profile.stall_max.mul_f64(self.rng.f64());
            self.schedule(now + pause, Task::ResumeReading);
        }
        if self.chance(flood) {
            self.say_flood();
        }
        if self.chance(garbage) && self.bad_run < BAD_RUN_MAX {
            let line = speech::garbage(trans, &mut self.rng);
            self.say_bad(now, &line);
        }
        if self.chance(add) && self.counts.adds < u64::from(self.persona.profile.adds_max) {
            self.counts.adds += 1;
            let line = speech::add(host, self.rng.u32(..), &mut self.rng);
            self.say(line.as_bytes());
        }
    }

    fn run(&mut self, now: Instant, task: Task) {
        match task {
            Task::Finish(trans) => self.finish(now, trans),
            Task::Working(trans) => self.work_on(now, trans),
            Task::ResumeReading => self.resume_reading(now),
            Task::Crash => self.crash(now),
            Task::Reconnect => {
                self.link = Link::Connecting;
                self.actions.push_back(Action::Connect);
            }
            Task::MissError => self.miss_error(now),
        }
    }

    fn finish(&mut self, now: Instant, trans: TransId) {
        if self.fetches.get(&trans).is_none_or(|fetch| fetch.ends_at > now) {
            return;
        }
        let Some(fetch) = self.fetches.remove(&trans) else { return };
        let (done, wait) = self.word(now, &fetch);
        self.events.push_back(Event::Done { at: now, trans, done });
        self.counts.count_done(done);
        let line = speech::done(trans, done.outcome, wait.as_deref(), fetch.dialect);
        self.say(line.as_bytes());
        if fetch.repeat {
            self.counts.stale += 1;
            self.say(line.as_bytes());
        }
        self.remember_ended(trans);
        self.return_credit();
    }

    /// What is said of a fetch now, with the wait in words.
    fn word(&self, now: Instant, fetch: &Fetch) -> (Done, Option<String>) {
        let Some(wait) = fetch.done.retry_after else { return (fetch.done, None) };
        let unix_now = self.unix_start.map(|start| start + now.since(Instant::ZERO));
        let (text, retry_after) = fetch.dialect.wait.word(unix_now, wait);
        (Done { retry_after, ..fetch.done }, Some(text))
    }

    fn work_on(&mut self, now: Instant, trans: TransId) {
        let Some(fetch) = self.fetches.get(&trans).copied() else { return };
        let again = self.persona.working_every.max(WORKING_EVERY_MIN);
        self.counts.workings += 1;
        self.events.push_back(Event::Working { at: now, trans });
        self.say(speech::working(trans, fetch.dialect).as_bytes());
        self.schedule(now + again, Task::Working(trans));
    }

    fn resume_reading(&mut self, now: Instant) {
        self.reading = true;
        self.actions.push_back(Action::ResumeReading);
        // What was owed may be waiting in the socket.
        self.owed_errors.iter_mut().for_each(|said| *said = now);
        if !self.owed_errors.is_empty() {
            self.schedule(now + ERROR_PATIENCE, Task::MissError);
        }
    }

    /// Drops the connection, half of the time in the middle of a line.
    fn crash(&mut self, now: Instant) {
        self.counts.crashes += 1;
        if self.rng.bool() {
            // Cut inside the verb, so that no reading of it can be a DONE.
            let trans = self.fetches.keys().min().copied().unwrap_or(TransId(0));
            self.output.push_back(format!("{trans} DO").into_bytes());
        }
        self.actions.push_back(Action::Close);
        self.events.push_back(Event::Closed { at: now });
        self.go_down(now);
    }

    fn go_down(&mut self, now: Instant) {
        self.link = Link::Down;
        self.timers.clear();
        let mut lost: Vec<TransId> = self.fetches.drain().map(|(trans, _)| trans).collect();
        lost.sort_unstable();
        lost.into_iter().for_each(|trans| self.remember_ended(trans));
        self.late = std::mem::take(&mut self.ended);
        self.counts.errors_excused += self.owed_errors.len() as u64;
        self.owed_errors.clear();
        self.bad_run = 0;
        self.pull = None;
        self.incoming = Incoming::default();
        let delay = self.persona.profile.reconnect_max.mul_f64(self.rng.f64());
        self.schedule(now + delay, Task::Reconnect);
    }

    fn handle_error(&mut self, now: Instant, reason: String) {
        self.counts.errors_received += 1;
        if self.owed_errors.pop_front().is_none() {
            self.events.push_back(Event::Broken(Violation::UndeservedError { at: now, reason }));
        }
    }

    fn miss_error(&mut self, now: Instant) {
        while let Some(&said) = self.owed_errors.front() {
            if !self.reading || said + ERROR_PATIENCE > now {
                break;
            }
            self.owed_errors.pop_front();
            self.events.push_back(Event::Broken(Violation::MissingError { at: now, said }));
        }
    }

    fn complain(&mut self, now: Instant, line: &[u8], fault: line::Fault) {
        let quote = &line[..line.len().min(QUOTE_MAX)];
        let line = quote.escape_ascii().to_string();
        self.events.push_back(Event::Broken(Violation::BadLine { at: now, line, fault }));
    }

    fn use_credit(&mut self, now: Instant, since: Instant, doc: DocId) {
        if let Some(credit) = self.pull.as_mut().and_then(|pull| pull.handle_line(since)) {
            self.events.push_back(Event::Broken(Violation::BeyondCredit { at: now, doc, credit }));
        }
    }

    /// One fetch less under way: ask for more, several at a time.
    fn return_credit(&mut self) {
        if let Some(more) = self.pull.as_mut().and_then(Pull::handle_end) {
            self.say(format!("GET {more}\n").as_bytes());
        }
    }

    /// Statuses of the connection before.
    fn say_late(&mut self) {
        let late: Vec<TransId> = self.late.iter().rev().take(8).copied().collect();
        for trans in late {
            self.counts.stale += 1;
            self.say(format!("{trans} DONE 200\n").as_bytes());
        }
    }

    fn say_flood(&mut self) {
        for _ in 0..self.rng.u32(20..200) {
            self.counts.stale += 1;
            let old = if self.rng.bool() { &self.ended } else { &self.late };
            let line = match self.rng.choice(old) {
                Some(trans) if self.rng.bool() => format!("{trans} DONE\n"),
                Some(_) | None => speech::invented(&mut self.rng),
            };
            self.say(line.as_bytes());
        }
    }

    /// Says a line that deserves an ERROR.
    fn say_bad(&mut self, now: Instant, line: &[u8]) {
        let run = self.bad_run;
        self.say(line);
        self.bad_run = run + 1;
        self.counts.errors_provoked += 1;
        self.owed_errors.push_back(now);
        self.schedule(now + ERROR_PATIENCE, Task::MissError);
    }

    /// Lines are gathered into one write, unless they dribble.
    fn say(&mut self, line: &[u8]) {
        self.bad_run = 0;
        if line.len() < 100 && self.chance(self.persona.profile.dribble) {
            self.output.extend(line.iter().map(|&b| vec![b]));
            self.output.push_back(Vec::new());
            return;
        }
        match self.output.back_mut() {
            Some(chunk) => chunk.extend_from_slice(line),
            None => self.output.push_back(line.to_vec()),
        }
    }

    fn remember_ended(&mut self, trans: TransId) {
        if self.ended.len() == ENDED_KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(trans);
    }

    fn schedule(&mut self, at: Instant, task: Task) {
        self.timer_seq += 1;
        self.timers.push(Reverse((at, self.timer_seq, task)));
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.rng.f64() < probability
    }
}

#[cfg(test)]
#[path = "machine/tests.rs"]
mod tests;
