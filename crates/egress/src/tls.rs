//! The part of TLS that shows which host a tunnel is for.

mod byte_cursor;
mod hello;
mod retry;

pub(crate) use hello::{ClientHello, HelloError};
pub(crate) use retry::{NextRecord, RETRY_BYTES, is_retry, next_record};
