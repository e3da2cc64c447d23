//! What was not understood of agents, counted by agent and version.
//!
//! The journals hold what it was; the counts outlive the process that made them, and every process adds to the same.

use base::lock;
use rusqlite::{Row, params};

use super::SessionIndex;
use crate::SessionIndexError;

/// How often one version of an agent was not understood, in all sessions of a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftRecord {
    /// The agent.
    pub agent: String,
    /// Its version.
    pub version: String,
    /// Lines that could not be read.
    pub unparsed: u64,
    /// Messages that could be read and have no meaning here.
    pub unknown: u64,
}

impl SessionIndex {
    /// Adds `more` to what is counted of its agent and version. Nobody waits for the disk: a count that goes with the
    /// power can be made again from the journals.
    pub fn count_drift(&self, more: &DriftRecord) -> Result<(), SessionIndexError> {
        let sql = "INSERT INTO drift (agent, version, unparsed, unknown) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (agent, version) DO UPDATE
             SET unparsed = unparsed + excluded.unparsed, unknown = unknown + excluded.unknown";
        let connection = lock(&self.connection);
        let values = params![more.agent, more.version, more.unparsed, more.unknown];
        connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Everything that is counted, by agent and version.
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
