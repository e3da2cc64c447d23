//! Messages that come in the middle of a turn: kept, taken out, and started when their turn comes.

use std::sync::Arc;

use protocol::{ErrorData, EventBody, EventDraft, MessageQueued, MessageRemoved, TurnId};

use super::Actor;
use crate::queue::QueuedMessage;
use crate::turn::{Input, Phase};
use crate::{SessionError, UserMessage, WhenBusy};

impl Actor {
    pub(super) async fn enqueue(&mut self, turn: TurnId, message: UserMessage) -> Result<(), SessionError> {
        let steers = message.when_busy == WhenBusy::Steer;
        let UserMessage { text, attachments, client_message_id, .. } = message;
        let queued = MessageQueued { turn_id: turn, message: text, attachments, client_message_id, steers };
        let event = self.recorder.daemon(EventBody::MessageQueued(queued.clone()))?;
        let queued = Arc::new(QueuedMessage::of(event.sequence, event.time, queued));
        if steers {
            self.queue.push_front(queued);
            return self.step(Input::Interrupt).await;
        }
        self.queue.push_back(queued);
        Ok(())
    }

    /// Takes a message out of the queue. It is on disk before the client hears that its turn will not come.
    pub(super) async fn unqueue(&mut self, turn: &TurnId) -> Result<(), SessionError> {
        let place = self.queue.iter().position(|queued| queued.turn_id == *turn);
        let place = place.ok_or_else(|| SessionError::MessageNotQueued(turn.clone()))?;
        let client_message_id = self.queue[place].client_message_id.clone();
        let removed = MessageRemoved { turn_id: turn.clone(), client_message_id };
        // In the turn that it would have had: who follows that turn hears that it is over.
        self.recorder.record(EventDraft::daemon(EventBody::MessageRemoved(removed)).in_turn(Some(turn.clone())))?;
        self.queue.remove(place);
        Ok(self.recorder.sync().await?)
    }

    pub(super) async fn start_what_waits(&mut self) -> Result<(), SessionError> {
        while self.phase == Phase::Idle && self.woken && !self.queue.is_empty() {
            if self.live.is_none()
                && let Err(error) = self.wake().await
            {
                return self.tell_cannot_start(&error);
            }
            let Some(queued) = self.queue.pop_front() else { break };
            self.start_turn(queued.turn_id.clone(), queued.message()).await?;
        }
        Ok(())
    }

    fn tell_cannot_start(&mut self, error: &SessionError) -> Result<(), SessionError> {
        // Not tried again before somebody asks for something.
        self.woken = false;
        let (message, code) =
            (format!("cannot start the agent again: {error}"), Some(error.code().as_str().to_owned()));
        self.recorder.daemon(EventBody::Error(ErrorData { message, code, details: None }))?;
        Ok(())
    }
}
