//! Permissions and questions: kept until answered, answered once, never left open.
//!
//! The answer is on record before the agent hears it, and on disk before the client does.

use agents::{Dialogue as _, Output};
use protocol::{
    Draft, Event, EventBody, Permission, PermissionId, PermissionReply, PermissionStatus, Question, QuestionId,
    QuestionStatus,
};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Actor;
use crate::SessionError;
use crate::pending::{PendingRequest, Request};
use crate::turn::Input;

impl Actor {
    pub(super) fn keep_permission(&mut self, permission: Permission, event: &Event) {
        let patience = self.host.timing.permission;
        let told = told(event, patience, Request::Permission(permission.clone()));
        self.pending.ask_permission(permission, told);
    }

    pub(super) fn keep_question(&mut self, question: Question, event: &Event) {
        let patience = self.host.timing.question;
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
        let outputs = self.refuse(permissions, questions, "expired")?;
        self.heard();
        self.recorder.sync().await?;
        self.play(outputs).await
    }

    /// Refuses everything; what the agent must be told comes back.
    pub(super) fn refuse_pending(&mut self, reason: &str) -> Result<Vec<Output>, SessionError> {
        let (permissions, questions) = self.pending.all();
        self.refuse(permissions, questions, reason)
    }

    /// Resolves everything on record alone: the turn is over, and with it what the agent asked.
    pub(super) fn void_pending(&mut self, reason: &str) -> Result<(), SessionError> {
        self.refuse_pending(reason).map(drop)
    }

    fn refuse(
        &mut self,
        permissions: Vec<Permission>,
        questions: Vec<Question>,
        reason: &str,
    ) -> Result<Vec<Output>, SessionError> {
        let mut outputs = Vec::new();
        for permission in permissions {
            outputs.extend(self.resolve_permission(&permission, PermissionReply::Reject, Some(reason))?);
        }
        for question in questions {
            outputs.extend(self.resolve_question(&question, None, Some(reason))?);
        }
        Ok(outputs)
    }

    /// Records the answer and takes the permission out; what the agent must be told comes back.
    pub(super) fn resolve_permission(
        &mut self,
        asked: &Permission,
        reply: PermissionReply,
        reason: Option<&str>,
    ) -> Result<Vec<Output>, SessionError> {
        self.recorder.daemon(EventBody::PermissionResolved(resolved_permission(asked, reply, reason)))?;
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
        reason: Option<&str>,
    ) -> Result<Vec<Output>, SessionError> {
        let resolved = resolved_question(asked, answers, reason);
        self.recorder.record(Draft::daemon(EventBody::QuestionResolved(resolved.clone())))?;
        if self.pending.remove_question(&asked.question_id) {
            self.phase = self.phase.step(Input::Answered).0;
        }
        let answers = resolved.answers.as_deref();
        Ok(self.live.as_mut().map(|live| live.dialogue.question(&asked.question_id, answers)).unwrap_or_default())
    }
}

/// `asked` as it stands in `permission.resolved`.
pub(crate) fn resolved_permission(asked: &Permission, reply: PermissionReply, reason: Option<&str>) -> Permission {
    let status = PermissionStatus::from(reply);
    Permission { status, metadata: with_reason(asked.metadata.clone(), reason), ..asked.clone() }
}

/// `asked` as it stands in `question.resolved`; no answers means that it was rejected.
pub(crate) fn resolved_question(asked: &Question, answers: Option<Vec<Vec<String>>>, reason: Option<&str>) -> Question {
    let status = if answers.is_some() { QuestionStatus::Answered } else { QuestionStatus::Rejected };
    let response = answers.as_ref().and_then(|answers| answers.first()?.first().cloned());
    Question { status, response, answers, metadata: with_reason(asked.metadata.clone(), reason), ..asked.clone() }
}

fn with_reason(metadata: Option<Value>, reason: Option<&str>) -> Option<Value> {
    let Some(reason) = reason else { return metadata };
    let mut map = match metadata {
        Some(Value::Object(map)) => map,
        Some(other) => Map::from_iter([("asked".to_owned(), other)]),
        None => Map::new(),
    };
    map.insert("reason".to_owned(), Value::String(reason.to_owned()));
    Some(Value::Object(map))
}

fn told(event: &Event, patience: std::time::Duration, request: Request) -> PendingRequest {
    PendingRequest {
        session_id: event.session_id.clone(),
        turn_id: event.draft.turn_id.clone(),
        sequence: event.sequence,
        asked_at: event.time.clone(),
        patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
        request,
    }
}
