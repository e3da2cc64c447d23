//! Saves the agent's workspace changes outside the sandbox.
//!
//! The overlay layer with the changes is in memory and dies with the host. It is saved when a turn ends and when the
//! agent has exited. Each save that finds new differences makes a change set and records `workspace.changed`. Processes
//! that the agent leaves running at the end of a turn are listed there; their later writes belong to the next set.

use std::io;
use std::path::Path;

use protocol::{EventBody, LeftProcess, WorkspaceChanged};
use sandbox::{ChangeKind, OverlayLayers, Sandbox, SavedChanges, SetNote, is_inside_git_directory};

use super::Actor;
use crate::SessionError;
use crate::storage::run_blocking;

/// The most processes that an event lists.
const MAX_LEFT_PROCESSES: usize = 64;

impl Actor {
    /// Saves the changes of the running sandbox.
    pub(super) async fn save_changes(&mut self) -> Result<(), SessionError> {
        let Some(agent) = &self.agent else { return Ok(()) };
        let Some(layers) = agent.layers() else { return Ok(()) };
        let (sandbox, has_exited) = (agent.shared_sandbox(), agent.has_exited());
        let turn = self.turn_name();
        self.save_and_record(move |into| {
            let note = SetNote { turn, left_processes: left_processes(&*sandbox, has_exited) };
            let left = note.left_processes.clone();
            Ok((SavedChanges::save_with_note(&layers, into, note)?, left))
        })
        .await
    }

    /// Saves the changes of a sandbox whose processes are dead.
    pub(super) async fn save_final_changes(&mut self, layers: OverlayLayers) -> Result<(), SessionError> {
        let note = SetNote { turn: self.turn_name(), ..SetNote::default() };
        self.save_and_record(move |into| Ok((SavedChanges::save_final_with_note(&layers, into, note)?, Vec::new())))
            .await
    }

    fn turn_name(&self) -> Option<String> {
        self.recorder.current_turn().get().map(|turn| turn.to_string())
    }

    /// Restores the saved changes into a new sandbox. Changes that cannot be restored are moved aside, so that the
    /// next save does not overwrite work that nobody has reviewed.
    pub(super) async fn restore_changes(&mut self, sandbox: &dyn Sandbox) -> Result<(), SessionError> {
        let from = self.host.store.changes(&self.plan.id);
        let saved = match run_blocking(move || Ok(SavedChanges::open(&from))).await? {
            Ok(saved) => saved,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
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
        save: impl FnOnce(&Path) -> io::Result<(SavedChanges, Vec<LeftProcess>)> + Send + 'static,
    ) -> Result<(), SessionError> {
        let into = self.host.store.changes(&self.plan.id);
        let changes = run_blocking(move || {
            let (saved, left_processes) = save(&into).map_err(SessionError::Changes)?;
            Ok(WorkspaceChanged { left_processes, ..summarize_changes(&saved) })
        })
        .await?;
        let is_known = match &self.recorded_changes {
            // The end of a left process is not news.
            Some(recorded) if changes.left_processes.is_empty() => {
                WorkspaceChanged { left_processes: Vec::new(), ..recorded.clone() } == changes
            }
            Some(recorded) => *recorded == changes,
            None => is_nothing(&changes),
        };
        if !is_known {
            self.recorder.daemon(EventBody::WorkspaceChanged(changes.clone()))?;
            self.recorded_changes = Some(changes);
        }
        Ok(())
    }
}

/// Returns whether there is neither a change nor a process that could make one later.
fn is_nothing(changes: &WorkspaceChanged) -> bool {
    let WorkspaceChanged { added, modified, deleted, left_processes, .. } = changes;
    added.is_empty() && modified.is_empty() && deleted.is_empty() && left_processes.is_empty()
}

/// Returns the processes inside, without the agent itself, which starts before all others; empty when the backend cannot
/// tell.
fn left_processes(sandbox: &dyn Sandbox, agent_has_exited: bool) -> Vec<LeftProcess> {
    let mut processes = sandbox.processes().unwrap_or_default();
    if !agent_has_exited && let Some(agent) = processes.iter().position(|process| process.is_child_of_init) {
        processes.remove(agent);
    }
    processes.truncate(MAX_LEFT_PROCESSES);
    processes.into_iter().map(|process| LeftProcess { pid: process.pid, command: process.command }).collect()
}

/// Returns the set and the paths that differ from the host, by kind of change, without those of `.git`.
pub(crate) fn summarize_changes(saved: &SavedChanges) -> WorkspaceChanged {
    let paths_of = |kind: ChangeKind| {
        let files = saved.changes().filter(|change| !is_inside_git_directory(&change.path));
        let paths = files.filter(|change| change.kind == kind);
        paths.map(|change| change.path.to_string_lossy().into_owned()).collect()
    };
    let has_set = saved.set_number() > 0;
    WorkspaceChanged {
        added: paths_of(ChangeKind::Added),
        modified: paths_of(ChangeKind::Modified),
        deleted: paths_of(ChangeKind::Deleted),
        set: has_set.then(|| saved.set_number()),
        digest: has_set.then(|| saved.digest().to_string()),
        left_processes: Vec::new(),
    }
}
