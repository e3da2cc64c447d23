//! Running a command attached to the caller's streams, as in a pipe.
//!
//! No output is kept. A slow reader slows the command, and the command gets a broken pipe when its reader closes.

use std::time::Duration;

use futures_util::future::poll_immediate;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::{ExecResult, ExecSpec, Sandbox, SandboxError, WindowSize};

/// How long output of background processes is read after the command has ended.
const DRAIN_TIME: Duration = Duration::from_millis(50);
/// How long a reader may take for the last output of a command that timed out.
const TIMED_OUT_DRAIN_TIME: Duration = Duration::from_secs(1);

/// Rewrites output before it is written.
pub type OutputFilter = Box<dyn FnMut(&[u8]) -> Vec<u8> + Send>;

/// The destination of one output stream.
pub struct OutputSink {
    /// The writer.
    pub to: Box<dyn AsyncWrite + Send + Unpin>,
    /// A filter that is applied first.
    pub filter: Option<OutputFilter>,
}

/// The caller's streams for a command.
pub struct StandardStreams {
    /// The source of standard input.
    pub input: Box<dyn AsyncRead + Send + Unpin>,
    /// The destination of standard output.
    pub output: OutputSink,
    /// The destination of standard error.
    pub errors: OutputSink,
    /// The window size as it changes, for a command with a terminal.
    pub window: Option<watch::Receiver<WindowSize>>,
}

/// Runs a command to its end, attached to `streams`. A command that writes more than `output_limit` to one of its two
/// output streams is killed; the caller gets the output up to the limit.
pub async fn attach(
    sandbox: &dyn Sandbox,
    spec: ExecSpec,
    streams: StandardStreams,
) -> Result<ExecResult, SandboxError> {
    let (started, timeout, idle_timeout) = (Instant::now(), spec.timeout, spec.idle_timeout);
    let limit = spec.output_limit.map_or(u64::MAX, |limit| limit as u64);
    let (activity, activity_receiver) = watch::channel(OutputActivity { last: started, blocked: 0 });
    let mut process = sandbox.exec(spec).await?;
    let (ended_sender, ended) = watch::channel(false);
    let mut window = streams.window;
    let mut feeding = std::pin::pin!(copy_input(streams.input, process.stdin.take()));
    let output_exceeded = Notify::new();
    let pump = |from, sink, ended| copy_output(from, sink, ended, &activity, (limit, &output_exceeded));
    let pumps = async {
        tokio::join!(pump(process.stdout, streams.output, ended.clone()), pump(process.stderr, streams.errors, ended));
    };
    let mut pumps = std::pin::pin!(pumps);
    let (mut input_done, mut output_done) = (false, false);
    let mut result = ExecResult::default();
    result.exit = loop {
        tokio::select! {
            () = &mut feeding, if !input_done => input_done = true,
            () = &mut pumps, if !output_done => output_done = true,
            exit = &mut process.exit => break exit?,
            size = next_size(&mut window) => (process.resize)(size),
            () = output_exceeded.notified(), if !result.output_exceeded => {
                (result.output_exceeded, result.truncated) = (true, true);
                (process.kill)();
            }
            () = wait_for_timeout(started, timeout), if !result.timed_out => {
                result.timed_out = true;
                (process.kill)();
            }
            () = wait_for_idle(activity_receiver.clone(), idle_timeout), if !result.timed_out => {
                result.timed_out = true;
                (process.kill)();
            }
        }
    };
    result.wall = started.elapsed();
    let _ = ended_sender.send(true);
    if !output_done {
        let limit = if result.timed_out { TIMED_OUT_DRAIN_TIME } else { Duration::MAX };
        let _ = tokio::time::timeout(limit, pumps).await;
    }
    // The last output of a command that has ended can be over the limit, too.
    if poll_immediate(std::pin::pin!(output_exceeded.notified())).await.is_some() {
        (result.output_exceeded, result.truncated) = (true, true);
    }
    Ok(result)
}

/// Returns the next window size; never without a window.
async fn next_size(window: &mut Option<watch::Receiver<WindowSize>>) -> WindowSize {
    if let Some(window) = window
        && window.changed().await.is_ok()
    {
        return *window.borrow_and_update();
    }
    std::future::pending().await
}

async fn wait_for_timeout(started: Instant, timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep_until(started + timeout).await,
        None => std::future::pending().await,
    }
}

/// The recent output of a command.
struct OutputActivity {
    /// When the last output arrived.
    last: Instant,
    /// How many of the two streams wait for a slow reader. The command is not idle meanwhile.
    blocked: u8,
}

/// Returns when the command has written nothing for `limit`.
async fn wait_for_idle(mut activity: watch::Receiver<OutputActivity>, limit: Option<Duration>) {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        let (last, blocked) = {
            let activity = activity.borrow_and_update();
            (activity.last, activity.blocked)
        };
        tokio::select! {
            () = tokio::time::sleep_until(last + limit), if blocked == 0 => return,
            changed = activity.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
        }
    }
}

/// Copies input to the command, then closes the command's standard input.
async fn copy_input(mut from: Box<dyn AsyncRead + Send + Unpin>, to: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    let Some(mut to) = to else { return };
    // A command may end without reading its input.
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// Copies output of the command. When the reader has closed, `from` is dropped, so that the command gets a broken pipe.
async fn copy_output(
    mut from: Box<dyn AsyncRead + Send + Unpin>,
    mut sink: OutputSink,
    mut ended: watch::Receiver<bool>,
    activity: &watch::Sender<OutputActivity>,
    (limit, exceeded): (u64, &Notify),
) {
    let mut buffer = vec![0; 64 * 1024];
    let mut left = limit;
    loop {
        let count = tokio::select! {
            biased;
            count = from.read(&mut buffer) => count.unwrap_or(0),
            // Background processes may still hold the pipe; they are not waited for.
            () = drained(&mut ended) => 0,
        };
        if count == 0 {
            break;
        }
        let over = count as u64 > left;
        let count = usize::try_from(left).map_or(count, |left| count.min(left));
        left -= count as u64;
        activity.send_modify(|activity| activity.blocked += 1);
        let written = match &mut sink.filter {
            Some(filter) => sink.to.write_all(&filter(&buffer[..count])).await,
            None => sink.to.write_all(&buffer[..count]).await,
        };
        // Standard output buffers incomplete lines, so a prompt would not be seen without this flush.
        let written = match written {
            Ok(()) => sink.to.flush().await,
            failed => failed,
        };
        activity.send_modify(|activity| {
            *activity = OutputActivity { last: Instant::now(), blocked: activity.blocked - 1 };
        });
        if over {
            exceeded.notify_one();
            // The pipe stays open, so that the command is killed and does not end by a broken pipe.
            let _ = ended.wait_for(|ended| *ended).await;
        }
        if over || written.is_err() {
            return;
        }
    }
}

/// Returns [`DRAIN_TIME`] after the command has ended.
async fn drained(ended: &mut watch::Receiver<bool>) {
    // The channel closes only when the command is no longer waited for.
    let _ = ended.wait_for(|ended| *ended).await;
    tokio::time::sleep(DRAIN_TIME).await;
}
