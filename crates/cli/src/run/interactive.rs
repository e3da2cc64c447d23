//! `viv run AGENT` without a prompt: the agent's own terminal UI, in the sandbox.
//!
//! The session is an ordinary one: the same policy, gateway, budget, journal and change set as with a prompt.

use std::process::ExitCode;
use std::sync::Arc;

use ::policy::EffectivePolicy;
use protocol::{CreateSession, EventBody, ProblemCode, SessionInfo, TerminalStart, TurnOutcome};
use session::ViewerAccess;

use super::{RunEnding, finish};
use crate::args::{OnFinish, Permissions, RunArguments};
use crate::config::Config;
use crate::event_reader::EventReader;
use crate::failure::Failure;
use crate::output::{self, message};
use crate::session_access::SessionAccess;
use crate::session_id::new_session_id;
use crate::shell_word::shell_word;
use crate::signals::StopSignals;
use crate::terminal::{self, KeyReader, ScreenEnd, ScreenKeys};
use crate::timeline::Timeline;

/// Fails if there is no terminal for the UI, or an argument does not fit to one.
pub(super) fn check(arguments: &RunArguments, json: bool) -> Result<(), Failure> {
    let agent = shell_word(&arguments.agent);
    if !output::stdin_is_terminal() || !output::stdout_is_terminal() {
        let what =
            "`viv run` without a prompt shows the agent's terminal UI, which needs a terminal on stdin and stdout";
        return Err(Failure::new(ProblemCode::NoTerminal, what).help(format!("viv run {agent} hello")));
    }
    let invalid = |what: &str| Failure::new(ProblemCode::InvalidRequest, what);
    if json {
        let failure = invalid("`--json` needs a prompt: a terminal UI prints no events");
        return Err(failure.help(format!("viv run {agent} hello --json")));
    }
    if arguments.perms == Some(Permissions::Deny) {
        let failure = invalid("`--perms=deny` needs a prompt: in its terminal UI, the agent asks you itself");
        return Err(failure.help(format!("viv run {agent} hello --perms=deny")));
    }
    Ok(())
}

/// An interactive run.
pub(super) struct InteractiveRun<'a> {
    pub(super) arguments: &'a RunArguments,
    pub(super) config: &'a Config,
    pub(super) policy: &'a Arc<EffectivePolicy>,
    pub(super) access: &'a SessionAccess,
}

impl InteractiveRun<'_> {
    /// Starts the agent, shows its UI, and handles the changes at the end.
    pub(super) async fn carry_out(
        self,
        request: CreateSession,
        prompt: Option<String>,
        signals: &mut StopSignals,
    ) -> Result<ExitCode, Failure> {
        let id = new_session_id()?;
        let session = self.access.create(&id, self.interactive(request, prompt)).await;
        let session = match session {
            Ok(session) => session,
            Err(failure) => {
                self.access.close().await;
                return Err(failure);
            }
        };
        let end = self.show(&session, signals).await;
        if let Ok(ScreenEnd::Detached) = end {
            return Ok(detached(&session));
        }
        let finished = self.finish(&session, end).await;
        self.access.close().await;
        let (ending, timeline) = finished?;
        message!("{}", timeline.full_bill());
        self.settle(&session, ending).await?;
        Ok(ending.exit_code())
    }

    /// Returns the request for an interactive session with the size of our window.
    fn interactive(&self, request: CreateSession, prompt: Option<String>) -> CreateSession {
        let size = terminal::window_size();
        let bypass = || (self.arguments.perms == Some(Permissions::Allow)).then(|| "bypass".to_owned());
        CreateSession {
            permission_mode: request.permission_mode.or_else(bypass),
            terminal: Some(TerminalStart { rows: size.rows, columns: size.columns, prompt }),
            ..request
        }
    }

    async fn show(&self, session: &SessionInfo, signals: &mut StopSignals) -> Result<ScreenEnd, Failure> {
        let prefix = self.config.detach_prefix()?;
        let mut link = self.access.terminal(&session.session_id, ViewerAccess::Type).await?;
        let detach = matches!(self.access, SessionAccess::Remote(_));
        let suspend = !::agents::undoes_with_ctrl_z(&session.agent);
        let keys = ScreenKeys { reader: KeyReader::new(prefix, detach, suspend), types: true };
        terminal::show(&mut link, keys, signals).await
    }

    /// Ends the session if it runs, and reads its events to the end.
    async fn finish(
        &self,
        session: &SessionInfo,
        end: Result<ScreenEnd, Failure>,
    ) -> Result<(RunEnding, Timeline), Failure> {
        let id = &session.session_id;
        if !matches!(end, Ok(ScreenEnd::AgentEnded)) {
            self.access.terminate(id).await?;
        }
        let end = end?;
        let (mut timeline, mut outcome) = (Timeline::default(), TurnOutcome::Completed);
        let mut events = EventReader::new(self.access.follow(id, 0).await?);
        while let Some(event) = events.next().await? {
            // Only the sums are wanted: the person has seen the rest.
            drop(timeline.render(&event));
            if let EventBody::SessionEnded(ended) = &event.draft.body {
                outcome = finish::outcome_of(ended);
                break;
            }
        }
        let ending = match end {
            ScreenEnd::Stopped(stop) => RunEnding::Stopped(stop),
            ScreenEnd::AgentEnded | ScreenEnd::Detached => RunEnding::Turn(outcome),
        };
        Ok((ending, timeline))
    }

    async fn settle(&self, session: &SessionInfo, ending: RunEnding) -> Result<(), Failure> {
        let changes = finish::RunChanges { config: self.config, session, policy: self.policy };
        let choice = self.arguments.on_finish.unwrap_or(OnFinish::Ask);
        let settled = changes.settle(choice, ending).await?;
        let name = name(session);
        let apply = match settled {
            finish::ChangesOutcome::Done => return Ok(()),
            finish::ChangesOutcome::Kept => format!("viv sessions diff {name} · viv sessions apply {name} · "),
            finish::ChangesOutcome::Unchanged => String::new(),
        };
        message!("{apply}viv sessions play {name}");
        Ok(())
    }
}

fn name(session: &SessionInfo) -> &str {
    session.name.as_deref().unwrap_or(session.session_id.as_str())
}

fn detached(session: &SessionInfo) -> ExitCode {
    let name = name(session);
    message!("detached: session {name} goes on");
    message!("viv sessions attach {name} · viv sessions stop {name}");
    ExitCode::SUCCESS
}
