//! A URL server: it decides which URL may be fetched *now*.
//!
//! The path of one URL through the modules, in order:
//!
//! 1. [`index`]: documents come from here, as candidates, and their reports go back;
//! 2. [`scheduler`]: queues, gates and leases; decides, and knows neither clock nor socket;
//! 3. [`hostdb`]: names, addresses and their health;
//! 4. [`robots`]: what web servers permit;
//! 5. [`wire`]: the line protocol that spiders speak, without sockets;
//! 6. [`server`]: all tasks and sockets;
//! 7. [`observe`]: what people see of it.
//!
//! Beside the path: [`settings`], [`client`] (the commands that speak to a running server), [`politeness`] (what
//! outlives the process), and the small words that all of them share: [`time`], [`ids`], [`url`], [`document`],
//! [`claim`], [`order`], [`names`], [`url_queue`].

pub mod claim;
pub mod cli;
pub mod client;
pub mod document;
pub mod hostdb;
pub mod ids;
pub mod index;
pub mod index_tool;
pub mod logs;
pub mod names;
pub mod observe;
pub mod order;
pub mod politeness;
pub mod robots;
pub mod scheduler;
pub mod server;
pub mod settings;
pub mod time;
pub mod url;
pub mod url_queue;
pub mod wire;
