//! The TCP driver against small servers of our own, on real sockets: a good one is found good, and each
//! way to break a rule is caught.
#![allow(clippy::unwrap_used, missing_docs)]

use spider_sim::audit::{Auditor, GateLimit, Limits, Rest, Slack};
use spider_sim::machine::Persona;
use spider_sim::profile::{Latency, Profile};
use spider_sim::report::Facts;
use spider_sim::tcp::{self, Ended, Meeting, Outcome, Until};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

fn limits() -> Limits {
    Limits {
        host: GateLimit { concurrent: Some(1), gap: Duration::ZERO },
        ip: GateLimit::NONE,
        status_timeout: Duration::from_secs(60),
        lease_max: None,
        max_attempts: Some(3),
        rest: Rest { factor: 0.0, min: Duration::ZERO, max: Duration::ZERO },
    }
}

fn quick() -> Profile {
    Profile {
        latency: Latency::Constant(Duration::ZERO),
        reconnect_max: Duration::from_millis(10),
        ..Profile::original()
    }
}

fn persona(seed: u64, profile: Profile) -> Persona {
    Persona { seed, profile, token: Some("t".into()), working_every: Duration::from_secs(20) }
}

/// Until `urls` are done, or the server is gone.
fn until(urls: u64) -> Until {
    let patience = Duration::from_millis(300);
    Until { urls: Some(urls), time: None, idle: Duration::from_secs(20), patience }
}

fn connect(addr: SocketAddr, profile: Profile, spiders: u64, until: Until) -> Outcome {
    connect_with(limits(), addr, profile, spiders, until)
}

fn connect_with(limits: Limits, addr: SocketAddr, profile: Profile, spiders: u64, until: Until) -> Outcome {
    let personas = (0..spiders).map(|seed| persona(seed, profile.clone())).collect();
    let auditor = Auditor::new(limits, Slack::TCP);
    tcp::run(Meeting::Connect(addr), personas, auditor, until, |_| ()).unwrap()
}

/// A conversation: what a server does with one connection.
struct Talk {
    out: TcpStream,
    lines: std::io::Lines<BufReader<TcpStream>>,
}

impl Talk {
    fn new(stream: TcpStream) -> Talk {
        stream.set_nodelay(true).unwrap();
        let mut talk = Talk { lines: BufReader::new(stream.try_clone().unwrap()).lines(), out: stream };
        assert_eq!(talk.hear(), "AUTH t");
        talk
    }

    fn say(&mut self, text: &str) {
        self.out.write_all(text.as_bytes()).unwrap();
    }

    fn send(&mut self, trans: u64, doc: u64, host: &str) {
        self.say(&format!("{trans} {doc} 192.0.2.1 http://{host}/{doc}\n"));
    }

    /// The next line; empty at the end.
    fn hear(&mut self) -> String {
        self.lines.next().and_then(Result::ok).unwrap_or_default()
    }
}

/// A server for one connection; it closes when `talk` returns.
fn server(talk: impl FnOnce(&mut Talk) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        // Nobody gets in after the first: the end of this one is the end of the server.
        drop(listener);
        talk(&mut Talk::new(stream));
    });
    (addr, thread)
}

/// What the auditor says of a server that does this.
fn verdict(profile: Profile, talk: impl FnOnce(&mut Talk) + Send + 'static) -> Vec<String> {
    verdict_with(limits().host, profile, talk)
}

fn verdict_with(
    host: GateLimit,
    profile: Profile,
    talk: impl FnOnce(&mut Talk) + Send + 'static,
) -> Vec<String> {
    let (addr, thread) = server(talk);
    let outcome = connect_with(Limits { host, ..limits() }, addr, profile, 1, until(1000));
    thread.join().unwrap();
    assert_eq!(outcome.ended, Ended::ServerGone);
    outcome.auditor.violations().iter().map(ToString::to_string).collect()
}

#[track_caller]
fn caught(violations: &[String], words: &str) {
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].contains(words), "{violations:?}");
}

#[test]
fn a_good_server_is_found_good_and_all_drains() {
    let (addr, thread) = server(|talk| {
        for n in 0..200 {
            talk.send(n, n, &format!("h{n}"));
            assert_eq!(talk.hear(), format!("{n} DONE"));
        }
        talk.hear();
    });
    let outcome = connect(addr, quick(), 1, until(200));
    thread.join().unwrap();
    let facts = Facts::new(&outcome, &limits(), Some(200), 1, "again".into());
    assert_eq!(outcome.ended, Ended::AllDone);
    assert!(facts.is_clean(), "{facts}");
    assert_eq!((facts.urls, facts.documents_ended, facts.hosts, facts.addresses), (200, 200, 200, 1));
    assert_eq!(facts.outcomes["-"], 200);
}

#[test]
fn a_server_that_goes_early_has_lost_something() {
    let (addr, thread) = server(|talk| {
        talk.send(1, 1, "a");
        talk.hear();
    });
    let outcome = connect(addr, quick(), 1, until(3));
    thread.join().unwrap();
    let facts = Facts::new(&outcome, &limits(), Some(3), 1, "again".into());
    assert_eq!((outcome.ended, facts.losses), (Ended::ServerGone, 2));
}

