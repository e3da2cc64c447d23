//! Turns of a session: accepts prompts, starts and ends turns, and handles the agent's output.
//!
//! Events are recorded before the agent gets the lines that follow from them.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use agents::{Dialogue as _, DialogueOutput, Prompt};
use protocol::{AgentUnparsed, EventBody, EventDraft, TurnId, TurnOutcome};
use serde_json::Value;
use tokio::time::Instant;

use super::{Actor, Flow};
use crate::lifecycle::{
    AgentSignal, MessageDigest, MessageReceipt, OutputLine, TurnEffect, TurnInput, TurnMetadata, TurnState,
    drift_of_event, read_images,
};
use crate::{AcceptedMessage, SessionError, UserMessage, WhenBusy};

/// Messages that may wait in one session.
const QUEUE_CAP: usize = 64;
/// Additional messages that may steer: a session with a full queue must still be steerable.
const STEERING_CAP: usize = 8;
/// Bytes that the journal keeps of a line that was too long.
const TRUNCATED_LINE_BYTES: usize = 4096;

impl Actor {
    /// Starts a turn with `message`, or queues the message while another turn runs. A message that was accepted
    /// before, by its client id, gets the same reply again.
    pub(super) async fn accept_message(&mut self, message: UserMessage) -> Result<AcceptedMessage, SessionError> {
        if self.plan.terminal.is_some() {
            return Err(SessionError::Interactive(self.plan.id.clone()));
        }
        let digest = MessageDigest::of(&message);
        if let Some(receipt) = self.receipts.find(message.client_message_id.as_deref()) {
            if receipt.digest == digest {
                return Ok(receipt.accepted.clone());
            }
            return Err(SessionError::MessageIdReused(message.client_message_id.unwrap_or_default()));
        }
        self.host.refuse_while_draining()?;
        self.check_storage()?;
        if self.agent.is_none() {
            self.restart_agent().await?;
        }
        let sequence = self.recorder.last();
        let idle = self.turn == TurnState::Idle && self.queue.is_empty();
        if !idle && message.when_busy == WhenBusy::Refuse {
            return Err(SessionError::TurnRunning(self.plan.id.clone()));
        }
        let capacity = if message.when_busy == WhenBusy::Steer { QUEUE_CAP + STEERING_CAP } else { QUEUE_CAP };
        if self.queue.len() >= capacity {
            return Err(SessionError::QueueFull { id: self.plan.id.clone(), waiting: self.queue.len() });
        }
        let turn = self.next_turn_id();
        let accepted = AcceptedMessage { turn_id: turn.clone(), sequence, queued: !idle };
        let client_message_id = message.client_message_id.clone();
        if idle {
            self.start_turn(turn, message).await?;
        } else {
            self.enqueue(turn, message).await?;
        }
        self.receipts.insert(client_message_id.as_deref(), MessageReceipt { accepted: accepted.clone(), digest });
        Ok(accepted)
    }

    fn next_turn_id(&mut self) -> TurnId {
        self.turn_count += 1;
        TurnId::numbered(self.plan.epoch, self.turn_count)
    }

    /// Records the start of a turn and sends the prompt to the agent.
    pub(super) async fn start_turn(&mut self, turn: TurnId, message: UserMessage) -> Result<(), SessionError> {
        let (state, effect) = self.turn.step(TurnInput::Prompt);
        debug_assert_eq!(effect, TurnEffect::Start, "a turn was started during another turn");
        self.recorder.turn_started(&turn, &message)?;
        self.note_prompt(&message.text);
        self.turn = state;
        self.turn_deadline = Instant::now() + self.plan.policy.limits().timeout;
        self.space_deadline = Instant::now() + self.host.config.timeouts.free_space_check;
        self.reset_silence();
        let Some(agent) = &mut self.agent else { return Ok(()) };
        let pictures = read_images(agent.sandbox(), &message.attachments).await;
        let prompt = Prompt { text: message.text, attachments: message.attachments, images: pictures };
        let outputs = agent.dialogue.send_prompt(&prompt);
        self.apply_outputs(outputs).await
    }

    pub(super) async fn handle_signal(&mut self, signal: AgentSignal) -> Result<Flow, SessionError> {
        match signal {
            AgentSignal::Line(line) => {
                self.reset_silence();
                self.handle_line(line).await?;
                Ok(ControlFlow::Continue(()))
            }
            AgentSignal::Exited => self.handle_process_exit().await,
        }
    }

    async fn handle_line(&mut self, line: OutputLine) -> Result<(), SessionError> {
        if line.cut > 0 {
            let length = line.bytes.len() as u64 + line.cut;
            let error = format!("the line has {length} bytes, of which {} were dropped", line.cut);
            let start = &line.bytes[..line.bytes.len().min(TRUNCATED_LINE_BYTES)];
            let raw = Value::String(String::from_utf8_lossy(start).into_owned());
            let body = AgentUnparsed { error, location: "stdout".to_owned(), raw_hash: None };
            self.recorder.record(EventDraft::daemon(EventBody::AgentUnparsed(body)).with_raw(raw))?;
            return Ok(());
        }
        let Some(agent) = &mut self.agent else { return Ok(()) };
        let outputs = agent.dialogue.read_line(&line.bytes);
        self.apply_outputs(outputs).await
    }

