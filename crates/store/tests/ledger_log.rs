//! The file that steps are written to before they are in the tables.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use store::{CallHold, Durability, Ledger, LedgerError, LimitAmount, LimitScope, LimitWindow, ProcessOwner};
use support::calls::{Place, call, charge, hold, limit};

impl Place {
    fn daybook(&self) -> PathBuf {
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
    let place = Place::new(Durability::Normal);
    let other = ProcessOwner::claim(&place.directory()).unwrap();
    let theirs = place.again(&other, Durability::Normal).ledger;
    let budget = [limit("budget_usd", LimitScope::Account, LimitWindow::Ever, LimitAmount::Picos(100))];
    for number in 0..5 {
        place.ledger.hold(hold(&format!("a{number}"), 10, &budget)).wait().unwrap();
        theirs.hold(hold(&format!("b{number}"), 10, &budget)).wait().unwrap();
    }
    for ledger in [&place.ledger, &theirs] {
        let refused = ledger.hold(hold("more", 1, &budget)).wait();
        assert!(matches!(refused, Err(LedgerError::Refused(refusal)) if refusal.held == 100));
    }
    theirs.settle(call("b0"), charge(4)).wait().unwrap();
    place.ledger.hold(hold("c", 6, &budget)).wait().unwrap();
    assert!(theirs.hold(hold("d", 1, &budget)).wait().is_err());
    place.check(11, 96, 4);
}

#[test]
fn a_line_that_was_cut_was_never_written() {
    let place = Place::new(Durability::Normal);
    place.ledger.hold(hold("1", 10, &[])).wait().unwrap();
    OpenOptions::new().append(true).open(place.daybook()).unwrap().write_all(b"{\"at\":1,\"step\":{\"ho").unwrap();
    place.check(1, 10, 0);
    place.ledger.hold(hold("2", 10, &[])).wait().unwrap();
    place.ledger.settle(call("1"), charge(3)).wait().unwrap();
    place.check(2, 10, 3);
}

#[test]
fn a_long_daybook_is_replaced_and_nothing_is_lost_or_doubled() {
    const CALLS: u64 = 5_000;
    let place = Place::new(Durability::Normal);
    let other = ProcessOwner::claim(&place.directory()).unwrap();
    let theirs = place.again(&other, Durability::Normal).ledger;
    let budget = [limit("budget_usd", LimitScope::Account, LimitWindow::Ever, LimitAmount::Picos(CALLS * 2 + 5))];
    let model = "m".repeat(1_000);
    let mut longest = 0;
    for number in 0..CALLS {
        for (ledger, name) in [(&place.ledger, "a"), (&theirs, "b")] {
            let name = format!("{name}{number}");
            ledger.hold(CallHold { model: model.clone(), ..hold(&name, 5, &budget) }).wait().unwrap();
            ledger.settle(call(&name), charge(1)).wait().unwrap();
        }
        longest = longest.max(place.daybook().metadata().unwrap().len());
    }
    place.check(CALLS * 2, 0, CALLS * 2);
    place.ledger.hold(hold("last", 5, &budget)).wait().unwrap();
    assert!(theirs.hold(hold("more", 1, &budget)).wait().is_err());
    // The thread looks after it now and then; when it ends it surely has.
    let (daybook, written) = (place.daybook(), longest);
    drop((place.ledger, theirs));
    assert!(daybook.metadata().unwrap().len() < written.max(8 << 20), "{written} bytes are still there");
}

#[test]
fn a_replacement_that_was_not_finished_is_finished() {
    let place = Place::new(Durability::Full);
    place.ledger.hold(hold("1", 10, &[])).wait().unwrap();
    place.check(1, 10, 0);
    // The tables have moved on to a file that was never put in its place.
    let database = rusqlite::Connection::open(place.directory().ledger()).unwrap();
    database.execute_batch("UPDATE carried SET generation = generation + 1, bytes = 0").unwrap();
    let again = place.again(&place.owner, Durability::Full).ledger;
    again.hold(hold("2", 10, &[])).wait().unwrap();
    place.ledger.hold(hold("3", 10, &[])).wait().unwrap();
    place.check(3, 30, 0);
}

#[test]
fn lines_that_a_power_cut_took_do_not_hide_those_after_them() {
    let place = Place::new(Durability::Normal);
    for number in 0..9 {
        place.ledger.hold(hold(&format!("{number}"), 10, &[])).wait().unwrap();
    }
    place.check(9, 90, 0);
    let Place { temporary, owner, clock, ledger } = place;
    drop(ledger);
    let daybook = temporary.path().join("ledger.steps");
    let length = daybook.metadata().unwrap().len();
    File::options().write(true).open(&daybook).unwrap().set_len(length / 2).unwrap();
    let directory = store::DataDir::open(temporary.path()).unwrap();
    let ledger = store::SqliteLedger::open(&directory, &owner, Durability::Normal, clock.clone()).unwrap().ledger;
    let place = Place { temporary, owner, clock, ledger };
    place.ledger.hold(hold("after", 10, &[])).wait().unwrap();
    place.check(10, 100, 0);
}
