//! The only writer of a session's journal. It adds the current turn and the agent's own session id to each event.

use std::sync::Arc;

use protocol::{
    AgentUnparsed, ContentPart, Event, EventBody, EventDraft, Item, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus,
    PolicyEffective, SessionRegistered, Turn, TurnId, TurnOutcome, TurnPhase,
};
use store::{FileJournal, Journal, JournalError, StorageMeter};

use crate::UserMessage;
use crate::lifecycle::{CurrentTurn, TurnMetadata};

/// Writes the events of one session.
#[derive(Clone)]
pub(crate) struct Recorder {
    journal: Arc<dyn Journal>,
    /// The running turn. Shared with the gateway, so that model calls are billed to the turn that made them.
    turn: CurrentTurn,
    /// The disk space of the session, unless the journal is created on demand.
    storage: Option<Arc<StorageMeter>>,
    pub(crate) native_session_id: Option<String>,
}

impl Recorder {
    pub(crate) fn new(journal: Arc<dyn Journal>) -> Self {
        Self { journal, turn: CurrentTurn::default(), storage: None, native_session_id: None }
    }

    /// Returns a recorder for `journal` and the disk space of its session.
    pub(crate) fn to_file(journal: Arc<FileJournal>) -> Self {
        let storage = journal.storage().cloned();
        Self { storage, ..Self::new(journal) }
    }

    /// Returns the disk space of the session; `None` if the journal is created on demand.
    pub(crate) fn storage(&self) -> Option<&Arc<StorageMeter>> {
        self.storage.as_ref()
    }

    pub(crate) fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// Returns the sequence number of the last event.
    pub(crate) fn last(&self) -> u64 {
        *self.journal.last().borrow()
    }

    /// Returns the running turn, for the gateway and the egress proxy to share.
    pub(crate) fn current_turn(&self) -> CurrentTurn {
        self.turn.clone()
    }

    /// Forgets the running turn, after a journal failure.
    pub(crate) fn clear_turn(&self) {
        self.turn.set(None);
    }

    /// Waits until the cost of all model calls of the turn is recorded.
    pub(crate) async fn turn_billed(&self) {
        self.turn.accounted().await;
    }

    /// Records an event in the running turn.
    pub(crate) fn record(&self, mut draft: EventDraft) -> Result<Event, JournalError> {
        draft.turn_id = draft.turn_id.or_else(|| self.turn.get());
        draft.native_session_id.clone_from(&self.native_session_id);
        let turn = draft.turn_id.clone();
        match self.journal.append(draft) {
            // An event that readers could not parse must not end the session: an `agent.unparsed` event replaces it.
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

    /// Records the first two events of a start, in one write.
    pub(crate) fn started(&self, policy: PolicyEffective, registered: SessionRegistered) -> Result<(), JournalError> {
        let bodies = [EventBody::PolicyEffective(policy), EventBody::SessionRegistered(registered)];
        let named = |body| EventDraft { native_session_id: self.native_session_id.clone(), ..EventDraft::daemon(body) };
        self.journal.store(&bodies.map(named)).map(drop)
    }

    /// Records `turn.started` and the user's message as an item.
    pub(crate) fn turn_started(&self, turn: &TurnId, message: &UserMessage) -> Result<(), JournalError> {
        self.turn.set(Some(turn.clone()));
        let client_message_id = message.client_message_id.clone();
        let metadata = TurnMetadata { client_message_id, ..TurnMetadata::default() }.into_value();
        let started = Turn { phase: TurnPhase::Started, turn_id: Some(turn.clone()), outcome: None, metadata };
        self.daemon(EventBody::TurnStarted(started))?;
        let Ok(item_id) = ItemId::new(format!("itm_{turn}")) else { return Ok(()) };
        let mut item = Item {
            item_id,
            native_item_id: None,
            parent_id: None,
            kind: ItemKind::Message,
            role: Some(ItemRole::User),
            content: item_content(message),
            status: ItemStatus::InProgress,
        };
        self.record(EventDraft::daemon(EventBody::ItemStarted(ItemEvent { item: item.clone() })).synthetic())?;
        item.status = ItemStatus::Completed;
        self.record(EventDraft::daemon(EventBody::ItemCompleted(ItemEvent { item })).synthetic())?;
        Ok(())
    }

    /// Records `turn.ended`. Later events belong to no turn.
    pub(crate) fn turn_ended(&self, outcome: TurnOutcome, metadata: TurnMetadata) -> Result<(), JournalError> {
        let (outcome, metadata) = (Some(outcome), metadata.into_value());
        let turn = Turn { phase: TurnPhase::Ended, turn_id: self.turn.get(), outcome, metadata };
        self.daemon(EventBody::TurnEnded(turn))?;
        self.turn.set(None);
        Ok(())
    }

    /// Waits until all recorded events are on disk.
    pub(crate) async fn sync(&self) -> Result<(), JournalError> {
        let journal = self.journal.clone();
        // An fsync can block for long, so it does not run on a runtime thread.
        match tokio::task::spawn_blocking(move || journal.sync()).await {
            Ok(synced) => synced,
            // The runtime is shutting down, and its threads with it.
            Err(_) => Ok(()),
        }
    }
}

fn item_content(message: &UserMessage) -> Vec<ContentPart> {
    let text = ContentPart::Text { text: message.text.clone() };
    let attachments = message.attachments.iter().map(|attachment| match &attachment.mime {
        Some(mime) if mime.starts_with("image/") => {
            ContentPart::Image { path: attachment.path.clone(), mime: Some(mime.clone()) }
        }
        _ => ContentPart::FileRef { path: attachment.path.clone(), action: protocol::FileAction::Read, diff: None },
    });
    std::iter::once(text).chain(attachments).collect()
}
