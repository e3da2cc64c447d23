//! A task of prompts: sends them to an agent in order, then reads the artifacts.

use std::path::Path;
use std::time::Duration;

use protocol::{ProblemCode, SessionId};
use sandbox::SavedChanges;
use session::{
    AgentClient, AgentResponse, Conversation, ConversationBuilder, GoalError, PermissionResponder, Sessions,
    TurnFailure,
};
use tokio::time::Instant;

use super::document::TaskFile;
use super::report::TaskReport;
use super::{TaskOutcome, TaskSetup, failure_cause};
use crate::failure::Failure;
use crate::signals::StopSignal;

/// Sends all prompts and reads all artifacts. The session has ended when this returns.
pub(super) async fn carry_out(
    id: SessionId,
    file: &TaskFile,
    setup: &TaskSetup,
    sessions: &Sessions,
    report: &mut TaskReport,
    stop: impl Future<Output = StopSignal>,
) -> Result<TaskOutcome, Failure> {
    let client = AgentClient::from_sessions(sessions.clone(), setup.request.agent.clone(), setup.options.clone());
    let terms = terms(&client, id, file, setup);
    let longest = setup.policy.limits().timeout;
    let limit = file.timeout.unwrap_or(longest).min(longest);
    // One deadline for the start of the agent and all prompts.
    let time = TaskDeadline { limit, deadline: Instant::now() + limit };
    let conversation = terms.open().await.map_err(not_reached)?;
    report.begin(conversation.id());
    let (outcome, stop) = tokio::select! {
        outcome = talk(file, &conversation, time, report) => (outcome, None),
        stop = stop => (Ok(true), Some(stop)),
    };
    let id = conversation.id().clone();
    conversation.end().await.map_err(not_reached)?;
    if let Some(stop) = stop {
        return Ok(TaskOutcome::Stopped(stop));
    }
    if !outcome? {
        return Ok(TaskOutcome::Stopped(StopSignal::Interrupt));
    }
    let changes = sessions.changes_directory(&id);
    for artifact in &file.artifacts {
        let path = Path::new(&artifact.path).strip_prefix("/workspace").unwrap_or(Path::new(&artifact.path));
        let content = SavedChanges::open(&changes).and_then(|saved| saved.read(path)).map_err(|error| {
            Failure::new(ProblemCode::ArtifactReadError, format!("cannot read the artifact `{}`", artifact.path))
                .because(&error)
                .help(format!("viv sessions diff {id}"))
        })?;
        let missed = artifact.expect.missed(&String::from_utf8_lossy(&content));
        report.artifact(&artifact.path, &content, missed.is_none());
        if let Some(why) = missed {
            return Err(failure_cause::unmet(format!("artifact `{}`: {why}", artifact.path)));
        }
    }
    Ok(TaskOutcome::Done)
}

/// Returns the settings of the conversation.
fn terms(client: &AgentClient, id: SessionId, file: &TaskFile, setup: &TaskSetup) -> ConversationBuilder {
    // The policy decides; there is nobody to ask.
    let mut terms =
        client.conversation().session_id(id).permissions(PermissionResponder::Allow).task(file.name.clone());
    if let Some(version) = &setup.request.agent_version {
        terms = terms.agent_version(version);
    }
    if let Some(model) = &setup.request.model {
        terms = terms.model(model);
    }
    if let Some(upstream) = &setup.request.upstream {
        terms = terms.upstream(upstream);
    }
    if let Some(mode) = &setup.request.permission_mode {
        terms = terms.permission_mode(mode);
    }
    if let Some(directory) = &setup.request.directory {
        terms = terms.workspace(directory);
    }
    if let Some(servers) = &setup.request.mcp {
        terms = terms.mcp(servers.clone());
    }
    if let Some(skills) = &setup.request.skills {
        terms = terms.skills(skills.clone());
    }
    terms
}

/// Sends all prompts; returns false if somebody stopped the session.
async fn talk(
    file: &TaskFile,
    conversation: &Conversation,
    time: TaskDeadline,
    report: &mut TaskReport,
) -> Result<bool, Failure> {
    for prompt in &file.prompts {
        report.prompted(&prompt.text);
        let response: AgentResponse = match conversation.ask_within(prompt.text.as_str(), time.remaining()).await {
            Err(GoalError::Failed { failure: TurnFailure::Interrupted, .. }) => return Ok(false),
            Err(GoalError::Failed { failure: TurnFailure::TimedOut(_), .. }) => return Err(time.exceeded()),
            answered => answered.map_err(not_reached)?,
        };
        report.answered(&response);
        if let Some(why) = prompt.expect.missed(&response.text) {
            return Err(failure_cause::unmet(format!("the answer to `{}`: {why}", prompt.text)));
        }
    }
    Ok(true)
}

/// Deadline of all prompts together.
#[derive(Clone, Copy)]
struct TaskDeadline {
    limit: Duration,
    deadline: Instant,
}

impl TaskDeadline {
    fn remaining(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn exceeded(self) -> Failure {
        let what = format!("the task exceeded its time limit of {:?}", self.limit);
        Failure::new(ProblemCode::Timeout, what).help("viv sessions events @last")
    }
}

fn not_reached(error: GoalError) -> Failure {
    match error {
        GoalError::Session(error) => error.into(),
        GoalError::Failed { failure, .. } => {
            let code = match &failure {
                TurnFailure::Upstream { .. } => ProblemCode::UpstreamError,
                TurnFailure::Budget(_) => ProblemCode::BudgetExceeded,
                TurnFailure::TimedOut(_) | TurnFailure::Silent => ProblemCode::Timeout,
                _ => ProblemCode::RuntimeError,
            };
            Failure::from_error(code, &failure).help("viv sessions events @last")
        }
    }
}
