//! Recovery after the host process dies.
//!
//! A test simulates the death by dropping the runtime of the sessions: as with kill -9, no actor runs any code, and the
//! owner's lock is released.

use std::sync::Arc;

use protocol::{EventBody, SessionId, TurnOutcome};
use session::{SessionError, SessionTimeouts, UserMessage};
use tempfile::TempDir;

use crate::stage::{Stage, id, kinds, outcome, type_of};

crate::trials!(
    open_turn_is_interrupted_and_the_session_continues,
    pending_permission_expires_on_record,
    queued_message_survives_and_runs_first,
    resume_starts_queued_messages,
    damaged_journal_is_quarantined_and_other_sessions_recover,
    every_caller_of_a_damaged_session_gets_the_reason,
    message_is_accepted_once_across_a_restart,
    cleanly_closed_session_can_be_resumed,
    second_recovery_changes_nothing,
    session_of_a_running_host_is_not_taken_over,
    session_of_another_host_can_be_followed,
);

/// Runs `scene` on a host that dies at the end.
fn die_after<T: Send + 'static>(directory: &Arc<TempDir>, scene: impl AsyncFnOnce(Stage) -> T + Send + 'static) -> T {
    let directory = directory.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let result = runtime.block_on(scene(Stage::on(directory, SessionTimeouts::default())));
        drop(runtime);
        result
    })
    .join()
    .unwrap()
}

fn directory() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().unwrap())
}

async fn open_turn_is_interrupted_and_the_session_continues() {
    let directory = directory();
    let (session, seen) = die_after(&directory, async |stage: Stage| {
        let session = stage.session("s1").await;
        let slow = stage.say(&session, "/slow 1000").await;
        stage.until_type(&session, slow.sequence, "item.delta").await;
        (session.clone(), stage.events(&session))
    });
    let stage = Stage::on(directory, SessionTimeouts::default());
    assert_eq!(stage.sessions.recover().await.unwrap(), std::slice::from_ref(&session));
    let events = stage.events(&session);
    assert_eq!(events[..seen.len()], seen, "events that a client had seen are missing");
    assert_eq!(outcome(&events), Some(TurnOutcome::Interrupted));
    let last = kinds(&events);
    assert_eq!(last[last.len() - 3..], ["item.completed", "turn.ended", "session.recovered"]);
    let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (1..=events.len() as u64).collect::<Vec<_>>());
    let native = events.iter().rev().find_map(|event| event.draft.native_session_id.clone());
    let after = stage.turn(&session, "/echo back").await;
    assert_eq!(outcome(&after), Some(TurnOutcome::Completed));
    assert_eq!(after.last().unwrap().draft.native_session_id, native);
}

async fn pending_permission_expires_on_record() {
    let directory = directory();
    let (session, asked) = die_after(&directory, async |stage: Stage| {
        let session = stage.session("s1").await;
        stage.say(&session, "/permission").await;
        let asked = stage.until_type(&session, 0, "permission.requested").await;
        (session, asked)
    });
    let stage = Stage::on(directory, SessionTimeouts::default());
    stage.sessions.recover().await.unwrap();
    let EventBody::PermissionRequested(asked) = asked.draft.body else { panic!("not a permission") };
    let resolved = stage.until_type(&session, 0, "permission.resolved").await;
    let EventBody::PermissionResolved(resolved) = resolved.draft.body else { panic!("not a permission") };
    assert_eq!(resolved.permission_id, asked.permission_id);
    let metadata = resolved.metadata.unwrap();
    assert_eq!((&metadata["reason"], &metadata["cause"]), (&"expired".into(), &"host_died".into()));
    let late = stage.sessions.reply_permission(&session, &asked.permission_id, protocol::PermissionReply::Once).await;
    assert!(matches!(late, Err(SessionError::PermissionNotPending(_))));
}

async fn queued_message_survives_and_runs_first() {
    let directory = directory();
    let (session, waiting) = die_after(&directory, async |stage: Stage| {
        let session = stage.session("s1").await;
        stage.say(&session, "/slow 1000").await;
        let waiting = stage.say(&session, "/echo waited").await;
        (session, waiting)
    });
    let stage = Stage::on(directory, SessionTimeouts::default());
    stage.sessions.recover().await.unwrap();
    let events = stage.turn(&session, "/echo last").await;
    let started: Vec<_> = events.iter().filter(|event| type_of(event) == "turn.started").collect();
    assert_eq!(started.len(), 2);
    assert_eq!(started[0].draft.turn_id, Some(waiting.turn_id));
}

async fn resume_starts_queued_messages() {
    let directory = directory();
    let (session, waiting) = die_after(&directory, async |stage: Stage| {
        let session = stage.session("s1").await;
        stage.say(&session, "/slow 1000").await;
        let waiting = stage.say(&session, "/echo waited").await;
        (session, waiting)
    });
    let stage = Stage::on(directory, SessionTimeouts::default());
    stage.sessions.recover().await.unwrap();
    stage.sessions.resume(&session).await.unwrap();
    let ended = |event: &protocol::Event| {
        event.draft.turn_id.as_ref() == Some(&waiting.turn_id) && type_of(event) == "turn.ended"
    };
    assert_eq!(outcome(&stage.until(&session, 0, ended).await), Some(TurnOutcome::Completed));
    stage.sessions.resume(&session).await.unwrap();
}

