//! An in-memory journal for tests that can fail or pause its writes.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use protocol::{Event, EventBody, EventDraft, SessionId};
use store::{Journal, JournalError, StoredRange};
use tokio::sync::watch;

/// An in-memory journal that can fail or pause its writes.
pub(crate) struct TestJournal {
    events: Mutex<Vec<Event>>,
    last: watch::Sender<u64>,
    failing: AtomicBool,
    pause: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
}

/// Controls a paused write of the event that ends a call.
pub(crate) struct JournalPause {
    /// Receives a message when the write is reached.
    pub(crate) reached: mpsc::Receiver<()>,
    /// Continues the write.
    pub(crate) resume: mpsc::Sender<()>,
}

impl Default for TestJournal {
    fn default() -> Self {
        let (last, failing) = (watch::Sender::new(0), AtomicBool::new(false));
        Self { events: Mutex::default(), last, failing, pause: Mutex::default() }
    }
}

impl Journal for TestJournal {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        if self.failing.load(Ordering::SeqCst) {
            return Err(JournalError::Io {
                doing: "write",
                path: "s1.jsonl".into(),
                source: std::io::ErrorKind::StorageFull.into(),
            });
        }
        if drafts.iter().any(|draft| matches!(draft.body, EventBody::LlmCall(_)))
            && let Some((reached, resume)) = self.pause.lock().unwrap().take()
        {
            reached.send(()).unwrap();
            resume.recv().unwrap();
        }
        let mut events = self.events.lock().unwrap();
        let first = events.len() as u64 + 1;
        let (session, time) = (SessionId::new("s1").unwrap(), "2026-01-01T00:00:00Z".to_owned());
        events.extend((first..).zip(drafts).map(|(sequence, draft)| Event {
            event_id: format!("evt_{sequence}"),
            sequence,
            time: time.clone(),
            session_id: session.clone(),
            draft: draft.clone(),
        }));
        self.last.send_replace(events.len() as u64);
        Ok(StoredRange { session, first, time })
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        let events = self.events.lock().unwrap();
        Ok(events.iter().filter(|event| event.sequence > sequence).take(limit).cloned().collect())
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn sync(&self) -> Result<(), JournalError> {
        Ok(())
    }
}

impl TestJournal {
    /// Makes all further writes fail.
    pub(crate) fn fail_writes(&self) {
        self.failing.store(true, Ordering::SeqCst);
    }

    /// Pauses the write of the event that ends the next call.
    pub(crate) fn pause_before_call_end(&self) -> JournalPause {
        let ((reached_sender, reached), (resume, resume_receiver)) = (mpsc::channel(), mpsc::channel());
        *self.pause.lock().unwrap() = Some((reached_sender, resume_receiver));
        JournalPause { reached, resume }
    }

    /// Returns the types of the events so far.
    pub(crate) fn event_types(&self) -> Vec<String> {
        let events = self.after(0, usize::MAX).unwrap();
        events.iter().map(|event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned()).collect()
    }
}
