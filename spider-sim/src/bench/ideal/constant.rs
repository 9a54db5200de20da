//! The floor: a fresh number, and always the same behind it.

use super::line::put_number;
use super::socket::Source;

/// Most lines in flight.
const WINDOW: u32 = 100_000;
/// Behind the number; with one of five digits the line is as long as those of the work.
const TAIL: &[u8] = b" 1234567 127.1.12.34 http://www.site0001234.example.com/part12/page-1234567mnopqrstu\n";

/// Lines that are all alike.
#[derive(Default)]
pub(super) struct Constant {
    free: Vec<u32>,
    used: u32,
}

impl Source for Constant {
    #[inline]
    fn put_line(&mut self, out: &mut Vec<u8>) -> bool {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.used < WINDOW => {
                self.used += 1;
                self.used - 1
            }
            None => return false,
        };
        put_number(out, number);
        out.extend_from_slice(TAIL);
        true
    }

    #[inline]
    fn handle_done(&mut self, number: u32) {
        self.free.push(number);
    }

    fn handle_start(&mut self) {
        *self = Constant::default();
    }
}
