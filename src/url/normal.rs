//! Most URLs that come in are in normal form already. Those are told by a look at each byte, some ten times faster
//! than they are taken apart and put together again.
//!
//! What is taken for normal here must be what the `url` crate leaves as it is, with the host where it is found here.
//! The reverse need not hold: whatever is unusual (ports, users, numbers and punycode in names, dots in paths) is
//! left to the crate, which decides alone what it means.

use super::{HTTP, HTTPS};

/// Longest host name.
const HOST_MAX: usize = 253;

/// A byte that stands for itself in a path, in a query, in a name.
const PATH: u8 = 1;
const QUERY: u8 = 2;
const NAME: u8 = 4;

/// What each byte may be.
const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => PATH | QUERY | NAME,
            b'"' | b'#' | b'<' | b'>' => 0,
            // Where a path ends, and what is encoded or turned round in one.
            b'?' | b'`' | b'{' | b'}' | b'^' | b'|' | b'\\' => QUERY,
            // Has to be looked at in a path: dots may follow.
            b'/' => QUERY,
            // Encoded in the query of a URL for the web.
            b'\'' => PATH,
            _ => PATH | QUERY,
        };
        byte += 1;
    }
    classes
}

fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// The length of the host's name, right behind the scheme, if the URL is in normal form for sure.
pub(super) fn host_len(text: &[u8]) -> Option<u8> {
    let rest = text.strip_prefix(HTTP.as_bytes()).or_else(|| text.strip_prefix(HTTPS.as_bytes()))?;
    let len = name_len(rest)?;
    is_path(&rest[len..]).then_some(len as u8)
}

/// The length of a plain name: labels of lower case that are not empty, the last one no number, nothing that could be
/// punycode.
fn name_len(text: &[u8]) -> Option<usize> {
    let mut label = 0;
    for (at, &byte) in text.iter().enumerate() {
        if is(byte, NAME) {
            if byte == b'-' && text[..at].last() == Some(&b'-') {
                return None;
            }
        } else if label == at || at > HOST_MAX {
            return None;
        } else if byte == b'.' {
            label = at + 1;
        } else {
            return (byte == b'/' && text[label].is_ascii_lowercase()).then_some(at);
        }
    }
    None
}

/// A path, with or without a query, in which every byte stands for itself and no segment is one of dots.
fn is_path(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if is(byte, PATH) {
            continue;
        }
        match byte {
            b'/' => match text[at..] {
                [b'.', ..] | [b'%', b'2', b'e' | b'E', ..] => return false,
                _ => {}
            },
            b'?' => return text[at..].iter().all(|byte| is(*byte, QUERY)),
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::{Url, UrlError};
    use proptest::prelude::*;

    /// URLs in normal form, of all shapes that are told by their bytes.
    const NORMAL: &[&str] = &[
        "http://a/",
        "https://www.example.com/",
        "http://www.host-000123.example.com/section07/page-0000000042-abcdefgh",
        "https://a-b.c1.example/a/b//c/%C3%A5/x.y/z_.",
        "http://a.example/?",
        "https://a.example/p;a=1,2/(x)!$&'*+:@~_-?q=1&r=/../?x[]=y|z^`{}\\",
        "http://x.9a.example/%7e/%2f/%zz/%",
    ];

    /// The dull way alone.
    fn by_crate(text: &str) -> Result<Url, UrlError> {
        Url::parse_any(text)
    }

    /// Both ways say the same.
    #[track_caller]
    fn check(text: &str) {
        assert_eq!(Url::parse(text), by_crate(text), "{text:?}");
    }

    #[test]
    fn what_is_normal_is_told_without_help() {
        for text in NORMAL {
            assert!(host_len(text.as_bytes()).is_some(), "{text}");
            assert_eq!(by_crate(text).expect(text).as_str(), *text);
            check(text);
        }
    }

    /// Every byte of every normal URL replaced by every byte, put before it, and taken out.
    #[test]
    fn one_byte_off_is_read_the_same() {
        for text in NORMAL {
            for at in 0..=text.len() {
                for byte in 0..=255u8 {
                    let mut inserted = text.as_bytes().to_vec();
                    inserted.insert(at, byte);
                    let mut replaced = inserted.clone();
                    (at < text.len()).then(|| replaced.remove(at + 1));
                    for bytes in [inserted, replaced] {
                        // What is no text never gets here.
                        std::str::from_utf8(&bytes).into_iter().for_each(check);
                    }
                }
                let mut shorter = text.as_bytes().to_vec();
                (at < text.len()).then(|| shorter.remove(at));
                check(std::str::from_utf8(&shorter).expect("ASCII"));
            }
        }
    }

    /// Every pair of bytes at the places where pairs mean something.
    #[test]
    fn two_bytes_off_are_read_the_same() {
        for a in 0..128u8 {
            for b in 0..128u8 {
                let (a, b) = (char::from(a), char::from(b));
                for text in [
                    format!("http://{a}{b}.example/x"),
                    format!("http://a.{a}{b}/x"),
                    format!("http://a.example/{a}{b}/x"),
                    format!("http://a.example/x{a}{b}"),
                    format!("http://a.example/x/{a}{b}"),
                    format!("http://a.example/x?{a}{b}"),
                    format!("http://a.example{a}{b}"),
                ] {
                    check(&text);
                }
            }
        }
    }

    #[test]
    fn names_of_any_length_are_read_the_same() {
        for len in 1..300 {
            check(&format!("http://{}/x", "a".repeat(len)));
            check(&format!("http://{}.example/x", "a".repeat(len)));
            check(&format!("http://{}a/x", "a.".repeat(len / 2)));
        }
        for len in [crate::url::URL_MAX - 1, crate::url::URL_MAX, crate::url::URL_MAX + 1] {
            check(&format!("http://a/{}", "x".repeat(len - 9)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn what_is_nearly_a_url_is_read_the_same(
            scheme in "(http|https|HTTP|ftp)(://|:/|:|:///)",
            host in r"(xn--|XN--|0x|[a-z0-9_.%-]{0,6}|[A-Zå。İ]{0,2}|[0-9.]{1,12}){1,3}\.?(:[0-9]{0,6})?",
            path in r"(/|\.|\.\.|%2e|%2E|[ -~]|[a-z]{1,5}|å|\\|\t|\n|%C3%A5){0,20}",
        ) {
            let text = format!("{scheme}{host}{path}");
            prop_assert_eq!(Url::parse(&text), by_crate(&text), "{:?}", text);
        }

        #[test]
        fn what_is_nearly_normal_is_read_the_same(
            host in r"[a-z0-9-]{1,8}(\.[a-z0-9-]{1,8}){0,3}",
            path in r"(/|[ -~]|/\.|[a-z]{1,5}|%2e|%[0-9a-f]{2}){0,20}",
            query in r"(\?[ -~]{0,10})?",
        ) {
            let text = format!("https://{host}/{path}{query}");
            prop_assert_eq!(Url::parse(&text), by_crate(&text), "{:?}", text);
        }

        #[test]
        fn any_text_is_read_the_same(text in any::<String>()) {
            prop_assert_eq!(Url::parse(&text), by_crate(&text));
        }
    }
}
