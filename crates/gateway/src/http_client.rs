//! A small HTTP/1.1 client for upstreams: one request at a time per connection, with a connection pool.
//!
//! The client exists for speed. All chunks in the read buffer become one frame; forwarding a stream chunk by chunk costs
//! a wake-up and a write per chunk, seven times the work of the whole exchange. `cargo xtask bench gateway` measures the
//! gateway against nginx with small calls and with agent-like calls (76 KB request, stream of 200 events); the results
//! are in `bench/RESULTS.md`.
//!
//! Redirects are not followed, and nothing is retried after the first byte of a response.

mod body_decoder;
mod client;
mod connector;
mod head;

pub use client::UpstreamTimeouts;
pub(crate) use client::{HttpClient, HttpResponse};
pub(crate) use connector::{ServerConnector, ServerOrigin};
pub(crate) use head::RequestHead;
