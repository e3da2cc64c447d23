//! Tests of apply and undo.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use super::fixture::{ReviewFixture, chmod, listed, tree, write_after};
use crate::review::{
    ApplyError, ApplyOptions, HostDifference, RefusalReason, SavedChanges, apply, discard, finish, undo,
};

/// Applies with nothing denied.
fn apply_all(fixture: &ReviewFixture, saved: &mut SavedChanges) -> Result<Vec<String>, ApplyError> {
    apply_paths(fixture, saved, &[])
}

fn apply_paths(fixture: &ReviewFixture, saved: &mut SavedChanges, paths: &[&str]) -> Result<Vec<String>, ApplyError> {
    let applied = apply(saved, &fixture.host(""), &ApplyOptions::only(paths), &|_| None)?;
    Ok(applied.changes.iter().map(|change| change.path.display().to_string()).collect())
}

fn read(fixture: &ReviewFixture, path: &str) -> String {
    fs::read_to_string(fixture.host(path)).unwrap()
}

#[test]
fn applied_changes_are_on_the_host_and_no_longer_pending() {
    let fixture = ReviewFixture::with_host(&["edited", "gone", "dir/kept"]);
    fixture.upper_file("edited", "after\n");
    chmod(&fixture.upper("edited"), 0o755);
    fixture.whiteout("gone");
    fixture.upper_file("dir/sub/new", "new\n");
    fixture.upper_link("link", "dir/kept");
    let mut saved = fixture.save();
    let applied = apply_all(&fixture, &mut saved).unwrap();
    assert_eq!(applied, ["gone", "dir/sub", "dir/sub/new", "edited", "link"]);
    assert_eq!((read(&fixture, "edited").as_str(), read(&fixture, "dir/sub/new").as_str()), ("after\n", "new\n"));
    assert_eq!(fs::metadata(fixture.host("edited")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_link(fixture.host("link")).unwrap(), Path::new("dir/kept"));
    assert!(!fixture.host("gone").exists());
    assert_eq!(listed(&saved), [""; 0]);
    assert_eq!(listed(&SavedChanges::open(&fixture.saved()).unwrap()), [""; 0]);
    assert_eq!(listed(&fixture.save()), [""; 0], "what was applied is as on the host");
    let strays =
        tree(&fixture.host("")).into_keys().filter(|path| path.to_string_lossy().contains("viv-apply")).count();
    assert_eq!(strays, 0);
}

#[test]
fn applying_a_path_includes_its_entries_and_parents() {
    let fixture = ReviewFixture::with_host(&["other"]);
    for file in ["a/b/one", "a/b/two", "a/three", "c"] {
        fixture.upper_file(file, "x\n");
    }
    fixture.whiteout("other");
    let mut saved = fixture.save();
    assert_eq!(apply_paths(&fixture, &mut saved, &["a/b"]).unwrap(), ["a", "a/b", "a/b/one", "a/b/two"]);
    assert_eq!(listed(&saved), ["D other", "A a/three", "A c"]);
    assert!(fixture.host("other").exists() && !fixture.host("a/three").exists());
    assert_eq!(apply_all(&fixture, &mut saved).unwrap(), ["other", "a/three", "c"]);
    let error = apply_paths(&fixture, &mut saved, &["nowhere"]).unwrap_err();
    let ApplyError::Refused(refusals) = error else { panic!("{error}") };
    assert_eq!(refusals[0].reason, RefusalReason::NotChanged);
}

#[test]
fn applied_files_can_be_changed_again() {
    let fixture = ReviewFixture::with_host(&["file"]);
    let layers = fixture.layers();
    fixture.upper_file("file", "one\n");
    let mut saved = SavedChanges::save(&layers, &fixture.saved()).unwrap();
    apply_all(&fixture, &mut saved).unwrap();
    fixture.upper_file("file", "two\n");
    let mut saved = SavedChanges::save(&layers, &fixture.saved()).unwrap();
    assert_eq!(listed(&saved), ["M file"], "our own write is not a conflict");
    apply_all(&fixture, &mut saved).unwrap();
    assert_eq!(read(&fixture, "file"), "two\n");
    fixture.upper_file("file", "three\n");
    write_after(&fixture.host("file"), "theirs\n", SystemTime::now());
    let saved = SavedChanges::save(&layers, &fixture.saved()).unwrap();
    assert_eq!(listed(&saved), ["M file !"], "somebody else's is");
}

#[test]
fn last_apply_can_be_undone_and_repeated() {
    let fixture = ReviewFixture::with_host(&["edited", "old/deep/file"]);
    chmod(&fixture.host("old/deep"), 0o711);
    fixture.upper_file("edited", "after\n");
    fixture.whiteout("old");
    fixture.upper_file("new/file", "new\n");
    let (before, inode) = (tree(&fixture.host("")), fs::metadata(fixture.host("edited")).unwrap().ino());
    let layers = fixture.layers();
    let mut saved = SavedChanges::save(&layers, &fixture.saved()).unwrap();
    let pending = listed(&saved);
    apply_all(&fixture, &mut saved).unwrap();
    let after = tree(&fixture.host(""));
    undo(&fixture.saved()).unwrap();
    assert_eq!(tree(&fixture.host("")), before);
    assert_eq!(fs::metadata(fixture.host("edited")).unwrap().ino(), inode, "the very file is back");
    assert_eq!(listed(&SavedChanges::open(&fixture.saved()).unwrap()), pending);
    assert!(matches!(undo(&fixture.saved()), Err(ApplyError::NothingApplied)));
    let mut again = SavedChanges::save(&layers, &fixture.saved()).unwrap();
    assert_eq!(listed(&again), pending, "an undone change is not a conflict");
    apply_all(&fixture, &mut again).unwrap();
    assert_eq!(tree(&fixture.host("")), after);
}

#[test]
fn undo_does_not_overwrite_later_changes() {
    let fixture = ReviewFixture::with_host(&["edited", "gone"]);
    fixture.upper_file("edited", "after\n");
    fixture.whiteout("gone");
    fixture.upper_file("new", "new\n");
    let mut saved = fixture.save();
    apply_all(&fixture, &mut saved).unwrap();
    for file in ["edited", "gone", "new"] {
        fixture.host_file(file, "theirs\n");
    }
    let before = tree(&fixture.host(""));
    let ApplyError::Refused(mut refusals) = undo(&fixture.saved()).unwrap_err() else { panic!("not refused") };
    refusals.sort_by(|a, b| a.path.cmp(&b.path));
    let reasons: Vec<_> = refusals.into_iter().map(|refusal| refusal.reason).collect();
    let expected =
        [HostDifference::Changed, HostDifference::Appeared, HostDifference::Changed].map(RefusalReason::Conflict);
    assert_eq!(reasons, expected);
    assert_eq!(tree(&fixture.host("")), before, "nothing was touched");
}

#[test]
fn finish_without_an_apply_is_an_error() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("a", "a\n");
    let mut saved = fixture.save();
    assert!(matches!(finish(&fixture.saved()), Err(ApplyError::NothingApplied)));
    apply_all(&fixture, &mut saved).unwrap();
    assert_eq!(finish(&fixture.saved()).unwrap().changes.len(), 1);
    assert!(!saved.is_unfinished().unwrap());
    discard(&fixture.saved()).unwrap();
    assert_eq!(read(&fixture, "a"), "a\n");
}

