//! A session that goes on where another stands.

use protocol::{SessionId, SessionInfo};

use crate::left::Left;
use crate::plan::Plan;
use crate::shelf::blocking;
use crate::{SessionError, Sessions};

impl Sessions {
    /// Makes a session that goes on where another stands: the same agent with the same memory, in a sandbox of its
    /// own. The other is left as it is; of one that has ended no memory is left.
    pub async fn fork(
        &self,
        id: &SessionId,
        new: SessionId,
        title: Option<String>,
    ) -> Result<SessionInfo, SessionError> {
        let plan = self.plan_of(id).await?.fork(new.clone(), title, self.get(id)?.event_count);
        if self.host.shelf.index.get(&new).is_ok() {
            return Err(SessionError::AlreadyExists(new));
        }
        self.host.shelf.copy_memory(id, &new).await?;
        self.begin(new, plan).await
    }

    async fn plan_of(&self, id: &SessionId) -> Result<Plan, SessionError> {
        let record = self.host.shelf.index.get(id)?;
        let journal = self.journal(id)?;
        let left = blocking(move || Ok(Left::read(&*journal)?)).await?;
        let started = left.started.as_ref().filter(|_| !left.ended);
        let mut plan = Plan::resume(&self.host, &record, started.ok_or_else(|| SessionError::Ended(id.clone()))?);
        plan.native_session_id = self.told(record).native_session_id;
        plan.changes = left.changes;
        Ok(plan)
    }
}
