//! Changes of the network policy while a session runs.

use std::time::Duration;

use tokio::time::Instant;

use super::Actor;
use crate::SessionError;
use crate::lifecycle::SessionPolicyChange;

impl Actor {
    /// Changes the network policy. The change is recorded before it takes effect; connections that are no longer
    /// allowed are closed.
    pub(super) async fn change_policy(&mut self, change: SessionPolicyChange) -> Result<(), SessionError> {
        change.check(self.plan.policy_at(self.host.store.now_unix_secs()))?;
        self.recorder.daemon(change.event())?;
        self.plan.policy_changes.push(change);
        self.apply_policy();
        Ok(self.recorder.sync().await?)
    }

    /// Applies the policy that holds now, and sets the deadline of the next grant that expires.
    pub(super) fn apply_policy(&mut self) {
        let now = self.host.store.now_unix_secs();
        if let Some(agent) = &self.agent {
            agent.listeners().replace_policy(self.plan.policy_at(now));
        }
        let next_expiry = self
            .plan
            .policy_changes
            .iter()
            .filter_map(SessionPolicyChange::expires_unix_secs)
            .filter(|expires| *expires > now)
            .min();
        self.grant_deadline =
            next_expiry.and_then(|expires| Instant::now().checked_add(Duration::from_secs(expires - now)));
    }
}
