//! Durability without waiting: a block of money per session that is on disk before it is used.
//!
//! A power cut may take the last transactions with it, but never a lease: what a session was granted and had
//! not recorded as used is then held as unknown. So a call waits for the disk only when its session's block
//! is used up.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::LedgerError;
use super::book::Hand;
use super::hold::CallHold;
use crate::OwnerId;

/// A block is so many times what was asked for: one wait in so many calls.
const CALLS_A_BLOCK: u64 = 16;
/// But not more than a hundred dollars, which a power cut would leave held.
const MAX_BLOCK_PICOS: u64 = 100_000_000_000_000;

/// What each session may still use of its block, by what is surely on disk.
#[derive(Debug, Default)]
pub(super) struct Leases(HashMap<String, u64>);

/// A block that a session needs before its holds can be granted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    session: String,
    account: String,
    picos: u64,
}

impl Leases {
    /// The block that `hold` needs first; none if its session still has enough.
    pub(super) fn missing(&self, hold: &CallHold) -> Option<Block> {
        if self.0.get(hold.session.as_str()).copied().unwrap_or(0) >= hold.picos {
            return None;
        }
        let many = hold.picos.saturating_mul(CALLS_A_BLOCK);
        let picos = many.min(MAX_BLOCK_PICOS).max(hold.picos);
        Some(Block { session: hold.session.to_string(), account: hold.account.to_string(), picos })
    }

    /// Takes over a block that is on disk.
    pub(super) fn granted(&mut self, block: Block) {
        let has = self.0.entry(block.session).or_default();
        *has = has.saturating_add(block.picos);
    }

    /// Takes what `hold` uses.
    pub(super) fn used(&mut self, hold: &CallHold) {
        if let Some(has) = self.0.get_mut(hold.session.as_str()) {
            *has = has.saturating_sub(hold.picos);
        }
    }
}

/// Writes `block` down.
pub(super) fn grant(connection: &Connection, hand: Hand<'_>, block: &Block) -> Result<(), LedgerError> {
    let sql =
        "INSERT INTO lease (session, owner, boot, account, granted_picos, used_picos) VALUES (?1, ?2, ?3, ?4, ?5, 0)
        ON CONFLICT (session, owner) DO UPDATE
        SET granted_picos = granted_picos - used_picos + excluded.granted_picos, used_picos = 0";
    let picos = i64::try_from(block.picos).map_err(|_| LedgerError::TooMuch(block.picos))?;
    let values = params![block.session, hand.owner.as_str(), hand.boot, block.account, picos];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// Notes that so much of a session's block is used.
pub(super) fn draw(connection: &Connection, owner: &OwnerId, session: &str, picos: i64) -> Result<(), LedgerError> {
    let sql = "UPDATE lease SET used_picos = used_picos + ?1 WHERE session = ?2 AND owner = ?3";
    connection.prepare_cached(sql)?.execute(params![picos, session, owner.as_str()])?;
    Ok(())
}

/// Gives back every block of an owner that leaves in order.
pub(super) fn give_back(connection: &Connection, hand: Hand<'_>) -> Result<(), LedgerError> {
    connection.execute("DELETE FROM lease WHERE owner = ?1", [hand.owner.as_str()])?;
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
            limits: Vec::new(),
            sent: true,
            fresh: true,
        }
    }

    fn take(leases: &mut Leases, hold: &CallHold) -> Option<u64> {
        let block = leases.missing(hold);
        let granted = block.as_ref().map(|block| block.picos);
        if let Some(block) = block {
            leases.granted(block);
        }
        leases.used(hold);
        granted
    }

    #[test]
    fn one_call_in_sixteen_waits_for_the_disk() {
        let (mut leases, call) = (Leases::default(), hold("s1", 10));
        assert_eq!((0..160).filter_map(|_| take(&mut leases, &call)).count(), 10);
    }

    #[test]
    fn a_block_is_of_one_session() {
        let mut leases = Leases::default();
        assert_eq!(take(&mut leases, &hold("s1", 40)), Some(640));
        assert_eq!(take(&mut leases, &hold("s1", 600)), None);
        assert!(take(&mut leases, &hold("s1", 1)).is_some());
        assert!(take(&mut leases, &hold("s2", 1)).is_some());
    }

    #[test]
    fn a_block_is_never_less_than_asked_and_seldom_more_than_a_hundred_dollars() {
        let leases = Leases::default();
        let block = |picos| leases.missing(&hold("s1", picos)).unwrap().picos;
        assert_eq!(block(MAX_BLOCK_PICOS / 4), MAX_BLOCK_PICOS);
        assert_eq!(block(MAX_BLOCK_PICOS * 3), MAX_BLOCK_PICOS * 3);
    }
}
