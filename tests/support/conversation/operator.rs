//! What operators say: `pause a.example`, `resume a.example`, `block a.example 10`, `delay a.example 2.5`; `pause` and
//! `resume` alone are for everything.

use super::script::seconds;
use urlserver::scheduler::{Order, Scheduler};
use urlserver::time::Instant;

pub(super) fn obey(scheduler: &mut Scheduler, now: Instant, text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split(' ').collect();
    let time = |text: &str| seconds(text).ok_or(format!("`{text}` is no time"));
    let (host, order) = match words[..] {
        ["pause"] | ["resume"] => {
            scheduler.handle_pause_all(text == "pause");
            return Ok(());
        }
        ["pause", host] => (host, Order::Pause),
        ["resume", host] => (host, Order::Resume),
        ["block", host, text] => (host, Order::Block(time(text)?)),
        ["delay", host, text] => (host, Order::Delay(time(text)?)),
        _ => return Err(format!("`{text}` is no order")),
    };
    scheduler.handle_order(now, host, order).map(|_| ()).map_err(|error| error.to_string())
}
