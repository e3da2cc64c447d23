//! A conversation with the agent of one session: prompts go in, events are shown as they arrive, requests are answered.
//!
//! Not here: which session it is, and what happens to its changes at the end (`run.rs`, `finish.rs`).

use protocol::{
    CreateSession, Event, EventBody, Permission, PermissionReply, ProblemCode, Question, RequestMetadata, SessionId,
    SessionInfo, TurnOutcome,
};

use super::{AnswerMode, RunEnding, RunOutput, agent_text, answer_mode, finish, waiting_line};
use crate::event_reader::{EventReader, OpenRequest};
use crate::failure::Failure;
use crate::model_failure::{self, ModelFailure};
use crate::output::{self, message};
use crate::policy::explain::hidden_notice;
use crate::prompter::{self, InputEnded};
use crate::session_access::SessionAccess;
use crate::session_id::new_session_id;
use crate::signals::StopSignals;
use crate::timeline::Timeline;
use crate::upstream::ModelNotice;

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
    pub(super) fn failure(&self, ending: RunEnding, agent: &str, prompt: &str) -> Option<Failure> {
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

    pub(super) fn announce(&self, notice: &ModelNotice) {
        let (name, agent, model) = (self.name(), &self.session.agent, &notice.model);
        message!("\x1b[1msession\x1b[0m {name} · agent {agent} · model: {model}");
        for hint in &notice.hints {
            message!("  {hint}");
        }
    }

    pub(super) fn show_next_commands(&self, changes: finish::ChangesOutcome) {
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
            // There is no person to ask.
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
