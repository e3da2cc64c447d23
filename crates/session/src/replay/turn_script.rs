//! The user's actions in a recorded session, turn by turn: prompts, answers and interrupts.

use std::collections::VecDeque;

use protocol::{
    Attachment, ContentPart, Event, EventBody, Item, ItemRole, Permission, PermissionId, PermissionReply,
    PermissionStatus, Question, QuestionId, RequestMetadata, Turn, TurnId, TurnOutcome,
};
use serde_json::Value;

use crate::UserMessage;
use crate::lifecycle::{StartMetadata, TurnMetadata};

/// The user's actions in one turn.
#[derive(Debug, Clone, Default)]
pub(super) struct TurnScript {
    pub(super) message: UserMessage,
    permissions: VecDeque<(Permission, PermissionReply)>,
    questions: VecDeque<(Question, Option<Vec<Vec<String>>>)>,
    /// The progress of the turn when it was interrupted; `None` if it was not.
    interrupted_at: Option<TurnProgress>,
    progress: TurnProgress,
}

/// The progress of a turn, in numbers of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TurnProgress {
    calls: usize,
    items: usize,
    requests: usize,
}

/// The next action of the user.
#[derive(Debug, PartialEq)]
pub(super) enum ReplayStep {
    /// Do nothing until the next event.
    Wait,
    /// Answer a permission request.
    Permit(PermissionId, PermissionReply),
    /// Answer a question, or reject it.
    Answer(QuestionId, Option<Vec<Vec<String>>>),
    /// Interrupt the turn.
    Interrupt,
    /// The turn has ended.
    EndTurn,
}

/// Returns the metadata of `session.started`; `None` when the session never started.
pub(super) fn start_metadata(events: &[Event]) -> Option<StartMetadata> {
    events.iter().find_map(|event| match &event.draft.body {
        EventBody::SessionStarted(started) => {
            Some(serde_json::from_value(started.metadata.clone().unwrap_or_default()).unwrap_or_default())
        }
        _ => None,
    })
}

/// Returns the scripts of all turns, in order.
pub(super) fn turn_scripts(events: &[Event]) -> Vec<TurnScript> {
    let mut turns: Vec<TurnScript> = Vec::new();
    for event in events {
        match &event.draft.body {
            EventBody::TurnStarted(turn) => turns.push(TurnScript::of(turn)),
            body => {
                if let Some(turn) = turns.last_mut() {
                    turn.observe(body, event.draft.turn_id.as_ref());
                }
            }
        }
    }
    turns
}

impl TurnScript {
    /// Returns the script of a turn that starts. Its message keeps the client's id, which is recorded too.
    fn of(turn: &Turn) -> Self {
        let TurnMetadata { client_message_id, .. } = TurnMetadata::read(turn.metadata.as_ref());
        let message = UserMessage { client_message_id, ..UserMessage::default() };
        Self { message, ..Self::default() }
    }

    fn observe(&mut self, body: &EventBody, turn: Option<&TurnId>) {
        self.progress.observe(body);
        match body {
            EventBody::ItemCompleted(completed) if is_prompt(&completed.item, turn) => {
                let client_message_id = self.message.client_message_id.take();
                self.message = UserMessage { client_message_id, ..message(&completed.item) };
            }
            EventBody::PermissionResolved(resolved) if was_answered(resolved.metadata.as_ref()) => {
                let reply = match resolved.status {
                    PermissionStatus::Accept => PermissionReply::Once,
                    PermissionStatus::AcceptForSession => PermissionReply::Always,
                    PermissionStatus::Reject | PermissionStatus::Requested => PermissionReply::Reject,
                };
                self.permissions.push_back((resolved.clone(), reply));
            }
            EventBody::QuestionResolved(resolved) if was_answered(resolved.metadata.as_ref()) => {
                self.questions.push_back((resolved.clone(), resolved.answers.clone()));
            }
            EventBody::TurnEnded(ended) => {
                let interrupted = matches!(ended.outcome, Some(TurnOutcome::Interrupted | TurnOutcome::TimedOut));
                self.interrupted_at = interrupted.then_some(self.progress);
            }
            _ => {}
        }
    }

    /// Returns a replayer of this script.
    pub(super) fn replayer(&self) -> TurnReplayer {
        TurnReplayer { remaining: self.clone(), progress: TurnProgress::default(), interrupted: false }
    }
}

