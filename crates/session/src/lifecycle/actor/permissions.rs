//! Permission requests and questions of the agent: each is kept until it is answered, and answered exactly once.
//!
//! An answer is recorded before the agent gets it, and synced to disk before the client gets its reply.

use std::time::Duration;

use agents::{Dialogue as _, DialogueOutput};
use base::{HostLimit, LimitHits};
use jiff::Timestamp;
use protocol::{
    Event, EventBody, EventDraft, Permission, PermissionId, PermissionReply, PermissionStatus, Question, QuestionId,
    QuestionStatus, RequestMetadata, Resolution,
};
use tokio::time::Instant;

use super::Actor;
use crate::SessionError;
use crate::lifecycle::{GivenAnswer, PendingRequest, Request, TurnEffect, TurnInput};

impl Actor {
    /// Records a permission request. Requests that a grant allows or the policy denies are answered at once; others
    /// wait for a person.
    pub(super) fn on_permission_request(
        &mut self,
        mut permission: Permission,
        mut draft: EventDraft,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        let (state, effect) = self.turn.step(TurnInput::Asked);
        let denied_by = self.denying_rule(&permission).map(|rule| rule.location());
        let grant = self.matching_grant(&permission).filter(|_| effect == TurnEffect::Keep && denied_by.is_none());
        let granted_by = grant.map(|grant| grant.grant_id.to_string());
        let (is_granted, is_denied) = (granted_by.is_some(), denied_by.is_some());
        let too_many = effect == TurnEffect::Keep && !is_granted && !is_denied && self.has_too_many_requests();
        let asked_by = self.asking_rule(&permission).map(|rule| rule.to_string());
        if is_granted || is_denied || asked_by.is_some() {
            let mut metadata = RequestMetadata::read(permission.metadata.as_ref());
            metadata.granted_by = granted_by.or(metadata.granted_by);
            metadata.denied_by = denied_by.or(metadata.denied_by);
            metadata.asked_by = asked_by;
            permission.metadata = Some(metadata.into_value());
            draft.body = EventBody::PermissionRequested(permission.clone());
        }
        let handle = self.handle.clone();
        let mut snapshot = handle.lock_snapshot();
        let event = self.recorder.record(draft)?;
        if is_granted {
            drop(snapshot);
            return self.resolve_permission(&permission, PermissionReply::Once, Some(Resolution::new("granted")));
        }
        if is_denied {
            drop(snapshot);
            return self.resolve_permission(&permission, PermissionReply::Reject, Some(Resolution::new("policy")));
        }
        if too_many {
            drop(snapshot);
            let reason = Resolution::new("too_many_requests");
            return self.resolve_permission(&permission, PermissionReply::Reject, Some(reason));
        }
        self.turn = state;
        if effect == TurnEffect::Keep {
            let timeout = self.host.config.timeouts.permission;
            let request = pending_request(&event, timeout, Request::Permission(permission.clone()));
            self.pending.insert_permission(permission, request);
            snapshot.pending = self.pending.requests();
            return Ok(Vec::new());
        }
        drop(snapshot);
        self.resolve_permission(&permission, PermissionReply::Reject, Some(Resolution::new("no_turn")))
    }

    /// Records a question. Only a person can answer a question.
    pub(super) fn on_question_request(
        &mut self,
        question: Question,
        draft: EventDraft,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        let handle = self.handle.clone();
        let mut snapshot = handle.lock_snapshot();
        let event = self.recorder.record(draft)?;
        let (state, effect) = self.turn.step(TurnInput::Asked);
        if effect == TurnEffect::Keep && self.has_too_many_requests() {
            drop(snapshot);
            return self.resolve_question(&question, None, Some(Resolution::new("too_many_requests")));
        }
        self.turn = state;
        if effect == TurnEffect::Keep {
            let timeout = self.host.config.timeouts.question;
            let request = pending_request(&event, timeout, Request::Question(question.clone()));
            self.pending.insert_question(question, request);
            snapshot.pending = self.pending.requests();
            return Ok(Vec::new());
        }
        drop(snapshot);
        self.resolve_question(&question, None, Some(Resolution::new("no_turn")))
    }

    /// Returns whether so many requests wait for an answer that the next one is rejected.
    fn has_too_many_requests(&self) -> bool {
        let too_many = self.pending.len() >= self.host.config.budget.pending_requests;
        if too_many {
            LimitHits::count(HostLimit::PendingRequests);
        }
        too_many
    }

    /// Answers a pending permission request; fails when it is not pending.
    pub(super) async fn reply_permission(
        &mut self,
        id: &PermissionId,
        given: GivenAnswer<PermissionReply>,
    ) -> Result<(), SessionError> {
        let permission = self.pending.permission(id).cloned();
        let mut permission = permission.ok_or_else(|| SessionError::PermissionNotPending(id.clone()))?;
        let GivenAnswer { answer: reply, by } = given;
        permission.metadata = RequestMetadata::answered(permission.metadata.as_ref(), by.as_deref());
        let outputs = self.resolve_permission(&permission, reply, None)?;
        if reply == PermissionReply::Always {
            self.add_grant(&permission)?;
        }
        self.reset_silence();
        self.recorder.sync().await?;
        self.apply_outputs(outputs).await
    }

