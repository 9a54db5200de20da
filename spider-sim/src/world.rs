//! A whole crawl in virtual time, from one seed: the real scheduler, real spiders, and everything between
//! and around them that can go wrong.
//!
//! Faults come first. At [`Plan::heal_at`] everything is well again, and what was accepted must drain: every
//! document reported exactly once, every slot free. All the way the [`Auditor`] watches what spiders see, the
//! ledger what the server does, and the scheduler checks its own laws. The same plan gives the same trace.
//!
//! The server's half of a step is in `server`: it does what the server's loop does, in the same order.
//! Not here: sockets, tasks, clocks, settings.

pub mod draw;
mod elsewhere;
mod fault;
mod ledger;
mod library;
pub mod plan;
mod robots;
mod server;
mod verdict;
mod wire;

pub use draw::{Scale, draw};
pub use fault::{Fault, Faults};
pub use plan::Plan;
pub use verdict::{SendSeen, Verdict};

use crate::audit::{Auditor, GateKey, GateLimit, Grouping, Limits, Slack};
use crate::event::{Event, Sent};
use crate::machine::{Action, Persona, Spider};
use crate::profile::Profile;
use elsewhere::Elsewhere;
use ledger::Ledger;
use library::Library;
use std::collections::BTreeMap;
use urlserver::document::{Candidate, Report};
use urlserver::ids::{HostId, SpiderId};
use urlserver::robots::Answer;
use urlserver::scheduler::{Config, RobotsFetch, Scheduler};
use urlserver::time::{Duration, Instant};
use verdict::Trace;
use wire::Wire;

/// The server learns of a broken connection within this time.
const NOTICE_MAX: Duration = Duration::from_secs(1);
/// Steps in one instant after which time is said to stand still.
const STEPS_PER_INSTANT_MAX: u32 = 100_000;
/// All that was accepted must drain within this time after healing: the longest hold, and some.
const DRAIN_MAX: Duration = Duration::from_secs(45 * 86_400);

/// Something that will happen.
enum Happening {
    /// A spider's attempt to connect comes to its end.
    Connect { seat: usize },
    /// Bytes reach a spider.
    Arrived { wire: SpiderId, since: Instant, bytes: Vec<u8> },
    /// Bytes reach the server.
    Heard { wire: SpiderId, bytes: Vec<u8> },
    /// A connection breaks in the middle.
    Cut { wire: SpiderId },
    /// The server learns that a connection has ended.
    HungUp { wire: SpiderId },
    /// Name servers have answered, or will not.
    Resolved { host: HostId, name: Box<str> },
    /// A web server has answered for its robots.txt, or will not.
    Fetched { fetch: RobotsFetch, answer: Box<Answer> },
    /// A part of the index's answer.
    Candidates { list: Vec<Candidate>, last: bool },
    /// New documents come to the index.
    Late,
    /// All is well from now on.
    Heal,
}

/// Where a spider sits.
struct Seat {
    spider: Spider,
    wire: Option<SpiderId>,
    reading: bool,
}

/// See the module.
pub struct World {
    plan: Plan,
    rng: fastrand::Rng,
    now: Instant,
    healed: bool,
    agenda: BTreeMap<(Instant, u64), Happening>,
    happenings: u64,
    steps: u64,
    steps_now: u32,
    scheduler: Scheduler,
    seats: Vec<Seat>,
    wires: BTreeMap<SpiderId, Wire>,
    lookups: usize,
    watch: robots::Watch,
    answer_coming: bool,
    library: Library,
    elsewhere: Elsewhere,
    ledger: Ledger,
    auditor: Auditor,
    trace: Trace,
    sends: Vec<SendSeen>,
    reports: Vec<(Instant, Report)>,
}

impl World {
    /// A world at its beginning.
    pub fn new(plan: Plan) -> World {
        let rules = plan.config.clone();
        World::with_rules(plan, rules)
    }

    /// A world whose scheduler goes by other rules than the plan's, to see that this is found out.
    pub fn with_rules(plan: Plan, rules: Config) -> World {
        let mut rng = fastrand::Rng::with_seed(plan.seed);
        let working_every = plan.config.status_timeout / 3;
        let mut seat = |profile: &Profile| Seat {
            spider: Spider::new(Persona {
                seed: rng.u64(..),
                profile: profile.clone(),
                token: None,
                working_every,
            }),
            wire: None,
            reading: true,
        };
        let mut seats: Vec<Seat> = plan.spiders.iter().map(&mut seat).collect();
        seats.iter_mut().for_each(|seat| seat.spider.set_unix_start(Duration::ZERO));
        let mut world = World {
            library: Library::new(&plan.sites, &plan.index, plan.heal_at, &mut rng),
            rng,
            now: Instant::ZERO,
            healed: false,
            agenda: BTreeMap::new(),
            happenings: 0,
            steps: 0,
            steps_now: 0,
            scheduler: Scheduler::new(rules),
            seats,
            wires: BTreeMap::new(),
            lookups: 0,
            watch: robots::Watch::default(),
            answer_coming: false,
            elsewhere: Elsewhere::new(&plan),
            ledger: Ledger::new(&plan.config),
            auditor: auditor(&plan),
            trace: Trace::default(),
            sends: Vec::new(),
            reports: Vec::new(),
            plan,
        };
        world.expect(world.plan.heal_at, Happening::Heal);
        world.expect_late();
        world
    }

