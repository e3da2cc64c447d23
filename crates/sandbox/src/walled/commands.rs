//! Commands of one jail, and who waits for news of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use jail::{ExecEvent, Jail};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};

use super::{SIGKILL, lock};
use crate::ProcessExit;

/// Commands whose news are awaited.
#[derive(Default)]
pub(super) struct Commands {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
}

struct Waiting {
    started: Option<oneshot::Sender<Result<(), i32>>>,
    exited: oneshot::Sender<ProcessExit>,
}

/// The news of one command that is about to be asked for.
pub(super) struct Awaited {
    /// Its number.
    pub(super) exec: u64,
    /// It runs, or the error number of why not.
    pub(super) started: oneshot::Receiver<Result<(), i32>>,
    /// It has ended.
    pub(super) exited: oneshot::Receiver<ProcessExit>,
}

impl Commands {
    /// Gives a new command its number. News of it can come at once.
    pub(super) fn expect(&self) -> Awaited {
        let exec = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell_start, started) = oneshot::channel();
        let (tell_exit, exited) = oneshot::channel();
        lock(&self.waiting).insert(exec, Waiting { started: Some(tell_start), exited: tell_exit });
        Awaited { exec, started, exited }
    }

    /// Whether its end has not come.
    pub(super) fn awaits(&self, exec: u64) -> bool {
        lock(&self.waiting).contains_key(&exec)
    }

    /// It was never asked for.
    pub(super) fn forget(&self, exec: u64) {
        lock(&self.waiting).remove(&exec);
    }

    fn dispatch(&self, news: ExecEvent) {
        let mut waiting = lock(&self.waiting);
        match news {
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

/// Hands news to those who wait, until the sandbox has ended. Where it is `alone` in this process nobody is kept
/// waiting meanwhile.
pub(super) async fn hear(
    control: UnixStream,
    jail: Arc<Jail>,
    alone: bool,
    commands: Arc<Commands>,
    tell: watch::Sender<bool>,
) {
    loop {
        match control.async_io(Interest::READABLE, || jail.news()).await {
            Ok(Some(news)) => commands.dispatch(news),
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "a sandbox cannot be heard any more, and is ended");
                break;
            }
        }
    }
    // The control socket closes when init exits; init's exit ends every process of the namespace, but the
    // last of them may still be on its way out.
    jail.kill();
    let ended =
        if alone { jail.wait() } else { tokio::task::spawn_blocking(move || jail.wait()).await.unwrap_or(Ok(None)) };
    for (_, waiting) in lock(&commands.waiting).drain() {
        if let Ok(Some(code)) = ended {
            tracing::warn!(code, "the first process of a sandbox went before its command had ended, which was killed");
        }
        let _ = waiting.exited.send(ProcessExit { signal: Some(SIGKILL), ..ProcessExit::default() });
    }
    let _ = tell.send(true);
}
