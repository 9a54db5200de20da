//! Web servers that are asked for a robots.txt, and what may be sent when they have answered.
//!
//! A redirect names in its URL whose rules are asked for, and how many redirects came before: so every answer can
//! be given without a memory, and the watch knows whose rules have become known.

use super::fault::Fault;
use super::plan::{Plan, RobotsManners};
use super::{Happening, World};
use std::collections::HashSet;
use urlserver::document::{Done, Outcome};
use urlserver::ids::FetchId;
use urlserver::robots::{Answer, Rules};
use urlserver::scheduler::RobotsFetch;
use urlserver::time::{Duration, Instant};
use urlserver::url::{Tail, Url};

/// Requests under way at once.
const FETCHES_MAX: usize = 8;
/// Redirects that are followed.
const HOPS_MAX: u8 = 5;

/// How long rules are kept.
const LIFETIME: Duration = Duration::from_secs(86_400);
const LIFETIME_MIN: Duration = Duration::from_secs(60);

/// Scheme, host and port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Origin {
    secure: bool,
    pub(super) host: Box<str>,
    port: u16,
}

impl Origin {
    fn of(host: &str, tail: Tail<'_>) -> Origin {
        Origin { secure: tail.is_secure(), host: host.into(), port: tail.port() }
    }
}

/// What is known of origins by now.
#[derive(Default)]
pub(super) struct Watch {
    under_way: usize,
    known: HashSet<Origin>,
}

impl World {
    /// Asks for every robots.txt that may be asked for; true if there was one.
    pub(super) fn fetch_robots(&mut self) -> bool {
        let before = self.watch.under_way;
        while self.watch.under_way < FETCHES_MAX
            && let Some(fetch) = self.scheduler.poll_fetch(self.now)
        {
            self.watch.under_way += 1;
            self.trace.note_bytes("robots", self.now, fetch.url.as_str().as_bytes());
            self.ledger.handle_fetch(self.now, fetch.id, fetch.url.host(), fetch.ip);
            let (answer, latency) = self.robots_answer(&fetch);
            let at = self.now + latency;
            self.expect(at, Happening::Fetched { fetch, answer: Box::new(answer) });
        }
        self.watch.under_way > before
    }

    pub(super) fn handle_fetched(&mut self, fetch: &RobotsFetch, answer: Answer) {
        self.watch.under_way -= 1;
        let (origin, hops) = asked(&fetch.url);
        let followed = matches!(&answer, Answer::Moved { .. } if hops < HOPS_MAX);
        let failed = matches!(&answer, Answer::Refused { .. } | Answer::Unreachable(_));
        self.ledger.handle_fetched(self.now, fetch.id, done_of(&answer));
        if !followed && !failed {
            if let Some(delay) = self.delay_of(&origin.host) {
                let age = self.manners(&origin.host).and_then(|manners| manners.max_age);
                let lifetime = age.unwrap_or(LIFETIME).clamp(LIFETIME_MIN, LIFETIME);
                self.ledger.set_delay(&origin.host, delay, self.now + lifetime);
            }
            self.watch.known.insert(origin);
        }
        self.scheduler.handle_fetched(self.now, fetch.id, answer);
    }

    /// What is wrong with sending this now, if anything is.
    pub(super) fn objection(&self, host: &str, tail: Tail<'_>) -> Option<Fault> {
        if !self.plan.config.robots {
            return None;
        }
        let origin = Origin::of(host, tail);
        let text = || tail.parts(host).concat();
        if !self.watch.known.contains(&origin) {
            return Some(Fault::NoRules(text()));
        }
        let manners = self.manners(host).filter(speaks)?;
        let slow =
            manners.delay.zip(self.plan.config.crawl_delay_max).is_some_and(|(delay, max)| delay > max);
        let denied = denied(&manners, origin.port).is_some_and(|digit| tail.path().starts_with(&digit));
        (slow || denied).then(|| Fault::Denied(text()))
    }

    fn manners(&self, host: &str) -> Option<RobotsManners> {
        self.elsewhere.site(&self.plan, host).map(|site| site.robots)
    }

    /// The Crawl-delay that must be kept once the rules are known.
    fn delay_of(&self, host: &str) -> Option<Duration> {
        delay(&self.plan, &self.manners(host)?)
    }