#[test]
fn a_silent_server_ends_the_run() {
    let (addr, thread) = server(|talk| drop(talk.hear()));
    let outcome = connect(addr, quick(), 1, Until { idle: Duration::from_millis(200), ..until(1) });
    thread.join().unwrap();
    assert_eq!(outcome.ended, Ended::Silent);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(connect(addr, quick(), 2, until(1)).ended, Ended::NeverConnected);
}

#[test]
fn a_server_may_dial() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let mut talk = Talk::new(TcpStream::connect(addr).unwrap());
        talk.send(1, 1, "a");
        assert_eq!(talk.hear(), "1 DONE");
    });
    let auditor = Auditor::new(limits(), Slack::TCP);
    let outcome =
        tcp::run(Meeting::Listen(listener), vec![persona(1, quick())], auditor, until(1), |_| ()).unwrap();
    thread.join().unwrap();
    assert_eq!((outcome.ended, outcome.auditor.violation_count()), (Ended::AllDone, 0));
}

#[test]
fn two_in_flight_on_one_host_are_caught() {
    let hang = Profile { hang: 1.0, ..quick() };
    let violations = verdict(hang, |talk| {
        talk.send(1, 1, "a");
        talk.send(2, 2, "a");
    });
    caught(&violations, "host a had 2 URLs in flight");
}

#[test]
fn a_gap_too_short_is_caught() {
    let slow = GateLimit { concurrent: Some(1), gap: Duration::from_secs(30) };
    let violations = verdict_with(slow, quick(), |talk| {
        talk.send(1, 1, "a");
        talk.hear();
        talk.send(2, 2, "a");
        talk.hear();
    });
    caught(&violations, "host a was sent document 2");
}

#[test]
fn a_trans_id_in_flight_twice_is_caught() {
    let hang = Profile { hang: 1.0, ..quick() };
    let violations = verdict(hang, |talk| {
        talk.send(1, 1, "a");
        talk.send(1, 2, "b");
    });
    caught(&violations, "TRANS_ID 1 came for document 2 while in flight");
}

#[test]
fn a_trans_id_that_comes_back_is_caught() {
    let violations = verdict(quick(), |talk| {
        talk.send(1, 1, "a");
        talk.hear();
        talk.send(1, 2, "b");
        talk.hear();
    });
    caught(&violations, "TRANS_ID 1 of a finished send");
}

#[test]
fn a_finished_document_sent_again_is_caught() {
    let violations = verdict(quick(), |talk| {
        talk.send(1, 1, "a");
        talk.hear();
        talk.send(2, 1, "a");
        talk.hear();
    });
    caught(&violations, "document 1 was sent again after it had ended");
}

#[test]
fn a_document_in_flight_twice_is_caught() {
    let hang = Profile { hang: 1.0, ..quick() };
    let violations = verdict(hang, |talk| {
        talk.send(1, 1, "a");
        talk.say("2 1 192.0.2.1 http://b/1\n");
    });
    caught(&violations, "document 1 was sent while it was in flight");
}

#[test]
fn a_document_sent_for_ever_is_caught() {
    let failing =
        Profile { outcomes: vec![(1, urlserver::document::Outcome::Status(500))], unsaid: 0.0, ..quick() };
    let violations = verdict(failing, |talk| {
        for n in 0..4 {
            talk.send(n, 1, "a");
            assert_eq!(talk.hear(), format!("{n} DONE 500"));
        }
    });
    caught(&violations, "document 1 was sent for the 4. time");
}

#[test]
fn a_broken_hold_is_caught() {
    let throttled = Profile {
        outcomes: vec![(1, urlserver::document::Outcome::Status(429))],
        unsaid: 0.0,
        retry_after: 1.0,
        retry_after_max: Duration::from_secs(u64::from(u32::MAX)),
        ..quick()
    };
    let violations = verdict(throttled, |talk| {
        talk.send(1, 1, "a");
        assert!(talk.hear().starts_with("1 DONE 429 retry-after="));
        // Long enough that the spider is certain to have looked into its empty socket since.
        std::thread::sleep(Duration::from_secs(1));
        talk.send(2, 2, "a");
        talk.hear();
    });
    caught(&violations, "although it was to rest until");
}

#[test]
fn bad_lines_and_undeserved_errors_are_caught() {
    caught(&verdict(quick(), |talk| talk.say("220 welcome\n")), "it has 2 fields");
    caught(&verdict(quick(), |talk| talk.say("1 1 [::1] http://a/\n")), "brackets");
    caught(&verdict(quick(), |talk| talk.say("1 1 192.0.2.1 http://A/\n")), "not normalised");
    caught(&verdict(quick(), |talk| talk.say("ERROR nothing\n")), "nothing had deserved");
}