    /// Answers a pending question, or rejects it without answers. Fails when the question is not pending or
    /// the number of answers is wrong.
    pub(super) async fn reply_question(
        &mut self,
        id: &QuestionId,
        given: GivenAnswer<Option<Vec<Vec<String>>>>,
    ) -> Result<(), SessionError> {
        let question = self.pending.question(id).cloned();
        let mut question = question.ok_or_else(|| SessionError::QuestionNotPending(id.clone()))?;
        let GivenAnswer { answer: answers, by } = given;
        question.metadata = RequestMetadata::answered(question.metadata.as_ref(), by.as_deref());
        let (wanted, count) = (question.prompts().len(), answers.as_ref().map(Vec::len));
        if let Some(given) = count.filter(|given| *given != wanted) {
            return Err(SessionError::WrongAnswerCount { id: id.clone(), wanted, given });
        }
        let outputs = self.resolve_question(&question, answers, None)?;
        self.reset_silence();
        self.recorder.sync().await?;
        self.apply_outputs(outputs).await
    }

    /// Refuses all requests whose deadline has passed.
    pub(super) async fn expire(&mut self, now: Instant) -> Result<(), SessionError> {
        let (permissions, questions) = self.pending.overdue(now);
        if permissions.is_empty() && questions.is_empty() {
            return Ok(());
        }
        let outputs = self.refuse(permissions, questions, Resolution::expired("deadline"))?;
        self.reset_silence();
        self.recorder.sync().await?;
        self.apply_outputs(outputs).await
    }

    /// Refuses all pending requests. Returns the outputs for the agent.
    pub(super) fn refuse_pending(&mut self, reason: &str) -> Result<Vec<DialogueOutput>, SessionError> {
        let (permissions, questions) = self.pending.all();
        self.refuse(permissions, questions, Resolution { reason, cause: Some("turn_ended") })
    }

    /// Refuses all pending requests in the journal only: the turn is over, so the agent is not told.
    pub(super) fn resolve_pending_on_record(&mut self, reason: &str) -> Result<(), SessionError> {
        self.refuse_pending(reason).map(drop)
    }

    fn refuse(
        &mut self,
        permissions: Vec<Permission>,
        questions: Vec<Question>,
        resolution: Resolution<'_>,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        let mut outputs = Vec::new();
        for permission in permissions {
            outputs.extend(self.resolve_permission(&permission, PermissionReply::Reject, Some(resolution))?);
        }
        for question in questions {
            outputs.extend(self.resolve_question(&question, None, Some(resolution))?);
        }
        Ok(outputs)
    }

    /// Records the answer and removes the pending request. Returns the outputs for the agent.
    fn resolve_permission(
        &mut self,
        permission: &Permission,
        reply: PermissionReply,
        resolution: Option<Resolution<'_>>,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        let resolved = resolved_permission(permission, reply, resolution);
        self.recorder.daemon(EventBody::PermissionResolved(resolved))?;
        if self.pending.remove_permission(&permission.permission_id) {
            self.turn = self.turn.step(TurnInput::Answered).0;
        }
        // The session keeps lasting grants itself: an agent could neither list nor revoke them.
        let reply = if reply == PermissionReply::Always { PermissionReply::Once } else { reply };
        let id = &permission.permission_id;
        Ok(self.agent.as_mut().map(|agent| agent.dialogue.answer_permission(id, reply)).unwrap_or_default())
    }

    /// Records the answer and removes the pending question. Returns the outputs for the agent.
    fn resolve_question(
        &mut self,
        question: &Question,
        answers: Option<Vec<Vec<String>>>,
        resolution: Option<Resolution<'_>>,
    ) -> Result<Vec<DialogueOutput>, SessionError> {
        let resolved = resolved_question(question, answers, resolution);
        self.recorder.record(EventDraft::daemon(EventBody::QuestionResolved(resolved.clone())))?;
        if self.pending.remove_question(&question.question_id) {
            self.turn = self.turn.step(TurnInput::Answered).0;
        }
        let answers = resolved.answers.as_deref();
        let id = &question.question_id;
        Ok(self.agent.as_mut().map(|agent| agent.dialogue.answer_question(id, answers)).unwrap_or_default())
    }
}

/// Returns the data of `permission.resolved` for `permission`.
pub(crate) fn resolved_permission(
    permission: &Permission,
    reply: PermissionReply,
    resolution: Option<Resolution<'_>>,
) -> Permission {
    let metadata = RequestMetadata::resolved(permission.metadata.as_ref(), resolution);
    Permission { status: PermissionStatus::from(reply), metadata, ..permission.clone() }
}

/// Returns the data of `question.resolved` for `question`. Without answers the question is rejected.
pub(crate) fn resolved_question(
    question: &Question,
    answers: Option<Vec<Vec<String>>>,
    resolution: Option<Resolution<'_>>,
) -> Question {
    let status = if answers.is_some() { QuestionStatus::Answered } else { QuestionStatus::Rejected };
    let response = answers.as_ref().and_then(|answers| answers.first()?.first().cloned());
    let metadata = RequestMetadata::resolved(question.metadata.as_ref(), resolution);
    Question { status, response, answers, metadata, ..question.clone() }
}

fn pending_request(event: &Event, timeout: Duration, request: Request) -> PendingRequest {
    let asked_at: Option<Timestamp> = event.time.parse().ok();
    PendingRequest {
        session_id: event.session_id.clone(),
        turn_id: event.draft.turn_id.clone(),
        sequence: event.sequence,
        asked_at: event.time.clone(),
        patience_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        deadline: asked_at.and_then(|time| time.checked_add(timeout).ok()).map(|time| time.to_string()),
        request,
    }
}
