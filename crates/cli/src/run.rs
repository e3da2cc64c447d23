//! `viv run AGENT PROMPT`: one prompt, shown as it happens.
//!
//! What the agent says is data and goes to stdout; everything else is for people and goes to stderr.

mod agent_text;
mod finish;

use std::io::{IsTerminal, Read, Write};
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

/// Carries out `viv run`.
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
    let workspace = arguments.workspace.canonicalize().map_err(|error| {
        Failure::new(
            ProblemCode::InvalidRequest,
            format!("workspace `{}` cannot be opened", arguments.workspace.display()),
        )
        .because(&error)
        .help("viv run mock hello --workspace .")
    })?;
    let permissions = arguments.perms.unwrap_or(if on_terminal() { Permissions::Ask } else { Permissions::Deny });
    let wanted = AgentSpec::parse(&arguments.agent)?;
    agents::install_on_first_use(&config, &wanted)?;
    let request = CreateSession {
        agent: wanted.agent.id().to_owned(),
        agent_version: wanted.version,
        model: arguments.model,
        upstream: arguments.upstream.clone(),
        permission_mode: arguments.mode,
        directory: Some(workspace.to_string_lossy().into_owned()),
        mcp: arguments.mcp.as_deref().map(skills_and_mcp::read_mcp_servers).transpose()?,
        skills: skills_and_mcp::parse_skill_sources(&arguments.skills)?,
        ..CreateSession::default()
    };
    let setting = PolicyContext::of(&config, json).in_project(Some(&workspace));
    let policy = Arc::new(choose(&setting, arguments.policy.as_deref(), &arguments.narrow)?);
    let front = if arguments.policy.is_some() || !arguments.narrow.is_empty() {
        SessionAccess::here(&config, policy.clone(), spawner).await?
    } else {
        SessionAccess::open(&config, policy.clone(), spawner).await?
    };
    let output = if json { RunOutput::Json } else { RunOutput::Text };
    let mut conversation = match begin(&front, request, permissions, output, &mut signals).await? {
        Ok(conversation) => conversation,
        Err(stop) => return Ok(stop.exit_code()),
    };
    let agent = &conversation.session.agent;
    let notice = match &front {
        SessionAccess::Local(_) => ModelNotice::here(&config, arguments.upstream.as_deref(), agent),
        SessionAccess::Remote(_) => ModelNotice::there(arguments.upstream.as_deref()),
    };
    conversation.announce(&notice);
    let outcome = conversation.turn(&prompt, &mut signals).await;
    let ended = conversation.end(&outcome).await;
    front.close().await;
    let outcome = outcome?;
    ended?;
    anstream::eprintln!("{}", conversation.timeline.bill());
    let left = finish::RunChanges { config: &config, session: &conversation.session, policy: &policy };
    if left.settle(arguments.on_finish, outcome).await? == finish::ChangesOutcome::Kept {
        conversation.farewell();
    }
    Ok(outcome.exit_code())
}

/// The conversation, or who told us to stop before it had begun.
async fn begin<'a>(
    front: &'a SessionAccess,
    request: CreateSession,
    permissions: Permissions,
    output: RunOutput,
    signals: &mut StopSignals,
) -> Result<Result<Conversation<'a>, StopSignal>, Failure> {
    let begun = tokio::select! {
        begun = Conversation::begin(front, request, permissions, output) => begun.map(Ok),
        stop = signals.received() => Ok(Err(stop)),
    };
    if !matches!(begun, Ok(Ok(_))) {
        // What its sandbox was given goes with it, and nobody waits for that after us.
        front.close().await;
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

/// Why a conversation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnding {
    /// The turn came to its end.
    Turn(TurnOutcome),
    /// We were told to stop.
    Stopped(StopSignal),
}

impl RunEnding {
    /// The exit code that goes with it.
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

/// How events are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOutput {
    /// The agent's words on stdout, as they come; the rest on stderr.
    Text,
    /// Everything on stdout, as a person reads it.
    Tour,
    /// One event a line on stdout.
    Json,
}

/// A session that this process talks to.
pub(crate) struct Conversation<'a> {
    front: &'a SessionAccess,
    pub(crate) session: SessionInfo,
    events: EventSource,
    permissions: Permissions,
    output: RunOutput,
    speech: agent_text::AgentText,
    pub(crate) timeline: Timeline,
}