#[test]
fn lines_beyond_the_credit_are_caught() {
    let pulling = Profile { pull: Some(1), hang: 1.0, ..quick() };
    let violations = verdict(pulling, |talk| {
        assert_eq!(talk.hear(), "GET 1");
        // Until then the spider cannot know that its GET was read.
        std::thread::sleep(Duration::from_secs(2));
        for n in 0..3 {
            talk.send(n, n, &format!("h{n}"));
            assert_eq!(talk.hear(), "GET 1");
        }
        talk.say("8 8 192.0.2.1 http://x/\n9 9 192.0.2.1 http://y/\n");
    });
    caught(&violations, "document 9 came beyond the");
}

#[test]
fn what_a_stalled_spider_finds_in_its_socket_is_no_violation() {
    let stalling = Profile { stall: 1.0, stall_max: Duration::from_secs(3), ..quick() };
    let gaps_only = GateLimit { concurrent: None, gap: Duration::from_millis(200) };
    let violations = verdict_with(gaps_only, stalling, |talk| {
        for n in 0..4 {
            talk.send(n, n, "a");
            std::thread::sleep(Duration::from_millis(200));
        }
        for _ in 0..4 {
            assert!(talk.hear().ends_with(" DONE"));
        }
    });
    assert_eq!(violations, Vec::<String>::new());
}

/// A server that keeps one URL in flight per connection, answers ERROR to what it does not know, and
/// gives what a lost connection had to the next one.
mod patient {
    use super::*;
    use std::collections::{HashMap, VecDeque};
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct State {
        queue: VecDeque<u64>,
        next_trans: u64,
    }

    pub(super) fn serve(listener: TcpListener, documents: u64) {
        let state = Arc::new(Mutex::new(State { queue: (0..documents).collect(), next_trans: 0 }));
        for stream in listener.incoming() {
            let state = state.clone();
            std::thread::spawn(move || talk(stream.unwrap(), &state));
        }
    }

    fn talk(mut stream: TcpStream, state: &Mutex<State>) {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut flying: HashMap<u64, u64> = HashMap::new();
        let mut line = Vec::new();
        let mut authorised = false;
        loop {
            line.clear();
            let complete =
                matches!(reader.read_until(b'\n', &mut line), Ok(n) if n > 0) && line.ends_with(b"\n");
            if !complete {
                break;
            }
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            let answer =
                if authorised { react(&text, line.len(), &mut flying, state) } else { String::new() };
            authorised = true;
            let work = if flying.is_empty() { next(&mut flying, state) } else { String::new() };
            if stream.write_all((answer + &work).as_bytes()).is_err() {
                break;
            }
        }
        state.lock().unwrap().queue.extend(flying.into_values());
    }

    /// The answer to a line: nothing, or an ERROR.
    fn react(text: &str, length: usize, flying: &mut HashMap<u64, u64>, state: &Mutex<State>) -> String {
        let words: Vec<&str> = text.split(' ').collect();
        let number =
            |word: &str| word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse::<u64>().ok()).flatten();
        let good_add = |url: &str| url.is_ascii() && urlserver::url::Url::parse(url).is_ok();
        match words[..] {
            _ if length > 16 * 1024 => "ERROR too long\n".into(),
            ["WORKING", id] | [id, "WORKING"] if number(id).is_some() => String::new(),
            ["DONE", id] | [id, "DONE", ..] if number(id).is_some() => {
                let again = words.get(2).is_some_and(|word| *word != "200");
                let doc = number(id).and_then(|id| flying.remove(&id)).filter(|_| again);
                state.lock().unwrap().queue.extend(doc);
                String::new()
            }
            ["ADD", url] if good_add(url) => String::new(),
            _ => "ERROR what?\n".into(),
        }
    }

    fn next(flying: &mut HashMap<u64, u64>, state: &Mutex<State>) -> String {
        let mut state = state.lock().unwrap();
        let Some(doc) = state.queue.pop_front() else { return String::new() };
        state.next_trans += 1;
        flying.insert(state.next_trans, doc);
        format!("{} {doc} 192.0.2.1 http://h{doc}.example/\n", state.next_trans)
    }
}

#[test]
fn chaos_over_tcp_raises_no_false_alarm_and_drains() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || patient::serve(listener, 400));
    let profile = Profile {
        latency: Latency::Exponential(Duration::from_millis(2)),
        outcomes: vec![(9, urlserver::document::Outcome::Status(200))],
        reconnect_max: Duration::from_millis(20),
        stall_max: Duration::from_millis(50),
        crash: 0.05,
        hang: 0.0,
        stall: 0.05,
        flood: 0.02,
        garbage: 0.2,
        ..Profile::chaos()
    };
    let endless = Limits { max_attempts: None, ..limits() };
    let outcome = connect_with(endless.clone(), addr, profile, 4, until(400));
    let facts = Facts::new(&outcome, &endless, Some(400), 1, "again".into());
    assert_eq!(outcome.ended, Ended::AllDone);
    assert!(facts.is_clean(), "{facts}");
    let errors = &facts.errors;
    assert!(errors.provoked > 0 && errors.received <= errors.provoked, "{facts}");
    assert!(
        facts.behaviour.crashes > 0 && facts.behaviour.stalls > 0 && facts.behaviour.stale > 0,
        "{facts}"
    );
}
