//! Ends of a session, and of its agent alone.
//!
//! Processes are killed before the end is recorded, so nothing that an agent does can follow its end.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use agents::DialogueOutput;
use base::error_chain;
use protocol::{
    ErrorData, EventBody, ProblemCode, SessionEndReason, SessionEnded, StderrOutput, TerminatedBy, TurnOutcome,
};
use sandbox::ProcessExit;
use store::{JournalError, SessionPatch};

use super::{Actor, Flow};
use crate::SessionError;
use crate::lifecycle::{AgentExit, ExitDetails, PendingRequests, TurnEffect, TurnInput, TurnState};
use crate::skills::remove_fetched_skills;
use crate::storage::{OpenState, run_blocking};

impl Actor {
    /// Kills the agent and ends the session.
    pub(super) async fn terminate(&mut self) -> Result<(), SessionError> {
        self.terminate_with(None).await
    }

    /// Kills the agent and ends the session; `message` says why the host does so.
    pub(super) async fn terminate_with(&mut self, message: Option<String>) -> Result<(), SessionError> {
        let agent_exit = self.end_agent().await?;
        if self.journal_broken {
            self.close_open_state().await?;
        }
        self.finish_turn(TurnInput::Terminate, "session_terminated").await?;
        self.end_session(SessionEnded {
            reason: SessionEndReason::Terminated,
            terminated_by: TerminatedBy::Daemon,
            message,
            exit_code: None,
            stderr: agent_exit.and_then(|agent_exit| agent_exit.stderr),
        })
        .await
    }

    /// Interrupts the turn and stops the agent because the host shuts down. The session can be resumed.
    pub(super) async fn close(&mut self) {
        // The memory includes notes that the agent wrote after its last turn.
        self.save_memory().await;
        let closed = async {
            self.end_agent().await?;
            self.sleep_reason = Some("host_shut_down");
            self.finish_turn(TurnInput::Terminate, "host_shut_down").await?;
            self.note_status();
            self.turn_sync.wait().await
        };
        if let Err(error) = closed.await {
            tracing::error!(session = %self.plan.id, %error, "cannot close the journal; the next start recovers it");
        }
    }

    /// Handles an agent process that exited by itself: the session ends, unless the agent was asked to stop.
    pub(super) async fn handle_process_exit(&mut self) -> Result<Flow, SessionError> {
        let state = self.turn;
        let Some(agent_exit) = self.end_agent().await? else { return Ok(ControlFlow::Continue(())) };
        if let TurnState::Stopping(_) = state {
            // The agent exited when it was asked to stop. The next message starts it again.
            self.sleep_reason = Some("agent_stopped");
            self.finish_turn(TurnInput::Exited, "agent_stopped").await?;
            return Ok(ControlFlow::Continue(()));
        }
        let exit = agent_exit.exit.unwrap_or_default();
        let clean = state == TurnState::Idle && exit.code == Some(0);
        let message = (!clean).then(|| exit_message(exit, state));
        if let Some(message) = &message {
            self.record_exit_error(message, exit)?;
        }
        self.finish_turn(TurnInput::Exited, "agent_exited").await?;
        let survives = self.host.survives_crashes.load(Ordering::SeqCst);
        if !clean && survives && self.plan.terminal.is_none() && !self.plan.was_replay {
            // The next message starts the agent again, with its memory and the changes of its workspace.
            self.sleep_reason = Some("agent_exited");
            return Ok(ControlFlow::Continue(()));
        }
        self.end_session(SessionEnded {
            reason: if clean { SessionEndReason::Completed } else { SessionEndReason::Error },
            terminated_by: TerminatedBy::Agent,
            message,
            exit_code: exit.code,
            stderr: agent_exit.stderr,
        })
        .await?;
        Ok(ControlFlow::Break(()))
    }

    /// Kills an agent that did not stop, and ends its turn. The next message starts the agent again.
    pub(super) async fn abandon_turn(&mut self, outcome: TurnOutcome) -> Result<(), SessionError> {
        self.end_agent().await?;
        self.sleep_reason = Some("agent_did_not_stop");
        self.end_turn(outcome, Some("agent_did_not_stop")).await
    }

