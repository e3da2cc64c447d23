//! Tests of change sets: a set never changes, and exactly the set that was reviewed is applied.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::fixture::{ReviewFixture, chmod, listed, tree};
use crate::review::manifest::Manifest;
use crate::review::{ApplyError, ApplyOptions, SavedChanges, SetOrigin, SetSummary, compare_sets};
use crate::{ChangeKind, SetNote};

/// Applies the set and returns the error.
fn apply(fixture: &ReviewFixture, saved: &mut SavedChanges) -> Result<(), ApplyError> {
    crate::apply(saved, &fixture.host(""), &ApplyOptions::default(), &|_| None).map(drop)
}

fn open(fixture: &ReviewFixture, number: u64) -> SavedChanges {
    SavedChanges::open_set(&fixture.saved(), number).unwrap()
}

fn numbers(fixture: &ReviewFixture) -> Vec<u64> {
    SavedChanges::sets(&fixture.saved()).unwrap().into_iter().map(|set| set.number).collect()
}

#[track_caller]
fn check_host(fixture: &ReviewFixture, path: &str, content: &str) {
    assert_eq!(fs::read_to_string(fixture.host(path)).unwrap(), content);
}

#[test]
fn save_without_a_difference_makes_no_set() {
    let fixture = ReviewFixture::with_host(&["edited"]);
    assert_eq!(fixture.save().set_number(), 0);
    assert!(numbers(&fixture).is_empty());
    fixture.upper_file("edited", "one\n");
    let first = fixture.save();
    let again = SavedChanges::save_final(&fixture.layers(), &fixture.saved()).unwrap();
    assert_eq!((first.set_number(), first.digest()), (1, again.digest()));
    // Other entries of a directory on the host are not a difference.
    fixture.upper_directory("dir");
    let second = fixture.save();
    fixture.host_file("other", "x");
    assert_eq!((second.set_number(), fixture.save().set_number()), (2, 2));
    assert_eq!(numbers(&fixture), [1, 2]);
}

