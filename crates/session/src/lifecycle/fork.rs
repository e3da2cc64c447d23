//! New sessions that start from the state of another one: forks and continuations.
//!
//! The journal of a session that has ended never grows. A continuation is therefore a session of its own: the same agent
//! with a copy of its memory, and the changes of the workspace. Its `session.started` names the session it continues.

use std::sync::Arc;

use policy::EffectivePolicy;
use protocol::{SessionId, SessionInfo};

use crate::lifecycle::{NO_AGENT, SessionPlan};
use crate::storage::{OpenState, refuse_damaged, run_blocking};
use crate::{ImportedSession, SessionError, Sessions};

impl Sessions {
    /// Creates a session that starts from the conversation of `id`: the same agent with a copy of its memory, in its
    /// own sandbox. The other session is unchanged. A session that has ended is continued, with its changes.
    pub async fn fork(
        &self,
        id: &SessionId,
        new: SessionId,
        title: Option<String>,
    ) -> Result<SessionInfo, SessionError> {
        let info = self.get(id)?;
        if info.ended {
            return self.continue_ended(id, new, None).await;
        }
        let plan = self.plan_of(id).await?.fork(new.clone(), title, info.event_count);
        if self.host.store.index.get(&new).is_ok() {
            return Err(SessionError::AlreadyExists(new));
        }
        self.host.store.copy_memory(id, &new).await?;
        self.start(new, plan).await
    }

    /// Creates the session `new`, which continues `id`: the same agent with its conversation, and the changes of the
    /// workspace. Fails for a session that has not ended, was imported, or replays another one, and when `policy` or the
    /// host's policy is not the one under which `id` ran.
    pub async fn continue_ended(
        &self,
        id: &SessionId,
        new: SessionId,
        policy: Option<Arc<EffectivePolicy>>,
    ) -> Result<SessionInfo, SessionError> {
        let info = self.get(id)?;
        if !info.ended {
            return Err(SessionError::NotEnded(id.clone()));
        }
        refuse_damaged(&self.host.store.index.get(id)?)?;
        let refuse = |why| Err(SessionError::NotSupported { field: "continue", why });
        if ImportedSession::find(self.directory(), id).is_some() {
            return refuse("an imported session is read-only: the bundle does not contain the agent's memory");
        }
        if info.agent == NO_AGENT {
            return refuse("the session ran commands and has no agent");
        }
        let mut plan = self.plan_of(id).await?.continuation(new.clone(), info.event_count);
        if plan.was_replay {
            return Err(SessionError::ReplayFinished(id.clone()));
        }
        if let Some(policy) = policy {
            plan.policy = self.host.hide_data_dir(policy, plan.directory.as_deref())?;
        }
        if self.host.store.index.get(&new).is_ok() {
            return Err(SessionError::AlreadyExists(new));
        }
        self.host.store.copy_memory(id, &new).await?;
        self.host.store.copy_changes(id, &new).await?;
        self.start(new, plan).await
    }

    async fn plan_of(&self, id: &SessionId) -> Result<SessionPlan, SessionError> {
        let record = self.host.store.index.get(id)?;
        let journal = self.journal(id)?;
        let open_state = run_blocking(move || Ok(OpenState::read(&*journal)?)).await?;
        let started = open_state.started.as_ref().ok_or_else(|| SessionError::Ended(id.clone()))?;
        let mut plan = SessionPlan::resume(&self.host, &record, started);
        plan.native_session_id = self.to_info(record).native_session_id;
        plan.policy_changes = open_state.policy_changes;
        Ok(plan)
    }
}
