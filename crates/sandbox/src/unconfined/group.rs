//! A command and everything it started, as one process group.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::descent::{Dying, kill_family};
use crate::{ProcessExit, SandboxError};

/// How it ended, once it has.
type Ended = Option<Result<ProcessExit, io::ErrorKind>>;

/// A command and everything it started.
#[derive(Clone)]
pub(super) struct Group {
    leader: Pid,
    exit: watch::Receiver<Ended>,
}

impl Group {
    /// Waits for `child`, which leads the group, on a task of `waits`.
    pub(super) fn watch(waits: &mut JoinSet<()>, mut child: Child, leader: Pid) -> Self {
        let (ended, exit) = watch::channel(None);
        waits.spawn(async move {
            let status = child.wait().await;
            // What the leader left behind in its group dies now, while the group still has its number.
            let _ = kill_process_group(leader, Signal::KILL);
            ended.send_replace(Some(status.map(exit_of).map_err(|error| error.kind())));
        });
        Self { leader, exit }
    }

    pub(super) fn kill(&self) -> Dying {
        // Once the leader is reaped its number may be somebody else's.
        if self.exit.borrow().is_none() { kill_family(self.leader) } else { Dying::default() }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// How its leader ended.
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
