//! Numbers in and out of lines, without any ceremony.

/// Adds a number.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Takes `NUMBER DONE\n` from the front: the number, and the bytes it took. Nothing if it is not whole.
#[inline]
pub(super) fn take_done(bytes: &[u8]) -> Option<Result<(u32, usize), BadAnswer>> {
    const TAIL: &[u8] = b" DONE\n";
    let mut number = 0u32;
    let mut at = 0;
    while let Some(digit) = bytes.get(at).map(|b| b.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
        number = number.wrapping_mul(10).wrapping_add(u32::from(digit));
        at += 1;
    }
    let tail = bytes.get(at..at + TAIL.len())?;
    Some(if tail == TAIL && at > 0 { Ok((number, at + TAIL.len())) } else { Err(BadAnswer) })
}

/// The client says something else than DONE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the client says something else than DONE")]
pub(super) struct BadAnswer;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_answers_are_taken_one_at_a_time() {
        assert_eq!(take_done(b"12 DONE\n3 DONE\n"), Some(Ok((12, 8))));
        assert_eq!(take_done(b"12 DONE"), None);
        assert_eq!(take_done(b"1"), None);
        assert_eq!(take_done(b""), None);
        assert_eq!(take_done(b"12 WORKING\n"), Some(Err(BadAnswer)));
        assert_eq!(take_done(b" DONE\n"), Some(Err(BadAnswer)));
    }
}
