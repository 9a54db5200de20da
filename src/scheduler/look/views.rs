//! The words in which hosts, addresses and URLs are spoken of.

use crate::ids::{DocId, SlotId, SpiderId};
use crate::scheduler::gates::Why;
use crate::scheduler::orders::Standing as Orders;
use crate::time::Duration;
use std::net::IpAddr;

macro_rules! host_states {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// What keeps a host from sending, in one word.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum HostState { $($(#[$doc])* $name,)* }

        impl HostState {
            /// All of them.
            pub const ALL: &[HostState] = &[$(HostState::$name,)*];

            /// The word.
            pub const fn word(self) -> &'static str {
                match self { $(HostState::$name => $word,)* }
            }
        }
    };
}

host_states! {
    /// Nothing is pending for it.
    Idle = "idle",
    /// It may send: a spider with room is all it needs.
    Ready = "ready",
    /// For a clock (the gap, the rest), or for its turn.
    Waiting = "waiting",
    /// As much is in flight as may be.
    Busy = "busy",
    /// The web server asked to be left alone.
    Held = "held",
    /// Its address does not answer.
    Down = "down",
    /// Its name is being looked up.
    Resolving = "resolving",
    /// Its robots.txt is being asked for.
    Asking = "asking",
    /// For a slot.
    Leftover = "leftover",
    /// All that it has waits for its time.
    Delayed = "delayed",
    /// An operator has paused it.
    Paused = "paused",
    /// An operator has blocked it for a while.
    Blocked = "blocked",
    /// Its documents are being ended unsent: no such name, or no address that may be used.
    Draining = "draining",
}

/// What keeps a host from sending. `G` is a gate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing<G = GateView> {
    /// Nothing is pending.
    Idle,
    /// Nothing: a spider with room is all it needs.
    Ready,
    /// Others that have waited longer go first.
    Turn(G),
    /// As many in flight as may be, or a line that is being written.
    Full(G),
    /// A clock.
    Clock {
        /// Whose.
        gate: G,
        /// How much longer.
        left: Duration,
        /// What it measures.
        why: Why,
    },
    /// The address was down, and is being tried.
    OnTrial(G),
    /// Its key is not claimed in the shared index, or claims are not good now.
    Unclaimed(G),
    /// The name is being looked up.
    Resolving {
        /// Nobody answered; it is asked for again after this long.
        again_in: Option<Duration>,
    },
    /// The robots.txt that its next document needs is being asked for.
    Asking {
        /// The web server did not answer it; it is asked again after this long.
        again_in: Option<Duration>,
    },
    /// All slots are taken.
    Leftover {
        /// Hosts that come first; none if they are more than [`LINE_WALK_MAX`](super::LINE_WALK_MAX).
        ahead: Option<u32>,
    },
    /// An operator wants nothing sent to it.
    Stopped {
        /// For how long; none until it is resumed.
        left: Option<Duration>,
    },
    /// An operator wants nothing sent at all.
    AllPaused,
    /// A worker has reserved it.
    Reserved,
    /// Everything it has is in flight, or waits for its time.
    InFlight,
    /// All that it has waits for its time, at most this long.
    Delayed(Duration),
    /// There is no such name.
    NoSuchName,
    /// Its addresses may not be used.
    Private,
}

impl<G> Standing<G> {
    pub(super) fn map<H>(self, gate: impl FnOnce(G) -> H) -> Standing<H> {
        match self {
            Standing::Idle => Standing::Idle,
            Standing::Ready => Standing::Ready,
            Standing::Turn(at) => Standing::Turn(gate(at)),
            Standing::Full(at) => Standing::Full(gate(at)),
            Standing::Clock { gate: at, left, why } => Standing::Clock { gate: gate(at), left, why },
            Standing::OnTrial(at) => Standing::OnTrial(gate(at)),
            Standing::Unclaimed(at) => Standing::Unclaimed(gate(at)),
            Standing::Resolving { again_in } => Standing::Resolving { again_in },
            Standing::Asking { again_in } => Standing::Asking { again_in },
            Standing::Leftover { ahead } => Standing::Leftover { ahead },
            Standing::Stopped { left } => Standing::Stopped { left },
            Standing::AllPaused => Standing::AllPaused,
            Standing::Reserved => Standing::Reserved,
            Standing::InFlight => Standing::InFlight,
            Standing::Delayed(left) => Standing::Delayed(left),
            Standing::NoSuchName => Standing::NoSuchName,
            Standing::Private => Standing::Private,
        }
    }
}

