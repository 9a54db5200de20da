//! What tests of the running server need.
#![allow(dead_code, reason = "every test that includes this uses a part of it")]

pub(crate) mod api;
pub(crate) mod http;
pub(crate) mod lines;
pub(crate) mod mount;
pub(crate) mod scripted_index;
pub(crate) mod server;
pub(crate) mod spider;
