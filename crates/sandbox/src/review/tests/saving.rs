//! Tests of saving changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::fixture::{ReviewFixture, chmod, listed, name, tree, write, write_after};
use crate::review::manifest::Manifest;
use crate::review::{FileStamp, SavedChange, SavedChanges, SavedEntry, UnsavedReason};

fn change(saved: &SavedChanges, path: impl AsRef<Path>) -> &SavedChange {
    saved.change(path.as_ref()).unwrap()
}

fn content(fixture: &ReviewFixture, change: &SavedChange) -> Vec<u8> {
    fs::read(fixture.saved().join("contents").join(change.sha256().unwrap())).unwrap()
}

#[test]
fn every_kind_of_change_is_saved_with_the_hosts_stamp() {
    let fixture = ReviewFixture::with_host(&["edited", "gone", "same", "dir/kept"]);
    fixture.upper_file("edited", "after\n");
    fixture.whiteout("gone");
    fixture.upper_file("dir/new", "new\n");
    chmod(&fixture.upper("dir/new"), 0o750);
    fixture.upper_link("link", "dir/new");
    fixture.upper_directory("empty");
    let saved = fixture.save();
    assert_eq!(listed(&saved), ["D gone", "A dir/new", "M edited", "A empty", "A link"]);
    let host = fs::metadata(fixture.host("edited")).unwrap();
    let base = change(&saved, "edited").base.unwrap();
    assert_eq!((base.ino, base.size, base.mode), (host.ino(), host.size(), host.mode()));
    assert_eq!(content(&fixture, change(&saved, "edited")), b"after\n");
    assert!(matches!(change(&saved, "dir/new").entry, Some(SavedEntry::Regular { mode: 0o750, size: 4, .. })));
    assert_eq!(change(&saved, "link").entry, Some(SavedEntry::Symlink { target: "dir/new".into() }));
    assert!(matches!(change(&saved, "empty").entry, Some(SavedEntry::Directory { .. })));
    assert!(change(&saved, "gone").entry.is_none() && change(&saved, "gone").base.is_some());
    let opened = SavedChanges::open(&fixture.saved()).unwrap();
    assert!(saved.changes().eq(opened.changes()));
    assert_eq!(opened.workspace(), fixture.layers().lower);
}

#[test]
fn entries_of_a_deleted_directory_are_listed() {
    let fixture = ReviewFixture::with_host(&["old/a", "old/deep/b", "again/a", "again/sub/b", "again/sub/c"]);
    fixture.whiteout("old");
    fixture.opaque("again");
    // Overlayfs marks only the topmost new directory as opaque. Directories in it hide the host's without a mark.
    fixture.upper_file("again/sub/b", "other\n");
    let expected = ["D again/a", "D again/sub/c", "D old", "D old/a", "D old/deep", "D old/deep/b", "M again/sub/b"];
    assert_eq!(listed(&fixture.save()), expected);
}

#[test]
fn file_may_become_a_directory_and_vice_versa() {
    let fixture = ReviewFixture::with_host(&["file", "dir/a"]);
    fixture.upper_file("file/inside", "x\n");
    fixture.upper_file("dir", "now a file\n");
    assert_eq!(listed(&fixture.save()), ["D dir/a", "M dir", "M file", "A file/inside"]);
}

#[test]
fn files_equal_to_the_host_are_not_changes() {
    let fixture = ReviewFixture::with_host(&["touched", "mode", "dir/x", "wide/x"]);
    fixture.upper_file("touched", "touched\n");
    fixture.upper_file("mode", "mode\n");
    chmod(&fixture.upper("mode"), 0o700);
    std::os::unix::fs::symlink("a", fixture.host("link")).unwrap();
    fixture.upper_link("link", "a");
    fixture.upper_directory("dir");
    fixture.upper_directory("wide");
    chmod(&fixture.upper("wide"), 0o700);
    fixture.whiteout("never-there");
    assert_eq!(listed(&fixture.save()), ["M mode", "M wide"]);
}

#[test]
fn host_file_changed_since_the_start_is_a_conflict() {
    let fixture = ReviewFixture::with_host(&["quiet", "busy", "removed"]);
    let since = SystemTime::now();
    for file in ["quiet", "busy", "removed", "fresh"] {
        fixture.upper_file(file, "mine\n");
    }
    let layers = fixture.layers_since(since);
    write_after(&fixture.host("busy"), "theirs\n", since);
    let first = SavedChanges::save(&layers, &fixture.saved()).unwrap();
    assert_eq!(listed(&first), ["M busy !", "A fresh", "M quiet", "M removed"]);
    write_after(&fixture.host("fresh"), "theirs\n", since);
    fs::remove_file(fixture.host("removed")).unwrap();
    let second = SavedChanges::save(&layers, &fixture.saved()).unwrap();
    assert_eq!(listed(&second), ["M busy !", "M fresh !", "M quiet", "A removed !"]);
}

/// Makes the last save appear long after every write.
fn settle(fixture: &ReviewFixture, alter: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest::read(&fixture.saved()).unwrap();
    manifest.saved_nanos = i64::MAX;
    alter(&mut manifest);
    manifest.write(&fixture.saved()).unwrap();
}

