//! Permissions that are withdrawn, questions, interrupts.

use std::time::{Duration, Instant};

use protocol::{EventBody, TurnOutcome};

use crate::script::say;
use crate::stage::{Answer, World};

/// An agent that was asked to stop has stopped, or was ended, after this.
const STOPPED: Duration = Duration::from_secs(8);

pub(crate) async fn a_permission_is_withdrawn_with_its_turn(world: World) {
    if !world.player.asks() {
        return;
    }
    let stage = world.open().await;
    let sent = stage.send(say::COMMAND).await;
    stage.until(sent.sequence, |event| matches!(event, EventBody::PermissionRequested(_))).await;
    stage.sessions.interrupt(&stage.id).await.unwrap();
    let resolved = |event: &EventBody| matches!(event, EventBody::PermissionResolved(_));
    let ended = |event: &EventBody| matches!(event, EventBody::TurnEnded(_));
    let resolved = stage.until(sent.sequence, resolved).await;
    let ended = stage.until(sent.sequence, ended).await;
    assert!(resolved.sequence < ended.sequence);
    let EventBody::TurnEnded(turn) = ended.draft.body else { unreachable!() };
    assert_eq!(turn.outcome, Some(TurnOutcome::Interrupted));
    let next = stage.turn("hello", Answer::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    stage.close().await;
}

pub(crate) async fn a_question_is_answered(world: World) {
    let Some(mode) = world.player.asking_mode() else { return };
    let stage = world.open_with(mode, session::Timing::default()).await;
    let turn = stage.turn(say::QUESTION, Answer::Yes).await;
    assert!(turn.has(|event| matches!(event, EventBody::QuestionRequested(_))), "{turn:?}");
    assert!(turn.has(|event| matches!(event, EventBody::QuestionResolved(_))), "{turn:?}");
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.words().contains("Blue"), "{turn:?}");
    stage.close().await;
}

pub(crate) async fn a_turn_can_be_interrupted(world: World) {
    let stage = world.open().await;
    let sent = stage.send(say::SLOWLY).await;
    let speaks = |event: &EventBody| matches!(event, EventBody::ItemDelta(delta) if !delta.delta.is_empty());
    let spoke = stage.until(sent.sequence, speaks).await;
    let asked = Instant::now();
    stage.sessions.interrupt(&stage.id).await.unwrap();
    let ended = stage.until(spoke.sequence, |event| matches!(event, EventBody::TurnEnded(_))).await;
    assert!(asked.elapsed() < STOPPED, "it took {:?}", asked.elapsed());
    let EventBody::TurnEnded(turn) = ended.draft.body else { unreachable!() };
    assert_eq!(turn.outcome, Some(TurnOutcome::Interrupted));
    let next = stage.turn("hello", Answer::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    assert!(next.words().contains("You said: hello"), "{next:?}");
    stage.close().await;
}
