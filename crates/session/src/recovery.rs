//! Taking over sessions whose host is gone.
//!
//! A journal that is not what was written is put aside, as it is, and its session is over; the others go on.
//! Only what was left open is written to: a thousand sessions at rest cost a look each, not a write.

use std::sync::Arc;

use protocol::{Event, EventBody, EventDraft, SessionEndReason, SessionEnded, SessionId, TerminatedBy};
use store::{FileJournal, Journal, JournalError, LineDefect, SessionOutcome, SessionPatch, SessionRecord};

use crate::SessionError;
use crate::left::Left;
use crate::shelf::{Shelf, last};

/// Closes what killed hosts left open; the sessions that had something open.
pub(crate) fn recover(shelf: &Shelf) -> Result<Vec<SessionId>, SessionError> {
    let mut recovered = Vec::new();
    for orphan in shelf.index.orphans()? {
        let id = orphan.info.session_id.clone();
        match recover_one(shelf, &orphan) {
            Ok(true) => recovered.push(id),
            Ok(false) | Err(SessionError::RunByAnotherProcess(_) | SessionError::Damaged { .. }) => {}
            // One journal that cannot be read must not keep the others from going on.
            Err(error) => tracing::error!(session = %id, %error, "cannot recover a session"),
        }
    }
    Ok(recovered)
}

fn recover_one(shelf: &Shelf, orphan: &SessionRecord) -> Result<bool, SessionError> {
    let looked = || {
        let (journal, torn_bytes) = open(shelf, orphan)?;
        if torn_bytes == 0 && is_at_rest(&journal)? {
            return Ok(false);
        }
        adopt(shelf, orphan, &journal, torn_bytes)?;
        Ok(true)
    };
    looked().map_err(|error| set_damaged_aside(shelf, &orphan.info.session_id, error))
}

/// Opens a journal that must hold at least what the list of sessions knows of.
fn open(shelf: &Shelf, orphan: &SessionRecord) -> Result<(Arc<FileJournal>, u64), SessionError> {
    let path = shelf.directory().journal(&orphan.info.session_id);
    let expected = orphan.info.event_count;
    let missing = |found: u64, byte: u64| {
        let flaw = LineDefect::Missing { expected, found };
        SessionError::Journal(JournalError::Damaged { path: path.clone(), line: found + 1, byte, flaw })
    };
    // Opening would make it.
    if expected > 0 && !path.exists() {
        return Err(missing(0, 0));
    }
    let (journal, torn_bytes) = shelf.journal(&orphan.info.session_id)?;
    // The list is told of events after they are on disk, so it never knows of more than there are.
    if last(&*journal) < expected {
        return Err(missing(last(&*journal), std::fs::metadata(&path).map_or(0, |file| file.len())));
    }
    Ok((journal, torn_bytes))
}

/// Where `error` says that a journal is not what was written: puts it aside as it is, tells, and ends the session.
pub(crate) fn set_damaged_aside(shelf: &Shelf, id: &SessionId, error: SessionError) -> SessionError {
    let SessionError::Journal(JournalError::Damaged { flaw, line, .. }) = &error else { return error };
    let flaw = format!("line {line}: {flaw}");
    let aside = match shelf.quarantine(id) {
        Ok(aside) => aside.display().to_string(),
        // One that is gone cannot be put aside.
        Err(error) => format!("nowhere: {error}"),
    };
    let change = SessionPatch { outcome: Some(SessionOutcome::Damaged), ..SessionPatch::default() };
    tracing::error!(session = %id, %flaw, aside, "the journal of a session is damaged and was put aside");
    match shelf.index.update(id, &change) {
        Ok(_) => SessionError::Damaged { id: id.clone(), flaw },
        Err(error) => error.into(),
    }
}

/// A session whose journal was put aside has nothing to show and cannot go on.
pub(crate) fn refuse_damaged(record: &SessionRecord) -> Result<(), SessionError> {
    if record.outcome == Some(SessionOutcome::Damaged) { Err(damaged(&record.info.session_id)) } else { Ok(()) }
}

/// What to tell somebody who asks for a session whose journal was put aside.
pub(crate) fn damaged(id: &SessionId) -> SessionError {
    let flaw =
        "what was left of it is in the folder `quarantine` of the data directory, and the log says why".to_owned();
    SessionError::Damaged { id: id.clone(), flaw }
}

/// Makes a session whose host is gone one of this process, and closes what it left open.
pub(crate) fn take_over(shelf: &Shelf, orphan: &SessionRecord) -> Result<SessionRecord, SessionError> {
    let (journal, torn_bytes) = open(shelf, orphan)?;
    adopt(shelf, orphan, &journal, torn_bytes)
}

fn adopt(
    shelf: &Shelf,
    orphan: &SessionRecord,
    journal: &FileJournal,
    torn_bytes: u64,
) -> Result<SessionRecord, SessionError> {
    let record = shelf.index.adopt(orphan, shelf.owner.id())?;
    let mut left = Left::read(journal)?;
    let outcome = match last_event(journal)?.map(|event| event.draft.body) {
        Some(EventBody::SessionEnded(ended)) => Some(ended.reason),
        _ if left.started.is_none() => Some(end_unborn(journal)?),
        _ => {
            left.close(journal, "host_died", torn_bytes)?;
            None
        }
    };
    let (event_count, outcome) = (Some(last(journal)), outcome.map(Into::into));
    shelf.index.update(&record.info.session_id, &SessionPatch { event_count, outcome, ..SessionPatch::default() })?;
    Ok(record)
}

/// Brings the list of sessions up to date with a journal that has ended: there was no room for it then.
pub(crate) fn note_end(shelf: &Shelf, id: &SessionId, journal: &FileJournal) -> Result<(), SessionError> {
    if let Some(EventBody::SessionEnded(ended)) = last_event(journal)?.map(|event| event.draft.body) {
        let (event_count, outcome) = (Some(last(journal)), Some(ended.reason.into()));
        shelf.note_end(id, SessionPatch { event_count, outcome, ..SessionPatch::default() });
    }
    Ok(())
}

/// Whether nothing is open: the last thing that happened was the end of something.
fn is_at_rest(journal: &FileJournal) -> Result<bool, SessionError> {
    let body = last_event(journal)?.map(|event| event.draft.body);
    Ok(matches!(body, Some(EventBody::SessionStarted(_) | EventBody::TurnEnded(_) | EventBody::SessionRecovered(_))))
}

fn last_event(journal: &FileJournal) -> Result<Option<Event>, SessionError> {
    Ok(journal.after(last(journal).saturating_sub(1), 1)?.pop())
}

/// The host died while the session was being made.
fn end_unborn(journal: &FileJournal) -> Result<SessionEndReason, SessionError> {
    let (reason, terminated_by) = (SessionEndReason::Error, TerminatedBy::Daemon);
    let message = Some("the host died while the session was being made".to_owned());
    let ended = SessionEnded { reason, terminated_by, message, exit_code: None, stderr: None };
    journal.append(EventDraft::daemon(EventBody::SessionEnded(ended)))?;
    Ok(reason)
}
