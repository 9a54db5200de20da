//! Redis with a frontier in Lua: a list per host, a list of hosts that may be served, a sorted set of hosts that wait
//! for their clock, and one of hosts in flight with the time they are given up.

use super::queue::{Dialect, Item};
use super::resp::{Reply, put_command, put_word, take_reply};
use super::{Peer, free_port};
use crate::bench::pin::Pinning;
use crate::bench::workload::{Names, address, host_at, put_url};
use anyhow::{Context, bail};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// URLs in one call of a script.
pub(in crate::bench) const BATCH: usize = 100;
/// How long a URL may be in flight, in milliseconds.
const LEASE_MS: u64 = 600_000;

/// `host url host url …`
const ADD: &str = "
for i = 1, #ARGV, 2 do
  local host = ARGV[i]
  local length = redis.call('RPUSH', 'urls:' .. host, ARGV[i + 1])
  if length == 1 and not redis.call('ZSCORE', 'flying', host) and not redis.call('ZSCORE', 'resting', host) then
    redis.call('RPUSH', 'ready', host)
  end
end
return 0";

/// `given_up_at n`
const TAKE: &str = "
local hosts = redis.call('LPOP', 'ready', ARGV[2])
if not hosts then return 0 end
local found, flying = {}, {}
for i, host in ipairs(hosts) do
  found[2 * i - 1], found[2 * i] = host, redis.call('LPOP', 'urls:' .. host)
  flying[2 * i - 1], flying[2 * i] = ARGV[1], host
end
redis.call('ZADD', 'flying', unpack(flying))
return found";

/// `now gap host…`
const RELEASE: &str = "
local at_once = ARGV[2] == '0'
for i = 3, #ARGV do
  local host = ARGV[i]
  if redis.call('ZREM', 'flying', host) == 1 and redis.call('EXISTS', 'urls:' .. host) == 1 then
    if at_once then
      redis.call('RPUSH', 'ready', host)
    else
      redis.call('ZADD', 'resting', ARGV[1] + ARGV[2], host)
    end
  end
end
return 0";

/// `now`
const TICK: &str = "
local rested = redis.call('ZRANGEBYSCORE', 'resting', '-inf', ARGV[1], 'LIMIT', 0, 1000)
if #rested > 0 then
  redis.call('ZREM', 'resting', unpack(rested))
  redis.call('RPUSH', 'ready', unpack(rested))
end
local lost = redis.call('ZRANGEBYSCORE', 'flying', '-inf', ARGV[1], 'LIMIT', 0, 1000)
for _, host in ipairs(lost) do
  redis.call('ZREM', 'flying', host)
  if redis.call('EXISTS', 'urls:' .. host) == 1 then redis.call('RPUSH', 'ready', host) end
end
return 0";

