//! What a spider is told: one send into one line, straight into the connection's buffer.

use crate::ids::{DocId, TransId};
use crate::url::{Scheme, TailBytes};
use bytes::{BufMut, BytesMut};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;

/// Appends `TRANS_ID SP DOC_ID SP HOST_IP SP URL LF`. Allocates only if the buffer must grow.
pub fn encode(out: &mut BytesMut, trans: TransId, doc: DocId, ip: IpAddr, host: &str, tail: TailBytes<'_>) {
    let host = if tail.scheme == Scheme::Whole { "" } else { host };
    // All that is short is put together first: many small appends cost more than one.
    let mut start = Start { bytes: [0; START_MAX], len: 0 };
    start.number(trans.0);
    start.push(b' ');
    start.number(doc.0);
    start.push(b' ');
    start.ip(ip);
    start.push(b' ');
    start.scheme(tail.scheme);
    let start = &start.bytes[..start.len];
    out.reserve(start.len() + host.len() + tail.rest.len() + 1);
    out.put_slice(start);
    out.put_slice(host.as_bytes());
    out.put_slice(tail.rest);
    out.put_u8(b'\n');
}

/// Room for two numbers, the longest address, three spaces and the longest scheme.
const START_MAX: usize = 2 * 20 + 45 + 3 + "https://".len();

/// Every octet with a dot behind it, and how long that is. Copies of a known length are next to nothing.
static OCTETS: [([u8; 4], u8); 256] = octets();

const fn octets() -> [([u8; 4], u8); 256] {
    let mut all = [([b'.'; 4], 0); 256];
    let mut octet = 0;
    while octet < all.len() {
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let skipped = if octet >= 100 {
            0
        } else if octet >= 10 {
            1
        } else {
            2
        };
        let mut at = skipped;
        while at < digits.len() {
            all[octet].0[at - skipped] = b'0' + digits[at] as u8;
            at += 1;
        }
        all[octet].1 = (digits.len() - skipped + 1) as u8;
        octet += 1;
    }
    all
}

/// The beginning of a line.
struct Start {
    bytes: [u8; START_MAX],
    len: usize,
}

impl Start {
    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn append(&mut self, text: &[u8]) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn number(&mut self, number: u64) {
        self.append(itoa::Buffer::new().format(number).as_bytes());
    }

    fn scheme(&mut self, scheme: Scheme) {
        let (text, len) = match scheme {
            Scheme::Http => (b"http://\0", 7),
            Scheme::Https => (b"https://", 8),
            Scheme::Whole => (&[0; 8], 0),
        };
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += len;
    }

    fn ip(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => {
                for octet in ip.octets() {
                    let (text, len) = OCTETS[usize::from(octet)];
                    self.bytes[self.len..self.len + text.len()].copy_from_slice(&text);
                    self.len += usize::from(len);
                }
                // The last dot.
                self.len -= 1;
            }
            IpAddr::V6(ip) => {
                let mut left = &mut self.bytes[self.len..];
                let room = left.len();
                // There is room for the longest one.
                let _ = write!(left, "{ip}");
                self.len += room - left.len();
            }
        }
    }
}

/// Appends `ERROR SP reason LF`.
pub fn encode_error(out: &mut BytesMut, error: super::CommandError) {
    // Writing to memory cannot fail.
    let _ = writeln!(out, "ERROR {error}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::Url;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn line(trans: u64, doc: u64, ip: IpAddr, url: &str) -> String {
        let url = Url::parse(url).expect(url);
        let mut out = BytesMut::new();
        encode(&mut out, TransId(trans), DocId(doc), ip, url.host(), url.tail().bytes());
        String::from_utf8(out.to_vec()).expect("ASCII")
    }

    #[test]
    fn lines_as_in_the_protocol() {
        let v4 = Ipv4Addr::new(192, 0, 2, 7).into();
        assert_eq!(line(5, 42, v4, "http://a.example/b"), "5 42 192.0.2.7 http://a.example/b\n");
        let v6 = "2001:db8::7".parse().expect("an address");
        let url = "https://u@a.example./b?c";
        assert_eq!(line(u64::MAX, 0, v6, url), format!("18446744073709551615 0 2001:db8::7 {url}\n"));
    }

    #[test]
    fn the_longest_of_everything_has_room() {
        let mapped = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".len();
        let ip: IpAddr = "1111:2222:3333:4444:5555:6666:7777:8888".parse().expect("an address");
        assert!(ip.to_string().len() <= mapped);
        let url = "https://a.example/";
        assert_eq!(line(u64::MAX, u64::MAX, ip, url), format!("{0} {0} {ip} {url}\n", u64::MAX));
    }

    proptest! {
        #[test]
        fn same_as_fmt(trans: u64, doc: u64, ip: IpAddr) {
            let got = line(trans, doc, ip, "https://a.example/");
            prop_assert_eq!(&got, &format!("{trans} {doc} {ip} https://a.example/\n"));
        }
    }
}
