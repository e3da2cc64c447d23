//! Queued messages, as clients list and remove them.
//!
//! Not here: how a message is queued and when its turn starts (`actor/message_queue.rs`).

use protocol::{Attachment, Event, EventBody, MessageQueued, SessionId, TurnId};
use serde::Serialize;

use crate::lifecycle::ActorCommand;
use crate::storage::{OpenState, run_blocking};
use crate::{SessionError, Sessions, UserMessage};

/// A message that waits until the running turn ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueuedMessage {
    /// The turn that will answer the message; clients remove the message by this id.
    pub turn_id: TurnId,
    /// Sequence number of the `message.queued` event.
    pub sequence: u64,
    /// Time when the message was queued, RFC 3339.
    pub queued_at: String,
    /// The text.
    pub message: String,
    /// Attached files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The client's id of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    /// Whether the message goes first and interrupted the running turn.
    pub steers: bool,
}

impl QueuedMessage {
    /// Returns the message of a `message.queued` event.
    pub(crate) fn of(sequence: u64, queued_at: String, queued: MessageQueued) -> Self {
        let MessageQueued { turn_id, message, attachments, client_message_id, steers } = queued;
        Self { turn_id, sequence, queued_at, message, attachments, client_message_id, steers }
    }

    /// Returns the prompt for the agent.
    pub(crate) fn message(&self) -> UserMessage {
        let (text, attachments) = (self.message.clone(), self.attachments.clone());
        UserMessage { text, attachments, client_message_id: self.client_message_id.clone(), ..UserMessage::default() }
    }
}

impl Sessions {
    /// Returns the queued messages of a session, the next one first.
    pub async fn queue(&self, id: &SessionId) -> Result<Vec<QueuedMessage>, SessionError> {
        if let Some(queue) = self.host.handle(id).and_then(|handle| handle.queue()) {
            return Ok(queue.iter().map(|queued| (**queued).clone()).collect());
        }
        let journal = self.journal(id)?;
        run_blocking(move || {
            let open_state = OpenState::read(&*journal)?;
            // Messages that were queued when the session ended are never answered.
            let waiting = open_state.queued.into_iter().filter(|_| !open_state.ended);
            Ok(waiting.map(|queued| (*queued).clone()).collect())
        })
        .await
    }

    /// Removes a message from the queue, so that its turn never starts. Fails when the message is not queued.
    pub async fn unqueue(&self, id: &SessionId, turn: &TurnId) -> Result<(), SessionError> {
        let removed = self.send_command(id, |reply| ActorCommand::Unqueue(turn.clone(), reply)).await;
        match removed {
            Err(SessionError::MessageNotQueued(_)) => {
                let (wanted, turn) = (turn.clone(), turn.clone());
                let was_queued = move |event: Event| match event.draft.body {
                    EventBody::MessageQueued(queued) => (queued.turn_id == wanted).then_some(()),
                    _ => None,
                };
                let known = self.find_last(id, was_queued).await?.is_some();
                Err(if known { SessionError::MessageNotQueued(turn) } else { SessionError::MessageNotFound(turn) })
            }
            other => other,
        }
    }
}
