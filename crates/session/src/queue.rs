//! Messages that wait for their turn, as clients see them and take them out again.
//!
//! Not here: how one comes to wait, and when its turn begins (`actor/queue.rs`).

use protocol::{Attachment, Event, EventBody, MessageQueued, SessionId, TurnId};
use serde::Serialize;

use crate::command::Command;
use crate::left::Left;
use crate::shelf::blocking;
use crate::{SessionError, Sessions, UserMessage};

/// A message that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueuedMessage {
    /// The turn that will answer it; it is taken out by this id.
    pub turn_id: TurnId,
    /// Number of the event that told that it waits.
    pub sequence: u64,
    /// Since when it waits, RFC 3339.
    pub queued_at: String,
    /// The words.
    pub message: String,
    /// Files that go with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// As its client named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    /// It came before everything that waited, and interrupted the turn that ran.
    pub steers: bool,
}

impl QueuedMessage {
    /// The one that `message.queued` tells of.
    pub(crate) fn of(sequence: u64, queued_at: String, queued: MessageQueued) -> Self {
        let MessageQueued { turn_id, message, attachments, client_message_id, steers } = queued;
        Self { turn_id, sequence, queued_at, message, attachments, client_message_id, steers }
    }

    /// What the agent is to hear when its turn begins.
    pub(crate) fn message(&self) -> UserMessage {
        let (text, attachments) = (self.message.clone(), self.attachments.clone());
        UserMessage { text, attachments, client_message_id: self.client_message_id.clone(), ..UserMessage::default() }
    }
}

impl Sessions {
    /// The messages that wait in a session, the next one first.
    pub async fn queue(&self, id: &SessionId) -> Result<Vec<QueuedMessage>, SessionError> {
        if let Some(queue) = self.host.seat(id).and_then(|seat| seat.queue()) {
            return Ok(queue.iter().map(|queued| (**queued).clone()).collect());
        }
        let journal = self.journal(id)?;
        blocking(move || {
            let left = Left::read(&*journal)?;
            // What waited when a session ended will never be answered.
            let waiting = left.queued.into_iter().filter(|_| !left.ended);
            Ok(waiting.map(|queued| (*queued).clone()).collect())
        })
        .await
    }

    /// Takes a message that waits out of the queue: its turn never starts. One that does not wait any more is refused.
    pub async fn unqueue(&self, id: &SessionId, turn: &TurnId) -> Result<(), SessionError> {
        let removed = self.ask(id, |reply| Command::Unqueue(turn.clone(), reply)).await;
        match removed {
            Err(SessionError::MessageNotQueued(_)) => {
                let (asked, turn) = (turn.clone(), turn.clone());
                let waited = move |event: Event| match event.draft.body {
                    EventBody::MessageQueued(queued) => (queued.turn_id == asked).then_some(()),
                    _ => None,
                };
                let known = self.last_of(id, waited).await?.is_some();
                Err(if known { SessionError::MessageNotQueued(turn) } else { SessionError::MessageNotFound(turn) })
            }
            other => other,
        }
    }
}
