//! What must hold for any bytes where the journal of a session should be. A broken rule panics.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::{EventBody, EventDraft, SessionId, SessionRecovered};
use store::{FileJournal, Journal as _, JournalError, JournalReader, SystemClock, verify_journal};

/// Who reads, who checks and who goes on writing agree on what is a journal; what is none is told and never changed;
/// and what was appended to one leaves one.
pub(crate) fn journal(data: &[u8]) {
    let (file, path) = in_memory(data);
    let session = SessionId::new("s1").unwrap();
    let verified = verify_journal(&path);
    let reader = JournalReader::open(&path, session.clone()).unwrap();
    for (after, limit) in [(0, 1), (0, usize::MAX), (1, 2), (63, 5), (u64::MAX, 1)] {
        if let Ok(events) = reader.after(after, limit) {
            assert!(events.len() <= limit, "no more than was asked for");
            assert!(events.iter().zip(1..).all(|(event, place)| event.sequence == after + place), "in order");
        }
    }
    // A count that fails is told; one that succeeds may count what is damaged, for it does not look into lines.
    let _ = reader.last();
    let ours = verified.as_ref().is_ok_and(|found| found.session.as_ref().is_none_or(|id| *id == session));
    let opened = FileJournal::open(&path, session, Arc::new(SystemClock));
    assert_eq!(opened.is_ok(), ours, "who checks and who writes agree: {verified:?}");
    let Ok(opened) = opened else {
        assert_eq!(file.metadata().unwrap().len(), data.len() as u64, "what is no journal of ours stays as it is");
        return;
    };
    let before = verified.unwrap();
    assert_eq!(opened.torn_bytes, before.torn_bytes, "what was torn is cut, and no more");
    let body = EventBody::SessionRecovered(SessionRecovered { interrupted: Vec::new(), torn_bytes: 0 });
    match opened.journal.append(EventDraft::daemon(body)) {
        Ok(event) => {
            assert_eq!(event.sequence, before.records + 1, "the next number");
            assert_eq!(verify_journal(&path).unwrap().records, event.sequence, "it is still a journal");
        }
        Err(JournalError::Ended) => assert!(before.ended, "only the end is the end"),
        Err(error) => panic!("a journal that is one takes a record: {error}"),
    }
}

/// A file that has a path and no disk behind it, and for which no sidecar can be written.
fn in_memory(data: &[u8]) -> (std::fs::File, PathBuf) {
    let mut file = std::fs::File::from(rustix::fs::memfd_create("journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all(data).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}
