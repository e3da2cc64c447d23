//! Plans: an agent in plan mode changes nothing, whatever a person answers; and what an agent means to do is told.

use protocol::{ContentPart, EventBody, ItemKind, TurnOutcome};
use serde_json::json;
use session::SessionTimeouts;

use crate::ability;
use crate::script::{COMMAND_OUTPUT, say};
use crate::stage::{Answer, Turn, World};

pub(crate) async fn nothing_is_changed_in_plan_mode(world: World) {
    if !world.player.plans() {
        return;
    }
    let stage = world.open_with("plan", SessionTimeouts::default()).await;
    for words in [say::COMMAND, say::FILE] {
        let turn = stage.turn(words, Answer::Yes).await;
        assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
        assert!(!has_changes(&turn), "{turn:?}");
        assert!(!turn.words().contains(COMMAND_OUTPUT), "{turn:?}");
    }
    let next = stage.turn("hello", Answer::Yes).await;
    // One agent puts a mark before what is said to it in this mode.
    assert!(next.words().ends_with("hello"), "{next:?}");
    ability::note_plan(stage.player.agent);
    stage.close().await;
}

/// The steps of a plan come as data, the same from every agent, however its tool has them.
pub(crate) async fn a_plan_is_told(world: World) {
    if world.player.plan().is_none() {
        return;
    }
    let (mode, model) = (world.player.mode(), world.player.planner());
    let stage = world.open_as(mode, SessionTimeouts::default(), |_, request| request.model = model).await;
    let turn = stage.turn(say::PLAN, Answer::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.words().contains("It is planned."), "{turn:?}");
    let steps = json!([{"text": "look", "status": "completed"}, {"text": "write", "status": "in_progress"}]);
    let is_plan = |event: &EventBody| match event {
        EventBody::ItemCompleted(done) if done.item.kind == ItemKind::Status => match &done.item.content[..] {
            [ContentPart::Status { label, .. }, ContentPart::Json { json }] => label == "Plan" && *json == steps,
            _ => false,
        },
        _ => false,
    };
    assert_eq!(turn.has(is_plan), stage.player.tells_plans(), "{turn:?}");
    stage.close().await;
}

fn has_changes(turn: &Turn) -> bool {
    turn.has(|event| match event {
        EventBody::WorkspaceChanged(changed) => {
            !(changed.added.is_empty() && changed.modified.is_empty() && changed.deleted.is_empty())
        }
        _ => false,
    })
}
