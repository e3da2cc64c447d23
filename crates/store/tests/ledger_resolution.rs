//! Unknown and estimated calls are resolved once by a person, whose name is recorded.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use store::{
    CallCharge, CallProgress, Durability, Ledger, LedgerError, LimitAmount, LimitScope, LimitWindow, Resolution,
};
use support::calls::{LedgerFixture, call, charge, hold, limit};

fn resolution(picos: Option<u64>, reason: &str) -> Resolution {
    Resolution { picos, by: "ann".into(), reason: reason.into() }
}

#[test]
fn unknown_call_is_resolved_once_with_the_name_of_the_person() {
    let fixture = LedgerFixture::new(Durability::Normal);
    let budget = [limit("budget_usd", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(100))];
    for name in ["charged", "free"] {
        fixture.ledger.hold(hold(name, 50, &budget)).wait().unwrap();
        fixture.ledger.advance(call(name), CallProgress::Lost).wait().unwrap();
    }
    fixture.ledger.resolve(call("charged"), resolution(Some(7), "invoice 12")).wait().unwrap();
    fixture.ledger.resolve(call("free"), resolution(None, "never served")).wait().unwrap();
    assert!(fixture.ledger.unknowns().unwrap().is_empty());

    let resolved: Vec<_> = fixture.ledger.resolved().unwrap();
    let resolved: Vec<_> =
        resolved.iter().map(|it| (it.call.as_str(), it.held_picos, it.spent_picos, &*it.by, &*it.reason)).collect();
    assert_eq!(resolved, [("call_charged", 50, 7, "ann", "invoice 12"), ("call_free", 50, 0, "ann", "never served")]);

    let again = fixture.ledger.resolve(call("charged"), resolution(Some(8), "no")).wait();
    assert!(matches!(again, Err(LedgerError::OutOfOrder { .. })), "{again:?}");
    assert_eq!(fixture.ledger.resolved().unwrap().len(), 2);
    // The released amount can be held again.
    fixture.ledger.hold(hold("next", 93, &budget)).wait().unwrap();
    assert_eq!(fixture.ledger.audit().unwrap().wrong_totals, 0);
}

#[test]
fn estimate_is_corrected_once_and_totals_follow() {
    for picos in [Some(7), None] {
        let fixture = LedgerFixture::new(Durability::Normal);
        let budget = [limit("budget_usd", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(100))];
        fixture.ledger.hold(hold("cancelled", 50, &budget)).wait().unwrap();
        fixture.ledger.settle(call("cancelled"), CallCharge { estimated: true, ..charge(40) }).wait().unwrap();
        assert_eq!(fixture.ledger.estimates().unwrap()[0].spent_picos, 40);
        fixture.ledger.resolve(call("cancelled"), resolution(picos, "invoice 12")).wait().unwrap();
        assert!(fixture.ledger.estimates().unwrap().is_empty());
        let resolved = &fixture.ledger.resolved().unwrap()[0];
        assert_eq!((resolved.held_picos, resolved.spent_picos), (40, picos.unwrap_or(0)));
        let again = fixture.ledger.resolve(call("cancelled"), resolution(Some(8), "no")).wait();
        assert!(matches!(again, Err(LedgerError::OutOfOrder { .. })), "{again:?}");
        // The rest of the estimate can be held again, and no more.
        let left = 100 - picos.unwrap_or(0);
        assert!(fixture.ledger.hold(hold("more", left + 1, &budget)).wait().is_err());
        fixture.ledger.hold(hold("next", left, &budget)).wait().unwrap();
        assert_eq!(fixture.ledger.audit().unwrap().wrong_totals, 0);
    }
}

#[test]
fn only_unknown_calls_can_be_resolved() {
    let fixture = LedgerFixture::new(Durability::Normal);
    fixture.ledger.hold(hold("running", 50, &[])).wait().unwrap();
    fixture.ledger.hold(hold("settled", 50, &[])).wait().unwrap();
    fixture.ledger.settle(call("settled"), charge(5)).wait().unwrap();
    for name in ["running", "settled"] {
        let refused = fixture.ledger.resolve(call(name), resolution(None, "no")).wait();
        assert!(matches!(refused, Err(LedgerError::OutOfOrder { .. })), "{name}: {refused:?}");
    }
    let refused = fixture.ledger.resolve(call("missing"), resolution(None, "no")).wait();
    assert!(matches!(refused, Err(LedgerError::NotFound(_))), "{refused:?}");
    assert!(fixture.ledger.resolved().unwrap().is_empty());
}
