//! Answers to permission requests and questions.
//!
//! Each request is answered once. A rejected answer says whether the request was resolved before or never existed. The
//! caller's task looks that up in the journal, so that the actor does not wait for it.

use protocol::{Event, EventBody, Permission, PermissionId, PermissionReply, Question, QuestionId, SessionId};

use crate::lifecycle::{ActorCommand, GivenAnswer};
use crate::storage::run_blocking;
use crate::{SessionError, Sessions};

/// Events read at a time.
const PAGE: usize = 256;

impl Sessions {
    /// Answers a permission request. Fails when it is not pending.
    pub async fn reply_permission(
        &self,
        id: &SessionId,
        permission: &PermissionId,
        answer: PermissionReply,
    ) -> Result<(), SessionError> {
        self.reply_permission_as(id, permission, answer, None).await
    }

    /// Like `reply_permission`; the event says that `caller` answered.
    pub async fn reply_permission_as(
        &self,
        id: &SessionId,
        permission: &PermissionId,
        answer: PermissionReply,
        caller: Option<String>,
    ) -> Result<(), SessionError> {
        let answer = GivenAnswer { answer, by: caller };
        let answered = self.send_command(id, |reply| ActorCommand::Permission(permission.clone(), answer, reply)).await;
        match answered {
            Err(SessionError::PermissionNotPending(_)) => {
                let known = self.permission(id, permission).await?.is_some();
                let permission = permission.clone();
                Err(if known {
                    SessionError::PermissionNotPending(permission)
                } else {
                    SessionError::PermissionNotFound(permission)
                })
            }
            other => other,
        }
    }

    /// Answers a question, with a list of answers for each part. Fails when the question is not pending.
    pub async fn reply_question(
        &self,
        id: &SessionId,
        question: &QuestionId,
        answers: Vec<Vec<String>>,
    ) -> Result<(), SessionError> {
        self.resolve_question_as(id, question, Some(answers), None).await
    }

    /// Rejects a question. Fails when the question is not pending.
    pub async fn reject_question(&self, id: &SessionId, question: &QuestionId) -> Result<(), SessionError> {
        self.resolve_question_as(id, question, None, None).await
    }

    /// Returns a permission request with its current status; `None` when the session never sent it.
    pub async fn permission(
        &self,
        id: &SessionId,
        permission: &PermissionId,
    ) -> Result<Option<Permission>, SessionError> {
        let permission = permission.clone();
        self.find_last(id, move |event| match event.draft.body {
            EventBody::PermissionRequested(request) | EventBody::PermissionResolved(request) => {
                (request.permission_id == permission).then_some(request)
            }
            _ => None,
        })
        .await
    }

    /// Returns a question with its current status; `None` when the session never asked it.
    pub async fn question(&self, id: &SessionId, question: &QuestionId) -> Result<Option<Question>, SessionError> {
        let question = question.clone();
        self.find_last(id, move |event| match event.draft.body {
            EventBody::QuestionRequested(request) | EventBody::QuestionResolved(request) => {
                (request.question_id == question).then_some(request)
            }
            _ => None,
        })
        .await
    }

    /// Answers a question, or rejects it without answers; the event says that `caller` answered.
    pub async fn resolve_question_as(
        &self,
        id: &SessionId,
        question: &QuestionId,
        answers: Option<Vec<Vec<String>>>,
        caller: Option<String>,
    ) -> Result<(), SessionError> {
        let given = GivenAnswer { answer: answers, by: caller };
        let answered = self.send_command(id, |reply| ActorCommand::Question(question.clone(), given, reply)).await;
        match answered {
            Err(SessionError::QuestionNotPending(_)) => {
                let known = self.question(id, question).await?.is_some();
                let question = question.clone();
                Err(if known {
                    SessionError::QuestionNotPending(question)
                } else {
                    SessionError::QuestionNotFound(question)
                })
            }
            other => other,
        }
    }

    /// Returns the last value that `pick` finds in the journal of a session.
    pub(crate) async fn find_last<T: Send + 'static>(
        &self,
        id: &SessionId,
        pick: impl Fn(Event) -> Option<T> + Send + 'static,
    ) -> Result<Option<T>, SessionError> {
        let journal = self.journal(id)?;
        run_blocking(move || {
            let (mut found, mut seen) = (None, 0);
            loop {
                let events = journal.after(seen, PAGE)?;
                let Some(last) = events.last() else { return Ok(found) };
                seen = last.sequence;
                found = events.into_iter().filter_map(&pick).last().or(found);
            }
        })
        .await
    }
}
