//! A sandbox that serves tool calls: one task owns its session and runs the calls.
//!
//! The task ends the session when the last handle is dropped, when another client stops the session, when the host
//! closes, and after a time without calls if the sandbox has such a limit. Running calls are dropped then, which kills
//! their processes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use policy::EffectivePolicy;
use protocol::{SessionEndReason, SessionId};
use session::CommandSession;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::failure::ToolFailure;

/// The most calls that wait for a sandbox.
const QUEUE: usize = 16;

/// The future of a call in a session.
pub(crate) type CallFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

type Job = Box<dyn for<'a> FnOnce(&'a CommandSession) -> CallFuture<'a, ()> + Send>;

/// A handle of a sandbox. The sandbox ends with its last handle.
#[derive(Clone)]
pub(crate) struct SandboxHandle {
    id: SessionId,
    policy: Arc<EffectivePolicy>,
    jobs: mpsc::Sender<Job>,
    ended: CancellationToken,
}

impl SandboxHandle {
    /// Starts the task that owns `session`.
    pub(crate) fn start(
        session: CommandSession,
        tasks: &TaskTracker,
        closing: CancellationToken,
        idle: Option<Duration>,
    ) -> Self {
        let (jobs, received) = mpsc::channel(QUEUE);
        let ended = CancellationToken::new();
        let handle = Self { id: session.id().clone(), policy: session.policy().clone(), jobs, ended: ended.clone() };
        tasks.spawn(async move {
            // Dropped when the session has ended, also by a panic.
            let _ended = ended.drop_guard();
            let reason = serve(&session, received, &closing, idle).await;
            let id = session.id().clone();
            if let Err(error) = session.end(reason, None).await {
                tracing::error!(session = %id, %error, "cannot end the session of an MCP sandbox");
            }
        });
        handle
    }

    /// Returns the id of the session.
    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the policy of the session.
    pub(crate) fn policy(&self) -> &Arc<EffectivePolicy> {
        &self.policy
    }

    /// Returns whether the sandbox accepts no more calls.
    pub(crate) fn is_closed(&self) -> bool {
        self.jobs.is_closed()
    }

    /// Runs `call` in the session. When the returned future is dropped, so is the call.
    pub(crate) async fn perform<T: Send + 'static>(
        &self,
        call: impl for<'a> FnOnce(&'a CommandSession) -> CallFuture<'a, T> + Send + 'static,
    ) -> Result<T, ToolFailure> {
        let (mut reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |session| {
            Box::pin(async move {
                let result = tokio::select! {
                    result = call(session) => Some(result),
                    () = reply.closed() => None,
                };
                if let Some(result) = result {
                    // The caller may have gone in this moment.
                    let _ = reply.send(result);
                }
            })
        });
        let ended = || ToolFailure::Ended(self.id.clone());
        self.jobs.send(job).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }

    /// Releases this handle, which must be the last one, and waits until the session has ended.
    pub(crate) async fn end(self) {
        let ended = self.ended.clone();
        drop(self);
        ended.cancelled().await;
    }
}

/// Runs the calls until the sandbox has to end.
async fn serve(
    session: &CommandSession,
    mut jobs: mpsc::Receiver<Job>,
    closing: &CancellationToken,
    idle: Option<Duration>,
) -> SessionEndReason {
    let mut running = FuturesUnordered::new();
    loop {
        let rest = async {
            match idle {
                Some(idle) => tokio::time::sleep(idle).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            job = jobs.recv() => match job {
                Some(job) => running.push(job(session)),
                None => return SessionEndReason::Completed,
            },
            Some(()) = running.next(), if !running.is_empty() => {}
            () = session.stop_requested() => return SessionEndReason::Terminated,
            () = closing.cancelled() => return SessionEndReason::Completed,
            () = rest, if running.is_empty() => return SessionEndReason::Completed,
        }
    }
}
