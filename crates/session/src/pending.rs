//! What the agent asked and nobody has answered yet.
//!
//! Whatever is taken out of here is resolved on record by whoever takes it: nothing leaves twice, so
//! nothing is answered twice.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{Permission, PermissionId, Question, QuestionId, SessionId, TurnId};
use serde::Serialize;
use tokio::time::Instant;

/// Something a person should answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PendingRequest {
    /// The session that waits.
    pub session_id: SessionId,
    /// The turn that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Number of the event that asked.
    pub sequence: u64,
    /// When it was asked, RFC 3339.
    pub asked_at: String,
    /// Milliseconds it may wait in all before it is refused.
    pub patience_ms: u64,
    /// When it is refused, RFC 3339, if nobody has answered by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// What is asked.
    #[serde(flatten)]
    pub request: Request,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum Request {
    /// May the agent do this?
    Permission(Permission),
    /// What should the agent know?
    Question(Question),
}

/// Everything pending in one session.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    permissions: BTreeMap<PermissionId, Waiting<Permission>>,
    questions: BTreeMap<QuestionId, Waiting<Question>>,
}

#[derive(Debug)]
struct Waiting<T> {
    asked: T,
    deadline: Instant,
    told: PendingRequest,
}

impl Pending {
    pub(crate) fn ask_permission(&mut self, asked: Permission, told: PendingRequest) {
        let waiting = Waiting { deadline: deadline(&told), asked, told };
        self.permissions.insert(waiting.asked.permission_id.clone(), waiting);
    }

    pub(crate) fn ask_question(&mut self, asked: Question, told: PendingRequest) {
        let waiting = Waiting { deadline: deadline(&told), asked, told };
        self.questions.insert(waiting.asked.question_id.clone(), waiting);
    }

    pub(crate) fn permission(&self, id: &PermissionId) -> Option<&Permission> {
        self.permissions.get(id).map(|waiting| &waiting.asked)
    }

    pub(crate) fn question(&self, id: &QuestionId) -> Option<&Question> {
        self.questions.get(id).map(|waiting| &waiting.asked)
    }

    /// Takes it out; whether it was there.
    pub(crate) fn remove_permission(&mut self, id: &PermissionId) -> bool {
        self.permissions.remove(id).is_some()
    }

    /// Takes it out; whether it was there.
    pub(crate) fn remove_question(&mut self, id: &QuestionId) -> bool {
        self.questions.remove(id).is_some()
    }

    /// When the first of them has waited long enough.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        let permissions = self.permissions.values().map(|waiting| waiting.deadline);
        permissions.chain(self.questions.values().map(|waiting| waiting.deadline)).min()
    }

    /// Those whose time is over at `now`.
    pub(crate) fn overdue(&self, now: Instant) -> (Vec<Permission>, Vec<Question>) {
        self.select(|deadline| deadline <= now)
    }

    /// All of them.
    pub(crate) fn all(&self) -> (Vec<Permission>, Vec<Question>) {
        self.select(|_| true)
    }

    /// All of them as a client is told, oldest first.
    pub(crate) fn told(&self) -> Vec<PendingRequest> {
        let permissions = self.permissions.values().map(|waiting| waiting.told.clone());
        let mut all: Vec<_> = permissions.chain(self.questions.values().map(|waiting| waiting.told.clone())).collect();
        all.sort_by_key(|told| told.sequence);
        all
    }

    fn select(&self, wanted: impl Fn(Instant) -> bool) -> (Vec<Permission>, Vec<Question>) {
        (chosen(self.permissions.values(), &wanted), chosen(self.questions.values(), &wanted))
    }
}

fn chosen<'a, T: Clone + 'a>(
    waiting: impl Iterator<Item = &'a Waiting<T>>,
    wanted: &impl Fn(Instant) -> bool,
) -> Vec<T> {
    waiting.filter(|waiting| wanted(waiting.deadline)).map(|waiting| waiting.asked.clone()).collect()
}

fn deadline(told: &PendingRequest) -> Instant {
    Instant::now() + Duration::from_millis(told.patience_ms)
}
