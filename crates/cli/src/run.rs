//! `viv run AGENT PROMPT`: run an agent on one prompt and stream its output.
//!
//! Messages of the agent go to stdout, everything else to stderr.

mod agent_text;
mod answer_mode;
mod continuation;
mod ending;
mod finish;
mod interactive;
mod prompt_text;
mod waiting_line;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use jail::Spawner;
use protocol::{
    CreateSession, Event, EventBody, Permission, PermissionReply, ProblemCode, Question, RequestMetadata, SessionId,
    SessionInfo, TurnOutcome,
};

use crate::agents::{self, AgentSpec};
use crate::args::{OnFinish, RunArguments};
use crate::config::Config;
use crate::event_reader::{EventReader, OpenRequest};
use crate::failure::Failure;
use crate::model_failure::{self, ModelFailure};
use crate::output::{self, message};
use crate::policy::explain::hidden_notice;
use crate::policy::{PolicyContext, choose};
use crate::prompter::{self, InputEnded};
use crate::session_access::SessionAccess;
use crate::session_id::new_session_id;
use crate::signals::{StopSignal, StopSignals};
use crate::skills_and_mcp;
use crate::timeline::Timeline;
use crate::upstream::ModelNotice;

pub(crate) use answer_mode::AnswerMode;
pub(crate) use continuation::send_here;
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
    let mut signals = StopSignals::listen()?;
    let prompt = arguments.prompt.as_deref().map(prompt_text::read).transpose()?;
    let workspace = open_workspace(&arguments.workspace)?;
    arguments.limits.check_home(&workspace).await?;
    arguments.narrow.extend(arguments.limits.narrowing());
    let request = request(&arguments, &config, &workspace)?;
    let context = PolicyContext::of(&config, json).in_project(Some(&workspace));
    let policy = Arc::new(choose(&context, arguments.policy.as_deref(), &arguments.narrow)?);
    // A server's sessions have the server's policy.
    let access = if arguments.policy.is_some() || !arguments.narrow.is_empty() {
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

/// A conversation with the agent of one session.
pub(crate) struct Conversation<'a> {
    access: &'a SessionAccess,
    pub(crate) session: SessionInfo,
    events: EventReader,
    answers: AnswerMode,
    output: RunOutput,
    text: agent_text::AgentText,
    pub(crate) timeline: Timeline,
    model_failure: ModelFailure,
    /// Requests that were denied because there was no terminal to ask on.
    not_asked: u64,
}

impl<'a> Conversation<'a> {
    /// Creates the session.
    pub(crate) async fn begin(
        access: &'a SessionAccess,
        request: CreateSession,
        answers: AnswerMode,
        output: RunOutput,
    ) -> Result<Self, Failure> {
        let id = new_session_id()?;
        let session = access.create(&id, request).await?;
        Self::of(access, session, 0, answers, output).await
    }

    /// Returns the conversation with the agent of an existing session; shows its events after `seen`.
    pub(crate) async fn of(
        access: &'a SessionAccess,
        session: SessionInfo,
        seen: u64,
        answers: AnswerMode,
        output: RunOutput,
    ) -> Result<Self, Failure> {
        let events = EventReader::new(access.follow(&session.session_id, seen).await?);
        let timeline = if output == RunOutput::Text { Timeline::without_messages() } else { Timeline::default() };
        let text = agent_text::AgentText::default();
        let (model_failure, not_asked) = (ModelFailure::default(), 0);
        Ok(Self { access, session, events, answers, output, text, timeline, model_failure, not_asked })
    }

    fn id(&self) -> &SessionId {
        &self.session.session_id
    }

    /// Returns the name of the session, or else its id.
    pub(crate) fn name(&self) -> &str {
        self.session.name.as_deref().unwrap_or(self.session.session_id.as_str())
    }

    /// Returns the reason why the run did not succeed, if one is known.
    fn failure(&self, ending: RunEnding, agent: &str, prompt: &str) -> Option<Failure> {
        match (ending, self.model_failure.cause()) {
            (RunEnding::Turn(TurnOutcome::Failed), Some((code, why))) => {
                let failure = Failure::new(code, format!("the turn failed: {why}"));
                Some(failure.help(model_failure::help(code, self.name())))
            }
            (RunEnding::Turn(TurnOutcome::Completed | TurnOutcome::Failed), _) if self.not_asked > 0 => {
                Some(answer_mode::not_asked(self.not_asked, agent, prompt))
            }
            _ => None,
        }
    }

    fn announce(&self, notice: &ModelNotice) {
        let (name, agent, model) = (self.name(), &self.session.agent, &notice.model);
        message!("\x1b[1msession\x1b[0m {name} · agent {agent} · model: {model}");
        for hint in &notice.hints {
            message!("  {hint}");
        }
    }

