//! Patterns of rules, and paths, in the one form in which they are compared (RFC 9309, 2.2.2 and 2.2.3).
//!
//! In that form every octet that a URL may hold unencoded in any place is plain, every other one is `%XX` in upper
//! case, and `*` and `$` are only ever the wildcards: as characters they are `%2A` and `%24`. So equal texts mean
//! the same, all is ASCII, and a pattern is still readable.

use memchr::memmem;

/// A rule's pattern as it is compared.
pub(super) fn normal_pattern(written: &[u8]) -> String {
    let (body, end) = match written.strip_suffix(b"$") {
        Some(body) => (body, "$"),
        None => (written, ""),
    };
    let mut text = String::with_capacity(written.len());
    let mut query = false;
    for octet in octets(body) {
        match octet {
            Octet::Plain(b'*') => text.push('*'),
            // The RFC's own example has `https://` in a query match `https%3A%2F%2F`.
            Octet::Encoded(byte) if query && is_general_delimiter(byte) => text.push(char::from(byte)),
            octet => push(&mut text, octet),
        }
        query |= octet == Octet::Plain(b'?');
    }
    text + end
}

/// A URL's path and query as they are compared: in most cases in one form. In the other the delimiters that are
/// encoded in the query are not: there, they mean the same either way.
pub(super) fn normal_paths(path: &str) -> (String, Option<String>) {
    let path = path.split('#').next().unwrap_or(path).as_bytes();
    let mut text = String::with_capacity(path.len() + 1);
    if !path.starts_with(b"/") {
        text.push('/');
    }
    let mut other: Option<String> = None;
    let mut query = false;
    for octet in octets(path) {
        match octet {
            Octet::Encoded(byte) if query && is_general_delimiter(byte) => {
                other.get_or_insert_with(|| text.clone()).push(char::from(byte));
            }
            octet => {
                if let Some(other) = &mut other {
                    push(other, octet);
                }
            }
        }
        push(&mut text, octet);
        query |= octet == Octet::Plain(b'?');
    }
    (text, other)
}

/// One octet of a URL, and how it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Octet {
    Plain(u8),
    Encoded(u8),
}

fn octets(mut text: &[u8]) -> impl Iterator<Item = Octet> {
    std::iter::from_fn(move || {
        let (octet, rest) = match text {
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (Octet::Encoded(hex(*high) << 4 | hex(*low)), rest)
            }
            [byte, rest @ ..] => (Octet::Plain(*byte), rest),
            [] => return None,
        };
        text = rest;
        Some(octet)
    })
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Appends an octet that is no wildcard.
fn push(text: &mut String, octet: Octet) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    match octet {
        Octet::Plain(byte) | Octet::Encoded(byte) if is_unreserved(byte) => text.push(char::from(byte)),
        // A `%` alone is left alone: it is found in URLs, and `/*%` in rules.
        Octet::Plain(byte) if is_delimiter(byte) || byte == b'%' => text.push(char::from(byte)),
        Octet::Plain(byte) | Octet::Encoded(byte) => {
            text.push('%');
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Reserved characters, without those that are wildcards here.
fn is_delimiter(byte: u8) -> bool {
    is_general_delimiter(byte)
        || matches!(byte, b'!' | b'&' | b'\'' | b'(' | b')' | b'+' | b',' | b';' | b'=')
}

fn is_general_delimiter(byte: u8) -> bool {
    matches!(byte, b':' | b'/' | b'?' | b'#' | b'[' | b']' | b'@')
}

/// How much of a pattern stands before its first wildcard.
pub(super) fn head_len(pattern: &str) -> usize {
    memchr::memchr2(b'*', b'$', pattern.as_bytes()).unwrap_or(pattern.len())
}

/// Whether `rest`, what follows a pattern's head, matches `path`, what follows the head there.
///
/// What stands between two `*` is looked for where it comes first: if there is a match at all, there is one with
/// it there. So nothing is tried twice, and the work is linear in both texts; it is added to `work`, in octets.
pub(super) fn rest_matches(rest: &str, path: &str, work: &mut usize) -> bool {
    let (rest, anchored) = match rest.strip_suffix('$') {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    // Without a wildcard the head was all of it.
    let Some(rest) = rest.strip_prefix('*') else { return !anchored || path.is_empty() };
    let (between, last) = match rest.rsplit_once('*') {
        Some((between, last)) if anchored => (between, last),
        _ if anchored => ("", rest),
        _ => (rest, ""),
    };
    let mut path = path.as_bytes();
    for part in between.split('*').filter(|part| !part.is_empty()) {
        let found = memmem::find(path, part.as_bytes());
        let end = found.map(|at| at + part.len());
        *work += end.unwrap_or(path.len()) + part.len();
        let Some(end) = end else { return false };
        path = &path[end..];
    }
    *work += last.len();
    path.ends_with(last.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_one_form() {
        for (written, normal) in [
            ("/a", "/a"),
            ("/%61%2d%7E", "/a-~"),
            ("/a%2fb%2F", "/a%2Fb%2F"),
            ("/ü", "/%C3%BC"),
            ("/a b{c}|\"", "/a%20b%7Bc%7D%7C%22"),
            ("/a$", "/a$"),
            ("/a$b", "/a%24b"),
            ("/a%24", "/a%24"),
            ("/a$$", "/a%24$"),
            ("/*a*", "/*a*"),
            ("/%2a", "/%2A"),
            ("/100%", "/100%"),
            ("/%zz%4", "/%zz%4"),
            ("/a?b=c%3A%2f%2f&d=%26", "/a?b=c://&d=%26"),
            ("", ""),
            ("$", "$"),
        ] {
            assert_eq!(normal_pattern(written.as_bytes()), normal, "{written}");
        }
        assert_eq!(normal_pattern(b"/\xff\x00"), "/%FF%00");
    }

    #[test]
    fn paths_have_one_form_but_for_delimiters_in_the_query() {
        for (path, normal, other) in [
            ("/a*b$", "/a%2Ab%24", None),
            ("", "/", None),
            ("?a", "/?a", None),
            ("/a#b", "/a", None),
            ("/%2F?a=b", "/%2F?a=b", None),
            ("/?a=/&b=%2f%41*", "/?a=/&b=%2FA%2A", Some("/?a=/&b=/A%2A")),
        ] {
            assert_eq!(normal_paths(path), (normal.to_owned(), other.map(str::to_owned)), "{path}");
        }
    }

    /// Octets looked at for a pattern of `n` stars against a path that almost matches, of `n` letters.
    fn work(n: usize) -> usize {
        let mut work = 0;
        assert!(!rest_matches(&format!("{}b", "*a".repeat(n)), &"a".repeat(2 * n), &mut work));
        assert!(!rest_matches(&format!("{}b$", "*a".repeat(n)), &"a".repeat(2 * n), &mut work));
        assert!(!rest_matches(&format!("*{}b", "a".repeat(n)), &"a".repeat(2 * n), &mut work));
        assert!(rest_matches(&format!("{}$", "*".repeat(n)), &"a".repeat(2 * n), &mut work));
        work
    }

    #[test]
    fn the_work_grows_as_the_texts_do() {
        let (small, large) = (work(1_000), work(64_000));
        assert!(large <= 65 * small, "{small} octets for 1,000, {large} for 64,000");
        assert!(small <= 16 * 1_000, "{small}");
    }
}