    fn robots_answer(&mut self, fetch: &RobotsFetch) -> (Answer, Duration) {
        let here = fetch.url.host();
        if let Some((done, latency)) =
            self.elsewhere.answer(&self.plan, self.now, here, fetch.ip, &mut self.rng)
        {
            return (bad_answer(done), latency);
        }
        let (origin, hops) = asked(&fetch.url);
        let manners = self.manners(&origin.host).unwrap_or_default();
        let latency = Duration::from_micros(self.rng.u64(..=manners.latency_max.as_micros() as u64));
        if manners.dead || self.chance(manners.failures) {
            let outcomes =
                [Outcome::ConnectFailed, Outcome::Timeout, Outcome::Status(500), Outcome::Status(503)];
            let outcome = outcomes[self.rng.usize(..outcomes.len())];
            return (bad_answer(outcome.into()), latency);
        }
        (self.good_answer(&origin, hops, &manners), latency)
    }

    fn good_answer(&self, origin: &Origin, hops: u8, manners: &RobotsManners) -> Answer {
        if hops < manners.hops {
            let sites = &self.plan.sites;
            let home = self.elsewhere.place(&origin.host).unwrap_or(0);
            let next = &sites[(home + manners.stride * usize::from(hops + 1)) % sites.len()].name;
            let Origin { secure, host, port } = origin;
            let to = format!("http://{next}/moved?{}&{secure}&{host}&{port}", hops + 1);
            return Url::parse(&to).map_or(Answer::Missing { status: 404 }, |to| Answer::Moved { to });
        }
        if !manners.exists {
            return Answer::Missing { status: 404 };
        }
        let mut text = String::from("User-agent: *\n");
        if let Some(digit) = denied(manners, origin.port) {
            text += &format!("Disallow: {digit}\n");
        }
        if let Some(delay) = manners.delay {
            text += &format!("Crawl-delay: {}\n", delay.as_secs());
        }
        Answer::Rules { rules: Rules::parse(text.as_bytes(), "urlserver"), max_age: manners.max_age }
    }
}

/// The delay that a site's hosts must keep to, and are crawled with.
pub(super) fn delay(plan: &Plan, manners: &RobotsManners) -> Option<Duration> {
    let asked = manners.delay.filter(|_| plan.config.robots && speaks(manners))?;
    plan.config.crawl_delay_max.is_none_or(|max| asked <= max).then_some(asked)
}

/// Whether there are rules at all.
fn speaks(manners: &RobotsManners) -> bool {
    manners.exists && manners.hops <= HOPS_MAX
}

fn denied(manners: &RobotsManners, port: u16) -> Option<String> {
    manners.denies.map(|digit| format!("/{}", (u16::from(digit) + port) % 10))
}

/// Whose rules are asked for, and after how many redirects.
fn asked(url: &Url) -> (Origin, u8) {
    let tail = url.tail();
    let parts: Vec<&str> = tail.path().strip_prefix("/moved?").unwrap_or_default().split('&').collect();
    match parts[..] {
        [hops, secure, host, port] => {
            let origin =
                Origin { secure: secure == "true", host: host.into(), port: port.parse().unwrap_or(0) };
            (origin, hops.parse().unwrap_or(0))
        }
        _ => (Origin::of(url.host(), url.tail()), 0),
    }
}

/// As a spider would say it.
fn done_of(answer: &Answer) -> Done {
    match answer {
        Answer::Rules { .. } => Outcome::Status(200).into(),
        Answer::Missing { status } => Outcome::Status(*status).into(),
        Answer::Moved { .. } => Outcome::Status(301).into(),
        Answer::Refused { status, retry_after } => {
            Done { outcome: Outcome::Status(*status), retry_after: *retry_after }
        }
        Answer::Unreachable(outcome) => (*outcome).into(),
    }
}

fn bad_answer(done: Done) -> Answer {
    match done.outcome {
        Outcome::Status(status @ (429 | 500..)) => Answer::Refused { status, retry_after: done.retry_after },
        Outcome::Status(_) => Answer::Refused { status: 500, retry_after: None },
        outcome => Answer::Unreachable(outcome),
    }
}

/// A request as the ledger keeps it.
pub(super) struct Asked {
    pub(super) gates: Vec<crate::violation::GateKey>,
    pub(super) at: Instant,
}

/// The ledger's requests by their id.
pub(super) type AskedById = std::collections::HashMap<FetchId, Asked>;
