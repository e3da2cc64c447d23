//! kill -9 during appends.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use store::{Journal, verify_journal};
use support::{RandomNumbers, delta, open};

/// Number of journals. Each is verified completely after every kill, so several short journals are faster.
const JOURNALS: usize = 10;
const KILLS_PER_JOURNAL: usize = 5;

#[test]
fn every_acknowledged_record_survives_kill_nine() {
    const NAME: &str = "every_acknowledged_record_survives_kill_nine";
    if let Some(directory) = support::child_directory() {
        append_until_killed(&directory.join("s1.jsonl"));
    }
    let random = RandomNumbers::new();
    (0..JOURNALS).for_each(|_| check_one_journal(NAME, &random));
}

/// Kills and restarts the writer of one journal several times.
#[track_caller]
fn check_one_journal(name: &str, random: &RandomNumbers) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s1.jsonl");
    let mut before = 0;
    for round in 0..KILLS_PER_JOURNAL {
        let mut child = support::child_command(name, directory.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let acknowledged: Vec<u64> = {
            let mut numbers = lines.by_ref().filter_map(|line| line.strip_prefix("kept ")?.parse().ok());
            let mut read: Vec<u64> = numbers.by_ref().take(usize::try_from(random.below(60)).unwrap() + 1).collect();
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

/// Checks that every acknowledged record is there and the journal can be continued. Returns the last number.
#[track_caller]
fn check_after_the_kill(path: &Path, acknowledged: u64) -> u64 {
    let found = verify_journal(path).unwrap();
    assert!(found.records >= acknowledged, "{acknowledged} were acknowledged, {} are there", found.records);
    let opened = open(path);
    assert_eq!(opened.torn_bytes, found.torn_bytes);
    assert_eq!(*opened.journal.last().borrow(), found.records);
    assert_eq!(opened.journal.after(acknowledged - 1, 1).unwrap()[0].sequence, acknowledged);
    assert_eq!(verify_journal(path).unwrap().torn_bytes, 0);
    found.records
}

fn append_until_killed(path: &Path) -> ! {
    let journal = open(path).journal;
    let mut out = std::io::stdout();
    loop {
        // Some records are large, because a kill is more likely to hit a large write.
        let length = if *journal.last().borrow() % 8 == 7 { 100_000 } else { 50 };
        let event = journal.append(delta("x".repeat(length))).unwrap();
        writeln!(out, "kept {}", event.sequence).unwrap();
    }
}
