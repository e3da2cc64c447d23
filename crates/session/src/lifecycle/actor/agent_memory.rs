//! The agent's own session files, saved so that the agent can continue after a restart.
//!
//! They are in the agent's home, which is in memory and dies with the sandbox. A `tar` inside the sandbox packs them
//! when a turn ends, and unpacks them in the next sandbox. The host never reads their content.

use std::io;
use std::path::Path;
use std::time::Duration;

use agents::SavedHome;
use base::HOME;
use sandbox::{ExecSpec, Sandbox};

use super::Actor;
use crate::lifecycle::AgentProcess;

/// Largest saved memory. A session with a larger one cannot be resumed.
const MAX_BYTES: usize = 64 << 20;
/// Packing takes milliseconds. An agent that blocks its own sandbox must not keep the turn from ending.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The exit code of tar when a file changed while it was read: an agent may write at any time.
const TAR_FILE_CHANGED: i32 = 1;

impl Actor {
    /// Saves the agent's memory. A failure is only logged, so that the turn ends either way.
    pub(super) async fn save_memory(&mut self) {
        let Some(sandbox) = self.agent.as_ref().map(AgentProcess::sandbox) else { return };
        let Ok(registered) = self.plan.registered_agent(&self.host.config.agents) else { return };
        let Ok(launch) = registered.agent.plan(&self.plan.launch_context(&registered, String::new())) else { return };
        if launch.saved_home.folders.is_empty() {
            return;
        }
        let packed = match pack(sandbox, launch.saved_home.folders).await {
            Ok(packed) => packed,
            Err(error) => {
                tracing::warn!(session = %self.plan.id, %error, "cannot pack the agent's memory");
                return;
            }
        };
        let path = self.host.store.memory(&self.plan.id);
        let written = tokio::task::spawn_blocking(move || write(&path, &packed)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(session = %self.plan.id, %error, "cannot save the agent's memory");
        }
    }

    /// Restores the saved memory before the agent starts. A failure is only logged.
    pub(super) async fn restore_memory(&mut self, sandbox: &dyn Sandbox, memory: SavedHome) {
        let path = self.host.store.memory(&self.plan.id);
        let saved = match tokio::fs::read(&path).await {
            Ok(saved) if !memory.folders.is_empty() => saved,
            _ => return,
        };
        // Files that were placed for this start are newer than the saved ones.
        let mut command = vec!["tar", "-x", "-f", "-", "-C", HOME, "--skip-old-files", "--no-same-permissions"];
        command.extend(memory.rename.iter().flat_map(|rename| ["--transform", rename]));
        if let Err(error) = run(sandbox, &command, Some(saved)).await {
            tracing::warn!(session = %self.plan.id, %error, "cannot restore the agent's memory");
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
        timeout: Some(TIMEOUT),
        output_limit: Some(MAX_BYTES),
        ..ExecSpec::default()
    };
    let result = sandbox::run(sandbox, spec, &mut |_, _| ()).await.map_err(io::Error::other)?;
    match result.exit.code {
        _ if result.truncated => Err(io::Error::other("the agent's memory exceeds 64 MiB")),
        // A missing folder is not an error.
        Some(0 | TAR_FILE_CHANGED) => Ok(result.stdout),
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
    // Renamed at the end, so that a partial file never replaces a whole one.
    std::fs::rename(&new, path)
}