    /// Applies the outputs of a dialogue in order: records events, sends lines to the agent, ends the turn.
    pub(super) async fn apply_outputs(&mut self, outputs: Vec<DialogueOutput>) -> Result<(), SessionError> {
        let mut work = VecDeque::from(outputs);
        while let Some(output) = work.pop_front() {
            match output {
                DialogueOutput::Event(draft) => work.extend(self.record_agent_event(draft)?),
                DialogueOutput::Send(line) => {
                    if let Some(agent) = &self.agent {
                        agent.send(line);
                    }
                }
                DialogueOutput::NativeSession(native) => self.set_native_session(native),
                DialogueOutput::TurnEnded(outcome) => Box::pin(self.advance_turn(TurnInput::Done(outcome))).await?,
            }
        }
        Ok(())
    }

    /// Records an event of the agent. Returns the dialogue outputs that follow from it.
    fn record_agent_event(&mut self, draft: EventDraft) -> Result<Vec<DialogueOutput>, SessionError> {
        match &draft.body {
            EventBody::PermissionRequested(permission) => {
                let permission = permission.clone();
                self.on_permission_request(permission, draft)
            }
            EventBody::QuestionRequested(question) => {
                let question = question.clone();
                self.on_question_request(question, draft)
            }
            EventBody::PermissionResolved(permission) => {
                let was_pending = self.pending.remove_permission(&permission.permission_id);
                self.record_withdrawal(was_pending, draft)
            }
            EventBody::QuestionResolved(question) => {
                let was_pending = self.pending.remove_question(&question.question_id);
                self.record_withdrawal(was_pending, draft)
            }
            _ => {
                let counts = drift_of_event(&self.plan.agent, self.plan.agent_version.as_deref(), &draft.body);
                self.recorder.record(draft)?;
                if let Some(counts) = counts {
                    self.host.store.count_drift(&counts);
                }
                Ok(Vec::new())
            }
        }
    }

    /// Records that the agent withdrew a request; does nothing when the request was answered before.
    fn record_withdrawal(&mut self, was_pending: bool, draft: EventDraft) -> Result<Vec<DialogueOutput>, SessionError> {
        if was_pending {
            self.recorder.record(draft)?;
            self.turn = self.turn.step(TurnInput::Answered).0;
        }
        Ok(Vec::new())
    }

    /// Feeds `input` to the turn's state machine and carries out the effect.
    pub(super) async fn advance_turn(&mut self, input: TurnInput) -> Result<(), SessionError> {
        let (state, effect) = self.turn.step(input);
        self.turn = state;
        match effect {
            TurnEffect::Stop => self.ask_to_stop().await,
            TurnEffect::End(outcome) => self.end_turn(outcome, None).await,
            TurnEffect::Abandon(outcome) => self.abandon_turn(outcome).await,
            TurnEffect::None | TurnEffect::Start | TurnEffect::Busy | TurnEffect::Keep | TurnEffect::Refuse => Ok(()),
        }
    }

    async fn ask_to_stop(&mut self) -> Result<(), SessionError> {
        self.stop_deadline = Some(Instant::now() + self.host.config.timeouts.stop_grace);
        self.recorder.current_turn().interrupt_calls();
        let refusals = self.refuse_pending("turn_interrupted")?;
        // The interrupt goes first: after a refusal alone, the agent would try something else, or finish.
        let mut outputs = self.agent.as_mut().map(|agent| agent.dialogue.interrupt()).unwrap_or_default();
        outputs.extend(refusals);
        Box::pin(self.apply_outputs(outputs)).await
    }

    /// Records the end of the turn, after its changes, memory and billing are saved.
    pub(super) async fn end_turn(&mut self, outcome: TurnOutcome, reason: Option<&str>) -> Result<(), SessionError> {
        self.stop_deadline = None;
        self.resolve_pending_on_record(reason.unwrap_or("turn_ended"))?;
        self.save_changes().await?;
        self.save_memory().await;
        self.wait_for_billing(outcome).await;
        self.recorder.turn_ended(outcome, reason.map(TurnMetadata::ended).unwrap_or_default())?;
        // The next turn does not wait for this fsync, but at most one turn is unsynced at a time.
        self.turn_sync.wait().await?;
        let patch = self.counted();
        self.turn_sync.start(&self.host.store, &self.plan.id, &self.recorder, patch);
        Ok(())
    }

    /// Waits until the cost of the turn's model calls is recorded. An agent may end its turn at the last word of an
    /// answer, before the gateway has written the cost.
    async fn wait_for_billing(&mut self, outcome: TurnOutcome) {
        // A stopped agent leaves calls half read; the gateway finishes them without anybody waiting.
        if matches!(outcome, TurnOutcome::Completed | TurnOutcome::Failed) {
            let _ = tokio::time::timeout(self.host.config.timeouts.billing, self.recorder.turn_billed()).await;
        }
    }

    fn set_native_session(&mut self, native: String) {
        self.host.index_native_id(&self.plan.id, &native);
        self.plan.native_session_id = Some(native.clone());
        self.recorder.native_session_id = Some(native);
    }
}