/// A server without persistence.
pub(in crate::bench) fn start(bin: &Path, pinning: &Pinning, scratch: &Path) -> anyhow::Result<Peer> {
    let port = free_port()?;
    let mut command = Command::new(bin.join("redis-server"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no"]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(scratch);
    Peer::start(&mut command, port, pinning, scratch)
}

/// The scripts, by the names that the server gave them.
#[derive(Default, Debug)]
pub(in crate::bench) struct Redis {
    add: Vec<u8>,
    take: Vec<u8>,
    release: Vec<u8>,
    tick: Vec<u8>,
}

impl Redis {
    fn call(&self, out: &mut Vec<u8>, script: &[u8], arguments: usize) {
        put_command(out, 3 + arguments);
        put_word(out, b"EVALSHA");
        put_word(out, script);
        put_word(out, b"0");
    }
}

fn load_script(stream: &mut TcpStream, script: &str) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    put_command(&mut out, 3);
    for word in ["SCRIPT", "LOAD", script] {
        put_word(&mut out, word.as_bytes());
    }
    stream.write_all(&out)?;
    let mut bytes = Vec::new();
    loop {
        match take_reply(&bytes) {
            Some((Reply::Text(Some(name)), _)) => return Ok(name.to_vec()),
            Some((reply, _)) => bail!("the script was refused: {reply:?}"),
            None => {}
        }
        let mut part = [0; 256];
        match stream.read(&mut part)? {
            0 => bail!("the server closed the connection"),
            read => bytes.extend_from_slice(&part[..read]),
        }
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    put_word(out, itoa::Buffer::new().format(number).as_bytes());
}

fn put_host(out: &mut Vec<u8>, host: u32) {
    put_word(out, address(host).to_string().as_bytes());
}

impl Dialect for Redis {
    const TAKES: usize = 4;

    fn greet(&mut self, stream: &mut TcpStream) -> anyhow::Result<()> {
        self.add = load_script(stream, ADD)?;
        self.take = load_script(stream, TAKE)?;
        self.release = load_script(stream, RELEASE)?;
        self.tick = load_script(stream, TICK)?;
        Ok(())
    }

    fn put(&self, out: &mut Vec<u8>, urls: &[(u32, u32)]) -> usize {
        for batch in urls.chunks(BATCH) {
            self.call(out, &self.add, 2 * batch.len());
            for &(number, host) in batch {
                put_host(out, host);
                let mut text = itoa::Buffer::new().format(number).as_bytes().to_vec();
                text.push(b' ');
                put_url(&mut text, Names::Sites, host, number);
                put_word(out, &text);
            }
        }
        urls.len().div_ceil(BATCH)
    }

    fn take(&self, out: &mut Vec<u8>) {
        self.call(out, &self.take, 2);
        put_number(out, now_ms() + LEASE_MS);
        put_number(out, BATCH as u64);
    }

    fn release(&self, out: &mut Vec<u8>, items: &[Item]) -> usize {
        for batch in items.chunks(BATCH) {
            self.call(out, &self.release, 2 + batch.len());
            put_number(out, now_ms());
            put_number(out, 0);
            batch.iter().for_each(|item| put_host(out, item.host));
        }
        items.len().div_ceil(BATCH)
    }

    fn tick(&self, out: &mut Vec<u8>) -> usize {
        self.call(out, &self.tick, 1);
        put_number(out, now_ms());
        1
    }

    fn reply(&self, bytes: &[u8], items: &mut Vec<Item>) -> anyhow::Result<Option<usize>> {
        let Some((reply, mut length)) = take_reply(bytes) else { return Ok(None) };
        let texts = match reply {
            Reply::Number(_) => return Ok(Some(length)),
            Reply::List(texts) => texts,
            _ => bail!("the server says {reply:?}"),
        };
        let before = items.len();
        for _ in 0..texts / 2 {
            let Some((host, url, used)) = take_pair(&bytes[length..]) else {
                items.truncate(before);
                return Ok(None);
            };
            items.push(item(host, url).context("not what was put in")?);
            length += used;
        }
        Ok(Some(length))
    }
}

/// Two texts, and the bytes they took.
fn take_pair(bytes: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    let (first, used) = take_reply(bytes)?;
    let (second, more) = take_reply(&bytes[used..])?;
    let text = |reply| if let Reply::Text(Some(text)) = reply { text } else { b"".as_slice() };
    Some((text(first), text(second), used + more))
}

fn item(host: &[u8], url: &[u8]) -> Option<Item> {
    let address: Ipv4Addr = std::str::from_utf8(host).ok()?.parse().ok()?;
    let number = url.split(|&b| b == b' ').next()?;
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some(Item { number, host: host_at(address)?, job: 0 })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_hosts_and_urls_is_read_when_it_is_whole() {
        let text =
            b"*4\r\n$9\r\n127.1.0.0\r\n$10\r\n7 http://a\r\n$9\r\n127.1.0.5\r\n$10\r\n9 http://b\r\n:0\r\n";
        let redis = Redis::default();
        let whole = text.len() - 4;
        for end in 0..whole {
            let mut items = Vec::new();
            assert_eq!(redis.reply(&text[..end], &mut items).unwrap(), None, "{end}");
            assert!(items.is_empty());
        }
        let mut items = Vec::new();
        assert_eq!(redis.reply(text, &mut items).unwrap(), Some(whole));
        let want = [Item { number: 7, host: 0, job: 0 }, Item { number: 9, host: 5, job: 0 }];
        assert_eq!(items, want);
        assert!(redis.reply(b"-ERR unknown command\r\n", &mut items).is_err());
        assert!(redis.reply(b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n", &mut items).is_err());
    }
}
