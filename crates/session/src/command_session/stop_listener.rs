//! Serves the actor commands of a command session, so that other clients can end it by its id.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::SessionError;
use crate::lifecycle::{ActorCommand, ActorExit, SessionHandle};

/// Receives commands to a command session, and reports a requested stop.
pub(super) struct StopListener {
    requested: CancellationToken,
    ended: CancellationToken,
}

impl StopListener {
    pub(super) fn watch(
        tasks: &TaskTracker,
        handle: &Arc<SessionHandle>,
        commands: mpsc::Receiver<Box<ActorCommand>>,
    ) -> Self {
        let this = Self { requested: CancellationToken::new(), ended: CancellationToken::new() };
        let (handle, requested, ended) = (handle.clone(), this.requested.clone(), this.ended.clone());
        tasks.spawn(async move {
            let mut commands = commands;
            serve(&mut commands, requested, ended).await;
            handle.set_exit(ActorExit::Ended);
        });
        this
    }

    /// Waits until a client asks for the end.
    pub(super) async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// Returns whether a client asked for the end.
    pub(super) fn was_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    /// Confirms the end to the client that asked for it.
    pub(super) fn confirm(&self) {
        self.ended.cancel();
    }
}

impl Drop for StopListener {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

async fn serve(
    commands: &mut mpsc::Receiver<Box<ActorCommand>>,
    requested: CancellationToken,
    ended: CancellationToken,
) {
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            () = ended.cancelled() => None,
        };
        match command.map(|command| *command) {
            None => return,
            Some(ActorCommand::Close) => requested.cancel(),
            Some(ActorCommand::Terminate(reply)) => {
                requested.cancel();
                ended.cancelled().await;
                // The client may be gone.
                let _ = reply.send(Ok(()));
                return;
            }
            Some(other) => {
                other.refuse(SessionError::NotSupported { field: "message", why: "this session runs commands only" });
            }
        }
    }
}
