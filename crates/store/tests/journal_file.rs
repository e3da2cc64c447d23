//! Journal files that were truncated, changed or replaced, or that cannot be written.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::{FileJournal, Journal, JournalError, JournalReader, LineDefect, SystemClock, verify_journal};
use support::{delta, ended, open, session};
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trajectory/s1.jsonl");
    (place, path)
}

/// Writes a journal of `count` records to `path`.
fn write(path: &Path, count: u64) {
    let journal = open(path).journal;
    for n in 1..=count {
        journal.append(delta(format!("text {n}"))).unwrap();
    }
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn write_lines(path: &Path, lines: &[String]) {
    fs::write(path, lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>()).unwrap();
}

/// Opens, reads and verifies the journal at `path`; all three must fail with the same line and defect.
#[track_caller]
fn check_damage(path: &Path, line: u64, expected: &str) {
    let opened = FileJournal::open(path, session(), Arc::new(SystemClock)).map(|_| ()).unwrap_err();
    let read = JournalReader::open(path, session()).unwrap().after(0, usize::MAX).unwrap_err();
    let verified = verify_journal(path).unwrap_err();
    for error in [opened, read, verified] {
        let JournalError::Damaged { path: named, line: found, byte, defect } = error else { panic!("{error:?}") };
        let offset: usize =
            lines(path).iter().take(usize::try_from(line).unwrap() - 1).map(|line| line.len() + 1).sum();
        assert_eq!((named.as_path(), found, byte), (path, line, offset as u64));
        assert!(format!("{defect:?}").starts_with(expected), "{defect:?}");
    }
}

#[test]
fn other_users_cannot_read_it() {
    let (_place, path) = place();
    write(&path, 70);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_extension("idx")), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[test]
fn incomplete_last_record_is_removed_at_any_length() {
    let (_place, path) = place();
    write(&path, 3);
    let whole = fs::read(&path).unwrap();
    let second = lines(&path)[..2].iter().map(|line| line.len() + 1).sum::<usize>();
    for length in second + 1..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(verify_journal(&path).unwrap().torn_bytes, (length - second) as u64);
        assert_eq!(JournalReader::open(&path, session()).unwrap().after(0, 10).unwrap().len(), 2);
        let opened = open(&path);
        assert_eq!(opened.torn_bytes, (length - second) as u64);
        assert_eq!(opened.journal.append(delta("again")).unwrap().sequence, 3);
        assert_eq!(verify_journal(&path).unwrap().records, 3);
    }
}

#[test]
fn zero_bytes_at_the_end_are_an_incomplete_record() {
    let (_place, path) = place();
    write(&path, 2);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(9_000).unwrap();
    assert!(open(&path).torn_bytes > 8_000);
    assert_eq!(verify_journal(&path).unwrap().torn_bytes, 0);
}

#[test]
fn incomplete_indexed_record_is_removed() {
    let (_place, path) = place();
    write(&path, 65);
    let length = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
    let opened = open(&path);
    assert!(opened.torn_bytes > 0);
    assert_eq!(opened.journal.append(delta("again")).unwrap().sequence, 65);
    assert_eq!(verify_journal(&path).unwrap().records, 65);
}

#[test]
fn changed_line_is_reported() {
    let (_place, path) = place();
    write(&path, 9);
    let good = lines(&path);
    let check = |change: &dyn Fn(&mut Vec<String>), line: u64, defect: &str| {
        let mut bad = good.clone();
        change(&mut bad);
        write_lines(&path, &bad);
        check_damage(&path, line, defect);
    };
    check(&|lines| lines[3] = lines[3].replace("text 4", "text 5"), 5, "BrokenChain");
    check(&|lines| lines[3] = "{}".into(), 4, "NotARecord");
    check(&|lines| lines[3] = String::new(), 4, "NotARecord");
    check(&|lines| lines[3].truncate(40), 4, "NotARecord");
    check(&|lines| drop(lines.remove(3)), 4, "Gap");
    check(&|lines| lines.swap(3, 4), 4, "Gap");
    check(&|lines| lines.insert(3, lines[2].clone()), 4, "Gap");
    check(&|lines| lines[3] = lines[3].replace("\"s1\"", "\"s2\""), 4, "OtherSession");
}

