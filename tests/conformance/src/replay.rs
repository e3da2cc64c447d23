//! Replays a recorded session with the real agent and no model.

use std::sync::Arc;

use gateway::{ReplayUpstream, RequestNormalizer};
use protocol::{SessionId, TurnOutcome};
use session::{SessionOptions, SessionRecording, compare};
use store::{Ledger, UsageGrouping};

use crate::model_script::prompts;
use crate::scenario_session::{self, Scenario, UserReply};

pub(crate) async fn recorded_session_replays_identically(scenario: Scenario) {
    let session = scenario.open().await;
    for (words, answer) in
        [(prompts::COMMAND, UserReply::Yes), (prompts::FILE, UserReply::Yes), (prompts::REMEMBER, UserReply::Yes)]
    {
        let turn = session.turn(words, answer).await;
        assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    }
    session.sessions.terminate(&session.id).await.unwrap();

    let (data, normal) = (session.data(), RequestNormalizer::new(&[]).unwrap());
    let recording = SessionRecording::read(&data, &session.sessions.get(&session.id).unwrap()).unwrap();
    let upstream = Arc::new(ReplayUpstream::open(&data, &session.id, normal.clone()).unwrap());
    assert!(upstream.unused_calls() >= 5, "{} calls are on record", upstream.unused_calls());
    let id = SessionId::new("replayed").unwrap();
    let setting = session::ReplaySetup {
        upstream: upstream.clone(),
        policy: scenario_session::policy(scenario_session::MAX_REQUESTS),
        directory: None,
        options: SessionOptions::default(),
    };
    session.sessions.replay(id.clone(), &recording, setting, |_| {}).await.unwrap();
    let replayed = session.sessions.journal(&id).unwrap().after(0, usize::MAX).unwrap();
    let differences = compare(&recording.events, &replayed, &normal);
    assert!(differences.is_empty(), "{differences:#?}");
    assert_eq!(upstream.unused_calls(), 0, "recorded calls that were not replayed");
    let rows = session.ledger.usage(UsageGrouping::Session, 0).unwrap();
    let row = rows.iter().find(|row| row.name == id.as_str()).unwrap();
    assert_eq!((row.spent_picos, row.held_picos, row.unknown), (0, 0, 0));
    session.close().await;
}