/// Replays the user's actions of one turn.
pub(super) struct TurnReplayer {
    remaining: TurnScript,
    progress: TurnProgress,
    interrupted: bool,
}

impl TurnReplayer {
    /// Returns the user's action after the event `body`.
    pub(super) fn after(&mut self, body: &EventBody) -> ReplayStep {
        self.progress.observe(body);
        match body {
            EventBody::TurnEnded(_) | EventBody::SessionEnded(_) => ReplayStep::EndTurn,
            _ if self.is_time_to_interrupt() => {
                self.interrupted = true;
                ReplayStep::Interrupt
            }
            EventBody::PermissionRequested(request)
                if RequestMetadata::read(request.metadata.as_ref()).is_answered() =>
            {
                ReplayStep::Wait
            }
            EventBody::PermissionRequested(request) => {
                match take_reply(&mut self.remaining.permissions, |recorded| recorded.action == request.action) {
                    Some(reply) => ReplayStep::Permit(request.permission_id.clone(), reply),
                    None if self.remaining.interrupted_at.is_some() => ReplayStep::Wait,
                    // The recorded session did not ask this, so nobody allowed it.
                    None => ReplayStep::Permit(request.permission_id.clone(), PermissionReply::Reject),
                }
            }
            EventBody::QuestionRequested(request) => {
                match take_reply(&mut self.remaining.questions, |recorded| recorded.prompt == request.prompt) {
                    Some(answers) => ReplayStep::Answer(request.question_id.clone(), answers),
                    None if self.remaining.interrupted_at.is_some() => ReplayStep::Wait,
                    None => ReplayStep::Answer(request.question_id.clone(), None),
                }
            }
            _ => ReplayStep::Wait,
        }
    }

    fn is_time_to_interrupt(&self) -> bool {
        let reached = |at: TurnProgress| {
            self.progress.calls >= at.calls && self.progress.items >= at.items && self.progress.requests >= at.requests
        };
        !self.interrupted && self.remaining.interrupted_at.is_some_and(reached)
    }
}

impl TurnProgress {
    fn observe(&mut self, body: &EventBody) {
        match body {
            EventBody::AnthropicRequest(_) | EventBody::OpenaiRequest(_) | EventBody::GeminiRequest(_) => {
                self.calls += 1;
            }
            EventBody::ItemStarted(_) => self.items += 1,
            EventBody::PermissionRequested(_) | EventBody::QuestionRequested(_) => self.requests += 1,
            _ => {}
        }
    }
}

/// Removes the first reply whose request fits, else the first reply.
fn take_reply<Asked, Reply>(recorded: &mut VecDeque<(Asked, Reply)>, fits: impl Fn(&Asked) -> bool) -> Option<Reply> {
    let index = recorded.iter().position(|(request, _)| fits(request)).unwrap_or(0);
    recorded.remove(index).map(|(_, reply)| reply)
}

/// Returns whether the user answered a request. An expired request counts as refused, and the replay refuses it without
/// waiting.
fn was_answered(metadata: Option<&Value>) -> bool {
    !RequestMetadata::read(metadata).was_resolved_by_session()
}

fn is_prompt(item: &Item, turn: Option<&TurnId>) -> bool {
    item.role == Some(ItemRole::User) && turn.is_some_and(|turn| item.item_id.as_str() == format!("itm_{turn}"))
}

fn message(item: &Item) -> UserMessage {
    let mut message = UserMessage::default();
    for part in &item.content {
        let (path, mime) = match part {
            ContentPart::Text { text } => {
                message.text.clone_from(text);
                continue;
            }
            ContentPart::Image { path, mime } => (path, mime.clone()),
            ContentPart::FileRef { path, .. } => (path, None),
            _ => continue,
        };
        message.attachments.push(Attachment { path: path.clone(), mime, filename: None });
    }
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_answered_by_grant_or_policy_are_skipped() {
        let request = |metadata: Value| {
            EventBody::PermissionRequested(Permission {
                permission_id: "per_1_1".parse().unwrap(),
                action: "command".into(),
                status: PermissionStatus::Requested,
                metadata: Some(metadata),
            })
        };
        let mut replayer = TurnScript::default().replayer();
        for by in ["granted_by", "denied_by"] {
            assert_eq!(replayer.after(&request(json!({by: "somebody"}))), ReplayStep::Wait, "{by}");
        }
        assert!(matches!(replayer.after(&request(json!({}))), ReplayStep::Permit(_, PermissionReply::Reject)));
    }
}
