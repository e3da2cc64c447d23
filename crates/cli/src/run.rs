//! `viv run AGENT PROMPT`: run an agent on one prompt and stream its output.
//!
//! Messages of the agent go to stdout, everything else to stderr.

mod agent_text;
mod answer_mode;
mod continuation;
mod conversation;
mod ending;
mod finish;
mod interactive;
mod prompt_text;
mod waiting_line;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use jail::Spawner;
use protocol::{CreateSession, ProblemCode};

use crate::agents::{self, AgentSpec};
use crate::args::{OnFinish, RunArguments};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::message;
use crate::policy::{PolicyContext, choose};
use crate::session_access::SessionAccess;
use crate::setup;
use crate::signals::{StopSignal, StopSignals};
use crate::skills_and_mcp;
use crate::upstream::ModelNotice;

pub(crate) use answer_mode::AnswerMode;
pub(crate) use continuation::send_here;
pub(crate) use conversation::{Conversation, is_answered, is_open};
pub(crate) use ending::{RunEnding, RunOutput};

/// Runs `viv run`.
pub(crate) async fn carry_out(
    mut arguments: RunArguments,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let on_finish = arguments.on_finish.unwrap_or(OnFinish::Keep);
    finish::check(on_finish, answer_mode::on_terminal())?;
    let is_interactive = !arguments.continues && (arguments.prompt.is_none() || arguments.tui);
    if is_interactive {
        interactive::check(&arguments, json)?;
    }
    let config = config.with_env_file(arguments.env_file.as_deref())?;
    if arguments.continues {
        return continuation::carry_out(arguments, config, spawner, json).await;
    }
    let config = offer_model(&arguments, config, json).await?;
    let mut signals = StopSignals::listen()?;
    let prompt = arguments.prompt.as_deref().map(prompt_text::read).transpose()?;
    let workspace = open_workspace(&arguments.workspace)?;
    arguments.limits.check_home(&workspace).await?;
    arguments.narrow.extend(arguments.limits.narrowing());
    let request = request(&arguments, &config, &workspace)?;
    let context = PolicyContext::of(&config, json).in_project(Some(&workspace)).with_network(&arguments.network);
    let policy = Arc::new(choose(&context, arguments.policy.as_deref(), &arguments.narrow)?);
    // A server's sessions have the server's policy.
    let access = if arguments.policy.is_some() || !arguments.narrow.is_empty() || !arguments.network.is_empty() {
        SessionAccess::local(&config, policy.clone(), spawner).await?
    } else {
        SessionAccess::open(&config, policy.clone(), spawner).await?
    };
    if is_interactive {
        let run =
            interactive::InteractiveRun { arguments: &arguments, config: &config, policy: &policy, access: &access };
        return run.carry_out(request, prompt, &mut signals).await;
    }
    let prompt = prompt.unwrap_or_default();
    let output = if json { RunOutput::Json } else { RunOutput::Text };
    let mut conversation =
        match begin(&access, request, AnswerMode::choose(arguments.perms), output, &mut signals).await? {
            Ok(conversation) => conversation,
            Err(stop) => return Ok(stop.exit_code()),
        };
    conversation.announce(&notice(&access, &config, arguments.upstream.as_deref(), &conversation.session.agent));
    let outcome = conversation.turn(&prompt, &mut signals).await;
    let ended = conversation.end(&outcome).await;
    access.close().await;
    let outcome = outcome?;
    ended?;
    message!("{}", conversation.timeline.full_bill());
    let changes = finish::RunChanges { config: &config, session: &conversation.session, policy: &policy };
    let settled = changes.settle(on_finish, outcome).await?;
    if settled != finish::ChangesOutcome::Done {
        conversation.show_next_commands(settled);
    }
    match conversation.failure(outcome, &arguments.agent, &prompt) {
        Some(failure) => Err(failure),
        None => Ok(outcome.exit_code()),
    }
}

/// Returns the configuration; on a terminal, offers a key of this host if no model is configured.
async fn offer_model(arguments: &RunArguments, config: Config, json: bool) -> Result<Config, Failure> {
    if json || arguments.upstream.is_some() || !answer_mode::on_terminal() {
        return Ok(config);
    }
    let spec = AgentSpec::parse(&arguments.agent)?;
    setup::offer(config, spec.agent.id()).await
}

fn open_workspace(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| {
        Failure::new(ProblemCode::InvalidRequest, format!("cannot open the workspace `{}`", path.display()))
            .because(&error)
            .help("viv run mock hello --workspace .")
    })
}

/// Returns the request for the session; installs the agent if it is missing.
fn request(arguments: &RunArguments, config: &Config, workspace: &Path) -> Result<CreateSession, Failure> {
    let spec = AgentSpec::parse(&arguments.agent)?;
    agents::install_on_first_use(config, &spec)?;
    Ok(CreateSession {
        agent: spec.agent.id().to_owned(),
        agent_version: spec.version,
        model: arguments.model.clone(),
        upstream: arguments.upstream.clone(),
        permission_mode: arguments.mode.clone(),
        directory: Some(workspace.to_string_lossy().into_owned()),
        mcp: arguments.mcp.as_deref().map(skills_and_mcp::read_mcp_servers).transpose()?,
        skills: skills_and_mcp::parse_skill_sources(&arguments.skills)?,
        ..CreateSession::default()
    })
}

fn notice(access: &SessionAccess, config: &Config, upstream: Option<&str>, agent: &str) -> ModelNotice {
    match access {
        SessionAccess::Local(_) => ModelNotice::local(config, upstream, agent),
        SessionAccess::Remote(_) => ModelNotice::remote(upstream),
    }
}

/// Starts the conversation; returns the signal if viv was told to stop before.
async fn begin<'a>(
    access: &'a SessionAccess,
    request: CreateSession,
    answers: AnswerMode,
    output: RunOutput,
    signals: &mut StopSignals,
) -> Result<Result<Conversation<'a>, StopSignal>, Failure> {
    let what = format!("starting {}", request.agent);
    let conversation = Conversation::begin(access, request, answers, output);
    let begun = tokio::select! {
        begun = waiting_line::show_during(&what, conversation) => begun.map(Ok),
        stop = signals.received() => Ok(Err(stop)),
    };
    if !matches!(begun, Ok(Ok(_))) {
        access.close().await;
    }
    begun
}
