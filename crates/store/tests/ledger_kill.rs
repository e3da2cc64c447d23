//! kill -9 while calls are charged.
//!
//! The child acts as gateway and vendor: between `sent` and `settled` it records the cost that the vendor would bill.
//! In the end, the ledger must match the records of the vendor.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use store::{CallProgress, Durability, Ledger, SqliteLedger};
use support::RandomNumbers;
use support::calls::{self, charge, open};
use uuid::Uuid;

const ROUNDS: usize = 50;
const CALLERS: usize = 6;

#[test]
fn no_charge_is_lost_or_doubled_by_kill_nine() {
    const NAME: &str = "no_charge_is_lost_or_doubled_by_kill_nine";
    if let Some(fixture) = support::child_directory() {
        return call_until_killed(&fixture);
    }
    let fixture = tempfile::tempdir().unwrap();
    let random = RandomNumbers::new();
    let mut counts = CallCounts::default();
    for round in 0..ROUNDS {
        let mut child = support::child_command(NAME, fixture.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let settled = |line: String| line.strip_prefix("settled ").map(str::to_owned);
        let wanted = usize::try_from(random.below(40)).unwrap() + 1;
        let mut settled_calls: Vec<String> = lines.by_ref().filter_map(settled).take(wanted).collect();
        child.kill().unwrap();
        settled_calls.extend(lines.filter_map(settled));
        child.wait().unwrap();
        check_after_the_kill(fixture.path(), &settled_calls, &mut counts, round);
    }
    assert!(counts.unknown > 0, "no round interrupted a call");
}

#[derive(Default)]
struct CallCounts {
    unknown: u64,
}

#[track_caller]
fn check_after_the_kill(fixture: &Path, settled_calls: &[String], counts: &mut CallCounts, round: usize) {
    let (_owner, opened) = open(fixture, Durability::Full);
    let (ledger, served) = (opened.ledger, served(fixture));
    assert!(settled_calls.iter().all(|call| served.contains_key(call)));

    let unknowns = ledger.unknowns().unwrap();
    assert_eq!(unknowns.len() as u64, opened.unknown, "round {round}");
    counts.unknown += opened.unknown;
    for unknown in unknowns {
        assert!(
            !settled_calls.iter().any(|call| call == unknown.call.as_str()),
            "`{}` was reported as settled",
            unknown.call
        );
        match served.get(unknown.call.as_str()) {
            Some(picos) => ledger.settle(unknown.call, charge(*picos)).wait().unwrap(),
            None => ledger.fail(unknown.call, "never served".into()).wait().unwrap(),
        }
    }
    let audit = ledger.audit().unwrap();
    assert_eq!((audit.spent_picos, audit.held_picos), (served.values().sum(), 0), "round {round}");
    assert_eq!(audit.wrong_totals, 0);
}

/// Returns the costs that the vendor recorded. An incomplete line does not count.
fn served(fixture: &Path) -> HashMap<String, u64> {
    let text = std::fs::read_to_string(fixture.join("served")).unwrap();
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.split_once(' '));
    lines.map(|(call, picos)| (call.to_owned(), picos.parse().unwrap())).collect()
}

fn call_until_killed(fixture: &Path) {
    let (_owner, opened) = open(fixture, Durability::Normal);
    let ledger = opened.ledger;
    std::thread::scope(|threads| {
        for _ in 0..CALLERS {
            threads.spawn(|| {
                loop {
                    call_once(&ledger, fixture);
                }
            });
        }
    });
}

fn call_once(ledger: &SqliteLedger, fixture: &Path) {
    let hold = calls::hold(&Uuid::now_v7().to_string(), 1_000, &[]);
    let call = hold.call.clone();
    let picos = u64::from(call.as_str().as_bytes()[20]) + 1;
    ledger.hold(hold).wait().unwrap();
    ledger.advance(call.clone(), CallProgress::Sent).wait().unwrap();
    let mut vendor = OpenOptions::new().append(true).create(true).open(fixture.join("served")).unwrap();
    vendor.write_all(format!("{call} {picos}\n").as_bytes()).unwrap();
    ledger.advance(call.clone(), CallProgress::Streaming).wait().unwrap();
    ledger.settle(call.clone(), charge(picos)).wait().unwrap();
    println!("settled {call}");
}
