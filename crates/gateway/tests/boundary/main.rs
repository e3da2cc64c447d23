//! The gateway from a client's side, over real connections.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is its purpose")]

mod compression;
mod dialects;
mod door;
mod garbage;
mod messages;
mod misfortune;
mod money;
mod replay;
mod script;
mod support;
mod translation;
mod upstreams;
mod vendor;
