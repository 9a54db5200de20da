//! Why a host or a URL waits, in one sentence.
//!
//! A sentence says what is true now and no more: where something depends on others, it does not guess.

use super::words::{ago, count, grouped, in_words, left};
use crate::document::End;
use crate::index::Known;
use crate::scheduler::Why;
use crate::scheduler::look::{
    GateView, HostView, LINE_WALK_MAX, Owner, QUEUE_WALK_MAX, RobotsView, Standing, UrlPlace,
};
use crate::time::Duration;
use std::fmt::Write;
use std::net::SocketAddr;

/// All that is known of one URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UrlFacts {
    /// Where it is.
    pub place: UrlPlace,
    /// The address of the spider that has it.
    pub spider: Option<SocketAddr>,
    /// Its host, if it is known.
    pub host: Option<HostView>,
    /// What the index knows.
    pub known: Known,
    /// What robots.txt says.
    pub robots: RobotsView,
    /// Most sends of one document; 0 is any number.
    pub max_attempts: u32,
    /// Seconds since 1970.
    pub since_1970: u64,
}

/// What keeps a host from sending.
pub fn host(host: &HostView) -> String {
    let name = &host.brief.name;
    let what = match &host.standing {
        Standing::Idle => "has nothing to send".to_owned(),
        Standing::Ready => "may send now: it waits for a spider with room".to_owned(),
        Standing::Turn(gate) => format!("waits for its turn at {}{}", place(gate), ahead(gate)),
        Standing::Full(gate) => full(gate),
        Standing::Clock { gate, left, why } => clock(gate, *left, *why),
        Standing::OnTrial(gate) => {
            format!("waits for {}, which did not answer and is being tried", place(gate))
        }
        Standing::Unclaimed(gate) => format!("waits for the shared index: no claim on {} yet", place(gate)),
        Standing::Resolving { again_in: None } => "waits for its address: its name is being looked up".into(),
        Standing::Resolving { again_in: Some(again) } => {
            format!(
                "waits for its address: no name server answered, and they are asked again in {}",
                left(*again)
            )
        }
        Standing::Leftover { ahead } => {
            let others = match ahead {
                Some(ahead) => count((*ahead).into(), "other"),
                None => format!("more than {}", count(LINE_WALK_MAX as u64, "other")),
            };
            format!("waits in the leftover behind {others} for a slot")
        }
        Standing::Asking { again_in: None } => "waits for its robots.txt".into(),
        Standing::Asking { again_in: Some(wait) } => {
            format!("waits for its robots.txt, which is asked for again in {}", left(*wait))
        }
        Standing::Stopped { left: None } => "is paused by an operator, until it is resumed".into(),
        Standing::Stopped { left: Some(wait) } => format!("is blocked by an operator for {}", left(*wait)),
        Standing::AllPaused => "could go, but an operator has paused everything".into(),
        Standing::Reserved => "is reserved by a worker".into(),
        Standing::InFlight => "has nothing to send but what is in flight or waits for its time".into(),
        Standing::Delayed(wait) => format!("has nothing to send before its time, in {} at most", left(*wait)),
        Standing::NoSuchName => "does not exist: its documents are being reported FAILED dns".into(),
        Standing::Private => {
            "has no address that may be used: its documents are being reported DENIED private-address".into()
        }
    };
    format!("{name} {what}")
}

fn full(gate: &GateView) -> String {
    let allowed = format!("{} of at most {} in flight", gate.in_flight, grouped(gate.limit.into()));
    match gate.owner {
        Owner::Host => format!("has {allowed}"),
        Owner::Ip { .. } | Owner::Alias(_) | Owner::Group(_) => {
            format!("waits for {}, which has {allowed}{}", place(gate), ahead(gate))
        }
    }
}

