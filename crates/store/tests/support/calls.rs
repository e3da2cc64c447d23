//! Calls to be held and charged.

use std::path::Path;
use std::sync::Arc;

use protocol::{CallId, SessionId, Usage};
use store::{Charge, DataDir, Durability, Hold, Limit, Most, OpenedLedger, Owner, Scope, Source, SqliteLedger, Window};
use tempfile::TempDir;

use super::HandClock;

pub(crate) const DAY: i64 = 86_400;

/// A ledger in a data directory of its own.
pub(crate) struct Place {
    pub(crate) temporary: TempDir,
    pub(crate) owner: Owner,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) ledger: SqliteLedger,
}

impl Place {
    pub(crate) fn new(durability: Durability) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let directory = DataDir::open(temporary.path()).unwrap();
        let owner = Owner::claim(&directory).unwrap();
        let clock = HandClock::at(20_000 * DAY);
        let ledger = SqliteLedger::open(&directory, &owner, durability, clock.clone()).unwrap().ledger;
        Self { temporary, owner, clock, ledger }
    }

    pub(crate) fn directory(&self) -> DataDir {
        DataDir::open(self.temporary.path()).unwrap()
    }

    /// Opens the same ledger once more.
    pub(crate) fn again(&self, owner: &Owner, durability: Durability) -> OpenedLedger {
        SqliteLedger::open(&self.directory(), owner, durability, self.clock.clone()).unwrap()
    }
}

/// Opens a ledger at `path` for an owner of its own.
pub(crate) fn open(path: &Path, durability: Durability) -> (Owner, OpenedLedger) {
    let directory = DataDir::open(path).unwrap();
    let owner = Owner::claim(&directory).unwrap();
    let opened = SqliteLedger::open(&directory, &owner, durability, Arc::new(store::SystemClock)).unwrap();
    (owner, opened)
}

pub(crate) fn call(name: &str) -> CallId {
    CallId::new(format!("call_{name}")).unwrap()
}

pub(crate) fn hold(name: &str, picos: u64, limits: &[Limit]) -> Hold {
    Hold {
        call: call(name),
        source: Source { system: "gateway".into(), run: "r1".into(), attempt: 1 },
        session: SessionId::new("s1").unwrap(),
        account: "a1".into(),
        user: Some("u1".into()),
        key: Some("k1".into()),
        agent: Some("mock".into()),
        model: "m1".into(),
        price_hash: "p1".into(),
        picos,
        limits: limits.to_vec(),
        sent: false,
        fresh: true,
    }
}

pub(crate) fn limit(name: &'static str, scope: Scope, window: Window, most: Most) -> Limit {
    Limit { name, scope, window, most }
}

pub(crate) fn charge(picos: u64) -> Charge {
    Charge { usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() }, picos }
}
