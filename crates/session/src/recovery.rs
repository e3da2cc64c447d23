//! Taking over sessions whose host is gone.
//!
//! Only what was left open is written to: a thousand sessions at rest cost a look each, not a write.

use protocol::{Draft, Event, EventBody, SessionEndReason, SessionEnded, SessionId, TerminatedBy};
use store::{FileJournal, Journal, SessionChange, SessionRecord};

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
            Ok(false) | Err(SessionError::RunElsewhere(_)) => {}
            // One journal that cannot be read must not keep the others from going on.
            Err(error) => tracing::error!(session = %id, %error, "cannot recover a session"),
        }
    }
    Ok(recovered)
}

fn recover_one(shelf: &Shelf, orphan: &SessionRecord) -> Result<bool, SessionError> {
    let (journal, torn_bytes) = shelf.journal(&orphan.info.session_id)?;
    if torn_bytes == 0 && is_at_rest(&journal)? {
        return Ok(false);
    }
    adopt(shelf, orphan, &journal, torn_bytes)?;
    Ok(true)
}

/// Makes a session whose host is gone one of this process, and closes what it left open.
pub(crate) fn take_over(shelf: &Shelf, orphan: &SessionRecord) -> Result<SessionRecord, SessionError> {
    let (journal, torn_bytes) = shelf.journal(&orphan.info.session_id)?;
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
    shelf.index.update(&record.info.session_id, &SessionChange { event_count, outcome, ..SessionChange::default() })?;
    Ok(record)
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
    journal.append(Draft::daemon(EventBody::SessionEnded(ended)))?;
    Ok(reason)
}
