//! Permission requests and questions that wait for an answer.

use protocol::{EventBody, Permission, PermissionId, PermissionStatus, Question, QuestionId, QuestionStatus};
use serde::Serialize;
use serde_json::{Value, json};

use super::Transcript;

/// The metadata of a permission request. A field that is `None` is left out.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PermissionDetails {
    pub(crate) tool: String,
    pub(crate) input: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call_id: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<Value>,
    /// The options of an ACP request, as the agent sent them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked_path: Option<String>,
    /// The file changes of an ACP request: paths and diffs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<Value>,
    /// The pattern that the answer "always" covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pattern: Option<Value>,
}

/// Open requests, and the numbers of requests so far.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    permissions: u64,
    questions: u64,
    open_permissions: Vec<(PermissionId, String)>,
    open_questions: Vec<(QuestionId, String)>,
}

impl Transcript {
    /// Emits a permission request and returns its id.
    pub(crate) fn request_permission(&mut self, action: &str, metadata: &impl Serialize) -> PermissionId {
        self.pending.permissions += 1;
        let permission_id = PermissionId::numbered(self.epoch, self.pending.permissions);
        self.pending.open_permissions.push((permission_id.clone(), action.to_owned()));
        self.push_event(EventBody::PermissionRequested(Permission {
            permission_id: permission_id.clone(),
            action: action.to_owned(),
            status: PermissionStatus::Requested,
            metadata: Some(json!(metadata)),
        }));
        permission_id
    }

    /// Removes an answered permission request. Returns `false` if it was not open. The caller emits the event.
    pub(crate) fn take_permission(&mut self, id: &PermissionId) -> bool {
        let before = self.pending.open_permissions.len();
        self.pending.open_permissions.retain(|(open, _)| open != id);
        self.pending.open_permissions.len() < before
    }

    /// Emits that the agent withdrew a permission request.
    pub(crate) fn withdraw_permission(&mut self, id: &PermissionId) {
        let Some(at) = self.pending.open_permissions.iter().position(|(open, _)| open == id) else { return };
        let (permission_id, action) = self.pending.open_permissions.remove(at);
        self.push_event(EventBody::PermissionResolved(Permission {
            permission_id,
            action,
            status: PermissionStatus::Reject,
            metadata: Some(json!({ "reason": "withdrawn" })),
        }));
    }

    /// Emits a question and returns its id.
    pub(crate) fn request_question(
        &mut self,
        prompt: &str,
        options: Vec<String>,
        metadata: Option<Value>,
    ) -> QuestionId {
        self.pending.questions += 1;
        let question_id = QuestionId::numbered(self.epoch, self.pending.questions);
        self.pending.open_questions.push((question_id.clone(), prompt.to_owned()));
        self.push_event(EventBody::QuestionRequested(Question {
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

    /// Removes an answered question. Returns `false` if it was not open. The caller emits the event.
    pub(crate) fn take_question(&mut self, id: &QuestionId) -> bool {
        let before = self.pending.open_questions.len();
        self.pending.open_questions.retain(|(open, _)| open != id);
        self.pending.open_questions.len() < before
    }

    /// Emits that the agent withdrew a question.
    pub(crate) fn withdraw_question(&mut self, id: &QuestionId) {
        let Some(at) = self.pending.open_questions.iter().position(|(open, _)| open == id) else { return };
        let (question_id, prompt) = self.pending.open_questions.remove(at);
        self.push_event(EventBody::QuestionResolved(Question {
            question_id,
            prompt,
            options: Vec::new(),
            response: None,
            answers: None,
            status: QuestionStatus::Rejected,
            metadata: Some(json!({ "reason": "withdrawn" })),
        }));
    }

    /// Withdraws all open requests at the end of a turn.
    pub(super) fn withdraw_all(&mut self) {
        let permissions: Vec<_> = self.pending.open_permissions.iter().map(|(id, _)| id.clone()).collect();
        let questions: Vec<_> = self.pending.open_questions.iter().map(|(id, _)| id.clone()).collect();
        for id in permissions {
            self.withdraw_permission(&id);
        }
        for id in questions {
            self.withdraw_question(&id);
        }
    }
}
