//! As much of the Redis protocol as is needed.

use memchr::memmem::find;

/// Begins a command of so many words.
pub(in crate::bench) fn put_command(out: &mut Vec<u8>, words: usize) {
    put_length(out, b'*', words);
}

/// One word of a command.
pub(in crate::bench) fn put_word(out: &mut Vec<u8>, word: &[u8]) {
    put_length(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn put_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// What the server answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::bench) enum Reply<'a> {
    /// `:N`
    Number(i64),
    /// `$N`, a text; nothing for the one that is not there.
    Text(Option<&'a [u8]>),
    /// `*N`: so many replies follow.
    List(usize),
    /// `+…`
    Word(&'a [u8]),
    /// `-…`
    Error(&'a [u8]),
    /// Not this protocol.
    Nonsense,
}

/// The reply at the front, and the bytes it took; nothing if it is not whole. Of a list only the head.
pub(in crate::bench) fn take_reply(bytes: &[u8]) -> Option<(Reply<'_>, usize)> {
    let end = find(bytes, b"\r\n")?;
    let (kind, line) = bytes[..end].split_first()?;
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    let next = end + 2;
    let reply = match (kind, number()) {
        (b':', Some(number)) => Reply::Number(number),
        (b'*', Some(length)) => Reply::List(usize::try_from(length).unwrap_or(0)),
        (b'$', Some(length)) => match usize::try_from(length) {
            Ok(length) => {
                let text = bytes.get(next..next + length)?;
                bytes.get(next + length + 1)?;
                return Some((Reply::Text(Some(text)), next + length + 2));
            }
            Err(_) => Reply::Text(None),
        },
        (b'+', _) => Reply::Word(line),
        (b'-', _) => Reply::Error(line),
        _ => Reply::Nonsense,
    };
    Some((reply, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_lists_of_words() {
        let mut out = Vec::new();
        put_command(&mut out, 2);
        put_word(&mut out, b"GET");
        put_word(&mut out, b"a key");
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$5\r\na key\r\n");
    }

    #[test]
    fn replies_of_all_kinds() {
        let taken = |bytes: &'static str| take_reply(bytes.as_bytes());
        assert_eq!(taken(":12\r\n:3\r\n"), Some((Reply::Number(12), 5)));
        assert_eq!(taken("$5\r\na\r\nbc\r\nmore"), Some((Reply::Text(Some(b"a\r\nbc")), 11)));
        assert_eq!(taken("$-1\r\n"), Some((Reply::Text(None), 5)));
        assert_eq!(taken("*2\r\n$1\r\na\r\n"), Some((Reply::List(2), 4)));
        assert_eq!(taken("+OK\r\n"), Some((Reply::Word(b"OK"), 5)));
        assert_eq!(taken("-ERR no\r\n"), Some((Reply::Error(b"ERR no"), 9)));
        assert_eq!(taken(":x\r\n"), Some((Reply::Nonsense, 4)));
    }

    #[test]
    fn what_is_not_whole_is_left() {
        for whole in ["$5\r\na\r\nbc\r\n", ":12\r\n"] {
            for end in 0..whole.len() {
                assert_eq!(take_reply(&whole.as_bytes()[..end]), None, "{:?}", &whole[..end]);
            }
        }
    }
}