#[test]
fn apply_of_stale_changes_is_refused() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("a", "a\n");
    let mut saved = fixture.save();
    fixture.upper_file("a", "b\n");
    fixture.save();
    assert!(matches!(apply_all(&fixture, &mut saved), Err(ApplyError::Stale)));
}

#[test]
fn many_files_are_applied_in_batches() {
    let fixture = ReviewFixture::new();
    for number in 0..700 {
        fixture.upper_file(format!("dir{}/file{number}", number % 7), &format!("{number}\n"));
    }
    let mut saved = fixture.save();
    apply_all(&fixture, &mut saved).unwrap();
    assert_eq!(tree(&fixture.host("")), tree(&fixture.upper("")));
    undo(&fixture.saved()).unwrap();
    assert!(tree(&fixture.host("")).is_empty());
}

#[test]
fn read_only_directories_are_filled_before_they_are_closed() {
    let fixture = ReviewFixture::with_host(&["shut/file"]);
    fixture.upper_file("locked/file", "x\n");
    chmod(&fixture.upper("locked"), 0o555);
    chmod(&fixture.host("shut"), 0o755);
    fixture.upper_file("shut/file", "changed\n");
    chmod(&fixture.upper("shut"), 0o500);
    let mut saved = fixture.save();
    apply_all(&fixture, &mut saved).unwrap();
    let mode = |path: &str| fs::metadata(fixture.host(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("locked"), mode("shut"), read(&fixture, "shut/file").as_str()), (0o555, 0o500, "changed\n"));
    undo(&fixture.saved()).unwrap();
    assert_eq!((mode("shut"), read(&fixture, "shut/file").as_str()), (0o755, "shut/file\n"));
    assert!(!fixture.host("locked").exists());
    // Restored so that an ordinary user can remove the directories.
    chmod(&fixture.upper("locked"), 0o755);
    chmod(&fixture.upper("shut"), 0o755);
}
