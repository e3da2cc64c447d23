//! The open state of a journal: turns, items, requests and queued messages that have no end yet.
//!
//! It is a fold over the events, so the result is the same after a killed host, a full disk, and in a test.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use base::Digest;
use protocol::{
    BodyRef, Event, EventBody, EventDraft, Grant, Item, ItemEvent, ItemId, ItemStatus, Permission, PermissionId,
    PermissionReply, Question, QuestionId, Resolution, SessionRecovered, SessionStarted, Turn, TurnId, TurnOutcome,
    TurnPhase,
};
use store::{Journal, JournalError, SessionTally};

use crate::AcceptedMessage;
use crate::lifecycle::{
    MessageDigest, MessageReceipt, QueuedMessage, SessionPolicyChange, TurnMetadata, resolved_permission,
    resolved_question,
};

/// Events read at a time.
const PAGE: usize = 1000;

/// The state that results from the events of a journal.
#[derive(Default)]
pub(crate) struct OpenState {
    /// The data of `session.started`; `None` when the session never started.
    pub(crate) started: Option<SessionStarted>,
    /// Whether `session.ended` was recorded.
    pub(crate) ended: bool,
    /// Queued messages whose turn has not started.
    pub(crate) queued: VecDeque<Arc<QueuedMessage>>,
    /// Receipts of messages by client id, oldest first.
    pub(crate) receipts: Vec<(String, MessageReceipt)>,
    /// Client id and reply of the message that started the turn, until the message itself is read.
    starting_message: Option<(String, AcceptedMessage)>,
    /// The grants that are in force.
    pub(crate) grants: Vec<Grant>,
    /// Changes of the network policy, oldest first.
    pub(crate) policy_changes: Vec<SessionPolicyChange>,
    /// Counts of all events.
    pub(crate) tally: SessionTally,
    /// The digests of the bodies that are stored in files.
    pub(crate) bodies: HashSet<Digest>,
    turn: Option<TurnId>,
    permissions: BTreeMap<PermissionId, Permission>,
    questions: BTreeMap<QuestionId, Question>,
    items: BTreeMap<ItemId, Item>,
}

impl OpenState {
    /// Returns the open state at the end of `journal`.
    pub(crate) fn read(journal: &dyn Journal) -> Result<Self, JournalError> {
        let (mut state, mut seen) = (Self::default(), 0);
        loop {
            let page = journal.after(seen, PAGE)?;
            let Some(last) = page.last() else { return Ok(state) };
            seen = last.sequence;
            for event in page {
                state.observe(event);
            }
        }
    }

    /// Records the end of everything that is open, and `session.recovered`. `torn_bytes` were cut from the journal.
    pub(crate) fn close(&mut self, journal: &dyn Journal, reason: &str, torn_bytes: u64) -> Result<(), JournalError> {
        let interrupted = self.open_ids();
        let turn = self.turn.take();
        let append = |body| journal.append(EventDraft::daemon(body).synthetic().in_turn(turn.clone())).map(drop);
        for (_, mut item) in std::mem::take(&mut self.items) {
            item.status = ItemStatus::Failed;
            append(EventBody::ItemCompleted(ItemEvent { item }))?;
        }
        for (_, request) in std::mem::take(&mut self.permissions) {
            let resolved = resolved_permission(&request, PermissionReply::Reject, Some(Resolution::expired(reason)));
            append(EventBody::PermissionResolved(resolved))?;
        }
        for (_, request) in std::mem::take(&mut self.questions) {
            append(EventBody::QuestionResolved(resolved_question(&request, None, Some(Resolution::expired(reason)))))?;
        }
        if turn.is_some() {
            let (outcome, metadata) = (Some(TurnOutcome::Interrupted), TurnMetadata::ended(reason).into_value());
            append(EventBody::TurnEnded(Turn { phase: TurnPhase::Ended, turn_id: turn.clone(), outcome, metadata }))?;
        }
        journal
            .append(EventDraft::daemon(EventBody::SessionRecovered(SessionRecovered { interrupted, torn_bytes })))?;
        Ok(())
    }

    /// Returns the ids of the open turn and requests.
    fn open_ids(&self) -> Vec<String> {
        let turn = self.turn.iter().map(TurnId::to_string);
        let permissions = self.permissions.keys().map(PermissionId::to_string);
        let questions = self.questions.keys().map(QuestionId::to_string);
        turn.chain(permissions).chain(questions).collect()
    }

