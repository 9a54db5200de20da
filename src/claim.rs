//! Claims: what a server that shares its index with others must hold before it may send.
//!
//! A claim is on a key of politeness: a host, an address, an alias or a group. The words that scheduler and index
//! exchange about claims are here; who decides what is said in `scheduler::claims`, how they are kept in
//! `index::postgres`.

use crate::document::Tried;
use crate::ids::DocId;
use crate::order::{NotKept, Standing};
use crate::time::Duration;
use std::fmt;
use std::net::IpAddr;

/// What a claim is on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ClaimKey {
    /// A host, by name.
    Host(Box<str>),
    /// An address, over all hosts on it.
    Ip(IpAddr),
    /// An alias of the settings, by name.
    Alias(Box<str>),
    /// A group of the settings, by name.
    Group(Box<str>),
}

impl fmt::Display for ClaimKey {
    /// One word, different for different keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimKey::Host(name) => write!(f, "host:{name}"),
            ClaimKey::Ip(address) => write!(f, "ip:{address}"),
            ClaimKey::Alias(name) => write!(f, "alias:{name}"),
            ClaimKey::Group(name) => write!(f, "group:{name}"),
        }
    }
}

/// What a key is owed, counted from the moment at which this is said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OwedClock {
    /// Nothing before this: the gap since the last send, and the rest after the last fetch.
    pub opens_in: Duration,
    /// Told to stay away for this long: 429, 503.
    pub held_for: Duration,
    /// Refusals without a success or a long quiet between them.
    pub strikes: u8,
    /// Of a host: the gap that was kept, which others may not know yet.
    pub gap: Duration,
    /// Somebody who is gone may have sent until this long ago, and has left no word of it.
    pub dark_since: Option<Duration>,
}

/// How much a key is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// A host must be ours already; other keys may be claimed if they are nobody's.
    Plain,
    /// A host, too, may be claimed: nothing of it is pending here, but something is to be asked of it.
    Errand,
    /// Whoever holds it shall give it up, if he came later than we.
    Urgent,
}

/// What the scheduler wants done about claims, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimAction {
    /// To send under this key; answered by exactly one [`ClaimNews::Good`] or [`ClaimNews::Elsewhere`], unless all
    /// claims are lost before.
    Want {
        /// Under which.
        key: ClaimKey,
        /// How much it is wanted.
        wish: Wish,
    },
    /// Nothing will be sent under this key any more.
    GiveBack {
        /// Under which.
        key: ClaimKey,
        /// What it is owed; nothing if it is as it was.
        clock: Option<OwedClock>,
        /// For a host: whoever holds this shall have it, or whoever needs it more than we.
        to_holder_of: Option<ClaimKey>,
    },
    /// The key is held on, but nothing is in flight under it, and will be only after it was wanted again: until then
    /// others may have it after the first expiry.
    Rest {
        /// Which.
        key: ClaimKey,
        /// What it is owed.
        clock: OwedClock,
    },
    /// A key that needs no claim, since it has no limits, is told to stay away; so shall others.
    Hold {
        /// Which.
        key: ClaimKey,
        /// For this long.
        held_for: Duration,
        /// Refusals without a success or a long quiet between them.
        strikes: u8,
    },
    /// A document was sent, and has not ended: should others send it, they count from here.
    Tried {
        /// Which.
        doc: DocId,
        /// How often.
        tried: Tried,
        /// Not again before this much time has passed.
        wait: Duration,
    },
    /// The key is held on, and this is to be known should its holder be lost.
    Note {
        /// Which.
        key: ClaimKey,
        /// What it is owed.
        clock: OwedClock,
    },
}

/// What the index says about claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimNews {
    /// The claim is ours, as long as our claims are good at all.
    Good {
        /// On what.
        key: ClaimKey,
        /// What it is owed.
        clock: OwedClock,
    },
    /// It is not: another server has it, or the index would not give it to us.
    Elsewhere {
        /// On what.
        key: ClaimKey,
        /// Whether the other one came later than we.
        younger: bool,
    },
    /// A claim that was ours is no more.
    Lost(ClaimKey),
    /// A claim of ours is wanted by a server that needs it more: to be given back soon.
    WantedElsewhere(ClaimKey),
    /// What operators have ordered for a host that is ours, or about to be; all of it.
    Ordered {
        /// Its name.
        host: Box<str>,
        /// The orders that stand.
        standing: Standing,
    },
    /// What became of an order that was given here.
    Obeyed {
        /// Which.
        ticket: u64,
        /// What stands now, if it is kept.
        result: Result<Standing, NotKept>,
    },
    /// Operators have paused everything, on all servers, or have not.
    PauseAll(bool),
    /// A key that needs no claim is told to stay away.
    Held {
        /// Which.
        key: ClaimKey,
        /// For this long.
        held_for: Duration,
        /// Refusals without a success or a long quiet between them.
        strikes: u8,
    },
    /// All claims are good until then, by the system's monotonic clock.
    Renewed(std::time::Instant),
    /// No claim is ours any more.
    AllLost,
}
