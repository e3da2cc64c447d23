//! Permissions and questions.

use std::time::Duration;

use protocol::{
    EventBody, Permission, PermissionId, PermissionReply, PermissionStatus, Question, QuestionId, QuestionStatus,
    SessionId, TurnOutcome,
};
use session::{Request, SessionError, SessionTimeouts};

use crate::stage::{Stage, kinds, outcome};

crate::trials!(
    a_permission_is_answered_exactly_once,
    of_many_answers_at_once_one_counts,
    a_question_is_answered_with_everything_that_was_said,
    a_question_can_be_rejected,
    nobody_answering_means_no,
    an_interrupt_resolves_what_is_open,
    what_is_pending_is_listed_until_it_is_not,
    an_answer_to_nothing_is_refused,
);

async fn asked_permission(stage: &Stage, session: &SessionId) -> Permission {
    let from = stage.say(session, "/permission").await.sequence;
    match stage.until_type(session, from, "permission.requested").await.draft.body {
        EventBody::PermissionRequested(permission) => permission,
        other => panic!("{other:?}"),
    }
}

async fn resolved_permission(stage: &Stage, session: &SessionId) -> Permission {
    match stage.until_type(session, 0, "permission.resolved").await.draft.body {
        EventBody::PermissionResolved(permission) => permission,
        other => panic!("{other:?}"),
    }
}

async fn asked_question(stage: &Stage, session: &SessionId) -> Question {
    let from = stage.say(session, "/question").await.sequence;
    match stage.until_type(session, from, "question.requested").await.draft.body {
        EventBody::QuestionRequested(question) => question,
        other => panic!("{other:?}"),
    }
}

async fn resolved_question(stage: &Stage, session: &SessionId) -> Question {
    match stage.until_type(session, 0, "question.resolved").await.draft.body {
        EventBody::QuestionResolved(question) => question,
        other => panic!("{other:?}"),
    }
}

async fn a_permission_is_answered_exactly_once() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let asked = asked_permission(&stage, &session).await.permission_id;
    stage.sessions.reply_permission(&session, &asked, PermissionReply::Once).await.unwrap();
    let again = stage.sessions.reply_permission(&session, &asked, PermissionReply::Reject).await;
    assert!(matches!(again, Err(SessionError::PermissionNotPending(_))));
    assert_eq!(resolved_permission(&stage, &session).await.status, PermissionStatus::Accept);
    stage.until_type(&session, 0, "turn.ended").await;
    let late = stage.sessions.reply_permission(&session, &asked, PermissionReply::Once).await;
    assert_eq!(late.unwrap_err().code().status(), 409);
    let resolved = kinds(&stage.events(&session)).iter().filter(|kind| *kind == "permission.resolved").count();
    assert_eq!(resolved, 1);
}

async fn of_many_answers_at_once_one_counts() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let asked = asked_permission(&stage, &session).await.permission_id;
    let answers = (0..16).map(|_| {
        let (sessions, session, asked) = (stage.sessions.clone(), session.clone(), asked.clone());
        tokio::spawn(async move { sessions.reply_permission(&session, &asked, PermissionReply::Once).await.is_ok() })
    });
    let mut counted = 0;
    for answer in answers.collect::<Vec<_>>() {
        counted += usize::from(answer.await.unwrap());
    }
    assert_eq!(counted, 1);
}

async fn a_question_is_answered_with_everything_that_was_said() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let asked = asked_question(&stage, &session).await.question_id;
    let answers = vec![vec!["blue".to_owned(), "red".to_owned()]];
    stage.sessions.reply_question(&session, &asked, answers.clone()).await.unwrap();
    let resolved = resolved_question(&stage, &session).await;
    assert_eq!(resolved.status, QuestionStatus::Answered);
    assert_eq!((resolved.response.as_deref(), resolved.answers), (Some("blue"), Some(answers)));
    let again = stage.sessions.reject_question(&session, &asked).await;
    assert!(matches!(again, Err(SessionError::QuestionNotPending(_))));
}

async fn a_question_can_be_rejected() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let asked = asked_question(&stage, &session).await.question_id;
    stage.sessions.reject_question(&session, &asked).await.unwrap();
    assert_eq!(resolved_question(&stage, &session).await.status, QuestionStatus::Rejected);
    stage.until_type(&session, 0, "turn.ended").await;
}

async fn nobody_answering_means_no() {
    let stage = Stage::with(SessionTimeouts { permission: Duration::from_millis(30), ..SessionTimeouts::default() });
    let session = stage.session("s1").await;
    asked_permission(&stage, &session).await;
    let resolved = resolved_permission(&stage, &session).await;
    assert_eq!(resolved.status, PermissionStatus::Reject);
    let metadata = resolved.metadata.unwrap();
    assert_eq!((&metadata["reason"], &metadata["cause"]), (&"expired".into(), &"deadline".into()));
    let events = stage.until(&session, 0, |event| matches!(event.draft.body, EventBody::TurnEnded(_))).await;
    assert_eq!(outcome(&events), Some(TurnOutcome::Completed), "the agent was not told");
}

async fn an_interrupt_resolves_what_is_open() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    asked_permission(&stage, &session).await;
    stage.sessions.interrupt(&session).await.unwrap();
    let events = stage.until(&session, 0, |event| matches!(event.draft.body, EventBody::TurnEnded(_))).await;
    let resolved = resolved_permission(&stage, &session).await;
    assert_eq!(resolved.status, PermissionStatus::Reject);
    let metadata = resolved.metadata.unwrap();
    assert_eq!((&metadata["reason"], &metadata["cause"]), (&"turn_interrupted".into(), &"turn_ended".into()));
    let kinds = kinds(&events);
    assert_eq!(kinds.iter().filter(|kind| *kind == "permission.resolved").count(), 1);
    assert!(stage.sessions.pending(&session).unwrap().is_empty());
}

async fn what_is_pending_is_listed_until_it_is_not() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let asked = asked_question(&stage, &session).await;
    // The record is written before the list is: an answer to the session itself comes after both.
    stage.sessions.interrupt(&stage.session("other").await).await.unwrap();
    let pending = loop {
        let pending = stage.sessions.pending(&session).unwrap();
        if !pending.is_empty() {
            break pending;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(pending[0].request, Request::Question(asked.clone()));
    assert_eq!(stage.sessions.all_pending().len(), 1);
    stage.sessions.reject_question(&session, &asked.question_id).await.unwrap();
    assert!(stage.sessions.pending(&session).unwrap().is_empty());
    assert!(stage.sessions.all_pending().is_empty());
}

async fn an_answer_to_nothing_is_refused() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let unknown = PermissionId::new("per_1_1").unwrap();
    let refused = stage.sessions.reply_permission(&session, &unknown, PermissionReply::Always).await;
    assert!(matches!(refused, Err(SessionError::PermissionNotFound(_))));
    let unknown = QuestionId::new("que_1_1").unwrap();
    let refused = stage.sessions.reject_question(&session, &unknown).await;
    assert!(matches!(refused, Err(SessionError::QuestionNotFound(_))));
}
