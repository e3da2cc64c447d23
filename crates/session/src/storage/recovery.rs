//! Recovery of sessions whose host process has died.
//!
//! A damaged journal is moved unchanged to the quarantine folder, and its session is over; other sessions continue.
//! Only sessions with open state are written, so a thousand idle sessions cost a read each and no write.

use std::sync::Arc;

use protocol::{
    Event, EventBody, EventDraft, SessionEndReason, SessionEnded, SessionId, SessionInfo, SessionStatus, TerminatedBy,
};
use store::{
    FileJournal, Journal, JournalError, LineDefect, SessionOutcome, SessionPatch, SessionRecord, SessionTally,
};

use crate::SessionError;
use crate::storage::{OpenState, SessionStore, last_sequence};

/// Closes the open state of sessions of dead hosts. Returns the sessions that had any.
pub(crate) fn recover_orphans(store: &SessionStore) -> Result<Vec<SessionId>, SessionError> {
    let mut recovered = Vec::new();
    for orphan in store.index.orphans()? {
        let id = orphan.info.session_id.clone();
        match recover_one(store, &orphan) {
            Ok(true) => recovered.push(id),
            Ok(false) | Err(SessionError::RunByAnotherProcess(_) | SessionError::Damaged { .. }) => {}
            // A journal that cannot be read must not keep other sessions from recovering.
            Err(error) => tracing::error!(session = %id, %error, "cannot recover a session"),
        }
    }
    Ok(recovered)
}

fn recover_one(store: &SessionStore, orphan: &SessionRecord) -> Result<bool, SessionError> {
    let recover = || {
        let (journal, torn_bytes) = open(store, orphan)?;
        if torn_bytes == 0 && is_idle(&journal)? {
            return Ok(false);
        }
        adopt(store, orphan, &journal, torn_bytes)?;
        Ok(true)
    };
    recover().map_err(|error| quarantine_if_damaged(store, &orphan.info.session_id, error))
}

/// Opens a journal. Fails when the journal has fewer events than the index knows.
fn open(store: &SessionStore, orphan: &SessionRecord) -> Result<(Arc<FileJournal>, u64), SessionError> {
    let path = store.directory().journal(&orphan.info.session_id);
    let expected = orphan.info.event_count;
    let missing = |found: u64, byte: u64| {
        let defect = LineDefect::Missing { expected, found };
        SessionError::Journal(JournalError::Damaged { path: path.clone(), line: found + 1, byte, defect })
    };
    // Opening the journal would create the file.
    if expected > 0 && !path.exists() {
        return Err(missing(0, 0));
    }
    let (journal, torn_bytes) = store.journal(&orphan.info.session_id)?;
    // The index gets the event count after the events are on disk, so the count is never too high.
    if last_sequence(&*journal) < expected {
        return Err(missing(last_sequence(&*journal), std::fs::metadata(&path).map_or(0, |file| file.len())));
    }
    Ok((journal, torn_bytes))
}

/// Quarantines the journal and ends the session if `error` says that the journal is damaged. Returns the error to
/// report.
pub(crate) fn quarantine_if_damaged(store: &SessionStore, id: &SessionId, error: SessionError) -> SessionError {
    let SessionError::Journal(JournalError::Damaged { defect, line, .. }) = &error else { return error };
    let defect = format!("line {line}: {defect}");
    let quarantine = match store.quarantine(id) {
        Ok(path) => path.display().to_string(),
        // A missing journal cannot be moved.
        Err(error) => format!("not moved: {}", base::error_chain(&error)),
    };
    let patch = SessionPatch { outcome: Some(SessionOutcome::Damaged), ..SessionPatch::default() };
    tracing::error!(session = %id, %defect, quarantine, "the journal is damaged; the session has ended");
    match store.index.update(id, &patch) {
        Ok(_) => SessionError::Damaged { id: id.clone(), defect },
        Err(error) => error.into(),
    }
}

