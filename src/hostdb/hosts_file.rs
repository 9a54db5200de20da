//! Names with fixed addresses, from a file in the format of `/etc/hosts`.
//!
//! The file is re-read when it changes; one that vanishes leaves the last good contents in force.
//! Whoever looks names up calls [`HostsFile::refresh`] first: there is no watcher and no clock here.

use super::public::normalised;
use crate::time::{Duration, Instant};
use indexmap::IndexMap;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use thiserror::Error;
use tracing::{info, warn};

/// A changed file is noticed after at most this time, and the file system asked no more often.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Most bad lines remembered of one reading; the others are skipped without a word.
pub const BAD_LINES_MAX: usize = 100;

/// The names of one hosts file.
#[derive(Debug)]
pub struct HostsFile {
    path: PathBuf,
    stamp: Stamp,
    next_check: Instant,
    reachable: bool,
    contents: Contents,
}

/// The file could not be read at start.
#[derive(Debug, Error)]
#[error("cannot read hosts file {}: {source}", path.display())]
pub struct HostsFileError {
    path: PathBuf,
    source: io::Error,
}

impl HostsFile {
    /// Reads the file at `path`. Bad lines are skipped and logged; see [`HostsFile::bad_lines`].
    pub fn open(path: impl Into<PathBuf>) -> Result<HostsFile, HostsFileError> {
        let path = path.into();
        match read(&path) {
            Ok((stamp, contents)) => {
                warn_of_bad_lines(&path, &contents);
                Ok(HostsFile { path, stamp, next_check: Instant::ZERO, reachable: true, contents })
            }
            Err(source) => Err(HostsFileError { path, source }),
        }
    }

    /// Reads the file again if it is another one than last time. Cheap enough to be called before
    /// every look-up. True if the contents are new.
    pub fn refresh(&mut self, now: Instant) -> bool {
        if now < self.next_check {
            return false;
        }
        self.next_check = now + CHECK_EVERY;
        match self.read_if_changed() {
            Ok(changed) => {
                self.reachable = true;
                changed
            }
            Err(error) => {
                if self.reachable {
                    warn!(path = %self.path.display(), %error, "hosts file out of reach, its last contents stay in force");
                }
                self.reachable = false;
                false
            }
        }
    }

    fn read_if_changed(&mut self) -> io::Result<bool> {
        if Stamp::of(&std::fs::metadata(&self.path)?) == self.stamp {
            return Ok(false);
        }
        (self.stamp, self.contents) = read(&self.path)?;
        info!(path = %self.path.display(), names = self.contents.names.len(), "hosts file read again");
        warn_of_bad_lines(&self.path, &self.contents);
        Ok(true)
    }

    /// The addresses of `name` (lower case, no trailing dot) in the order of the file, each once.
    pub fn lookup(&self, name: &str) -> Option<&[IpAddr]> {
        self.contents.names.get(name).map(Vec::as_slice)
    }

    /// Lines of the last reading that made no sense, at most [`BAD_LINES_MAX`].
    pub fn bad_lines(&self) -> &[BadLine] {
        &self.contents.bad_lines
    }
}

fn warn_of_bad_lines(path: &Path, contents: &Contents) {
    for bad in &contents.bad_lines {
        warn!(path = %path.display(), "hosts file {bad}: skipped");
    }
}

/// The stamp is taken from the open file before its bytes are: a change while we read is seen at
/// the next check.
fn read(path: &Path) -> io::Result<(Stamp, Contents)> {
    let mut file = File::open(path)?;
    let stamp = Stamp::of(&file.metadata()?);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((stamp, Contents::parse(&String::from_utf8_lossy(&bytes))))
}

/// What tells one state of a file from another without reading it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp { modified: metadata.modified().ok(), length: metadata.len(), inode: inode(metadata) }
    }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

#[derive(Default, Debug)]
struct Contents {
    names: IndexMap<Box<str>, Vec<IpAddr>>,
    bad_lines: Vec<BadLine>,
}

/// A line that was skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub fault: LineFault,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

/// What can be wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LineFault {
    /// It does not begin with an address.
    #[error("`{0}` is not an IP address")]
    Address(String),
    /// An address, and nothing after it.
    #[error("no name after the address")]
    NoName,
    /// One of its names cannot be the host of a URL.
    #[error("`{0}` is not a host name")]
    Name(String),
}

impl Contents {
    fn parse(text: &str) -> Contents {
        let mut contents = Contents::default();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, line) in text.lines().enumerate() {
            let said = line.split('#').next().unwrap_or_default();
            match parse_line(said) {
                Ok(Some(line)) => contents.add(line),
                Ok(None) => {}
                Err(fault) => contents.complain(BadLine { line: index + 1, fault }),
            }
        }
        contents
    }

    fn add(&mut self, Line { address, names }: Line) {
        for name in names {
            let addresses = self.names.entry(name).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }

    fn complain(&mut self, bad: BadLine) {
        if self.bad_lines.len() < BAD_LINES_MAX {
            self.bad_lines.push(bad);
        }
    }
}

struct Line {
    address: IpAddr,
    names: Vec<Box<str>>,
}

