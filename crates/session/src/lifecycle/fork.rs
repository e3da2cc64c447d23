//! Forks: new sessions that start from the conversation of another session.

use protocol::{SessionId, SessionInfo};

use crate::lifecycle::SessionPlan;
use crate::storage::{OpenState, run_blocking};
use crate::{SessionError, Sessions};

impl Sessions {
    /// Creates a session that starts from the conversation of `id`: the same agent with a copy of its memory, in its
    /// own sandbox. The other session is unchanged. Fails for a session that has ended, because its memory is deleted.
    pub async fn fork(
        &self,
        id: &SessionId,
        new: SessionId,
        title: Option<String>,
    ) -> Result<SessionInfo, SessionError> {
        let plan = self.plan_of(id).await?.fork(new.clone(), title, self.get(id)?.event_count);
        if self.host.store.index.get(&new).is_ok() {
            return Err(SessionError::AlreadyExists(new));
        }
        self.host.store.copy_memory(id, &new).await?;
        self.start(new, plan).await
    }

    async fn plan_of(&self, id: &SessionId) -> Result<SessionPlan, SessionError> {
        let record = self.host.store.index.get(id)?;
        let journal = self.journal(id)?;
        let open_state = run_blocking(move || Ok(OpenState::read(&*journal)?)).await?;
        let started = open_state.started.as_ref().filter(|_| !open_state.ended);
        let mut plan =
            SessionPlan::resume(&self.host, &record, started.ok_or_else(|| SessionError::Ended(id.clone()))?);
        plan.native_session_id = self.to_info(record).native_session_id;
        plan.policy_changes = open_state.policy_changes;
        Ok(plan)
    }
}
