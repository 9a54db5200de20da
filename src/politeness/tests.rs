use super::*;
use crate::scheduler::Standing;

fn at(secs: u64) -> Instant {
    Instant::from_micros(secs * 1_000_000)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The same start of the machine, `time` seconds after it; the wall clock shows `unix`.
fn stamp(time: u64, unix: u64) -> Stamp {
    Stamp { boot: "this".into(), uptime: secs(time), unix: secs(unix) }
}

fn clock(name: &str, owed: u64) -> Note {
    held(name, owed, 0, 0)
}

fn held(name: &str, owed: u64, held: u64, strikes: u8) -> Note {
    Note::Clock { key: ClockKey::Host(name.into()), owed: secs(owed), held: secs(held), strikes }
}

fn paused(host: &str) -> Note {
    let standing = Standing { paused: true, ..Standing::default() };
    Note::Order { host: host.into(), standing }
}

fn every_kind() -> Vec<Note> {
    let clock = |key| Note::Clock { key, owed: secs(100), held: secs(200), strikes: 3 };
    let standing = Standing { paused: true, blocked_for: secs(70), delay: secs(7) };
    vec![
        clock(ClockKey::Host("a.example".into())),
        clock(ClockKey::Ip("192.0.2.1".parse().expect("an address"))),
        clock(ClockKey::Ip("2001:db8::1".parse().expect("an address"))),
        clock(ClockKey::Alias("same".into())),
        clock(ClockKey::Group("same".into())),
        Note::Order { host: "a.example".into(), standing },
        Note::PauseAll(true),
    ]
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    #[track_caller]
    fn open(&self, now: &Stamp) -> (PolitenessLog, Legacy) {
        PolitenessLog::open(self.0.path(), at(0), now).expect("a log")
    }

    fn path(&self) -> PathBuf {
        self.0.path().join(FILE_NAME)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).expect("a file")
    }

    /// A file as a death at `stamp` leaves it.
    fn died(notes: Vec<Note>, stamp: &Stamp) -> Folder {
        let folder = Folder::new();
        let (mut log, _) = folder.open(stamp);
        for note in notes {
            log.push(at(0), note);
        }
        log.write(at(0), stamp);
        folder
    }
}

#[test]
fn what_was_written_is_there_after_a_death_with_its_time_passed() {
    let folder = Folder::new();
    assert_eq!(folder.open(&stamp(0, 0)).1, Legacy { notes: vec![], died: false }, "the first life");
    let folder = Folder::died(every_kind(), &stamp(10, 10));
    let (_, legacy) = folder.open(&stamp(10, 10));
    assert_eq!(legacy, Legacy { notes: every_kind(), died: true });
    // 60 seconds later, as exactly as it is known; twice, since the file was written anew.
    for _ in 0..2 {
        let (_, legacy) = folder.open(&stamp(70, 70));
        let passed = secs(60) - UPTIME_GRAIN;
        let left: Vec<Note> = every_kind().iter().filter_map(|note| note.later(passed)).collect();
        let Note::Clock { owed, .. } = &legacy.notes[0] else { panic!("{legacy:?}") };
        assert!(*owed >= secs(40), "never early: {owed:?}");
        assert_eq!(legacy.notes.len(), left.len());
        assert!(*owed <= secs(40) + 2 * UPTIME_GRAIN, "{owed:?}");
    }
}

#[test]
fn what_is_over_is_forgotten_and_not_before() {
    let folder = Folder::died(vec![clock("a", 5), held("b", 0, 5, 1), paused("c")], &stamp(10, 10));
    assert_eq!(folder.open(&stamp(14, 14)).1.notes.len(), 3);
    let notes = folder.open(&stamp(16, 16)).1.notes;
    assert_eq!(notes.len(), 2, "strikes outlive the hold: {notes:?}");
    assert_eq!(folder.open(&stamp(100_000, 0)).1.notes, [paused("c")]);
}

#[test]
fn the_last_word_counts_and_an_order_that_says_nothing_ends_it() {
    let lifted = Note::Order { host: "a".into(), standing: Standing::default() };
    let notes =
        vec![paused("a"), clock("b", 9), clock("b", 4), lifted, Note::PauseAll(true), Note::PauseAll(false)];
    let folder = Folder::died(notes, &stamp(10, 10));
    assert_eq!(folder.open(&stamp(10, 10)).1.notes, [clock("b", 4)]);
}

#[test]
fn a_wall_clock_that_was_set_changes_nothing_in_the_same_boot() {
    for unix in [0, 1_000_000] {
        let folder = Folder::died(vec![clock("a", 50)], &stamp(10, 500_000));
        let notes = folder.open(&stamp(30, unix)).1.notes;
        let Note::Clock { owed, .. } = notes[0] else { panic!("{notes:?}") };
        assert!(owed >= secs(30) && owed <= secs(30) + UPTIME_GRAIN, "{owed:?}");
    }
}

