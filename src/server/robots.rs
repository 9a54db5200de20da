//! Requests for robots.txt: what the scheduler asks for is asked, and the answer comes back as an event.

use super::hub::{Event, Hub};
use crate::ids::FetchId;
use crate::robots::{Answer, FetchLimits, Fetcher};
use crate::settings::Settings;
use crate::url::Url;
use std::sync::Arc;

/// Sitemaps of one robots.txt that are handed to the index.
const SITEMAPS_MAX: usize = 100;

/// Who asks, and how many are asked at once.
pub(super) struct RobotsDesk {
    fetcher: Arc<Fetcher>,
    under_way: usize,
    most: usize,
    /// Sitemaps are handed to the index.
    sitemaps: bool,
}

impl RobotsDesk {
    pub(super) fn new(settings: &Settings) -> RobotsDesk {
        let time = settings.robots_timeout;
        RobotsDesk {
            fetcher: Arc::new(Fetcher::new(FetchLimits { connect: time, total: time }, &settings.user_agent)),
            under_way: 0,
            most: settings.robots_concurrent.get() as usize,
            sitemaps: settings.sitemaps,
        }
    }
}

impl Hub {
    /// Asks for every robots.txt that may be asked for now; true if there was one.
    pub(super) fn fetch_robots(&mut self) -> bool {
        let before = self.around.robots.under_way;
        while self.around.robots.under_way < self.around.robots.most
            && let Some(fetch) = self.scheduler.poll_fetch(self.now())
        {
            tracing::debug!(url = fetch.url.as_str(), ip = %fetch.ip, "asks for robots.txt");
            let (fetcher, events) = (Arc::clone(&self.around.robots.fetcher), self.around.events.clone());
            self.around.robots.under_way += 1;
            self.save_notes();
            self.around.rim.spawn(async move {
                let answer = fetcher.fetch(&fetch.url, fetch.ip).await;
                let _ = events.send(Event::Fetched(fetch.id, Box::new(answer))).await;
            });
        }
        self.around.robots.under_way > before
    }

    pub(super) fn handle_fetched(&mut self, id: FetchId, answer: Answer) {
        self.around.robots.under_way -= 1;
        tracing::debug!(request = id.0, answer = in_words(&answer), "robots.txt");
        if self.around.robots.sitemaps
            && let Answer::Rules { rules, .. } = &answer
        {
            let urls = rules.sitemaps().take(SITEMAPS_MAX).filter_map(|text| Url::parse(text).ok());
            let urls = urls.collect();
            self.add(urls);
        }
        self.scheduler.handle_fetched(self.now(), id, answer);
    }
}

fn in_words(answer: &Answer) -> String {
    match answer {
        Answer::Rules { .. } => "rules".into(),
        Answer::Missing { status } => format!("none: {status}"),
        Answer::Moved { to } => format!("moved to {}", to.as_str()),
        Answer::Refused { status, .. } => format!("refused: {status}"),
        Answer::Unreachable(outcome) => format!("unreachable: {outcome}"),
    }
}
