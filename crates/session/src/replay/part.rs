//! The person's part in a recorded session: what was said, allowed, answered and stopped, turn by turn.

use std::collections::VecDeque;

use protocol::{
    Attachment, ContentPart, Event, EventBody, Item, ItemRole, Permission, PermissionId, PermissionReply,
    PermissionStatus, Question, QuestionId, Turn, TurnId, TurnOutcome,
};
use serde_json::Value;

use crate::UserMessage;
use crate::plan::Metadata;

/// What a person did in one turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    pub(super) message: UserMessage,
    permissions: VecDeque<(Permission, PermissionReply)>,
    questions: VecDeque<(Question, Option<Vec<Vec<String>>>)>,
    /// How far the turn had come when it was stopped; none: it was not.
    stopped_at: Option<Progress>,
    progress: Progress,
}

/// How far a turn has come, by what it has asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    calls: usize,
    items: usize,
    asked: usize,
}

/// What the person does next.
#[derive(Debug, PartialEq)]
pub(super) enum Act {
    /// Nothing.
    Listen,
    /// Answers a permission.
    Permit(PermissionId, PermissionReply),
    /// Answers a question, or refuses to.
    Answer(QuestionId, Option<Vec<Vec<String>>>),
    /// Stops the turn.
    Interrupt,
    /// Goes on to the next turn.
    Next,
}

/// What `session.started` says of a session.
pub(super) fn started(events: &[Event]) -> Option<Metadata> {
    events.iter().find_map(|event| match &event.draft.body {
        EventBody::SessionStarted(started) => {
            Some(serde_json::from_value(started.metadata.clone().unwrap_or_default()).unwrap_or_default())
        }
        _ => None,
    })
}

/// The parts of all turns, in order.
pub(super) fn parts(events: &[Event]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for event in events {
        match &event.draft.body {
            EventBody::TurnStarted(turn) => parts.push(Part::of(turn)),
            body => {
                if let Some(part) = parts.last_mut() {
                    part.observe(body, event.draft.turn_id.as_ref());
                }
            }
        }
    }
    parts
}

impl Part {
    /// The part in a turn that begins. Its message keeps the name its client gave it: that is on record too.
    fn of(turn: &Turn) -> Self {
        let name = turn.metadata.as_ref().and_then(|metadata| metadata["client_message_id"].as_str());
        let message = UserMessage { client_message_id: name.map(str::to_owned), ..UserMessage::default() };
        Self { message, ..Self::default() }
    }

    fn observe(&mut self, body: &EventBody, turn: Option<&TurnId>) {
        self.progress.observe(body);
        match body {
            EventBody::ItemCompleted(completed) if is_prompt(&completed.item, turn) => {
                let client_message_id = self.message.client_message_id.take();
                self.message = UserMessage { client_message_id, ..message(&completed.item) };
            }
            EventBody::PermissionResolved(resolved) if !was_dropped(resolved.metadata.as_ref()) => {
                let reply = match resolved.status {
                    PermissionStatus::Accept => PermissionReply::Once,
                    PermissionStatus::AcceptForSession => PermissionReply::Always,
                    PermissionStatus::Reject | PermissionStatus::Requested => PermissionReply::Reject,
                };
                self.permissions.push_back((resolved.clone(), reply));
            }
            EventBody::QuestionResolved(resolved) if !was_dropped(resolved.metadata.as_ref()) => {
                self.questions.push_back((resolved.clone(), resolved.answers.clone()));
            }
            EventBody::TurnEnded(ended) => {
                let stopped = matches!(ended.outcome, Some(TurnOutcome::Interrupted | TurnOutcome::TimedOut));
                self.stopped_at = stopped.then_some(self.progress);
            }
            _ => {}
        }
    }

    /// Plays the part from its beginning.
    pub(super) fn cues(&self) -> Cues {
        Cues { left: self.clone(), progress: Progress::default(), stopped: false }
    }
}

/// A part while it is played.
pub(super) struct Cues {
    left: Part,
    progress: Progress,
    stopped: bool,
}

impl Cues {
    /// What the person does after `body`.
    pub(super) fn after(&mut self, body: &EventBody) -> Act {
        self.progress.observe(body);
        match body {
            EventBody::TurnEnded(_) | EventBody::SessionEnded(_) => Act::Next,
            _ if self.is_time_to_stop() => {
                self.stopped = true;
                Act::Interrupt
            }
            EventBody::PermissionRequested(asked) if is_answered(asked) => Act::Listen,
            EventBody::PermissionRequested(asked) => {
                match take(&mut self.left.permissions, |it| it.action == asked.action) {
                    Some(reply) => Act::Permit(asked.permission_id.clone(), reply),
                    None if self.left.stopped_at.is_some() => Act::Listen,
                    // Nobody was asked this then, so nobody allowed it.
                    None => Act::Permit(asked.permission_id.clone(), PermissionReply::Reject),
                }
            }
            EventBody::QuestionRequested(asked) => match take(&mut self.left.questions, |it| it.prompt == asked.prompt)
            {
                Some(answers) => Act::Answer(asked.question_id.clone(), answers),
                None if self.left.stopped_at.is_some() => Act::Listen,
                None => Act::Answer(asked.question_id.clone(), None),
            },
            _ => Act::Listen,
        }
    }

    fn is_time_to_stop(&self) -> bool {
        let reached = |at: Progress| {
            self.progress.calls >= at.calls && self.progress.items >= at.items && self.progress.asked >= at.asked
        };
        !self.stopped && self.left.stopped_at.is_some_and(reached)
    }
}

impl Progress {
    fn observe(&mut self, body: &EventBody) {
        match body {
            EventBody::AnthropicRequest(_) | EventBody::OpenaiRequest(_) | EventBody::GeminiRequest(_) => {
                self.calls += 1;
            }
            EventBody::ItemStarted(_) => self.items += 1,
            EventBody::PermissionRequested(_) | EventBody::QuestionRequested(_) => self.asked += 1,
            _ => {}
        }
    }
}

/// Takes the first that fits, else the first.
fn take<Asked, Reply>(recorded: &mut VecDeque<(Asked, Reply)>, fits: impl Fn(&Asked) -> bool) -> Option<Reply> {
    let index = recorded.iter().position(|(asked, _)| fits(asked)).unwrap_or(0);
    recorded.remove(index).map(|(_, reply)| reply)
}

/// Whether nobody answered, and nobody is to answer: its turn ended, or a grant or the policy spoke. What had waited
/// too long was refused, and is refused again, without the wait.
fn was_dropped(metadata: Option<&Value>) -> bool {
    metadata.and_then(|metadata| metadata["reason"].as_str()).is_some_and(|reason| reason != "expired")
}

/// Whether a grant or the policy has answered what is asked: it waits for nobody.
fn is_answered(asked: &Permission) -> bool {
    let by = |name| asked.metadata.as_ref().is_some_and(|metadata| metadata[name].is_string());
    by("granted_by") || by("denied_by")
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
    fn what_a_grant_or_the_policy_answers_is_left_to_them() {
        let asked = |metadata: Value| {
            EventBody::PermissionRequested(Permission {
                permission_id: "per_1_1".parse().unwrap(),
                action: "command".into(),
                status: PermissionStatus::Requested,
                metadata: Some(metadata),
            })
        };
        let mut cues = Part::default().cues();
        for by in ["granted_by", "denied_by"] {
            assert_eq!(cues.after(&asked(json!({by: "somebody"}))), Act::Listen, "{by}");
        }
        assert!(matches!(cues.after(&asked(json!({}))), Act::Permit(_, PermissionReply::Reject)));
    }
}
