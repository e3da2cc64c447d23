//! Effects of permission answers: an allowed command runs once, a denied or unanswered one never.

use protocol::{Event, EventBody, ItemKind, ItemStatus, PermissionStatus, TurnOutcome};

/// Events of one turn.
#[derive(Debug, Default)]
struct Done {
    allowed: usize,
    refused: usize,
    /// Commands that ran, and commands that did not.
    run: usize,
    left_out: usize,
}

/// Checks every turn of a session that only runs commands with permission; returns the number of commands that ran.
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
