//! A task of commands: run one after another, then what they made is read.

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

/// Bytes kept of what a command prints.
const OUTPUT_LIMIT: usize = 1 << 20;

/// Runs every command and reads every artifact. Sandbox and gateway are gone when this returns.
pub(super) async fn carry_out(
    id: SessionId,
    file: &TaskFile,
    scene: &TaskSetup,
    sessions: &Sessions,
    report: &mut TaskReport,
    stop: impl Future<Output = StopSignal>,
) -> Result<TaskOutcome, Failure> {
    let mut bench = sessions.workbench(id, scene.request.clone(), scene.options.clone()).await?;
    report.begin(bench.id());
    let journal = bench.journal().clone();
    let (outcome, stop) = tokio::select! {
        outcome = work(file, scene, &mut bench, report) => {
            // Somebody stopped it from another terminal: that is what happened, not what it cut.
            let stop = bench.was_stopped().then_some(StopSignal::Interrupt);
            (outcome, stop)
        }
        stop = stop => (Ok(()), Some(stop)),
    };
    let (reason, message) = match (&outcome, stop) {
        (_, Some(_)) => (SessionEndReason::Terminated, None),
        (Ok(()), None) => (SessionEndReason::Completed, None),
        (Err(failure), None) => (SessionEndReason::Error, Some(failure.to_string())),
    };
    bench.end(reason, message).await?;
    if let Some(stop) = stop {
        return Ok(TaskOutcome::Stopped(stop));
    }
    // Only now every call is on record: why a command failed may be told there.
    outcome.map_err(|failure| failure_cause::blame(failure, &*journal)).map(|()| TaskOutcome::Done)
}

async fn work(
    file: &TaskFile,
    scene: &TaskSetup,
    bench: &mut CommandSession,
    report: &mut TaskReport,
) -> Result<(), Failure> {
    let longest = scene.policy.limits().timeout;
    let deadline = Instant::now() + file.timeout.unwrap_or(longest).min(longest);
    if !file.sandbox.entrypoint.is_empty() {
        let task = SessionCommand {
            command: file.sandbox.entrypoint.clone(),
            env: file.env.clone(),
            ..SessionCommand::default()
        };
        bench.start_beside(task).await.map_err(|error| not_run(&file.sandbox.entrypoint, &error))?;
    }
    for section in &file.commands {
        let remaining = deadline.saturating_duration_since(Instant::now());
        run(file, section, remaining, bench, report).await?;
    }
    for artifact in &file.artifacts {
        let content = bench.read(&artifact.path).await.map_err(|error| not_read(&error))?;
        report.artifact(&artifact.path, &content);
        if let Some(why) = artifact.expect.missed(&String::from_utf8_lossy(&content)) {
            return Err(failure_cause::unmet(format!("artifact `{}`: {why}", artifact.path)));
        }
    }
    Ok(())
}

async fn run(
    file: &TaskFile,
    section: &CommandSection,
    remaining: Duration,
    bench: &CommandSession,
    report: &mut TaskReport,
) -> Result<(), Failure> {
    report.starts(&section.run);
    let task = SessionCommand {
        command: section.run.clone(),
        env: file.env.clone(),
        timeout: Some(section.timeout.unwrap_or(remaining).min(remaining)),
        output_limit: OUTPUT_LIMIT,
        ..SessionCommand::default()
    };
    let ran = bench.run(task, &mut |_, _| ()).await;
    let result = ran.map_err(|error| not_run(&section.run, &error))?;
    report.finished(&section.run, &result);
    check(section, &result)?;
    if let Some(path) = &section.stdout {
        bench.write(path, result.stdout).await.map_err(|error| not_read(&error))?;
    }
    Ok(())
}

fn check(section: &CommandSection, result: &ExecResult) -> Result<(), Failure> {
    let command = section.run.join(" ");
    if result.timed_out {
        return Err(failure_cause::unmet(format!("`{command}` was not done in time")));
    }
    let expected = section.expect.exit_code;
    if result.exit.code != Some(expected) {
        let how = match (result.exit.code, result.exit.signal) {
            _ if result.exit.out_of_memory => "was ended for want of memory".to_owned(),
            (Some(code), _) => format!("ended with {code}, not {expected}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "went away".to_owned(),
        };
        let said = String::from_utf8_lossy(&result.stderr);
        return Err(failure_cause::unmet(format!("`{command}` {how}")).detail(failure_cause::last_lines(&said)));
    }
    match section.expect.missed(&String::from_utf8_lossy(&result.stdout)) {
        Some(why) => Err(failure_cause::unmet(format!("what `{command}` printed: {why}"))),
        None => Ok(()),
    }
}

fn not_run(command: &[String], error: &SessionError) -> Failure {
    Failure::new(ProblemCode::RuntimeError, format!("`{}` could not be run", command.join(" ")))
        .because(error)
        .help("viv exec -- ls /usr/bin")
}

fn not_read(error: &ArtifactError) -> Failure {
    Failure::from_error(ProblemCode::ArtifactReadError, error).help("let a command of the task make the file")
}
