//! One connection between a spider and the server: what each side has to say, and what is on its way.
//!
//! Towards the spider a wire holds only so many bytes, those that the spider has not read included; what
//! does not fit waits at the server, and counts as not written. Towards the server it holds anything:
//! the server always reads.

use super::plan::Wires;
use bytes::BytesMut;
use std::collections::VecDeque;
use urlserver::ids::TransId;
use urlserver::time::{Duration, Instant};
use urlserver::wire::LineDecoder;
use urlserver::wire::line::LINE_MAX;

/// Bytes that wait at the server beyond which it has no more work for this spider.
const OUTBOX_MAX: usize = 2048;

/// A line on its way out of the server.
struct Outgoing {
    since: Instant,
    rest: BytesMut,
    /// The send it is, if it is one.
    trans: Option<TransId>,
}

/// Bytes that arrive somewhere.
pub(super) struct Piece {
    /// When they arrive.
    pub(super) at: Instant,
    /// Not written before.
    pub(super) since: Instant,
    pub(super) bytes: Vec<u8>,
}

/// See the module.
pub(super) struct Wire {
    pub(super) seat: usize,
    pub(super) decoder: LineDecoder,
    pub(super) input: BytesMut,
    /// Lines in a row that made no sense.
    pub(super) bad_run: u32,
    /// Broken in the middle: nothing arrives any more, and the server does not know yet.
    pub(super) cut: bool,
    outbox: VecDeque<Outgoing>,
    outbox_bytes: usize,
    choked: bool,
    on_wire: usize,
    /// Arrived, and not read.
    unread: VecDeque<(Instant, Vec<u8>)>,
    last_down: Instant,
    last_up: Instant,
}

impl Wire {
    pub(super) fn new(seat: usize) -> Wire {
        Wire {
            seat,
            decoder: LineDecoder::ascii(LINE_MAX),
            input: BytesMut::new(),
            bad_run: 0,
            cut: false,
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            choked: false,
            on_wire: 0,
            unread: VecDeque::new(),
            last_down: Instant::ZERO,
            last_up: Instant::ZERO,
        }
    }

    /// The server says a line.
    pub(super) fn say(&mut self, now: Instant, line: BytesMut, trans: Option<TransId>) {
        self.outbox_bytes += line.len();
        self.outbox.push_back(Outgoing { since: now, rest: line, trans });
    }

    /// Whether the server has begun, or ceased, to have too much to say.
    pub(super) fn poll_choke(&mut self) -> Option<bool> {
        let limit = if self.choked { OUTBOX_MAX / 2 } else { OUTBOX_MAX };
        let choked = self.outbox_bytes > limit;
        (choked != std::mem::replace(&mut self.choked, choked)).then_some(choked)
    }

    pub(super) fn has_news(&self, wires: &Wires) -> bool {
        !self.outbox.is_empty() && (self.cut || self.on_wire < wires.capacity)
    }

    /// Writes what fits: the pieces that arrive later, and the sends whose lines are written now.
    pub(super) fn write(
        &mut self,
        now: Instant,
        wires: &Wires,
        rng: &mut fastrand::Rng,
    ) -> (Vec<Piece>, Vec<TransId>) {
        let (mut pieces, mut written) = (Vec::new(), Vec::new());
        while let Some(line) = self.outbox.front_mut() {
            // Into a broken wire anything fits, for all the server knows.
            let room = if self.cut { usize::MAX } else { wires.capacity.saturating_sub(self.on_wire) };
            let mut take = line.rest.len().min(room);
            if take == 0 {
                break;
            }
            if take > 1 && rng.f64() < wires.split {
                take = rng.usize(1..take);
            }
            let bytes = line.rest.split_to(take).to_vec();
            let (since, done) = (line.since, line.rest.is_empty());
            self.outbox_bytes -= take;
            self.on_wire += take;
            self.last_down = arrival(now, self.last_down, wires, rng);
            pieces.push(Piece { at: self.last_down, since, bytes });
            if done {
                written.extend(self.outbox.pop_front().and_then(|line| line.trans));
            }
        }
        (pieces, written)
    }

    /// When bytes that the spider writes now reach the server.
    pub(super) fn arrival_up(&mut self, now: Instant, wires: &Wires, rng: &mut fastrand::Rng) -> Instant {
        self.last_up = arrival(now, self.last_up, wires, rng);
        self.last_up
    }

    /// Bytes have arrived at the spider.
    pub(super) fn handle_arrived(&mut self, since: Instant, bytes: Vec<u8>) {
        self.unread.push_back((since, bytes));
    }

    /// The spider reads.
    pub(super) fn read(&mut self) -> Option<(Instant, Vec<u8>)> {
        let piece = self.unread.pop_front()?;
        self.on_wire -= piece.1.len();
        Some(piece)
    }
}

/// Bytes arrive in order.
fn arrival(now: Instant, last: Instant, wires: &Wires, rng: &mut fastrand::Rng) -> Instant {
    let most = wires.latency_max.as_micros() as u64;
    (now + Duration::from_micros(rng.u64(..=most))).max(last)
}
