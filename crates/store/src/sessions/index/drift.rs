//! Counts of agent output that could not be understood, by agent and version.
//!
//! The output itself is in the journals. All processes add to the same counts.

use base::lock;
use rusqlite::{Row, params};

use super::SessionIndex;
use crate::SessionIndexError;

/// The counts of one version of an agent over all sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftRecord {
    /// The agent.
    pub agent: String,
    /// The version of the agent.
    pub version: String,
    /// Number of lines that could not be parsed.
    pub unparsed: u64,
    /// Number of messages of unknown types.
    pub unknown: u64,
}

impl SessionIndex {
    /// Adds `more` to the counts of its agent and version, without syncing: lost counts can be rebuilt from the
    /// journals.
    pub fn count_drift(&self, more: &DriftRecord) -> Result<(), SessionIndexError> {
        let sql = "INSERT INTO drift (agent, version, unparsed, unknown) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (agent, version) DO UPDATE
             SET unparsed = unparsed + excluded.unparsed, unknown = unknown + excluded.unknown";
        let connection = lock(&self.connection);
        let values = params![more.agent, more.version, more.unparsed, more.unknown];
        connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Returns all counts, ordered by agent and version.
    pub fn drift(&self) -> Result<Vec<DriftRecord>, SessionIndexError> {
        let connection = lock(&self.connection);
        let sql = "SELECT agent, version, unparsed, unknown FROM drift ORDER BY agent, version";
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([], read)?.collect::<Result<_, _>>();
        Ok(rows?)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<DriftRecord> {
    Ok(DriftRecord { agent: row.get(0)?, version: row.get(1)?, unparsed: row.get(2)?, unknown: row.get(3)? })
}
