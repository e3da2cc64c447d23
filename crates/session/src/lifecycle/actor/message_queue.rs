//! The message queue of the actor: messages that arrive during a turn wait here until that turn ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::{ErrorData, EventBody, EventDraft, MessageQueued, MessageRemoved, TurnId};

use super::Actor;
use crate::lifecycle::{QueuedMessage, TurnInput, TurnState};
use crate::{SessionError, UserMessage, WhenBusy};

impl Actor {
    /// Queues a message. A message that steers goes first and interrupts the running turn.
    pub(super) async fn enqueue(&mut self, turn: TurnId, message: UserMessage) -> Result<(), SessionError> {
        let steers = message.when_busy == WhenBusy::Steer;
        let UserMessage { text, attachments, client_message_id, .. } = message;
        let queued = MessageQueued { turn_id: turn, message: text, attachments, client_message_id, steers };
        let event = self.recorder.daemon(EventBody::MessageQueued(queued.clone()))?;
        let queued = Arc::new(QueuedMessage::of(event.sequence, event.time, queued));
        if steers {
            self.queue.push_front(queued);
            return self.advance_turn(TurnInput::Interrupt).await;
        }
        self.queue.push_back(queued);
        Ok(())
    }

    /// Removes a message from the queue. Fails when the message is not queued. The removal is on disk when this returns.
    pub(super) async fn unqueue(&mut self, turn: &TurnId) -> Result<(), SessionError> {
        let index = self.queue.iter().position(|queued| queued.turn_id == *turn);
        let index = index.ok_or_else(|| SessionError::MessageNotQueued(turn.clone()))?;
        let client_message_id = self.queue[index].client_message_id.clone();
        let removed = MessageRemoved { turn_id: turn.clone(), client_message_id };
        // Recorded in the message's own turn, so that a client that follows the turn sees its end.
        self.recorder.record(EventDraft::daemon(EventBody::MessageRemoved(removed)).in_turn(Some(turn.clone())))?;
        self.queue.remove(index);
        Ok(self.recorder.sync().await?)
    }

    /// Starts the next queued message when no turn runs.
    pub(super) async fn start_queued(&mut self) -> Result<(), SessionError> {
        while self.turn == TurnState::Idle && self.agent_started && !self.queue.is_empty() {
            if self.host.draining.load(Ordering::SeqCst) {
                // The next host continues with the queue.
                break;
            }
            let ready = match self.check_storage() {
                Ok(()) if self.agent.is_none() => self.restart_agent().await,
                ready => ready,
            };
            if let Err(error) = ready {
                return self.record_start_failure(&error);
            }
            let Some(queued) = self.queue.pop_front() else { break };
            self.start_turn(queued.turn_id.clone(), queued.message()).await?;
        }
        Ok(())
    }

    fn record_start_failure(&mut self, error: &SessionError) -> Result<(), SessionError> {
        // The start is retried only after a client sends a message.
        self.agent_started = false;
        let (message, code) =
            (format!("cannot start the agent again: {error}"), Some(error.code().as_str().to_owned()));
        self.recorder.daemon(EventBody::Error(ErrorData { message, code, details: None }))?;
        Ok(())
    }
}
