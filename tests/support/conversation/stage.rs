//! The real scheduler and the real wire code on a virtual clock. Around them, as text, all that is around
//! the server: spiders, the document index, name servers.
//!
//! Not here: sockets, threads, any clock, and any copy of what the server decides.

use super::notebook::Notebook;
use super::operator;
use super::robots;
use super::script::seconds;
use super::worker;
use bytes::BytesMut;
use std::collections::BTreeMap;
use urlserver::hostdb::Resolution;
use urlserver::ids::{FetchId, HostId, SpiderId, TransId};
use urlserver::index::dialogue::Dialogue;
use urlserver::index::{Addition, IndexEvent};
use urlserver::scheduler::{Scheduler, Stats};
use urlserver::server::scheduler_config;
use urlserver::settings::Settings;
use urlserver::time::{Duration, Instant};
use urlserver::wire::line::{INDEX_LINE_MAX, LINE_MAX};
use urlserver::wire::{Command, CommandError, Line, LineDecoder, work};

/// Where jitter comes from: the same in every run.
const SEED: u64 = 1;

/// The server in its surroundings. The clock starts at 1970, so that dates in conversations are short.
pub(super) struct Stage {
    pub(super) now: Instant,
    settings: Settings,
    scheduler: Scheduler,
    lives: u64,
    /// What it writes down for its next life.
    notes: Notebook,
    index: Dialogue,
    index_is_there: bool,
    spiders: BTreeMap<String, Spider>,
    /// Names that are being looked up.
    lookups: BTreeMap<String, HostId>,
    /// Requests for a robots.txt that are not answered, in order.
    fetches: Vec<(String, FetchId)>,
    /// What `T1`, `T2`, … stand for: sends in the order in which their lines were written.
    sends: Vec<TransId>,
    /// Reservations so far.
    reservations: u128,
    /// What was answered at once.
    answers: Vec<String>,
}

struct Spider {
    id: SpiderId,
    /// Not written yet.
    output: BytesMut,
    /// Lines of work in it.
    works: usize,
    /// Its socket takes nothing.
    stalls: bool,
}

impl Stage {
    /// Settings as in a settings file. Unless they say otherwise, addresses may be those that are reserved
    /// for documentation, and nobody asks for a robots.txt.
    pub(super) fn new(settings: &str) -> Result<Stage, String> {
        let mut text = String::from("index = \"tcp://index.example:4331\"\n");
        if !settings.contains("allow_private") {
            text.push_str("allow_private = true\n");
        }
        if !settings.contains("robots") {
            text.push_str("robots = \"ignore\"\n");
        }
        text.push_str(settings);
        let settings = Settings::from_toml(&text).map_err(|error| error.to_string())?;
        let mut scheduler = Scheduler::new(scheduler_config(&settings, SEED));
        scheduler.restore(Instant::ZERO, [], false);
        let mut stage = Stage {
            now: Instant::ZERO,
            settings,
            scheduler,
            lives: 1,
            notes: Notebook::default(),
            index: Dialogue::default(),
            index_is_there: false,
            spiders: BTreeMap::new(),
            lookups: BTreeMap::new(),
            fetches: Vec::new(),
            sends: Vec::new(),
            reservations: 0,
            answers: Vec::new(),
        };
        stage.happen("index", "connects")?;
        Ok(stage)
    }

