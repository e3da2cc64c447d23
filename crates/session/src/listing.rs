//! The list of sessions, and what is told of each.

use protocol::{SessionId, SessionInfo};
use store::{SessionListCursor, SessionRecord};

use crate::{SessionError, Sessions};

/// A part of the list of sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionListPage {
    /// Newest first.
    pub sessions: Vec<SessionInfo>,
    /// Where the list goes on, if it does.
    pub next: Option<SessionListCursor>,
}

impl Sessions {
    /// At most `limit` sessions, newest first, from the beginning or from where a page before ended.
    pub fn list(&self, from: Option<SessionListCursor>, limit: usize) -> Result<SessionListPage, SessionError> {
        self.host.shelf.late.catch_up(&self.host.shelf.index);
        let page = self.host.shelf.index.list(from, limit)?;
        let sessions = page.sessions.into_iter().map(|record| self.told(record)).collect();
        Ok(SessionListPage { sessions, next: page.next })
    }

    /// One session.
    pub fn get(&self, id: &SessionId) -> Result<SessionInfo, SessionError> {
        self.host.shelf.late.catch_up(&self.host.shelf.index);
        Ok(self.told(self.host.shelf.index.get(id)?))
    }

    /// The session a person means: its id, its name, the only beginning of an id, or `@last`.
    pub fn find(&self, reference: &str) -> Result<SessionInfo, SessionError> {
        Ok(self.told(self.host.shelf.index.find(reference)?))
    }

    pub(crate) fn told(&self, mut record: SessionRecord) -> SessionInfo {
        self.host.shelf.late.correct(&mut record);
        let elsewhere = record.outcome.is_none() && record.owner != *self.host.shelf.owner.id();
        let mut info = record.info;
        match self.host.seat(&info.session_id) {
            Some(seat) => seat.refresh(&mut info),
            // The list learns at the end of a turn how many events there are; the journal knows it before.
            None if elsewhere => {
                info.event_count = self.host.shelf.last_event(&info.session_id).unwrap_or(info.event_count);
            }
            None => {}
        }
        info
    }
}
