//! What a journal that broke off left open, and how it is closed.
//!
//! Reading is a fold over events, so whatever was written last, what comes out is the same for a host
//! that was killed, a disk that was full, and a test.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use protocol::{
    Event, EventBody, EventDraft, Grant, Item, ItemEvent, ItemId, ItemStatus, Permission, PermissionId,
    PermissionReply, Question, QuestionId, SessionRecovered, SessionStarted, Turn, TurnId, TurnOutcome, TurnPhase,
};
use serde_json::{Value, json};
use store::{Journal, JournalError};

use crate::AcceptedMessage;
use crate::actor::{Why, resolved_permission, resolved_question};
use crate::change::Change;
use crate::queue::QueuedMessage;
use crate::receipts::{Content, Receipt};

/// So many events are read at a time.
const PAGE: usize = 1000;

/// What a journal left open.
#[derive(Default)]
pub(crate) struct Left {
    /// What the session was started as; none if it never was.
    pub(crate) started: Option<SessionStarted>,
    /// `session.ended` was recorded.
    pub(crate) ended: bool,
    /// Messages that were taken and never started.
    pub(crate) queued: VecDeque<Arc<QueuedMessage>>,
    /// Messages by the name their client gave them, oldest first.
    pub(crate) named: Vec<(String, Receipt)>,
    /// The name of the turn that runs, until its message is read.
    unread: Option<(String, AcceptedMessage)>,
    /// What was allowed for the rest of the session.
    pub(crate) grants: Vec<Grant>,
    /// How what it may reach was changed.
    pub(crate) changes: Vec<Change>,
    turn: Option<TurnId>,
    permissions: BTreeMap<PermissionId, Permission>,
    questions: BTreeMap<QuestionId, Question>,
    items: BTreeMap<ItemId, Item>,
}

impl Left {
    /// Reads a journal to its end.
    pub(crate) fn read(journal: &dyn Journal) -> Result<Self, JournalError> {
        let (mut left, mut seen) = (Self::default(), 0);
        loop {
            let page = journal.after(seen, PAGE)?;
            let Some(last) = page.last() else { return Ok(left) };
            seen = last.sequence;
            for event in page {
                left.observe(event);
            }
        }
    }

    /// Closes what is open and says that it did; `torn_bytes` were cut from the end of the file.
    pub(crate) fn close(&mut self, journal: &dyn Journal, reason: &str, torn_bytes: u64) -> Result<(), JournalError> {
        let interrupted = self.named_open();
        let turn = self.turn.take();
        let append = |body| journal.append(EventDraft::daemon(body).synthetic().in_turn(turn.clone())).map(drop);
        for (_, mut item) in std::mem::take(&mut self.items) {
            item.status = ItemStatus::Failed;
            append(EventBody::ItemCompleted(ItemEvent { item }))?;
        }
        for (_, asked) in std::mem::take(&mut self.permissions) {
            let resolved = resolved_permission(&asked, PermissionReply::Reject, Some(Why::expired(reason)));
            append(EventBody::PermissionResolved(resolved))?;
        }
        for (_, asked) in std::mem::take(&mut self.questions) {
            append(EventBody::QuestionResolved(resolved_question(&asked, None, Some(Why::expired(reason)))))?;
        }
        if turn.is_some() {
            let (outcome, metadata) = (Some(TurnOutcome::Interrupted), Some(json!({"reason": reason})));
            append(EventBody::TurnEnded(Turn { phase: TurnPhase::Ended, turn_id: turn.clone(), outcome, metadata }))?;
        }
        journal
            .append(EventDraft::daemon(EventBody::SessionRecovered(SessionRecovered { interrupted, torn_bytes })))?;
        Ok(())
    }

    fn named_open(&self) -> Vec<String> {
        let turn = self.turn.iter().map(TurnId::to_string);
        let permissions = self.permissions.keys().map(PermissionId::to_string);
        let questions = self.questions.keys().map(QuestionId::to_string);
        turn.chain(permissions).chain(questions).collect()
    }

