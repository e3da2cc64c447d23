//! What apply and undo leave on the host.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use super::fixture::{Desk, chmod, listed, tree, write_after};
use crate::review::{ApplyError, HostDifference, RefusalReason, SavedChanges, apply, discard, finish, undo};

/// Applies with nothing denied.
fn apply_all(desk: &Desk, saved: &mut SavedChanges) -> Result<Vec<String>, ApplyError> {
    apply_paths(desk, saved, None)
}

fn apply_paths(desk: &Desk, saved: &mut SavedChanges, paths: Option<&[&str]>) -> Result<Vec<String>, ApplyError> {
    let paths: Option<Vec<&Path>> = paths.map(|paths| paths.iter().map(Path::new).collect());
    let applied = apply(saved, &desk.host(""), paths.as_deref(), &|_| None)?;
    Ok(applied.changes.iter().map(|change| change.path.display().to_string()).collect())
}

fn read(desk: &Desk, path: &str) -> String {
    fs::read_to_string(desk.host(path)).unwrap()
}

#[test]
fn applied_changes_are_on_the_host_and_no_changes_any_more() {
    let desk = Desk::with_host(&["edited", "gone", "dir/kept"]);
    desk.upper_file("edited", "after\n");
    chmod(&desk.upper("edited"), 0o755);
    desk.whiteout("gone");
    desk.upper_file("dir/sub/new", "new\n");
    desk.upper_link("link", "dir/kept");
    let mut saved = desk.save();
    let applied = apply_all(&desk, &mut saved).unwrap();
    assert_eq!(applied, ["gone", "dir/sub", "dir/sub/new", "edited", "link"]);
    assert_eq!((read(&desk, "edited").as_str(), read(&desk, "dir/sub/new").as_str()), ("after\n", "new\n"));
    assert_eq!(fs::metadata(desk.host("edited")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_link(desk.host("link")).unwrap(), Path::new("dir/kept"));
    assert!(!desk.host("gone").exists());
    assert_eq!(listed(&saved), [""; 0]);
    assert_eq!(listed(&SavedChanges::open(&desk.saved()).unwrap()), [""; 0]);
    assert_eq!(listed(&desk.save()), [""; 0], "what was applied is as on the host");
    let strays = tree(&desk.host("")).into_keys().filter(|path| path.to_string_lossy().contains("viv-apply")).count();
    assert_eq!(strays, 0);
}

#[test]
fn a_path_brings_what_is_below_it_and_the_directories_above() {
    let desk = Desk::with_host(&["other"]);
    for file in ["a/b/one", "a/b/two", "a/three", "c"] {
        desk.upper_file(file, "x\n");
    }
    desk.whiteout("other");
    let mut saved = desk.save();
    assert_eq!(apply_paths(&desk, &mut saved, Some(&["a/b"])).unwrap(), ["a", "a/b", "a/b/one", "a/b/two"]);
    assert_eq!(listed(&saved), ["D other", "A a/three", "A c"]);
    assert!(desk.host("other").exists() && !desk.host("a/three").exists());
    assert_eq!(apply_all(&desk, &mut saved).unwrap(), ["other", "a/three", "c"]);
    let error = apply_paths(&desk, &mut saved, Some(&["nowhere"])).unwrap_err();
    let ApplyError::Refused(refusals) = error else { panic!("{error}") };
    assert_eq!(refusals[0].reason, RefusalReason::NotChanged);
}

#[test]
fn a_session_that_goes_on_may_change_what_was_applied() {
    let desk = Desk::with_host(&["file"]);
    let layers = desk.layers();
    desk.upper_file("file", "one\n");
    let mut saved = SavedChanges::save(&layers, &desk.saved()).unwrap();
    apply_all(&desk, &mut saved).unwrap();
    desk.upper_file("file", "two\n");
    let mut saved = SavedChanges::save(&layers, &desk.saved()).unwrap();
    assert_eq!(listed(&saved), ["M file"], "our own write is no conflict");
    apply_all(&desk, &mut saved).unwrap();
    assert_eq!(read(&desk, "file"), "two\n");
    desk.upper_file("file", "three\n");
    write_after(&desk.host("file"), "theirs\n", SystemTime::now());
    let saved = SavedChanges::save(&layers, &desk.saved()).unwrap();
    assert_eq!(listed(&saved), ["M file !"], "somebody else's is");
}

#[test]
fn the_last_apply_can_be_undone_and_done_again() {
    let desk = Desk::with_host(&["edited", "old/deep/file"]);
    chmod(&desk.host("old/deep"), 0o711);
    desk.upper_file("edited", "after\n");
    desk.whiteout("old");
    desk.upper_file("new/file", "new\n");
    let (before, inode) = (tree(&desk.host("")), fs::metadata(desk.host("edited")).unwrap().ino());
    let layers = desk.layers();
    let mut saved = SavedChanges::save(&layers, &desk.saved()).unwrap();
    let pending = listed(&saved);
    apply_all(&desk, &mut saved).unwrap();
    let after = tree(&desk.host(""));
    undo(&desk.saved()).unwrap();
    assert_eq!(tree(&desk.host("")), before);
    assert_eq!(fs::metadata(desk.host("edited")).unwrap().ino(), inode, "the very file is back");
    assert_eq!(listed(&SavedChanges::open(&desk.saved()).unwrap()), pending);
    assert!(matches!(undo(&desk.saved()), Err(ApplyError::NothingApplied)));
    let mut again = SavedChanges::save(&layers, &desk.saved()).unwrap();
    assert_eq!(listed(&again), pending, "an undone change is no conflict");
    apply_all(&desk, &mut again).unwrap();
    assert_eq!(tree(&desk.host("")), after);
}

#[test]
fn undo_overwrites_nothing_that_came_later() {
    let desk = Desk::with_host(&["edited", "gone"]);
    desk.upper_file("edited", "after\n");
    desk.whiteout("gone");
    desk.upper_file("new", "new\n");
    let mut saved = desk.save();
    apply_all(&desk, &mut saved).unwrap();
    for file in ["edited", "gone", "new"] {
        desk.host_file(file, "theirs\n");
    }
    let before = tree(&desk.host(""));
    let ApplyError::Refused(mut refusals) = undo(&desk.saved()).unwrap_err() else { panic!("not refused") };
    refusals.sort_by(|a, b| a.path.cmp(&b.path));
    let reasons: Vec<_> = refusals.into_iter().map(|refusal| refusal.reason).collect();
    let expected =
        [HostDifference::Changed, HostDifference::Appeared, HostDifference::Changed].map(RefusalReason::Conflict);
    assert_eq!(reasons, expected);
    assert_eq!(tree(&desk.host("")), before, "nothing was touched");
}

#[test]
fn a_finished_apply_is_finished_and_a_missing_one_is_told() {
    let desk = Desk::new();
    desk.upper_file("a", "a\n");
    let mut saved = desk.save();
    assert!(matches!(finish(&desk.saved()), Err(ApplyError::NothingApplied)));
    apply_all(&desk, &mut saved).unwrap();
    assert_eq!(finish(&desk.saved()).unwrap().changes.len(), 1);
    assert!(!saved.is_unfinished().unwrap());
    discard(&desk.saved()).unwrap();
    assert_eq!(read(&desk, "a"), "a\n");
}

#[test]
fn a_list_that_was_saved_again_must_be_looked_at_again() {
    let desk = Desk::new();
    desk.upper_file("a", "a\n");
    let mut saved = desk.save();
    desk.upper_file("a", "b\n");
    desk.save();
    assert!(matches!(apply_all(&desk, &mut saved), Err(ApplyError::Stale)));
}

#[test]
fn many_files_are_applied_together() {
    let desk = Desk::new();
    for number in 0..700 {
        desk.upper_file(format!("dir{}/file{number}", number % 7), &format!("{number}\n"));
    }
    let mut saved = desk.save();
    apply_all(&desk, &mut saved).unwrap();
    assert_eq!(tree(&desk.host("")), tree(&desk.upper("")));
    undo(&desk.saved()).unwrap();
    assert!(tree(&desk.host("")).is_empty());
}

#[test]
fn closed_directories_are_filled_and_then_closed() {
    let desk = Desk::with_host(&["shut/file"]);
    desk.upper_file("locked/file", "x\n");
    chmod(&desk.upper("locked"), 0o555);
    chmod(&desk.host("shut"), 0o755);
    desk.upper_file("shut/file", "changed\n");
    chmod(&desk.upper("shut"), 0o500);
    let mut saved = desk.save();
    apply_all(&desk, &mut saved).unwrap();
    let mode = |path: &str| fs::metadata(desk.host(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("locked"), mode("shut"), read(&desk, "shut/file").as_str()), (0o555, 0o500, "changed\n"));
    undo(&desk.saved()).unwrap();
    assert_eq!((mode("shut"), read(&desk, "shut/file").as_str()), (0o755, "shut/file\n"));
    assert!(!desk.host("locked").exists());
    // So that an ordinary user can remove it.
    chmod(&desk.upper("locked"), 0o755);
    chmod(&desk.upper("shut"), 0o755);
}
