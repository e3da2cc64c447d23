//! One command: what to run, and what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::{Sandbox, SandboxError};

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
    /// Wall time before everything is killed.
    pub timeout: Option<Duration>,
    /// Time without output before everything is killed.
    pub idle_timeout: Option<Duration>,
    /// Bytes kept of each of stdout and stderr.
    pub output_limit: Option<usize>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exit {
    /// Its exit code, when it had one.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Processor time of it and its children, when known.
    pub cpu_micros: u64,
    /// Largest resident size, when known.
    pub peak_rss_bytes: u64,
}

/// What came of a command.
#[derive(Debug, Clone, Default)]
pub struct ExecResult {
    /// Its standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// Its standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub exit: Exit,
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

/// Runs a command to its end, hearing its output as it comes.
///
/// What is past `output_limit` is read, passed to `listener` and not kept.
pub async fn run(
    sandbox: &dyn Sandbox,
    mut spec: ExecSpec,
    listener: OutputListener<'_>,
) -> Result<ExecResult, SandboxError> {
    let started = std::time::Instant::now();
    let limit = spec.output_limit.unwrap_or(usize::MAX);
    let (timeout, idle_timeout, input) = (spec.timeout, spec.idle_timeout, spec.stdin.take());
    let mut process = sandbox.exec(spec).await?;
    let stdin = process.stdin.take();
    let feed = async move {
        if let (Some(mut stdin), Some(bytes)) = (stdin, input) {
            // A command that does not read its input is not an error of ours.
            let _ = stdin.write_all(&bytes).await;
        }
    };
    let mut result = ExecResult::default();
    let deadline = timeout.map(|timeout| tokio::time::Instant::now() + timeout);
    let collected = {
        let collect = collect(&mut process.stdout, &mut process.stderr, limit, idle_timeout, &mut result, listener);
        let both = async { tokio::join!(feed, collect).1 };
        match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, both).await.unwrap_or(Collected::TimedOut),
            None => both.await,
        }
    };
    if collected == Collected::TimedOut {
        result.timed_out = true;
        (process.kill)();
    }
    let ended = match deadline {
        Some(deadline) if !result.timed_out => match tokio::time::timeout_at(deadline, &mut process.exit).await {
            Ok(ended) => ended,
            Err(_) => {
                result.timed_out = true;
                (process.kill)();
                process.exit.await
            }
        },
        _ => process.exit.await,
    };
    result.exit = ended?;
    result.wall = started.elapsed();
    Ok(result)
}

#[derive(PartialEq, Eq)]
enum Collected {
    Closed,
    TimedOut,
}

async fn collect(
    stdout: &mut (dyn AsyncRead + Send + Unpin),
    stderr: &mut (dyn AsyncRead + Send + Unpin),
    limit: usize,
    idle_timeout: Option<Duration>,
    result: &mut ExecResult,
    listener: OutputListener<'_>,
) -> Collected {
    let (mut out, mut err) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        let idle = async {
            match idle_timeout {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            read = stdout.read(&mut out), if out_open => match read {
                Ok(count) if count > 0 => {
                    listener(OutputStream::Stdout, &out[..count]);
                    keep(&mut result.stdout, &out[..count], limit, &mut result.truncated);
                }
                _ => out_open = false,
            },
            read = stderr.read(&mut err), if err_open => match read {
                Ok(count) if count > 0 => {
                    listener(OutputStream::Stderr, &err[..count]);
                    keep(&mut result.stderr, &err[..count], limit, &mut result.truncated);
                }
                _ => err_open = false,
            },
            () = idle => return Collected::TimedOut,
        }
    }
    Collected::Closed
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8], limit: usize, truncated: &mut bool) {
    let room = limit.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..room]);
    *truncated |= room < bytes.len();
}
