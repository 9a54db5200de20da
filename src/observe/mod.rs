//! What people see: sentences that say why something waits, and figures for Prometheus.
//!
//! Without sockets, and without a look at the clock: what is to be said comes in as a value.

pub mod explain;
pub mod metrics;
pub mod words;
