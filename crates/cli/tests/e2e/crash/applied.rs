//! What agents made of the answers they got: an answer that was given is applied once, and one that was not, never.

use protocol::{Event, EventBody, ItemKind, ItemStatus, PermissionStatus, TurnOutcome};

/// What happened in one turn.
#[derive(Debug, Default)]
struct Done {
    allowed: usize,
    refused: usize,
    /// Commands that were run, and commands that were not.
    run: usize,
    left_out: usize,
}

/// Checks every turn of a session that does nothing but run commands it must ask for; so many were run.
pub(super) fn check(id: &str, events: &[Event]) -> usize {
    let (mut turn, mut run) = (Done::default(), 0);
    for event in events {
        match &event.draft.body {
            EventBody::TurnStarted(_) => turn = Done::default(),
            EventBody::PermissionResolved(asked) if asked.status == PermissionStatus::Accept => turn.allowed += 1,
            EventBody::PermissionResolved(_) => turn.refused += 1,
            EventBody::ItemCompleted(done) if done.item.kind == ItemKind::ToolResult => match done.item.status {
                ItemStatus::Completed => turn.run += 1,
                _ => turn.left_out += 1,
            },
            EventBody::TurnEnded(ended) => {
                assert!(turn.run <= turn.allowed, "{id}: more was run than was allowed: {turn:?}");
                if ended.outcome == Some(TurnOutcome::Completed) {
                    let applied = turn.run == turn.allowed && turn.left_out == turn.refused;
                    assert!(applied, "{id}: an answer was not applied, or twice: {turn:?}");
                }
                run += turn.run;
            }
            _ => {}
        }
    }
    run
}
