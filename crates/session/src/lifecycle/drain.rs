//! The end of a host and the start of the next one: running turns may end, and queued messages go on.
//!
//! Not here: closing sessions (`Sessions::close_all`), or the repair of journals (`storage/recovery.rs`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::{HostDraining, SessionStatus};
use tokio::time::Instant;

use crate::lifecycle::ActorCommand;
use crate::{SessionError, Sessions};

/// How often a draining host looks for running turns.
const POLL: Duration = Duration::from_millis(20);

impl Sessions {
    /// Starts no more turns, and waits at most `most` until no turn runs. Returns the number of turns that still run.
    /// A turn that waits for a person does not count: its request is answered or asked again later.
    pub async fn drain(&self, most: Duration) -> usize {
        self.host.draining.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + most;
        let drain_ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        for handle in self.host.handles() {
            if handle.status() == Some(SessionStatus::Running) {
                // An actor that has exited needs no command.
                let _ = handle.commands.send(Box::new(ActorCommand::Drain(HostDraining { drain_ms }))).await;
            }
        }
        loop {
            let handles = self.host.handles();
            let running = handles.iter().filter(|handle| handle.status() == Some(SessionStatus::Running)).count();
            if running == 0 || Instant::now() >= deadline {
                return running;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns whether the host is about to shut down.
    pub fn is_draining(&self) -> bool {
        self.host.draining.load(Ordering::SeqCst) || self.host.closing.load(Ordering::SeqCst)
    }

    /// Lets sessions go on after their agents have crashed: the next message starts the agent again.
    pub fn survive_crashes(&self) {
        self.host.survives_crashes.store(true, Ordering::SeqCst);
    }

    /// Continues with the queued messages of sessions whose host died or was stopped. Call it once after
    /// [`Self::recover`].
    pub fn continue_interrupted(&self) -> Result<(), SessionError> {
        for id in self.host.store.index.interrupted()? {
            let sessions = self.clone();
            self.host.tasks.spawn(async move {
                let outcome = match sessions.handle_of(&id) {
                    Ok(handle) => {
                        handle.commands.send(Box::new(ActorCommand::RunQueue)).await.map_err(|_| handle.exit_error())
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = outcome {
                    tracing::warn!(session = %id, %error, "cannot continue with the queued messages");
                }
            });
        }
        Ok(())
    }
}