    /// When the server wants to be woken at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.scheduler.deadline()
    }

    /// Documents that have not ended.
    pub(super) fn left(&self) -> u64 {
        let stats = self.scheduler.stats();
        stats.queued + stats.leftover + stats.in_flight
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.scheduler.check(self.now)
    }

    /// Somebody says `text` to the server.
    pub(super) fn say(&mut self, who: &str, text: &str) -> Result<(), String> {
        match who {
            "index" => self.index_says(text),
            "dns" => self.name_server_says(text),
            "worker" => {
                let answer = worker::answer(&mut self.scheduler, &mut self.reservations, self.now, text)?;
                self.answers.push(format!("worker< {answer}"));
                Ok(())
            }
            "operator" => operator::obey(&mut self.scheduler, self.now, text),
            "robots" => self.web_server_says(text),
            _ => self.spider_says(who, text),
        }
    }

    /// Something happens to somebody.
    pub(super) fn happen(&mut self, who: &str, what: &str) -> Result<(), String> {
        match (who, what) {
            ("index", "connects") => {
                self.index_is_there = true;
                self.index.handle_connected();
            }
            ("index", "goes") => {
                self.index_is_there = false;
                self.index.handle_disconnected();
            }
            ("server", "dies") => self.live_again(true)?,
            ("server", "stops") => {
                for note in self.scheduler.last_notes(self.now) {
                    self.notes.put(self.now, note);
                }
                self.live_again(false)?;
            }
            (_, "connects") => {
                let id = self.scheduler.handle_spider_connected();
                let spider = Spider { id, output: BytesMut::new(), works: 0, stalls: false };
                if self.spiders.insert(who.to_owned(), spider).is_some() {
                    return Err(format!("{who} is connected already"));
                }
            }
            (_, "goes") => {
                let id = self.spider(who)?.id;
                self.spiders.remove(who);
                self.scheduler.handle_spider_gone(self.now, id);
            }
            (_, "stalls") => self.spider(who)?.stalls = true,
            (_, "reads again") => self.spider(who)?.stalls = false,
            _ => return Err(format!("nobody can do that: `{who} {what}`")),
        }
        Ok(())
    }

    /// The server is gone, and there again with nothing but what it has written down.
    fn live_again(&mut self, died: bool) -> Result<(), String> {
        self.lives += 1;
        self.scheduler = Scheduler::new(scheduler_config(&self.settings, SEED * self.lives));
        self.scheduler.restore(self.now, self.notes.read(self.now), died);
        self.spiders.clear();
        self.lookups.clear();
        self.fetches.clear();
        self.index = Dialogue::default();
        self.happen("index", "connects")
    }

    /// Clocks run out.
    pub(super) fn handle_timeout(&mut self) {
        self.scheduler.handle_timeout(self.now);
    }

    /// Lets the server do all that can be done now, in the order of its own loop; what it said.
    pub(super) fn speak(&mut self) -> Vec<String> {
        let mut said = std::mem::take(&mut self.answers);
        loop {
            let before = said.len();
            self.take_index_events();
            self.send_all(&mut said);
            while let Some(fetch) = self.scheduler.poll_fetch(self.now) {
                said.push(format!("robots< {} {}", fetch.url.as_str(), fetch.ip));
                self.fetches.push((fetch.url.as_str().to_owned(), fetch.id));
            }
            while let Some(lookup) = self.scheduler.poll_lookup() {
                said.push(format!("dns< {}", lookup.name));
                self.lookups.insert(lookup.name.to_owned(), lookup.host);
            }
            let request = self.scheduler.poll_request(self.now);
            let asked = request.is_some();
            if let Some(request) = request {
                self.index.handle_ask(request.count, request.reject);
            }
            while let Some(report) = self.scheduler.poll_report(self.now) {
                self.index.handle_reports(vec![report]);
            }
            self.notes.take(self.now, &mut self.scheduler);
            self.write_to_index(&mut said);
            if said.len() == before && !asked && !self.scheduler.has_denied() {
                return said;
            }
        }
    }

    /// `leftover=1 in_flight=2`, with the right values.
    pub(super) fn counts(&self, wanted: &str) -> Result<String, String> {
        let stats = self.scheduler.stats();
        let shown = wanted.split_whitespace().map(|pair| {
            let name = pair.split('=').next().unwrap_or(pair);
            Ok(format!("{name}={}", count(&stats, name).ok_or(format!("nothing counts `{name}`"))?))
        });
        Ok(shown.collect::<Result<Vec<_>, String>>()?.join(" "))
    }

    fn unix_now(&self) -> Duration {
        self.now.since(Instant::ZERO)
    }

    fn spider(&mut self, name: &str) -> Result<&mut Spider, String> {
        self.spiders.get_mut(name).ok_or(format!("{name} is not connected"))
    }

    fn spider_says(&mut self, name: &str, text: &str) -> Result<(), String> {
        let spider = self.spider(name)?.id;
        let line = first_line(LineDecoder::ascii(LINE_MAX), &self.with_numbers(text)?);
        let command = match &line {
            Line::Text(text) => Command::parse(text),
            Line::TooLong(_) => Err(CommandError::TooLong),
            Line::NotAscii => Err(CommandError::NotAscii),
        };
        match command {
            Ok(None | Some(Command::Auth(_))) => {}
            Ok(Some(Command::Done { trans, said })) => {
                self.scheduler.handle_done(self.now, spider, trans, said.at(self.unix_now()));
            }
            Ok(Some(Command::Working { trans })) => {
                self.scheduler.handle_working(self.now, spider, trans);
            }
            Ok(Some(Command::Get(lines))) => self.scheduler.handle_credit(spider, lines),
            Ok(Some(Command::Add(url))) => {
                self.index.handle_adds(vec![Addition { doc: None, url, not_before: None }]);
            }
            Err(error) => work::encode_error(&mut self.spider(name)?.output, error),
        }
        Ok(())
    }

    fn index_says(&mut self, text: &str) -> Result<(), String> {
        let line = first_line(LineDecoder::bytes(INDEX_LINE_MAX), text);
        // Faults are for the log.
        let _ = self.index.handle_line(&line, self.unix_now());
        self.take_index_events();
        Ok(())
    }

    /// `a.example 192.0.2.1 192.0.2.2 ttl=60`, `a.example nothing ttl=60`, `a.example unavailable`.
    fn name_server_says(&mut self, text: &str) -> Result<(), String> {
        let (name, answer) = text.split_once(' ').ok_or("an answer is a name and what is said of it")?;
        let host = self.lookups.remove(name).ok_or(format!("nobody asked for {name}"))?;
        let (mut ttl, mut addresses) = (None, Vec::new());
        for word in answer.split_whitespace() {
            if let Some(text) = word.strip_prefix("ttl=") {
                ttl = Some(seconds(text).ok_or(format!("`{text}` is no time"))?);
            } else if !matches!(word, "nothing" | "unavailable") {
                addresses.push(word.parse().map_err(|_| format!("`{word}` is no address"))?);
            }
        }
        let resolution = match answer.split(' ').next() {
            Some("nothing") => Resolution::Nothing { ttl },
            Some("unavailable") => Resolution::Unavailable,
            _ => Resolution::Addresses { addresses, ttl: ttl.ok_or("addresses need a ttl=")? },
        };
        self.scheduler.handle_resolved(self.now, host, resolution);
        Ok(())
    }

    /// `http://a.example/robots.txt 200 max-age=60 Disallow: /x; Crawl-delay: 2`: what stands behind the status
    /// are the lines for all crawlers. Or `404`, `503 retry-after=10`, `301 http://b.example/`, `timeout`.
    fn web_server_says(&mut self, text: &str) -> Result<(), String> {
        let (url, said) = text.split_once(' ').ok_or("an answer is a URL and what is said to it")?;
        let asked = self.fetches.iter().position(|(asked, _)| asked == url);
        let (_, id) = self.fetches.remove(asked.ok_or(format!("nobody asked for {url}"))?);
        let answer = robots::answer(said)?;
        self.scheduler.handle_fetched(self.now, id, answer);
        Ok(())
    }

    fn take_index_events(&mut self) {
        while let Some(event) = self.index.poll_event() {
            match event {
                IndexEvent::Candidates(candidates) => {
                    for candidate in &candidates {
                        // A duplicate shows by what is not said of it.
                        let _ = self.scheduler.handle_candidate(self.now, candidate);
                    }
                }
                IndexEvent::Answered { .. } => self.scheduler.handle_answered(self.now),
                IndexEvent::Grown | IndexEvent::Up => self.scheduler.handle_index_news(),
                // This index is nobody else's.
                IndexEvent::Claims(_) => {}
                IndexEvent::Down => {}
            }
        }
    }

    fn send_all(&mut self, said: &mut Vec<String>) {
        while let Some(line) = self.scheduler.poll_send(self.now) {
            let Some(spider) = self.spiders.values_mut().find(|spider| spider.id == line.spider) else {
                said.push(format!("nobody< {line:?}"));
                continue;
            };
            work::encode(&mut spider.output, line.trans, line.doc, line.ip, line.host, line.tail);
            spider.works += 1;
        }
        for spider in self.spiders.values().filter(|spider| !spider.stalls) {
            self.scheduler.note_unwritten(self.now, spider.id);
        }
        self.notes.take(self.now, &mut self.scheduler);
        for (name, spider) in &mut self.spiders {
            let (output, works) = match spider.stalls {
                true => (BytesMut::new(), 0),
                false => (spider.output.split(), std::mem::take(&mut spider.works)),
            };
            self.scheduler.handle_written(self.now, spider.id, works);
            self.scheduler.handle_choked(spider.id, !spider.output.is_empty());
            let text = String::from_utf8_lossy(&output);
            said.extend(text.lines().map(|line| format!("{name}< {}", named(&mut self.sends, line))));
        }
    }

    fn write_to_index(&mut self, said: &mut Vec<String>) {
        let mut output = BytesMut::new();
        while self.index_is_there {
            self.index.poll_output(&mut output);
            if output.is_empty() {
                return;
            }
            said.extend(
                String::from_utf8_lossy(&output.split()).lines().map(|line| format!("index< {line}")),
            );
        }
    }

    /// The line with `T1` replaced by the TRANS_ID it stands for.
    fn with_numbers(&self, text: &str) -> Result<String, String> {
        let number = |word: &str| match word.strip_prefix('T').and_then(|digits| digits.parse().ok()) {
            Some(nth) => match self.sends.get(usize::wrapping_sub(nth, 1)) {
                Some(trans) => Ok(trans.to_string()),
                None => Err(format!("nothing was sent as {word} yet")),
            },
            None => Ok(word.to_owned()),
        };
        Ok(text.split(' ').map(number).collect::<Result<Vec<_>, _>>()?.join(" "))
    }
}

