//! Durability without waiting: a block of money per session that is on disk before it is used.
//!
//! A power cut may take the last transactions with it, but never a lease: what a session was granted and had
//! not recorded as used is then held as unknown. So a call waits for the disk only when its session's block
//! is used up.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::LedgerError;
use super::book::Hand;
use super::hold::Hold;

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
    /// The blocks that `holds` need; none if every session still has enough.
    pub(super) fn missing<'a>(&self, holds: impl Iterator<Item = &'a Hold>) -> Vec<Block> {
        let mut needs: HashMap<&str, Block> = HashMap::new();
        for hold in holds {
            let (session, account) = (hold.session.to_string(), hold.account.clone());
            let need = needs.entry(hold.session.as_str()).or_insert(Block { session, account, picos: 0 });
            need.picos = need.picos.saturating_add(hold.picos);
        }
        let has = |block: &Block| self.0.get(&block.session).copied().unwrap_or(0);
        let mut blocks: Vec<Block> = needs.into_values().filter(|need| has(need) < need.picos).collect();
        for block in &mut blocks {
            let many = block.picos.saturating_mul(CALLS_A_BLOCK);
            block.picos = many.min(MAX_BLOCK_PICOS).max(block.picos);
        }
        blocks
    }

    /// Takes over what a committed transaction granted and used.
    pub(super) fn moved(&mut self, blocks: Vec<Block>, used: &[&Hold]) {
        for block in blocks {
            let has = self.0.entry(block.session).or_default();
            *has = has.saturating_add(block.picos);
        }
        for hold in used {
            if let Some(has) = self.0.get_mut(hold.session.as_str()) {
                *has = has.saturating_sub(hold.picos);
            }
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

/// Notes that `hold` uses a part of its session's block.
pub(super) fn draw(connection: &Connection, hand: Hand<'_>, hold: &Hold) -> Result<(), LedgerError> {
    let sql = "UPDATE lease SET used_picos = used_picos + ?1 WHERE session = ?2 AND owner = ?3";
    let picos = super::hold::checked(hold.picos)?;
    connection.prepare_cached(sql)?.execute(params![picos, hold.session.as_str(), hand.owner.as_str()])?;
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
    use crate::Source;

    fn hold(session: &str, picos: u64) -> Hold {
        Hold {
            call: CallId::new("call_1").unwrap(),
            source: Source { system: "gateway".into(), run: session.into(), attempt: 1 },
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
        }
    }

    #[test]
    fn one_call_in_sixteen_waits_for_the_disk() {
        let (mut leases, call) = (Leases::default(), hold("s1", 10));
        let mut waits = 0;
        for _ in 0..160 {
            let blocks = leases.missing([&call].into_iter());
            waits += blocks.len();
            leases.moved(blocks, &[&call]);
        }
        assert_eq!(waits, 10);
    }

    #[test]
    fn a_block_covers_a_whole_batch_and_no_other_session() {
        let (mut leases, [first, second, other]) = (Leases::default(), [hold("s1", 10), hold("s1", 30), hold("s2", 1)]);
        let blocks = leases.missing([&first, &second].into_iter());
        assert_eq!(blocks, [Block { session: "s1".into(), account: "a1".into(), picos: 640 }]);
        leases.moved(blocks, &[&first, &second]);
        assert!(leases.missing([&hold("s1", 600)].into_iter()).is_empty());
        assert_eq!(leases.missing([&hold("s1", 601)].into_iter()).len(), 1);
        assert_eq!(leases.missing([&other].into_iter()).len(), 1);
    }

    #[test]
    fn a_block_is_never_less_than_asked_and_seldom_more_than_a_hundred_dollars() {
        let leases = Leases::default();
        let block = |picos| leases.missing([&hold("s1", picos)].into_iter())[0].picos;
        assert_eq!(block(MAX_BLOCK_PICOS / 4), MAX_BLOCK_PICOS);
        assert_eq!(block(MAX_BLOCK_PICOS * 3), MAX_BLOCK_PICOS * 3);
    }
}
