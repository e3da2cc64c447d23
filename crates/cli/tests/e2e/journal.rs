//! A journal as it stands on disk.

use std::path::{Path, PathBuf};

use protocol::{Event, EventBody, SessionEndReason, SessionId};
use store::JournalReader;

/// Where the journal of `session` is.
pub(crate) fn path(data: &Path, session: &str) -> PathBuf {
    data.join("trajectory").join(format!("{session}.jsonl"))
}

/// Every event on disk, after the numbers and the hash chain were checked.
#[track_caller]
pub(crate) fn read(data: &Path, session: &str) -> Vec<Event> {
    let path = path(data, session);
    let verified = store::verify(&path).unwrap();
    let reader = JournalReader::open(path, SessionId::new(session).unwrap()).unwrap();
    let events = reader.after(0, usize::MAX).unwrap();
    assert_eq!(events.len() as u64, verified.records, "the journal of {session} holds less than it says");
    events
}

/// The last that happened in `session` is that somebody ended it.
#[track_caller]
pub(crate) fn check_terminated(data: &Path, session: &str) {
    let events = read(data, session);
    let EventBody::SessionEnded(ended) = &events.last().unwrap().draft.body else {
        panic!("{session} did not end: {:?}", events.last());
    };
    assert_eq!(ended.reason, SessionEndReason::Terminated);
}

/// An event as a client is sent it.
pub(crate) fn sent(event: &Event) -> String {
    let mut event = event.clone();
    event.draft.raw = None;
    serde_json::to_string(&event).unwrap()
}
