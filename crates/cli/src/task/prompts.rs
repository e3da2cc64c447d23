//! A task of prompts: an agent is told one thing after another, then what it wrote is read.

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

/// Says every prompt and reads every artifact. Sandbox and gateway are gone when this returns.
pub(super) async fn carry_out(
    id: SessionId,
    file: &TaskFile,
    scene: &TaskSetup,
    sessions: &Sessions,
    report: &mut TaskReport,
    stop: impl Future<Output = StopSignal>,
) -> Result<TaskOutcome, Failure> {
    let client = AgentClient::over(sessions.clone(), scene.request.agent.clone(), scene.options.clone());
    let terms = terms(&client, id, file, scene);
    let longest = scene.policy.limits().timeout;
    let limit = file.timeout.unwrap_or(longest).min(longest);
    // One for all prompts, and for the start of the agent.
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
            Failure::new(ProblemCode::ArtifactReadError, format!("artifact `{}` cannot be read", artifact.path))
                .because(&error)
                .help(format!("viv sessions diff {id}"))
        })?;
        report.artifact(&artifact.path, &content);
        if let Some(why) = artifact.expect.missed(&String::from_utf8_lossy(&content)) {
            return Err(failure_cause::unmet(format!("artifact `{}`: {why}", artifact.path)));
        }
    }
    Ok(TaskOutcome::Done)
}

/// On which terms the agent works.
fn terms(client: &AgentClient, id: SessionId, file: &TaskFile, scene: &TaskSetup) -> ConversationBuilder {
    // A task names what may be done in its policy; nobody is there to ask.
    let mut terms =
        client.conversation().session_id(id).permissions(PermissionResponder::Allow).task(file.name.clone());
    if let Some(version) = &scene.request.agent_version {
        terms = terms.agent_version(version);
    }
    if let Some(model) = &scene.request.model {
        terms = terms.model(model);
    }
    if let Some(upstream) = &scene.request.upstream {
        terms = terms.upstream(upstream);
    }
    if let Some(mode) = &scene.request.permission_mode {
        terms = terms.permission_mode(mode);
    }
    if let Some(directory) = &scene.request.directory {
        terms = terms.workspace(directory);
    }
    if let Some(servers) = &scene.request.mcp {
        terms = terms.mcp(servers.clone());
    }
    if let Some(skills) = &scene.request.skills {
        terms = terms.skills(skills.clone());
    }
    terms
}

/// Says every prompt; false when somebody stopped it from another terminal.
async fn talk(
    file: &TaskFile,
    conversation: &Conversation,
    time: TaskDeadline,
    report: &mut TaskReport,
) -> Result<bool, Failure> {
    for prompt in &file.prompts {
        report.says(&prompt.text);
        let response: AgentResponse = match conversation.ask_within(prompt.text.as_str(), time.left()).await {
            Err(GoalError::Failed { failure: TurnFailure::Interrupted, .. }) => return Ok(false),
            Err(GoalError::Failed { failure: TurnFailure::TimedOut(_), .. }) => return Err(time.is_over()),
            answered => answered.map_err(not_reached)?,
        };
        report.answered(&response);
        if let Some(why) = prompt.expect.missed(&response.text) {
            return Err(failure_cause::unmet(format!("the answer to `{}`: {why}", prompt.text)));
        }
    }
    Ok(true)
}

/// The time that all prompts have together.
#[derive(Clone, Copy)]
struct TaskDeadline {
    limit: Duration,
    deadline: Instant,
}

impl TaskDeadline {
    fn left(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn is_over(self) -> Failure {
        let what = format!("the task was not done in {:?}", self.limit);
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
