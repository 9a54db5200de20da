//! beanstalkd: reserve and delete, in a pipeline. It knows no hosts, so it does less work than the others.

use super::queue::{Dialect, Item};
use super::{Peer, free_port};
use crate::bench::pin::Pinning;
use crate::bench::workload::{Names, address, put_url, read_url};
use anyhow::{Context, bail};
use memchr::memmem::find;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// A server without a log on disk.
pub(in crate::bench) fn start(bin: &Path, pinning: &Pinning, scratch: &Path) -> anyhow::Result<Peer> {
    let port = free_port()?;
    let mut command = Command::new(bin.join("beanstalkd"));
    command.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
    Peer::start(&mut command, port, pinning, scratch)
}

/// Its protocol.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Beanstalkd;

impl Dialect for Beanstalkd {
    const TAKES: usize = 256;

    fn put(&self, out: &mut Vec<u8>, urls: &[(u32, u32)]) -> usize {
        let mut body = Vec::new();
        for &(number, host) in urls {
            body.clear();
            // Nothing can go wrong when writing to a vector.
            let _ = write!(body, "{number} {} ", address(host));
            put_url(&mut body, Names::Sites, host, number);
            let _ = write!(out, "put 0 0 600 {}\r\n", body.len());
            out.extend_from_slice(&body);
            out.extend_from_slice(b"\r\n");
        }
        urls.len()
    }

    fn take(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"reserve-with-timeout 0\r\n");
    }

    fn release(&self, out: &mut Vec<u8>, items: &[Item]) -> usize {
        for item in items {
            out.extend_from_slice(b"delete ");
            out.extend_from_slice(itoa::Buffer::new().format(item.job).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        items.len()
    }

    fn reply(&self, bytes: &[u8], items: &mut Vec<Item>) -> anyhow::Result<Option<usize>> {
        let Some(end) = find(bytes, b"\r\n") else { return Ok(None) };
        let line = std::str::from_utf8(&bytes[..end]).context("not text")?;
        let mut words = line.split(' ');
        let next = end + 2;
        match words.next() {
            Some("INSERTED" | "DELETED" | "TIMED_OUT" | "DEADLINE_SOON") => Ok(Some(next)),
            Some("RESERVED") => {
                let mut number = || words.next()?.parse::<u64>().ok();
                let (job, length) = number().zip(number()).with_context(|| format!("bad line {line:?}"))?;
                let whole = next + length as usize + 2;
                if bytes.len() < whole {
                    return Ok(None);
                }
                let url = bytes[next..whole - 2].rsplit(|&b| b == b' ').next().unwrap_or_default();
                let (host, number) = read_url(url).context("not what was put in")?;
                items.push(Item { number, host, job });
                Ok(Some(whole))
            }
            _ => bail!("the server says {line:?}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_comes_out() {
        let mut out = Vec::new();
        assert_eq!(Beanstalkd.put(&mut out, &[(5, 3)]), 1);
        let (head, body) = out.split_at(find(&out, b"\r\n").unwrap());
        let length = String::from_utf8_lossy(head).rsplit(' ').next().unwrap().to_owned();
        let reply = [format!("RESERVED 17 {length}").as_bytes(), body, b"DELETED\r\n"].concat();
        let whole = reply.len() - 9;
        let mut items = Vec::new();
        for end in 0..whole {
            assert_eq!(Beanstalkd.reply(&reply[..end], &mut items).unwrap(), None);
        }
        assert_eq!(Beanstalkd.reply(&reply, &mut items).unwrap(), Some(whole));
        assert_eq!(items, [Item { number: 5, host: 3, job: 17 }]);
        assert_eq!(Beanstalkd.reply(&reply[whole..], &mut items).unwrap(), Some(9));
        assert!(Beanstalkd.reply(b"OUT_OF_MEMORY\r\n", &mut items).is_err());
    }
}
