//! Fixtures of the ledger tests: a ledger in a temporary directory, holds, limits and charges.

use std::path::Path;
use std::sync::Arc;

use protocol::{CallId, SessionId, Usage};
use store::{
    CallCharge, CallHold, CallSource, DataDir, Durability, LimitAmount, LimitScope, LimitWindow, OpenedLedger,
    ProcessOwner, SqliteLedger, UsageLimit,
};
use tempfile::TempDir;

use super::ManualClock;

pub(crate) const DAY: i64 = 86_400;

/// A ledger in a temporary data directory.
pub(crate) struct LedgerFixture {
    pub(crate) temporary: TempDir,
    pub(crate) owner: ProcessOwner,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) ledger: SqliteLedger,
}

impl LedgerFixture {
    pub(crate) fn new(durability: Durability) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let directory = DataDir::open(temporary.path()).unwrap();
        let owner = ProcessOwner::claim(&directory).unwrap();
        let clock = ManualClock::at(20_000 * DAY);
        let ledger = SqliteLedger::open(&directory, &owner, durability, clock.clone()).unwrap().ledger;
        Self { temporary, owner, clock, ledger }
    }

    pub(crate) fn directory(&self) -> DataDir {
        DataDir::open(self.temporary.path()).unwrap()
    }

    /// Opens the same ledger again for `owner`.
    pub(crate) fn open_again(&self, owner: &ProcessOwner, durability: Durability) -> OpenedLedger {
        SqliteLedger::open(&self.directory(), owner, durability, self.clock.clone()).unwrap()
    }
}

/// Opens a ledger at `path` with a new owner.
pub(crate) fn open(path: &Path, durability: Durability) -> (ProcessOwner, OpenedLedger) {
    let directory = DataDir::open(path).unwrap();
    let owner = ProcessOwner::claim(&directory).unwrap();
    let opened = SqliteLedger::open(&directory, &owner, durability, Arc::new(store::SystemClock)).unwrap();
    (owner, opened)
}

pub(crate) fn call(name: &str) -> CallId {
    CallId::new(format!("call_{name}")).unwrap()
}

pub(crate) fn hold(name: &str, picos: u64, limits: &[UsageLimit]) -> CallHold {
    CallHold {
        call: call(name),
        source: CallSource { system: "gateway".into(), run: "r1".into(), attempt: 1 },
        session: SessionId::new("s1").unwrap(),
        account: "a1".into(),
        user: Some("u1".into()),
        key: Some("k1".into()),
        agent: Some("mock".into()),
        model: "m1".into(),
        price_hash: "p1".into(),
        picos,
        tokens: 0,
        limits: limits.to_vec(),
        sent: false,
        fresh: true,
    }
}

pub(crate) fn limit(name: &'static str, scope: LimitScope, window: LimitWindow, most: LimitAmount) -> UsageLimit {
    UsageLimit { name, scope, window, max: most }
}

pub(crate) fn charge(picos: u64) -> CallCharge {
    CallCharge { usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() }, picos, estimated: false }
}
