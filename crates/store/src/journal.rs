//! The record of one session: a port, a file, a memory, and the readers of both.
//!
//! One JSON line a record; each carries the SHA-256 of the line before it. Nobody numbers a record but
//! the journal that has just written it.

mod copy;
mod error;
mod file;
mod line;
mod memory;
mod offsets;
mod port;
mod reader;
mod script;
mod sheet;
mod spares;
mod stamp;
mod tail;
mod verify;
mod walk;
mod writer;

pub use copy::copy_journal;
pub use error::{JournalError, LineDefect};
pub use file::{FileJournal, OpenedJournal};
pub use memory::MemoryJournal;
pub use port::{Journal, StoredRange};
pub use reader::JournalReader;
pub use spares::FilePool;
pub use tail::JournalTail;
pub use verify::{VerifiedJournal, verify_journal};