fn parse_line(line: &str) -> Result<Option<Line>, LineFault> {
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    let address = parse_address(first)?;
    let names = words.map(parse_name).collect::<Result<Vec<_>, _>>()?;
    if names.is_empty() { Err(LineFault::NoName) } else { Ok(Some(Line { address, names })) }
}

/// A scope (`fe80::1%eth0`) means something on this machine only, and spiders may be elsewhere.
fn parse_address(word: &str) -> Result<IpAddr, LineFault> {
    let unscoped = word.split('%').next().unwrap_or(word);
    unscoped.parse().map(normalised).map_err(|_| LineFault::Address(word.into()))
}

/// Read like the host of a URL, so that both spell one name alike (case, punycode).
fn parse_name(word: &str) -> Result<Box<str>, LineFault> {
    match url::Host::parse(word) {
        Ok(url::Host::Domain(name)) => Ok(name.strip_suffix('.').unwrap_or(&name).into()),
        Ok(_) | Err(_) => Err(LineFault::Name(word.into())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn file_with(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn names_are_found_as_urls_spell_them() {
        let contents = Contents::parse(
            "\u{feff}# comment\r\n\
             192.0.2.1\tA.Example a.example. alias.example # and more\r\n\
             \r\n   \n\
             2001:db8::1 a.example\n\
             192.0.2.1 a.example\n\
             ::ffff:192.0.2.9 mapped.example\n\
             fe80::1%eth0 scoped.example\n\
             192.0.2.2 bücher.example",
        );
        assert_eq!(contents.bad_lines, []);
        assert_eq!(contents.names["a.example"], ips(&["192.0.2.1", "2001:db8::1"]));
        assert_eq!(contents.names["alias.example"], ips(&["192.0.2.1"]));
        assert_eq!(contents.names["mapped.example"], ips(&["192.0.2.9"]));
        assert_eq!(contents.names["scoped.example"], ips(&["fe80::1"]));
        assert_eq!(contents.names["xn--bcher-kva.example"], ips(&["192.0.2.2"]));
        let order: Vec<&str> = contents.names.keys().map(|name| &**name).collect();
        assert_eq!(order[..2], ["a.example", "alias.example"]);
    }

    #[test]
    fn bad_lines_are_named_and_skipped() {
        let contents = Contents::parse(
            "192.0.2.1 good.example\n300.0.0.1 bad.example\n192.0.2.2\n192.0.2.3 a..b|c good.example\n",
        );
        let said: Vec<String> = contents.bad_lines.iter().map(BadLine::to_string).collect();
        assert_eq!(
            said,
            [
                "line 2: `300.0.0.1` is not an IP address",
                "line 3: no name after the address",
                "line 4: `a..b|c` is not a host name"
            ]
        );
        assert_eq!(contents.names.len(), 1);
        assert_eq!(contents.names["good.example"], ips(&["192.0.2.1"]));
    }

    #[test]
    fn complaints_about_garbage_are_bounded() {
        let contents = Contents::parse(&"garbage\n".repeat(BAD_LINES_MAX + 1));
        assert_eq!(contents.bad_lines.len(), BAD_LINES_MAX);
    }

    #[test]
    fn a_change_is_seen_at_the_next_check_and_not_before() {
        let (_dir, path) = file_with("192.0.2.1 a.example\n");
        let mut hosts = HostsFile::open(&path).unwrap();
        let start = Instant::from_micros(1);
        assert!(!hosts.refresh(start));

        fs::write(&path, "192.0.2.22 a.example\n").unwrap();
        let almost = Instant::from_micros(1_000_000);
        assert!(!hosts.refresh(almost));
        assert_eq!(hosts.lookup("a.example").unwrap(), ips(&["192.0.2.1"]));
        assert!(hosts.refresh(start + CHECK_EVERY));
        assert_eq!(hosts.lookup("a.example").unwrap(), ips(&["192.0.2.22"]));
        assert_eq!(hosts.lookup("other.example"), None);
    }

    #[test]
    fn a_replacement_of_equal_length_and_age_is_seen() {
        let (dir, path) = file_with("192.0.2.1 a.example\n");
        let mut hosts = HostsFile::open(&path).unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();

        let other = dir.path().join("hosts.new");
        fs::write(&other, "192.0.2.2 a.example\n").unwrap();
        File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(hosts.refresh(Instant::ZERO));
        assert_eq!(hosts.lookup("a.example").unwrap(), ips(&["192.0.2.2"]));
    }

    #[test]
    fn a_file_that_vanishes_stays_in_force_until_it_is_back() {
        let (_dir, path) = file_with("192.0.2.1 a.example\n");
        let mut hosts = HostsFile::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        for second in 0..3 {
            assert!(!hosts.refresh(Instant::from_micros(second * 1_000_000)));
            assert!(!hosts.reachable);
            assert_eq!(hosts.lookup("a.example").unwrap(), ips(&["192.0.2.1"]));
        }
        fs::write(&path, "192.0.2.22 a.example\n").unwrap();
        assert!(hosts.refresh(Instant::from_micros(9_000_000)));
        assert!(hosts.reachable);
        assert_eq!(hosts.lookup("a.example").unwrap(), ips(&["192.0.2.22"]));
    }

    #[test]
    fn a_file_that_is_not_there_is_refused_by_name() {
        let (dir, _) = file_with("");
        let path = dir.path().join("absent");
        let error = HostsFile::open(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}