fn clock(gate: &GateView, wait: Duration, why: Why) -> String {
    let (place, ahead, wait) = (place(gate), ahead(gate), left(wait));
    match (why, &gate.owner) {
        (Why::Gap, Owner::Host) => format!("waits {wait} for the gap since its last send"),
        (Why::Rest, Owner::Host) => format!("waits {wait} for the rest after its last fetch"),
        (Why::Gap | Why::Rest, _) => format!("waits {wait} for {place}{ahead}"),
        (Why::Hold, Owner::Ip { .. }) => format!("waits {wait} for {place}, which is down"),
        (Why::Hold, Owner::Host) => format!("is held for {wait}: the web server asked to be left alone"),
        (Why::Hold, Owner::Alias(_) | Owner::Group(_)) => {
            format!("is held for {wait} with {place}: a web server asked to be left alone")
        }
    }
}

fn place(gate: &GateView) -> String {
    match &gate.owner {
        Owner::Host => "its own clock".to_owned(),
        Owner::Ip { address, hosts: 0 | 1 } => format!("ip {address}"),
        Owner::Ip { address, hosts } => {
            format!("ip {address} (shared with {})", count(u64::from(*hosts) - 1, "host"))
        }
        Owner::Alias(name) => format!("alias {name}"),
        Owner::Group(name) => format!("group {name}"),
    }
}

fn ahead(gate: &GateView) -> String {
    match gate.ahead {
        0 => String::new(),
        n => format!(", behind {} that have waited longer", count(n.into(), "host")),
    }
}

/// Why a URL has, or has not, been sent.
pub fn url(facts: &UrlFacts) -> String {
    match (&facts.place, facts.known) {
        // Nothing takes back what was sent, or has ended before the rules were these.
        (UrlPlace::InFlight { .. }, _) | (UrlPlace::Absent, Known::Ended { end: End::Done(_), .. }) => {}
        (UrlPlace::Absent, Known::Unknown) => {
            let unknown = index(facts);
            return robots(facts).map_or_else(|| unknown.clone(), |robots| format!("{unknown}; {robots}"));
        }
        _ => {
            if let Some(robots) = robots(facts) {
                return robots;
            }
        }
    }
    place_of(facts)
}

/// What robots.txt has against it.
fn robots(facts: &UrlFacts) -> Option<String> {
    match &facts.robots {
        RobotsView::Denied { line, rule } => {
            Some(format!("robots.txt does not allow it: `{rule}`, line {line}"))
        }
        RobotsView::TooSlow { delay } => {
            Some(format!("robots.txt asks for a Crawl-delay of {}: more than crawl_delay_max", left(*delay)))
        }
        RobotsView::Ignored | RobotsView::Unknown | RobotsView::Allowed => None,
    }
}

/// Where a URL is that robots.txt has nothing against.
fn place_of(facts: &UrlFacts) -> String {
    match &facts.place {
        UrlPlace::InFlight { attempts, written, .. } => {
            let spider = facts.spider.map_or_else(|| "a spider".to_owned(), |at| format!("spider {at}"));
            let attempt = attempt(*attempts, facts.max_attempts);
            match written {
                Some(since) => format!("in flight at {spider} for {}{attempt}", in_words(*since)),
                None => format!("on its way to {spider}{attempt}"),
            }
        }
        UrlPlace::Reserved { attempts, .. } => {
            format!("with a worker that has reserved its host{}", attempt(*attempts, facts.max_attempts))
        }
        UrlPlace::Later { attempts: 0, left: wait, .. } => {
            format!("not before its time, which the index has set: in {}", left(*wait))
        }
        UrlPlace::Later { attempts, left: wait, .. } => {
            format!("waits for a retry{} in {}", attempt(attempts + 1, facts.max_attempts), left(*wait))
        }
        UrlPlace::Again { attempts, .. } => {
            let next = format!("to be sent again{}", attempt(attempts + 1, facts.max_attempts));
            with_host(facts, format!("{next}, before all other URLs of its host"))
        }
        UrlPlace::Queued { ahead: 0, .. } => with_host(facts, "queued as the next of its host".to_owned()),
        UrlPlace::Queued { ahead, .. } => {
            with_host(facts, format!("queued behind {} of its host", count(*ahead, "URL")))
        }
        UrlPlace::NotSeen => {
            let walked = grouped(QUEUE_WALK_MAX as u64);
            with_host(facts, format!("not among the next {walked} URLs of its host; {}", index(facts)))
        }
        UrlPlace::Absent => index(facts),
    }
}

