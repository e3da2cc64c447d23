//! Saves the agent's workspace changes outside the sandbox.
//!
//! The overlay layer with the changes is in memory and dies with the host. It is saved when a turn ends and when the
//! agent has exited. Each save that finds new differences records `workspace.changed`.

use protocol::{EventBody, WorkspaceChanged};
use sandbox::{ChangeKind, OverlayLayers, Sandbox, SavedChanges};

use super::Actor;
use crate::SessionError;
use crate::lifecycle::AgentProcess;
use crate::storage::run_blocking;

impl Actor {
    /// Saves the changes of the running sandbox.
    pub(super) async fn save_changes(&mut self) -> Result<(), SessionError> {
        match self.agent.as_ref().and_then(AgentProcess::layers) {
            Some(layers) => self.save_and_record(move |into| SavedChanges::save(&layers, into)).await,
            None => Ok(()),
        }
    }

    /// Saves the changes of a sandbox whose processes are dead.
    pub(super) async fn save_final_changes(&mut self, layers: OverlayLayers) -> Result<(), SessionError> {
        self.save_and_record(move |into| SavedChanges::save_final(&layers, into)).await
    }

    /// Restores the saved changes into a new sandbox. Changes that cannot be restored are moved aside, so that the
    /// next save does not overwrite work that nobody has reviewed.
    pub(super) async fn restore_changes(&mut self, sandbox: &dyn Sandbox) -> Result<(), SessionError> {
        let from = self.host.store.changes(&self.plan.id);
        let saved = match run_blocking(move || Ok(SavedChanges::open(&from))).await? {
            Ok(saved) => saved,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(SessionError::Changes(error)),
        };
        if sandbox.layers().is_some_and(|layers| layers.lower == saved.workspace()) {
            match saved.restore(sandbox).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::warn!(session = %self.plan.id, %error, "cannot restore earlier changes; moving them aside");
                }
            }
        }
        self.host.store.move_changes_aside(&self.plan.id, self.plan.epoch).await
    }

    async fn save_and_record(
        &mut self,
        save: impl FnOnce(&std::path::Path) -> std::io::Result<SavedChanges> + Send + 'static,
    ) -> Result<(), SessionError> {
        let into = self.host.store.changes(&self.plan.id);
        let changes = run_blocking(move || {
            let saved = save(&into).map_err(SessionError::Changes)?;
            Ok(summarize_changes(&saved))
        })
        .await?;
        let is_empty = changes.added.is_empty() && changes.modified.is_empty() && changes.deleted.is_empty();
        if self.recorded_changes.as_ref() != Some(&changes) && !(is_empty && self.recorded_changes.is_none()) {
            self.recorder.daemon(EventBody::WorkspaceChanged(changes.clone()))?;
            self.recorded_changes = Some(changes);
        }
        Ok(())
    }
}

/// Returns the paths that differ from the host, by kind of change.
pub(crate) fn summarize_changes(saved: &SavedChanges) -> WorkspaceChanged {
    let paths_of = |kind: ChangeKind| {
        let paths = saved.changes().filter(|change| change.kind == kind);
        paths.map(|change| change.path.to_string_lossy().into_owned()).collect()
    };
    WorkspaceChanged {
        added: paths_of(ChangeKind::Added),
        modified: paths_of(ChangeKind::Modified),
        deleted: paths_of(ChangeKind::Deleted),
    }
}
