//! Lists and looks up sessions in the index.

use protocol::{SessionId, SessionInfo, SessionStatus};
use store::{SessionFilter, SessionListCursor, SessionRecord};

use crate::{SessionError, Sessions};

/// One page of the session list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionListPage {
    /// The sessions, newest first.
    pub sessions: Vec<SessionInfo>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<SessionListCursor>,
}

impl Sessions {
    /// Returns at most `limit` sessions, newest first, from the start or from a cursor.
    pub fn list(&self, from: Option<SessionListCursor>, limit: usize) -> Result<SessionListPage, SessionError> {
        self.list_filtered(&SessionFilter::default(), from, limit)
    }

    /// Like [`Self::list`], with only the sessions that `filter` admits.
    pub fn list_filtered(
        &self,
        filter: &SessionFilter,
        from: Option<SessionListCursor>,
        limit: usize,
    ) -> Result<SessionListPage, SessionError> {
        self.host.store.pending_updates.write_to(&self.host.store.index);
        let page = self.host.store.index.list_filtered(filter, from, limit)?;
        let sessions = page.sessions.into_iter().map(|record| self.to_info(record)).collect();
        Ok(SessionListPage { sessions, next: page.next })
    }

    /// Returns one session; fails when it does not exist.
    pub fn get(&self, id: &SessionId) -> Result<SessionInfo, SessionError> {
        self.host.store.pending_updates.write_to(&self.host.store.index);
        Ok(self.to_info(self.host.store.index.get(id)?))
    }

    /// Returns the session that `reference` names: an id, a title, a unique prefix of an id, or `@last`.
    pub fn find(&self, reference: &str) -> Result<SessionInfo, SessionError> {
        Ok(self.to_info(self.host.store.index.find(reference)?))
    }

    /// Returns the public view of an index record, updated from the running session.
    pub(crate) fn to_info(&self, mut record: SessionRecord) -> SessionInfo {
        self.host.store.pending_updates.apply_to(&mut record);
        let is_foreign = record.outcome.is_none() && record.owner != *self.host.store.owner.id();
        let asleep = is_foreign
            && record.info.status != SessionStatus::Asleep
            && self.host.store.index.is_orphan(&record).unwrap_or_default();
        let mut info = record.info;
        if asleep {
            info.status = SessionStatus::Asleep;
        }
        match self.host.handle(&info.session_id) {
            Some(handle) => handle.refresh(&mut info),
            // The index gets the event count at the end of a turn; the journal has it before.
            None if is_foreign => {
                info.event_count = self.host.store.last_event(&info.session_id).unwrap_or(info.event_count);
            }
            None => {}
        }
        info
    }
}