/// What the index says of a URL that is not pending here.
fn index(facts: &UrlFacts) -> String {
    let when = |at: Option<u64>| at.map_or_else(String::new, |at| format!(" {}", ago(at, facts.since_1970)));
    match facts.known {
        Known::Unknown => "unknown: nobody has added it".to_owned(),
        Known::Waiting => with_host(facts, "waits in the document index to be asked for".to_owned()),
        Known::Given => "was taken out of the document index, and has not ended".to_owned(),
        Known::GivenOrEnded => {
            "not pending: it has ended, and this document index does not keep how".to_owned()
        }
        Known::Ended { end: End::Done(outcome), at } => {
            let outcome = outcome.to_string();
            let space = if outcome.is_empty() { "" } else { " " };
            format!("done{space}{outcome}{}", when(at))
        }
        Known::Ended { end: End::Failed(reason), at } => format!("failed ({reason}){}", when(at)),
        Known::Ended { end: End::Denied(reason), at } => format!("denied ({reason}){}", when(at)),
        Known::Unsaid => "not pending here; the document index does not say whether it knows it".to_owned(),
    }
}

/// The sentence, and what its host waits for.
fn with_host(facts: &UrlFacts, mut sentence: String) -> String {
    let busy = |view: &&HostView| view.standing != Standing::Idle;
    if let Some(view) = facts.host.as_ref().filter(busy) {
        let _ = write!(sentence, "; {}", host(view));
    }
    sentence
}

