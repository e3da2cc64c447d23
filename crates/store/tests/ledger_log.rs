//! The ledger's write-ahead log.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use store::{CallHold, Durability, Ledger, LedgerError, LimitAmount, LimitScope, LimitWindow, ProcessOwner};
use support::calls::{LedgerFixture, call, charge, hold, limit};

impl LedgerFixture {
    fn log_path(&self) -> PathBuf {
        self.temporary.path().join("ledger.steps")
    }

    #[track_caller]
    fn check(&self, calls: u64, held_picos: u64, spent_picos: u64) {
        let audit = self.ledger.audit().unwrap();
        assert_eq!((audit.calls, audit.held_picos, audit.spent_picos), (calls, held_picos, spent_picos));
        assert_eq!(audit.wrong_totals, 0);
    }
}

#[test]
fn two_processes_never_grant_the_same_money() {
    let fixture = LedgerFixture::new(Durability::Normal);
    let other = ProcessOwner::claim(&fixture.directory()).unwrap();
    let theirs = fixture.open_again(&other, Durability::Normal).ledger;
    let budget = [limit("budget_usd", LimitScope::Account, LimitWindow::Ever, LimitAmount::Picos(100))];
    for number in 0..5 {
        fixture.ledger.hold(hold(&format!("a{number}"), 10, &budget)).wait().unwrap();
        theirs.hold(hold(&format!("b{number}"), 10, &budget)).wait().unwrap();
    }
    for ledger in [&fixture.ledger, &theirs] {
        let refused = ledger.hold(hold("more", 1, &budget)).wait();
        assert!(matches!(refused, Err(LedgerError::Refused(refusal)) if refusal.held == 100));
    }
    theirs.settle(call("b0"), charge(4)).wait().unwrap();
    fixture.ledger.hold(hold("c", 6, &budget)).wait().unwrap();
    assert!(theirs.hold(hold("d", 1, &budget)).wait().is_err());
    fixture.check(11, 96, 4);
}

#[test]
fn incomplete_line_is_ignored() {
    let fixture = LedgerFixture::new(Durability::Normal);
    fixture.ledger.hold(hold("1", 10, &[])).wait().unwrap();
    OpenOptions::new().append(true).open(fixture.log_path()).unwrap().write_all(b"{\"at\":1,\"step\":{\"ho").unwrap();
    fixture.check(1, 10, 0);
    fixture.ledger.hold(hold("2", 10, &[])).wait().unwrap();
    fixture.ledger.settle(call("1"), charge(3)).wait().unwrap();
    fixture.check(2, 10, 3);
}

#[test]
fn long_log_is_replaced_without_losing_or_repeating_lines() {
    const CALLS: u64 = 5_000;
    let fixture = LedgerFixture::new(Durability::Normal);
    let other = ProcessOwner::claim(&fixture.directory()).unwrap();
    let theirs = fixture.open_again(&other, Durability::Normal).ledger;
    let budget = [limit("budget_usd", LimitScope::Account, LimitWindow::Ever, LimitAmount::Picos(CALLS * 2 + 5))];
    let model = "m".repeat(1_000);
    let mut longest = 0;
    for number in 0..CALLS {
        for (ledger, name) in [(&fixture.ledger, "a"), (&theirs, "b")] {
            let name = format!("{name}{number}");
            ledger.hold(CallHold { model: model.clone(), ..hold(&name, 5, &budget) }).wait().unwrap();
            ledger.settle(call(&name), charge(1)).wait().unwrap();
        }
        longest = longest.max(fixture.log_path().metadata().unwrap().len());
    }
    fixture.check(CALLS * 2, 0, CALLS * 2);
    fixture.ledger.hold(hold("last", 5, &budget)).wait().unwrap();
    assert!(theirs.hold(hold("more", 1, &budget)).wait().is_err());
    // The thread replaces the log at a checkpoint, and at the latest when it ends.
    let (log_path, written) = (fixture.log_path(), longest);
    drop((fixture.ledger, theirs));
    assert!(log_path.metadata().unwrap().len() < written.max(8 << 20), "{written} bytes are still there");
}

#[test]
fn interrupted_replacement_is_finished() {
    let fixture = LedgerFixture::new(Durability::Full);
    fixture.ledger.hold(hold("1", 10, &[])).wait().unwrap();
    fixture.check(1, 10, 0);
    // The tables refer to the next generation, but its file was never created.
    let database = rusqlite::Connection::open(fixture.directory().ledger()).unwrap();
    database.execute_batch("UPDATE carried SET generation = generation + 1, bytes = 0").unwrap();
    let again = fixture.open_again(&fixture.owner, Durability::Full).ledger;
    again.hold(hold("2", 10, &[])).wait().unwrap();
    fixture.ledger.hold(hold("3", 10, &[])).wait().unwrap();
    fixture.check(3, 30, 0);
}

#[test]
fn lines_after_a_power_cut_are_applied() {
    let fixture = LedgerFixture::new(Durability::Normal);
    for number in 0..9 {
        fixture.ledger.hold(hold(&format!("{number}"), 10, &[])).wait().unwrap();
    }
    fixture.check(9, 90, 0);
    let LedgerFixture { temporary, owner, clock, ledger } = fixture;
    drop(ledger);
    let log_path = temporary.path().join("ledger.steps");
    let length = log_path.metadata().unwrap().len();
    File::options().write(true).open(&log_path).unwrap().set_len(length / 2).unwrap();
    let directory = store::DataDir::open(temporary.path()).unwrap();
    let ledger = store::SqliteLedger::open(&directory, &owner, Durability::Normal, clock.clone()).unwrap().ledger;
    let fixture = LedgerFixture { temporary, owner, clock, ledger };
    fixture.ledger.hold(hold("after", 10, &[])).wait().unwrap();
    fixture.check(10, 100, 0);
}
