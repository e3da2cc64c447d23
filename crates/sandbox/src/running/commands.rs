//! The commands of one sandbox, and the delivery of their events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use jail::{ConnectionOutcome, ExecEvent, Jail, JailEvent};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};

use super::{SIGKILL, lock};
use crate::ProcessExit;
use crate::blocking::BlockingRunner;

/// The most requests for connections that wait for init.
const MAX_CONNECTING: usize = 64;

/// Commands that have not ended, by number.
#[derive(Default)]
pub(super) struct Commands {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, CommandWaiters>>,
    /// Requests for connections to ports inside, by number.
    connecting: Mutex<HashMap<u64, oneshot::Sender<ConnectionOutcome>>>,
}

struct CommandWaiters {
    started: Option<oneshot::Sender<Result<(), i32>>>,
    exited: oneshot::Sender<ProcessExit>,
}

/// The events of one command that is about to be started.
pub(super) struct PendingCommand {
    /// The number of the command.
    pub(super) exec: u64,
    /// Resolves when the command runs, or with the error number when it cannot be started.
    pub(super) started: oneshot::Receiver<Result<(), i32>>,
    /// Resolves when the command has ended.
    pub(super) exited: oneshot::Receiver<ProcessExit>,
}

impl Commands {
    /// Registers a new command and returns its number with its events.
    pub(super) fn register(&self) -> PendingCommand {
        let exec = self.next.fetch_add(1, Ordering::Relaxed);
        let (started_sender, started) = oneshot::channel();
        let (exited_sender, exited) = oneshot::channel();
        lock(&self.waiting).insert(exec, CommandWaiters { started: Some(started_sender), exited: exited_sender });
        PendingCommand { exec, started, exited }
    }

    /// Returns whether the command has not ended.
    pub(super) fn is_registered(&self, exec: u64) -> bool {
        lock(&self.waiting).contains_key(&exec)
    }

    /// Removes a command that was not started.
    pub(super) fn unregister(&self, exec: u64) {
        lock(&self.waiting).remove(&exec);
    }

    /// Registers a request for a connection; returns its number and its answer. Fails with too many open requests.
    pub(super) fn register_connection(&self) -> Option<(u64, oneshot::Receiver<ConnectionOutcome>)> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let mut connecting = lock(&self.connecting);
        connecting.retain(|_, waiting| !waiting.is_closed());
        if connecting.len() >= MAX_CONNECTING {
            return None;
        }
        connecting.insert(request, sender);
        Some((request, answer))
    }

    fn dispatch_report(&self, event: JailEvent) {
        match event {
            JailEvent::Exec(event) => self.dispatch(event),
            // A socket that nobody waits for is closed.
            JailEvent::Connection(outcome) => {
                if let Some(waiting) = lock(&self.connecting).remove(&outcome.request) {
                    let _ = waiting.send(outcome);
                }
            }
        }
    }

    fn dispatch(&self, event: ExecEvent) {
        let mut waiting = lock(&self.waiting);
        match event {
            ExecEvent::Started { exec } => {
                if let Some(started) = waiting.get_mut(&exec).and_then(|waiting| waiting.started.take()) {
                    let _ = started.send(Ok(()));
                }
            }
            ExecEvent::NotStarted { exec, errno } => {
                if let Some(started) = waiting.remove(&exec).and_then(|waiting| waiting.started) {
                    let _ = started.send(Err(errno));
                }
            }
            ExecEvent::Exited { exec, code, signal, cpu_micros, peak_rss_bytes } => {
                if let Some(waiting) = waiting.remove(&exec) {
                    let _ = waiting.exited.send(ProcessExit {
                        code,
                        signal,
                        cpu_micros,
                        peak_rss_bytes,
                        ..ProcessExit::default()
                    });
                }
            }
        }
    }
}

/// Delivers events to the waiting callers until the sandbox has ended. Uses `runner` to wait for its last process.
pub(super) async fn forward_events(
    control: UnixStream,
    jail: Arc<Jail>,
    runner: BlockingRunner,
    commands: Arc<Commands>,
    ended: watch::Sender<bool>,
) {
    loop {
        match control.async_io(Interest::READABLE, || jail.next_report()).await {
            Ok(Some(event)) => commands.dispatch_report(event),
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "lost the control socket; killing the sandbox");
                break;
            }
        }
    }
    // The control socket closes when init exits. The kernel then kills every process of the PID namespace, but some may
    // not have ended yet.
    jail.kill();
    let exit = runner.run(move || jail.wait()).await.unwrap_or(Ok(None));
    for (_, waiting) in lock(&commands.waiting).drain() {
        if let Ok(Some(code)) = exit {
            tracing::warn!(code, "init exited while a command was running; the command was killed");
        }
        let _ = waiting.exited.send(ProcessExit { signal: Some(SIGKILL), ..ProcessExit::default() });
    }
    let _ = ended.send(true);
}
