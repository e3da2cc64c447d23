//! Answers to what agents ask, as clients give them.
//!
//! An answer counts once. Who is refused hears whether somebody was faster or whether there was never anything to answer:
//! that is looked up in the record, by the one who asks, so that no session waits for it.

use protocol::{Event, EventBody, Permission, PermissionId, PermissionReply, Question, QuestionId, SessionId};

use crate::command::Command;
use crate::shelf::blocking;
use crate::{SessionError, Sessions};

/// So many events are looked at at a time.
const STEP: usize = 256;

impl Sessions {
    /// Answers a permission. The second answer is refused.
    pub async fn reply_permission(
        &self,
        id: &SessionId,
        permission: &PermissionId,
        answer: PermissionReply,
    ) -> Result<(), SessionError> {
        let answered = self.ask(id, |reply| Command::Permission(permission.clone(), answer, reply)).await;
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

    /// Answers a question, a list of answers for each thing it asks. The second answer is refused.
    pub async fn reply_question(
        &self,
        id: &SessionId,
        question: &QuestionId,
        answers: Vec<Vec<String>>,
    ) -> Result<(), SessionError> {
        self.settle_question(id, question, Some(answers)).await
    }

    /// Refuses to answer a question.
    pub async fn reject_question(&self, id: &SessionId, question: &QuestionId) -> Result<(), SessionError> {
        self.settle_question(id, question, None).await
    }

    /// A permission as it stands on record now, whether it was resolved or not.
    pub async fn permission(
        &self,
        id: &SessionId,
        permission: &PermissionId,
    ) -> Result<Option<Permission>, SessionError> {
        let permission = permission.clone();
        self.last_of(id, move |event| match event.draft.body {
            EventBody::PermissionRequested(asked) | EventBody::PermissionResolved(asked) => {
                (asked.permission_id == permission).then_some(asked)
            }
            _ => None,
        })
        .await
    }

    /// A question as it stands on record now, whether it was resolved or not.
    pub async fn question(&self, id: &SessionId, question: &QuestionId) -> Result<Option<Question>, SessionError> {
        let question = question.clone();
        self.last_of(id, move |event| match event.draft.body {
            EventBody::QuestionRequested(asked) | EventBody::QuestionResolved(asked) => {
                (asked.question_id == question).then_some(asked)
            }
            _ => None,
        })
        .await
    }

    async fn settle_question(
        &self,
        id: &SessionId,
        question: &QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), SessionError> {
        let answered = self.ask(id, |reply| Command::Question(question.clone(), answers, reply)).await;
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

    /// The last of what `pick` takes out of the record of a session.
    pub(crate) async fn last_of<T: Send + 'static>(
        &self,
        id: &SessionId,
        pick: impl Fn(Event) -> Option<T> + Send + 'static,
    ) -> Result<Option<T>, SessionError> {
        let journal = self.journal(id)?;
        blocking(move || {
            let (mut found, mut seen) = (None, 0);
            loop {
                let events = journal.after(seen, STEP)?;
                let Some(last) = events.last() else { return Ok(found) };
                seen = last.sequence;
                found = events.into_iter().filter_map(&pick).last().or(found);
            }
        })
        .await
    }
}
