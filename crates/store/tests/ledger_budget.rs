//! A hard budget, whatever the number of callers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use protocol::SessionId;
use store::{
    CallHold, DataDir, Durability, Ledger, LedgerError, LimitAmount, LimitScope, LimitWindow, ProcessOwner,
    SqliteLedger, SystemClock,
};
use support::calls::{self, charge, limit};

const CALLS: usize = 200;

/// What the callers of one try do: what each asks for, and how it ends.
#[derive(Debug, Clone)]
struct Try {
    budget: u64,
    calls: Vec<(u64, End)>,
}

#[derive(Debug, Clone, Copy)]
enum End {
    /// Stays held, as a call that still runs.
    Open,
    /// Costs so many hundredths of what it asked for.
    Settled(u64),
    Failed,
}

fn tries() -> impl Strategy<Value = Try> {
    let end = prop_oneof![Just(End::Open), (0..=100_u64).prop_map(End::Settled), Just(End::Failed)];
    (1..1_000_u64).prop_flat_map(move |price| {
        let calls = prop::collection::vec((price..=price * 2, end.clone()), CALLS);
        calls.prop_map(move |calls| Try { budget: price * 10, calls })
    })
}

fn hold(session: &str, number: usize, picos: u64, budget: u64) -> CallHold {
    let limit = limit("budget_usd", LimitScope::Session, LimitWindow::Ever, LimitAmount::Picos(budget));
    let session = SessionId::new(session).unwrap();
    CallHold { session: session.clone(), sent: true, ..calls::hold(&format!("{session}-{number}"), picos, &[limit]) }
}

/// One caller; returns what it was granted and what that cost in the end.
async fn call(ledger: &SqliteLedger, hold: CallHold, end: End) -> Option<(u64, u64)> {
    let (id, picos, most) = (hold.call.clone(), hold.picos, hold.limits[0].max);
    match ledger.hold(hold).await {
        Ok(()) => {}
        Err(LedgerError::Refused(refusal)) => {
            assert!(LimitAmount::Picos(refusal.spent + refusal.held) <= most, "{refusal}");
            return None;
        }
        Err(error) => panic!("{error:?}"),
    }
    let cost = match end {
        End::Open => return Some((picos, picos)),
        End::Settled(hundredths) => picos * hundredths / 100,
        End::Failed => {
            ledger.fail(id, "no".into()).await.unwrap();
            return Some((picos, 0));
        }
    };
    ledger.settle(id, charge(cost)).await.unwrap();
    Some((picos, cost))
}

#[test]
fn two_hundred_callers_never_pass_a_budget_for_ten() {
    let place = tempfile::tempdir().unwrap();
    let directory = DataDir::open(place.path()).unwrap();
    // Two hosts with one ledger, as a server and a command beside it.
    let owners = [ProcessOwner::claim(&directory).unwrap(), ProcessOwner::claim(&directory).unwrap()];
    let open = |owner| SqliteLedger::open(&directory, owner, Durability::Normal, Arc::new(SystemClock)).unwrap().ledger;
    let ledgers = [open(&owners[0]), open(&owners[1])];
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();

    let number = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 1_000, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&tries(), |tried| {
        let session = format!("s{}", number.replace(number.get() + 1));
        let calls = tried
            .calls
            .iter()
            .enumerate()
            .map(|(n, (picos, end))| call(&ledgers[n % 2], hold(&session, n, *picos, tried.budget), *end));
        let granted: Vec<(u64, u64)> = runtime.block_on(join_all(calls)).into_iter().flatten().collect();
        let left: u64 = granted.iter().map(|(_, cost)| cost).sum();
        prop_assert!(left <= tried.budget, "{left} of {}", tried.budget);
        prop_assert!(granted.len() >= 5, "of ten at most twice the price, five fit");
        let more = runtime.block_on(ledgers[0].hold(hold(&session, CALLS, tried.budget + 1, tried.budget)));
        let Err(LedgerError::Refused(refusal)) = more else { panic!("{more:?}") };
        prop_assert_eq!(refusal.spent + refusal.held, left);
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(ledgers[0].audit().unwrap().wrong_totals, 0);
}

/// Polls all of `futures` in turn, so that every caller asks before the first is answered.
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
