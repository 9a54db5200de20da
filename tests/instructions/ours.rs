//! The scheduler with the line protocol, driven as the server does.

use super::phases::{HandsOut, Rules};
use bytes::BytesMut;
use urlserver::document::{Candidate, Done, Outcome};
use urlserver::ids::{SpiderId, TransId};
use urlserver::scheduler::{Admission, Config, Pace, Rest, Scheduler};
use urlserver::time::{Duration, Instant};
use urlserver::wire::line::LINE_MAX;
use urlserver::wire::{Command, LineDecoder, LineRef, work};

pub(crate) struct Ours {
    scheduler: Scheduler,
    spider: SpiderId,
    decoder: LineDecoder,
}

impl Ours {
    fn obey(&mut self, now: Instant, line: LineRef<'_>) -> bool {
        let LineRef::Text(text) = line else { return false };
        match Command::parse(text) {
            Ok(Some(Command::Done { trans, said })) => {
                self.scheduler.handle_done(now, self.spider, trans, said.at(Duration::ZERO))
            }
            Ok(Some(Command::Working { trans })) => self.scheduler.handle_working(now, self.spider, trans),
            Ok(_) | Err(_) => false,
        }
    }
}

impl HandsOut for Ours {
    fn new(rules: Rules) -> Ours {
        let mut scheduler = Scheduler::new(Config {
            queue_count: 10_000,
            host: Pace { concurrent: 1, gap: rules.host_gap },
            ip: rules.ip_gap.map_or(Pace::FREE, |gap| Pace { concurrent: 1, gap }),
            ip_max_urls: 0,
            rest: Rest {
                factor: if rules.rest { 1.0 } else { 0.0 },
                min: Duration::ZERO,
                max: Duration::from_secs(30),
            },
            index_is_exact: true,
            allow_private: true,
            ..Config::default()
        });
        let spider = scheduler.handle_spider_connected();
        // An index that does not answer: nothing is due for its sake.
        assert!(scheduler.poll_request(Instant::ZERO).is_some());
        Ours { scheduler, spider, decoder: LineDecoder::ascii(LINE_MAX) }
    }

    fn admit(&mut self, now: Instant, candidate: &Candidate) {
        assert_eq!(self.scheduler.handle_candidate(now, candidate), Admission::Pending);
    }

    fn send(&mut self, now: Instant, out: &mut BytesMut, sent: &mut Vec<u64>) {
        while let Some(line) = self.scheduler.poll_send(now) {
            work::encode(out, line.trans, line.doc, line.ip, line.host, line.tail);
            sent.push(line.trans.0);
        }
        self.scheduler.handle_written(now, self.spider, sent.len());
    }

    fn hear(&mut self, now: Instant, input: &[u8]) -> u64 {
        let (mut used, mut understood) = (0, 0);
        while let Some(line) = self.decoder.next_in(input, &mut used) {
            understood += u64::from(self.obey(now, line));
        }
        understood
    }

    fn done(&mut self, now: Instant, trans: u64) -> bool {
        let done = Done::from(Outcome::Status(200));
        self.scheduler.handle_done(now, self.spider, TransId(trans), done)
    }

    fn report(&mut self, now: Instant) -> u64 {
        std::iter::from_fn(|| self.scheduler.poll_report(now)).count() as u64
    }

    fn pass_time(&mut self, now: Instant) {
        self.scheduler.handle_timeout(now);
    }

    fn deadline(&self) -> Option<Instant> {
        self.scheduler.deadline()
    }
}