/// Fails for a session whose journal is in quarantine.
pub(crate) fn refuse_damaged(record: &SessionRecord) -> Result<(), SessionError> {
    if record.outcome == Some(SessionOutcome::Damaged) { Err(damaged_error(&record.info.session_id)) } else { Ok(()) }
}

/// Returns the error for a session whose journal is in quarantine.
pub(crate) fn damaged_error(id: &SessionId) -> SessionError {
    let defect = "it was moved to the folder `quarantine` of the data directory, and the log has the cause".to_owned();
    SessionError::Damaged { id: id.clone(), defect }
}

/// Makes this process the owner of a session of a dead host, and closes its open state.
pub(crate) fn take_over(store: &SessionStore, orphan: &SessionRecord) -> Result<SessionRecord, SessionError> {
    let (journal, torn_bytes) = open(store, orphan)?;
    adopt(store, orphan, &journal, torn_bytes)
}

fn adopt(
    store: &SessionStore,
    orphan: &SessionRecord,
    journal: &FileJournal,
    torn_bytes: u64,
) -> Result<SessionRecord, SessionError> {
    let record = store.index.adopt(orphan, store.owner.id())?;
    let mut open_state = OpenState::read(journal)?;
    let outcome = match last_event(journal)?.map(|event| event.draft.body) {
        Some(EventBody::SessionEnded(ended)) => Some(ended.reason),
        _ if open_state.started.is_none() => Some(end_unstarted(journal)?),
        _ => {
            open_state.close(journal, "host_died", torn_bytes)?;
            None
        }
    };
    let (event_count, outcome) = (Some(last_sequence(journal)), outcome.map(Into::into));
    let SessionInfo { turns, cost_picos, denials, .. } = record.info;
    // The host may have died before it added the counts of its last turn. The end of that turn was recorded just now.
    journal.take_tally();
    let tally = OpenState::read(journal)?.tally.since(SessionTally { turns, cost_picos, denials });
    let patch = SessionPatch { event_count, outcome, tally, ..SessionPatch::default() };
    Ok(store.index.update(&record.info.session_id, &patch)?)
}

/// Writes the recorded end of a session to the index, which the disk had no space for before.
pub(crate) fn index_recorded_end(
    store: &SessionStore,
    id: &SessionId,
    journal: &FileJournal,
) -> Result<(), SessionError> {
    if let Some(EventBody::SessionEnded(ended)) = last_event(journal)?.map(|event| event.draft.body) {
        let (event_count, outcome) = (Some(last_sequence(journal)), Some(ended.reason.into()));
        store.record_end(id, SessionPatch { event_count, outcome, ..SessionPatch::default() });
    }
    Ok(())
}

/// Returns whether nothing is open, judging by the last event.
fn is_idle(journal: &FileJournal) -> Result<bool, SessionError> {
    let body = last_event(journal)?.map(|event| event.draft.body);
    Ok(match body {
        Some(EventBody::SessionStarted(_) | EventBody::TurnEnded(_) | EventBody::SessionRecovered(_)) => true,
        Some(EventBody::SessionStatus(now)) => matches!(now.status, SessionStatus::Idle | SessionStatus::Asleep),
        _ => false,
    })
}

fn last_event(journal: &FileJournal) -> Result<Option<Event>, SessionError> {
    Ok(journal.after(last_sequence(journal).saturating_sub(1), 1)?.pop())
}

/// Records the end of a session whose host died before the session started.
fn end_unstarted(journal: &FileJournal) -> Result<SessionEndReason, SessionError> {
    let (reason, terminated_by) = (SessionEndReason::Error, TerminatedBy::Daemon);
    let message = Some("the host died while it created the session".to_owned());
    let ended = SessionEnded { reason, terminated_by, message, exit_code: None, stderr: None };
    journal.append(EventDraft::daemon(EventBody::SessionEnded(ended)))?;
    Ok(reason)
}