#[test]
fn only_changed_files_are_copied_again() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("still", "still\n");
    fixture.upper_file("moving", "one\n");
    let saved = fixture.save();
    let kept = |change: &SavedChange| fixture.saved().join("contents").join(change.sha256().unwrap());
    let (still, moving) = (kept(change(&saved, "still")), kept(change(&saved, "moving")));
    let inode = fs::metadata(&still).unwrap().ino();
    settle(&fixture, |_| ());
    fixture.upper_file("moving", "two\n");
    let again = fixture.save();
    assert_eq!(fs::metadata(&still).unwrap().ino(), inode, "copied although nothing changed");
    assert_eq!(content(&fixture, change(&again, "moving")), b"two\n");
    assert!(moving.exists(), "the content of an earlier set was removed");
}

#[test]
fn final_save_finds_writes_that_do_not_change_times() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("mapped", "one\n");
    fixture.save();
    fixture.upper_file("mapped", "two\n");
    let now = FileStamp::of(&rustix::fs::stat(fixture.upper("mapped")).unwrap());
    settle(&fixture, |manifest| manifest.changes[0].upper = Some(now));
    assert_eq!(content(&fixture, change(&fixture.save(), "mapped")), b"one\n");
    let last = SavedChanges::save_final(&fixture.layers(), &fixture.saved()).unwrap();
    assert_eq!(content(&fixture, change(&last, "mapped")), b"two\n");
}

#[test]
fn file_written_just_before_a_save_is_read_again() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("racy", "one\n");
    let stamp = FileStamp::of(&rustix::fs::stat(fixture.upper("racy")).unwrap());
    fixture.save();
    let mut manifest = Manifest::read(&fixture.saved()).unwrap();
    fixture.upper_file("racy", "two\n");
    let later = FileStamp::of(&rustix::fs::stat(fixture.upper("racy")).unwrap());
    manifest.changes[0].upper = Some(later);
    manifest.saved_nanos = stamp.ctime_nanos;
    manifest.write(&fixture.saved()).unwrap();
    assert_eq!(content(&fixture, change(&fixture.save(), "racy")), b"two\n");
}

#[test]
fn special_files_and_links_are_not_opened() {
    let fixture = ReviewFixture::with_host(&["host-file"]);
    write(&fixture.saved().join("../outside"), b"SECRET");
    fixture.upper_link("to-file", "../outside");
    fixture.upper_link("to-directory", "/");
    fixture.upper_directory("special");
    mknodat(CWD, fixture.upper("special/fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    std::os::unix::net::UnixListener::bind(fixture.upper("special/socket")).unwrap();
    fixture.upper_file(name(b"bad\xff\n\x1b[2J"), "x");
    let begun = Instant::now();
    let saved = fixture.save();
    assert!(begun.elapsed() < Duration::from_secs(5), "the save waited for a special file");
    for path in ["special/fifo", "special/socket"] {
        assert!(matches!(change(&saved, path).entry, Some(SavedEntry::Special { .. })), "{path}");
    }
    assert_eq!(change(&saved, "to-file").entry, Some(SavedEntry::Symlink { target: "../outside".into() }));
    assert_eq!(content(&fixture, change(&saved, name(b"bad\xff\n\x1b[2J"))), b"x");
    assert!(SavedChanges::open(&fixture.saved()).unwrap().change(Path::new(name(b"bad\xff\n\x1b[2J"))).is_some());
    assert!(tree(&fixture.saved()).values().all(|(.., content)| content != b"SECRET"));
}

#[test]
fn too_large_and_too_deep_files_are_listed_and_not_saved() {
    let fixture = ReviewFixture::new();
    let huge = fs::File::create(fixture.upper("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let hole = fs::File::create(fixture.upper("hole")).unwrap();
    hole.set_len(8 << 20).unwrap();
    deep(&fixture.upper(""), 40);
    let saved = fixture.save();
    let unsaved = |reason| Some(SavedEntry::Unsaved { reason });
    assert_eq!(change(&saved, "huge").entry, unsaved(UnsavedReason::TooLarge));
    let hole = fs::metadata(fixture.saved().join("contents").join(change(&saved, "hole").sha256().unwrap())).unwrap();
    assert_eq!((hole.len(), hole.blocks()), (8 << 20, 0), "the hole was filled with zeros");
    let deepest = saved.changes().max_by_key(|change| change.path.as_os_str().len()).unwrap();
    assert_eq!(deepest.entry, unsaved(UnsavedReason::TooDeep));
}

/// Directories nested deeper than a path can name.
fn deep(top: &Path, depth: usize) {
    let name = "d".repeat(200);
    let mut directory = rustix::fs::open(top, rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&directory, &*name, Mode::from_raw_mode(0o755)).unwrap();
        directory = rustix::fs::openat(&directory, &*name, rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    }
}

#[test]
fn second_writer_is_refused() {
    let fixture = ReviewFixture::new();
    fixture.save();
    let held = crate::review::save_lock::SaveLock::take(&fixture.saved()).unwrap();
    let error = SavedChanges::save(&fixture.layers(), &fixture.saved()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    drop(held);
    fixture.save();
}

#[test]
fn discarding_twice_is_not_an_error() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("a", "a\n");
    fixture.save();
    crate::discard(&fixture.saved()).unwrap();
    assert!(!fixture.saved().exists());
    crate::discard(&fixture.saved()).unwrap();
    assert_eq!(SavedChanges::open(&fixture.saved()).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}
