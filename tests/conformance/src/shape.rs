//! The form of a turn: what happened in which order, without the words.
//!
//! Two agents that did the same thing have the same form. What each may do in its own way is left out: how it
//! thinks, what it reports of its state, how many pieces its words come in, what the host saw meanwhile.

use agents::{Output, skeleton};
use protocol::{Event, EventBody, ItemKind};

/// The form of what happened.
pub(crate) fn of(events: &[Event]) -> Vec<String> {
    let outputs: Vec<Output> = events.iter().filter_map(output).collect();
    skeleton(&outputs)
}

fn output(event: &Event) -> Option<Output> {
    match &event.draft.body {
        EventBody::ItemStarted(item) | EventBody::ItemCompleted(item)
            if matches!(item.item.kind, ItemKind::Message | ItemKind::ToolCall | ItemKind::ToolResult) =>
        {
            Some(Output::Event(event.draft.clone()))
        }
        EventBody::PermissionRequested(_)
        | EventBody::PermissionResolved(_)
        | EventBody::QuestionRequested(_)
        | EventBody::QuestionResolved(_)
        | EventBody::Error(_) => Some(Output::Event(event.draft.clone())),
        EventBody::TurnEnded(ended) => ended.outcome.map(Output::TurnEnded),
        _ => None,
    }
}
