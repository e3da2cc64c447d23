//! kill -9 while calls are charged.
//!
//! The child plays gateway and vendor: between `sent` and `settled` it writes down what the vendor served,
//! as a vendor would bill it. In the end the ledger must say what the vendor says.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use store::{CallProgress, Durability, Ledger, SqliteLedger};
use support::Chance;
use support::calls::{self, charge, open};
use uuid::Uuid;

const ROUNDS: usize = 50;
const CALLERS: usize = 6;

#[test]
fn no_charge_is_lost_or_doubled_by_kill_nine() {
    const NAME: &str = "no_charge_is_lost_or_doubled_by_kill_nine";
    if let Some(place) = support::child_place() {
        return call_until_killed(&place);
    }
    let place = tempfile::tempdir().unwrap();
    let chance = Chance::new();
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        let mut child = support::again(NAME, place.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let settled = |line: String| line.strip_prefix("settled ").map(str::to_owned);
        let wanted = usize::try_from(chance.below(40)).unwrap() + 1;
        let mut told: Vec<String> = lines.by_ref().filter_map(settled).take(wanted).collect();
        child.kill().unwrap();
        told.extend(lines.filter_map(settled));
        child.wait().unwrap();
        check_after_the_kill(place.path(), &told, &mut seen, round);
    }
    assert!(seen.unknown > 0, "no round hit a call that was on its way");
}

#[derive(Default)]
struct Seen {
    unknown: u64,
}

#[track_caller]
fn check_after_the_kill(place: &Path, told: &[String], seen: &mut Seen, round: usize) {
    let (_owner, opened) = open(place, Durability::Full);
    let (ledger, served) = (opened.ledger, served(place));
    assert!(told.iter().all(|call| served.contains_key(call)));

    let unknowns = ledger.unknowns().unwrap();
    assert_eq!(unknowns.len() as u64, opened.unknown, "round {round}");
    seen.unknown += opened.unknown;
    for unknown in unknowns {
        assert!(!told.iter().any(|call| call == unknown.call.as_str()), "`{}` was told as settled", unknown.call);
        match served.get(unknown.call.as_str()) {
            Some(picos) => ledger.settle(unknown.call, charge(*picos)).wait().unwrap(),
            None => ledger.fail(unknown.call, "never served".into()).wait().unwrap(),
        }
    }
    let audit = ledger.audit().unwrap();
    assert_eq!((audit.spent_picos, audit.held_picos), (served.values().sum(), 0), "round {round}");
    assert_eq!(audit.wrong_totals, 0);
}

/// What the vendor says it served. A line that was cut was not served.
fn served(place: &Path) -> HashMap<String, u64> {
    let text = std::fs::read_to_string(place.join("served")).unwrap();
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.split_once(' '));
    lines.map(|(call, picos)| (call.to_owned(), picos.parse().unwrap())).collect()
}

fn call_until_killed(place: &Path) {
    let (_owner, opened) = open(place, Durability::Normal);
    let ledger = opened.ledger;
    std::thread::scope(|threads| {
        for _ in 0..CALLERS {
            threads.spawn(|| {
                loop {
                    call_once(&ledger, place);
                }
            });
        }
    });
}

fn call_once(ledger: &SqliteLedger, place: &Path) {
    let hold = calls::hold(&Uuid::now_v7().to_string(), 1_000, &[]);
    let call = hold.call.clone();
    let picos = u64::from(call.as_str().as_bytes()[20]) + 1;
    ledger.hold(hold).wait().unwrap();
    ledger.advance(call.clone(), CallProgress::Sent).wait().unwrap();
    let mut vendor = OpenOptions::new().append(true).create(true).open(place.join("served")).unwrap();
    vendor.write_all(format!("{call} {picos}\n").as_bytes()).unwrap();
    ledger.advance(call.clone(), CallProgress::Streaming).wait().unwrap();
    ledger.settle(call.clone(), charge(picos)).wait().unwrap();
    println!("settled {call}");
}
