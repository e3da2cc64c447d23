//! The proxy from inside a sandbox, over real connections, with a small internet of its own behind it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is its purpose")]

mod attack_addresses;
mod attack_hosts;
mod attack_requests;
mod attack_tunnels;
mod denial;
mod inject;
mod intercept;
mod names;
mod origin;
mod passing;
mod raw;
mod requests_by_rule;
mod support;
mod unreadable;
mod world;
