//! What agents said that nobody here understood, counted by agent and version.
//!
//! Everything is kept in the journals; the counts are of this process alone. A version whose count grows speaks
//! otherwise than the one that was measured.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use protocol::{EventBody, ItemKind};
use serde::Serialize;

/// How often a version of an agent was not understood, since this process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Drift {
    /// Lines that could not be read.
    pub unparsed: u64,
    /// Messages that could be read and have no meaning here.
    pub unknown: u64,
}

/// The counts of every agent, by its name and version.
#[derive(Debug, Default)]
pub(crate) struct DriftCounts(Mutex<BTreeMap<(String, String), Drift>>);

impl DriftCounts {
    /// Counts an event of an agent, if it tells of something that was not understood.
    pub(crate) fn observe(&self, agent: &str, version: Option<&str>, body: &EventBody) {
        let one = match body {
            EventBody::AgentUnparsed(_) => Drift { unparsed: 1, unknown: 0 },
            EventBody::ItemStarted(started) if started.item.kind == ItemKind::Unknown => {
                Drift { unparsed: 0, unknown: 1 }
            }
            _ => return,
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((agent.to_owned(), version.unwrap_or("built-in").to_owned())).or_default();
        count.unparsed += one.unparsed;
        count.unknown += one.unknown;
    }

    /// The counts of one agent, by version.
    pub(crate) fn of(&self, agent: &str) -> BTreeMap<String, Drift> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = counts.iter().filter(|((name, _), _)| name == agent);
        ours.map(|((_, version), drift)| (version.clone(), *drift)).collect()
    }
}
