//! Invariants for arbitrary bytes in place of a session's journal; a violation panics.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::{EventBody, EventDraft, SessionId, SessionRecovered};
use store::{FileJournal, Journal as _, JournalError, JournalReader, SystemClock, verify_journal};

/// Checks that reader, verifier and writer agree on which files are journals, that an invalid file is reported and left
/// unchanged, and that a journal is still valid after an append.
pub(crate) fn journal(data: &[u8]) {
    let (file, path) = in_memory(data);
    let session = SessionId::new("s1").unwrap();
    let verified = verify_journal(&path);
    let reader = JournalReader::open(&path, session.clone()).unwrap();
    for (after, limit) in [(0, 1), (0, usize::MAX), (1, 2), (63, 5), (u64::MAX, 1)] {
        if let Ok(events) = reader.after(after, limit) {
            assert!(events.len() <= limit, "at most `limit` events");
            assert!(
                events.iter().zip(1..).all(|(event, offset)| event.sequence == after + offset),
                "events are in order"
            );
        }
    }
    // Must not panic. The count may include damaged lines, because it does not parse them.
    let _ = reader.last();
    let is_ours = verified.as_ref().is_ok_and(|found| found.session.as_ref().is_none_or(|id| *id == session));
    let opened = FileJournal::open(&path, session, Arc::new(SystemClock));
    assert_eq!(opened.is_ok(), is_ours, "verifier and writer agree: {verified:?}");
    let Ok(opened) = opened else {
        assert_eq!(
            file.metadata().unwrap().len(),
            data.len() as u64,
            "a file that is not the session's journal is unchanged"
        );
        return;
    };
    let before = verified.unwrap();
    assert_eq!(opened.torn_bytes, before.torn_bytes, "exactly the torn bytes are cut off");
    let body = EventBody::SessionRecovered(SessionRecovered { interrupted: Vec::new(), torn_bytes: 0 });
    match opened.journal.append(EventDraft::daemon(body)) {
        Ok(event) => {
            assert_eq!(event.sequence, before.records + 1, "the next sequence number");
            assert_eq!(verify_journal(&path).unwrap().records, event.sequence, "the journal is still valid");
        }
        Err(JournalError::Ended) => assert!(before.ended, "only an ended journal rejects records"),
        Err(error) => panic!("a valid journal rejects a record: {error}"),
    }
}

/// Returns an in-memory file with a path; no other file can be written beside it.
fn in_memory(data: &[u8]) -> (std::fs::File, PathBuf) {
    let mut file = std::fs::File::from(rustix::fs::memfd_create("journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all(data).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}
