//! The contract of the ledger port, checked for every durability.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use protocol::{SessionId, Usage};
use store::{
    CallCharge, CallHold, CallProgress, CallSource, Durability, HoldChange, Ledger, LedgerError, LedgerOperation,
    LimitAmount, LimitExceeded, LimitScope, LimitWindow, UNPRICED_HASH, UsageGrouping,
};
use support::calls::{DAY, LedgerFixture, call, charge, hold, limit};

#[track_caller]
fn refusal(answer: Result<(), LedgerError>) -> LimitExceeded {
    match answer.unwrap_err() {
        LedgerError::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Runs `check` with a new ledger of each durability, and then audits the totals.
#[track_caller]
fn check_each(check: impl Fn(&LedgerFixture)) {
    for durability in [Durability::Full, Durability::Lease, Durability::Normal] {
        let fixture = LedgerFixture::new(durability);
        check(&fixture);
        assert_eq!(fixture.ledger.audit().unwrap().wrong_totals, 0, "{durability:?}");
    }
}

#[test]
fn call_is_held_and_then_charged() {
    check_each(|LedgerFixture { ledger, .. }| {
        ledger.hold(hold("1", 100, &[])).wait().unwrap();
        ledger.advance(call("1"), CallProgress::Sent).wait().unwrap();
        ledger.advance(call("1"), CallProgress::Streaming).wait().unwrap();
        let audit = ledger.audit().unwrap();
        assert_eq!((audit.calls, audit.held_picos, audit.spent_picos), (1, 100, 0));
        ledger.settle(call("1"), charge(30)).wait().unwrap();
        let audit = ledger.audit().unwrap();
        assert_eq!((audit.calls, audit.held_picos, audit.spent_picos), (1, 0, 30));
    });
}

#[test]
fn hold_of_an_open_call_is_changed_within_the_limits() {
    check_each(|LedgerFixture { ledger, clock, .. }| {
        let limits = [
            limit("budget", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(100)),
            limit("day", LimitScope::Account, LimitWindow::Day, LimitAmount::Picos(100)),
            limit("requests", LimitScope::Session, LimitWindow::Ever, LimitAmount::Requests(2)),
        ];
        let change = |picos| HoldChange { picos, tokens: 0, limits: limits.to_vec() };
        let held = || ledger.audit().unwrap().held_picos;
        ledger.hold(hold("1", 40, &limits)).wait().unwrap();
        ledger.hold(hold("2", 40, &limits)).wait().unwrap();
        // The limit of requests is reached, but a change is not a request.
        ledger.adjust(call("1"), change(60)).wait().unwrap();
        assert_eq!(held(), 100);
        let refused = refusal(ledger.adjust(call("2"), change(41)).wait());
        assert_eq!((refused.spent, refused.held, refused.asked), (0, 100, 1));
        ledger.adjust(call("1"), change(10)).wait().unwrap();
        // A call counts on the day of its hold, also if the hold grows on the next day.
        clock.set(20_001 * DAY);
        ledger.adjust(call("2"), change(90)).wait().unwrap();
        assert_eq!((held(), refusal(ledger.adjust(call("2"), change(91)).wait()).held), (100, 100));
        ledger.settle(call("1"), charge(10)).wait().unwrap();
        ledger.settle(call("2"), charge(30)).wait().unwrap();
        assert!(matches!(ledger.adjust(call("2"), change(1)).wait(), Err(LedgerError::OutOfOrder { .. })));
        assert!(matches!(ledger.adjust(call("3"), change(1)).wait(), Err(LedgerError::NotFound(_))));
        let audit = ledger.audit().unwrap();
        assert_eq!((audit.held_picos, audit.spent_picos), (0, 40));
    });
}

#[test]
fn tokens_of_calls_without_a_price_have_a_limit_of_their_own() {
    check_each(|LedgerFixture { ledger, .. }| {
        let limits = [
            limit("tokens", LimitScope::Session, LimitWindow::Ever, LimitAmount::Tokens(100)),
            limit("budget", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(10)),
        ];
        let unpriced =
            |name: &str, tokens| CallHold { tokens, price_hash: UNPRICED_HASH.into(), ..hold(name, 0, &limits) };
        let change = |tokens| HoldChange { picos: 0, tokens, limits: limits.to_vec() };
        ledger.hold(unpriced("1", 60)).wait().unwrap();
        let refused = refusal(ledger.hold(unpriced("2", 41)).wait());
        assert_eq!((refused.limit.name, refused.spent, refused.held, refused.asked), ("tokens", 0, 60, 41));
        ledger.adjust(call("1"), change(100)).wait().unwrap();
        assert_eq!(refusal(ledger.adjust(call("1"), change(101)).wait()).asked, 1);
        // The call is settled with the tokens of its usage: 7 of them.
        ledger.settle(call("1"), CallCharge { picos: 0, ..charge(0) }).wait().unwrap();
        let used = all_tokens(&ledger.usage(UsageGrouping::Session, 0).unwrap()[0].usage);
        assert_eq!(refusal(ledger.hold(unpriced("3", 101)).wait()).spent, used);
        ledger.hold(unpriced("4", 100 - used)).wait().unwrap();
        ledger.fail(call("4"), "refused".into()).wait().unwrap();
        // A call with a price uses money and no tokens.
        ledger.hold(hold("5", 10, &limits)).wait().unwrap();
        ledger.settle(call("5"), charge(10)).wait().unwrap();
        ledger.hold(unpriced("6", 100 - used)).wait().unwrap();
        let row = &ledger.usage(UsageGrouping::Session, 0).unwrap()[0];
        assert_eq!((row.calls, row.unpriced, row.spent_picos), (4, 2, 10));
    });
}

fn all_tokens(usage: &Usage) -> u64 {
    usage.input_tokens
        + usage.output_tokens
        + usage.cache_read_tokens
        + usage.cache_write_tokens
        + usage.cache_write_1h_tokens
}

#[test]
fn operations_of_a_batch_are_independent() {
    check_each(|LedgerFixture { ledger, .. }| {
        let budget = [limit("budget", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(100))];
        let held = |name, picos| LedgerOperation::Hold(Box::new(hold(name, picos, &budget)));
        let replies = ledger.submit(vec![
            held("1", 60),
            held("2", 60),
            held("3", 40),
            held("1", 1),
            LedgerOperation::Settle(call("1"), charge(30)),
            held("4", 30),
            LedgerOperation::Fail(call("5"), "never held".into()),
        ]);
        let outcomes: Vec<_> =
            replies.into_iter().map(|reply| reply.wait().map_err(|error| error.to_string())).collect();
        let taken: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
        assert_eq!(taken, [true, false, true, false, true, true, false], "{outcomes:?}");
        let audit = ledger.audit().unwrap();
        assert_eq!((audit.calls, audit.held_picos, audit.spent_picos), (3, 70, 30));
        assert!(ledger.submit(Vec::new()).is_empty());
    });
}

#[test]
fn invalid_transition_is_refused_and_repeated_operation_changes_nothing() {
    check_each(|LedgerFixture { ledger, .. }| {
        assert!(matches!(ledger.settle(call("1"), charge(1)).wait(), Err(LedgerError::NotFound(_))));
        ledger.hold(hold("1", 100, &[])).wait().unwrap();
        assert!(matches!(ledger.hold(hold("1", 100, &[])).wait(), Err(LedgerError::Duplicate(_))));
        (0..2).for_each(|_| ledger.advance(call("1"), CallProgress::Sent).wait().unwrap());
        (0..2).for_each(|_| ledger.settle(call("1"), charge(30)).wait().unwrap());
        for answer in [
            ledger.settle(call("1"), charge(31)).wait(),
            ledger.fail(call("1"), "late".into()).wait(),
            ledger.advance(call("1"), CallProgress::Sent).wait(),
        ] {
            assert!(matches!(answer, Err(LedgerError::OutOfOrder { .. })), "{answer:?}");
        }
        let again = CallHold { fresh: false, ..hold("1", 100, &[]) };
        assert!(matches!(ledger.hold(again).wait(), Err(LedgerError::Duplicate(_))));
        ledger.hold(hold("2", 50, &[])).wait().unwrap();
        (0..2).for_each(|_| ledger.fail(call("2"), "the upstream said no".into()).wait().unwrap());
        assert!(matches!(ledger.settle(call("2"), charge(1)).wait(), Err(LedgerError::OutOfOrder { .. })));
        let audit = ledger.audit().unwrap();
        assert_eq!((audit.calls, audit.held_picos, audit.spent_picos), (2, 0, 30));
    });
}

#[test]
fn source_is_held_once() {
    check_each(|LedgerFixture { ledger, .. }| {
        let source = |attempt| CallSource { system: "gateway".into(), run: "r1".into(), attempt };
        ledger.hold(CallHold { source: source(1), ..hold("1", 1, &[]) }).wait().unwrap();
        ledger.hold(CallHold { source: source(2), ..hold("2", 1, &[]) }).wait().unwrap();
        let again = CallHold { source: source(2), fresh: false, ..hold("2", 1, &[]) };
        assert!(matches!(ledger.hold(again).wait(), Err(LedgerError::Duplicate(_))));
        assert_eq!(ledger.audit().unwrap().held_picos, 2);
    });
}

#[test]
fn budget_counts_held_and_spent_amounts() {
    check_each(|LedgerFixture { ledger, .. }| {
        let budget = limit("budget_usd", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(100));
        let limits = [budget.clone()];
        ledger.hold(hold("1", 60, &limits)).wait().unwrap();
        let refused = refusal(ledger.hold(hold("2", 41, &limits)).wait());
        assert_eq!(refused, LimitExceeded { limit: budget, spent: 0, held: 60, asked: 41 });
        assert_eq!(refused.to_string(), "`budget_usd` allows 100 pico-dollars; 0 spent, 60 held, 41 requested");
        ledger.settle(call("1"), charge(30)).wait().unwrap();
        ledger.hold(hold("3", 70, &limits)).wait().unwrap();
        let refused = refusal(ledger.hold(hold("4", 1, &limits)).wait());
        assert_eq!((refused.spent, refused.held, refused.asked), (30, 70, 1));
        ledger.fail(call("3"), "no".into()).wait().unwrap();
        ledger.hold(hold("5", 70, &limits)).wait().unwrap();
        // A cost above the hold counts as spent.
        ledger.settle(call("5"), charge(90)).wait().unwrap();
        let refused = refusal(ledger.hold(hold("6", 0, &limits)).wait());
        assert_eq!((refused.spent, refused.held), (120, 0));
    });
}

#[test]
fn limit_counts_its_own_scope() {
    check_each(|LedgerFixture { ledger, .. }| {
        let other_session = SessionId::new("s2").unwrap();
        let only = |scope| [limit("l", scope, LimitWindow::Ever, LimitAmount::Picos(10))];
        ledger.hold(hold("1", 10, &[])).wait().unwrap();
        refusal(ledger.hold(hold("2", 1, &only(LimitScope::Session))).wait());
        refusal(ledger.hold(hold("2", 1, &only(LimitScope::Account))).wait());
        refusal(ledger.hold(hold("2", 1, &only(LimitScope::Key))).wait());
        refusal(ledger.hold(hold("2", 1, &only(LimitScope::Everything))).wait());
        ledger.hold(CallHold { session: other_session, ..hold("2", 1, &only(LimitScope::Session)) }).wait().unwrap();
        ledger.hold(CallHold { account: "a2".into(), ..hold("3", 1, &only(LimitScope::Account)) }).wait().unwrap();
        ledger.hold(CallHold { key: None, ..hold("4", 1, &only(LimitScope::Key)) }).wait().unwrap();
        let both = [only(LimitScope::Account), only(LimitScope::Everything)].concat();
        let refused = refusal(ledger.hold(CallHold { account: "a3".into(), ..hold("5", 1, &both) }).wait());
        assert_eq!(refused.limit.scope, LimitScope::Everything);
    });
}

#[test]
fn daily_and_minute_limits_reset() {
    check_each(|LedgerFixture { ledger, clock, .. }| {
        let day = [limit("daily_usd", LimitScope::Account, LimitWindow::Day, LimitAmount::Picos(100))];
        let minute = [limit("requests_per_minute", LimitScope::Key, LimitWindow::Minute, LimitAmount::Requests(2))];
        ledger.hold(hold("1", 100, &day)).wait().unwrap();
        refusal(ledger.hold(hold("2", 1, &day)).wait());
        ledger.hold(hold("3", 0, &minute)).wait().unwrap();
        ledger.hold(hold("4", 0, &minute)).wait().unwrap();
        let refused = refusal(ledger.hold(hold("5", 0, &minute)).wait());
        assert_eq!((refused.spent, refused.held, refused.asked), (2, 0, 1));
        clock.set(20_000 * DAY + 60);
        ledger.hold(hold("6", 0, &minute)).wait().unwrap();
        refusal(ledger.hold(hold("7", 1, &day)).wait());
        clock.set(20_001 * DAY);
        ledger.hold(hold("8", 100, &day)).wait().unwrap();
        // A call that is settled a day later counts on the day of its hold.
        ledger.settle(call("1"), charge(100)).wait().unwrap();
        let refused = refusal(ledger.hold(hold("9", 1, &day)).wait());
        assert_eq!((refused.spent, refused.held), (0, 100));
    });
}

#[test]
fn failed_requests_are_counted() {
    check_each(|LedgerFixture { ledger, .. }| {
        let limits = [limit("max_requests", LimitScope::Session, LimitWindow::Ever, LimitAmount::Requests(2))];
        ledger.hold(hold("1", 5, &limits)).wait().unwrap();
        ledger.fail(call("1"), "no".into()).wait().unwrap();
        ledger.hold(hold("2", 5, &limits)).wait().unwrap();
        assert_eq!(refusal(ledger.hold(hold("3", 5, &limits)).wait()).spent, 2);
    });
}

#[test]
fn totals_cannot_overflow() {
    check_each(|LedgerFixture { ledger, .. }| {
        for picos in [u64::MAX, i64::MAX.unsigned_abs(), 10_000_000_000_000_001] {
            assert!(matches!(ledger.hold(hold("1", picos, &[])).wait(), Err(LedgerError::TooMuch(_))));
        }
        let replies: Vec<_> =
            (0..1_000).map(|n| ledger.hold(hold(&format!("{n}"), 10_000_000_000_000_000, &[]))).collect();
        let granted: Vec<usize> = (0..).zip(replies).filter_map(|(n, reply)| reply.wait().ok().map(|()| n)).collect();
        assert!(granted.len() < 1_000, "{} of the largest holds were granted", granted.len());
        assert_eq!(ledger.audit().unwrap().calls, granted.len() as u64);
        let usage = Usage { input_tokens: u64::MAX, ..Usage::default() };
        let replies: Vec<_> = granted
            .iter()
            .map(|n| ledger.settle(call(&format!("{n}")), CallCharge { usage, picos: 1, estimated: false }))
            .collect();
        for reply in replies {
            reply.wait().unwrap();
        }
        assert_eq!(ledger.usage(UsageGrouping::Model, 0).unwrap()[0].spent_picos, granted.len() as u64);
    });
}

#[test]
fn usage_is_grouped_as_requested() {
    check_each(|LedgerFixture { ledger, clock, .. }| {
        let second = |name: &str| CallHold {
            session: SessionId::new("s2").unwrap(),
            account: "a2".into(),
            user: None,
            agent: Some("claude".into()),
            model: "m2".into(),
            ..hold(name, 7, &[])
        };
        ledger.hold(hold("1", 50, &[])).wait().unwrap();
        ledger.settle(call("1"), charge(30)).wait().unwrap();
        clock.set(20_001 * DAY);
        ledger.hold(second("2")).wait().unwrap();
        ledger.hold(second("3")).wait().unwrap();
        ledger.settle(call("3"), charge(4)).wait().unwrap();
        let names = |by, since| -> Vec<(String, u64, u64, u64, u64)> {
            let rows = ledger.usage(by, since).unwrap().into_iter();
            rows.map(|row| (row.name, row.calls, row.spent_picos, row.held_picos, row.usage.input_tokens)).collect()
        };
        for (by, first, other) in [
            (UsageGrouping::Session, "s1", "s2"),
            (UsageGrouping::Account, "a1", "a2"),
            (UsageGrouping::Model, "m1", "m2"),
            (UsageGrouping::Day, "2024-10-04", "2024-10-05"),
        ] {
            assert_eq!(names(by, 0), [(first.into(), 1, 30, 0, 10), (other.into(), 2, 4, 7, 10)], "{by:?}");
        }
        assert_eq!(names(UsageGrouping::User, 0), [(String::new(), 2, 4, 7, 10), ("u1".into(), 1, 30, 0, 10)]);
        assert_eq!(names(UsageGrouping::Agent, 0), [("claude".into(), 2, 4, 7, 10), ("mock".into(), 1, 30, 0, 10)]);
        assert_eq!(names(UsageGrouping::Session, 20_001 * DAY * 1_000), [("s2".into(), 2, 4, 7, 10)]);
    });
}
