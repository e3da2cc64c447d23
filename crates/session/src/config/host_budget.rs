//! The host budget: the most memory, disk space, connections and sessions that the host process spends.
//!
//! It protects the host process, which all sessions share, so the operator of the host sets it and a session's policy
//! cannot. Most limits apply to each session; `free_space` and `sessions` apply to the whole host.

use std::time::Duration;

use base::{ByteBudget, HostLimit};
use egress::EgressLimits;
use gateway::GatewayLimits;
use policy::size_to_text;
use protocol::{EnforcedValue, KeyEnforcement};
use store::{FreeSpaceFloor, StorageLimits};

/// The most that the host process spends for its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostBudget {
    /// Bytes of bodies and buffers in memory, for all connections of a session together.
    pub in_flight_bytes: usize,
    /// Time without a byte of a request body, and time to wait for room in memory.
    pub body_idle: Duration,
    /// Time for a whole request body.
    pub body_total: Duration,
    /// Connections of a session, at the gateway and at the egress proxy each. Further ones wait.
    pub connections: usize,
    /// Permission requests and questions of a session that wait for an answer. Further ones are rejected.
    pub pending_requests: usize,
    /// Disk space of a session, and the free space that must be left.
    pub storage: StorageLimits,
    /// Bytes of the journal of a gateway key, which lives longer than a session.
    pub key_journal_bytes: u64,
    /// Open sessions of this host.
    pub sessions: usize,
    /// Open sessions that one access token created.
    pub sessions_per_token: usize,
}

impl Default for HostBudget {
    fn default() -> Self {
        let gateway = GatewayLimits::default();
        Self {
            in_flight_bytes: gateway.in_flight_bytes,
            body_idle: gateway.body_idle,
            body_total: gateway.body_total,
            connections: gateway.connections,
            pending_requests: 64,
            storage: StorageLimits::default(),
            key_journal_bytes: 8 << 30,
            sessions: 16_384,
            sessions_per_token: 256,
        }
    }
}

impl HostBudget {
    /// Returns every limit with its value as in `viv.toml`.
    pub fn values(&self) -> Vec<(HostLimit, String)> {
        let StorageLimits { journal_bytes, body_bytes, free_space } = self.storage;
        let FreeSpaceFloor { bytes, percent } = free_space;
        let free_space = match percent {
            100.. => size_to_text(bytes),
            _ => format!("{}, at most {percent}% of the file system", size_to_text(bytes)),
        };
        let value = |limit| match limit {
            HostLimit::InFlight => size_to_text(self.in_flight_bytes as u64),
            HostLimit::BodyIdle => duration_to_text(self.body_idle),
            HostLimit::BodyTotal => duration_to_text(self.body_total),
            HostLimit::Connections => self.connections.to_string(),
            HostLimit::PendingRequests => self.pending_requests.to_string(),
            HostLimit::Journal => size_to_text(journal_bytes),
            HostLimit::Bodies => size_to_text(body_bytes),
            HostLimit::KeyJournal => size_to_text(self.key_journal_bytes),
            HostLimit::FreeSpace => free_space.clone(),
            HostLimit::Sessions => self.sessions.to_string(),
            HostLimit::SessionsPerToken => self.sessions_per_token.to_string(),
        };
        HostLimit::ALL.iter().map(|limit| (*limit, value(*limit))).collect()
    }

    /// Returns the row of `policy.effective` that lists the limits.
    pub(crate) fn effective_row(&self) -> KeyEnforcement {
        let value = self.values().into_iter().map(|(limit, value)| (limit.key().to_owned(), value)).collect();
        KeyEnforcement::enforced("the host process (`[limits]` in viv.toml)")
            .with_value(EnforcedValue::HostBudget(value))
    }

    /// Returns the budget of one session for bytes in memory.
    pub(crate) fn in_flight(&self) -> ByteBudget {
        ByteBudget::new(self.in_flight_bytes)
    }

    /// Returns `limits` with the limits of this budget.
    pub fn gateway_limits(&self, limits: GatewayLimits) -> GatewayLimits {
        GatewayLimits {
            connections: self.connections,
            in_flight_bytes: self.in_flight_bytes,
            body_idle: self.body_idle,
            body_total: self.body_total,
            ..limits
        }
    }

    /// Returns the limits of the egress proxy for one session.
    pub(crate) fn egress_limits(&self) -> EgressLimits {
        EgressLimits { connections: self.connections, ..EgressLimits::default() }
    }
}

fn duration_to_text(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".to_owned(),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_listed_with_its_default() {
        let rows: Vec<String> = HostBudget::default()
            .values()
            .into_iter()
            .map(|(limit, value)| format!("{} = {value}", limit.key()))
            .collect();
        insta::assert_snapshot!(rows.join("\n"));
    }
}