    /// Ends a session that was registered but whose agent could not be started.
    pub(super) async fn fail_to_start(&mut self, error: &SessionError) -> Result<(), SessionError> {
        let stderr: Option<StderrOutput> =
            self.end_agent().await.ok().flatten().and_then(|agent_exit| agent_exit.stderr);
        let message = error_chain(error);
        let ended = SessionEnded {
            reason: SessionEndReason::Error,
            terminated_by: TerminatedBy::Daemon,
            message: Some(message),
            exit_code: None,
            stderr,
        };
        self.end_session(ended).await.inspect_err(|error| {
            tracing::error!(session = %self.plan.id, %error, "cannot record that the session failed to start");
        })
    }

    /// Kills the agent after a journal write failed, because nothing may happen that the journal does not show.
    pub(super) async fn handle_journal_failure(&mut self, error: &(dyn std::fmt::Display + Sync)) {
        tracing::error!(session = %self.plan.id, %error, "cannot write the journal; killing the agent");
        if let Some(agent) = self.agent.take() {
            agent.stop().await;
        }
        (self.turn, self.stop_deadline, self.journal_broken) = (TurnState::Idle, None, true);
        self.pending = PendingRequests::default();
        self.recorder.clear_turn();
        self.publish_snapshot();
    }

    /// Closes items that a failed journal write left open, now that the journal can be written again.
    pub(super) async fn close_open_state(&mut self) -> Result<(), SessionError> {
        let journal = self.recorder.journal().clone();
        run_blocking(move || {
            let mut open_state = OpenState::read(&*journal)?;
            open_state.close(&*journal, "record_lost", 0)?;
            Ok(())
        })
        .await?;
        self.journal_broken = false;
        Ok(())
    }

    /// Kills every process of the agent and completes its open items. Returns `None` when no agent runs.
    pub(super) async fn end_agent(&mut self) -> Result<Option<AgentExit>, SessionError> {
        let Some(mut agent) = self.agent.take() else { return Ok(None) };
        let unfinished = agent.dialogue.close_open_items();
        let layers = agent.layers();
        let agent_exit = agent.stop().await;
        if let Some(layers) = layers {
            self.save_final_changes(layers).await?;
        }
        for output in unfinished {
            if let DialogueOutput::Event(draft) = output {
                self.recorder.record(draft)?;
            }
        }
        Ok(Some(agent_exit))
    }

    pub(super) async fn finish_turn(&mut self, input: TurnInput, reason: &str) -> Result<(), SessionError> {
        let (state, effect) = self.turn.step(input);
        self.turn = state;
        match effect {
            TurnEffect::End(outcome) => self.end_turn(outcome, Some(reason)).await,
            _ => Ok(()),
        }
    }

    fn record_exit_error(&mut self, message: &str, exit: ProcessExit) -> Result<(), SessionError> {
        let ProcessExit { code, signal, out_of_memory, .. } = exit;
        let details = ExitDetails { exit_code: code, signal, out_of_memory };
        self.recorder.daemon(EventBody::Error(ErrorData {
            message: message.to_owned(),
            code: Some(ProblemCode::AgentProcessExited.as_str().to_owned()),
            details: serde_json::to_value(details).ok(),
        }))?;
        Ok(())
    }

    async fn end_session(&mut self, ended: SessionEnded) -> Result<(), SessionError> {
        let outcome = ended.reason.into();
        self.turn_sync.wait().await?;
        match self.recorder.daemon(EventBody::SessionEnded(ended)) {
            // An earlier call recorded the end and then failed to sync.
            Err(JournalError::Ended) => {}
            recorded => drop(recorded?),
        }
        self.recorder.sync().await?;
        // The agent's memory stays until the session is deleted, so that another session can continue this one.
        remove_fetched_skills(&self.host.store, &self.plan.id).await;
        let (event_count, outcome) = (Some(self.recorder.last()), Some(outcome));
        let patch = SessionPatch { event_count, outcome, ..self.counted() };
        let (host, id) = (self.host.clone(), self.plan.id.clone());
        run_blocking(move || {
            host.store.record_end(&id, patch);
            Ok(())
        })
        .await
    }
}

fn exit_message(exit: ProcessExit, state: TurnState) -> String {
    let how = match (exit.code, exit.signal) {
        _ if exit.out_of_memory => "was killed because it exceeded its memory limit (proc.memory)".to_owned(),
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "exited with an unknown status".to_owned(),
    };
    let when = if state == TurnState::Idle { "between turns" } else { "during a turn" };
    format!("the agent process {how} {when}")
}
