//! Tests of interrupted applies: killed before each change to a disk, an apply can be finished and undone.

use std::cell::Cell;
use std::cmp::Ordering;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use super::fixture::{ReviewFixture, Tree, chmod, listed, places, tree};
use crate::review::apply::{apply_stepwise, finish_stepwise, undo_stepwise};
use crate::review::{ApplyError, ApplyOptions, SavedChanges};

/// Every kind of change at once; elsewhere than on the workspace's own file system, where originals must be
/// copied, only those that have originals.
fn fixture(place: &Path) -> ReviewFixture {
    if place == places()[0] { every_kind() } else { originals(ReviewFixture::with_saved_in(place)) }
}

fn originals(fixture: ReviewFixture) -> ReviewFixture {
    for file in ["edited", "mode", "gone"] {
        fixture.host_file(file, &format!("{file}\n"));
    }
    symlink("edited", fixture.host("link")).unwrap();
    symlink("gone", fixture.host("lost-link")).unwrap();
    fixture.upper_file("edited", "after\n");
    fixture.upper_file("mode", "mode\n");
    chmod(&fixture.upper("mode"), 0o755);
    fixture.whiteout("gone");
    fixture.whiteout("lost-link");
    fixture.upper_link("link", "mode");
    fixture
}

fn every_kind() -> ReviewFixture {
    let fixture = originals(ReviewFixture::new());
    for file in ["old/a", "old/deep/b", "to-dir", "to-file/x", "to-link/y", "dir/kept"] {
        fixture.host_file(file, &format!("{file}\n"));
    }
    fixture.whiteout("old");
    fixture.upper_file("to-dir/inside", "inside\n");
    fixture.upper_file("to-file", "file\n");
    fixture.upper_link("to-link", "dir");
    fixture.upper_file("dir/new", "new\n");
    chmod(&fixture.upper("dir"), 0o750);
    fixture.upper_file("fresh/empty", "");
    fixture.upper_link("fresh/link", "empty");
    fixture
}

/// Returns the host before and after an apply without a crash.
fn both_ends(place: &Path) -> (Tree, Tree) {
    let fixture = fixture(place);
    let before = tree(&fixture.host(""));
    let mut saved = fixture.save();
    crate::apply(&mut saved, &fixture.host(""), &ApplyOptions::default(), &|_| None).unwrap();
    (before, tree(&fixture.host("")))
}

/// Runs `action` and kills it before change number `stop`; returns whether it completed.
fn until(stop: usize, action: impl FnOnce(&dyn Fn()) -> Result<(), ApplyError>) -> bool {
    let left = Cell::new(stop);
    let before_each = || match left.get() {
        0 => resume_unwind(Box::new("killed")),
        more => left.set(more - 1),
    };
    match catch_unwind(AssertUnwindSafe(|| action(&before_each))) {
        Ok(result) => {
            result.unwrap();
            true
        }
        Err(_) => false,
    }
}

fn applied_until(fixture: &ReviewFixture, stop: usize) -> bool {
    let mut saved = fixture.save();
    let workspace = fixture.host("");
    until(stop, |tick| apply_stepwise(&mut saved, &workspace, &ApplyOptions::default(), &|_| None, tick).map(drop))
}

/// Before its journal is written an apply has changed nothing, and there is nothing to recover.
fn recover(outcome: Result<(), ApplyError>) {
    match outcome {
        Ok(()) | Err(ApplyError::NothingApplied) => {}
        Err(error) => panic!("{error:?}"),
    }
}

/// Calls `check` for each number of changes after which an apply can stop.
fn for_every_stop(place: &Path, check: impl Fn(&ReviewFixture, usize)) {
    for stop in 0.. {
        let fixture = fixture(place);
        let ended = applied_until(&fixture, stop);
        check(&fixture, stop);
        if ended {
            assert!(stop > 20, "only {stop} moments were tried");
            return;
        }
    }
}

