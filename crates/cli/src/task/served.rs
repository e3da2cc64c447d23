//! Tasks that are handed in to a server: the same as those of a file, on its sessions and under its policy.
//!
//! Whoever hands one in is known by a token, not as the person who started the server: what would reach the host's files
//! or a weaker sandbox is refused.

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

/// Does tasks on `sessions`, which are made under `policy`.
pub(crate) fn task_runner(config: &Config, policy: &Arc<EffectivePolicy>, sessions: &Sessions) -> TaskRunner {
    let (config, policy, sessions) = (config.clone(), policy.clone(), sessions.clone());
    TaskRunner(Arc::new(move |id, task, options| {
        let told = begin(
            id,
            task,
            &options.workspaces,
            &ServerContext { config: &config, policy: &policy, sessions: &sessions },
        );
        told.map_err(|failure| failure.problem())
    }))
}

/// Where tasks are done.
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
    let file = document::of(task, "the body")?;
    check(&file)?;
    if let Some(workspace) = file.workspace.as_ref() {
        host.sessions.check_directory(workspace, workspaces)?;
    }
    let mut scene = TaskSetup::served(&file, host.config, host.policy.clone())?;
    scene.options.workspaces = workspaces.clone();
    let (name, sessions) = (file.name.clone(), host.sessions.clone());
    Ok((name, Box::pin(async move { carry_out(id, &file, &scene, &sessions).await })))
}

async fn carry_out(id: SessionId, file: &TaskFile, scene: &TaskSetup, sessions: &Sessions) -> Value {
    let mut report = TaskReport::new(file, true);
    // Who wants it to stop ends its session.
    let never = std::future::pending();
    let outcome: Result<TaskOutcome, Failure> = if file.prompts.is_empty() {
        commands::carry_out(id, file, scene, sessions, &mut report, never).await
    } else {
        prompts::carry_out(id, file, scene, sessions, &mut report, never).await
    };
    report.document(&outcome)
}

/// What only the person at the host may say.
fn check(file: &TaskFile) -> Result<(), Failure> {
    let host = [
        ("env_file", file.env_file.is_some()),
        ("logs", file.logs.is_some()),
        ("sandbox.policy", file.sandbox.policy.is_some()),
        ("sandbox.backend", file.sandbox.backend != BackendWord::Jail),
    ];
    let Some((key, _)) = host.iter().find(|(_, said)| *said) else { return Ok(()) };
    let what = format!("`{key}` cannot be said over the API: it is for the host to choose");
    Err(Failure::new(ProblemCode::PolicyDenied, what).help("viv task FILE"))
}
