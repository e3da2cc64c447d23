//! HTTP/1 for the proxy: strict parsing, and rewriting of everything that is forwarded.

mod body;
mod forward;
mod framing;
mod head;
mod request;
mod response_head;
mod target;

pub(crate) use forward::{ForwardError, forward};
pub(crate) use request::{ProxyRequest, SetHeader};
pub(crate) use target::{RequestTarget, Scheme};
