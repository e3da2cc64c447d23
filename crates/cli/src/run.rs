//! `viv run AGENT PROMPT`: run an agent on one prompt and stream its output.
//!
//! Messages of the agent go to stdout, everything else to stderr.

mod agent_text;
mod finish;

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use jail::Spawner;
use protocol::{
    CreateSession, Event, EventBody, Permission, PermissionReply, ProblemCode, Question, SessionEndReason,
    SessionEnded, SessionId, SessionInfo, TurnOutcome,
};

use crate::agents::{self, AgentSpec};
use crate::args::{Permissions, RunArguments};
use crate::config::Config;
use crate::failure::Failure;
use crate::policy::{PolicyContext, choose};
use crate::prompter;
use crate::session_access::{EventSource, SessionAccess};
use crate::session_id::new_session_id;
use crate::signals::{StopSignal, StopSignals};
use crate::skills_and_mcp;
use crate::timeline::Timeline;
use crate::upstream::ModelNotice;

/// Runs `viv run`.
pub(crate) async fn carry_out(
    arguments: RunArguments,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    finish::check(arguments.on_finish, on_terminal())?;
    let config = config.with_env_file(arguments.env_file.as_deref())?;
    let mut signals = StopSignals::listen()?;
    let prompt = prompt(&arguments.prompt)?;
    let workspace = open_workspace(&arguments.workspace)?;
    let permissions = arguments.perms.unwrap_or(if on_terminal() { Permissions::Ask } else { Permissions::Deny });
    let request = request(&arguments, &config, &workspace)?;
    let context = PolicyContext::of(&config, json).in_project(Some(&workspace));
    let policy = Arc::new(choose(&context, arguments.policy.as_deref(), &arguments.narrow)?);
    // A server's sessions have the server's policy.
    let access = if arguments.policy.is_some() || !arguments.narrow.is_empty() {
        SessionAccess::local(&config, policy.clone(), spawner).await?
    } else {
        SessionAccess::open(&config, policy.clone(), spawner).await?
    };
    let output = if json { RunOutput::Json } else { RunOutput::Text };
    let mut conversation = match begin(&access, request, permissions, output, &mut signals).await? {
        Ok(conversation) => conversation,
        Err(stop) => return Ok(stop.exit_code()),
    };
    conversation.announce(&notice(&access, &config, arguments.upstream.as_deref(), &conversation.session.agent));
    let outcome = conversation.turn(&prompt, &mut signals).await;
    let ended = conversation.end(&outcome).await;
    access.close().await;
    let outcome = outcome?;
    ended?;
    anstream::eprintln!("{}", conversation.timeline.bill());
    let changes = finish::RunChanges { config: &config, session: &conversation.session, policy: &policy };
    if changes.settle(arguments.on_finish, outcome).await? == finish::ChangesOutcome::Kept {
        conversation.show_next_commands();
    }
    Ok(outcome.exit_code())
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
    permissions: Permissions,
    output: RunOutput,
    signals: &mut StopSignals,
) -> Result<Result<Conversation<'a>, StopSignal>, Failure> {
    let begun = tokio::select! {
        begun = Conversation::begin(access, request, permissions, output) => begun.map(Ok),
        stop = signals.received() => Ok(Err(stop)),
    };
    if !matches!(begun, Ok(Ok(_))) {
        access.close().await;
    }
    begun
}

fn prompt(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| {
        Failure::new(ProblemCode::InvalidRequest, "cannot read the prompt from stdin").because(&error)
    })?;
    Ok(text)
}

fn on_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// End of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnding {
    /// The turn ended.
    Turn(TurnOutcome),
    /// A signal stopped viv.
    Stopped(StopSignal),
}

impl RunEnding {
    /// Returns the exit code.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Turn(TurnOutcome::Completed) => ExitCode::SUCCESS,
            Self::Turn(TurnOutcome::Failed) => ExitCode::from(1),
            Self::Turn(TurnOutcome::TimedOut) => ExitCode::from(124),
            Self::Turn(TurnOutcome::Interrupted) => StopSignal::Interrupt.exit_code(),
            Self::Stopped(stop) => stop.exit_code(),
        }
    }
}

/// Output format of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOutput {
    /// Messages of the agent on stdout, other events on stderr.
    Text,
    /// All events on stdout as readable lines.
    Tour,
    /// All events on stdout as JSON lines.
    Json,
}

/// A conversation with the agent of one session.
pub(crate) struct Conversation<'a> {
    access: &'a SessionAccess,
    pub(crate) session: SessionInfo,
    events: EventSource,
    permissions: Permissions,
    output: RunOutput,
    text: agent_text::AgentText,
    pub(crate) timeline: Timeline,
}

impl<'a> Conversation<'a> {
    /// Creates the session.
    pub(crate) async fn begin(
        access: &'a SessionAccess,
        request: CreateSession,
        permissions: Permissions,
        output: RunOutput,
    ) -> Result<Self, Failure> {
        let id = new_session_id()?;
        let session = access.create(&id, request).await?;
        let events = access.follow(&id).await?;
        let timeline = if output == RunOutput::Text { Timeline::without_messages() } else { Timeline::default() };
        let text = agent_text::AgentText::default();
        Ok(Self { access, session, events, permissions, output, text, timeline })
    }

