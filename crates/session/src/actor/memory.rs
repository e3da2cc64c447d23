//! What an agent needs to go on with its session after a restart: its own notes, in folders of its home.
//!
//! The home is in memory and ends with the sandbox. Its notes are packed inside the sandbox when a turn ends and
//! unpacked inside the next one; to the host they are bytes, which it never looks into.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agents::SavedHome;
use base::HOME;
use sandbox::{ExecSpec, Sandbox};

use super::Actor;
use crate::live::Live;
use crate::skills;

/// More than this is no memory of a conversation; the session then cannot be resumed.
const CAP: usize = 64 << 20;
/// Packing takes milliseconds. An agent that stops its own sandbox must not stop the turn from ending.
const PATIENCE: Duration = Duration::from_secs(10);
/// tar's way to say that a file changed while it was read: an agent may write at any time.
const CHANGED: i32 = 1;

impl Actor {
    /// Keeps what the agent remembers. The turn ends either way: what was lost is told when it is missed.
    pub(super) async fn keep_memory(&mut self) {
        let Some(sandbox) = self.live.as_ref().map(Live::sandbox) else { return };
        let Ok(enlisted) = self.plan.enlisted(&self.host.config.agents) else { return };
        let Ok(launch) = enlisted.agent.plan(&self.plan.context(&enlisted, String::new())) else { return };
        if launch.memory.folders.is_empty() {
            return;
        }
        let packed = match pack(sandbox, launch.memory.folders).await {
            Ok(packed) => packed,
            Err(error) => {
                tracing::warn!(session = %self.plan.id, %error, "cannot pack what the agent remembers");
                return;
            }
        };
        let path = self.host.shelf.memory(&self.plan.id);
        let written = tokio::task::spawn_blocking(move || write(&path, &packed)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(session = %self.plan.id, %error, "cannot keep what the agent remembers");
        }
    }

    /// Gives back what was kept, before the agent starts.
    pub(super) async fn restore_memory(&mut self, sandbox: &dyn Sandbox, memory: SavedHome) {
        let path = self.host.shelf.memory(&self.plan.id);
        let kept = match tokio::fs::read(&path).await {
            Ok(kept) if !memory.folders.is_empty() => kept,
            _ => return,
        };
        // Files that were placed for this start are newer than what is kept.
        let mut command = vec!["tar", "-x", "-f", "-", "-C", HOME, "--skip-old-files", "--no-same-permissions"];
        command.extend(memory.rename.iter().flat_map(|rename| ["--transform", rename]));
        if let Err(error) = run(sandbox, &command, Some(kept)).await {
            tracing::warn!(session = %self.plan.id, %error, "cannot give back what the agent remembered");
        }
    }

    /// Drops what was kept: the session has ended.
    pub(super) async fn forget(&mut self) {
        skills::forget(&self.host.shelf, &self.plan.id).await;
        let path: PathBuf = self.host.shelf.memory(&self.plan.id);
        match tokio::fs::remove_file(&path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(session = %self.plan.id, %error, "cannot drop what the agent remembered");
            }
            _ => {}
        }
    }
}

async fn pack(sandbox: &dyn Sandbox, folders: &[&str]) -> io::Result<Vec<u8>> {
    let mut command = vec!["tar", "-c", "-f", "-", "-C", HOME, "--ignore-failed-read", "--sparse"];
    command.extend(folders);
    run(sandbox, &command, None).await
}

async fn run(sandbox: &dyn Sandbox, command: &[&str], stdin: Option<Vec<u8>>) -> io::Result<Vec<u8>> {
    let spec = ExecSpec {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        stdin,
        timeout: Some(PATIENCE),
        output_limit: Some(CAP),
        ..ExecSpec::default()
    };
    let result = sandbox::run(sandbox, spec, &mut |_, _| ()).await.map_err(io::Error::other)?;
    match result.exit.code {
        _ if result.truncated => Err(io::Error::other("it is more than can be kept")),
        // A folder that is not there yet is no failure: there is nothing in it.
        Some(0 | CHANGED) => Ok(result.stdout),
        Some(2) if !result.stdout.is_empty() => Ok(result.stdout),
        _ => Err(io::Error::other(String::from_utf8_lossy(&result.stderr).into_owned())),
    }
}

fn write(path: &Path, packed: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

    let folder = path.parent().unwrap_or(path);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(packed)?;
    // Half of a memory must never take the place of a whole one.
    std::fs::rename(&new, path)
}
