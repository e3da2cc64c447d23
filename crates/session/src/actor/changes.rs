//! What the agent changed, kept where it outlives the sandbox.
//!
//! The layer that holds changes is in memory and ends with the host's process. It is saved when a turn ends
//! and when the agent is gone, and each time the record tells what differs from the host.

use protocol::{EventBody, WorkspaceChanged};
use sandbox::{ChangeKind, OverlayLayers, Sandbox, SavedChanges};

use super::Actor;
use crate::SessionError;
use crate::live::Live;
use crate::shelf::blocking;

impl Actor {
    /// Saves what the running sandbox holds.
    pub(super) async fn keep_changes(&mut self) -> Result<(), SessionError> {
        match self.live.as_ref().and_then(Live::layers) {
            Some(layers) => self.keep(move |into| SavedChanges::save(&layers, into)).await,
            None => Ok(()),
        }
    }

    /// Saves what a sandbox held, now that nothing writes to it any more.
    pub(super) async fn keep_last_changes(&mut self, layers: OverlayLayers) -> Result<(), SessionError> {
        self.keep(move |into| SavedChanges::save_final(&layers, into)).await
    }

    /// Puts what earlier sandboxes of this session changed into its next one. Where that cannot be, it is set
    /// aside: what the next one saves must not take the place of work nobody has looked at.
    pub(super) async fn restore_changes(&mut self, sandbox: &dyn Sandbox) -> Result<(), SessionError> {
        let from = self.host.shelf.changes(&self.plan.id);
        let saved = match blocking(move || Ok(SavedChanges::open(&from))).await? {
            Ok(saved) => saved,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(SessionError::Changes(error)),
        };
        if sandbox.layers().is_some_and(|layers| layers.lower == saved.workspace()) {
            match saved.restore(sandbox).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(session = %self.plan.id, %error, "earlier changes are set aside"),
            }
        }
        self.host.shelf.set_changes_aside(&self.plan.id, self.plan.epoch).await
    }

    async fn keep(
        &mut self,
        save: impl FnOnce(&std::path::Path) -> std::io::Result<SavedChanges> + Send + 'static,
    ) -> Result<(), SessionError> {
        let into = self.host.shelf.changes(&self.plan.id);
        let told = blocking(move || {
            let saved = save(&into).map_err(SessionError::Changes)?;
            Ok(summary(&saved))
        })
        .await?;
        let is_empty = told.added.is_empty() && told.modified.is_empty() && told.deleted.is_empty();
        if self.told_changes.as_ref() != Some(&told) && !(is_empty && self.told_changes.is_none()) {
            self.recorder.daemon(EventBody::WorkspaceChanged(told.clone()))?;
            self.told_changes = Some(told);
        }
        Ok(())
    }
}

/// What differs from the host, by kind.
pub(crate) fn summary(saved: &SavedChanges) -> WorkspaceChanged {
    let of = |kind: ChangeKind| {
        let paths = saved.changes().filter(|change| change.kind == kind);
        paths.map(|change| change.path.to_string_lossy().into_owned()).collect()
    };
    WorkspaceChanged {
        added: of(ChangeKind::Added),
        modified: of(ChangeKind::Modified),
        deleted: of(ChangeKind::Deleted),
    }
}
