//! Which types of events a client is served.
//!
//! Everything, unless it asked for less: a client that was generated from the contract may refuse a type that is not in it.
//! Numbers stay those of the journal, so that what is left out leaves gaps in them, and a cursor means the same either way.

use protocol::{Event, EventBody};
use serde::Deserialize;
use utoipa::ToSchema;

/// Which types of events a client is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventFilter {
    /// Everything that is on record.
    #[default]
    All,
    /// What the contract knows, and nothing of ours.
    Contract,
}

impl EventFilter {
    /// As it is typed.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "all" => Some(Self::All),
            "contract" => Some(Self::Contract),
            _ => None,
        }
    }

    /// Whether a client is served `event`.
    pub(crate) fn has(self, event: &Event) -> bool {
        match self {
            Self::All => true,
            Self::Contract => is_of_the_contract(&event.draft.body),
        }
    }
}

fn is_of_the_contract(body: &EventBody) -> bool {
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