/// A line of work with `T1` for its TRANS_ID; a TRANS_ID that was used before keeps its name, and shows.
fn named(sends: &mut Vec<TransId>, line: &str) -> String {
    let Some((trans, rest)) = line.split_once(' ') else { return line.to_owned() };
    let Ok(trans) = trans.parse().map(TransId) else { return line.to_owned() };
    let nth = sends.iter().position(|&other| other == trans).unwrap_or_else(|| {
        sends.push(trans);
        sends.len() - 1
    });
    format!("T{} {rest}", nth + 1)
}

fn first_line(mut decoder: LineDecoder, text: &str) -> Line {
    let mut input = BytesMut::from(text);
    decoder.last_line(&mut input).unwrap_or(Line::Text(input.freeze()))
}

fn count(stats: &Stats, name: &str) -> Option<u64> {
    Some(match name {
        "queued" => stats.queued,
        "leftover" => stats.leftover,
        "in_flight" => stats.in_flight,
        "slots_bound" => stats.slots_bound,
        "spiders" => stats.spiders,
        "hosts" => stats.hosts,
        "addresses" => stats.addresses,
        "sent" => stats.counters.sent,
        "done" => stats.counters.done,
        "failed" => stats.counters.failed,
        "denied" => stats.counters.denied,
        "retried" => stats.counters.retried,
        "expired" => stats.counters.expired,
        "stale_status" => stats.counters.stale_status,
        "duplicates" => stats.counters.duplicates,
        "lookups" => stats.counters.lookups,
        "addresses_down" => stats.counters.addresses_down,
        "holds" => stats.counters.holds,
        "benched" => stats.benched,
        "stopped" => stats.stopped,
        "robots_fetches" => stats.counters.robots_fetches,
        "robots_failures" => stats.counters.robots_failures,
        "robots_waiting" => stats.robots_waiting,
        "robots_in_flight" => stats.robots_in_flight,
        _ => return None,
    })
}
