//! Budgets are never exceeded, with any number of concurrent callers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use protocol::SessionId;
use store::{
    CallHold, DataDir, Durability, HoldChange, Ledger, LedgerError, LimitAmount, LimitScope, LimitWindow, ProcessOwner,
    SqliteLedger, SystemClock,
};
use support::calls::{self, charge, limit};

const CALLS: usize = 200;

/// One test case: a budget, and the first hold, the changes of the hold and the end of each call.
#[derive(Debug, Clone)]
struct BudgetCase {
    budget: u64,
    calls: Vec<(u64, Vec<u64>, CallEnd)>,
}

#[derive(Debug, Clone, Copy)]
enum CallEnd {
    /// The call is not finished.
    Open,
    /// The call costs this percentage of its hold.
    Settled(u64),
    Failed,
}

fn cases() -> impl Strategy<Value = BudgetCase> {
    let end = prop_oneof![Just(CallEnd::Open), (0..=100_u64).prop_map(CallEnd::Settled), Just(CallEnd::Failed)];
    (1..1_000_u64).prop_flat_map(move |price| {
        // The hold of a stream grows ahead of it, and shrinks when the vendor has counted the prompt.
        let changes = prop::collection::vec(1..=price * 4, 0..3);
        let calls = prop::collection::vec((price..=price * 2, changes, end.clone()), CALLS);
        calls.prop_map(move |calls| BudgetCase { budget: price * 10, calls })
    })
}

fn hold(session: &str, number: usize, picos: u64, budget: u64) -> CallHold {
    let limit = limit("budget_usd", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(budget));
    let session = SessionId::new(session).unwrap();
    CallHold { session: session.clone(), sent: true, ..calls::hold(&format!("{session}-{number}"), picos, &[limit]) }
}

/// Makes one call; returns the granted amount and the final cost, or `None` if it was refused.
async fn call(ledger: &SqliteLedger, hold: CallHold, changes: &[u64], end: CallEnd) -> Option<(u64, u64)> {
    let (id, mut picos, limits) = (hold.call.clone(), hold.picos, hold.limits.clone());
    let most = limits[0].max;
    match ledger.hold(hold).await {
        Ok(()) => {}
        Err(LedgerError::Refused(refusal)) => {
            assert!(LimitAmount::Picos(refusal.spent + refusal.held) <= most, "{refusal}");
            return None;
        }
        Err(error) => panic!("{error:?}"),
    }
    for change in changes {
        match ledger.adjust(id.clone(), HoldChange { picos: *change, tokens: 0, limits: limits.clone() }).await {
            Ok(()) => picos = *change,
            Err(LedgerError::Refused(_)) => assert!(*change > picos, "a smaller hold was refused"),
            Err(error) => panic!("{error:?}"),
        }
    }
    let cost = match end {
        CallEnd::Open => return Some((picos, picos)),
        CallEnd::Settled(percent) => picos * percent / 100,
        CallEnd::Failed => {
            ledger.fail(id, "no".into()).await.unwrap();
            return Some((picos, 0));
        }
    };
    ledger.settle(id, charge(cost)).await.unwrap();
    Some((picos, cost))
}

#[test]
fn two_hundred_callers_never_exceed_a_budget_for_ten() {
    let fixture = tempfile::tempdir().unwrap();
    let directory = DataDir::open(fixture.path()).unwrap();
    // Two processes share one ledger, like a server and a command.
    let owners = [ProcessOwner::claim(&directory).unwrap(), ProcessOwner::claim(&directory).unwrap()];
    let open = |owner| SqliteLedger::open(&directory, owner, Durability::Normal, Arc::new(SystemClock)).unwrap().ledger;
    let ledgers = [open(&owners[0]), open(&owners[1])];
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();

    let number = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 1_000, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&cases(), |case| {
        let session = format!("s{}", number.replace(number.get() + 1));
        let calls = case.calls.iter().enumerate().map(|(n, (picos, changes, end))| {
            call(&ledgers[n % 2], hold(&session, n, *picos, case.budget), changes, *end)
        });
        let granted: Vec<(u64, u64)> = runtime.block_on(join_all(calls)).into_iter().flatten().collect();
        let left: u64 = granted.iter().map(|(_, cost)| cost).sum();
        prop_assert!(left <= case.budget, "{left} of {}", case.budget);
        prop_assert!(granted.len() >= 2, "at least two calls must fit the budget");
        let more = runtime.block_on(ledgers[0].hold(hold(&session, CALLS, case.budget + 1, case.budget)));
        let Err(LedgerError::Refused(refusal)) = more else { panic!("{more:?}") };
        prop_assert_eq!(refusal.spent + refusal.held, left);
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(ledgers[0].audit().unwrap().wrong_totals, 0);
}

/// Polls all of `futures` in turn, so that every call is submitted before the first reply.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in &mut waiting {
            if output.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *output = Some(value);
            }
        }
        if waiting.iter().all(|(_, output)| output.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}