/// On the workspace's own file system and, where there is one, on another.
fn on_each_file_system(check: impl Fn(&Path)) {
    for place in places() {
        check(&place);
    }
}

#[test]
fn killed_apply_can_be_finished_and_then_undone() {
    on_each_file_system(|place| {
        let (before, after) = both_ends(place);
        for_every_stop(place, |fixture, stop| {
            let finished = finish_stepwise(&fixture.saved(), &|| ());
            if matches!(finished, Err(ApplyError::NothingApplied)) {
                assert_eq!((stop, tree(&fixture.host(""))), (0, before.clone()));
                return;
            }
            finished.unwrap();
            assert_eq!(tree(&fixture.host("")), after, "finished after {stop}");
            assert_eq!(listed(&SavedChanges::open(&fixture.saved()).unwrap()), [""; 0]);
            undo_stepwise(&fixture.saved(), &|| ()).unwrap();
            assert_eq!(tree(&fixture.host("")), before, "finished after {stop} and undone");
        });
    });
}

#[test]
fn killed_apply_can_be_undone_and_then_repeated() {
    on_each_file_system(|place| {
        let (before, after) = both_ends(place);
        for_every_stop(place, |fixture, stop| {
            recover(undo_stepwise(&fixture.saved(), &|| ()).map(drop));
            assert_eq!(tree(&fixture.host("")), before, "undone after {stop}");
            let mut saved = SavedChanges::open(&fixture.saved()).unwrap();
            assert!(saved.changes().all(|change| !change.conflict));
            crate::apply(&mut saved, &fixture.host(""), &ApplyOptions::default(), &|_| None).unwrap();
            assert_eq!(tree(&fixture.host("")), after, "undone after {stop} and done again");
        });
    });
}

#[test]
fn killed_finish_can_be_finished() {
    let (_, after) = both_ends(&places()[0]);
    for_every_stop(&places()[0], |fixture, stop| {
        // As many again each time: every moment of a finish is met from some moment of an apply.
        for more in [0, 1, 3, 7, 15, 30] {
            if until(more, |tick| finish_stepwise(&fixture.saved(), tick).map(drop).or_else(nothing)) {
                break;
            }
        }
        let finished = finish_stepwise(&fixture.saved(), &|| ());
        recover(finished.map(drop));
        if stop > 0 {
            assert_eq!(tree(&fixture.host("")), after, "after {stop}");
        }
    });
}

#[test]
fn killed_undo_can_be_repeated() {
    on_each_file_system(|place| {
        let (before, after) = both_ends(place);
        for stop in 0.. {
            let fixture = fixture(place);
            assert!(applied_until(&fixture, usize::MAX));
            assert_eq!(tree(&fixture.host("")), after);
            let ended = until(stop, |tick| undo_stepwise(&fixture.saved(), tick).map(drop));
            recover(undo_stepwise(&fixture.saved(), &|| ()).map(drop));
            assert_eq!(tree(&fixture.host("")), before, "after {stop}");
            assert_eq!(SavedChanges::open(&fixture.saved()).unwrap().changes().len(), fixture.save().changes().len());
            if ended {
                break;
            }
        }
    });
}

