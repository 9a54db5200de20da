//! Identities, each its own type: two bare numbers side by side get swapped one day.

use std::fmt;
use std::num::NonZeroU32;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

/// An id that counts from zero, in four bytes even where there may be none.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The id with this number. There are fewer than `u32::MAX` of anything.
            pub const fn new(number: u32) -> Self {
                $name(NonZeroU32::MIN.saturating_add(number))
            }

            /// Its number.
            pub const fn number(self) -> u32 {
                self.0.get() - 1
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.number().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.number())
            }
        }
    };
}

id! {
    /// A document, named by the document index.
    DocId(u64)
}
id! {
    /// One send of one document to one spider, named by us: host slot, active cell, generation.
    TransId(u64)
}
id! {
    /// A connection to a spider; never reused while the server lives.
    SpiderId(u64)
}
number! {
    /// A host the scheduler knows. Reused after the host is forgotten.
    HostId
}
number! {
    /// One of the `queue_count` places for a host with work.
    SlotId
}
number! {
    /// A politeness clock and counter: of a host, an address or a group.
    GateId
}
number! {
    /// An address the scheduler knows.
    IpId
}
id! {
    /// One request for a robots.txt; never used again.
    FetchId(u64)
}
number! {
    /// A document that has left its host's queue: in flight, or waiting to be sent again.
    LeaseId
}
number! {
    /// A host that a worker has to itself. Used again after it has ended.
    ReservationId
}
