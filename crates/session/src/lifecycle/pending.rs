//! Permission requests and questions that wait for an answer.
//!
//! Code that removes a request also records its resolution. A request is removed once, so it is answered once.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{Permission, PermissionId, Question, QuestionId, SessionId, TurnId};
use serde::Serialize;
use tokio::time::Instant;

/// A request that waits for a person's answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PendingRequest {
    /// The session that waits.
    pub session_id: SessionId,
    /// The turn that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Sequence number of the request's event.
    pub sequence: u64,
    /// Time of the request, RFC 3339.
    pub asked_at: String,
    /// Milliseconds from the request until it is refused.
    pub patience_ms: u64,
    /// Time at which the request is refused if nobody has answered, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// The request.
    #[serde(flatten)]
    pub request: Request,
}

/// A permission request or a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum Request {
    /// The agent asks for permission to do one thing.
    Permission(Permission),
    /// The agent asks for information.
    Question(Question),
}

/// All pending requests of one session.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    permissions: BTreeMap<PermissionId, PendingEntry<Permission>>,
    questions: BTreeMap<QuestionId, PendingEntry<Question>>,
}

#[derive(Debug)]
struct PendingEntry<T> {
    data: T,
    deadline: Instant,
    request: PendingRequest,
}

impl PendingRequests {
    pub(crate) fn insert_permission(&mut self, data: Permission, request: PendingRequest) {
        let entry = PendingEntry { deadline: deadline(&request), data, request };
        self.permissions.insert(entry.data.permission_id.clone(), entry);
    }

    pub(crate) fn insert_question(&mut self, data: Question, request: PendingRequest) {
        let entry = PendingEntry { deadline: deadline(&request), data, request };
        self.questions.insert(entry.data.question_id.clone(), entry);
    }

    pub(crate) fn permission(&self, id: &PermissionId) -> Option<&Permission> {
        self.permissions.get(id).map(|entry| &entry.data)
    }

    pub(crate) fn question(&self, id: &QuestionId) -> Option<&Question> {
        self.questions.get(id).map(|entry| &entry.data)
    }

    /// Removes a request. Returns whether it was pending.
    pub(crate) fn remove_permission(&mut self, id: &PermissionId) -> bool {
        self.permissions.remove(id).is_some()
    }

    /// Removes a request. Returns whether it was pending.
    pub(crate) fn remove_question(&mut self, id: &QuestionId) -> bool {
        self.questions.remove(id).is_some()
    }

    /// Returns the number of requests.
    pub(crate) fn len(&self) -> usize {
        self.permissions.len() + self.questions.len()
    }

    /// Returns the earliest deadline.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        let permissions = self.permissions.values().map(|entry| entry.deadline);
        permissions.chain(self.questions.values().map(|entry| entry.deadline)).min()
    }

    /// Returns the requests whose deadline has passed.
    pub(crate) fn overdue(&self, now: Instant) -> (Vec<Permission>, Vec<Question>) {
        self.select(|deadline| deadline <= now)
    }

    /// Returns all requests.
    pub(crate) fn all(&self) -> (Vec<Permission>, Vec<Question>) {
        self.select(|_| true)
    }

    /// Returns all requests as clients see them, oldest first.
    pub(crate) fn requests(&self) -> Vec<PendingRequest> {
        let permissions = self.permissions.values().map(|entry| entry.request.clone());
        let mut all: Vec<_> = permissions.chain(self.questions.values().map(|entry| entry.request.clone())).collect();
        all.sort_by_key(|request| request.sequence);
        all
    }

    fn select(&self, wanted: impl Fn(Instant) -> bool) -> (Vec<Permission>, Vec<Question>) {
        (choose(self.permissions.values(), &wanted), choose(self.questions.values(), &wanted))
    }
}

fn choose<'a, T: Clone + 'a>(
    entries: impl Iterator<Item = &'a PendingEntry<T>>,
    wanted: &impl Fn(Instant) -> bool,
) -> Vec<T> {
    entries.filter(|entry| wanted(entry.deadline)).map(|entry| entry.data.clone()).collect()
}

fn deadline(request: &PendingRequest) -> Instant {
    Instant::now() + Duration::from_millis(request.patience_ms)
}
