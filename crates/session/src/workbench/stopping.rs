//! Who else may end a session of commands: whoever says so by its id.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::SessionError;
use crate::command::Command;
use crate::seat::{Departure, Seat};

/// Hears what others ask of a session that takes no messages.
pub(super) struct Stopping {
    asked: CancellationToken,
    ended: CancellationToken,
}

impl Stopping {
    pub(super) fn watch(tasks: &TaskTracker, seat: &Arc<Seat>, commands: mpsc::Receiver<Box<Command>>) -> Self {
        let this = Self { asked: CancellationToken::new(), ended: CancellationToken::new() };
        let (seat, asked, ended) = (seat.clone(), this.asked.clone(), this.ended.clone());
        tasks.spawn(async move {
            let mut commands = commands;
            hear(&mut commands, asked, ended).await;
            seat.depart(Departure::Ended);
        });
        this
    }

    /// Returns when somebody asked for the end.
    pub(super) async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Whether somebody did.
    pub(super) fn was_asked(&self) -> bool {
        self.asked.is_cancelled()
    }

    /// The session has ended: whoever asked for it is told.
    pub(super) fn done(&self) {
        self.ended.cancel();
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

async fn hear(commands: &mut mpsc::Receiver<Box<Command>>, asked: CancellationToken, ended: CancellationToken) {
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            () = ended.cancelled() => None,
        };
        match command.map(|command| *command) {
            None => return,
            Some(Command::Close) => asked.cancel(),
            Some(Command::Terminate(reply)) => {
                asked.cancel();
                ended.cancelled().await;
                // Whoever asked may have left.
                let _ = reply.send(Ok(()));
                return;
            }
            Some(other) => {
                other.refuse(SessionError::NotSupported { field: "message", why: "this session runs commands only" });
            }
        }
    }
}
