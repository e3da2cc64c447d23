//! Permissions and questions: what the agent waits for.

use protocol::{EventBody, Permission, PermissionId, PermissionStatus, Question, QuestionId, QuestionStatus};
use serde_json::{Value, json};

use super::Transcript;

/// What was asked and not yet answered, and how much was asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    permissions: u64,
    questions: u64,
    open_permissions: Vec<(PermissionId, String)>,
    open_questions: Vec<(QuestionId, String)>,
}

impl Transcript {
    /// The agent may not go on before somebody said yes.
    pub(crate) fn permission(&mut self, action: &str, metadata: Value) -> PermissionId {
        self.asked.permissions += 1;
        let permission_id = PermissionId::numbered(self.epoch, self.asked.permissions);
        self.asked.open_permissions.push((permission_id.clone(), action.to_owned()));
        self.event(EventBody::PermissionRequested(Permission {
            permission_id: permission_id.clone(),
            action: action.to_owned(),
            status: PermissionStatus::Requested,
            metadata: Some(metadata),
        }));
        permission_id
    }

    /// Somebody answered; the event of it is the caller's. False when nobody waits for it.
    pub(crate) fn permission_answered(&mut self, id: &PermissionId) -> bool {
        let before = self.asked.open_permissions.len();
        self.asked.open_permissions.retain(|(open, _)| open != id);
        self.asked.open_permissions.len() < before
    }

    /// The agent no longer waits for this answer.
    pub(crate) fn withdraw_permission(&mut self, id: &PermissionId) {
        let Some(at) = self.asked.open_permissions.iter().position(|(open, _)| open == id) else { return };
        let (permission_id, action) = self.asked.open_permissions.remove(at);
        self.event(EventBody::PermissionResolved(Permission {
            permission_id,
            action,
            status: PermissionStatus::Reject,
            metadata: Some(json!({ "reason": "withdrawn" })),
        }));
    }

    /// The agent asks a person.
    pub(crate) fn question(&mut self, prompt: &str, options: Vec<String>, metadata: Option<Value>) -> QuestionId {
        self.asked.questions += 1;
        let question_id = QuestionId::numbered(self.epoch, self.asked.questions);
        self.asked.open_questions.push((question_id.clone(), prompt.to_owned()));
        self.event(EventBody::QuestionRequested(Question {
            question_id: question_id.clone(),
            prompt: prompt.to_owned(),
            options,
            response: None,
            answers: None,
            status: QuestionStatus::Requested,
            metadata,
        }));
        question_id
    }

    /// Somebody answered; the event of it is the caller's. False when nobody waits for it.
    pub(crate) fn question_answered(&mut self, id: &QuestionId) -> bool {
        let before = self.asked.open_questions.len();
        self.asked.open_questions.retain(|(open, _)| open != id);
        self.asked.open_questions.len() < before
    }

    /// The agent no longer waits for this answer.
    pub(crate) fn withdraw_question(&mut self, id: &QuestionId) {
        let Some(at) = self.asked.open_questions.iter().position(|(open, _)| open == id) else { return };
        let (question_id, prompt) = self.asked.open_questions.remove(at);
        self.event(EventBody::QuestionResolved(Question {
            question_id,
            prompt,
            options: Vec::new(),
            response: None,
            answers: None,
            status: QuestionStatus::Rejected,
            metadata: Some(json!({ "reason": "withdrawn" })),
        }));
    }

    /// The turn is over: nobody waits for anything any more.
    pub(super) fn withdraw_all(&mut self) {
        let permissions: Vec<_> = self.asked.open_permissions.iter().map(|(id, _)| id.clone()).collect();
        let questions: Vec<_> = self.asked.open_questions.iter().map(|(id, _)| id.clone()).collect();
        for id in permissions {
            self.withdraw_permission(&id);
        }
        for id in questions {
            self.withdraw_question(&id);
        }
    }
}
