//! Identities, each its own type: two bare numbers side by side get swapped one day.

use std::fmt;

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
id! {
    /// A host the scheduler knows. Reused after the host is forgotten.
    HostId(u32)
}
id! {
    /// One of the `queue_count` places for a host with work.
    SlotId(u32)
}
id! {
    /// A politeness clock and counter: of a host, an address or a group.
    GateId(u32)
}
id! {
    /// An address the scheduler knows.
    IpId(u32)
}
id! {
    /// One request for a robots.txt; never used again.
    FetchId(u64)
}
id! {
    /// A document that has left its host's queue: in flight, or waiting to be sent again.
    LeaseId(u32)
}