    fn id(&self) -> &SessionId {
        &self.session.session_id
    }

    /// Returns the name of the session, or else its id.
    pub(crate) fn name(&self) -> &str {
        self.session.name.as_deref().unwrap_or(self.session.session_id.as_str())
    }

    fn announce(&self, notice: &ModelNotice) {
        let (name, agent, model) = (self.name(), &self.session.agent, &notice.model);
        anstream::eprintln!("\x1b[1msession\x1b[0m {name} · agent {agent} · model: {model}");
        for hint in &notice.hints {
            anstream::eprintln!("  {hint}");
        }
    }

    fn show_next_commands(&self) {
        anstream::eprintln!("viv sessions diff {name} · viv sessions events {name}", name = self.name());
    }

    /// Sends `prompt` and shows events until the turn ends or a signal arrives.
    pub(crate) async fn turn(&mut self, prompt: &str, signals: &mut StopSignals) -> Result<RunEnding, Failure> {
        tokio::select! {
            outcome = self.talk(prompt) => outcome.map(RunEnding::Turn),
            stop = signals.received() => Ok(RunEnding::Stopped(stop)),
        }
    }

    async fn talk(&mut self, prompt: &str) -> Result<TurnOutcome, Failure> {
        self.access.send(self.id(), prompt).await?;
        loop {
            // Yield to the signal handler even if the journal always has a next event.
            tokio::task::coop::consume_budget().await;
            let Some(event) = self.events.next().await? else { return Ok(TurnOutcome::Failed) };
            self.show(&event)?;
            match &event.draft.body {
                EventBody::PermissionRequested(permission) if is_open(permission) => self.decide(permission).await?,
                EventBody::QuestionRequested(question) => self.answer(question).await?,
                EventBody::TurnEnded(turn) => return Ok(turn.outcome.unwrap_or(TurnOutcome::Completed)),
                EventBody::SessionEnded(ended) => return Ok(outcome_of(ended)),
                _ => {}
            }
        }
    }

    /// Ends the session. After a turn, shows the remaining events; after a signal, skips them.
    pub(crate) async fn end(&mut self, outcome: &Result<RunEnding, Failure>) -> Result<(), Failure> {
        self.access.terminate(self.id()).await?;
        self.end_line().map_err(|error| Failure::output_failed(&error))?;
        if !matches!(outcome, Ok(RunEnding::Turn(_))) {
            return Ok(());
        }
        while let Some(event) = self.events.next().await? {
            self.show(&event)?;
        }
        Ok(())
    }

    fn show(&mut self, event: &Event) -> Result<(), Failure> {
        let written = match self.output {
            RunOutput::Json => serde_json::to_string(event)
                .map_err(std::io::Error::other)
                .and_then(|line| writeln!(std::io::stdout().lock(), "{line}")),
            RunOutput::Tour => self.timeline.show(event, &mut anstream::stdout().lock()),
            RunOutput::Text => self.show_streamed(event),
        };
        written.map_err(|error| Failure::output_failed(&error))
    }

    /// Streams messages to stdout and prints other events on stderr.
    fn show_streamed(&mut self, event: &Event) -> std::io::Result<()> {
        let text = self.text.render(&event.draft.body);
        if !text.is_empty() {
            let mut stdout = anstream::stdout().lock();
            stdout.write_all(&text)?;
            stdout.flush()?;
        }
        let mut lines = Vec::new();
        self.timeline.show(event, &mut lines)?;
        if lines.is_empty() {
            return Ok(());
        }
        self.end_line()?;
        anstream::stderr().lock().write_all(&lines)
    }

    /// Ends the line of a message on a terminal, before other output. A pipe receives messages only.
    fn end_line(&mut self) -> std::io::Result<()> {
        if self.text.is_mid_line() && std::io::stdout().is_terminal() {
            self.text.line_ended();
            writeln!(std::io::stdout().lock())?;
        }
        Ok(())
    }

    async fn decide(&self, permission: &Permission) -> Result<(), Failure> {
        let reply = match self.permissions {
            Permissions::Allow => PermissionReply::Once,
            Permissions::Deny => PermissionReply::Reject,
            // Without input nobody can answer, so the request is denied.
            Permissions::Ask => prompter::ask_permission().await.unwrap_or(PermissionReply::Reject),
        };
        self.access.reply(self.id(), &permission.permission_id, reply).await
    }

    async fn answer(&self, question: &Question) -> Result<(), Failure> {
        let answers = match self.permissions {
            Permissions::Ask => prompter::ask_questions(question).await.unwrap_or(None),
            // Nobody can be asked.
            Permissions::Allow => prompter::first_options(question),
            Permissions::Deny => None,
        };
        self.access.answer(self.id(), &question.question_id, answers).await
    }
}

fn outcome_of(ended: &SessionEnded) -> TurnOutcome {
    match ended.reason {
        SessionEndReason::Completed => TurnOutcome::Completed,
        SessionEndReason::Error => TurnOutcome::Failed,
        SessionEndReason::Terminated => TurnOutcome::Interrupted,
    }
}

/// Returns whether a request needs an answer; one that a grant covers is already answered.
pub(crate) fn is_open(permission: &Permission) -> bool {
    permission.metadata.as_ref().is_none_or(|metadata| metadata["granted_by"].is_null())
}