    fn observe(&mut self, event: Event) {
        let sequence = event.sequence;
        self.tally.count(&event.draft.body);
        match event.draft.body {
            EventBody::SessionStarted(started) => self.started = Some(started),
            EventBody::SessionEnded(_) => self.ended = true,
            EventBody::MessageQueued(queued) => {
                if let Some(client_message_id) = queued.client_message_id.clone() {
                    let digest = MessageDigest::new(&queued.message, &queued.attachments);
                    let accepted = accepted(&queued.turn_id, sequence, true);
                    self.receipts.push((client_message_id, MessageReceipt { accepted, digest }));
                }
                let waiting = Arc::new(QueuedMessage::of(sequence, event.time, queued));
                if waiting.steers {
                    self.queued.push_front(waiting);
                } else {
                    self.queued.push_back(waiting);
                }
            }
            EventBody::MessageRemoved(removed) => self.queued.retain(|queued| queued.turn_id != removed.turn_id),
            EventBody::TurnStarted(turn) => self.turn_started(turn, sequence),
            EventBody::TurnEnded(_) => self.turn = None,
            EventBody::ItemStarted(ItemEvent { item }) => {
                // The first item of a turn is the message that started it.
                if let Some((client_message_id, accepted)) = self.starting_message.take() {
                    let digest = MessageDigest::recorded(&item.content);
                    self.receipts.push((client_message_id, MessageReceipt { accepted, digest }));
                }
                self.items.insert(item.item_id.clone(), item);
            }
            EventBody::ItemCompleted(ItemEvent { item }) => drop(self.items.remove(&item.item_id)),
            EventBody::PermissionRequested(request) => {
                self.permissions.insert(request.permission_id.clone(), request);
            }
            EventBody::PermissionResolved(request) => drop(self.permissions.remove(&request.permission_id)),
            EventBody::GrantCreated(grant) => self.grants.push(grant),
            EventBody::PolicyNarrowed(change) => self.policy_changes.push(SessionPolicyChange::Narrow(change)),
            EventBody::PolicyWidened(change) => self.policy_changes.push(SessionPolicyChange::Widen(change)),
            EventBody::GrantRevoked(revoked) => self.grants.retain(|grant| grant.grant_id != revoked.grant_id),
            EventBody::QuestionRequested(request) => drop(self.questions.insert(request.question_id.clone(), request)),
            EventBody::QuestionResolved(request) => drop(self.questions.remove(&request.question_id)),
            EventBody::AnthropicRequest(call) | EventBody::OpenaiRequest(call) | EventBody::GeminiRequest(call) => {
                self.bodies.extend(stored_digest(&call.body));
            }
            EventBody::AnthropicResponse(call) | EventBody::OpenaiResponse(call) | EventBody::GeminiResponse(call) => {
                self.bodies.extend(stored_digest(&call.body));
            }
            _ => {}
        }
    }

    fn turn_started(&mut self, turn: Turn, sequence: u64) {
        let Some(id) = turn.turn_id else { return };
        let was_queued = self.queued.iter().any(|queued| queued.turn_id == id);
        self.queued.retain(|queued| queued.turn_id != id);
        let client_message_id = TurnMetadata::read(turn.metadata.as_ref()).client_message_id.filter(|_| !was_queued);
        self.starting_message = client_message_id.map(|name| (name, accepted(&id, sequence, false)));
        self.turn = Some(id);
    }
}

fn stored_digest(body: &BodyRef) -> Option<Digest> {
    match body {
        BodyRef::Stored { sha256, .. } => sha256.parse().ok(),
        BodyRef::Inline { .. } => None,
    }
}

fn accepted(turn: &TurnId, sequence: u64, queued: bool) -> AcceptedMessage {
    AcceptedMessage { turn_id: turn.clone(), sequence: sequence.saturating_sub(1), queued }
}

#[cfg(test)]
mod tests {
    use protocol::{PermissionStatus, TurnPhase};
    use store::MemoryJournal;

    use super::*;

    fn turn(phase: TurnPhase, id: &str) -> Turn {
        Turn { phase, turn_id: Some(TurnId::new(id).unwrap()), outcome: None, metadata: None }
    }

