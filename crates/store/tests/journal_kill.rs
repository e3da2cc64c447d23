//! kill -9 while records are written.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use store::{Journal, verify_journal};
use support::{Chance, delta, open};

/// Fifty kills in all; a journal is left after some, since each is read whole after each.
const LIVES: usize = 10;
const KILLS: usize = 5;

#[test]
fn every_acknowledged_record_survives_kill_nine() {
    const NAME: &str = "every_acknowledged_record_survives_kill_nine";
    if let Some(place) = support::child_place() {
        append_until_killed(&place.join("s1.jsonl"));
    }
    let chance = Chance::new();
    (0..LIVES).for_each(|_| check_one_journal(NAME, &chance));
}

/// One journal, whose writer is killed and started again, again and again.
#[track_caller]
fn check_one_journal(name: &str, chance: &Chance) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("s1.jsonl");
    let mut before = 0;
    for round in 0..KILLS {
        let mut child = support::again(name, place.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let acknowledged: Vec<u64> = {
            let mut numbers = lines.by_ref().filter_map(|line| line.strip_prefix("kept ")?.parse().ok());
            let mut read: Vec<u64> = numbers.by_ref().take(usize::try_from(chance.below(60)).unwrap() + 1).collect();
            child.kill().unwrap();
            read.extend(numbers);
            read
        };
        child.wait().unwrap();
        assert_eq!(acknowledged.first(), Some(&(before + 1)), "round {round}");
        assert!(acknowledged.windows(2).all(|pair| pair[1] == pair[0] + 1), "round {round}");
        before = check_after_the_kill(&path, *acknowledged.last().unwrap());
    }
}

/// What the killed writer had told is there, and the journal goes on. Returns the last number.
#[track_caller]
fn check_after_the_kill(path: &Path, told: u64) -> u64 {
    let found = verify_journal(path).unwrap();
    assert!(found.records >= told, "{told} were acknowledged, {} are there", found.records);
    let opened = open(path);
    assert_eq!(opened.torn_bytes, found.torn_bytes);
    assert_eq!(*opened.journal.last().borrow(), found.records);
    assert_eq!(opened.journal.after(told - 1, 1).unwrap()[0].sequence, told);
    assert_eq!(verify_journal(path).unwrap().torn_bytes, 0);
    found.records
}

fn append_until_killed(path: &Path) -> ! {
    let journal = open(path).journal;
    let mut out = std::io::stdout();
    loop {
        // Small and large ones in turn: a large one is more likely to be hit in the middle.
        let length = if *journal.last().borrow() % 8 == 7 { 100_000 } else { 50 };
        let event = journal.append(delta("x".repeat(length))).unwrap();
        writeln!(out, "kept {}", event.sequence).unwrap();
    }
}
