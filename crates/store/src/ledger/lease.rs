//! Leases: an amount per session that is synced to disk before it is used, so that most calls need not wait for the
//! disk.
//!
//! A power cut may lose the last transactions, but never a lease. The part of a lease that is not recorded as used is
//! then held as an unknown call. A call waits for the disk only when the lease of its session is used up.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::LedgerError;
use super::call::CallHold;
use super::tables::WriteContext;
use crate::OwnerId;

/// The size of a block in multiples of the requested amount: one call in this many waits for the disk.
const CALLS_PER_BLOCK: u64 = 16;
/// The largest block, a hundred dollars. A power cut leaves at most this amount held.
const MAX_BLOCK_PICOS: u64 = 100_000_000_000_000;

/// The amount that each session may still use of its lease. The leases are on disk.
#[derive(Debug, Default)]
pub(super) struct Leases(HashMap<String, u64>);

/// An amount to add to the lease of a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeaseBlock {
    session: String,
    account: String,
    picos: u64,
}

impl Leases {
    /// Returns the block that must be granted before `hold`; `None` if the lease of its session is sufficient.
    pub(super) fn missing(&self, hold: &CallHold) -> Option<LeaseBlock> {
        if self.0.get(hold.session.as_str()).copied().unwrap_or(0) >= hold.picos {
            return None;
        }
        let wanted = hold.picos.saturating_mul(CALLS_PER_BLOCK);
        let picos = wanted.min(MAX_BLOCK_PICOS).max(hold.picos);
        Some(LeaseBlock { session: hold.session.to_string(), account: hold.account.to_string(), picos })
    }

    /// Adds a block that is on disk.
    pub(super) fn add(&mut self, block: LeaseBlock) {
        let unused = self.0.entry(block.session).or_default();
        *unused = unused.saturating_add(block.picos);
    }

    /// Subtracts the amount of `hold`.
    pub(super) fn use_amount(&mut self, hold: &CallHold) {
        if let Some(unused) = self.0.get_mut(hold.session.as_str()) {
            *unused = unused.saturating_sub(hold.picos);
        }
    }
}

/// Records that `block` is granted.
pub(super) fn grant(connection: &Connection, context: WriteContext<'_>, block: &LeaseBlock) -> Result<(), LedgerError> {
    let sql =
        "INSERT INTO lease (session, owner, boot, account, granted_picos, used_picos) VALUES (?1, ?2, ?3, ?4, ?5, 0)
        ON CONFLICT (session, owner) DO UPDATE
        SET granted_picos = granted_picos - used_picos + excluded.granted_picos, used_picos = 0";
    let picos = i64::try_from(block.picos).map_err(|_| LedgerError::TooMuch(block.picos))?;
    let values = params![block.session, context.owner.as_str(), context.boot, block.account, picos];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// Records that `picos` of the lease of `session` are used.
pub(super) fn draw(connection: &Connection, owner: &OwnerId, session: &str, picos: i64) -> Result<(), LedgerError> {
    let sql = "UPDATE lease SET used_picos = used_picos + ?1 WHERE session = ?2 AND owner = ?3";
    connection.prepare_cached(sql)?.execute(params![picos, session, owner.as_str()])?;
    Ok(())
}

/// Deletes the leases of a process that shuts down.
pub(super) fn give_back(connection: &Connection, context: WriteContext<'_>) -> Result<(), LedgerError> {
    connection.execute("DELETE FROM lease WHERE owner = ?1", [context.owner.as_str()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::{CallId, SessionId};

    use super::*;
    use crate::CallSource;

    fn hold(session: &str, picos: u64) -> CallHold {
        CallHold {
            call: CallId::new("call_1").unwrap(),
            source: CallSource { system: "gateway".into(), run: session.into(), attempt: 1 },
            session: SessionId::new(session).unwrap(),
            account: "a1".into(),
            user: None,
            key: None,
            agent: None,
            model: "m1".into(),
            price_hash: "p1".into(),
            picos,
            tokens: 0,
            limits: Vec::new(),
            sent: true,
            fresh: true,
        }
    }

    fn lease_and_use(leases: &mut Leases, hold: &CallHold) -> Option<u64> {
        let block = leases.missing(hold);
        let granted = block.as_ref().map(|block| block.picos);
        if let Some(block) = block {
            leases.add(block);
        }
        leases.use_amount(hold);
        granted
    }

    #[test]
    fn one_call_in_sixteen_waits_for_the_disk() {
        let (mut leases, call) = (Leases::default(), hold("s1", 10));
        assert_eq!((0..160).filter_map(|_| lease_and_use(&mut leases, &call)).count(), 10);
    }

    #[test]
    fn block_is_used_by_one_session_only() {
        let mut leases = Leases::default();
        assert_eq!(lease_and_use(&mut leases, &hold("s1", 40)), Some(640));
        assert_eq!(lease_and_use(&mut leases, &hold("s1", 600)), None);
        assert!(lease_and_use(&mut leases, &hold("s1", 1)).is_some());
        assert!(lease_and_use(&mut leases, &hold("s2", 1)).is_some());
    }

    #[test]
    fn block_covers_the_request_and_is_capped_at_a_hundred_dollars() {
        let leases = Leases::default();
        let block = |picos| leases.missing(&hold("s1", picos)).unwrap().picos;
        assert_eq!(block(MAX_BLOCK_PICOS / 4), MAX_BLOCK_PICOS);
        assert_eq!(block(MAX_BLOCK_PICOS * 3), MAX_BLOCK_PICOS * 3);
    }
}