/// A gate, as its waiters see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GateView {
    /// Whose it is.
    pub owner: Owner,
    /// Sends in flight through it.
    pub in_flight: u32,
    /// How many there may be.
    pub limit: u32,
    /// Least time from one send to the next.
    pub gap: Duration,
    /// Slots that come first in its line, as far as they were counted.
    pub ahead: u32,
}

/// Whose gate it is, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The host's own.
    Host,
    /// An address's.
    Ip {
        /// Which.
        address: IpAddr,
        /// Hosts that use it.
        hosts: u32,
    },
    /// An alias's.
    Alias(Box<str>),
    /// A group's.
    Group(Box<str>),
}

/// One host in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostBrief {
    /// Its name.
    pub name: Box<str>,
    /// What keeps it from sending, in one word.
    pub state: HostState,
    /// Its slot.
    pub slot: Option<SlotId>,
    /// URLs in the slot that are not in flight.
    pub queued: u64,
    /// URLs beyond the slot.
    pub leftover: u64,
    /// URLs in flight.
    pub in_flight: u32,
    /// The address in use.
    pub ip: Option<IpAddr>,
}

/// One host in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostView {
    /// What a list says of it.
    pub brief: HostBrief,
    /// All its addresses, first choice first.
    pub addresses: Vec<AddressView>,
    /// Its alias.
    pub alias: Option<Box<str>>,
    /// Its group.
    pub group: Option<Box<str>>,
    /// What keeps it from sending.
    pub standing: Standing,
    /// How long until it sends, at the earliest; none if that depends on others.
    pub next_send_in: Option<Duration>,
    /// Least time from one send to the next, over all its gates.
    pub gap: Duration,
    /// Who has been told to be left alone, and for how much longer.
    pub holds: Vec<(Owner, Duration)>,
    /// What an operator has ordered.
    pub orders: Orders,
}

/// One address of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressView {
    /// Which.
    pub address: IpAddr,
    /// Whether it answers.
    pub health: HealthView,
}

/// Whether an address answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HealthView {
    /// It does.
    Up,
    /// It does not; it is left alone for this much longer.
    Down(Duration),
    /// It did not; one at a time may try.
    Suspect,
}

/// One address in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IpView {
    /// Which.
    pub address: IpAddr,
    /// Hosts that use it now.
    pub host_count: u32,
    /// The first [`HOSTS_OF_IP_MAX`](super::HOSTS_OF_IP_MAX) of them.
    pub hosts: Vec<Box<str>>,
    /// Documents of those hosts that have not ended.
    pub pending: u64,
    /// Sends in flight.
    pub in_flight: u32,
    /// Whether it answers.
    pub health: HealthView,
    /// How long until something may be sent to it; none if that depends on others.
    pub next_send_in: Option<Duration>,
    /// Least time from one send to the next.
    pub gap: Duration,
}

/// Where one URL is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UrlPlace {
    /// Not pending.
    Absent,
    /// Not among the first [`QUEUE_WALK_MAX`](super::QUEUE_WALK_MAX) of its host, which has more.
    NotSeen,
    /// In its host's queue.
    Queued {
        /// Its document.
        doc: DocId,
        /// URLs of its host that go first.
        ahead: u64,
    },
    /// At the head of its host, sent before.
    Again {
        /// Its document.
        doc: DocId,
        /// Sends so far.
        attempts: u32,
    },
    /// Not before its time.
    Later {
        /// Its document.
        doc: DocId,
        /// Sends so far.
        attempts: u32,
        /// How much longer.
        left: Duration,
    },
    /// With a worker that has reserved its host.
    Reserved {
        /// Its document.
        doc: DocId,
        /// Sends so far, this one included.
        attempts: u32,
    },
    /// In flight.
    InFlight {
        /// Its document.
        doc: DocId,
        /// Sends so far, this one included.
        attempts: u32,
        /// With whom.
        spider: SpiderId,
        /// Where it went.
        ip: IpAddr,
        /// How long ago its line was written; none if it is not yet.
        written: Option<Duration>,
    },
}

/// What robots.txt says of a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RobotsView {
    /// It is not asked for.
    Ignored,
    /// It is not known yet.
    Unknown,
    /// The URL may be fetched.
    Allowed,
    /// It may not.
    Denied {
        /// The line of robots.txt that says so.
        line: u32,
        /// What it says.
        rule: Box<str>,
    },
    /// It asks for a longer Crawl-delay than `crawl_delay_max`.
    TooSlow {
        /// How long.
        delay: Duration,
    },
}