fn attempt(number: u32, max: u32) -> String {
    if max == 0 { format!(" (attempt {number})") } else { format!(" (attempt {number} of {max})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{DenyReason, FailReason, Outcome};
    use crate::ids::{DocId, SpiderId};
    use crate::scheduler::Standing as Orders;
    use crate::scheduler::look::{HostBrief, HostState};

    const NOW: u64 = 1_772_323_200; // 2026-03-01
    const HOUR: u64 = 3_600;
    const DAY: u64 = 24 * HOUR;

    fn gate(owner: Owner) -> GateView {
        GateView { owner, in_flight: 1, limit: 1, gap: Duration::from_secs(1), ahead: 0 }
    }

    fn ip(hosts: u32) -> Owner {
        Owner::Ip { address: "192.0.2.7".parse().expect("an address"), hosts }
    }

    fn view(standing: Standing) -> HostView {
        HostView {
            brief: HostBrief {
                name: "a.example".into(),
                state: HostState::Waiting,
                slot: None,
                queued: 1,
                leftover: 0,
                in_flight: 0,
                ip: None,
            },
            addresses: Vec::new(),
            alias: None,
            group: None,
            standing,
            next_send_in: None,
            gap: Duration::from_secs(1),
            holds: Vec::new(),
            orders: Orders::default(),
        }
    }

    fn clock(owner: Owner, millis: u64, why: Why) -> Standing {
        Standing::Clock { gate: gate(owner), left: Duration::from_millis(millis), why }
    }

    #[test]
    fn every_wait_of_a_host_has_its_sentence() {
        let behind = GateView { ahead: 2, ..gate(ip(42)) };
        for (standing, sentence) in [
            (Standing::Idle, "has nothing to send"),
            (Standing::Ready, "may send now: it waits for a spider with room"),
            (
                Standing::Turn(behind.clone()),
                "waits for its turn at ip 192.0.2.7 (shared with 41 hosts), behind 2 hosts that have waited longer",
            ),
            (Standing::Full(gate(Owner::Host)), "has 1 of at most 1 in flight"),
            (Standing::Full(gate(ip(1))), "waits for ip 192.0.2.7, which has 1 of at most 1 in flight"),
            (
                Standing::Full(gate(Owner::Alias("kommune".into()))),
                "waits for alias kommune, which has 1 of at most 1 in flight",
            ),
            (clock(Owner::Host, 500, Why::Gap), "waits 0.5 s for the gap since its last send"),
            (clock(Owner::Host, 30_000, Why::Rest), "waits 30 s for the rest after its last fetch"),
            (clock(ip(42), 3_150, Why::Gap), "waits 3.2 s for ip 192.0.2.7 (shared with 41 hosts)"),
            (clock(ip(2), 3_000, Why::Rest), "waits 3 s for ip 192.0.2.7 (shared with 1 host)"),
            (clock(Owner::Group("cdn".into()), 10, Why::Gap), "waits 0.1 s for group cdn"),
            (clock(ip(1), 59_001, Why::Hold), "waits 60 s for ip 192.0.2.7, which is down"),
            (
                clock(Owner::Host, 3_600_000, Why::Hold),
                "is held for 60 min: the web server asked to be left alone",
            ),
            (
                clock(Owner::Alias("kommune".into()), 7_200_000, Why::Hold),
                "is held for 2 h with alias kommune: a web server asked to be left alone",
            ),
            (
                Standing::OnTrial(gate(ip(1))),
                "waits for ip 192.0.2.7, which did not answer and is being tried",
            ),
            (Standing::Unclaimed(gate(ip(1))), "waits for the shared index: no claim on ip 192.0.2.7 yet"),
            (Standing::Resolving { again_in: None }, "waits for its address: its name is being looked up"),
            (
                Standing::Resolving { again_in: Some(Duration::from_secs(4)) },
                "waits for its address: no name server answered, and they are asked again in 4 s",
            ),
            (Standing::Stopped { left: None }, "is paused by an operator, until it is resumed"),
            (Standing::Stopped { left: Some(Duration::from_secs(60)) }, "is blocked by an operator for 60 s"),
            (Standing::AllPaused, "could go, but an operator has paused everything"),
            (Standing::Reserved, "is reserved by a worker"),
            (Standing::Asking { again_in: None }, "waits for its robots.txt"),
            (
                Standing::Asking { again_in: Some(Duration::from_secs(5)) },
                "waits for its robots.txt, which is asked for again in 5 s",
            ),
            (
                Standing::Leftover { ahead: Some(3_201) },
                "waits in the leftover behind 3,201 others for a slot",
            ),
            (Standing::Leftover { ahead: Some(1) }, "waits in the leftover behind 1 other for a slot"),
            (
                Standing::Leftover { ahead: None },
                "waits in the leftover behind more than 10,000 others for a slot",
            ),
            (Standing::InFlight, "has nothing to send but what is in flight or waits for its time"),
            (
                Standing::Delayed(Duration::from_secs(90)),
                "has nothing to send before its time, in 90 s at most",
            ),
            (Standing::NoSuchName, "does not exist: its documents are being reported FAILED dns"),
            (
                Standing::Private,
                "has no address that may be used: its documents are being reported DENIED private-address",
            ),
        ] {
            assert_eq!(host(&view(standing)), format!("a.example {sentence}"));
        }
    }

    fn facts(place: UrlPlace, known: Known) -> UrlFacts {
        UrlFacts {
            place,
            spider: "10.0.0.7:5000".parse().ok(),
            host: Some(view(clock(ip(42), 3_200, Why::Gap))),
            known,
            robots: RobotsView::Ignored,
            max_attempts: 3,
            since_1970: NOW,
        }
    }

    #[test]
    fn every_place_of_a_url_has_its_sentence() {
        let doc = DocId(1);
        let at = "192.0.2.7".parse().expect("an address");
        let flight = |written| UrlPlace::InFlight { doc, attempts: 1, spider: SpiderId(1), ip: at, written };
        let four = Duration::from_secs(4);
        let waits = "a.example waits 3.2 s for ip 192.0.2.7 (shared with 41 hosts)";
        for (place, sentence) in [
            (
                flight(Some(Duration::from_secs(12))),
                "in flight at spider 10.0.0.7:5000 for 12 s (attempt 1 of 3)",
            ),
            (flight(None), "on its way to spider 10.0.0.7:5000 (attempt 1 of 3)"),
            (UrlPlace::Later { doc, attempts: 1, left: four }, "waits for a retry (attempt 2 of 3) in 4 s"),
            (
                UrlPlace::Later { doc, attempts: 0, left: four },
                "not before its time, which the index has set: in 4 s",
            ),
            (
                UrlPlace::Again { doc, attempts: 1 },
                &format!("to be sent again (attempt 2 of 3), before all other URLs of its host; {waits}"),
            ),
            (UrlPlace::Queued { doc, ahead: 0 }, &format!("queued as the next of its host; {waits}")),
            (
                UrlPlace::Queued { doc, ahead: 3_201 },
                &format!("queued behind 3,201 URLs of its host; {waits}"),
            ),
            (
                UrlPlace::NotSeen,
                &format!(
                    "not among the next 100,000 URLs of its host; not pending here; the document index does not say \
                     whether it knows it; {waits}"
                ),
            ),
        ] {
            assert_eq!(url(&facts(place, Known::Unsaid)), *sentence);
        }
        let alone = UrlFacts { spider: None, max_attempts: 0, ..facts(flight(Some(four)), Known::Given) };
        assert_eq!(url(&alone), "in flight at a spider for 4 s (attempt 1)");
    }

    #[test]
    fn what_is_not_pending_is_told_by_the_index() {
        let ended = |end, ago: Option<u64>| Known::Ended { end, at: ago.map(|ago| NOW - ago) };
        let ok = End::Done(Outcome::Status(200));
        for (known, sentence) in [
            (Known::Unknown, "unknown: nobody has added it"),
            (Known::Given, "was taken out of the document index, and has not ended"),
            (Known::GivenOrEnded, "not pending: it has ended, and this document index does not keep how"),
            (
                Known::Waiting,
                "waits in the document index to be asked for; a.example waits 3.2 s for ip 192.0.2.7 (shared with \
                 41 hosts)",
            ),
            (Known::Unsaid, "not pending here; the document index does not say whether it knows it"),
            (ended(ok, None), "done 200"),
            (ended(ok, Some(0)), "done 200 just now"),
            (ended(ok, Some(59)), "done 200 59 s ago"),
            (ended(ok, Some(3 * HOUR)), "done 200 3 h ago"),
            (ended(ok, Some(DAY - 1)), "done 200 23 h ago"),
            (ended(ok, Some(DAY)), "done 200 yesterday"),
            (ended(ok, Some(2 * DAY)), "done 200 2 days ago"),
            (ended(ok, Some(31 * DAY)), "done 200 on 2026-01-29"),
            (ended(End::Done(Outcome::Unsaid), Some(120)), "done 2 min ago"),
            (ended(End::Failed(FailReason::Dns), Some(DAY)), "failed (dns) yesterday"),
            (ended(End::Denied(DenyReason::PrivateAddress), None), "denied (private-address)"),
        ] {
            assert_eq!(url(&facts(UrlPlace::Absent, known)), sentence);
        }
    }

    #[test]
    fn robots_come_first_and_an_idle_host_is_not_mentioned() {
        let rule = "robots.txt does not allow it: `Disallow: /private`, line 12";
        let denied = |place, known| {
            let robots = RobotsView::Denied { line: 12, rule: "Disallow: /private".into() };
            url(&UrlFacts { robots, ..facts(place, known) })
        };
        let doc = DocId(1);
        assert_eq!(denied(UrlPlace::Queued { doc, ahead: 7 }, Known::Given), rule);
        assert_eq!(denied(UrlPlace::Absent, Known::GivenOrEnded), rule);
        assert_eq!(denied(UrlPlace::Absent, Known::Unknown), format!("unknown: nobody has added it; {rule}"));
        let done = Known::Ended { end: End::Done(Outcome::Status(200)), at: None };
        assert_eq!(denied(UrlPlace::Absent, done), "done 200", "before the rules were these");
        let ip = "192.0.2.7".parse().expect("an address");
        let flight = UrlPlace::InFlight { doc, attempts: 1, spider: SpiderId(1), ip, written: None };
        assert!(denied(flight, Known::Given).starts_with("on its way"));
        let robots = RobotsView::TooSlow { delay: Duration::from_secs(600) };
        let slow = UrlFacts { robots, ..facts(UrlPlace::Absent, Known::Waiting) };
        assert_eq!(url(&slow), "robots.txt asks for a Crawl-delay of 10 min: more than crawl_delay_max");
        let idle = UrlFacts { host: Some(view(Standing::Idle)), ..facts(UrlPlace::Absent, Known::Waiting) };
        assert_eq!(url(&idle), "waits in the document index to be asked for");
    }
}
