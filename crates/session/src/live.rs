//! An agent's process in its sandbox, while it lives.
//!
//! Dropping it is not enough to know that everything is dead: `stop` waits until it is.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agents::NormalizedDialogue;
use protocol::StderrOutput;
use sandbox::{OverlayLayers, ProcessExit, Sandbox, SandboxError, SandboxProcess};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::doors::Doors;
use crate::line::{LINE_CAP, Line, LineReader};
use crate::stderr::Stderr;

/// An agent's process, its sandbox and its ways out.
pub(crate) struct Live {
    pub(crate) dialogue: NormalizedDialogue,
    sandbox: Arc<dyn Sandbox>,
    doors: Doors,
    /// Boxed, because a channel keeps room for thirty-two of them however few come.
    stdin: mpsc::UnboundedSender<Box<str>>,
    stdout: LineReader<Box<dyn AsyncRead + Send + Unpin>>,
    stderr: Stderr,
    exit: Pin<Box<dyn Future<Output = Result<ProcessExit, SandboxError>> + Send>>,
    tasks: JoinSet<()>,
    leaving: Leaving,
    exit_grace: Duration,
}

/// The two signs of a process going away.
#[derive(Debug, Default)]
struct Leaving {
    silent: bool,
    exit: Option<ProcessExit>,
    since: Option<Instant>,
}

/// What an agent's process did.
#[derive(Debug)]
pub(crate) enum Sign {
    /// It printed a line.
    Line(Line),
    /// It is gone.
    Gone,
}

/// What is left of an agent's process.
#[derive(Debug)]
pub(crate) struct Remains {
    /// How it ended, where that was seen before we ended it.
    pub(crate) exit: Option<ProcessExit>,
    /// What it wrote to stderr.
    pub(crate) stderr: Option<StderrOutput>,
}

impl Live {
    pub(crate) fn new(
        dialogue: NormalizedDialogue,
        sandbox: Arc<dyn Sandbox>,
        doors: Doors,
        process: SandboxProcess,
        exit_grace: Duration,
    ) -> Self {
        let (stdin, lines) = mpsc::unbounded_channel();
        let stderr = Stderr::default();
        let mut tasks = JoinSet::new();
        if let Some(stream) = process.stdin {
            tasks.spawn(write(stream, lines));
        }
        tasks.spawn(stderr.clone().read(process.stderr));
        Self {
            dialogue,
            sandbox,
            doors,
            stdin,
            stdout: LineReader::new(process.stdout, LINE_CAP),
            stderr,
            exit: process.exit,
            tasks,
            leaving: Leaving::default(),
            exit_grace,
        }
    }

    /// Hands a line to the agent. The queue has no bound of its own: a turn hands over one prompt, and one
    /// answer for each thing that was asked.
    pub(crate) fn send(&self, line: String) {
        // A process that no longer reads is seen by its exit.
        let _ = self.stdin.send(line.into());
    }

    /// What it does next. May be dropped at any moment and loses nothing.
    pub(crate) async fn next(&mut self) -> Sign {
        loop {
            let leaving = &mut self.leaving;
            if leaving.silent && leaving.exit.is_some() {
                return Sign::Gone;
            }
            // One sign was seen: a child may hold the output open, or it may have closed it and live on.
            let patience = async {
                match leaving.since {
                    Some(since) => tokio::time::sleep_until(since + self.exit_grace).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = self.stdout.next(), if !leaving.silent => {
                    if let Ok(Some(line)) = line {
                        return Sign::Line(line);
                    }
                    leaving.silent = true;
                    leaving.since.get_or_insert_with(Instant::now);
                }
                exit = &mut self.exit, if leaving.exit.is_none() => {
                    leaving.exit = Some(exit.unwrap_or_default());
                    leaving.since.get_or_insert_with(Instant::now);
                }
                () = patience => return Sign::Gone,
            }
        }
    }

    /// Its ways out.
    pub(crate) fn doors(&self) -> &Doors {
        &self.doors
    }

    /// Where it lives.
    pub(crate) fn sandbox(&self) -> &dyn Sandbox {
        &*self.sandbox
    }

    /// What its workspace is made of, to see what changed.
    pub(crate) fn layers(&self) -> Option<OverlayLayers> {
        self.sandbox.layers()
    }

    /// Ends every process of it; returns when all are dead and its model calls are settled.
    pub(crate) async fn stop(mut self) -> Remains {
        if let Err(error) = self.sandbox.destroy().await {
            tracing::error!(sandbox = self.sandbox.id(), %error, "cannot destroy the sandbox");
        }
        std::mem::take(&mut self.doors).close().await;
        // With every writer dead the pipe ends; a writer that escaped must not keep us.
        let reading = async { while self.tasks.join_next().await.is_some() {} };
        drop(std::mem::replace(&mut self.stdin, mpsc::unbounded_channel().0));
        let _ = tokio::time::timeout(self.exit_grace, reading).await;
        Remains { exit: self.leaving.exit, stderr: self.stderr.output() }
    }
}

async fn write(mut stream: Box<dyn AsyncWrite + Send + Unpin>, mut lines: mpsc::UnboundedReceiver<Box<str>>) {
    while let Some(line) = lines.recv().await {
        let mut line = line.into_string();
        line.push('\n');
        if stream.write_all(line.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}
