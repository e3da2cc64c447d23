//! Tasks of the server's API, run on the server's sessions and under its policy.
//!
//! The caller has a token but is not the person who started the server. Keys that reach the host's files or weaken the
//! sandbox are therefore rejected.

use std::sync::Arc;

use ::policy::EffectivePolicy;
use protocol::{ProblemCode, SessionId};
use serde_json::Value;
use server::{TaskRun, TaskRunner};
use session::{Sessions, WorkspaceAccess};

use super::document::{self, BackendWord, TaskFile};
use super::report::TaskReport;
use super::{TaskOutcome, TaskSetup, commands, prompts};
use crate::config::Config;
use crate::failure::Failure;

/// Returns the function that runs tasks on `sessions` under `policy`.
pub(crate) fn task_runner(config: &Config, policy: &Arc<EffectivePolicy>, sessions: &Sessions) -> TaskRunner {
    let (config, policy, sessions) = (config.clone(), policy.clone(), sessions.clone());
    TaskRunner(Arc::new(move |id, task, options| {
        let started = begin(
            id,
            task,
            &options.workspaces,
            &ServerContext { config: &config, policy: &policy, sessions: &sessions },
        );
        started.map_err(|failure| failure.problem())
    }))
}

/// The server's configuration, policy and sessions.
struct ServerContext<'a> {
    config: &'a Config,
    policy: &'a Arc<EffectivePolicy>,
    sessions: &'a Sessions,
}

fn begin(
    id: SessionId,
    task: Value,
    workspaces: &WorkspaceAccess,
    host: &ServerContext<'_>,
) -> Result<(String, TaskRun), Failure> {
    let file = document::from_value(task, "the body")?;
    check(&file)?;
    if let Some(workspace) = file.workspace.as_ref() {
        host.sessions.check_directory(workspace, workspaces)?;
    }
    let mut setup = TaskSetup::from_api(&file, host.config, host.policy.clone())?;
    setup.options.workspaces = workspaces.clone();
    let (name, sessions) = (file.name.clone(), host.sessions.clone());
    Ok((name, Box::pin(async move { carry_out(id, &file, &setup, &sessions).await })))
}

async fn carry_out(id: SessionId, file: &TaskFile, setup: &TaskSetup, sessions: &Sessions) -> Value {
    let mut report = TaskReport::new(file, true);
    // A task of the API is stopped by ending its session.
    let never = std::future::pending();
    let outcome: Result<TaskOutcome, Failure> = if file.prompts.is_empty() {
        commands::carry_out(id, file, setup, sessions, &mut report, never).await
    } else {
        prompts::carry_out(id, file, setup, sessions, &mut report, never).await
    };
    report.document(&outcome)
}

/// Rejects keys that only the person at the host may use.
fn check(file: &TaskFile) -> Result<(), Failure> {
    let host = [
        ("env_file", file.env_file.is_some()),
        ("logs", file.logs.is_some()),
        ("sandbox.policy", file.sandbox.policy.is_some()),
        ("sandbox.backend", file.sandbox.backend != BackendWord::Jail),
    ];
    let Some((key, _)) = host.iter().find(|(_, is_set)| *is_set) else { return Ok(()) };
    let what = format!("`{key}` is not allowed over the API: only the host chooses it");
    Err(Failure::new(ProblemCode::PolicyDenied, what).help("viv task task.yaml"))
}
