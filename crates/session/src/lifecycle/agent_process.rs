//! A running agent process in its sandbox: stdin, stdout line by line, and exit.
//!
//! Dropping an [`AgentProcess`] does not wait until its processes are dead; [`AgentProcess::stop`] does.
//!
//! Output is read in bounded memory: a line longer than the limit is truncated, and the number of dropped bytes is
//! reported. The futures returned by `next` can be dropped at any time without losing output.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agents::NormalizedDialogue;
use protocol::StderrOutput;
use sandbox::{OverlayLayers, ProcessExit, Sandbox, SandboxError, SandboxProcess};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::lifecycle::{Listeners, StderrBuffer};

/// A running agent process with its sandbox and listeners.
pub(crate) struct AgentProcess {
    pub(crate) dialogue: NormalizedDialogue,
    sandbox: Arc<dyn Sandbox>,
    listeners: Listeners,
    /// Boxed, because a channel allocates room for 32 values at once.
    stdin: mpsc::UnboundedSender<Box<str>>,
    stdout: LineReader<Box<dyn AsyncRead + Send + Unpin>>,
    stderr: StderrBuffer,
    exit: Pin<Box<dyn Future<Output = Result<ProcessExit, SandboxError>> + Send>>,
    tasks: JoinSet<()>,
    exiting: ExitProgress,
    exit_grace: Duration,
}

/// The two signs that a process is exiting: the end of its output and its exit status.
#[derive(Debug, Default)]
struct ExitProgress {
    output_ended: bool,
    exit: Option<ProcessExit>,
    since: Option<Instant>,
}

/// Something that an agent process did.
#[derive(Debug)]
pub(crate) enum AgentSignal {
    /// The process printed a line to stdout.
    Line(OutputLine),
    /// The process has exited.
    Exited,
}

/// The result of an agent process that was stopped.
#[derive(Debug)]
pub(crate) struct AgentExit {
    /// The exit status; `None` when the process was killed before it exited by itself.
    pub(crate) exit: Option<ProcessExit>,
    /// The kept part of stderr.
    pub(crate) stderr: Option<StderrOutput>,
}

impl AgentProcess {
    pub(crate) fn new(
        dialogue: NormalizedDialogue,
        sandbox: Arc<dyn Sandbox>,
        listeners: Listeners,
        process: SandboxProcess,
        exit_grace: Duration,
    ) -> Self {
        let (stdin, lines) = mpsc::unbounded_channel();
        let stderr = StderrBuffer::default();
        let mut tasks = JoinSet::new();
        if let Some(stream) = process.stdin {
            tasks.spawn(write(stream, lines));
        }
        tasks.spawn(stderr.clone().read(process.stderr));
        Self {
            dialogue,
            sandbox,
            listeners,
            stdin,
            stdout: LineReader::new(process.stdout, LINE_CAP),
            stderr,
            exit: process.exit,
            tasks,
            exiting: ExitProgress::default(),
            exit_grace,
        }
    }

    /// Sends a line to the agent's stdin. The queue is unbounded, because a turn sends only one prompt and one answer
    /// for each request.
    pub(crate) fn send(&self, line: String) {
        // A process that closed its stdin is noticed by its exit.
        let _ = self.stdin.send(line.into());
    }

    /// Runs `task` until the process is stopped.
    pub(crate) fn own(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Returns the next signal of the process. Cancel-safe.
    pub(crate) async fn next(&mut self) -> AgentSignal {
        loop {
            let exiting = &mut self.exiting;
            if exiting.output_ended && exiting.exit.is_some() {
                return AgentSignal::Exited;
            }
            // One sign was seen: a child may hold stdout open, or the process may have closed stdout and live on.
            let patience = async {
                match exiting.since {
                    Some(since) => tokio::time::sleep_until(since + self.exit_grace).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = self.stdout.next(), if !exiting.output_ended => {
                    if let Ok(Some(line)) = line {
                        return AgentSignal::Line(line);
                    }
                    exiting.output_ended = true;
                    exiting.since.get_or_insert_with(Instant::now);
                }
                exit = &mut self.exit, if exiting.exit.is_none() => {
                    exiting.exit = Some(exit.unwrap_or_default());
                    exiting.since.get_or_insert_with(Instant::now);
                }
                () = patience => return AgentSignal::Exited,
            }
        }
    }

    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    pub(crate) fn sandbox(&self) -> &dyn Sandbox {
        &*self.sandbox
    }

    pub(crate) fn shared_sandbox(&self) -> Arc<dyn Sandbox> {
        Arc::clone(&self.sandbox)
    }

    /// Returns whether the agent's own process is known to have exited.
    pub(crate) fn has_exited(&self) -> bool {
        self.exiting.exit.is_some()
    }

    /// Returns the overlay layers of the workspace; `None` without an overlay.
    pub(crate) fn layers(&self) -> Option<OverlayLayers> {
        self.sandbox.layers()
    }

    /// Kills every process of the sandbox. Returns when all are dead and the model calls are settled.
    pub(crate) async fn stop(mut self) -> AgentExit {
        if let Err(error) = self.sandbox.destroy().await {
            tracing::error!(sandbox = self.sandbox.id(), %error, "cannot destroy the sandbox");
        }
        std::mem::take(&mut self.listeners).close().await;
        // The pipes end when every writer is dead. A writer that escaped must not block us.
        let reading = async { while self.tasks.join_next().await.is_some() {} };
        drop(std::mem::replace(&mut self.stdin, mpsc::unbounded_channel().0));
        let _ = tokio::time::timeout(self.exit_grace, reading).await;
        AgentExit { exit: self.exiting.exit, stderr: self.stderr.output() }
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

/// The longest line that is kept whole, in bytes.
pub(crate) const LINE_CAP: usize = 16 * 1024 * 1024;

/// Buffer of an idle reader. The buffer doubles each time a read fills it, up to [`MAX_READ`].
const MIN_READ: usize = 128;
const MAX_READ: usize = 64 * 1024;

/// One line of output, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutputLine {
    /// The bytes of the line, up to the limit.
    pub(crate) bytes: Vec<u8>,
    /// How many bytes were dropped; zero for a whole line.
    pub(crate) cut: u64,
}

/// Splits a stream into lines of bounded length.
pub(crate) struct LineReader<R> {
    stream: R,
    cap: usize,
    /// Bytes read and not yet returned; there is no newline before `scanned`.
    buffer: Vec<u8>,
    scanned: usize,
    /// Buffer space reserved for the next read.
    room: usize,
    cut: u64,
    ended: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Returns a reader of `stream` that keeps at most `cap` bytes of a line.
    pub(crate) fn new(stream: R, cap: usize) -> Self {
        Self { stream, cap, buffer: Vec::new(), scanned: 0, room: MIN_READ, cut: 0, ended: false }
    }

    /// Returns the next line; `None` at the end. A last line without a newline counts. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<OutputLine>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(self.take_rest());
            }
            self.buffer.reserve(self.room);
            let idle = self.buffer.capacity() - self.buffer.len();
            // `read_buf` appends or does nothing, so dropping this future between polls loses nothing.
            let count = self.stream.read_buf(&mut self.buffer).await?;
            self.ended = count == 0;
            self.room = if count == idle { (2 * self.room).min(MAX_READ) } else { MIN_READ };
        }
    }

