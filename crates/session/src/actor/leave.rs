//! The ways a session, or only its agent, comes to an end.
//!
//! Processes die first, then the record is closed: nothing an agent does can come after its end.

use std::ops::ControlFlow;

use agents::DialogueOutput;
use base::error_chain;
use protocol::{
    ErrorData, EventBody, ProblemCode, SessionEndReason, SessionEnded, StderrOutput, TerminatedBy, TurnOutcome,
};
use sandbox::ProcessExit;
use serde_json::json;
use store::{JournalError, SessionPatch};

use super::{Actor, Flow};
use crate::SessionError;
use crate::left::Left;
use crate::live::Remains;
use crate::pending::Pending;
use crate::shelf::blocking;
use crate::turn::{Input, Phase};

impl Actor {
    /// Ends the session by command.
    pub(super) async fn terminate(&mut self) -> Result<(), SessionError> {
        let remains = self.end_agent().await?;
        if self.torn {
            self.mend().await?;
        }
        self.finish_turn(Input::Terminate, "session_terminated").await?;
        self.end_session(SessionEnded {
            reason: SessionEndReason::Terminated,
            terminated_by: TerminatedBy::Daemon,
            message: None,
            exit_code: None,
            stderr: remains.and_then(|remains| remains.stderr),
        })
        .await
    }

    /// The host goes away: the turn is interrupted, the session stays and can be continued.
    pub(super) async fn close(&mut self) {
        // What it wrote since its last turn ended is the best it can be resumed from.
        self.keep_memory().await;
        let closed = async {
            self.end_agent().await?;
            self.finish_turn(Input::Terminate, "host_shut_down").await?;
            self.settling.settled().await
        };
        if let Err(error) = closed.await {
            tracing::error!(session = %self.plan.id, %error, "cannot close the record; the next start will");
        }
    }

    /// The agent's process is gone by itself.
    pub(super) async fn bury(&mut self) -> Result<Flow, SessionError> {
        let phase = self.phase;
        let Some(remains) = self.end_agent().await? else { return Ok(ControlFlow::Continue(())) };
        if let Phase::Stopping(_) = phase {
            // It was asked to stop and left altogether. The next message starts it again.
            self.finish_turn(Input::Gone, "agent_stopped").await?;
            return Ok(ControlFlow::Continue(()));
        }
        let exit = remains.exit.unwrap_or_default();
        let clean = phase == Phase::Idle && exit.code == Some(0);
        let message = (!clean).then(|| obituary(exit, phase));
        if let Some(message) = &message {
            self.tell_error(message, exit)?;
        }
        self.finish_turn(Input::Gone, "agent_exited").await?;
        self.end_session(SessionEnded {
            reason: if clean { SessionEndReason::Completed } else { SessionEndReason::Error },
            terminated_by: TerminatedBy::Agent,
            message,
            exit_code: exit.code,
            stderr: remains.stderr,
        })
        .await?;
        Ok(ControlFlow::Break(()))
    }

    /// The agent does not listen: it is ended, its turn with it; the next message starts it again.
    pub(super) async fn abandon(&mut self, outcome: TurnOutcome) -> Result<(), SessionError> {
        self.end_agent().await?;
        self.end_turn(outcome, Some("agent_did_not_stop")).await
    }

    /// The session was entered, but its agent could not be started.
    pub(super) async fn fail_to_start(&mut self, error: &SessionError) -> Result<(), SessionError> {
        let stderr: Option<StderrOutput> = self.end_agent().await.ok().flatten().and_then(|remains| remains.stderr);
        let message = error_chain(error);
        let ended = SessionEnded {
            reason: SessionEndReason::Error,
            terminated_by: TerminatedBy::Daemon,
            message: Some(message),
            exit_code: None,
            stderr,
        };
        self.end_session(ended).await.inspect_err(|error| {
            tracing::error!(session = %self.plan.id, %error, "cannot record that a session could not be started");
        })
    }

    /// The record broke: nothing may happen that it does not show, so the agent ends.
    pub(super) async fn lose_record(&mut self, error: &(dyn std::fmt::Display + Sync)) {
        tracing::error!(session = %self.plan.id, %error, "the record broke; the agent is ended");
        if let Some(live) = self.live.take() {
            live.stop().await;
        }
        (self.phase, self.stop_by, self.torn) = (Phase::Idle, None, true);
        self.pending = Pending::default();
        self.recorder.turn.set(None);
        self.show();
    }

    /// Closes what a broken record left open, now that it can be written again.
    pub(super) async fn mend(&mut self) -> Result<(), SessionError> {
        let journal = self.recorder.journal().clone();
        blocking(move || {
            let mut left = Left::read(&*journal)?;
            left.close(&*journal, "record_lost", 0)?;
            Ok(())
        })
        .await?;
        self.torn = false;
        Ok(())
    }

    /// Ends every process of the agent and closes the items it left open.
    async fn end_agent(&mut self) -> Result<Option<Remains>, SessionError> {
        let Some(mut live) = self.live.take() else { return Ok(None) };
        let unfinished = live.dialogue.close_open_items();
        let layers = live.layers();
        let remains = live.stop().await;
        if let Some(layers) = layers {
            self.keep_last_changes(layers).await?;
        }
        for output in unfinished {
            if let DialogueOutput::Event(draft) = output {
                self.recorder.record(draft)?;
            }
        }
        Ok(Some(remains))
    }

    async fn finish_turn(&mut self, input: Input, reason: &str) -> Result<(), SessionError> {
        let (phase, effect) = self.phase.step(input);
        self.phase = phase;
        match effect {
            crate::turn::Effect::End(outcome) => self.end_turn(outcome, Some(reason)).await,
            _ => Ok(()),
        }
    }

    fn tell_error(&mut self, message: &str, exit: ProcessExit) -> Result<(), SessionError> {
        self.recorder.daemon(EventBody::Error(ErrorData {
            message: message.to_owned(),
            code: Some(ProblemCode::AgentProcessExited.as_str().to_owned()),
            details: Some(details(exit)),
        }))?;
        Ok(())
    }

    async fn end_session(&mut self, ended: SessionEnded) -> Result<(), SessionError> {
        let outcome = ended.reason.into();
        self.settling.settled().await?;
        match self.recorder.daemon(EventBody::SessionEnded(ended)) {
            // It was recorded before, by a call that then could not wait for the disk.
            Err(JournalError::Ended) => {}
            recorded => drop(recorded?),
        }
        self.recorder.sync().await?;
        self.forget().await;
        let change =
            SessionPatch { event_count: Some(self.recorder.last()), outcome: Some(outcome), ..SessionPatch::default() };
        let (host, id) = (self.host.clone(), self.plan.id.clone());
        blocking(move || {
            host.shelf.note_end(&id, change);
            Ok(())
        })
        .await
    }
}

fn details(exit: ProcessExit) -> serde_json::Value {
    let mut details = json!({"exit_code": exit.code, "signal": exit.signal});
    if exit.out_of_memory {
        details["out_of_memory"] = json!(true);
    }
    details
}

fn obituary(exit: ProcessExit, phase: Phase) -> String {
    let how = match (exit.code, exit.signal) {
        _ if exit.out_of_memory => "was ended for want of memory".to_owned(),
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "went away".to_owned(),
    };
    let when = if phase == Phase::Idle { "between two turns" } else { "in the middle of a turn" };
    format!("the agent's process {how} {when}")
}
