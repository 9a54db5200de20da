//! Operators' orders, in the words that all parts of the server use for them. How they are kept and obeyed is in
//! `scheduler::orders`; how servers that share an index tell each other is in `index::postgres`.

use crate::time::Duration;
use thiserror::Error;

/// What an operator says of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Nothing is sent until it is resumed.
    Pause,
    /// The pause is over.
    Resume,
    /// Nothing is sent for this long.
    Block(Duration),
    /// Two sends are at least this far apart; zero is no order any more.
    Delay(Duration),
}

/// What is ordered for a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Nothing is sent until it is resumed.
    pub paused: bool,
    /// Nothing is sent for this long.
    pub blocked_for: Duration,
    /// Two sends are at least this far apart.
    pub delay: Duration,
}

/// What an order is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// One host, by name.
    Host {
        /// Its name.
        host: Box<str>,
        /// What is said of it.
        order: Order,
    },
    /// Everything, on all servers.
    All {
        /// Whether it is paused.
        paused: bool,
    },
}

/// An order for all servers that share an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What the answer will name.
    pub ticket: u64,
    /// What it is about.
    pub subject: Subject,
}

/// The shared index could not be told in time. Whether the order holds is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the shared index cannot be reached: the order may or may not be kept; give it again")]
pub struct NotKept;
