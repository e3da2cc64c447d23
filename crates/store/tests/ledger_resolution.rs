//! Calls nobody knows the end of are closed by a person, once, and it stays on record who that was.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use store::{CallProgress, Durability, Ledger, LedgerError, LimitAmount, LimitScope, LimitWindow, Resolution};
use support::calls::{Place, call, charge, hold, limit};

fn word(picos: Option<u64>, reason: &str) -> Resolution {
    Resolution { picos, by: "ann".into(), reason: reason.into() }
}

#[test]
fn an_unknown_call_is_closed_once_and_it_is_kept_who_did_it() {
    let place = Place::new(Durability::Normal);
    let budget = [limit("budget_usd", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(100))];
    for name in ["charged", "free"] {
        place.ledger.hold(hold(name, 50, &budget)).wait().unwrap();
        place.ledger.advance(call(name), CallProgress::Lost).wait().unwrap();
    }
    place.ledger.resolve(call("charged"), word(Some(7), "invoice 12")).wait().unwrap();
    place.ledger.resolve(call("free"), word(None, "never served")).wait().unwrap();
    assert!(place.ledger.unknowns().unwrap().is_empty());

    let told: Vec<_> = place.ledger.resolved().unwrap();
    let told: Vec<_> =
        told.iter().map(|it| (it.call.as_str(), it.held_picos, it.spent_picos, &*it.by, &*it.reason)).collect();
    assert_eq!(told, [("call_charged", 50, 7, "ann", "invoice 12"), ("call_free", 50, 0, "ann", "never served")]);

    let again = place.ledger.resolve(call("charged"), word(Some(8), "no")).wait();
    assert!(matches!(again, Err(LedgerError::OutOfOrder { .. })), "{again:?}");
    assert_eq!(place.ledger.resolved().unwrap().len(), 2);
    // What was held for them is there again for others.
    place.ledger.hold(hold("next", 93, &budget)).wait().unwrap();
    assert_eq!(place.ledger.audit().unwrap().wrong_totals, 0);
}

#[test]
fn a_call_that_is_known_or_is_none_is_not_closed_by_hand() {
    let place = Place::new(Durability::Normal);
    place.ledger.hold(hold("running", 50, &[])).wait().unwrap();
    place.ledger.hold(hold("settled", 50, &[])).wait().unwrap();
    place.ledger.settle(call("settled"), charge(5)).wait().unwrap();
    for name in ["running", "settled"] {
        let refused = place.ledger.resolve(call(name), word(None, "no")).wait();
        assert!(matches!(refused, Err(LedgerError::OutOfOrder { .. })), "{name}: {refused:?}");
    }
    let refused = place.ledger.resolve(call("nobody"), word(None, "no")).wait();
    assert!(matches!(refused, Err(LedgerError::NotFound(_))), "{refused:?}");
    assert!(place.ledger.resolved().unwrap().is_empty());
}
