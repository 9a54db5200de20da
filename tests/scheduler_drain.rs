//! Documents of names that do not exist are given up, all of them, without anyone having to ask twice.

#![allow(clippy::unwrap_used)]

use urlserver::document::{Candidate, End, FailReason, Report};
use urlserver::hostdb::Resolution;
use urlserver::ids::DocId;
use urlserver::scheduler::{Admission, Config, Scheduler};
use urlserver::time::{Duration, Instant};
use urlserver::url::Url;

#[test]
fn reports_go_on_from_one_name_that_does_not_exist_to_the_next() {
    let now = Instant::ZERO;
    let mut scheduler = Scheduler::new(Config { queue_count: 1, ..Config::default() });
    for (doc, url) in (1..).zip(["http://a.example/1", "http://a.example/2", "http://b.example/"]) {
        let candidate =
            Candidate { doc: DocId(doc), url: Url::parse(url).unwrap(), ip: None, wait: Duration::ZERO };
        assert_eq!(scheduler.handle_candidate(now, &candidate), Admission::Pending);
    }
    while let Some(lookup) = scheduler.poll_lookup() {
        let host = lookup.host;
        scheduler.handle_resolved(now, host, Resolution::Nothing { ttl: None });
    }
    let failed = |doc| Report { doc: DocId(doc), end: End::Failed(FailReason::Dns) };
    let reports: Vec<Report> = std::iter::from_fn(|| scheduler.poll_report(now)).collect();
    assert_eq!(reports, [failed(1), failed(2), failed(3)]);
    assert!(scheduler.is_drained());
    assert_eq!(scheduler.check(now), Ok(()));
}
