//! Reading journals from disk.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use protocol::{Event, EventBody, SessionEndReason, SessionId};
use serde_json::Value;
use store::{JournalReader, VerifiedJournal};

use testkit::VivFixture;

/// Returns the path of the journal of `session`.
pub(crate) fn path(data: &Path, session: &str) -> PathBuf {
    data.join("trajectory").join(format!("{session}.jsonl"))
}

/// Returns all events on disk after checking sequence numbers and hash chain. The session may still be writing.
#[track_caller]
pub(crate) fn read(data: &Path, session: &str) -> Vec<Event> {
    let path = path(data, session);
    let before = Look::at(&path);
    let reader = JournalReader::open(&path, SessionId::new(session).unwrap()).unwrap();
    let events = reader.after(0, usize::MAX).unwrap();
    let after = Look::at(&path);
    let count = events.len() as u64;
    let whole = (before.verified.records..=after.verified.records).contains(&count) && before.inode == after.inode;
    let last = events.last().map(|event| (event.sequence, &event.time, event.draft.body.kind()));
    assert!(whole, "of {session} {count} events were read, up to {last:?}, between {before:?} and {after:?}");
    events
}

/// Content of a journal at one moment.
#[derive(Debug)]
struct Look {
    inode: u64,
    #[expect(dead_code, reason = "for who reads why a test failed")]
    bytes: u64,
    verified: VerifiedJournal,
}

impl Look {
    #[track_caller]
    fn at(path: &Path) -> Self {
        let file = std::fs::metadata(path).unwrap();
        Self { inode: file.ino(), bytes: file.len(), verified: store::verify_journal(path).unwrap() }
    }
}

/// Returns the recorded events of type `kind` of the last session of `place`.
#[track_caller]
pub(crate) fn of_kind(place: &VivFixture, kind: &str) -> Vec<Value> {
    let told = place.run(&["--json", "sessions", "events", "@last"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    let events = told.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

/// Checks that the last event of `session` is its termination.
#[track_caller]
pub(crate) fn check_terminated(data: &Path, session: &str) {
    let events = read(data, session);
    let EventBody::SessionEnded(ended) = &events.last().unwrap().draft.body else {
        panic!("{session} did not end: {:?}", events.last());
    };
    assert_eq!(ended.reason, SessionEndReason::Terminated);
}

/// Returns an event in the form that clients receive.
pub(crate) fn sent(event: &Event) -> String {
    let mut event = event.clone();
    event.draft.raw = None;
    serde_json::to_string(&event).unwrap()
}