    /// Lets the world run until it is drained, or until something is wrong; `watch` is called now and then.
    pub fn run(mut self, mut watch: impl FnMut(&World)) -> Verdict {
        let limit = self.plan.heal_at + DRAIN_MAX;
        let mut drained = false;
        while !drained && self.is_sound() {
            self.step();
            if self.steps.is_multiple_of(4096) {
                watch(&self);
            }
            if self.now > limit {
                let stats = Box::new(self.scheduler.stats());
                self.ledger.faults.add(self.now, Fault::Stuck(stats));
            }
            drained = self.is_drained();
        }
        if drained {
            self.conclude();
        }
        Verdict::new(self)
    }

    /// The scheduler, to be looked at.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Documents reported.
    pub fn reported(&self) -> u64 {
        self.ledger.reported()
    }

    /// Things found wrong so far.
    pub fn wrongs(&self) -> u64 {
        self.ledger.faults.count() + self.auditor.violation_count()
    }

    fn is_sound(&self) -> bool {
        self.wrongs() == 0
    }

    fn is_drained(&self) -> bool {
        self.healed && !self.answer_coming && self.library.is_empty() && self.scheduler.is_drained()
    }

    /// Everything has ended: nothing may be left over.
    fn conclude(&mut self) {
        self.check();
        self.ledger.handle_end(self.now);
        self.auditor.finish(self.now, &[]);
        let stats = self.scheduler.stats();
        // A redirect may be followed for a host whose documents have ended meanwhile.
        let bound = stats.slots_bound.saturating_sub(stats.robots_waiting);
        let left = (stats.queued, stats.leftover, stats.in_flight, bound);
        if left != (0, 0, 0, 0) || self.ledger.in_flight() > 0 {
            self.ledger.faults.add(self.now, Fault::NotFree(Box::new(stats)));
        }
        if self.ledger.reported() != self.library.accepted() {
            let text = format!("{} accepted, {} reported", self.library.accepted(), self.ledger.reported());
            self.ledger.faults.add(self.now, Fault::Law(text));
        }
    }

