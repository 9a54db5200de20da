//! A simulated spider for the URL server, and an auditor that watches from outside.
//!
//! What a spider does is decided by [`machine`], without clock or socket, from one seed and a
//! [`profile`]; what it saw goes to [`audit`], which knows the limits and nothing of the server.
//! The same machine is driven by [`tcp`] or, with the real scheduler, by virtual time in a [`world`]. [`report`] is for people,
//! [`mod@bench`] measures a server binary beside its peers, with a client that does nothing but answer.

pub mod audit;
pub mod bench;
pub mod cli;
pub mod event;
pub mod line;
pub mod machine;
pub mod profile;
pub mod report;
pub mod sim;
pub mod speech;
pub mod tcp;
pub mod violation;
pub mod wait;
pub mod world;
