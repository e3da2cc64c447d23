//! The execution of `run`: files in, the command, artifacts out.

use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::lock;
use policy::EffectivePolicy;
use protocol::{EgressConnection, EventBody};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use sandbox::{ByteRange, OutputStream};
use session::{CommandSession, SessionCommand};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, MissedTickBehavior};

use crate::arguments::{FileArgument, RunArguments, encode};
use crate::failure::ToolFailure;
use crate::files::write_file;
use crate::report::{Artifact, RunReport, StreamReport};

/// Time between two progress notifications.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// Characters of the last output line in a progress notification.
const PROGRESS_LINE: usize = 200;
/// Most bytes of all artifacts of one call.
const MAX_ARTIFACTS: u64 = 8 << 20;

/// A checked call of `run`.
pub(crate) struct Execution {
    command: SessionCommand,
    input: Vec<u8>,
    files: Vec<FileArgument>,
    artifacts: Vec<String>,
    policy: Arc<EffectivePolicy>,
}

impl Execution {
    /// Checks the arguments. Nothing is started.
    pub(crate) fn prepare(arguments: RunArguments, policy: Arc<EffectivePolicy>) -> Result<Self, ToolFailure> {
        let limits = policy.limits();
        let command = SessionCommand {
            command: arguments.command()?,
            workdir: arguments.cwd.as_deref().map(working_directory),
            env: arguments.environment()?,
            timeout: Some(arguments.timeout(limits.timeout)?),
            output_limit: arguments.output_limit(limits.output_bytes),
            reason: arguments.reason.clone(),
            ..SessionCommand::default()
        };
        for file in &arguments.files {
            file.bytes()?;
        }
        let input = arguments.input()?;
        Ok(Self { command, input, files: arguments.files, artifacts: arguments.artifacts, policy })
    }

    /// Runs the command in `session`.
    pub(crate) async fn carry_out(
        self,
        session: &CommandSession,
        mut progress: Option<ProgressReporter>,
    ) -> Result<RunReport, ToolFailure> {
        for file in &self.files {
            write_file(session.files(), file).await?;
        }
        let before = *session.journal().last().borrow();
        let (timeout, limit) = (self.command.timeout, self.command.output_limit);
        let (mut stdout, mut stderr) = (StreamReport::default(), StreamReport::default());
        let last_line = progress.as_ref().map(|progress| progress.last_line.clone());
        let mut listener = |stream, bytes: &[u8]| {
            let count = match stream {
                OutputStream::Stdout => &mut stdout,
                OutputStream::Stderr => &mut stderr,
            };
            count.bytes += bytes.len() as u64;
            if let Some(last_line) = &last_line {
                remember_line(&mut lock(last_line), bytes);
            }
        };
        let running = session.run_with_input(self.command, Box::new(Cursor::new(self.input)), &mut listener);
        let result = match &mut progress {
            Some(progress) => progress.while_running(running).await?,
            None => running.await?,
        };
        stdout.keep(&result.stdout, limit);
        stderr.keep(&result.stderr, limit);
        let artifacts = collect(session, &self.artifacts, self.policy.limits().output_bytes).await;
        Ok(RunReport {
            session: session.id().clone(),
            denials: denials(session, before).await?,
            policy: self.policy,
            timeout: timeout.unwrap_or_default(),
            result,
            stdout,
            stderr,
            artifacts,
        })
    }
}

/// Returns a path inside the sandbox; relative ones are in the workspace.
fn working_directory(given: &str) -> String {
    if given.starts_with('/') { given.to_owned() } else { format!("{}/{given}", base::WORKSPACE) }
}

/// Returns the denied connections that were recorded after `before`.
async fn denials(session: &CommandSession, before: u64) -> Result<Vec<EgressConnection>, ToolFailure> {
    let journal = session.journal().clone();
    let read = tokio::task::spawn_blocking(move || journal.after(before, usize::MAX)).await;
    let Ok(events) = read else { return Ok(Vec::new()) };
    let denied = events?.into_iter().filter_map(|event| match event.draft.body {
        EventBody::EgressDenied(connection) => Some(connection),
        _ => None,
    });
    Ok(denied.collect())
}

/// Reads the artifacts. A file that cannot be returned has an error in its place, because the command has run.
async fn collect(session: &CommandSession, paths: &[String], output_limit: u64) -> Vec<Artifact> {
    let mut left = output_limit.min(MAX_ARTIFACTS);
    let mut artifacts = Vec::new();
    for path in paths {
        let artifact = read_artifact(session, path, left).await;
        if let Ok((bytes, _)) = &artifact {
            left = left.saturating_sub(*bytes);
        }
        artifacts.push(Artifact { path: path.clone(), content: artifact.map(|(_, content)| content) });
    }
    artifacts
}

async fn read_artifact(
    session: &CommandSession,
    path: &str,
    limit: u64,
) -> Result<(u64, crate::report::ArtifactContent), String> {
    let file = session.files().read(Path::new(path), ByteRange::first(limit)).await;
    let file = file.map_err(|error| base::error_chain(&error))?;
    if file.stat.size > limit {
        return Err(format!(
            "the file has {} bytes, and {limit} bytes of artifacts are left for this call (proc.output); use `read_file`",
            file.stat.size
        ));
    }
    let mut bytes = Vec::new();
    file.bytes.take(limit).read_to_end(&mut bytes).await.map_err(|error| error.to_string())?;
    let (size, sha256) = (bytes.len() as u64, base::Digest::of(&bytes).to_string());
    let (encoding, content) = encode(bytes);
    Ok((size, crate::report::ArtifactContent { bytes: size, sha256, encoding, content }))
}

/// Keeps the last line of output, for progress notifications.
fn remember_line(last: &mut String, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) {
        *last = line.chars().take(PROGRESS_LINE).collect();
    }
}

/// Sends progress notifications while a command runs.
pub(crate) struct ProgressReporter {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    last_line: Arc<Mutex<String>>,
}

impl ProgressReporter {
    pub(crate) fn new(peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        Self { peer, token, last_line: Arc::default() }
    }

    /// Waits for `running` and reports its time and its last output line. The first report is sent at once.
    async fn while_running<T>(&mut self, running: impl Future<Output = T>) -> T {
        let started = Instant::now();
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut running = std::pin::pin!(running);
        loop {
            tokio::select! {
                result = &mut running => return result,
                _ = ticks.tick() => {}
            }
            let line = lock(&self.last_line).clone();
            let message = if line.is_empty() { "running".to_owned() } else { line };
            let report = ProgressNotificationParam::new(self.token.clone(), started.elapsed().as_secs_f64())
                .with_message(message);
            tokio::select! {
                result = &mut running => return result,
                // A client that does not read gets no progress, and the command goes on.
                _ = self.peer.notify_progress(report) => {}
            }
        }
    }
}
