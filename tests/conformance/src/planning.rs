//! Plan mode: an agent that looks and plans changes nothing, whatever a person answers.

use protocol::{EventBody, TurnOutcome};
use session::Timing;

use crate::ability;
use crate::script::{COMMAND_OUTPUT, say};
use crate::stage::{Answer, Turn, World};

pub(crate) async fn nothing_is_changed_in_plan_mode(world: World) {
    if !world.player.plans() {
        return;
    }
    let stage = world.open_with("plan", Timing::default()).await;
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

fn has_changes(turn: &Turn) -> bool {
    turn.has(|event| match event {
        EventBody::WorkspaceChanged(changed) => {
            !(changed.added.is_empty() && changed.modified.is_empty() && changed.deleted.is_empty())
        }
        _ => false,
    })
}