    fn show_next_commands(&self, changes: finish::ChangesOutcome) {
        let name = self.name();
        let apply = match changes {
            finish::ChangesOutcome::Kept => format!(" · viv sessions apply {name}"),
            _ => String::new(),
        };
        message!("viv sessions diff {name}{apply} · viv sessions events {name}");
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
            let Some(event) = self.next_event().await? else { return Ok(TurnOutcome::Failed) };
            self.show(&event)?;
            self.model_failure.note(&event.draft.body);
            match &event.draft.body {
                EventBody::PermissionRequested(permission) if is_open(permission) => self.decide(permission).await?,
                EventBody::PolicyEffective(effective) if self.output != RunOutput::Json => {
                    if let Some(line) = hidden_notice(effective) {
                        message!("  {line}");
                    }
                }
                EventBody::QuestionRequested(question) => self.answer(question).await?,
                EventBody::TurnEnded(turn) => return Ok(turn.outcome.unwrap_or(TurnOutcome::Completed)),
                EventBody::SessionEnded(ended) => return Ok(finish::outcome_of(ended)),
                _ => {}
            }
        }
    }

    /// Returns the next event. A long wait shows a line on the terminal, unless it would overwrite a message.
    async fn next_event(&mut self) -> Result<Option<Event>, Failure> {
        let is_free = !(self.text.is_mid_line() && output::stdout_is_terminal());
        if self.output != RunOutput::Text || !is_free {
            return self.events.next().await;
        }
        let what = format!("waiting for {}", self.session.agent);
        waiting_line::show_during(&what, self.events.next()).await
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
            self.model_failure.note(&event.draft.body);
        }
        Ok(())
    }

    fn show(&mut self, event: &Event) -> Result<(), Failure> {
        let written = match self.output {
            RunOutput::Json => serde_json::to_string(event)
                .map_err(std::io::Error::other)
                .and_then(|line| output::write_json(&format!("{line}\n"))),
            // The prompt shows the request itself.
            _ if self.is_prompted(&event.draft.body) => self.end_line(),
            RunOutput::Tour => output::write_text(&self.timeline.render(event)),
            RunOutput::Text => self.show_streamed(event),
        };
        written.map_err(|error| Failure::output_failed(&error))
    }

    fn is_prompted(&self, body: &EventBody) -> bool {
        let is_open = matches!(body, EventBody::PermissionRequested(permission) if is_open(permission));
        is_open && self.answers == AnswerMode::Ask
    }

    /// Streams messages to stdout and prints other events on stderr.
    fn show_streamed(&mut self, event: &Event) -> std::io::Result<()> {
        let text = self.text.render(&event.draft.body);
        if !text.is_empty() {
            output::write_text(&text)?;
        }
        let lines = self.timeline.render(event);
        if lines.is_empty() {
            return Ok(());
        }
        self.end_line()?;
        output::print_message_part(&lines);
        Ok(())
    }

    /// Ends the line of a message on a terminal, before other output. A pipe receives messages only.
    fn end_line(&mut self) -> std::io::Result<()> {
        if self.text.is_mid_line() && output::stdout_is_terminal() {
            self.text.line_ended();
            output::write_text("\n")?;
        }
        Ok(())
    }

    async fn decide(&mut self, permission: &Permission) -> Result<(), Failure> {
        let id = &permission.permission_id;
        let reply = match self.answers {
            AnswerMode::Allow => PermissionReply::Once,
            AnswerMode::Deny => PermissionReply::Reject,
            AnswerMode::NoTerminal => self.deny_without_asking(),
            AnswerMode::Ask => {
                let asked = prompter::ask_permission(permission);
                match self.events.unless_resolved(OpenRequest::Permission(id), asked).await? {
                    Some(Ok(reply)) => reply,
                    Some(Err(InputEnded)) if output::stdin_is_terminal() => PermissionReply::Reject,
                    Some(Err(InputEnded)) => self.deny_without_asking(),
                    None => return Ok(()),
                }
            }
        };
        unless_answered(self.access.reply(self.id(), id, reply).await)
    }

    fn deny_without_asking(&mut self) -> PermissionReply {
        self.not_asked += 1;
        message!("{:>22}denied: no terminal to ask on", "");
        PermissionReply::Reject
    }

    async fn answer(&mut self, question: &Question) -> Result<(), Failure> {
        let id = &question.question_id;
        let answers = match self.answers {
            AnswerMode::Ask => {
                let asked = prompter::ask_questions(question);
                match self.events.unless_resolved(OpenRequest::Question(id), asked).await? {
                    Some(answers) => answers.unwrap_or(None),
                    None => return Ok(()),
                }
            }
            // Nobody can be asked.
            AnswerMode::Allow => prompter::first_options(question),
            AnswerMode::Deny | AnswerMode::NoTerminal => None,
        };
        unless_answered(self.access.answer(self.id(), id, answers).await)
    }
}

/// Ignores that somebody else answered in the same moment; the next events say how.
fn unless_answered(told: Result<(), Failure>) -> Result<(), Failure> {
    match told {
        Err(failure) if is_answered(&failure) => Ok(()),
        told => told,
    }
}

/// Returns whether an answer came too late.
pub(crate) fn is_answered(failure: &Failure) -> bool {
    matches!(failure.code(), ProblemCode::PermissionNotPending | ProblemCode::QuestionNotPending)
}

/// Returns whether a request needs an answer; one that a grant covers or the policy denies is already answered.
pub(crate) fn is_open(permission: &Permission) -> bool {
    !RequestMetadata::read(permission.metadata.as_ref()).is_answered()
}