impl<'a> Conversation<'a> {
    /// Makes the session.
    pub(crate) async fn begin(
        front: &'a SessionAccess,
        request: CreateSession,
        permissions: Permissions,
        output: RunOutput,
    ) -> Result<Self, Failure> {
        let id = new_session_id()?;
        let session = front.create(&id, request).await?;
        let events = front.follow(&id).await?;
        let timeline = if output == RunOutput::Text { Timeline::beside_words() } else { Timeline::default() };
        let speech = agent_text::AgentText::default();
        Ok(Self { front, session, events, permissions, output, speech, timeline })
    }

    fn id(&self) -> &SessionId {
        &self.session.session_id
    }

    /// The name a person calls it by.
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

    fn farewell(&self) {
        anstream::eprintln!("viv sessions diff {name} · viv sessions events {name}", name = self.name());
    }

    /// Sends `prompt` and shows everything until its turn has ended, or until we are told to stop.
    pub(crate) async fn turn(&mut self, prompt: &str, signals: &mut StopSignals) -> Result<RunEnding, Failure> {
        tokio::select! {
            outcome = self.talk(prompt) => outcome.map(RunEnding::Turn),
            stop = signals.received() => Ok(RunEnding::Stopped(stop)),
        }
    }

    async fn talk(&mut self, prompt: &str) -> Result<TurnOutcome, Failure> {
        self.front.send(self.id(), prompt).await?;
        loop {
            // A journal that grows faster than we print never makes us wait, and signals are heard only while we do.
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

    /// Ends the session, and after a turn that ended shows how. Whoever stopped it does not wait for what an agent
    /// that printed without end has left to be shown.
    pub(crate) async fn end(&mut self, outcome: &Result<RunEnding, Failure>) -> Result<(), Failure> {
        self.front.terminate(self.id()).await?;
        self.leave_line().map_err(|error| Failure::output_failed(&error))?;
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
            RunOutput::Text => self.show_apart(event),
        };
        written.map_err(|error| Failure::output_failed(&error))
    }

    /// Words on stdout, piece by piece; what else happens on stderr.
    fn show_apart(&mut self, event: &Event) -> std::io::Result<()> {
        let words = self.speech.render(&event.draft.body);
        if !words.is_empty() {
            let mut stdout = anstream::stdout().lock();
            stdout.write_all(&words)?;
            stdout.flush()?;
        }
        let mut lines = Vec::new();
        self.timeline.show(event, &mut lines)?;
        if lines.is_empty() {
            return Ok(());
        }
        self.leave_line()?;
        anstream::stderr().lock().write_all(&lines)
    }

    /// On a terminal what people read stands among the words, and never on a line with them. A pipe holds the words alone.
    fn leave_line(&mut self) -> std::io::Result<()> {
        if self.speech.is_mid_line() && std::io::stdout().is_terminal() {
            self.speech.line_ended();
            writeln!(std::io::stdout().lock())?;
        }
        Ok(())
    }

    async fn decide(&self, permission: &Permission) -> Result<(), Failure> {
        let reply = match self.permissions {
            Permissions::Allow => PermissionReply::Once,
            Permissions::Deny => PermissionReply::Reject,
            // Who started a run and is gone would keep it waiting for nobody.
            Permissions::Ask => prompter::ask_permission().await.unwrap_or(PermissionReply::Reject),
        };
        self.front.reply(self.id(), &permission.permission_id, reply).await
    }

    async fn answer(&self, question: &Question) -> Result<(), Failure> {
        let answers = match self.permissions {
            Permissions::Ask => prompter::ask_questions(question).await.unwrap_or(None),
            // Nobody is there to ask.
            Permissions::Allow => prompter::first_options(question),
            Permissions::Deny => None,
        };
        self.front.answer(self.id(), &question.question_id, answers).await
    }
}

fn outcome_of(ended: &SessionEnded) -> TurnOutcome {
    match ended.reason {
        SessionEndReason::Completed => TurnOutcome::Completed,
        SessionEndReason::Error => TurnOutcome::Failed,
        SessionEndReason::Terminated => TurnOutcome::Interrupted,
    }
}

/// Whether somebody must answer; what was allowed for the rest of the session is answered already.
pub(crate) fn is_open(permission: &Permission) -> bool {
    permission.metadata.as_ref().is_none_or(|metadata| metadata["granted_by"].is_null())
}
