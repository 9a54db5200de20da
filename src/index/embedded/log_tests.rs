#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use proptest::prelude::*;
use tempfile::TempDir;

fn scratch() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("documents.log");
    (directory, path)
}

fn put(log: &mut Log, payload: &[u8]) {
    let mut frame = Frame::default();
    frame.payload().extend_from_slice(payload);
    log.append(&mut frame).unwrap();
    assert!(frame.is_empty());
}

/// All payloads that are not empty, where the good part ends, and the length of the torn one.
fn read(path: &Path) -> Result<(Vec<Vec<u8>>, u64, u64), IndexError> {
    let (_, mut frames) = Log::open(path, Kind::Documents)?;
    let mut all = Vec::new();
    loop {
        match frames.next()? {
            Next::Records { bytes: [], .. } => {}
            Next::Records { bytes, .. } => all.push(bytes.to_vec()),
            Next::End { at, torn } => return Ok((all, at, torn)),
        }
    }
}

/// Three frames, the ends of which are returned.
fn three(path: &Path) -> [u64; 3] {
    let mut log = Log::create(path, Kind::Documents, 7).unwrap();
    [b"one".to_vec(), vec![FRAME_TAG; 100], b"three".to_vec()].map(|payload| {
        put(&mut log, &payload);
        log.end()
    })
}

#[test]
fn frames_come_back_and_more_can_be_written() {
    let (_directory, path) = scratch();
    let ends = three(&path);
    let (mut log, _) = Log::open(&path, Kind::Documents).unwrap();
    assert_eq!((log.seed, log.end()), (7, ends[2]));
    put(&mut log, b"four");
    let (all, _, torn) = read(&path).unwrap();
    assert_eq!((all.len(), &all[0][..], &all[3][..], torn), (4, &b"one"[..], &b"four"[..], 0));
}

#[test]
fn a_tail_cut_anywhere_is_a_torn_frame_and_no_more() {
    let (_directory, path) = scratch();
    let ends = three(&path);
    let whole = std::fs::read(&path).unwrap();
    for cut in FILE_HEADER..=ends[2] {
        std::fs::write(&path, &whole[..cut as usize]).unwrap();
        let (all, at, torn) = read(&path).unwrap();
        let good = ends.iter().filter(|end| **end <= cut).count();
        let end = if good == 0 { FILE_HEADER } else { ends[good - 1] };
        assert_eq!((all.len(), at, torn), (good, end, cut - end), "{cut}");
        let (mut log, _) = Log::open(&path, Kind::Documents).unwrap();
        log.cut(at, FILE_HEADER);
        put(&mut log, b"x");
        let (all, _, torn) = read(&path).unwrap();
        assert_eq!((all.len(), torn), (good + 1, 0), "{cut}");
    }
}

#[test]
fn a_bit_flipped_before_the_mark_is_damage_and_behind_it_a_torn_tail() {
    let (_directory, path) = scratch();
    let mut log = Log::create(&path, Kind::Documents, 7).unwrap();
    put(&mut log, b"some");
    put(&mut log, b"documents");
    let safe = log.end();
    log.handle_synced(safe).unwrap();
    assert_eq!(log.end(), safe + FRAME_HEADER as u64, "a mark");
    log.handle_synced(log.end()).unwrap();
    assert_eq!(log.end(), safe + FRAME_HEADER as u64, "marks need no marks");
    put(&mut log, b"more");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            std::fs::write(&path, bytes).unwrap();
            match (read(&path), at as u64) {
                (Err(IndexError::Damaged { offset, .. }), at) => assert!(offset <= at && at < safe + 17),
                (Ok((all, end, torn)), at) => {
                    assert!(at >= safe, "{at} is not noticed");
                    assert!(all.len() == 2 && end <= at && torn > 0, "{at}");
                }
                (Err(error), at) => panic!("{at}: {error}"),
            }
        }
    }
}

#[test]
fn zeros_or_garbage_behind_the_end_are_cut() {
    let (_directory, path) = scratch();
    let ends = three(&path);
    for garbage in [vec![0; 5000], vec![0xff; 3], vec![FRAME_TAG; 70_000]] {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(ends[2] as usize);
        bytes.extend(&garbage);
        std::fs::write(&path, bytes).unwrap();
        let (all, at, torn) = read(&path).unwrap();
        assert_eq!((all.len(), at, torn), (3, ends[2], garbage.len() as u64));
    }
}

#[test]
fn other_files_and_newer_ones_are_refused_by_name() {
    let (_directory, path) = scratch();
    std::fs::write(&path, b"short").unwrap();
    assert!(matches!(read(&path), Err(IndexError::Damaged { offset: 0, .. })));
    std::fs::write(&path, [b'x'; 64]).unwrap();
    assert!(matches!(read(&path), Err(IndexError::Damaged { offset: 0, .. })));
    std::fs::write(&path, file_header(Kind::Ends, VERSION, 1)).unwrap();
    assert!(matches!(read(&path), Err(IndexError::Damaged { offset: 0, .. })));
    std::fs::write(&path, file_header(Kind::Documents, VERSION + 1, 1)).unwrap();
    let error = read(&path).err().unwrap().to_string();
    assert!(error.contains("documents.log") && error.contains("format 2"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0..400u64) {
        let (_directory, path) = scratch();
        three(&path);
        let mut file = std::fs::read(&path).unwrap();
        file.truncate(cut.max(FILE_HEADER) as usize);
        file.extend(bytes);
        std::fs::write(&path, file).unwrap();
        let _ = read(&path);
    }
}

/// A server that is stopped before it has read everything must not call what is torn safe.
#[test]
fn what_has_not_been_read_is_not_said_to_be_on_the_disk() {
    let (_directory, path) = scratch();
    let ends = three(&path);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..ends[2] as usize - 1]).unwrap();
    let (mut log, _) = Log::open(&path, Kind::Documents).unwrap();
    assert!(!log.is_dirty());
    log.handle_synced(log.known_end()).unwrap();
    drop(log);
    let (all, at, torn) = read(&path).unwrap();
    assert_eq!((all.len(), at, torn), (2, ends[1], ends[2] - 1 - ends[1]));
}
