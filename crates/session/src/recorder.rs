//! The one pen of a session: every event passes here and gets its turn and its native session.

use std::sync::Arc;

use gateway::CurrentTurn;
use protocol::{
    AgentUnparsed, ContentPart, Event, EventBody, EventDraft, Item, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus,
    PolicyEffective, SessionRegistered, Turn, TurnId, TurnOutcome, TurnPhase,
};
use serde_json::{Value, json};
use store::{Journal, JournalError};

use crate::UserMessage;

/// Writes the events of one session.
#[derive(Clone)]
pub(crate) struct Recorder {
    journal: Arc<dyn Journal>,
    /// Shared with the gateway, so that model calls are charged to the turn that made them.
    pub(crate) turn: CurrentTurn,
    pub(crate) native_session_id: Option<String>,
}

impl Recorder {
    pub(crate) fn new(journal: Arc<dyn Journal>) -> Self {
        Self { journal, turn: CurrentTurn::default(), native_session_id: None }
    }

    pub(crate) fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// Number of the last event.
    pub(crate) fn last(&self) -> u64 {
        *self.journal.last().borrow()
    }

    /// Records what happened now, in the turn that runs now.
    pub(crate) fn record(&self, mut draft: EventDraft) -> Result<Event, JournalError> {
        draft.turn_id = draft.turn_id.or_else(|| self.turn.get());
        draft.native_session_id.clone_from(&self.native_session_id);
        let turn = draft.turn_id.clone();
        match self.journal.append(draft) {
            // What could never be read back must not end a session: it is told in place of itself.
            Err(error @ (JournalError::TooDeep { .. } | JournalError::TooLarge { .. })) => {
                let (error, location) = (error.to_string(), "stdout".to_owned());
                let body = EventBody::AgentUnparsed(AgentUnparsed { error, location, raw_hash: None });
                self.journal.append(EventDraft::daemon(body).synthetic().in_turn(turn))
            }
            other => other,
        }
    }

    pub(crate) fn daemon(&self, body: EventBody) -> Result<Event, JournalError> {
        self.record(EventDraft::daemon(body))
    }

    /// The first two events of a start, in one write.
    pub(crate) fn started(&self, policy: PolicyEffective, registered: SessionRegistered) -> Result<(), JournalError> {
        let bodies = [EventBody::PolicyEffective(policy), EventBody::SessionRegistered(registered)];
        let named = |body| EventDraft { native_session_id: self.native_session_id.clone(), ..EventDraft::daemon(body) };
        self.journal.store(&bodies.map(named)).map(drop)
    }

    /// `turn.started` and the message that started it.
    pub(crate) fn turn_started(&self, turn: &TurnId, message: &UserMessage) -> Result<(), JournalError> {
        self.turn.set(Some(turn.clone()));
        let metadata = message.client_message_id.as_ref().map(|id| json!({"client_message_id": id}));
        let started = Turn { phase: TurnPhase::Started, turn_id: Some(turn.clone()), outcome: None, metadata };
        self.daemon(EventBody::TurnStarted(started))?;
        let Ok(item_id) = ItemId::new(format!("itm_{turn}")) else { return Ok(()) };
        let mut item = Item {
            item_id,
            native_item_id: None,
            parent_id: None,
            kind: ItemKind::Message,
            role: Some(ItemRole::User),
            content: content(message),
            status: ItemStatus::InProgress,
        };
        self.record(EventDraft::daemon(EventBody::ItemStarted(ItemEvent { item: item.clone() })).synthetic())?;
        item.status = ItemStatus::Completed;
        self.record(EventDraft::daemon(EventBody::ItemCompleted(ItemEvent { item })).synthetic())?;
        Ok(())
    }

    /// `turn.ended`; what comes after belongs to no turn.
    pub(crate) fn turn_ended(&self, outcome: TurnOutcome, metadata: Option<Value>) -> Result<(), JournalError> {
        let turn = Turn { phase: TurnPhase::Ended, turn_id: self.turn.get(), outcome: Some(outcome), metadata };
        self.daemon(EventBody::TurnEnded(turn))?;
        self.turn.set(None);
        Ok(())
    }

    /// Waits until everything recorded so far is on disk.
    pub(crate) async fn sync(&self) -> Result<(), JournalError> {
        let journal = self.journal.clone();
        // A sync may take as long as the disk likes: not on a thread that serves others.
        match tokio::task::spawn_blocking(move || journal.sync()).await {
            Ok(synced) => synced,
            // The runtime is going away and took the thread with it.
            Err(_) => Ok(()),
        }
    }
}

fn content(message: &UserMessage) -> Vec<ContentPart> {
    let text = ContentPart::Text { text: message.text.clone() };
    let attachments = message.attachments.iter().map(|attachment| match &attachment.mime {
        Some(mime) if mime.starts_with("image/") => {
            ContentPart::Image { path: attachment.path.clone(), mime: Some(mime.clone()) }
        }
        _ => ContentPart::FileRef { path: attachment.path.clone(), action: protocol::FileAction::Read, diff: None },
    });
    std::iter::once(text).chain(attachments).collect()
}