async fn damaged_journal_is_quarantined_and_other_sessions_recover() {
    let directory = directory();
    let path = directory.path().join("data/trajectory/broken.jsonl");
    die_after(&directory, async |stage: Stage| {
        for name in ["broken", "whole"] {
            let session = stage.session(name).await;
            let slow = stage.say(&session, "/slow 1000").await;
            stage.until_type(&session, slow.sequence, "item.delta").await;
        }
    });
    let mut bytes = std::fs::read(&path).unwrap();
    // The first byte of the second record, which every reader notices.
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[second] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let stage = Stage::on(directory, SessionTimeouts::default());
    assert_eq!(stage.sessions.recover().await.unwrap(), [id("whole")]);
    let refused = stage.sessions.send(&id("broken"), UserMessage::text("/echo hm")).await.unwrap_err();
    assert_eq!(refused.code().as_str(), "journal_damaged", "{refused}");
    assert_eq!(outcome(&stage.turn(&id("whole"), "/echo on").await), Some(TurnOutcome::Completed));
    let aside = path.with_file_name("../quarantine/broken.jsonl");
    assert_eq!(std::fs::read(&aside).unwrap(), bytes, "the quarantined journal was changed");
}

/// Some of many concurrent callers reach an actor that is just failing; these once got the error `session_ended`.
async fn every_caller_of_a_damaged_session_gets_the_reason() {
    let directory = directory();
    let path = directory.path().join("data/trajectory/broken.jsonl");
    die_after(&directory, async |stage: Stage| {
        stage.session("broken").await;
    });
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, [b"!", &bytes[1..]].concat()).unwrap();
    let stage = Stage::on(directory, SessionTimeouts::default());
    for _ in 0..200 {
        let asking = (0..8).map(|_| {
            let sessions = stage.sessions.clone();
            tokio::spawn(async move { sessions.interrupt(&id("broken")).await.unwrap_err() })
        });
        for asked in asking.collect::<Vec<_>>() {
            let refused = asked.await.unwrap();
            assert_eq!(refused.code().as_str(), "journal_damaged", "{refused}");
        }
    }
}

async fn message_is_accepted_once_across_a_restart() {
    let directory = directory();
    let message = UserMessage { client_message_id: Some("m1".to_owned()), ..UserMessage::text("/echo once") };
    let before = message.clone();
    let (session, first): (SessionId, _) = die_after(&directory, async |stage: Stage| {
        let session = stage.session("s1").await;
        let first = stage.sessions.send(&session, before).await.unwrap();
        stage.until_type(&session, 0, "turn.ended").await;
        (session, first)
    });
    let stage = Stage::on(directory, SessionTimeouts::default());
    stage.sessions.recover().await.unwrap();
    let again = stage.sessions.send(&session, message).await.unwrap();
    assert_eq!(again.turn_id, first.turn_id);
    assert_eq!(kinds(&stage.events(&session)).iter().filter(|kind| *kind == "turn.started").count(), 1);
}

async fn cleanly_closed_session_can_be_resumed() {
    let directory = directory();
    let session = die_after(&directory, async |stage: Stage| {
        let session = stage.session("s1").await;
        stage.turn(&session, "/echo before").await;
        stage.sessions.close_all().await;
        session
    });
    let stage = Stage::on(directory, SessionTimeouts::default());
    let before = stage.events(&session).len();
    assert!(stage.sessions.recover().await.unwrap().is_empty(), "nothing was open");
    assert_eq!(stage.events(&session).len(), before);
    assert_eq!(outcome(&stage.turn(&session, "/echo after").await), Some(TurnOutcome::Completed));
    assert!(kinds(&stage.events(&session)).contains(&"session.recovered".to_owned()), "no recovery event");
}

async fn second_recovery_changes_nothing() {
    let directory = directory();
    let session = die_after(&directory, async |stage: Stage| {
        let session = stage.session("s1").await;
        stage.say(&session, "/slow 1000").await;
        session
    });
    let stage = Stage::on(directory, SessionTimeouts::default());
    assert_eq!(stage.sessions.recover().await.unwrap().len(), 1);
    let once = stage.events(&session).len();
    assert!(stage.sessions.recover().await.unwrap().is_empty());
    assert_eq!(stage.events(&session).len(), once);
}

async fn session_of_a_running_host_is_not_taken_over() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let other = Stage::on(stage.directory.clone(), SessionTimeouts::default());
    assert!(other.sessions.recover().await.unwrap().is_empty());
    assert!(matches!(other.sessions.interrupt(&session).await, Err(SessionError::RunByAnotherProcess(_))));
    assert_eq!(outcome(&stage.turn(&session, "/echo mine").await), Some(TurnOutcome::Completed));
}

async fn session_of_another_host_can_be_followed() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let other = Stage::on(stage.directory.clone(), SessionTimeouts::default());
    let seen = other.events(&session);
    stage.say(&session, "/echo hello").await;
    let rest = other.until(&session, seen.len() as u64, |event| type_of(event) == "turn.ended").await;
    stage.sessions.terminate(&session).await.unwrap();
    other.until_type(&session, rest.last().unwrap().sequence, "session.ended").await;
    assert_eq!(other.events(&session), stage.events(&session));
}
