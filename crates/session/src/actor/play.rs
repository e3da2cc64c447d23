//! What the agent says, put on record; what is said to the agent, after it is on record.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use agents::{Dialogue as _, DialogueOutput, Prompt};
use protocol::{AgentUnparsed, EventBody, EventDraft, TurnId};
use serde_json::Value;
use tokio::time::Instant;

use super::{Actor, Flow};
use crate::line::Line;
use crate::live::Sign;
use crate::turn::{Effect, Input};
use crate::{SessionError, UserMessage, drift, pictures};

/// What is shown of a line that was too long to keep.
const CUT_LINE_SHOWN: usize = 4096;

impl Actor {
    pub(super) async fn hear(&mut self, sign: Sign) -> Result<Flow, SessionError> {
        match sign {
            Sign::Line(line) => {
                self.heard();
                self.read(line).await?;
                Ok(ControlFlow::Continue(()))
            }
            Sign::Gone => self.bury().await,
        }
    }

    async fn read(&mut self, line: Line) -> Result<(), SessionError> {
        if line.cut > 0 {
            let error =
                format!("a line of {} bytes, of which {} were dropped", line.bytes.len() as u64 + line.cut, line.cut);
            let shown = String::from_utf8_lossy(&line.bytes[..line.bytes.len().min(CUT_LINE_SHOWN)]).into_owned();
            let body = AgentUnparsed { error, location: "stdout".to_owned(), raw_hash: None };
            self.recorder.record(EventDraft::daemon(EventBody::AgentUnparsed(body)).with_raw(Value::String(shown)))?;
            return Ok(());
        }
        let Some(agent) = &mut self.live else { return Ok(()) };
        let outputs = agent.dialogue.line(&line.bytes);
        self.play(outputs).await
    }

    pub(super) async fn start_turn(&mut self, turn: TurnId, message: UserMessage) -> Result<(), SessionError> {
        let (phase, effect) = self.phase.step(Input::Prompt);
        debug_assert_eq!(effect, Effect::Start, "a turn was started in the middle of another");
        self.recorder.turn_started(&turn, &message)?;
        self.phase = phase;
        self.turn_by = Instant::now() + self.plan.policy.limits().timeout;
        self.heard();
        let Some(live) = &mut self.live else { return Ok(()) };
        let pictures = pictures::read(live.sandbox(), &message.attachments).await;
        let prompt = Prompt { text: message.text, attachments: message.attachments, pictures };
        let outputs = live.dialogue.prompt(&prompt);
        self.play(outputs).await
    }

    /// Does what a dialogue wants done, in order.
    pub(super) async fn play(&mut self, outputs: Vec<DialogueOutput>) -> Result<(), SessionError> {
        let mut work = VecDeque::from(outputs);
        while let Some(output) = work.pop_front() {
            match output {
                DialogueOutput::Event(draft) => work.extend(self.event(draft)?),
                DialogueOutput::Send(line) => {
                    if let Some(live) = &self.live {
                        live.send(line);
                    }
                }
                DialogueOutput::NativeSession(native) => self.name_native(native),
                DialogueOutput::TurnEnded(outcome) => Box::pin(self.step(Input::Done(outcome))).await?,
            }
        }
        Ok(())
    }

    /// Records an event of the agent; what it makes the dialogue do comes back.
    pub(super) fn event(&mut self, draft: EventDraft) -> Result<Vec<DialogueOutput>, SessionError> {
        match &draft.body {
            EventBody::PermissionRequested(permission) => {
                let permission = permission.clone();
                self.permission_asked(permission, draft)
            }
            EventBody::QuestionRequested(question) => {
                let question = question.clone();
                self.question_asked(question, draft)
            }
            EventBody::PermissionResolved(permission) => {
                let was_open = self.pending.remove_permission(&permission.permission_id);
                self.withdrawn(was_open, draft)
            }
            EventBody::QuestionResolved(question) => {
                let was_open = self.pending.remove_question(&question.question_id);
                self.withdrawn(was_open, draft)
            }
            _ => {
                let unknown = drift::of(&self.plan.agent, self.plan.agent_version.as_deref(), &draft.body);
                self.recorder.record(draft)?;
                if let Some(unknown) = unknown {
                    self.host.shelf.count_drift(&unknown);
                }
                Ok(Vec::new())
            }
        }
    }

    /// The agent took back what it asked; once answered there is nothing to take back.
    fn withdrawn(&mut self, was_open: bool, draft: EventDraft) -> Result<Vec<DialogueOutput>, SessionError> {
        if was_open {
            self.recorder.record(draft)?;
            self.phase = self.phase.step(Input::Answered).0;
        }
        Ok(Vec::new())
    }

    pub(super) async fn ask_to_stop(&mut self) -> Result<(), SessionError> {
        self.stop_by = Some(Instant::now() + self.host.config.timeouts.stop_grace);
        let refusals = self.refuse_pending("turn_interrupted")?;
        // An agent that heard the refusals first would go on to something else, and might finish before it heard the rest.
        let mut outputs = self.live.as_mut().map(|live| live.dialogue.interrupt()).unwrap_or_default();
        outputs.extend(refusals);
        Box::pin(self.play(outputs)).await
    }

    fn name_native(&mut self, native: String) {
        self.host.note_native(&self.plan.id, &native);
        self.plan.native_session_id = Some(native.clone());
        self.recorder.native_session_id = Some(native);
    }
}
