//! One suite that every document index passes, through the handle that the server uses; and what only an
//! index over TCP can do wrong.

#[path = "support/index_peer.rs"]
mod index_peer;
#[path = "support/index_server.rs"]
mod index_server;
#[path = "support/postgres.rs"]
mod postgres;

use index_peer::{DEADLINE, Listener, Peer};
use index_server::IndexServer;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use urlserver::document::{Candidate, End, FailReason, Outcome, Report};
use urlserver::ids::DocId;
use urlserver::index::{
    Added, Adder, Addition, EmbeddedIndex, IndexEvent, IndexHandle, MemoryIndex, PostgresIndex,
    PostgresOptions, TcpIndex, TcpOptions, spawn,
};
use urlserver::url::Url;

/// As patient as the real ones where patience is not what is tested.
const QUICK: TcpOptions = TcpOptions {
    backoff_min: Duration::from_millis(5),
    backoff_max: Duration::from_millis(10),
    dial_max: Duration::from_secs(5),
    silence_max: Duration::from_secs(60),
    close_max: Duration::from_secs(10),
};

struct Fixture {
    index: IndexHandle,
    adder: Adder,
    server: Option<IndexServer>,
    _directory: Option<tempfile::TempDir>,
}

async fn memory() -> Fixture {
    let (index, adder) = spawn(MemoryIndex::default());
    Fixture { index, adder, server: None, _directory: None }.up().await
}

async fn embedded() -> Fixture {
    let directory = tempfile::tempdir().expect("a directory");
    let (index, adder) = spawn(EmbeddedIndex::open(directory.path(), None).expect("an index"));
    Fixture { index, adder, server: None, _directory: Some(directory) }.up().await
}

async fn tcp() -> Fixture {
    let server = IndexServer::start().await;
    let (index, adder) = spawn(TcpIndex::new(server.address.to_string(), QUICK));
    Fixture { index, adder, server: Some(server), _directory: None }.up().await
}

async fn postgres() -> Fixture {
    let url = tokio::task::spawn_blocking(postgres::new_database).await.expect("a database");
    let options = PostgresOptions {
        instance: "only".into(),
        queue_len: 1,
        claim_expiry_1: Duration::from_secs(60),
        claim_expiry_2: Duration::from_secs(120),
    };
    let (index, adder) = spawn(PostgresIndex::new(&url, &options).expect("a URL"));
    Fixture { index, adder, server: None, _directory: None }.up().await
}

async fn next(index: &mut IndexHandle) -> IndexEvent {
    timeout(DEADLINE, index.event()).await.expect("an event in time").expect("an index")
}

/// Waits for `wanted`; nothing but candidates' growth may come before it.
async fn expect(index: &mut IndexHandle, wanted: IndexEvent) {
    loop {
        match next(index).await {
            IndexEvent::Grown if wanted != IndexEvent::Grown => {}
            IndexEvent::Claims(_) => {}
            event => return assert_eq!(event, wanted),
        }
    }
}

/// The whole answer to a request that has been made, and whether it was complete.
async fn answer(index: &mut IndexHandle) -> (Vec<Candidate>, bool) {
    let mut all = Vec::new();
    loop {
        match next(index).await {
            IndexEvent::Candidates(list) => all.extend(list),
            IndexEvent::Answered { given, complete } => {
                assert_eq!(given, all.len());
                return (all, complete);
            }
            IndexEvent::Claims(_) | IndexEvent::Grown | IndexEvent::Up | IndexEvent::Down => {}
        }
    }
}

impl Fixture {
    async fn up(mut self) -> Fixture {
        expect(&mut self.index, IndexEvent::Up).await;
        self
    }

    async fn take(&mut self, n: usize, reject: &[&str]) -> Vec<Candidate> {
        assert!(self.index.ask(n, reject.iter().map(|&host| host.into()).collect()));
        let (list, complete) = answer(&mut self.index).await;
        assert!(list.len() <= n);
        if n > 0 && (reject.is_empty() || !list.is_empty()) {
            assert!(complete, "it has said all that it has");
        }
        list
    }

    async fn fill(&self, hosts: usize, pages: usize) {
        let urls = (0..hosts).flat_map(|host| (0..pages).map(move |page| addition(host, page)));
        let added = self.adder.add(urls.collect()).await.expect("an index");
        assert!(added.iter().all(|added| matches!(added, Added::Accepted(_) | Added::Sent)));
    }

