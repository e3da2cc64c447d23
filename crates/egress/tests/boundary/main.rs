//! Tests of the egress proxy from inside a sandbox, over real connections, with a simulated network outside.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is its purpose")]

mod allowed;
mod attack_addresses;
mod attack_hosts;
mod attack_requests;
mod attack_tunnels;
mod denial;
mod dns;
mod inject;
mod intercept;
mod invalid_requests;
mod origin;
mod raw;
mod requests_by_rule;
mod support;
mod test_network;
