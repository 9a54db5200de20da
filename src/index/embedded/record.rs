//! Documents as bytes: what stands in the frames of the documents' log.
//!
//! A record is a tag, the host (its number, or its name if this is the first document of it), the document's name,
//! and the URL without its host. Or it is the fingerprint of a document that has ended, all that is left after
//! compaction. Documents and hosts are numbered in the order of the file.

use super::prints::Print;
use crate::url::Scheme;

/// Bits of a document's tag; the lowest two are the scheme.
const SCHEME: u8 = 0b11;
const NEW_HOST: u8 = 1 << 2;
const NOT_BEFORE: u8 = 1 << 3;
const DOCUMENT_BITS: u8 = SCHEME | NEW_HOST | NOT_BEFORE;
/// The tag of a fingerprint.
const FINISHED: u8 = 0x40;
/// Longer than any record: the longest URL, the longest name, and numbers.
pub(super) const RECORD_MAX: usize = crate::url::URL_MAX + 512;

/// A record, as it stands in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record<'a> {
    Document(Document<'a>),
    /// Has ended, and its URL is forgotten.
    Finished {
        print: Print,
        doc: u64,
    },
}

/// A document with its URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Document<'a> {
    pub(super) host: HostOf<'a>,
    pub(super) doc: u64,
    /// Seconds since 1970.
    pub(super) not_before: Option<u64>,
    pub(super) scheme: Scheme,
    pub(super) rest: &'a [u8],
}

/// Whose document it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HostOf<'a> {
    /// The next host, and its name.
    New(&'a [u8]),
    /// This one.
    Known(u32),
}

impl Document<'_> {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let new = if matches!(self.host, HostOf::New(_)) { NEW_HOST } else { 0 };
        let timed = if self.not_before.is_some() { NOT_BEFORE } else { 0 };
        out.push(self.scheme as u8 | new | timed);
        match self.host {
            HostOf::New(name) => put_bytes(out, name),
            HostOf::Known(number) => put_varint(out, number.into()),
        }
        put_varint(out, self.doc);
        if let Some(seconds) = self.not_before {
            put_varint(out, seconds);
        }
        put_bytes(out, self.rest);
    }
}

/// A document that has ended, without its URL.
pub(super) fn put_finished(out: &mut Vec<u8>, print: Print, doc: u64) {
    out.push(FINISHED);
    out.extend_from_slice(&print.shard.to_le_bytes());
    out.extend_from_slice(&print.bits.to_le_bytes());
    put_varint(out, doc);
}

impl Record<'_> {
    /// The first record of `bytes` and its length; `None` if it is cut short or makes no sense.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
        let mut input = Input { bytes };
        let tag = input.take(1)?[0];
        let record = if tag & !DOCUMENT_BITS == 0 {
            let host = if tag & NEW_HOST != 0 {
                HostOf::New(input.bytes()?)
            } else {
                HostOf::Known(u32::try_from(input.varint()?).ok()?)
            };
            let doc = input.varint()?;
            let not_before = if tag & NOT_BEFORE != 0 { Some(input.varint()?) } else { None };
            let scheme = Scheme::from_number(tag & SCHEME)?;
            Record::Document(Document { host, doc, not_before, scheme, rest: input.bytes()? })
        } else if tag == FINISHED {
            let shard = u16::from_le_bytes(input.take(2)?.try_into().ok()?);
            let bits = u64::from_le_bytes(input.take(8)?.try_into().ok()?);
            Record::Finished { print: Print { shard, bits }, doc: input.varint()? }
        } else {
            return None;
        };
        Some((record, bytes.len() - input.bytes.len()))
    }
}

struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?;
        self.take(usize::try_from(len).ok()?)
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_parsed_and_a_part_of_it_is_nothing(
            name in prop::option::of("[a-z.]{1,60}"),
            number in any::<u32>(),
            doc in any::<u64>(),
            not_before in prop::option::of(any::<u64>()),
            scheme in 0..3u8,
            rest in "[!-~]{0,300}",
        ) {
            let document = Document {
                host: name.as_deref().map_or(HostOf::Known(number), |name| HostOf::New(name.as_bytes())),
                doc,
                not_before,
                scheme: Scheme::from_number(scheme).expect("a scheme"),
                rest: rest.as_bytes(),
            };
            let mut bytes = Vec::new();
            document.put(&mut bytes);
            let len = bytes.len();
            prop_assert!(len < RECORD_MAX);
            bytes.extend(b"more");
            prop_assert_eq!(Record::parse(&bytes), Some((Record::Document(document), len)));
            for cut in 0..len {
                prop_assert_eq!(Record::parse(&bytes[..cut]), None, "{}", cut);
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some((_, len)) = Record::parse(&bytes) {
                prop_assert!((1..=bytes.len()).contains(&len));
            }
        }
    }

    #[test]
    fn fingerprints_come_back() {
        let print = Print { shard: 4095, bits: u64::MAX - 1 };
        let mut bytes = Vec::new();
        put_finished(&mut bytes, print, 300);
        assert_eq!(Record::parse(&bytes), Some((Record::Finished { print, doc: 300 }, 13)));
        assert!((0..13).all(|cut| Record::parse(&bytes[..cut]).is_none()));
    }
}
