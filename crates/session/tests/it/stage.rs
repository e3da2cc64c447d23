//! A test host with its own data directory, and helpers that wait for events.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use protocol::{CreateSession, Event, EventBody, SessionId, SessionInfo, TurnOutcome};
use session::{AcceptedMessage, HostBudget, SessionError, SessionOptions, SessionTimeouts, Sessions, UserMessage};
use store::JournalTail;
use tempfile::TempDir;
use testkit::SessionHostFixture;

/// Sessions with their own data directory.
pub(crate) struct Stage {
    pub(crate) directory: Arc<TempDir>,
    pub(crate) sessions: Sessions,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(SessionTimeouts::default())
    }

    pub(crate) fn with(timing: SessionTimeouts) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), timing)
    }

    /// Opens sessions on an existing data directory.
    pub(crate) fn on(directory: Arc<TempDir>, timing: SessionTimeouts) -> Self {
        let sessions = SessionHostFixture::new(directory.path()).timeouts(timing).open();
        Self { directory, sessions }
    }

    /// Opens sessions on an existing data directory with another host budget.
    pub(crate) fn within(directory: Arc<TempDir>, budget: HostBudget) -> Self {
        let timing = SessionTimeouts { free_space_check: Duration::from_millis(20), ..SessionTimeouts::default() };
        let sessions = SessionHostFixture::new(directory.path()).timeouts(timing).budget(budget).open();
        Self { directory, sessions }
    }

    /// Returns a workspace directory, created if missing.
    pub(crate) fn workspace(&self) -> PathBuf {
        let path = self.directory.path().join("workspace");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Creates a session of the mock agent.
    pub(crate) async fn session(&self, name: &str) -> SessionId {
        self.create(name, request()).await.unwrap().session_id
    }

    pub(crate) async fn create(&self, name: &str, request: CreateSession) -> Result<SessionInfo, SessionError> {
        let options = SessionOptions::default();
        self.sessions.create(id(name), request, options).await
    }

    pub(crate) async fn say(&self, id: &SessionId, text: &str) -> AcceptedMessage {
        self.sessions.send(id, UserMessage::text(text)).await.unwrap()
    }

    /// Sends a message and returns the events up to the end of its turn.
    pub(crate) async fn turn(&self, id: &SessionId, text: &str) -> Vec<Event> {
        let accepted = self.say(id, text).await;
        self.until(id, accepted.sequence, |event| {
            event.draft.turn_id.as_ref() == Some(&accepted.turn_id)
                && matches!(event.draft.body, EventBody::TurnEnded(_))
        })
        .await
    }

    /// Returns the events after `sequence` up to the first that is `wanted`.
    pub(crate) async fn until(&self, id: &SessionId, sequence: u64, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut tail = JournalTail::new(self.sessions.journal(id).unwrap(), sequence);
        let mut seen: Vec<Event> = Vec::new();
        loop {
            let events = tail.next(1).await.unwrap();
            assert!(!events.is_empty(), "the session ended before that: {:#?}", kinds(&seen));
            let found = events.iter().any(&wanted);
            seen.extend(events);
            if found {
                return seen;
            }
        }
    }

    /// Returns the first event of this type after `sequence`.
    pub(crate) async fn until_type(&self, id: &SessionId, sequence: u64, kind: &str) -> Event {
        self.until(id, sequence, |event| type_of(event) == kind).await.pop().unwrap()
    }

    pub(crate) fn events(&self, id: &SessionId) -> Vec<Event> {
        self.sessions.journal(id).unwrap().after(0, usize::MAX).unwrap()
    }
}

pub(crate) fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

pub(crate) fn request() -> CreateSession {
    CreateSession { agent: "mock".to_owned(), ..CreateSession::default() }
}

pub(crate) fn in_directory(path: &Path) -> CreateSession {
    CreateSession { directory: Some(path.to_str().unwrap().to_owned()), ..request() }
}

pub(crate) fn type_of(event: &Event) -> String {
    serde_json::to_value(&event.draft.body).unwrap()["type"].as_str().unwrap().to_owned()
}

pub(crate) fn kinds(events: &[Event]) -> Vec<String> {
    events.iter().map(type_of).collect()
}

/// Returns the outcome of the last turn.
pub(crate) fn outcome(events: &[Event]) -> Option<TurnOutcome> {
    events.iter().rev().find_map(|event| match &event.draft.body {
        EventBody::TurnEnded(turn) => turn.outcome,
        _ => None,
    })
}
