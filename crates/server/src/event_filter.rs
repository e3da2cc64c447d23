//! The event types that a client gets.
//!
//! The default is the types of the existing API (the contract), because a client generated from it may refuse unknown
//! types. Sequence numbers are always those of the journal: filtered events leave gaps, and a cursor means the same with
//! each filter.

use protocol::{Event, EventBody};
use serde::Deserialize;
use utoipa::ToSchema;

/// The event types that a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventFilter {
    /// All event types.
    All,
    /// Only the event types of the existing API.
    #[default]
    Contract,
}

impl EventFilter {
    /// Returns the filter with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "all" => Some(Self::All),
            "contract" => Some(Self::Contract),
            _ => None,
        }
    }

    /// Returns whether a client gets `event`.
    pub(crate) fn includes(self, event: &Event) -> bool {
        match self {
            Self::All => true,
            Self::Contract => is_contract_event(&event.draft.body),
        }
    }
}

fn is_contract_event(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::SessionStarted(_)
            | EventBody::SessionEnded(_)
            | EventBody::TurnStarted(_)
            | EventBody::TurnEnded(_)
            | EventBody::ItemStarted(_)
            | EventBody::ItemDelta(_)
            | EventBody::ItemCompleted(_)
            | EventBody::Error(_)
            | EventBody::PermissionRequested(_)
            | EventBody::PermissionResolved(_)
            | EventBody::QuestionRequested(_)
            | EventBody::QuestionResolved(_)
            | EventBody::AgentUnparsed(_)
    )
}
