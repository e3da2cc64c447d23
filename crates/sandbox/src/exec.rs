//! The specification of a command, its result, and running a command to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use crate::{Sandbox, SandboxError, WindowSize};

/// A command to run. It is a list of words, never a shell line.
#[derive(Debug, Clone, Default)]
pub struct ExecSpec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The working directory inside; `/workspace` when absent.
    pub workdir: Option<String>,
    /// The whole environment; a small default when empty.
    pub env: BTreeMap<String, String>,
    /// The standard input, which is closed afterwards. With `None`, the caller of `exec` holds it open.
    pub stdin: Option<Vec<u8>>,
    /// The user inside the sandbox.
    pub user: ExecUser,
    /// The kind of the standard streams without a terminal.
    pub streams: StreamKind,
    /// The size of a terminal to use in place of pipes. Refused by backends without terminals.
    pub terminal: Option<WindowSize>,
    /// The wall time after which the command is killed.
    pub timeout: Option<Duration>,
    /// The time without output after which the command is killed.
    pub idle_timeout: Option<Duration>,
    /// The most bytes to keep of each of stdout and stderr.
    pub output_limit: Option<usize>,
}

/// The kind of a command's standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamKind {
    /// Pipes. A program can open them again as `/dev/stdout`, and so can every process of the sandbox through
    /// `/proc/PID/fd`.
    #[default]
    Pipes,
    /// Sockets, which no process can open again. So only the command, and processes that it gives the descriptor to, can
    /// read its input and write its output. A container with its own kernel gets pipes.
    Sockets,
}

/// The user of a command. A backend without that user fails with [`SandboxError::Unavailable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExecUser {
    /// The owner of the workspace. In a confined sandbox this is an ordinary user.
    #[default]
    Agent,
    /// Root inside the sandbox.
    Root,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessExit {
    /// The exit code, unless a signal ended the process.
    pub code: Option<i32>,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// Processor time of the process and its children, if known. At most what the host gave the sandbox meanwhile.
    pub cpu_micros: u64,
    /// The largest resident size, if known.
    pub peak_rss_bytes: u64,
    /// Whether the kernel killed the process because the sandbox was out of memory.
    pub out_of_memory: bool,
    /// Processes of the sandbox that the kernel killed because memory ran out while the command ran.
    pub memory_kills: u64,
}

/// The result of a command.
#[derive(Debug, Clone, Default)]
pub struct ExecResult {
    /// The standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// The standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// How the command ended.
    pub exit: ProcessExit,
    /// The wall time.
    pub wall: Duration,
    /// Whether output over the limit was dropped.
    pub truncated: bool,
    /// Whether `timeout` or `idle_timeout` ended the command.
    pub timed_out: bool,
    /// Whether an attached command was killed because it wrote more than `output_limit`.
    pub output_exceeded: bool,
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A callback that receives output as it arrives.
pub type OutputListener<'a> = &'a mut (dyn FnMut(OutputStream, &[u8]) + Send);

/// How long output of background processes is read after the command has ended.
const DRAIN_TIME: Duration = Duration::from_millis(50);

/// Runs a command to its end and passes its output to `listener` as it arrives.
///
/// Output over `output_limit` is passed to `listener` too, but not kept. A timeout kills the command and everything that
/// it started, and sets `timed_out`.
pub async fn run(
    sandbox: &dyn Sandbox,
    mut spec: ExecSpec,
    listener: OutputListener<'_>,
) -> Result<ExecResult, SandboxError> {
    let input = std::io::Cursor::new(spec.stdin.take().unwrap_or_default());
    run_with_input(sandbox, spec, Box::new(input), listener).await
}

/// Runs a command to its end like [`run`], with input that arrives while the command runs.
///
/// A caller that drops the future before the command ends kills the command and everything that it started.
pub async fn run_with_input(
    sandbox: &dyn Sandbox,
    spec: ExecSpec,
    mut source: Box<dyn AsyncRead + Send + Unpin>,
    listener: OutputListener<'_>,
) -> Result<ExecResult, SandboxError> {
    let started = Instant::now();
    let (timeout, idle_timeout) = (spec.timeout, spec.idle_timeout);
    let limit = spec.output_limit.unwrap_or(usize::MAX);
    let mut process = sandbox.exec(spec).await?;
    let mut kill = KillOnDrop { kill: process.kill, armed: true };
    let stdin = process.stdin.take();
    let mut input = std::pin::pin!(async move {
        if let Some(mut stdin) = stdin {
            // A command may end without reading its input.
            let _ = tokio::io::copy(&mut source, &mut stdin).await;
        }
    });
    let (mut out, mut err) = (OutputPipe::new(process.stdout), OutputPipe::new(process.stderr));
    let (mut input_done, mut exit) = (false, None);
    let mut result = ExecResult::default();
    let mut last_output = started;
    while exit.is_none() || out.open || err.open {
        let deadlines = [timeout.map(|limit| started + limit), idle_timeout.map(|limit| last_output + limit)];
        let wake = match exit {
            Some(_) => Some(last_output.max(started) + DRAIN_TIME),
            None => deadlines.into_iter().flatten().min(),
        };
        tokio::select! {
            () = &mut input, if !input_done => input_done = true,
            read = out.read(), if out.open => {
                out.keep(read, OutputStream::Stdout, limit, listener, &mut result.truncated);
                last_output = Instant::now();
            }
            read = err.read(), if err.open => {
                err.keep(read, OutputStream::Stderr, limit, listener, &mut result.truncated);
                last_output = Instant::now();
            }
            ended = &mut process.exit, if exit.is_none() => {
                exit = Some(ended?);
                kill.armed = false;
                result.wall = started.elapsed();
                last_output = Instant::now();
            }
            // Background processes may still hold the pipes; they are not waited for.
            () = sleep_until(wake), if exit.is_some() => break,
            () = sleep_until(wake), if exit.is_none() => {
                result.timed_out = true;
                (kill.kill)();
                exit = Some((&mut process.exit).await?);
                kill.armed = false;
                result.wall = started.elapsed();
                last_output = Instant::now();
            }
        }
    }
    (result.stdout, result.stderr) = (out.kept, err.kept);
    result.exit = exit.unwrap_or_default();
    Ok(result)
}

/// Kills a command whose caller stops waiting for its end.
struct KillOnDrop {
    kill: Box<dyn Fn() + Send + Sync>,
    armed: bool,
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if self.armed {
            (self.kill)();
        }
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

/// One of the two output streams while it is read.
struct OutputPipe {
    source: Box<dyn AsyncRead + Send + Unpin>,
    buffer: Vec<u8>,
    kept: Vec<u8>,
    open: bool,
}

impl OutputPipe {
    fn new(source: Box<dyn AsyncRead + Send + Unpin>) -> Self {
        Self { source, buffer: vec![0; 64 * 1024], kept: Vec::new(), open: true }
    }

    /// Returns the number of bytes read; zero at the end and after an error.
    async fn read(&mut self) -> usize {
        self.source.read(&mut self.buffer).await.unwrap_or(0)
    }

    fn keep(
        &mut self,
        count: usize,
        stream: OutputStream,
        limit: usize,
        listener: OutputListener<'_>,
        truncated: &mut bool,
    ) {
        let bytes = &self.buffer[..count];
        if bytes.is_empty() {
            self.open = false;
            return;
        }
        listener(stream, bytes);
        let room = limit.saturating_sub(self.kept.len()).min(count);
        self.kept.extend_from_slice(&bytes[..room]);
        *truncated |= room < count;
    }
}