    fn finish(&mut self, list: &[Candidate]) {
        for candidate in list {
            self.index.report(done(candidate.doc));
        }
    }

    /// Ends the index; everything asked for has been reported, once.
    async fn drained(self, documents: usize) {
        let mut index = self.index;
        until(&mut index, |index| index.counters().done.value() == documents as u64).await;
        index.close().await;
        if let Some(server) = &self.server {
            let state = server.state();
            assert_eq!(state.reports.len(), documents);
            assert!(
                state.reports.values().all(|reports| reports.len() == 1),
                "nothing is repeated without need"
            );
        }
    }
}

fn addition(host: usize, page: usize) -> Addition {
    let url = format!("http://h{host:02}.example/{page}");
    Addition { doc: None, url: Url::parse(&url).expect("a URL"), not_before: None }
}

fn done(doc: DocId) -> Report {
    Report { doc, end: End::Done(Outcome::Status(200)) }
}

fn urls(list: &[Candidate]) -> Vec<&str> {
    list.iter().map(|candidate| candidate.url.as_str()).collect()
}

/// Each test of the suite for each backend.
macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test] async fn $test() { super::$test(super::memory().await).await; })*
        }
        mod in_a_directory {
            $(#[tokio::test] async fn $test() { super::$test(super::embedded().await).await; })*
        }
        mod in_postgres {
            $(#[tokio::test] async fn $test() { super::$test(super::postgres().await).await; })*
        }
        mod over_tcp {
            $(#[tokio::test] async fn $test() { super::$test(super::tcp().await).await; })*
        }
    };
}

suite! {
    an_empty_index_answers_at_once,
    at_most_n_and_every_document_once,
    rejected_hosts_are_left_out_and_come_later,
    hosts_in_turn_and_each_in_order,
    a_known_url_is_not_offered_again,
    growth_is_announced,
    one_request_at_a_time,
    the_last_reports_arrive_when_it_is_closed,
    urls_of_all_shapes_come_back_as_they_went_in,
}

async fn an_empty_index_answers_at_once(mut fixture: Fixture) {
    assert!(fixture.take(10, &[]).await.is_empty());
    assert!(fixture.take(10, &["h00.example"]).await.is_empty());
    fixture.drained(0).await;
}

async fn at_most_n_and_every_document_once(mut fixture: Fixture) {
    fixture.fill(7, 150).await;
    let mut docs = HashSet::new();
    for n in [0, 1, 500, 100, 1_000] {
        let list = fixture.take(n, &[]).await;
        assert!(list.iter().all(|candidate| docs.insert(candidate.doc)));
        fixture.finish(&list);
    }
    assert_eq!(docs.len(), 7 * 150);
    assert!(fixture.take(1, &[]).await.is_empty());
    fixture.drained(7 * 150).await;
}

async fn rejected_hosts_are_left_out_and_come_later(mut fixture: Fixture) {
    fixture.fill(3, 1).await;
    let first = fixture.take(9, &["h02.example", "h00.example", "unknown.example", "h00.example"]).await;
    assert_eq!(urls(&first), ["http://h01.example/0"]);
    assert!(fixture.index.ask(9, vec!["h00.example".into(), "h02.example".into()]));
    let (nothing, complete) = answer(&mut fixture.index).await;
    assert!(nothing.is_empty() && !complete, "rejected hosts have more");
    let rest = fixture.take(9, &[]).await;
    assert_eq!(urls(&rest), ["http://h00.example/0", "http://h02.example/0"]);
    assert_eq!(fixture.index.counters().rejected_host.value(), 0);
    fixture.finish(&first);
    fixture.finish(&rest);
    fixture.drained(3).await;
}

async fn hosts_in_turn_and_each_in_order(mut fixture: Fixture) {
    fixture.fill(2, 120).await;
    let list = fixture.take(240, &[]).await;
    let pages = |host: usize, range: std::ops::Range<usize>| range.map(move |page| addition(host, page).url);
    let want = pages(0, 0..100).chain(pages(1, 0..100)).chain(pages(0, 100..120)).chain(pages(1, 100..120));
    assert!(list.iter().map(|candidate| candidate.url.clone()).eq(want));
    fixture.finish(&list);
    fixture.drained(240).await;
}

async fn a_known_url_is_not_offered_again(mut fixture: Fixture) {
    fixture.fill(1, 1).await;
    let again = || fixture.adder.add(vec![addition(0, 0)]);
    assert!(matches!(again().await.as_deref(), Ok([Added::Duplicate | Added::Sent])), "pending");
    let list = fixture.take(9, &[]).await;
    assert_eq!(list.len(), 1);
    fixture.finish(&list);
    let again = fixture.adder.add(vec![addition(0, 0)]).await;
    assert!(matches!(again.as_deref(), Ok([Added::Duplicate | Added::Sent])), "finished");
    assert!(fixture.take(9, &[]).await.is_empty());
    fixture.drained(1).await;
}

async fn growth_is_announced(mut fixture: Fixture) {
    assert!(fixture.take(1, &[]).await.is_empty());
    fixture.fill(1, 1).await;
    expect(&mut fixture.index, IndexEvent::Grown).await;
    let list = fixture.take(1, &[]).await;
    assert_eq!(list.len(), 1);
    fixture.finish(&list);
    fixture.drained(1).await;
}

async fn one_request_at_a_time(mut fixture: Fixture) {
    assert!(fixture.index.ask(1, vec![]));
    assert!(fixture.index.is_asking());
    assert!(!fixture.index.ask(1, vec![]));
    answer(&mut fixture.index).await;
    assert!(!fixture.index.is_asking());
    assert_eq!(fixture.index.counters().requests.value(), 1);
    fixture.drained(0).await;
}

async fn the_last_reports_arrive_when_it_is_closed(mut fixture: Fixture) {
    fixture.fill(2, 500).await;
    let list = fixture.take(1_000, &[]).await;
    fixture.finish(&list);
    fixture.drained(1_000).await;
}

async fn urls_of_all_shapes_come_back_as_they_went_in(mut fixture: Fixture) {
    let shapes =
        ["https://u:p@a.example/", "http://a.example.:81/?q", "http://[::1]/", "http://192.0.2.7/%20"];
    let urls: Vec<Url> = shapes.iter().map(|url| Url::parse(url).expect(url)).collect();
    let additions = urls.iter().map(|url| Addition { doc: None, url: url.clone(), not_before: None });
    fixture.adder.add(additions.collect()).await.expect("an index");
    let list = fixture.take(9, &[]).await;
    let got: Vec<&Url> = list.iter().map(|candidate| &candidate.url).collect();
    assert_eq!(got, urls.iter().collect::<Vec<_>>());
    fixture.finish(&list);
    fixture.drained(4).await;
}

/// A client of an index that the test plays.
async fn played(options: TcpOptions) -> (IndexHandle, Adder, Listener, Peer) {
    let listener = Listener::bind("127.0.0.1:0").await;
    let (mut index, adder) = spawn(TcpIndex::new(listener.address().to_string(), options));
    let (peer, ()) = tokio::join!(listener.accept(), expect(&mut index, IndexEvent::Up));
    (index, adder, listener, peer)
}

/// Lets the handle work until `condition` holds for it.
async fn until(index: &mut IndexHandle, condition: impl Fn(&IndexHandle) -> bool) {
    let work = async {
        while !condition(index) {
            let _ = timeout(Duration::from_millis(1), index.event()).await;
        }
    };
    timeout(DEADLINE, work).await.expect("in time");
}

#[tokio::test]
async fn every_document_is_reported_however_often_the_connection_breaks() {
    for seed in 0..4 {
        let mut fixture = tcp().await;
        let server = fixture.server.take().expect("a server");
        fixture.fill(20, 50).await;
        fixture.take(0, &[]).await;
        server.break_connections(seed, 20);
        let crawl = async {
            // What a scheduler does: a document that comes again while it is pending is one document.
            let mut pending = HashSet::new();
            while server.state().reports.len() < 1_000 {
                assert!(fixture.index.ask(37, vec![]), "the last one was answered");
                let (list, _) = answer(&mut fixture.index).await;
                let idle = list.is_empty();
                pending.extend(list.iter().map(|candidate| candidate.doc));
                if idle || pending.len() > 200 {
                    pending.drain().for_each(|doc| fixture.index.report(done(doc)));
                }
                if idle {
                    let _ = timeout(Duration::from_millis(2), fixture.index.event()).await;
                }
            }
        };
        timeout(DEADLINE, crawl)
            .await
            .unwrap_or_else(|_| panic!("seed {seed}: {} reports", server.state().reports.len()));
        assert!(server.state().connections > 10 && server.state().most_given <= 37);
        fixture.index.close().await;
    }
}

#[tokio::test]
async fn an_answer_cut_short_is_answered_incomplete_and_half_a_line_is_nothing() {
    let (mut index, _adder, listener, mut peer) = played(QUICK).await;
    assert!(index.ask(5, vec![]));
    let play = async {
        peer.expect(&["CANDIDATES 5"]).await;
        peer.say("1 http://a.example/\n2 http://a.example/b\n3 http://a.exam").await;
        drop(peer);
    };
    let ((list, complete), ()) = tokio::join!(answer(&mut index), play);
    assert_eq!((urls(&list), complete), (vec!["http://a.example/", "http://a.example/b"], false));
    expect(&mut index, IndexEvent::Down).await;
    let (mut peer, ()) = tokio::join!(listener.accept(), expect(&mut index, IndexEvent::Up));
    assert!(index.ask(5, vec![]), "may be asked again");
    let (_, (list, complete)) = tokio::join!(
        async {
            peer.expect(&["CANDIDATES 5"]).await;
            peer.say("3 http://a.example/c\nEND\n").await;
        },
        answer(&mut index)
    );
    assert_eq!((list.len(), complete), (1, true));
}

#[tokio::test]
async fn candidates_are_used_before_the_answer_ends() {
    let (mut index, _adder, _listener, mut peer) = played(QUICK).await;
    assert!(index.ask(2, vec![]));
    peer.expect(&["CANDIDATES 2"]).await;
    peer.say("1 http://a.exa").await;
    peer.say("mple/\n2 http://b.example/\n3 htt").await;
    assert!(matches!(next(&mut index).await, IndexEvent::Candidates(list) if list.len() == 2));
    peer.say("p://c.example/\nEND\r\n").await;
    expect(&mut index, IndexEvent::Answered { given: 2, complete: true }).await;
    peer.expect(&["3 FAILED surplus"]).await;
}

#[tokio::test]
async fn nonsense_is_survived_counted_and_reported_where_it_has_a_name() {
    let (mut index, _adder, _listener, mut peer) = played(QUICK).await;
    assert!(index.ask(2, vec!["a.example".into()]));
    let play = async {
        peer.expect(&["REJECT a.example", "CANDIDATES 2"]).await;
        peer.say("hello\n\n\r\n-1 http://b.example/\n1 http://a.example/\n").await;
        peer.say(format!("2 http://b.example/{}\n{}\n", "x".repeat(30_000), "y".repeat(3_000_000))).await;
        peer.say(
            b"3 http://b.example/\xff\n\xff\xfe\n4 gopher://b.example/\n5\n6 http://b.example/ ip=? x\n",
        )
        .await;
        peer.say("7 http://b.example/7\nEND\nEND\n8 http://b.example/8\n").await;
        peer.expect(&["2 FAILED bad-url", "3 FAILED bad-url", "4 FAILED bad-url", "5 FAILED bad-url"]).await;
        peer.expect(&["7 FAILED surplus", "8 FAILED surplus"]).await;
        peer
    };
    let (_peer, (list, complete)) = tokio::join!(play, answer(&mut index));
    assert_eq!((urls(&list), complete), (vec!["http://a.example/", "http://b.example/"], true));
    let counters: Vec<(&str, u64)> = index.counters().all().collect();
    let count = |name| counters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let counted =
        ["candidates", "surplus", "unusable", "rejected_host", "nonsense", "failed", "lost"].map(count);
    assert_eq!(counted, [2, 2, 4, 1, 5, 6, 0].map(Some));
}

#[tokio::test]
async fn only_unconfirmed_reports_and_urls_are_repeated_and_before_anything_else() {
    let (mut index, adder, listener, mut peer) = played(QUICK).await;
    index.report(done(DocId(1)));
    assert_eq!(adder.add(vec![addition(0, 0)]).await, Ok(vec![Added::Sent]));
    expect(&mut index, IndexEvent::Grown).await;
    until(&mut index, |index| index.counters().done.value() == 1).await;
    assert!(index.ask(1, vec![]));
    let confirm = async {
        let mut first = [peer.line().await, peer.line().await];
        first.sort();
        assert_eq!(first, ["1 DONE 200\n", "ADD http://h00.example/0\n"]);
        peer.expect(&["CANDIDATES 1"]).await;
        peer.say("END\n").await;
        peer
    };
    let (mut peer, _) = tokio::join!(confirm, answer(&mut index));
    index.report(Report { doc: DocId(2), end: End::Failed(FailReason::Dns) });
    until(&mut index, |index| index.counters().failed.value() == 1).await;
    peer.expect(&["2 FAILED dns"]).await;
    drop(peer);
    expect(&mut index, IndexEvent::Down).await;
    assert!(index.ask(7, vec![]));
    assert_eq!(answer(&mut index).await, (vec![], false), "nobody is there");
    let (mut peer, ()) = tokio::join!(listener.accept(), expect(&mut index, IndexEvent::Up));
    assert!(index.ask(7, vec![]));
    let play = async {
        peer.expect(&["2 FAILED dns", "CANDIDATES 7"]).await;
        peer.say("END\n").await;
    };
    tokio::join!(play, answer(&mut index));
    index.report(done(DocId(3)));
    let (_, ()) = tokio::join!(index.close(), async {
        peer.expect(&["3 DONE 200"]).await;
        peer.expect_end().await;
        drop(peer);
    });
}

#[tokio::test]
async fn a_silent_index_is_dialled_again() {
    let options = TcpOptions { silence_max: Duration::from_millis(100), ..QUICK };
    let (mut index, _adder, listener, mut peer) = played(options).await;
    // Silence is no fault while nothing is owed.
    sleep(Duration::from_millis(300)).await;
    assert!(index.ask(1, vec![]));
    assert_eq!(answer(&mut index).await, (vec![], false));
    peer.expect(&["CANDIDATES 1"]).await;
    peer.expect_end().await;
    assert_eq!(index.counters().lost.value(), 1);
    listener.accept().await;
}

#[tokio::test]
async fn an_index_that_does_not_read_blocks_nobody_and_loses_nothing() {
    const REPORTS: u64 = 400_000;
    // Long enough for a loaded machine to read 400,000 lines without a break that looks like silence.
    let options = TcpOptions { silence_max: Duration::from_secs(3), ..QUICK };
    let (mut index, _adder, listener, deaf) = played(options).await;
    for doc in 0..REPORTS {
        index.report(done(DocId(doc)));
    }
    expect(&mut index, IndexEvent::Down).await;
    drop(deaf);
    let (mut peer, ()) = tokio::join!(listener.accept(), expect(&mut index, IndexEvent::Up));
    for doc in 0..REPORTS {
        assert_eq!(peer.line().await, format!("{doc} DONE 200\n"));
    }
}

#[tokio::test]
async fn an_index_that_is_not_there_yet_is_found_when_it_comes() {
    let listener = Listener::bind("127.0.0.1:0").await;
    let address = listener.address().to_string();
    drop(listener);
    let (mut index, _adder) = spawn(TcpIndex::new(address.clone(), QUICK));
    assert!(index.ask(1, vec![]));
    assert_eq!(answer(&mut index).await, (vec![], false));
    let listener = Listener::bind(&address).await;
    tokio::join!(listener.accept(), expect(&mut index, IndexEvent::Up));
}

#[tokio::test]
async fn an_endless_answer_ends_the_connection() {
    let (mut index, _adder, listener, mut peer) = played(QUICK).await;
    assert!(index.ask(3, vec![]));
    let play = async {
        peer.expect(&["CANDIDATES 3"]).await;
        let lines: String = (0..20_000).map(|doc| format!("{doc} http://a.example/{doc}\n")).collect();
        peer.say(lines).await;
        peer
    };
    let (_peer, (list, complete)) = tokio::join!(play, answer(&mut index));
    assert_eq!((list.len(), complete), (3, false));
    expect(&mut index, IndexEvent::Down).await;
    listener.accept().await;
}