    fn take_line(&mut self) -> Option<OutputLine> {
        let Some(at) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            self.truncate_to_cap();
            return None;
        };
        let end = self.scanned + at;
        let rest = self.buffer.split_off(end + 1);
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        bytes.pop();
        self.scanned = 0;
        Some(self.finish(bytes))
    }

    fn take_rest(&mut self) -> Option<OutputLine> {
        if self.buffer.is_empty() && self.cut == 0 {
            return None;
        }
        let bytes = std::mem::take(&mut self.buffer);
        self.scanned = 0;
        Some(self.finish(bytes))
    }

    fn finish(&mut self, mut bytes: Vec<u8>) -> OutputLine {
        if bytes.len() > self.cap {
            self.cut += (bytes.len() - self.cap) as u64;
            bytes.truncate(self.cap);
        }
        OutputLine { bytes, cut: std::mem::take(&mut self.cut) }
    }

    fn truncate_to_cap(&mut self) {
        if self.buffer.len() > self.cap {
            self.cut += (self.buffer.len() - self.cap) as u64;
            self.buffer.truncate(self.cap);
        }
        self.scanned = self.buffer.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn lines(text: &[u8], cap: usize) -> Vec<OutputLine> {
        let mut reader = LineReader::new(text, cap);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    fn whole(text: &str) -> OutputLine {
        OutputLine { bytes: text.as_bytes().to_vec(), cut: 0 }
    }

    #[tokio::test]
    async fn last_line_needs_no_newline() {
        assert_eq!(lines(b"one\n\ntwo", 100).await, [whole("one"), whole(""), whole("two")]);
        assert_eq!(lines(b"one\n", 100).await, [whole("one")]);
        assert_eq!(lines(b"", 100).await, []);
    }

    #[tokio::test]
    async fn ten_megabyte_line_is_read_whole() {
        let mut text = vec![b'x'; 10 * 1024 * 1024];
        text.extend_from_slice(b"\nnext\n");
        let read = lines(&text, LINE_CAP).await;
        assert_eq!(read.iter().map(|line| (line.bytes.len(), line.cut)).collect::<Vec<_>>(), [(10 << 20, 0), (4, 0)]);
    }

    #[tokio::test]
    async fn line_over_the_cap_is_truncated_in_bounded_memory() {
        let endless = tokio::io::repeat(b'x').take(50 * 1024 * 1024);
        let mut reader = LineReader::new(endless.chain(&b"\nnext"[..]), 1000);
        let line = reader.next().await.unwrap().unwrap();
        assert_eq!((line.bytes.len(), line.cut), (1000, (50 << 20) - 1000));
        assert!(reader.buffer.capacity() < 8 * MIN_READ, "kept {} bytes", reader.buffer.capacity());
        assert_eq!(reader.next().await.unwrap(), Some(whole("next")));
    }

    #[tokio::test]
    async fn dropped_future_loses_no_output() {
        let (mut writer, stream) = tokio::io::duplex(64);
        let mut reader = LineReader::new(stream, 100);
        writer.write_all(b"half").await.unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(5), reader.next()).await;
        assert!(waited.is_err(), "there was no whole line yet");
        writer.write_all(b" done\n").await.unwrap();
        assert_eq!(reader.next().await.unwrap(), Some(whole("half done")));
    }

    proptest! {
        #[test]
        fn every_input_byte_is_returned_or_counted(parts in prop::collection::vec("[a-z]{0,9}", 0..20), cap in 1usize..12) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let text = [parts.join("\n"), String::new()].join(if parts.is_empty() { "" } else { "\n" });
            let read = runtime.block_on(lines(text.as_bytes(), cap));
            prop_assert_eq!(read.len(), parts.len());
            for (line, part) in read.iter().zip(&parts) {
                prop_assert_eq!(line.bytes.len() as u64 + line.cut, part.len() as u64);
                prop_assert!(part.as_bytes().starts_with(&line.bytes));
            }
        }
    }
}
