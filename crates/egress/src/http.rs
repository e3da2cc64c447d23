//! HTTP/1 as a proxy meets it: read strictly, written anew.

mod response_head;
mod body;
mod forward;
mod framing;
mod head;
mod request;
mod target;

pub(crate) use forward::{ForwardError, forward};
pub(crate) use request::{Request, SetHeader};
pub(crate) use target::{Scheme, Target};
