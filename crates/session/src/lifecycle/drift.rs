//! Counts of agent output that could not be parsed or interpreted, by agent and version.
//!
//! The output itself is in the journals. The counts are in the session index, shared by all processes. A version
//! whose counts grow uses another format than the version that was tested.

use std::collections::BTreeMap;

use protocol::{EventBody, ItemKind};
use serde::Serialize;
use store::DriftRecord;

/// How often output of an agent version was not understood, in all sessions of a data directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Drift {
    /// Lines that could not be parsed.
    pub unparsed: u64,
    /// Messages that were parsed but have an unknown type.
    pub unknown: u64,
}

/// Drift counts by agent and version.
pub type DriftByAgent = BTreeMap<String, BTreeMap<String, Drift>>;

/// Returns the count that an event adds; `None` when the event was understood.
pub(crate) fn drift_of_event(agent: &str, version: Option<&str>, body: &EventBody) -> Option<DriftRecord> {
    let (unparsed, unknown) = match body {
        EventBody::AgentUnparsed(_) => (1, 0),
        EventBody::ItemStarted(started) if started.item.kind == ItemKind::Unknown => (0, 1),
        _ => return None,
    };
    let version = version.unwrap_or("built-in").to_owned();
    Some(DriftRecord { agent: agent.to_owned(), version, unparsed, unknown })
}

/// Groups the counts by agent and version.
pub(crate) fn group_drift(records: Vec<DriftRecord>) -> DriftByAgent {
    let mut counts = DriftByAgent::new();
    for DriftRecord { agent, version, unparsed, unknown } in records {
        counts.entry(agent).or_default().insert(version, Drift { unparsed, unknown });
    }
    counts
}
