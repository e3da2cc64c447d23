//! Permissions and questions: kept until answered, answered once, never left open.
//!
//! The answer is on record before the agent hears it, and on disk before the client does.

use agents::{Dialogue as _, DialogueOutput};
use jiff::Timestamp;
use protocol::{
    Event, EventBody, EventDraft, Permission, PermissionId, PermissionReply, PermissionStatus, Question, QuestionId,
    QuestionStatus,
};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Actor;
use crate::SessionError;
use crate::pending::{PendingRequest, Request};
use crate::turn::{Effect, Input};

impl Actor {
    /// Records that the agent asks, and keeps it until it is answered; what was granted before, and what the policy
    /// denies, is answered at once.
    pub(super) fn permission_asked(
        &mut self,
        mut asked: Permission,
        mut draft: EventDraft,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        let (phase, effect) = self.phase.step(Input::Asked);
        let denied = self.denied(&asked);
        let grant = self.granted(&asked).filter(|_| effect == Effect::Keep && denied.is_none());
        let grant = grant.map(|grant| grant.grant_id.clone());
        if let Some(rule) = &denied {
            asked.metadata = Some(with("denied_by", asked.metadata.take(), &rule.location()));
            draft.body = EventBody::PermissionRequested(asked.clone());
        }
        if let Some(grant) = &grant {
            asked.metadata = Some(with("granted_by", asked.metadata.take(), grant.as_str()));
            draft.body = EventBody::PermissionRequested(asked.clone());
        }
        let seat = self.seat.clone();
        let mut shown = seat.hold();
        let event = self.recorder.record(draft)?;
        if grant.is_some() {
            drop(shown);
            return self.resolve_permission(&asked, PermissionReply::Once, Some(Why::of("granted")));
        }
        if denied.is_some() {
            drop(shown);
            return self.resolve_permission(&asked, PermissionReply::Reject, Some(Why::of("policy")));
        }
        self.phase = phase;
        if effect == Effect::Keep {
            self.keep_permission(asked, &event);
            shown.pending = self.pending.told();
            return Ok(Vec::new());
        }
        drop(shown);
        self.resolve_permission(&asked, PermissionReply::Reject, Some(Why::of("no_turn")))
    }

    /// The same for a question; nothing answers one but a person.
    pub(super) fn question_asked(
        &mut self,
        asked: Question,
        draft: EventDraft,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        let seat = self.seat.clone();
        let mut shown = seat.hold();
        let event = self.recorder.record(draft)?;
        let (phase, effect) = self.phase.step(Input::Asked);
        self.phase = phase;
        if effect == Effect::Keep {
            self.keep_question(asked, &event);
            shown.pending = self.pending.told();
            return Ok(Vec::new());
        }
        drop(shown);
        self.resolve_question(&asked, None, Some(Why::of("no_turn")))
    }

    fn keep_permission(&mut self, permission: Permission, event: &Event) {
        let patience = self.host.config.timeouts.permission;
        let told = told(event, patience, Request::Permission(permission.clone()));
        self.pending.ask_permission(permission, told);
    }

    fn keep_question(&mut self, question: Question, event: &Event) {
        let patience = self.host.config.timeouts.question;
        let told = told(event, patience, Request::Question(question.clone()));
        self.pending.ask_question(question, told);
    }

    pub(super) async fn reply_permission(
        &mut self,
        id: &PermissionId,
        reply: PermissionReply,
    ) -> Result<(), SessionError> {
        let asked = self.pending.permission(id).cloned();
        let asked = asked.ok_or_else(|| SessionError::PermissionNotPending(id.clone()))?;
        let outputs = self.resolve_permission(&asked, reply, None)?;
        if reply == PermissionReply::Always {
            self.grant(&asked)?;
        }
        self.heard();
        self.recorder.sync().await?;
        self.play(outputs).await
    }

    pub(super) async fn reply_question(
        &mut self,
        id: &QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), SessionError> {
        let asked = self.pending.question(id).cloned();
        let asked = asked.ok_or_else(|| SessionError::QuestionNotPending(id.clone()))?;
        let (wanted, given) = (asked.asked().len(), answers.as_ref().map(Vec::len));
        if let Some(given) = given.filter(|given| *given != wanted) {
            return Err(SessionError::WrongAnswerCount { id: id.clone(), wanted, given });
        }
        let outputs = self.resolve_question(&asked, answers, None)?;
        self.heard();
        self.recorder.sync().await?;
        self.play(outputs).await
    }

    /// Refuses whatever has waited for too long.
    pub(super) async fn expire(&mut self, now: Instant) -> Result<(), SessionError> {
        let (permissions, questions) = self.pending.overdue(now);
        if permissions.is_empty() && questions.is_empty() {
            return Ok(());
        }
        let outputs = self.refuse(permissions, questions, Why::expired("deadline"))?;
        self.heard();
        self.recorder.sync().await?;
        self.play(outputs).await
    }

