//! A command between somebody else's streams, as in a pipe: nothing is kept, a reader that is slow slows the
//! command, and a reader that goes away is a reader the command finds gone.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{ExecResult, ExecSpec, Sandbox, SandboxError, WindowSize};

/// How long output may still come after the command itself has ended, from what it left running.
const AFTERMATH: Duration = Duration::from_millis(50);
/// How long a reader may take for what a command that took too long had written.
const DRAIN: Duration = Duration::from_secs(1);

/// Changes bytes on their way.
pub type OutputFilter = Box<dyn FnMut(&[u8]) -> Vec<u8> + Send>;

/// Where one of the two outputs goes.
pub struct OutputSink {
    /// Who reads it.
    pub to: Box<dyn AsyncWrite + Send + Unpin>,
    /// What is done to it before.
    pub filter: Option<OutputFilter>,
}

/// The three standard streams of a command, seen from outside.
pub struct StandardStreams {
    /// What it reads.
    pub input: Box<dyn AsyncRead + Send + Unpin>,
    /// What it writes.
    pub output: OutputSink,
    /// What it complains.
    pub errors: OutputSink,
    /// How large the window is, as it changes: for a command with a terminal.
    pub window: Option<watch::Receiver<WindowSize>>,
}

/// Runs a command to its end between `streams`. Of `spec` the output limit has no meaning.
pub async fn attach(
    sandbox: &dyn Sandbox,
    spec: ExecSpec,
    streams: StandardStreams,
) -> Result<ExecResult, SandboxError> {
    let (started, timeout, idle_timeout) = (Instant::now(), spec.timeout, spec.idle_timeout);
    let (heard, listening) = watch::channel(Heard { last: started, waiting: 0 });
    let mut process = sandbox.exec(spec).await?;
    let (tell, ended) = watch::channel(false);
    let mut window = streams.window;
    let mut feeding = std::pin::pin!(feed(streams.input, process.stdin.take()));
    let pumps = async {
        tokio::join!(
            pump(process.stdout, streams.output, ended.clone(), &heard),
            pump(process.stderr, streams.errors, ended, &heard)
        );
    };
    let mut pumps = std::pin::pin!(pumps);
    let (mut fed, mut pumped) = (false, false);
    let mut result = ExecResult::default();
    result.exit = loop {
        tokio::select! {
            () = &mut feeding, if !fed => fed = true,
            () = &mut pumps, if !pumped => pumped = true,
            ended = &mut process.exit => break ended?,
            size = resized(&mut window) => (process.resize)(size),
            () = after(started, timeout), if !result.timed_out => {
                result.timed_out = true;
                (process.kill)();
            }
            () = silence(listening.clone(), idle_timeout), if !result.timed_out => {
                result.timed_out = true;
                (process.kill)();
            }
        }
    };
    result.wall = started.elapsed();
    let _ = tell.send(true);
    if !pumped {
        let bound = if result.timed_out { DRAIN } else { Duration::MAX };
        let _ = tokio::time::timeout(bound, pumps).await;
    }
    Ok(result)
}

/// The next size of the window.
async fn resized(window: &mut Option<watch::Receiver<WindowSize>>) -> WindowSize {
    if let Some(window) = window
        && window.changed().await.is_ok()
    {
        return *window.borrow_and_update();
    }
    std::future::pending().await
}

async fn after(started: Instant, timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep_until(started + timeout).await,
        None => std::future::pending().await,
    }
}

/// When output came last, and how many of the two outputs wait for a slow reader: that silence is not the command's.
struct Heard {
    last: Instant,
    waiting: u8,
}

/// Comes when the command has said nothing for so long.
async fn silence(mut heard: watch::Receiver<Heard>, limit: Option<Duration>) {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        let (last, waiting) = {
            let heard = heard.borrow_and_update();
            (heard.last, heard.waiting)
        };
        tokio::select! {
            () = tokio::time::sleep_until(last + limit), if waiting == 0 => return,
            changed = heard.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
        }
    }
}

/// Hands on what comes in; at its end the command finds its own.
async fn feed(mut from: Box<dyn AsyncRead + Send + Unpin>, to: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    let Some(mut to) = to else { return };
    // A command that does not read its input is not an error of ours.
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// Hands on what comes out. It ends by dropping `from`: a command whose reader has gone hears of it as it
/// would without us.
async fn pump(
    mut from: Box<dyn AsyncRead + Send + Unpin>,
    mut into: OutputSink,
    mut ended: watch::Receiver<bool>,
    heard: &watch::Sender<Heard>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = tokio::select! {
            biased;
            count = from.read(&mut buffer) => count.unwrap_or(0),
            // What still holds the pipe outlives the command; it is not waited for.
            () = aftermath(&mut ended) => 0,
        };
        if count == 0 {
            break;
        }
        heard.send_modify(|heard| heard.waiting += 1);
        let written = match &mut into.filter {
            Some(filter) => into.to.write_all(&filter(&buffer[..count])).await,
            None => into.to.write_all(&buffer[..count]).await,
        };
        // Our own stdout keeps the end of a line until there is one: a prompt would never be seen.
        let written = match written {
            Ok(()) => into.to.flush().await,
            failed => failed,
        };
        heard.send_modify(|heard| *heard = Heard { last: Instant::now(), waiting: heard.waiting - 1 });
        if written.is_err() {
            return;
        }
    }
}

async fn aftermath(ended: &mut watch::Receiver<bool>) {
    // Whoever would tell is gone only when the command is no longer waited for.
    let _ = ended.wait_for(|ended| *ended).await;
    tokio::time::sleep(AFTERMATH).await;
}
