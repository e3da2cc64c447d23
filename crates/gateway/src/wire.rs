//! Our own HTTP/1.1 client: one exchange on one connection, connections kept for the next.
//!
//! Everything that is in the read buffer becomes one frame, however many chunks it came in: handing on a
//! stream chunk by chunk costs a wake-up and a write each, seven times the work of the whole exchange.
//! Redirects are not followed and nothing is retried once a byte of an answer has come.

mod body;
mod connect;
mod exchange;
mod head;

pub(crate) use connect::{Connector, Origin};
pub use exchange::UpstreamTimeouts;
pub(crate) use exchange::{Answer, Client};
pub(crate) use head::RequestHead;
