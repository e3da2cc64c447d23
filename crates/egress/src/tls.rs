//! As much of TLS as tells who a tunnel is for.

mod byte_cursor;
mod hello;
mod retry;

pub(crate) use hello::{ClientHello, HelloError};
pub(crate) use retry::{NextRecord, RETRY_BYTES, is_retry, next_record};
