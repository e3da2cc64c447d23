//! What a running session may reach, and how that changes.

use std::time::Duration;

use tokio::time::Instant;

use super::Actor;
use crate::SessionError;
use crate::change::Change;

impl Actor {
    /// Changes what the session may reach. It is on record before it holds; what is under way and no longer allowed is
    /// cut.
    pub(super) async fn change(&mut self, change: Change) -> Result<(), SessionError> {
        change.check(self.plan.policy_at(self.host.shelf.now_unix_secs()))?;
        self.recorder.daemon(change.event())?;
        self.plan.changes.push(change);
        self.exchange_policy();
        Ok(self.recorder.sync().await?)
    }

    /// Lets what holds now hold, and notes when that ends.
    pub(super) fn exchange_policy(&mut self) {
        let now = self.host.shelf.now_unix_secs();
        if let Some(live) = &self.live {
            live.doors().exchange(self.plan.policy_at(now));
        }
        let ends =
            self.plan.changes.iter().filter_map(Change::expires_unix_secs).filter(|expires| *expires > now).min();
        self.grant_by = ends.and_then(|expires| Instant::now().checked_add(Duration::from_secs(expires - now)));
    }
}
