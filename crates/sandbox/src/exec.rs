//! One command: what to run, and what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use crate::{Sandbox, SandboxError, WindowSize};

/// What to run. The command is a list of words, never a shell line.
#[derive(Debug, Clone, Default)]
pub struct ExecSpec {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working directory inside; `/workspace` when absent.
    pub workdir: Option<String>,
    /// The whole environment; a small default when empty.
    pub env: BTreeMap<String, String>,
    /// Given to its standard input, which is then closed. With `None` the caller of `exec` holds it open.
    pub stdin: Option<Vec<u8>>,
    /// Who it runs as inside.
    pub user: ExecUser,
    /// A terminal of this size in place of pipes; where there can be none, it is refused.
    pub terminal: Option<WindowSize>,
    /// Wall time before everything is killed.
    pub timeout: Option<Duration>,
    /// Time without output before everything is killed.
    pub idle_timeout: Option<Duration>,
    /// Bytes kept of each of stdout and stderr.
    pub output_limit: Option<usize>,
}

/// Who a command is inside. A backend that has no such user refuses with [`SandboxError::Unavailable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExecUser {
    /// Whoever owns the workspace there: an ordinary user, where there is a wall.
    #[default]
    Agent,
    /// Root inside.
    Root,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessExit {
    /// Its exit code, when it had one.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Processor time of it and its children, when known; never more than the host gave the sandbox meanwhile.
    pub cpu_micros: u64,
    /// Largest resident size, when known.
    pub peak_rss_bytes: u64,
    /// Whether the kernel ended it because the sandbox was out of memory.
    pub out_of_memory: bool,
}

/// What came of a command.
#[derive(Debug, Clone, Default)]
pub struct ExecResult {
    /// Its standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// Its standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub exit: ProcessExit,
    /// Wall time.
    pub wall: Duration,
    /// Whether output was cut.
    pub truncated: bool,
    /// Whether `timeout` or `idle_timeout` ended it.
    pub timed_out: bool,
}

/// Which of the two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Hears output as it comes.
pub type OutputListener<'a> = &'a mut (dyn FnMut(OutputStream, &[u8]) + Send);

/// How long output may still come after the command itself has ended, from what it left running.
const AFTERMATH: Duration = Duration::from_millis(50);

/// Runs a command to its end, hearing its output as it comes.
///
/// What is past `output_limit` is read, passed to `listener` and not kept. A timeout ends the command with
/// everything it started, and the result says so.
pub async fn run(
    sandbox: &dyn Sandbox,
    mut spec: ExecSpec,
    listener: OutputListener<'_>,
) -> Result<ExecResult, SandboxError> {
    let input = std::io::Cursor::new(spec.stdin.take().unwrap_or_default());
    run_with_input(sandbox, spec, Box::new(input), listener).await
}

/// The same, with input that comes while the command runs.
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
    let stdin = process.stdin.take();
    let mut input = std::pin::pin!(async move {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input is not an error of ours.
            let _ = tokio::io::copy(&mut source, &mut stdin).await;
        }
    });
    let (mut out, mut err) = (Pipe::new(process.stdout), Pipe::new(process.stderr));
    let (mut given, mut exit) = (false, None);
    let mut result = ExecResult::default();
    let mut last_heard = started;
    while exit.is_none() || out.open || err.open {
        let wake = match exit {
            Some(_) => Some(last_heard.max(started) + AFTERMATH),
            None => [timeout.map(|limit| started + limit), idle_timeout.map(|limit| last_heard + limit)]
                .into_iter()
                .flatten()
                .min(),
        };
        tokio::select! {
            () = &mut input, if !given => given = true,
            read = out.read(), if out.open => {
                out.keep(read, OutputStream::Stdout, limit, listener, &mut result.truncated);
                last_heard = Instant::now();
            }
            read = err.read(), if err.open => {
                err.keep(read, OutputStream::Stderr, limit, listener, &mut result.truncated);
                last_heard = Instant::now();
            }
            ended = &mut process.exit, if exit.is_none() => {
                exit = Some(ended?);
                result.wall = started.elapsed();
                last_heard = Instant::now();
            }
            // What still holds the pipes outlives the command; it is not waited for.
            () = sleep_until(wake), if exit.is_some() => break,
            () = sleep_until(wake), if exit.is_none() => {
                result.timed_out = true;
                (process.kill)();
                exit = Some((&mut process.exit).await?);
                result.wall = started.elapsed();
                last_heard = Instant::now();
            }
        }
    }
    (result.stdout, result.stderr) = (out.kept, err.kept);
    result.exit = exit.unwrap_or_default();
    Ok(result)
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

/// One of the two outputs, as it is read.
struct Pipe {
    source: Box<dyn AsyncRead + Send + Unpin>,
    buffer: Vec<u8>,
    kept: Vec<u8>,
    open: bool,
}

impl Pipe {
    fn new(source: Box<dyn AsyncRead + Send + Unpin>) -> Self {
        Self { source, buffer: vec![0; 64 * 1024], kept: Vec::new(), open: true }
    }

    /// Number of bytes read; none at the end and after an error.
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