    /// Goes to the next moment at which something happens, and lets it happen: what arrives, what spiders
    /// do, and last what the server does, so that what it has received counts before its clocks.
    fn step(&mut self) {
        let next = self.next_moment();
        self.steps += 1;
        self.steps_now = if next > self.now { 0 } else { self.steps_now + 1 };
        if self.steps_now > STEPS_PER_INSTANT_MAX {
            return self.ledger.faults.add(self.now, Fault::StandStill);
        }
        self.now = next;
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= next) {
            let happening = entry.remove();
            self.happen(happening);
        }
        for seat in 0..self.seats.len() {
            if self.seats[seat].spider.deadline() <= next {
                self.seats[seat].spider.handle_timeout(next);
            }
            self.mind_spider(seat);
        }
        self.auditor.handle_timeout(next);
        self.serve();
        if self.steps.is_multiple_of(self.plan.check_every) {
            self.check();
        }
    }

    fn next_moment(&self) -> Instant {
        let agenda = self.agenda.first_key_value().map_or(Instant::FAR, |((at, _), _)| *at);
        let spiders = self.seats.iter().map(|seat| seat.spider.deadline()).min().unwrap_or(Instant::FAR);
        let server = self.scheduler.deadline().unwrap_or(Instant::FAR);
        agenda.min(spiders).min(server).max(self.now)
    }

    fn check(&mut self) {
        if let Err(broken) = self.scheduler.check(self.now) {
            self.ledger.faults.add(self.now, Fault::Law(broken));
        }
    }

    fn expect(&mut self, at: Instant, happening: Happening) {
        self.happenings += 1;
        self.agenda.insert((at, self.happenings), happening);
    }

    fn expect_late(&mut self) {
        if let Some(at) = self.library.next_late() {
            self.expect(at, Happening::Late);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Connect { seat } => self.connect(seat),
            Happening::Arrived { wire, since, bytes } => self.arrive(wire, since, bytes),
            Happening::Heard { wire, bytes } => self.hear(wire, &bytes),
            Happening::Cut { wire } => self.cut(wire),
            Happening::HungUp { wire } => self.hang_up(wire),
            Happening::Resolved { host, name } => self.resolve(host, &name),
            Happening::Fetched { fetch, answer } => self.handle_fetched(&fetch, *answer),
            Happening::Candidates { list, last } => self.offer(list, last),
            Happening::Late => {
                if self.library.handle_late(self.now, &self.plan.sites) {
                    self.scheduler.handle_index_news();
                }
                self.expect_late();
            }
            Happening::Heal => self.heal(),
        }
    }

    fn heal(&mut self) {
        self.healed = true;
        for (seat, before) in self.seats.iter_mut().zip(&self.plan.spiders) {
            let healed = Profile { pull: before.pull, unsaid: before.unsaid.floor(), ..Profile::polite() };
            seat.spider.set_profile(healed);
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        !self.healed && self.rng.f64() < probability
    }

    fn soon(&mut self, most: Duration) -> Instant {
        self.now + Duration::from_micros(self.rng.u64(..=most.as_micros() as u64))
    }

    /// Does what a spider wants, and looks at what it saw.
    fn mind_spider(&mut self, seat: usize) {
        loop {
            while let Some(bytes) = self.seats[seat].spider.poll_output() {
                self.send_up(seat, bytes);
            }
            while let Some(event) = self.seats[seat].spider.poll_event() {
                if let Event::Sent(sent) = &event {
                    self.fetch(seat, sent);
                }
                self.auditor.handle(seat, event);
            }
            match self.seats[seat].spider.poll_action() {
                None => return,
                Some(Action::Connect) => {
                    let at = self.soon(self.plan.wires.latency_max);
                    self.expect(at, Happening::Connect { seat });
                }
                Some(Action::Close) => self.close(seat),
                Some(Action::StopReading) => self.seats[seat].reading = false,
                Some(Action::ResumeReading) => {
                    self.seats[seat].reading = true;
                    self.read(seat);
                }
            }
        }
    }

    /// The web server may have a will of its own.
    fn fetch(&mut self, seat: usize, sent: &Sent) {
        if let Some(fault) = self.objection(sent.url.host(), sent.url.tail()) {
            self.ledger.faults.add(self.now, fault);
        }
        let answer = self.elsewhere.answer(&self.plan, self.now, sent.url.host(), sent.ip, &mut self.rng);
        if let Some((done, latency)) = answer {
            self.seats[seat].spider.handle_answer(self.now, sent.trans, done, latency);
        }
    }

    fn send_up(&mut self, seat: usize, bytes: Vec<u8>) {
        let Some(id) = self.seats[seat].wire else { return };
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let at = wire.arrival_up(self.now, &self.plan.wires, &mut self.rng);
        self.expect(at, Happening::Heard { wire: id, bytes });
    }

    fn connect(&mut self, seat: usize) {
        if self.chance(self.plan.wires.refuse) {
            return self.seats[seat].spider.handle_closed(self.now);
        }
        let id = self.scheduler.handle_spider_connected();
        self.wires.insert(id, Wire::new(seat));
        self.seats[seat].wire = Some(id);
        self.seats[seat].reading = true;
        self.seats[seat].spider.handle_connected(self.now);
        if self.chance(self.plan.wires.cut) {
            let at = self.soon(Duration::from_secs(60));
            self.expect(at, Happening::Cut { wire: id });
        }
    }

    /// The spider closes: the server learns of it after all that was said.
    fn close(&mut self, seat: usize) {
        let Some(id) = self.seats[seat].wire.take() else { return };
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let at = wire.arrival_up(self.now, &self.plan.wires, &mut self.rng);
        self.expect(at, Happening::HungUp { wire: id });
    }

    /// The spider notices at once, the server some time later; what was on its way is lost.
    fn cut(&mut self, id: SpiderId) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if self.seats[wire.seat].wire != Some(id) {
            return;
        }
        wire.cut = true;
        let seat = wire.seat;
        self.seats[seat].wire = None;
        self.seats[seat].spider.handle_closed(self.now);
        let at = self.soon(NOTICE_MAX);
        self.expect(at, Happening::HungUp { wire: id });
    }

    fn arrive(&mut self, id: SpiderId, since: Instant, bytes: Vec<u8>) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        wire.handle_arrived(since, bytes);
        let seat = wire.seat;
        if self.seats[seat].wire == Some(id) && self.seats[seat].reading {
            self.read(seat);
        }
    }

    fn read(&mut self, seat: usize) {
        let Some(wire) = self.seats[seat].wire.and_then(|id| self.wires.get_mut(&id)) else { return };
        while let Some((since, bytes)) = wire.read() {
            self.seats[seat].spider.handle_bytes(self.now, since, &bytes);
        }
    }
}

fn auditor(plan: &Plan) -> Auditor {
    let latency = plan.wires.latency_max;
    let slack = Slack { jitter: latency, settle: NOTICE_MAX + 4 * latency };
    let mut auditor = Auditor::new(limits(&plan.config), slack);
    auditor.set_grouping(Grouping::new(&plan.config.aliases, &plan.config.groups));
    for site in &plan.sites {
        // Nothing goes before the rules are known: the delay holds from the first send on.
        if let Some(delay) = robots::delay(plan, &site.robots) {
            let limit: GateLimit = plan.config.host.into();
            let gate = GateKey::Host(site.name.as_ref().into());
            auditor.set_limit(gate, GateLimit { gap: limit.gap.max(delay), ..limit });
        }
    }
    auditor
}

/// What the auditor is told of the rules.
fn limits(config: &Config) -> Limits {
    Limits {
        host: config.host.into(),
        ip: config.ip.into(),
        status_timeout: config.status_timeout,
        lease_max: config.lease_max,
        max_attempts: (config.max_attempts > 0).then_some(config.max_attempts),
        rest: config.rest.into(),
    }
}

#[cfg(test)]
mod tests;
