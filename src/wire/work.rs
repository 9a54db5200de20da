//! What a spider is told: one send into one line, straight into the connection's buffer.

use crate::ids::{DocId, TransId};
use crate::url::Tail;
use bytes::{BufMut, BytesMut};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

/// Most bytes of a line beside its URL: two numbers, the longest address, three spaces, LF.
pub const OVERHEAD_MAX: usize = 2 * 20 + 45 + 4;

/// Appends `TRANS_ID SP DOC_ID SP HOST_IP SP URL LF`. Allocates only if the buffer must grow.
pub fn encode(out: &mut BytesMut, trans: TransId, doc: DocId, ip: IpAddr, host: &str, tail: Tail<'_>) {
    let url = tail.parts(host);
    out.reserve(OVERHEAD_MAX + url.iter().map(|part| part.len()).sum::<usize>());
    put_number(out, trans.0);
    out.put_u8(b' ');
    put_number(out, doc.0);
    out.put_u8(b' ');
    put_ip(out, ip);
    out.put_u8(b' ');
    for part in url {
        out.put_slice(part.as_bytes());
    }
    out.put_u8(b'\n');
}

/// Appends `ERROR SP reason LF`.
pub fn encode_error(out: &mut BytesMut, error: super::CommandError) {
    // Writing to memory cannot fail.
    let _ = writeln!(out, "ERROR {error}");
}

/// Appends decimal digits.
pub(crate) fn put_number(out: &mut BytesMut, number: u64) {
    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn put_ip(out: &mut BytesMut, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => put_ipv4(out, ip),
        // Writing to memory cannot fail.
        IpAddr::V6(ip) => drop(write!(out, "{ip}")),
    }
}

fn put_ipv4(out: &mut BytesMut, ip: Ipv4Addr) {
    let [first, rest @ ..] = ip.octets();
    put_number(out, first.into());
    for octet in rest {
        out.put_u8(b'.');
        put_number(out, octet.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::Url;
    use proptest::prelude::*;

    fn line(trans: u64, doc: u64, ip: IpAddr, url: &str) -> String {
        let url = Url::parse(url).expect(url);
        let mut out = BytesMut::new();
        encode(&mut out, TransId(trans), DocId(doc), ip, url.host(), url.tail());
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

    proptest! {
        #[test]
        fn same_as_fmt_and_within_what_was_reserved(trans: u64, doc: u64, ip: IpAddr) {
            let got = line(trans, doc, ip, "http://a.example/");
            prop_assert_eq!(&got, &format!("{trans} {doc} {ip} http://a.example/\n"));
            prop_assert!(got.len() <= OVERHEAD_MAX + "http://a.example/".len());
        }
    }
}