    /// Refuses everything; what the agent must be told comes back.
    pub(super) fn refuse_pending(&mut self, reason: &str) -> Result<Vec<DialogueOutput>, SessionError> {
        let (permissions, questions) = self.pending.all();
        self.refuse(permissions, questions, Why { reason, cause: Some("turn_ended") })
    }

    /// Resolves everything on record alone: the turn is over, and with it what the agent asked.
    pub(super) fn void_pending(&mut self, reason: &str) -> Result<(), SessionError> {
        self.refuse_pending(reason).map(drop)
    }

    fn refuse(
        &mut self,
        permissions: Vec<Permission>,
        questions: Vec<Question>,
        why: Why<'_>,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        let mut outputs = Vec::new();
        for permission in permissions {
            outputs.extend(self.resolve_permission(&permission, PermissionReply::Reject, Some(why))?);
        }
        for question in questions {
            outputs.extend(self.resolve_question(&question, None, Some(why))?);
        }
        Ok(outputs)
    }

    /// Records the answer and takes the permission out; what the agent must be told comes back.
    pub(super) fn resolve_permission(
        &mut self,
        asked: &Permission,
        reply: PermissionReply,
        why: Option<Why<'_>>,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        self.recorder.daemon(EventBody::PermissionResolved(resolved_permission(asked, reply, why)))?;
        if self.pending.remove_permission(&asked.permission_id) {
            self.phase = self.phase.step(Input::Answered).0;
        }
        // What holds for longer is kept by us: an agent could neither tell what it covers nor take it back.
        let told = if reply == PermissionReply::Always { PermissionReply::Once } else { reply };
        Ok(self.live.as_mut().map(|live| live.dialogue.permission(&asked.permission_id, told)).unwrap_or_default())
    }

    /// Records the answer and takes the question out; what the agent must be told comes back.
    pub(super) fn resolve_question(
        &mut self,
        asked: &Question,
        answers: Option<Vec<Vec<String>>>,
        why: Option<Why<'_>>,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        let resolved = resolved_question(asked, answers, why);
        self.recorder.record(EventDraft::daemon(EventBody::QuestionResolved(resolved.clone())))?;
        if self.pending.remove_question(&asked.question_id) {
            self.phase = self.phase.step(Input::Answered).0;
        }
        let answers = resolved.answers.as_deref();
        Ok(self.live.as_mut().map(|live| live.dialogue.question(&asked.question_id, answers)).unwrap_or_default())
    }
}

/// Why something was resolved that no person answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Why<'a> {
    reason: &'a str,
    /// What happened that nobody answered.
    cause: Option<&'a str>,
}

impl<'a> Why<'a> {
    fn of(reason: &'a str) -> Self {
        Self { reason, cause: None }
    }

    /// Nobody will answer any more, because of `cause`.
    pub(crate) fn expired(cause: &'a str) -> Self {
        Self { reason: "expired", cause: Some(cause) }
    }
}

/// `asked` as it stands in `permission.resolved`.
pub(crate) fn resolved_permission(asked: &Permission, reply: PermissionReply, why: Option<Why<'_>>) -> Permission {
    let status = PermissionStatus::from(reply);
    Permission { status, metadata: with_why(asked.metadata.clone(), why), ..asked.clone() }
}

/// `asked` as it stands in `question.resolved`; no answers means that it was rejected.
pub(crate) fn resolved_question(asked: &Question, answers: Option<Vec<Vec<String>>>, why: Option<Why<'_>>) -> Question {
    let status = if answers.is_some() { QuestionStatus::Answered } else { QuestionStatus::Rejected };
    let response = answers.as_ref().and_then(|answers| answers.first()?.first().cloned());
    Question { status, response, answers, metadata: with_why(asked.metadata.clone(), why), ..asked.clone() }
}

fn with_why(metadata: Option<Value>, why: Option<Why<'_>>) -> Option<Value> {
    let Some(Why { reason, cause }) = why else { return metadata };
    let metadata = with("reason", metadata, reason);
    Some(match cause {
        Some(cause) => with("cause", Some(metadata), cause),
        None => metadata,
    })
}

fn with(name: &str, metadata: Option<Value>, text: &str) -> Value {
    let mut map = match metadata {
        Some(Value::Object(map)) => map,
        Some(other) => Map::from_iter([("asked".to_owned(), other)]),
        None => Map::new(),
    };
    map.insert(name.to_owned(), Value::String(text.to_owned()));
    Value::Object(map)
}

fn told(event: &Event, patience: std::time::Duration, request: Request) -> PendingRequest {
    let asked_at: Option<Timestamp> = event.time.parse().ok();
    PendingRequest {
        session_id: event.session_id.clone(),
        turn_id: event.draft.turn_id.clone(),
        sequence: event.sequence,
        asked_at: event.time.clone(),
        patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
        deadline: asked_at.and_then(|time| time.checked_add(patience).ok()).map(|time| time.to_string()),
        request,
    }
}
