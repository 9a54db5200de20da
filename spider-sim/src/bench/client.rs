//! The client of every server that speaks our lines: reads what is there, answers DONE to each line in one
//! write, and does nothing else, so that the server is what is measured.

use super::meter::{Drained, Meter};
use super::workload::read_url;
use anyhow::{Context, bail};
use memchr::memchr_iter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Time without a line after which the server is taken to be stuck.
const STUCK: Duration = Duration::from_secs(60);
/// Most bytes read at once.
const READ_MAX: usize = 256 * 1024;

/// Most bytes of answers that wait for the server.
const ANSWERS_MAX: usize = 64 << 20;

/// What comes, as whole lines.
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// Bytes in the buffer that are a part of a line.
    rest: usize,
    took_all: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Lines { buffer: vec![0; READ_MAX], rest: 0, took_all: true }
    }
}

impl Lines {
    /// Reads once, and hands on every line that is whole, without its end. Returns how many bytes came.
    #[inline]
    pub(super) fn read(
        &mut self,
        input: &mut impl Read,
        mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<usize> {
        let read = input.read(&mut self.buffer[self.rest..])?;
        let filled = self.rest + read;
        self.took_all = filled < self.buffer.len();
        let mut start = 0;
        for end in memchr_iter(b'\n', &self.buffer[..filled]) {
            each(&self.buffer[start..end])?;
            start = end + 1;
        }
        self.buffer.copy_within(start..filled, 0);
        self.rest = filled - start;
        if self.rest == self.buffer.len() {
            bail!("a line without end");
        }
        Ok(read)
    }

    /// Whether the last read took all that was there.
    pub(super) fn took_all(&self) -> bool {
        self.took_all
    }
}

/// Adds the DONE for a line.
#[inline]
pub(super) fn answer(out: &mut Vec<u8>, line: &[u8]) -> anyhow::Result<()> {
    let digits = line.iter().position(|&b| b == b' ').unwrap_or(0);
    if !line.first().is_some_and(u8::is_ascii_digit) || digits == 0 {
        bail!("the server says {:?}", String::from_utf8_lossy(line));
    }
    out.extend_from_slice(&line[..digits]);
    out.extend_from_slice(b" DONE\n");
    Ok(())
}

/// A connection that is used by one side only to take and to answer.
pub(super) fn connect(listen: &str) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(listen).with_context(|| format!("cannot connect to {listen}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STUCK))?;
    Ok(stream)
}

/// Takes `urls` lines and acknowledges each.
pub(super) fn drain(
    stream: &mut TcpStream,
    urls: u64,
    cpu: impl Fn() -> Duration,
) -> anyhow::Result<Drained> {
    let mut meter = Meter::new(urls, cpu);
    take(stream, urls, |_| Ok(()), |taken| meter.reached(taken))?;
    meter.drained().context("nothing to measure")
}

/// Takes `urls` lines, not measured.
pub(super) fn take_all(stream: &mut TcpStream, urls: u64) -> anyhow::Result<()> {
    take(stream, urls, |_| Ok(()), |_| ())
}

/// `look` sees every line before its answer goes; `answered` is told the number of answers after every write.
fn take(
    stream: &mut TcpStream,
    urls: u64,
    mut look: impl FnMut(&[u8]) -> anyhow::Result<()>,
    mut answered: impl FnMut(u64),
) -> anyhow::Result<()> {
    let mut lines = Lines::default();
    let mut out = Answers::default();
    let mut taken = 0u64;
    while taken < urls {
        if out.is_read_next(stream).with_context(|| format!("after {taken} of {urls} URLs"))? {
            let each = |line: &[u8]| {
                taken += 1;
                look(line)?;
                answer(&mut out.bytes, line)
            };
            let read = lines.read(stream, each).with_context(|| format!("after {taken} of {urls} URLs"))?;
            if read == 0 {
                bail!("the server closed after {taken} of {urls} URLs");
            }
        }
        out.send(stream)?;
        answered(taken);
    }
    stream.write_all(&out.bytes[out.sent..])?;
    Ok(())
}

/// Answers on their way. They never wait for the server without listening to it: if both sides did, for ever.
struct Answers {
    bytes: Vec<u8>,
    sent: usize,
}

impl Default for Answers {
    fn default() -> Self {
        Answers { bytes: Vec::with_capacity(READ_MAX), sent: 0 }
    }
}

impl Answers {
    /// Whether to read now. While answers are left over: when there is something, and not too many are.
    fn is_read_next(&self, stream: &TcpStream) -> anyhow::Result<bool> {
        let left = self.bytes.len() - self.sent;
        if left == 0 {
            return Ok(true);
        }
        let input = if left < ANSWERS_MAX { PollFlags::IN } else { PollFlags::empty() };
        let mut sockets = [PollFd::new(stream, input | PollFlags::OUT)];
        let time = Timespec::try_from(STUCK).ok();
        match poll(&mut sockets, time.as_ref()) {
            Ok(0) => bail!("the server neither sends nor listens"),
            Ok(_) => Ok(sockets[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// As much as the socket takes, in one write.
    #[inline]
    fn send(&mut self, stream: &TcpStream) -> anyhow::Result<()> {
        if self.sent < self.bytes.len() {
            match send(stream, &self.bytes[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
        Ok(())
    }
}

/// What a check of a whole drain found.
#[derive(Clone, Copy, PartialEq, Eq, Default, serde::Serialize, Debug)]
pub(super) struct Verified {
    /// Different URLs that came.
    pub(super) urls: u64,
    /// URLs that came once more.
    pub(super) twice: u64,
    /// URLs that came while one of their host was in flight.
    pub(super) clashes: u64,
}

/// Watches which URLs come, and whose are in flight.
pub(super) struct Watch {
    seen: Vec<bool>,
    in_flight: Vec<u8>,
    found: Verified,
}

impl Watch {
    /// For numbers below `urls` and hosts below `hosts`.
    pub(super) fn new(urls: u64, hosts: u32) -> Watch {
        let (seen, in_flight) = (vec![false; urls as usize], vec![0; hosts as usize]);
        Watch { seen, in_flight, found: Verified::default() }
    }

    /// A URL came.
    #[inline]
    pub(super) fn came(&mut self, host: u32, number: u32) -> anyhow::Result<()> {
        let seen = self.seen.get_mut(number as usize).context("a URL that nobody put in")?;
        let flying = self.in_flight.get_mut(host as usize).context("a host that nobody put in")?;
        self.found.urls += u64::from(!*seen);
        self.found.twice += u64::from(*seen);
        self.found.clashes += u64::from(*flying > 0);
        *seen = true;
        *flying = flying.saturating_add(1);
        Ok(())
    }

    /// Its acknowledgement goes.
    #[inline]
    pub(super) fn goes(&mut self, host: u32) {
        if let Some(flying) = self.in_flight.get_mut(host as usize) {
            *flying = flying.saturating_sub(1);
        }
    }

    /// What was found.
    pub(super) fn found(&self) -> Verified {
        self.found
    }
}

/// Drains like [`drain`], and looks at every line. The answers to what one read has brought go together: until
/// then all of it is in flight.
pub(super) fn verify(stream: &mut TcpStream, urls: u64, hosts: u32) -> anyhow::Result<Verified> {
    let watch = std::cell::RefCell::new((Watch::new(urls, hosts), Vec::new()));
    let look = |line: &[u8]| {
        let url = line.rsplit(|&b| b == b' ').next().unwrap_or_default();
        let (host, number) = read_url(url).context("a URL that nobody put in")?;
        let (watch, held) = &mut *watch.borrow_mut();
        held.push(host);
        watch.came(host, number)
    };
    let answered = |_| {
        let (watch, held) = &mut *watch.borrow_mut();
        held.drain(..).for_each(|host| watch.goes(host));
    };
    take(stream, urls, look, answered)?;
    Ok(watch.into_inner().0.found())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    /// Gives so many bytes at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(out.len());
            (&mut self.0).take(n as u64).read(out)
        }
    }

    #[test]
    fn answers_do_not_care_where_reads_are_cut() {
        let text = b"12 1 127.0.0.1 http://a/\n345 2 127.0.0.1 http://b/\n6 3 127.0.0.1 http://c/\n";
        for size in 1..=text.len() {
            let (mut lines, mut said, mut pieces) = (Lines::default(), Vec::new(), Pieces(text, size));
            while lines.read(&mut pieces, |line| answer(&mut said, line)).unwrap() > 0 {}
            assert_eq!(said, b"12 DONE\n345 DONE\n6 DONE\n", "{size}");
        }
    }

    #[test]
    fn an_error_is_not_acknowledged() {
        assert!(answer(&mut Vec::new(), b"ERROR unknown command").is_err());
        assert!(answer(&mut Vec::new(), b"").is_err());
    }

    /// Sends `lines`, each after the DONE of the one before it.
    fn one_by_one(lines: Vec<String>) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut dones = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines {
                stream.write_all(line.as_bytes()).unwrap();
                dones.next();
            }
        });
        connect(&addr.to_string()).unwrap()
    }

    fn line(number: u32, host: u32) -> String {
        format!("{number} {number} 127.0.0.1 http://www.site{host:07}.example.com/part01/page-{number:07}\n")
    }

    #[test]
    fn a_drain_takes_all() {
        let mut stream = one_by_one((0..1000).map(|n| line(n, 1)).collect());
        let drained = drain(&mut stream, 1000, || Duration::ZERO).unwrap();
        assert!(drained.per_sec > 0.0);
        let mut short = one_by_one(vec![line(0, 1)]);
        assert!(drain(&mut short, 2, || Duration::ZERO).is_err());
    }

    #[test]
    fn a_server_that_reads_nothing_before_it_has_sent_all_is_no_trouble() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines: String = (0..1_000_000).map(|n| format!("{n} 1 ::1 http://a/\n")).collect();
            stream.write_all(lines.as_bytes()).unwrap();
            BufReader::new(stream).lines().map(Result::unwrap).filter(|line| line.ends_with(" DONE")).count()
        });
        let mut stream = connect(&addr.to_string()).unwrap();
        take_all(&mut stream, 1_000_000).unwrap();
        drop(stream);
        assert_eq!(server.join().unwrap(), 1_000_000);
    }

    #[test]
    fn a_check_finds_repetitions_and_clashes() {
        let mut clean = one_by_one((0..10).map(|n| line(n, 1)).collect());
        assert_eq!(verify(&mut clean, 10, 2).unwrap(), Verified { urls: 10, twice: 0, clashes: 0 });
        let mut dirty = one_by_one(vec![line(0, 1), line(0, 1), format!("{}{}", line(1, 1), line(2, 1))]);
        assert_eq!(verify(&mut dirty, 4, 2).unwrap(), Verified { urls: 3, twice: 1, clashes: 1 });
    }
}