#[test]
fn after_another_start_of_the_machine_the_wall_clock_counts_and_lengthens_nothing() {
    let other = |unix| Stamp { boot: "other".into(), uptime: secs(5), unix: secs(unix) };
    for (unix, left) in [(1020, 30), (1000, 50), (0, 50)] {
        let folder = Folder::died(vec![clock("a", 50)], &stamp(10, 1000));
        assert_eq!(folder.open(&other(unix)).1.notes, [clock("a", left)]);
    }
    let nameless = Stamp { boot: "".into(), uptime: secs(0), unix: secs(7) };
    let folder = Folder::died(vec![clock("a", 50)], &nameless);
    assert_eq!(folder.open(&Stamp { uptime: secs(40), ..nameless }).1.notes, [clock("a", 50)]);
}

#[test]
fn an_end_in_peace_is_known_until_the_next_life_begins() {
    let folder = Folder::died(vec![paused("a")], &stamp(10, 10));
    let (mut log, legacy) = folder.open(&stamp(10, 10));
    assert!(legacy.died);
    log.push(at(1), clock("b", 9));
    log.write(at(1), &stamp(11, 11));
    log.close(at(2), &stamp(12, 12), vec![clock("c", 1)]);
    let (_, legacy) = folder.open(&stamp(12, 12));
    assert_eq!(legacy, Legacy { notes: vec![paused("a"), clock("b", 8), clock("c", 1)], died: false });
    assert!(folder.open(&stamp(12, 12)).1.died);
}

#[test]
fn a_torn_end_is_cut_off_wherever_it_is_torn() {
    let folder = Folder::died(vec![paused("a")], &stamp(10, 10));
    let whole = folder.bytes().len();
    let (mut log, _) = folder.open(&stamp(10, 10));
    log.push(at(0), held("b", 9, 9, 1));
    log.write(at(0), &stamp(10, 10));
    let bytes = folder.bytes();
    for length in whole..bytes.len() {
        let zeros = vec![0; bytes.len() - length];
        for end in [vec![], zeros] {
            std::fs::write(folder.path(), [&bytes[..length], &end].concat()).expect("a file");
            let notes = folder.open(&stamp(10, 10)).1.notes;
            assert_eq!(notes, [paused("a")], "torn at {length} of {}", bytes.len());
        }
    }
}

#[test]
fn damage_elsewhere_is_named_and_nothing_is_changed() {
    let folder = Folder::died(vec![paused("a"), clock("b", 9)], &stamp(10, 10));
    let (mut log, _) = folder.open(&stamp(10, 10));
    log.push(at(0), clock("c", 9));
    log.write(at(0), &stamp(10, 10));
    let bytes = folder.bytes();
    let last = bytes.len() - 60;
    for place in 0..last {
        let mut changed = bytes.clone();
        changed[place] ^= 0x40;
        std::fs::write(folder.path(), &changed).expect("a file");
        let opened = PolitenessLog::open(folder.0.path(), at(0), &stamp(10, 10));
        // A length that points behind the end looks like a torn end; all others are found out.
        if let Err(error) = opened {
            let text = error.to_string();
            assert!(text.contains(FILE_NAME), "{text}");
            assert_eq!(folder.bytes(), changed, "left as it was");
        }
    }
    for (start, words) in
        [(&b"urlserver politeness 2\n"[..], "version"), (b"something", "no politeness log"), (b"", "no")]
    {
        std::fs::write(folder.path(), start).expect("a file");
        let error = PolitenessLog::open(folder.0.path(), at(0), &stamp(10, 10)).err().expect("an error");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let error =
        PolitenessLog::open(Path::new("/no/such/folder"), at(0), &stamp(0, 0)).err().expect("an error");
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}

#[test]
fn the_file_stays_near_what_is_live_however_much_is_noted() {
    let folder = Folder::new();
    let (mut log, _) = folder.open(&stamp(0, 0));
    log.push(at(0), paused("for-ever"));
    let mut longest = 0;
    // Every host is new, and owed for ten seconds; a hundred are noted per second.
    for second in 0..3000 {
        for number in 0..100 {
            log.push(at(second), clock(&format!("host-{second}-{number}.example"), 10));
        }
        log.write(at(second), &stamp(second, second));
        assert!(log.live.len() <= 100 * 10 * 4, "{} are remembered", log.live.len());
        longest = longest.max(log.len);
        assert_eq!(log.len, folder.path().metadata().expect("a file").len());
    }
    assert!(longest < 2 * GARBAGE_MIN, "{longest} bytes");
    let notes = folder.open(&stamp(2999, 2999)).1.notes;
    assert!(notes.contains(&paused("for-ever")));
    assert!(notes.len() >= 1000, "all that is live is in it: {}", notes.len());
}

#[test]
fn a_disk_that_takes_nothing_is_tried_again_and_then_has_all() {
    let folder = Folder::new();
    let (mut log, _) = folder.open(&stamp(0, 0));
    let good = std::mem::replace(&mut log.file, Arc::new(File::open(folder.path()).expect("read only")));
    log.push(at(1), paused("a"));
    log.write(at(1), &stamp(1, 1));
    assert_eq!((log.failures(), log.is_clean()), (1, false));
    log.push(at(1), paused("b"));
    log.write(at(1), &stamp(1, 1));
    assert_eq!(log.failures(), 1, "not at once again");
    drop(good);
    log.write(at(2), &stamp(2, 2));
    assert!(log.is_clean());
    assert_eq!(folder.open(&stamp(2, 2)).1.notes, [paused("a"), paused("b")]);
}
