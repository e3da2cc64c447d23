//! What agents said that nobody here understood, counted by agent and version.
//!
//! What it was is kept in the journals; the counts are kept beside the list of sessions, for every process. A version
//! whose count grows speaks otherwise than the one that was measured.

use std::collections::BTreeMap;

use protocol::{EventBody, ItemKind};
use serde::Serialize;
use store::DriftRecord;

/// How often a version of an agent was not understood, in all sessions of a data directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Drift {
    /// Lines that could not be read.
    pub unparsed: u64,
    /// Messages that could be read and have no meaning here.
    pub unknown: u64,
}

/// The counts of every agent of which there is something to tell, by version.
pub type DriftByAgent = BTreeMap<String, BTreeMap<String, Drift>>;

/// What an event of an agent adds to its count; nothing, if it was understood.
pub(crate) fn of(agent: &str, version: Option<&str>, body: &EventBody) -> Option<DriftRecord> {
    let (unparsed, unknown) = match body {
        EventBody::AgentUnparsed(_) => (1, 0),
        EventBody::ItemStarted(started) if started.item.kind == ItemKind::Unknown => (0, 1),
        _ => return None,
    };
    let version = version.unwrap_or("built-in").to_owned();
    Some(DriftRecord { agent: agent.to_owned(), version, unparsed, unknown })
}

/// What is counted, by agent and version.
pub(crate) fn by_agent(records: Vec<DriftRecord>) -> DriftByAgent {
    let mut counts = DriftByAgent::new();
    for DriftRecord { agent, version, unparsed, unknown } in records {
        counts.entry(agent).or_default().insert(version, Drift { unparsed, unknown });
    }
    counts
}
