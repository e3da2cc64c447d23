//! The end of a turn whose session has no disk space left.
//!
//! The session stays open: its events can be read, and it continues when the limit is raised.

use protocol::{ErrorData, EventBody};
use serde_json::json;
use store::StorageExceeded;

use super::Actor;
use crate::SessionError;
use crate::lifecycle::TurnInput;

impl Actor {
    /// Fails if no turn may start, because the session has used its disk space or the disk has little left.
    pub(super) fn check_storage(&self) -> Result<(), SessionError> {
        let (Some(storage), Some(journal)) = (self.recorder.storage(), self.handle.journal.get()) else {
            return Ok(());
        };
        storage.check(journal.bytes()).inspect_err(|exceeded| {
            tracing::warn!(session = %self.plan.id, "refused a turn: {exceeded}");
        })?;
        Ok(())
    }

    /// Ends the turn after an operation failed because it could not be recorded.
    pub(super) async fn handle_failure(&mut self, error: &SessionError) {
        if let SessionError::Storage(exceeded) = error
            && self.end_for_storage(exceeded).await.is_ok()
        {
            return;
        }
        self.handle_journal_failure(error).await;
    }

    /// Kills the agent, and records the limit and the end of the turn.
    async fn end_for_storage(&mut self, exceeded: &StorageExceeded) -> Result<(), SessionError> {
        tracing::warn!(session = %self.plan.id, "the turn ends: {exceeded}");
        // Killed first, so that the agent cannot use the space that its end needs.
        self.end_agent().await?;
        self.recorder.daemon(EventBody::Error(ErrorData {
            message: exceeded.to_string(),
            code: Some(exceeded.code().as_str().to_owned()),
            details: Some(json!({
                "limit": format!("limits.{}", exceeded.limit.key()),
                "found": exceeded.found,
                "allowed": exceeded.allowed,
            })),
        }))?;
        self.finish_turn(TurnInput::Exited, "storage_limit").await?;
        self.publish_snapshot();
        Ok(())
    }
}