#[test]
fn unfinished_apply_blocks_another() {
    let fixture = fixture(&places()[0]);
    assert!(!applied_until(&fixture, 20));
    let mut saved = SavedChanges::open(&fixture.saved()).unwrap();
    assert!(saved.is_unfinished().unwrap());
    let again = crate::apply(&mut saved, &fixture.host(""), &ApplyOptions::default(), &|_| None);
    assert!(matches!(again, Err(ApplyError::Unfinished)));
    assert_eq!(crate::discard(&fixture.saved()).unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    // The contents that it needs survive another save.
    fixture.save();
    finish_stepwise(&fixture.saved(), &|| ()).unwrap();
    assert_eq!(tree(&fixture.host("")), both_ends(&places()[0]).1);
}

/// Applies while another process writes `file` before change number `moment`; returns whether there was such a change.
fn written_during_apply(file: &str, moment: usize, before: &Tree) -> bool {
    let fixture = fixture(&places()[0]);
    let mut saved = fixture.save();
    let (left, wrote) = (Cell::new(Some(moment)), Cell::new(false));
    let write_file = || {
        if left.get() == Some(0) && fixture.host(file).parent().unwrap().is_dir() {
            fixture.host_file(file, "theirs\n");
            wrote.set(true);
        }
        left.set(left.get().and_then(|left| left.checked_sub(1)));
    };
    let result = apply_stepwise(&mut saved, &fixture.host(""), &ApplyOptions::default(), &|_| None, &write_file);
    let now = tree(&fixture.host(""));
    if wrote.get() {
        assert_eq!(now[Path::new(file)].2, b"theirs\n", "{file} at {moment}");
    }
    let top = Path::new(file).iter().next().unwrap();
    let rest = |tree: &Tree| -> Tree {
        tree.iter()
            .filter(|(path, _)| !path.starts_with(top))
            .map(|(path, entry)| (path.clone(), entry.clone()))
            .collect()
    };
    match result {
        Ok(_) => {}
        Err(ApplyError::Raced { path, .. }) => {
            assert_eq!(path, Path::new(file));
            assert_eq!(rest(&now), rest(before), "{file} at {moment}");
        }
        Err(error) => panic!("{file} at {moment}: {error:?}"),
    }
    left.get().is_none()
}

#[test]
fn file_changed_during_the_apply_is_kept_and_the_rest_restored() {
    let (before, _) = both_ends(&places()[0]);
    for file in ["edited", "gone", "fresh/empty", "dir/new"] {
        let moments = (0..1000).take_while(|moment| written_during_apply(file, *moment, &before)).count();
        assert!(moments > 40, "only {moments} moments were tried");
    }
}

/// Another process writes `file` before change number `moment` of an apply, which is killed right after that change.
/// Returns whether there was such a change.
fn written_and_killed(file: &str, moment: usize, before: &Tree) -> bool {
    let fixture = fixture(&places()[0]);
    let mut saved = fixture.save();
    let count = Cell::new(0);
    let write_and_die = || {
        match count.get().cmp(&moment) {
            Ordering::Less => {}
            Ordering::Equal => fixture.host_file(file, "theirs\n"),
            Ordering::Greater => resume_unwind(Box::new("killed")),
        }
        count.set(count.get() + 1);
    };
    let apply = || apply_stepwise(&mut saved, &fixture.host(""), &ApplyOptions::default(), &|_| None, &write_and_die);
    // It may also be killed while it restores files.
    let _ = catch_unwind(AssertUnwindSafe(apply));
    let undone = undo_stepwise(&fixture.saved(), &|| ());
    let now = tree(&fixture.host(""));
    if count.get() > moment {
        assert_eq!(now[Path::new(file)].2, b"theirs\n", "{file} at {moment}");
    }
    match undone {
        Ok(_) => assert_eq!(without(&now, file), without(before, file), "{file} at {moment}"),
        // The file was applied before it was written, or the apply had not begun.
        Err(ApplyError::Refused(_) | ApplyError::NothingApplied) => {}
        Err(error) => panic!("{file} at {moment}: {error:?}"),
    }
    count.get() > moment
}

#[test]
fn foreign_file_swapped_out_before_a_crash_is_restored() {
    let (before, _) = both_ends(&places()[0]);
    for file in ["edited", "gone", "dir/new"] {
        let moments = (0..1000).take_while(|moment| written_and_killed(file, *moment, &before)).count();
        assert!(moments > 40, "only {moments} moments were tried");
    }
}

fn without(tree: &Tree, file: &str) -> Tree {
    tree.iter()
        .filter(|(path, _)| *path != Path::new(file))
        .map(|(path, entry)| (path.clone(), entry.clone()))
        .collect()
}

fn nothing(error: ApplyError) -> Result<(), ApplyError> {
    match error {
        ApplyError::NothingApplied => Ok(()),
        error => Err(error),
    }
}
