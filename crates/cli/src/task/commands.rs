//! A task of commands: runs them in order, then reads the artifacts.

use std::time::Duration;

use protocol::{ProblemCode, SessionEndReason, SessionId};
use sandbox::ExecResult;
use session::{ArtifactError, CommandSession, SessionCommand, SessionError, Sessions};
use tokio::time::Instant;

use super::document::{CommandSection, TaskFile};
use super::report::TaskReport;
use super::{TaskOutcome, TaskSetup, failure_cause};
use crate::failure::Failure;
use crate::signals::StopSignal;

/// Maximum bytes of a command's stdout and stderr in the report.
const OUTPUT_LIMIT: usize = 1 << 20;

/// Runs all commands and reads all artifacts. The session has ended when this returns.
pub(super) async fn carry_out(
    id: SessionId,
    file: &TaskFile,
    setup: &TaskSetup,
    sessions: &Sessions,
    report: &mut TaskReport,
    stop: impl Future<Output = StopSignal>,
) -> Result<TaskOutcome, Failure> {
    let mut session = sessions.open_command_session(id, setup.request.clone(), setup.options.clone()).await?;
    report.begin(session.id());
    let journal = session.journal().clone();
    let (outcome, stop) = tokio::select! {
        outcome = work(file, setup, &mut session, report) => {
            // Somebody stopped the session; the error of the interrupted command does not matter.
            let stop = session.was_stopped().then_some(StopSignal::Interrupt);
            (outcome, stop)
        }
        stop = stop => (Ok(()), Some(stop)),
    };
    let (reason, message) = match (&outcome, stop) {
        (_, Some(_)) => (SessionEndReason::Terminated, None),
        (Ok(()), None) => (SessionEndReason::Completed, None),
        (Err(failure), None) => (SessionEndReason::Error, Some(failure.to_string())),
    };
    session.end(reason, message).await?;
    if let Some(stop) = stop {
        return Ok(TaskOutcome::Stopped(stop));
    }
    // Now all model calls are recorded, and a failed call may explain the failed command.
    outcome.map_err(|failure| failure_cause::with_model_failure(failure, &*journal)).map(|()| TaskOutcome::Done)
}

async fn work(
    file: &TaskFile,
    setup: &TaskSetup,
    session: &mut CommandSession,
    report: &mut TaskReport,
) -> Result<(), Failure> {
    let longest = setup.policy.limits().timeout;
    let deadline = Instant::now() + file.timeout.unwrap_or(longest).min(longest);
    if !file.sandbox.entrypoint.is_empty() {
        let task = SessionCommand {
            command: file.sandbox.entrypoint.clone(),
            env: file.env.clone(),
            ..SessionCommand::default()
        };
        session.start_background(task).await.map_err(|error| not_run(&file.sandbox.entrypoint, &error))?;
    }
    for section in &file.commands {
        let remaining = deadline.saturating_duration_since(Instant::now());
        run(file, section, remaining, session, report).await?;
    }
    for artifact in &file.artifacts {
        let content = session.read(&artifact.path).await.map_err(|error| not_read(&error))?;
        let missed = artifact.expect.missed(&String::from_utf8_lossy(&content));
        report.artifact(&artifact.path, &content, missed.is_none());
        if let Some(why) = missed {
            return Err(failure_cause::unmet(format!("artifact `{}`: {why}", artifact.path)));
        }
    }
    Ok(())
}

async fn run(
    file: &TaskFile,
    section: &CommandSection,
    remaining: Duration,
    session: &CommandSession,
    report: &mut TaskReport,
) -> Result<(), Failure> {
    report.started(&section.run);
    let task = SessionCommand {
        command: section.run.clone(),
        env: file.env.clone(),
        timeout: Some(section.timeout.unwrap_or(remaining).min(remaining)),
        output_limit: OUTPUT_LIMIT,
        ..SessionCommand::default()
    };
    let ran = session.run(task, &mut |_, _| ()).await;
    let result = ran.map_err(|error| not_run(&section.run, &error))?;
    report.finished(&section.run, &result);
    check(section, &result)?;
    if let Some(path) = &section.stdout {
        session.write(path, result.stdout).await.map_err(|error| not_read(&error))?;
    }
    Ok(())
}

fn check(section: &CommandSection, result: &ExecResult) -> Result<(), Failure> {
    let command = section.run.join(" ");
    if result.timed_out {
        return Err(failure_cause::unmet(format!("`{command}` exceeded its time limit")));
    }
    let expected = section.expect.exit_code;
    if result.exit.code != Some(expected) {
        let how = match (result.exit.code, result.exit.signal) {
            _ if result.exit.out_of_memory => "was killed: it exceeded its memory limit (proc.memory)".to_owned(),
            (Some(code), _) => format!("exited with code {code}, expected {expected}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended without an exit code".to_owned(),
        };
        let stderr = String::from_utf8_lossy(&result.stderr);
        return Err(failure_cause::unmet(format!("`{command}` {how}")).detail(failure_cause::last_lines(&stderr)));
    }
    match section.expect.missed(&String::from_utf8_lossy(&result.stdout)) {
        Some(why) => Err(failure_cause::unmet(format!("output of `{command}`: {why}"))),
        None => Ok(()),
    }
}

fn not_run(command: &[String], error: &SessionError) -> Failure {
    Failure::new(ProblemCode::RuntimeError, format!("cannot run `{}`", command.join(" ")))
        .because(error)
        .help("viv exec -- ls /usr/bin")
}

fn not_read(error: &ArtifactError) -> Failure {
    Failure::from_error(ProblemCode::ArtifactReadError, error).help("viv sessions events @last")
}