#[test]
fn earlier_set_keeps_its_changes_and_contents() {
    let fixture = ReviewFixture::with_host(&["edited", "gone"]);
    fixture.upper_file("edited", "harmless\n");
    let note = SetNote { turn: Some("turn-1".to_owned()), ..SetNote::default() };
    let first = SavedChanges::save_with_note(&fixture.layers(), &fixture.saved(), note).unwrap();
    let file = fixture.saved().join("sets/1.json");
    let recorded = fs::read(&file).unwrap();
    fixture.upper_file("edited", "harmful\n");
    fixture.upper_file("more", "more\n");
    fixture.whiteout("gone");
    fixture.save();
    assert_eq!(fs::read(&file).unwrap(), recorded);
    let earlier = open(&fixture, 1);
    assert_eq!((listed(&earlier), earlier.digest()), (vec!["M edited".to_owned()], first.digest()));
    assert_eq!(earlier.read(Path::new("edited")).unwrap(), b"harmless\n");
    assert!(earlier.diff(Path::new("edited")).unwrap().unwrap().contains("+harmless"));
    assert_eq!(earlier.summary().unwrap().turn.as_deref(), Some("turn-1"));
    assert_eq!(SavedChanges::open_set(&fixture.saved(), 3).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(SavedChanges::open_set(&fixture.saved(), 0).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn set_that_was_current_is_not_applied_after_another_save() {
    let fixture = ReviewFixture::with_host(&["edited"]);
    fixture.upper_file("edited", "harmless\n");
    let mut shown = fixture.save();
    fixture.upper_file("edited", "harmful\n");
    fixture.save();
    assert!(matches!(apply(&fixture, &mut shown), Err(ApplyError::Stale)));
    check_host(&fixture, "edited", "edited\n");
    // Named by its number, the earlier set is applied as it was.
    apply(&fixture, &mut open(&fixture, 1)).unwrap();
    check_host(&fixture, "edited", "harmless\n");
}

#[test]
fn rest_of_an_apply_is_a_set_of_its_own() {
    let fixture = ReviewFixture::with_host(&["a", "b"]);
    fixture.upper_file("a", "new a\n");
    fixture.upper_file("b", "new b\n");
    let mut saved = fixture.save();
    let first = saved.digest();
    crate::apply(&mut saved, &fixture.host(""), &ApplyOptions::only(["a"]), &|_| None).unwrap();
    assert_eq!((saved.set_number(), listed(&saved)), (2, vec!["M b".to_owned()]));
    apply(&fixture, &mut saved).unwrap();
    assert_eq!((saved.set_number(), saved.changes().len()), (3, 0));
    let sets = SavedChanges::sets(&fixture.saved()).unwrap();
    assert_eq!(sets.iter().map(SetSummary::paths).collect::<Vec<_>>(), [2, 1, 0]);
    assert_eq!(sets[1].origin, SetOrigin::Apply);
    crate::undo(&fixture.saved()).unwrap();
    let undone = SavedChanges::open(&fixture.saved()).unwrap();
    assert_eq!((undone.set_number(), listed(&undone)), (4, vec!["M b".to_owned()]));
    assert_eq!(open(&fixture, 1).digest(), first);
}

#[test]
fn later_set_can_be_applied_after_an_earlier_one() {
    let fixture = ReviewFixture::with_host(&["edited", "gone"]);
    fixture.upper_file("edited", "one\n");
    fixture.upper_file("fresh", "one\n");
    fixture.upper_file("same", "same\n");
    fixture.save();
    fixture.upper_file("edited", "two\n");
    fs::remove_file(fixture.upper("fresh")).unwrap();
    fixture.whiteout("gone");
    fixture.save();
    apply(&fixture, &mut open(&fixture, 1)).unwrap();
    check_host(&fixture, "fresh", "one\n");
    let mut rest = SavedChanges::open(&fixture.saved()).unwrap();
    assert_eq!(listed(&rest), ["D gone", "M edited"]);
    apply(&fixture, &mut rest).unwrap();
    check_host(&fixture, "edited", "two\n");
    assert!(!fixture.host("gone").exists());
}

#[test]
fn undo_of_an_earlier_set_restores_the_current_one() {
    let fixture = ReviewFixture::with_host(&["edited"]);
    fixture.upper_file("edited", "one\n");
    fixture.upper_file("dropped", "one\n");
    fixture.save();
    fixture.upper_file("edited", "two\n");
    fs::remove_file(fixture.upper("dropped")).unwrap();
    let before = tree(&fixture.host(""));
    let current = listed(&fixture.save());
    apply(&fixture, &mut open(&fixture, 1)).unwrap();
    crate::undo(&fixture.saved()).unwrap();
    assert_eq!(tree(&fixture.host("")), before);
    let mut undone = SavedChanges::open(&fixture.saved()).unwrap();
    assert_eq!(listed(&undone), current);
    apply(&fixture, &mut undone).unwrap();
    check_host(&fixture, "edited", "two\n");
}

#[test]
fn sets_are_compared_by_path() {
    let fixture = ReviewFixture::with_host(&["edited", "still"]);
    for file in ["edited", "still", "dropped", "mode"] {
        fixture.upper_file(file, "one\n");
    }
    fixture.save();
    fixture.upper_file("edited", "two\n");
    fixture.upper_file("late", "two\n");
    chmod(&fixture.upper("mode"), 0o755);
    fs::remove_file(fixture.upper("dropped")).unwrap();
    let differences = compare_sets(&fixture.save(), &open(&fixture, 1));
    let found: Vec<_> = differences.iter().map(|found| (found.path.to_str().unwrap(), found.kind)).collect();
    let expected = [
        ("dropped", ChangeKind::Deleted),
        ("edited", ChangeKind::Modified),
        ("late", ChangeKind::Added),
        ("mode", ChangeKind::Modified),
    ];
    assert_eq!(found, expected);
}

/// Removes the traces of change sets, as in a directory of an earlier build.
fn forget_sets(fixture: &ReviewFixture) {
    fs::remove_dir_all(fixture.saved().join("sets")).unwrap();
    let manifest = fixture.saved().join("manifest.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    json.as_object_mut().unwrap().remove("set");
    fs::write(manifest, json.to_string()).unwrap();
}

#[test]
fn manifest_of_an_earlier_build_is_set_one() {
    let fixture = ReviewFixture::with_host(&["edited"]);
    fixture.upper_file("edited", "one\n");
    let digest = fixture.save().digest();
    forget_sets(&fixture);
    let opened = SavedChanges::open(&fixture.saved()).unwrap();
    assert_eq!((opened.set_number(), opened.digest()), (1, digest));
    assert_eq!((numbers(&fixture), open(&fixture, 1).digest()), (vec![1], digest));
    fixture.upper_file("edited", "two\n");
    assert_eq!(fixture.save().set_number(), 2);
    assert_eq!((numbers(&fixture), open(&fixture, 1).digest()), (vec![1, 2], digest));
    assert_eq!(open(&fixture, 1).read(Path::new("edited")).unwrap(), b"one\n");

    let fixture = ReviewFixture::with_host(&["edited"]);
    fixture.upper_file("edited", "one\n");
    fixture.save();
    forget_sets(&fixture);
    apply(&fixture, &mut open(&fixture, 1)).unwrap();
    assert_eq!(numbers(&fixture), [1, 2]);
    assert_eq!(listed(&open(&fixture, 1)), ["M edited"]);
}

#[test]
fn damaged_set_and_damaged_content_are_not_applied() {
    let fixture = ReviewFixture::with_host(&["edited"]);
    fixture.upper_file("edited", "one\n");
    let saved = fixture.save();
    fixture.upper_file("edited", "two\n");
    let mut current = fixture.save();
    let file = fixture.saved().join("sets/1.json");
    let text = fs::read_to_string(&file).unwrap().replace("\"edited\"", "\"Edited\"");
    fs::write(&file, text).unwrap();
    let error = SavedChanges::open_set(&fixture.saved(), saved.set_number()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    let content = current.change(Path::new("edited")).unwrap().sha256().unwrap().to_owned();
    fs::write(fixture.saved().join("contents").join(content), "bad\n").unwrap();
    assert!(matches!(apply(&fixture, &mut current), Err(ApplyError::Failed { .. })));
    check_host(&fixture, "edited", "edited\n");
}

#[test]
fn interrupted_save_keeps_the_sets_and_leaves_nothing_behind() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("a", "one\n");
    let first = fixture.save();
    let manifest = fs::read(fixture.saved().join("manifest.json")).unwrap();
    fixture.upper_file("a", "two\n");
    fixture.save();
    // A save that was killed after it wrote the set and before it wrote the manifest.
    fs::write(fixture.saved().join("manifest.json"), manifest).unwrap();
    fs::write(fixture.saved().join("saving"), "").unwrap();
    fs::write(fixture.saved().join("contents/0000"), "unnamed").unwrap();
    let opened = SavedChanges::open(&fixture.saved()).unwrap();
    assert_eq!((opened.set_number(), opened.digest()), (1, first.digest()));
    assert_eq!(SavedChanges::open_set(&fixture.saved(), 2).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(numbers(&fixture), [1]);
    fixture.upper_file("a", "three\n");
    assert_eq!(fixture.save().set_number(), 2);
    assert_eq!(open(&fixture, 2).read(Path::new("a")).unwrap(), b"three\n");
    assert_eq!(open(&fixture, 1).read(Path::new("a")).unwrap(), b"one\n");
    assert!(!fixture.saved().join("contents/0000").exists() && !fixture.saved().join("saving").exists());
    assert_eq!(fs::read_dir(fixture.saved().join("contents")).unwrap().count(), 2);
}

#[test]
fn oldest_sets_and_their_contents_are_removed() {
    let fixture = ReviewFixture::new();
    for number in 1..=130 {
        fixture.upper_file("a", &format!("{number}\n"));
        assert_eq!(fixture.save().set_number(), number);
    }
    let kept = numbers(&fixture);
    assert!((75..=100).contains(&kept.len()) && kept.last() == Some(&130), "{kept:?}");
    assert!(kept.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{kept:?}");
    assert_eq!(fs::read_dir(fixture.saved().join("contents")).unwrap().count(), kept.len());
    for number in [kept[0], 130] {
        assert_eq!(open(&fixture, number).read(Path::new("a")).unwrap(), format!("{number}\n").as_bytes());
    }
}

/// One step of a session: a file is written or removed, the changes are saved, or the current set is applied.
#[derive(Debug, Clone)]
enum Action {
    Write(usize, u8),
    Remove(usize),
    Save,
    Apply,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0_usize..3, any::<u8>()).prop_map(|(file, content)| Action::Write(file, content % 3)),
        (0_usize..3).prop_map(Action::Remove),
        Just(Action::Save),
        Just(Action::Apply),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// No event alters an existing change set, and an apply writes exactly the set that it names.
    #[test]
    fn sets_never_change(actions in proptest::collection::vec(action(), 1..24)) {
        let fixture = ReviewFixture::with_host(&["f0", "f1"]);
        let mut seen: Vec<(u64, String, Vec<String>)> = Vec::new();
        for action in actions {
            match action {
                Action::Write(file, content) => fixture.upper_file(format!("f{file}"), &format!("{content}\n")),
                Action::Remove(file) => drop(fs::remove_file(fixture.upper(format!("f{file}")))),
                Action::Save => drop(SavedChanges::save_final(&fixture.layers(), &fixture.saved()).unwrap()),
                Action::Apply => {
                    let Ok(mut saved) = SavedChanges::open(&fixture.saved()) else { continue };
                    let shown = saved.clone();
                    if apply(&fixture, &mut saved).is_ok() {
                        for change in shown.changes() {
                            let landed = fs::read(fixture.host(&change.path)).ok();
                            prop_assert_eq!(landed, shown.read(&change.path).ok());
                        }
                    }
                }
            }
            let Ok(current) = SavedChanges::open(&fixture.saved()) else { continue };
            let state = (current.set_number(), current.digest().to_string(), listed(&current));
            if current.set_number() > seen.last().map_or(0, |(number, ..)| *number) {
                seen.push(state);
            }
            for (number, digest, changes) in &seen {
                let set = open(&fixture, *number);
                prop_assert_eq!((&set.digest().to_string(), &listed(&set)), (digest, changes));
                prop_assert!(set.changes().all(|change| change.entry.is_none() || set.read(&change.path).is_ok()));
            }
        }
    }
}

/// Reads the manifest, to make sure that tests compare what is on disk.
#[test]
fn manifest_names_the_current_set() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("a", "one\n");
    fixture.save();
    assert_eq!(Manifest::read(&fixture.saved()).unwrap().set, 1);
}