    fn observe(&mut self, event: Event) {
        let sequence = event.sequence;
        match event.draft.body {
            EventBody::SessionStarted(started) => self.started = Some(started),
            EventBody::SessionEnded(_) => self.ended = true,
            EventBody::MessageQueued(queued) => {
                if let Some(name) = queued.client_message_id.clone() {
                    let content = Content::new(&queued.message, &queued.attachments);
                    let accepted = accepted(&queued.turn_id, sequence, true);
                    self.named.push((name, Receipt { accepted, content }));
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
                if let Some((name, accepted)) = self.unread.take() {
                    self.named.push((name, Receipt { accepted, content: Content::recorded(&item.content) }));
                }
                self.items.insert(item.item_id.clone(), item);
            }
            EventBody::ItemCompleted(ItemEvent { item }) => drop(self.items.remove(&item.item_id)),
            EventBody::PermissionRequested(asked) => {
                self.permissions.insert(asked.permission_id.clone(), asked);
            }
            EventBody::PermissionResolved(asked) => drop(self.permissions.remove(&asked.permission_id)),
            EventBody::GrantCreated(grant) => self.grants.push(grant),
            EventBody::PolicyNarrowed(change) => self.changes.push(Change::Narrow(change)),
            EventBody::PolicyWidened(change) => self.changes.push(Change::Widen(change)),
            EventBody::GrantRevoked(revoked) => self.grants.retain(|grant| grant.grant_id != revoked.grant_id),
            EventBody::QuestionRequested(asked) => drop(self.questions.insert(asked.question_id.clone(), asked)),
            EventBody::QuestionResolved(asked) => drop(self.questions.remove(&asked.question_id)),
            _ => {}
        }
    }

    fn turn_started(&mut self, turn: Turn, sequence: u64) {
        let Some(id) = turn.turn_id else { return };
        let was_queued = self.queued.iter().any(|queued| queued.turn_id == id);
        self.queued.retain(|queued| queued.turn_id != id);
        let named = turn.metadata.as_ref().and_then(|metadata| metadata.get("client_message_id"));
        let named = named.and_then(Value::as_str).filter(|_| !was_queued);
        self.unread = named.map(|name| (name.to_owned(), accepted(&id, sequence, false)));
        self.turn = Some(id);
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

    /// What is written when a journal that holds `bodies` is closed.
    fn check(bodies: Vec<EventBody>) -> Vec<String> {
        let journal = MemoryJournal::new(protocol::SessionId::new("s").unwrap(), Arc::new(store::SystemClock));
        let before = bodies.len() as u64;
        for body in bodies {
            journal.append(EventDraft::daemon(body)).unwrap();
        }
        Left::read(&journal).unwrap().close(&journal, "host_died", 0).unwrap();
        let left = Left::read(&journal).unwrap();
        assert!(left.named_open().is_empty() && left.items.is_empty(), "something stayed open");
        let written = journal.after(before, usize::MAX).unwrap();
        written.iter().map(|event| event.draft.body.kind().to_owned()).collect()
    }

    #[test]
    fn what_is_at_rest_is_only_told() {
        let started = EventBody::SessionStarted(SessionStarted::default());
        let turns = [turn(TurnPhase::Started, "trn_1"), turn(TurnPhase::Ended, "trn_1")];
        let [first, last] = turns;
        assert_eq!(
            check(vec![started, EventBody::TurnStarted(first), EventBody::TurnEnded(last)]),
            ["session.recovered"]
        );
    }

    #[test]
    fn everything_open_is_closed_before_its_turn() {
        let asked = vec![
            EventBody::TurnStarted(turn(TurnPhase::Started, "trn_1")),
            EventBody::PermissionRequested(permission("per_1")),
            EventBody::PermissionRequested(permission("per_2")),
            EventBody::PermissionResolved(permission("per_1")),
        ];
        assert_eq!(check(asked), ["permission.resolved", "turn.ended", "session.recovered"]);
    }

    #[test]
    fn a_message_waits_until_its_turn_starts() {
        let started = EventBody::TurnStarted(turn(TurnPhase::Started, "trn_2"));
        let left = observed([queued("trn_2", false), queued("trn_3", false), started]);
        assert_eq!(left.queued.iter().map(|queued| queued.turn_id.as_str()).collect::<Vec<_>>(), ["trn_3"]);
        assert_eq!(left.named.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["m-trn_2", "m-trn_3"]);
    }

    #[test]
    fn a_message_that_was_removed_waits_no_more_and_keeps_its_name() {
        let turn_id = TurnId::new("trn_2").unwrap();
        let removed = protocol::MessageRemoved { turn_id, client_message_id: None };
        let left = observed([queued("trn_2", false), queued("trn_3", false), EventBody::MessageRemoved(removed)]);
        assert_eq!(left.queued.iter().map(|queued| queued.turn_id.as_str()).collect::<Vec<_>>(), ["trn_3"]);
        assert_eq!(left.named.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["m-trn_2", "m-trn_3"]);
    }

    #[test]
    fn a_message_that_steers_comes_first_also_after_a_restart() {
        let left = observed([queued("trn_2", false), queued("trn_3", false), queued("trn_4", true)]);
        assert_eq!(
            left.queued.iter().map(|queued| queued.turn_id.as_str()).collect::<Vec<_>>(),
            ["trn_4", "trn_2", "trn_3"]
        );
    }

    fn queued(id: &str, steers: bool) -> EventBody {
        let (turn_id, client_message_id) = (TurnId::new(id).unwrap(), Some(format!("m-{id}")));
        let (message, attachments) = (id.to_owned(), Vec::new());
        EventBody::MessageQueued(protocol::MessageQueued { turn_id, message, attachments, client_message_id, steers })
    }

    fn observed(bodies: impl IntoIterator<Item = EventBody>) -> Left {
        let mut left = Left::default();
        for (body, sequence) in bodies.into_iter().zip(1..) {
            left.observe(event(sequence, body));
        }
        left
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
