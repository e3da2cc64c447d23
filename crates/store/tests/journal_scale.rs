//! The cost of a large journal and of many journals.
//!
//! The kernel counts the bytes that this thread reads, so other load does not change the figures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use base::Digest;
use protocol::SessionId;
use store::{FileJournal, Journal, JournalReader, SystemClock};
use support::{delta, open, session};

const MILLION: u64 = 1_000_000;

/// Writes a journal of a million records and its index.
fn write_a_million(path: &Path) {
    let mut journal = BufWriter::new(File::create(path).unwrap());
    let mut index = BufWriter::new(File::create(path.with_extension("idx")).unwrap());
    let (mut prev, mut offset) = (Digest::ZERO, 0_u64);
    for sequence in 1..=MILLION {
        let line = format!(
            r#"{{"seq":{sequence},"time":"2026-11-15T10:00:00.000000Z","session":"s1","type":"item.delta","data":{{"item_id":"itm_1","delta":"word"}},"source":"agent","prev":"{prev}"}}"#
        );
        if sequence > 1 && sequence % 64 == 1 {
            index.write_all(&offset.to_le_bytes()).unwrap();
        }
        journal.write_all(line.as_bytes()).unwrap();
        journal.write_all(b"\n").unwrap();
        offset += line.len() as u64 + 1;
        prev = Digest::of(line.as_bytes());
    }
    journal.flush().unwrap();
    index.flush().unwrap();
}

/// Returns the bytes that this thread has read from files.
fn bytes_read() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[track_caller]
fn check_bytes_read<T>(limit: u64, step: &str, action: impl FnOnce() -> T) -> T {
    let before = bytes_read();
    let outcome = action();
    let read = bytes_read() - before;
    assert!(read < limit, "step `{step}` read {read} bytes, at most {limit} are allowed");
    outcome
}

#[test]
fn page_of_a_million_records_does_not_read_the_rest() {
    const PAGE: u64 = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s1.jsonl");
    write_a_million(&path);

    let journal = check_bytes_read(PAGE, "open", || open(&path)).journal;
    assert_eq!(*journal.last().borrow(), MILLION);
    for after in [0, 1, 63, 64, 499_999, 777_777, MILLION - 10] {
        let events = check_bytes_read(PAGE, "read ten", || journal.after(after, 10)).unwrap();
        assert_eq!(
            events.iter().map(|event| event.sequence).collect::<Vec<_>>(),
            (after + 1..=after + 10).collect::<Vec<_>>()
        );
    }
    let added = check_bytes_read(PAGE, "append", || journal.append(delta("one more"))).unwrap();
    assert_eq!(check_bytes_read(1_000, "read the newest", || journal.after(MILLION, 10)).unwrap(), [added]);

    let reader = JournalReader::open(&path, session()).unwrap();
    assert_eq!(check_bytes_read(PAGE, "find the last", || reader.last()).unwrap(), MILLION + 1);
    assert_eq!(check_bytes_read(PAGE, "read ten", || reader.after(500_000, 10)).unwrap()[0].sequence, 500_001);
}

/// Returns the resident memory of this process.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

#[test]
fn ten_thousand_idle_journals_are_small_and_hold_no_file() {
    const SESSIONS: u64 = 10_000;
    let directory = tempfile::tempdir().unwrap();
    let first = directory.path().join("s1.jsonl");
    (0..3).for_each(|n| drop(open(&first).journal.append(delta(format!("{n}"))).unwrap()));
    for n in 2..=SESSIONS {
        let line = fs::read_to_string(&first).unwrap();
        fs::write(
            directory.path().join(format!("s{n}.jsonl")),
            line.lines().next().unwrap().replace("\"s1\"", &format!("\"s{n}\"")) + "\n",
        )
        .unwrap();
    }
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let (memory_before, descriptors_before) = (resident_bytes(), descriptors());
    let journals: Vec<_> = (1..=SESSIONS)
        .map(|n| {
            let session = SessionId::new(format!("s{n}")).unwrap();
            let path = directory.path().join(format!("s{n}.jsonl"));
            FileJournal::open(path, session, Arc::new(SystemClock)).unwrap().journal
        })
        .collect();
    // Each journal is used once and then closed, like a session between turns.
    for journal in &journals {
        journal.append(delta("hello")).unwrap();
        journal.rest();
    }
    let each = resident_bytes().saturating_sub(memory_before) / SESSIONS;
    assert!(each <= 10_000, "an idle journal takes {each} bytes");
    assert!(descriptors() < descriptors_before + 20);
}