#[test]
fn foreign_file_is_not_changed() {
    let (_place, path) = place();
    fs::create_dir(path.parent().unwrap()).unwrap();
    for (text, defect) in [("a letter\n", "NotARecord"), ("a letter", "Foreign"), ("\u{0}\u{1}", "Foreign")] {
        fs::write(&path, text).unwrap();
        let error = FileJournal::open(&path, session(), Arc::new(SystemClock)).map(|_| ()).unwrap_err();
        let JournalError::Damaged { line: 1, byte: 0, defect: found, .. } = error else { panic!("{error:?}") };
        assert!(format!("{found:?}").starts_with(defect), "{found:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn record_after_the_end_is_damage() {
    let (_place, path) = place();
    write(&path, 2);
    let before = lines(&path);
    open(&path).journal.append(ended()).unwrap();
    let end = lines(&path).pop().unwrap();
    let forged = end.replace("\"seq\":3", "\"seq\":4");
    let prev = base::Digest::of(end.as_bytes()).to_string();
    let forged = format!("{}\"prev\":\"{prev}\"}}", &forged[..forged.find("\"prev\"").unwrap()]);
    write_lines(&path, &[before, vec![end, forged]].concat());
    let error = verify_journal(&path).unwrap_err();
    assert!(matches!(error, JournalError::Damaged { line: 4, defect: LineDefect::AfterEnd, .. }), "{error:?}");
}

#[test]
fn every_changed_byte_is_found_and_nothing_panics() {
    let (_place, path) = place();
    write(&path, 4);
    let good = fs::read(&path).unwrap();
    let last_line = good[..good.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 0x01;
        fs::write(&path, &bad).unwrap();
        // No hash covers the last line, so only its format is checked.
        assert!(
            verify_journal(&path).map_or(true, |verified| verified.torn_bytes > 0 || place >= last_line),
            "byte {place}"
        );
    }
}

#[test]
fn missing_or_wrong_index_is_rebuilt() {
    let (_place, path) = place();
    let index = path.with_extension("idx");
    write(&path, 1_000);
    let good = fs::read(&index).unwrap();
    assert_eq!(good.len(), 15 * 8);
    let wrongs: [Vec<u8>; 6] = [
        Vec::new(),
        good[..7 * 8 + 3].to_vec(),
        [good.as_slice(), &[0xff; 24]].concat(),
        good[8..].to_vec(),
        vec![0xff; good.len()],
        vec![0; good.len()],
    ];
    for wrong in wrongs {
        let journal = open(&path).journal;
        fs::write(&index, &wrong).unwrap();
        for sequence in [0, 64, 500, 640, 998] {
            assert_eq!(journal.after(sequence, 2).unwrap()[0].sequence, sequence + 1);
            let reader = JournalReader::open(&path, session()).unwrap();
            assert_eq!(reader.after(sequence, 2).unwrap()[0].sequence, sequence + 1);
            assert_eq!(reader.last().unwrap(), 1_000);
        }
        fs::write(&index, &wrong).unwrap();
        drop(open(&path));
        assert_eq!(fs::read(&index).unwrap(), good);
    }
    fs::remove_file(&index).unwrap();
    drop(open(&path));
    assert_eq!(fs::read(&index).unwrap(), good);
}

#[test]
fn second_writer_is_rejected() {
    let (_place, path) = place();
    let first = open(&path).journal;
    first.append(delta("mine")).unwrap();
    let second = FileJournal::open(&path, session(), Arc::new(SystemClock)).map(|_| ());
    assert!(matches!(second, Err(JournalError::InUse(_))));

    first.rest();
    let second = open(&path).journal;
    second.append(delta("theirs")).unwrap();
    second.rest();
    let error = first.append(delta("numbered twice")).unwrap_err();
    assert!(matches!(error, JournalError::Damaged { defect: LineDefect::Length { .. }, .. }), "{error:?}");
    assert_eq!(verify_journal(&path).unwrap().records, 2);
}

#[test]
fn truncated_file_is_reported_as_damaged() {
    let (_place, path) = place();
    let journal = open(&path).journal;
    (0..100).for_each(|n| drop(journal.append(delta(format!("{n}"))).unwrap()));
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1_000).unwrap();
    assert!(matches!(journal.after(0, 100), Err(JournalError::Damaged { .. })));
    file.write_all_at(b"{\"seq\":2,", 10).unwrap();
    assert!(matches!(journal.after(90, 10), Err(JournalError::Damaged { .. })));
}

#[test]
fn full_disk_loses_no_record_and_appends_work_again_with_space() {
    const NAME: &str = "full_disk_loses_no_record_and_appends_work_again_with_space";
    if let Some(place) = support::child_directory() {
        return fill_the_disk(&place.join("s1.jsonl"));
    }
    let place = tempfile::tempdir().unwrap();
    let output = support::child_command_with_file_limit(NAME, place.path(), 16).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(verify_journal(&place.path().join("s1.jsonl")).unwrap().torn_bytes, 0);
}

fn fill_the_disk(path: &Path) {
    let journal = open(path).journal;
    let mut kept = 0;
    let error = loop {
        match journal.append(delta("x".repeat(700))) {
            Ok(event) => kept = event.sequence,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, JournalError::Io { doing: "write", .. }), "{error:?}");
    assert!(kept > 3);
    let verified = verify_journal(path).unwrap();
    assert_eq!((verified.records, verified.torn_bytes), (kept, 0));
    assert!(journal.append(delta("x".repeat(700))).is_err());
    assert_eq!(journal.append(delta("short")).unwrap().sequence, kept + 1);

    support::remove_file_limit();
    assert_eq!(journal.append(delta("x".repeat(700))).unwrap().sequence, kept + 2);
    assert_eq!(verify_journal(path).unwrap().records, kept + 2);
}
