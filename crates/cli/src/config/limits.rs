//! The section `[limits]` of `viv.toml`: the host budget.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use session::HostBudget;
use store::FreeSpaceFloor;

use super::file::duration;

/// The most that this process spends for its sessions. An absent key has its default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsSection {
    /// Bytes of bodies and buffers in memory, for all connections of a session together.
    #[serde(deserialize_with = "size")]
    in_flight: Option<u64>,
    /// Time without a byte of a request body.
    #[serde(deserialize_with = "duration")]
    body_idle: Option<Duration>,
    /// Time for a whole request body.
    #[serde(deserialize_with = "duration")]
    body_total: Option<Duration>,
    /// Connections of a session at each of its two listeners.
    connections: Option<usize>,
    /// Permission requests and questions of a session that wait for an answer.
    pending_requests: Option<usize>,
    /// Bytes of a session's journal.
    #[serde(deserialize_with = "size")]
    journal: Option<u64>,
    /// Bytes of a session's stored bodies.
    #[serde(deserialize_with = "size")]
    bodies: Option<u64>,
    /// Bytes of the journal of a gateway key.
    #[serde(deserialize_with = "size")]
    key_journal: Option<u64>,
    /// Least free space of the data directory's file system.
    #[serde(deserialize_with = "size")]
    free_space: Option<u64>,
    /// Open sessions of this process.
    sessions: Option<usize>,
    /// Open sessions that one access token created.
    sessions_per_token: Option<usize>,
}

impl LimitsSection {
    /// Returns the host budget with the values of this section.
    pub(crate) fn budget(&self) -> HostBudget {
        let default = HostBudget::default();
        let mut storage = default.storage;
        storage.journal_bytes = self.journal.unwrap_or(storage.journal_bytes);
        storage.body_bytes = self.bodies.unwrap_or(storage.body_bytes);
        if let Some(bytes) = self.free_space {
            // A configured floor applies to disks of any size.
            storage.free_space = FreeSpaceFloor { bytes, percent: 100 };
        }
        let in_flight = self.in_flight.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        HostBudget {
            in_flight_bytes: in_flight.unwrap_or(default.in_flight_bytes),
            body_idle: self.body_idle.unwrap_or(default.body_idle),
            body_total: self.body_total.unwrap_or(default.body_total),
            connections: self.connections.unwrap_or(default.connections),
            pending_requests: self.pending_requests.unwrap_or(default.pending_requests),
            storage,
            key_journal_bytes: self.key_journal.unwrap_or(default.key_journal_bytes),
            sessions: self.sessions.unwrap_or(default.sessions),
            sessions_per_token: self.sessions_per_token.unwrap_or(default.sessions_per_token),
        }
    }
}

fn size<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(value)?;
    policy::size_from_text(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_keys_have_their_defaults() {
        assert_eq!(LimitsSection::default().budget(), HostBudget::default());
    }

    #[test]
    fn written_keys_replace_the_defaults() {
        let text =
            "in_flight = \"8MiB\"\nbody_idle = \"5s\"\njournal = \"1MiB\"\nfree_space = \"2GiB\"\nsessions = 3\n";
        let budget = toml::from_str::<LimitsSection>(text).unwrap().budget();
        assert_eq!((budget.in_flight_bytes, budget.body_idle, budget.sessions), (8 << 20, Duration::from_secs(5), 3));
        assert_eq!(budget.storage.journal_bytes, 1 << 20);
        assert_eq!(budget.storage.free_space, FreeSpaceFloor { bytes: 2 << 30, percent: 100 });
    }

    #[test]
    fn unknown_key_is_an_error() {
        assert!(toml::from_str::<LimitsSection>("journals = \"1MiB\"").is_err());
        assert!(toml::from_str::<LimitsSection>("journal = \"1 cow\"").is_err());
    }
}