    fn permission(id: &str) -> Permission {
        let (action, status) = ("run_command".to_owned(), PermissionStatus::Requested);
        Permission { permission_id: PermissionId::new(id).unwrap(), action, status, metadata: None }
    }

    /// Returns the types of the events that close a journal with `bodies`.
    fn check(bodies: Vec<EventBody>) -> Vec<String> {
        let journal = MemoryJournal::new(protocol::SessionId::new("s").unwrap(), Arc::new(store::SystemClock));
        let before = bodies.len() as u64;
        for body in bodies {
            journal.append(EventDraft::daemon(body)).unwrap();
        }
        OpenState::read(&journal).unwrap().close(&journal, "host_died", 0).unwrap();
        let state = OpenState::read(&journal).unwrap();
        assert!(state.open_ids().is_empty() && state.items.is_empty(), "something stayed open");
        let written = journal.after(before, usize::MAX).unwrap();
        written.iter().map(|event| event.draft.body.kind().to_owned()).collect()
    }

    #[test]
    fn idle_session_only_records_the_recovery() {
        let started = EventBody::SessionStarted(SessionStarted::default());
        let turns = [turn(TurnPhase::Started, "trn_1"), turn(TurnPhase::Ended, "trn_1")];
        let [first, last] = turns;
        assert_eq!(
            check(vec![started, EventBody::TurnStarted(first), EventBody::TurnEnded(last)]),
            ["session.recovered"]
        );
    }

    #[test]
    fn open_requests_are_closed_before_their_turn() {
        let request = vec![
            EventBody::TurnStarted(turn(TurnPhase::Started, "trn_1")),
            EventBody::PermissionRequested(permission("per_1")),
            EventBody::PermissionRequested(permission("per_2")),
            EventBody::PermissionResolved(permission("per_1")),
        ];
        assert_eq!(check(request), ["permission.resolved", "turn.ended", "session.recovered"]);
    }

    #[test]
    fn message_is_queued_until_its_turn_starts() {
        let started = EventBody::TurnStarted(turn(TurnPhase::Started, "trn_2"));
        let state = observed([queued("trn_2", false), queued("trn_3", false), started]);
        assert_eq!(state.queued.iter().map(|queued| queued.turn_id.as_str()).collect::<Vec<_>>(), ["trn_3"]);
        assert_eq!(state.receipts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["m-trn_2", "m-trn_3"]);
    }

    #[test]
    fn removed_message_leaves_the_queue_and_keeps_its_receipt() {
        let turn_id = TurnId::new("trn_2").unwrap();
        let removed = protocol::MessageRemoved { turn_id, client_message_id: None };
        let state = observed([queued("trn_2", false), queued("trn_3", false), EventBody::MessageRemoved(removed)]);
        assert_eq!(state.queued.iter().map(|queued| queued.turn_id.as_str()).collect::<Vec<_>>(), ["trn_3"]);
        assert_eq!(state.receipts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["m-trn_2", "m-trn_3"]);
    }

    #[test]
    fn steering_message_is_first_after_a_restart() {
        let state = observed([queued("trn_2", false), queued("trn_3", false), queued("trn_4", true)]);
        assert_eq!(
            state.queued.iter().map(|queued| queued.turn_id.as_str()).collect::<Vec<_>>(),
            ["trn_4", "trn_2", "trn_3"]
        );
    }

    fn queued(id: &str, steers: bool) -> EventBody {
        let (turn_id, client_message_id) = (TurnId::new(id).unwrap(), Some(format!("m-{id}")));
        let (message, attachments) = (id.to_owned(), Vec::new());
        EventBody::MessageQueued(protocol::MessageQueued { turn_id, message, attachments, client_message_id, steers })
    }

    fn observed(bodies: impl IntoIterator<Item = EventBody>) -> OpenState {
        let mut state = OpenState::default();
        for (body, sequence) in bodies.into_iter().zip(1..) {
            state.observe(event(sequence, body));
        }
        state
    }

    fn event(sequence: u64, body: EventBody) -> Event {
        let session_id = protocol::SessionId::new("s").unwrap();
        Event {
            event_id: format!("evt_{sequence}"),
            sequence,
            time: String::new(),
            session_id,
            draft: EventDraft::daemon(body),
        }
    }
}
