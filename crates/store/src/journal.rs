//! The journal of one session: the port, an implementation in a file, one in memory, and readers.
//!
//! A record is one line of JSON that contains the SHA-256 of the line before it. Only the journal assigns sequence
//! numbers, and it assigns a number only to a record that it has written.

mod copy;
mod encoded_drafts;
mod error;
mod file;
mod file_pool;
mod line;
mod line_reader;
mod memory;
mod offset_index;
mod port;
mod position;
mod reader;
mod record_batch;
mod tail;
mod verify;
mod writer;

pub use copy::copy_journal;
pub use error::{JournalError, LineDefect};
pub use file::{FileJournal, OpenedJournal};
pub use file_pool::FilePool;
pub use memory::MemoryJournal;
pub use port::{Journal, StoredRange};
pub use reader::JournalReader;
pub use tail::JournalTail;
pub use verify::{VerifiedJournal, verify_journal};
