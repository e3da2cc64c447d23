//! The process group of a command.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::process_tree::{KilledProcesses, kill_tree};
use crate::{ProcessExit, SandboxError};

/// How the leader of a group ended; `None` while it runs.
type GroupExit = Option<Result<ProcessExit, io::ErrorKind>>;

/// The process group of a command.
#[derive(Clone)]
pub(super) struct ProcessGroup {
    leader: Pid,
    exit: watch::Receiver<GroupExit>,
}

impl ProcessGroup {
    /// Returns the group that `child` leads. A task of `waits` waits for the child.
    pub(super) fn watch(waits: &mut JoinSet<()>, mut child: Child, leader: Pid) -> Self {
        let (ended, exit) = watch::channel(None);
        waits.spawn(async move {
            let status = child.wait().await;
            // Kills the rest of the group now, while the group still has its id.
            let _ = kill_process_group(leader, Signal::KILL);
            ended.send_replace(Some(status.map(exit_of).map_err(|error| error.kind())));
        });
        Self { leader, exit }
    }

    pub(super) fn kill(&self) -> KilledProcesses {
        // Once the leader is reaped, its process id may be reused.
        if self.exit.borrow().is_none() { kill_tree(self.leader) } else { KilledProcesses::default() }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Waits until the leader has ended; returns how it ended.
    pub(super) async fn wait(mut self) -> Result<ProcessExit, SandboxError> {
        let ended = self.exit.wait_for(Option::is_some).await.map_err(|_| SandboxError::Gone)?;
        match *ended {
            Some(Ok(exit)) => Ok(exit),
            Some(Err(kind)) => Err(SandboxError::Exec { doing: "wait for", source: kind.into() }),
            None => Err(SandboxError::Gone),
        }
    }
}

fn exit_of(status: ExitStatus) -> ProcessExit {
    use std::os::unix::process::ExitStatusExt;
    ProcessExit { code: status.code(), signal: status.signal(), ..ProcessExit::default() }
}
