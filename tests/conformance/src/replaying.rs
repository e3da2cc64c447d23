//! A recorded session, played again by the real agent with no model.

use std::sync::Arc;

use gateway::{ReplayUpstream, RequestNormalizer};
use protocol::{SessionId, TurnOutcome};
use session::{SessionOptions, SessionRecording, compare};
use store::{Ledger, UsageGrouping};

use crate::script::say;
use crate::stage::{self, Answer, World};

pub(crate) async fn it_plays_the_same_again_from_the_record(world: World) {
    let stage = world.open().await;
    for (words, answer) in [(say::COMMAND, Answer::Yes), (say::FILE, Answer::Yes), (say::NUMBER, Answer::Yes)] {
        let turn = stage.turn(words, answer).await;
        assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    }
    stage.sessions.terminate(&stage.id).await.unwrap();

    let (data, normal) = (stage.data(), RequestNormalizer::new(&[]).unwrap());
    let recording = SessionRecording::read(&data, &stage.sessions.get(&stage.id).unwrap()).unwrap();
    let tape = Arc::new(ReplayUpstream::open(&data, &stage.id, normal.clone()).unwrap());
    assert!(tape.unused_calls() >= 5, "{} calls are on record", tape.unused_calls());
    let id = SessionId::new("replayed").unwrap();
    let setting = session::ReplaySetup {
        upstream: tape.clone(),
        policy: stage::policy(stage::MAX_REQUESTS),
        directory: None,
        options: SessionOptions::default(),
    };
    stage.sessions.replay(id.clone(), &recording, setting, |_| {}).await.unwrap();
    let replayed = stage.sessions.journal(&id).unwrap().after(0, usize::MAX).unwrap();
    let differences = compare(&recording.events, &replayed, &normal);
    assert!(differences.is_empty(), "{differences:#?}");
    assert_eq!(tape.unused_calls(), 0, "calls that nobody made again");
    let rows = stage.ledger.usage(UsageGrouping::Session, 0).unwrap();
    let row = rows.iter().find(|row| row.name == id.as_str()).unwrap();
    assert_eq!((row.spent_picos, row.held_picos, row.unknown), (0, 0, 0));
    stage.close().await;
}
