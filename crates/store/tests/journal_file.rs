//! A journal file that was cut, changed, swapped, or could not be written.

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

/// A journal of `count` records at `path`.
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

/// Opens, reads and verifies what stands at `path`; all three must name the same line and flaw.
#[track_caller]
fn check_damage(path: &Path, line: u64, expected: &str) {
    let opened = FileJournal::open(path, session(), Arc::new(SystemClock)).map(|_| ()).unwrap_err();
    let read = JournalReader::open(path, session()).unwrap().after(0, usize::MAX).unwrap_err();
    let verified = verify_journal(path).unwrap_err();
    for error in [opened, read, verified] {
        let JournalError::Damaged { path: named, line: found, byte, defect: flaw } = error else { panic!("{error:?}") };
        let offset: usize =
            lines(path).iter().take(usize::try_from(line).unwrap() - 1).map(|line| line.len() + 1).sum();
        assert_eq!((named.as_path(), found, byte), (path, line, offset as u64));
        assert!(format!("{flaw:?}").starts_with(expected), "{flaw:?}");
    }
}

#[test]
fn nobody_else_can_read_it() {
    let (_place, path) = place();
    write(&path, 70);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_extension("idx")), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[test]
fn a_torn_last_record_is_cut_wherever_it_was_torn() {
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
fn a_length_without_bytes_is_a_torn_record_too() {
    let (_place, path) = place();
    write(&path, 2);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(9_000).unwrap();
    assert!(open(&path).torn_bytes > 8_000);
    assert_eq!(verify_journal(&path).unwrap().torn_bytes, 0);
}

#[test]
fn a_record_torn_at_a_mark_is_cut() {
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
fn a_changed_line_is_named() {
    let (_place, path) = place();
    write(&path, 9);
    let good = lines(&path);
    let check = |change: &dyn Fn(&mut Vec<String>), line: u64, flaw: &str| {
        let mut bad = good.clone();
        change(&mut bad);
        write_lines(&path, &bad);
        check_damage(&path, line, flaw);
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
fn a_foreign_file_is_left_alone() {
    let (_place, path) = place();
    fs::create_dir(path.parent().unwrap()).unwrap();
    for (text, flaw) in [("a letter\n", "NotARecord"), ("a letter", "Foreign"), ("\u{0}\u{1}", "Foreign")] {
        fs::write(&path, text).unwrap();
        let error = FileJournal::open(&path, session(), Arc::new(SystemClock)).map(|_| ()).unwrap_err();
        let JournalError::Damaged { line: 1, byte: 0, defect: found, .. } = error else { panic!("{error:?}") };
        assert!(format!("{found:?}").starts_with(flaw), "{found:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_record_after_the_end_is_damage() {
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
        // No line follows the last one, so its text is vouched for by nobody but its form.
        assert!(
            verify_journal(&path).map_or(true, |verified| verified.torn_bytes > 0 || place >= last_line),
            "byte {place}"
        );
    }
}

#[test]
fn marks_that_are_missing_stale_or_wrong_are_made_again() {
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
fn one_writer_at_a_time() {
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
fn a_file_that_was_cut_under_us_is_told_not_served() {
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
fn a_full_disk_loses_nothing_and_is_forgotten_when_there_is_room() {
    const NAME: &str = "a_full_disk_loses_nothing_and_is_forgotten_when_there_is_room";
    if let Some(place) = support::child_place() {
        return fill_the_disk(&place.join("s1.jsonl"));
    }
    let place = tempfile::tempdir().unwrap();
    let output = support::again_with_small_files(NAME, place.path(), 16).output().unwrap();
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

    support::lift_the_limit();
    assert_eq!(journal.append(delta("x".repeat(700))).unwrap().sequence, kept + 2);
    assert_eq!(verify_journal(path).unwrap().records, kept + 2);
}
