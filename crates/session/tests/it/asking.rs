//! Permissions and questions.

use std::time::Duration;

use protocol::{
    EventBody, Permission, PermissionId, PermissionReply, PermissionStatus, Question, QuestionId, QuestionStatus,
    SessionId, TurnOutcome,
};
use session::{Request, SessionError, SessionTimeouts};

use crate::stage::{Stage, kinds, outcome};

crate::trials!(
    permission_is_answered_exactly_once,
    one_of_many_concurrent_answers_succeeds,
    question_keeps_all_answers,
    question_can_be_rejected,
    unanswered_permission_is_refused_at_its_deadline,
    interrupt_resolves_pending_requests,
    pending_request_is_listed_until_it_is_resolved,
    answer_to_an_unknown_request_is_refused,
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

async fn permission_is_answered_exactly_once() {
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

async fn one_of_many_concurrent_answers_succeeds() {
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

async fn question_keeps_all_answers() {
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

async fn question_can_be_rejected() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let asked = asked_question(&stage, &session).await.question_id;
    stage.sessions.reject_question(&session, &asked).await.unwrap();
    assert_eq!(resolved_question(&stage, &session).await.status, QuestionStatus::Rejected);
    stage.until_type(&session, 0, "turn.ended").await;
}

async fn unanswered_permission_is_refused_at_its_deadline() {
    let stage = Stage::with(SessionTimeouts { permission: Duration::from_millis(30), ..SessionTimeouts::default() });
    let session = stage.session("s1").await;
    asked_permission(&stage, &session).await;
    let resolved = resolved_permission(&stage, &session).await;
    assert_eq!(resolved.status, PermissionStatus::Reject);
    let metadata = resolved.metadata.unwrap();
    assert_eq!((&metadata["reason"], &metadata["cause"]), (&"expired".into(), &"deadline".into()));
    let events = stage.until(&session, 0, |event| matches!(event.draft.body, EventBody::TurnEnded(_))).await;
    assert_eq!(outcome(&events), Some(TurnOutcome::Completed), "the agent did not get the refusal");
}

async fn interrupt_resolves_pending_requests() {
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

async fn pending_request_is_listed_until_it_is_resolved() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let asked = asked_question(&stage, &session).await;
    // The event is recorded before the list is updated.
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

async fn answer_to_an_unknown_request_is_refused() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let unknown = PermissionId::new("per_1_1").unwrap();
    let refused = stage.sessions.reply_permission(&session, &unknown, PermissionReply::Always).await;
    assert!(matches!(refused, Err(SessionError::PermissionNotFound(_))));
    let unknown = QuestionId::new("que_1_1").unwrap();
    let refused = stage.sessions.reject_question(&session, &unknown).await;
    assert!(matches!(refused, Err(SessionError::QuestionNotFound(_))));
}
