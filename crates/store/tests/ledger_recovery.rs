//! The ledger after the death of a process, a power cut and a full disk.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;

use store::{
    CallHold, CallProgress, Durability, HoldChange, Ledger, LedgerError, LimitAmount, LimitScope, LimitWindow,
    ProcessOwner,
};
use support::calls::{LedgerFixture, call, charge, hold, limit, open};

#[test]
fn calls_of_a_dead_process_are_released_or_unknown() {
    for durability in [Durability::Full, Durability::Lease, Durability::Normal] {
        let fixture = LedgerFixture::new(durability);
        let budget = [limit("budget_usd", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(100))];
        let gone = ProcessOwner::claim(&fixture.directory()).unwrap();
        let theirs = fixture.open_again(&gone, durability).ledger;
        theirs.hold(hold("intent", 40, &budget)).wait().unwrap();
        theirs.hold(hold("sent", 20, &budget)).wait().unwrap();
        theirs.advance(call("sent"), CallProgress::Sent).wait().unwrap();
        theirs.hold(CallHold { sent: true, ..hold("streaming", 30, &budget) }).wait().unwrap();
        theirs.advance(call("streaming"), CallProgress::Streaming).wait().unwrap();
        // A dead process leaves the last amount of a hold, not the first.
        theirs.adjust(call("sent"), HoldChange { picos: 15, tokens: 0, limits: Vec::new() }).wait().unwrap();
        fixture.ledger.hold(hold("mine", 10, &budget)).wait().unwrap();
        let again = || fixture.open_again(&fixture.owner, Durability::Full);

        let opened = again();
        assert_eq!((opened.released, opened.unknown), (0, 0), "the process is alive");
        drop((theirs, gone));
        let opened = again();
        assert_eq!((opened.released, opened.unknown), (1, 2));
        let opened = again();
        assert_eq!((opened.released, opened.unknown), (0, 0));

        let unknowns = opened.ledger.unknowns().unwrap();
        assert_eq!(unknowns.iter().map(|call| call.call.as_str()).collect::<Vec<_>>(), ["call_sent", "call_streaming"]);
        let Err(LedgerError::Refused(refused)) = fixture.ledger.hold(hold("more", 46, &budget)).wait() else {
            panic!()
        };
        assert_eq!((refused.spent, refused.held), (0, 55));
        fixture.ledger.settle(call("sent"), charge(20)).wait().unwrap();
        fixture.ledger.fail(call("streaming"), "nothing came".into()).wait().unwrap();
        assert!(fixture.ledger.unknowns().unwrap().is_empty());
        fixture.ledger.hold(hold("more", 70, &budget)).wait().unwrap();
        assert_eq!(fixture.ledger.audit().unwrap().wrong_totals, 0);
    }
}

#[test]
fn unused_lease_is_held_after_a_power_cut() {
    let fixture = LedgerFixture::new(Durability::Normal);
    let gone = ProcessOwner::claim(&fixture.directory()).unwrap();
    let theirs = fixture.open_again(&gone, Durability::Lease).ledger;
    theirs.hold(hold("1", 10, &[])).wait().unwrap();
    theirs.settle(call("1"), charge(10)).wait().unwrap();
    theirs.hold(hold("2", 10, &[])).wait().unwrap();
    theirs.audit().unwrap();
    // After a power cut, leases and open calls belong to an earlier boot and a dead owner.
    let database = rusqlite::Connection::open(fixture.directory().ledger()).unwrap();
    let granted: u64 = database.query_row("SELECT granted_picos FROM lease", [], |row| row.get(0)).unwrap();
    assert!(granted > 20);
    database.execute_batch("CREATE TEMP TABLE kept AS SELECT * FROM lease").unwrap();
    drop((theirs, gone));
    database.execute_batch("INSERT INTO lease SELECT * FROM kept").unwrap();
    database.execute_batch("UPDATE lease SET boot = 'before'; UPDATE call SET boot = 'before'").unwrap();

    let opened = fixture.open_again(&fixture.owner, Durability::Lease);
    assert_eq!((opened.released, opened.unknown), (0, 2));
    let audit = opened.ledger.audit().unwrap();
    assert_eq!((audit.spent_picos, audit.held_picos, audit.wrong_totals), (10, 10 + granted - 20, 0));
    let unknowns = opened.ledger.unknowns().unwrap();
    let lost = unknowns.iter().find(|call| call.model == "unrecorded").unwrap();
    opened.ledger.fail(lost.call.clone(), "reconciled".into()).wait().unwrap();
    assert_eq!(opened.ledger.audit().unwrap().held_picos, 10);
}

#[test]
fn full_disk_records_nothing_and_operations_work_again_with_space() {
    const NAME: &str = "full_disk_records_nothing_and_operations_work_again_with_space";
    if let Some(fixture) = support::child_directory() {
        return fill_the_disk(&fixture);
    }
    let fixture = tempfile::tempdir().unwrap();
    let output = support::child_command_with_file_limit(NAME, fixture.path(), 400).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn fill_the_disk(fixture: &Path) {
    let (_owner, opened) = open(fixture, Durability::Full);
    let ledger = opened.ledger;
    let mut kept = 0;
    let error = loop {
        match ledger.hold(hold(&format!("{kept}"), 1, &[])).wait() {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LedgerError::Database(_) | LedgerError::Files(_)), "{error:?}");
    assert!(kept > 3);
    support::remove_file_limit();
    let audit = ledger.audit().unwrap();
    assert_eq!((audit.calls, audit.held_picos, audit.wrong_totals), (kept, kept, 0));
    ledger.hold(hold(&format!("{kept}"), 1, &[])).wait().unwrap();
    ledger.settle(call("0"), charge(1)).wait().unwrap();
    assert_eq!(ledger.audit().unwrap().spent_picos, 1);
}
