//! Ends of a session: termination, crash, exit and shutdown.

use std::time::{Duration, Instant};

use protocol::{EventBody, SessionEndReason, SessionEnded, SessionId, TerminatedBy, TurnOutcome};
use session::{SessionError, UserMessage};

use crate::stage::{Stage, id, in_directory, kinds, outcome, type_of};

crate::trials!(
    terminating_a_flooding_agent_is_quick_and_final,
    terminating_kills_child_processes,
    terminating_twice_succeeds,
    crash_is_recorded_with_its_signal,
    exit_code_is_recorded,
    clean_exit_completes_the_session,
    ended_session_accepts_no_commands,
    terminating_resolves_pending_requests,
    closing_the_host_interrupts_turns_and_keeps_sessions,
    unknown_session_is_not_found,
);

async fn ended(stage: &Stage, session: &SessionId) -> SessionEnded {
    match stage.until_type(session, 0, "session.ended").await.draft.body {
        EventBody::SessionEnded(ended) => ended,
        other => panic!("{other:?}"),
    }
}

async fn terminating_a_flooding_agent_is_quick_and_final() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let flood = stage.say(&session, "/flood 100000000").await;
    stage.until_type(&session, flood.sequence, "item.delta").await;
    let started = Instant::now();
    stage.sessions.terminate(&session).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(1), "it took {:?}", started.elapsed());
    let journal = stage.sessions.journal(&session).unwrap();
    let last = *journal.last().borrow();
    let end = journal.after(last - 1, 10).unwrap();
    assert_eq!(kinds(&end), ["session.ended"]);
    assert!(stage.sessions.get(&session).unwrap().ended);
}

async fn terminating_kills_child_processes() {
    let stage = Stage::new();
    let workspace = stage.workspace();
    let request = protocol::CreateSession { permission_mode: Some("bypass".to_owned()), ..in_directory(&workspace) };
    let session = stage.create("s1", request).await.unwrap().session_id;
    std::fs::write(workspace.join("job.sh"), "echo $$ > pid.new; mv pid.new pid; exec sleep 1000\n").unwrap();
    stage.say(&session, "/run sh job.sh").await;
    let pid = loop {
        if let Ok(pid) = std::fs::read_to_string(workspace.join("pid")) {
            break pid;
        }
        tokio::task::yield_now().await;
    };
    let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
    assert!(process.exists());
    stage.sessions.terminate(&session).await.unwrap();
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    assert!(status.is_empty() || status.contains("State:\tZ"), "the process is alive: {status}");
}

async fn terminating_twice_succeeds() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    stage.sessions.terminate(&session).await.unwrap();
    stage.sessions.terminate(&session).await.unwrap();
    let ends = kinds(&stage.events(&session)).iter().filter(|kind| *kind == "session.ended").count();
    assert_eq!(ends, 1);
    let ended = ended(&stage, &session).await;
    assert_eq!((ended.reason, ended.terminated_by), (SessionEndReason::Terminated, TerminatedBy::Daemon));
}

async fn crash_is_recorded_with_its_signal() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let crash = stage.say(&session, "/crash").await;
    let events = stage.until(&session, crash.sequence, |event| type_of(event) == "session.ended").await;
    let tail = kinds(&events);
    assert_eq!(tail[tail.len() - 3..], ["error", "turn.ended", "session.ended"]);
    assert_eq!(outcome(&events), Some(TurnOutcome::Failed));
    let ended = ended(&stage, &session).await;
    assert_eq!((ended.reason, ended.exit_code), (SessionEndReason::Error, None));
    assert_eq!(ended.message.unwrap(), "the agent process was killed by signal 6 during a turn");
}

async fn exit_code_is_recorded() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    stage.say(&session, "/exit 7").await;
    let ended = ended(&stage, &session).await;
    assert_eq!((ended.reason, ended.exit_code), (SessionEndReason::Error, Some(7)));
}

async fn clean_exit_completes_the_session() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    stage.say(&session, "/end").await;
    let ended = ended(&stage, &session).await;
    assert_eq!(
        (ended.reason, ended.terminated_by, ended.exit_code),
        (SessionEndReason::Completed, TerminatedBy::Agent, Some(0))
    );
    assert!(!kinds(&stage.events(&session)).contains(&"error".to_owned()));
}

async fn ended_session_accepts_no_commands() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    stage.sessions.terminate(&session).await.unwrap();
    let late = stage.sessions.send(&session, UserMessage::text("/echo late")).await;
    assert!(matches!(late, Err(SessionError::Ended(_))));
    assert!(matches!(stage.sessions.interrupt(&session).await, Err(SessionError::Ended(_))));
}

async fn terminating_resolves_pending_requests() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    stage.say(&session, "/permission").await;
    stage.until_type(&session, 0, "permission.requested").await;
    stage.sessions.terminate(&session).await.unwrap();
    let kinds = kinds(&stage.events(&session));
    assert_eq!(kinds[kinds.len() - 3..], ["permission.resolved", "turn.ended", "session.ended"]);
    assert!(stage.sessions.pending(&session).unwrap().is_empty());
}

async fn closing_the_host_interrupts_turns_and_keeps_sessions() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    stage.say(&session, "/slow 1000").await;
    stage.sessions.close_all().await;
    let events = stage.events(&session);
    assert_eq!(outcome(&events), Some(TurnOutcome::Interrupted));
    assert!(!kinds(&events).contains(&"session.ended".to_owned()));
    let late = stage.sessions.send(&session, UserMessage::text("/echo late")).await;
    assert!(matches!(late, Err(SessionError::ShuttingDown | SessionError::Ended(_))), "{late:?}");
}

async fn unknown_session_is_not_found() {
    let stage = Stage::new();
    let nobody = id("nobody");
    assert!(matches!(stage.sessions.terminate(&nobody).await, Err(SessionError::NotFound(_))));
    assert!(matches!(stage.sessions.journal(&nobody), Err(SessionError::NotFound(_))));
    assert!(matches!(stage.sessions.pending(&nobody), Err(SessionError::NotFound(_))));
}
