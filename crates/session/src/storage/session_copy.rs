//! Copies of a session's state, for sessions that start from it.

use std::path::Path;
use std::sync::Arc;

use protocol::SessionId;

use super::session_store::{SessionStore, ignore_not_found};
use crate::SessionError;
use crate::storage::run_blocking;

impl SessionStore {
    /// Copies the agent's memory to a fork.
    pub(crate) async fn copy_memory(self: &Arc<Self>, from: &SessionId, to: &SessionId) -> Result<(), SessionError> {
        let (from, to) = (self.memory(from), self.memory(to));
        run_blocking(move || {
            ignore_not_found(std::fs::copy(from, &to).map(drop)).inspect_err(|_| {
                // A partial copy is worse than none.
                let _ = std::fs::remove_file(to);
            })
        })
        .await
    }

    /// Copies the saved changes to a session that continues this one. They keep the state of the host on which they are
    /// based, so that later edits on the host are still conflicts.
    pub(crate) async fn copy_changes(self: &Arc<Self>, from: &SessionId, to: &SessionId) -> Result<(), SessionError> {
        let (from, to) = (self.changes(from), self.changes(to));
        run_blocking(move || {
            if !from.exists() {
                return Ok(());
            }
            ignore_not_found(copy_folder(&from, &to)).inspect_err(|_| {
                // A partial copy is worse than none.
                let _ = std::fs::remove_dir_all(to);
            })
        })
        .await
    }
}

/// Copies the directories, files and links below `from`. Contents are copied, so that neither session can change the other.
fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(entry.path())?, &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
