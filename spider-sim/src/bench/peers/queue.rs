//! The work for a queue server: put everything in, then take and acknowledge in a pipeline that never runs dry.

use crate::bench::client::{Verified, Watch};
use crate::bench::meter::{Drained, Meter};
use crate::bench::workload::Workload;
use anyhow::{Context, bail};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// Time without an answer after which the server is taken to be stuck.
const STUCK: Duration = Duration::from_secs(60);
/// URLs put in with one write.
const LOAD: usize = 500;
/// Rounds of requests under way at a time.
const ROUNDS: usize = 3;

/// A URL that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::bench) struct Item {
    /// Its place in the work.
    pub(in crate::bench) number: u32,
    /// Its host.
    pub(in crate::bench) host: u32,
    /// What the server calls it.
    pub(in crate::bench) job: u64,
}

/// How a server is spoken to: requests into bytes, bytes into replies, without a socket.
pub(in crate::bench) trait Dialect {
    /// Requests for URLs in one round.
    const TAKES: usize;

    /// What must be said first, by somebody who waits for the answers.
    fn greet(&mut self, _: &mut TcpStream) -> anyhow::Result<()> {
        Ok(())
    }

    /// Puts URLs in, each a number and a host. Returns how many replies there will be.
    fn put(&self, out: &mut Vec<u8>, urls: &[(u32, u32)]) -> usize;

    /// Asks for URLs. There will be one reply.
    fn take(&self, out: &mut Vec<u8>);

    /// Acknowledges. Returns how many replies there will be.
    fn release(&self, out: &mut Vec<u8>, items: &[Item]) -> usize;

    /// What must be said once in a round. Returns how many replies there will be.
    fn tick(&self, _: &mut Vec<u8>) -> usize {
        0
    }

    /// The bytes of one whole reply at the front, if there is one; what was taken goes to `items`.
    fn reply(&self, bytes: &[u8], items: &mut Vec<Item>) -> anyhow::Result<Option<usize>>;
}

/// A connection to a server.
pub(in crate::bench) struct Connection<D> {
    stream: TcpStream,
    dialect: D,
    input: Vec<u8>,
    start: usize,
    end: usize,
}

/// Requests that went with one write, and the replies they bring.
struct Round {
    acknowledged: usize,
    replies: usize,
}

impl<D: Dialect> Connection<D> {
    /// Connects on loopback.
    pub(in crate::bench) fn open(port: u16, mut dialect: D) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STUCK))?;
        dialect.greet(&mut stream)?;
        Ok(Connection { stream, dialect, input: vec![0; 1 << 20], start: 0, end: 0 })
    }

    /// Puts everything in.
    pub(in crate::bench) fn load(&mut self, workload: &Workload) -> anyhow::Result<()> {
        let mut pending = VecDeque::new();
        let (mut out, mut urls) = (Vec::new(), Vec::new());
        let mut each = workload.each();
        loop {
            urls.clear();
            urls.extend(each.by_ref().take(LOAD));
            if urls.is_empty() || pending.len() == ROUNDS {
                let Some(replies) = pending.pop_front() else { return Ok(()) };
                self.replies(replies, &mut Vec::new())?;
            }
            if !urls.is_empty() {
                out.clear();
                pending.push_back(self.dialect.put(&mut out, &urls));
                self.stream.write_all(&out)?;
            }
        }
    }

    /// Takes and acknowledges everything. Every URL is looked at.
    pub(in crate::bench) fn drain(
        &mut self,
        workload: &Workload,
        cpu: impl Fn() -> Duration,
    ) -> anyhow::Result<(Drained, Verified)> {
        let total = workload.urls();
        let mut meter = Meter::new(total, cpu);
        let mut watch = Watch::new(total, workload.hosts());
        let mut rounds = VecDeque::new();
        let mut items = Vec::new();
        let (mut out, mut done) = (Vec::new(), 0);
        let mut last_new = Instant::now();
        for _ in 0..ROUNDS {
            rounds.push_back(self.send_round(&mut out, &[])?);
        }
        while let Some(round) = rounds.pop_front() {
            items.clear();
            self.replies(round.replies, &mut items)?;
            done += round.acknowledged as u64;
            meter.reached(done);
            items.iter().try_for_each(|item| watch.came(item.host, item.number))?;
            if !items.is_empty() {
                last_new = Instant::now();
            } else if last_new.elapsed() > STUCK {
                bail!("nothing comes any more after {done} of {total} URLs");
            }
            if done < total {
                items.iter().for_each(|item| watch.goes(item.host));
                rounds.push_back(self.send_round(&mut out, &items)?);
            }
        }
        Ok((meter.drained().context("nothing to measure")?, watch.found()))
    }

    fn send_round(&mut self, out: &mut Vec<u8>, acknowledge: &[Item]) -> anyhow::Result<Round> {
        out.clear();
        let replies = self.dialect.tick(out) + self.dialect.release(out, acknowledge) + D::TAKES;
        for _ in 0..D::TAKES {
            self.dialect.take(out);
        }
        self.stream.write_all(out)?;
        Ok(Round { acknowledged: acknowledge.len(), replies })
    }

    /// Waits for so many replies.
    fn replies(&mut self, mut wanted: usize, items: &mut Vec<Item>) -> anyhow::Result<()> {
        while wanted > 0 {
            match self.dialect.reply(&self.input[self.start..self.end], items)? {
                Some(length) => {
                    self.start += length;
                    wanted -= 1;
                }
                None => self.fill()?,
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.input.len() {
            bail!("a reply without end");
        }
        match self.stream.read(&mut self.input[self.end..])? {
            0 => bail!("the server closed the connection"),
            read => self.end += read,
        }
        Ok(())
    }
}
