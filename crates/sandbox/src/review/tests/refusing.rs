//! Tests of refusals: nothing is applied when any change is refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use policy::{LayerName, RuleRef};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::fixture::{ReviewFixture, chmod, tree};
use crate::review::{ApplyError, ApplyOptions, HostDifference, RefusalReason, SavedChanges, apply};

fn rule(text: &str) -> RuleRef {
    RuleRef { file: "sandbox.policy.yaml".into(), line: Some(7), text: text.into(), layer: LayerName::Base }
}

/// Denies `etc/hooks` and all below.
fn hooks(path: &Path) -> Option<RuleRef> {
    path.starts_with("etc/hooks").then(|| rule("deny_write: etc/hooks/**"))
}

/// Applies everything; returns path and reason of each refusal. The host must not change.
#[track_caller]
fn refusals(fixture: &ReviewFixture, saved: &mut SavedChanges) -> Vec<(String, RefusalReason)> {
    let before = tree(&fixture.host(""));
    let refusals = match apply(saved, &fixture.host(""), &ApplyOptions::default(), &hooks) {
        Err(ApplyError::Refused(refusals)) => refusals,
        other => panic!("{other:?}"),
    };
    assert_eq!(tree(&fixture.host("")), before, "something was applied");
    refusals.into_iter().map(|refusal| (refusal.path.display().to_string(), refusal.reason)).collect()
}

#[track_caller]
fn check(fixture: &ReviewFixture, expected: &[(&str, RefusalReason)]) {
    let expected: Vec<_> = expected.iter().map(|(path, reason)| ((*path).to_owned(), reason.clone())).collect();
    assert_eq!(refusals(fixture, &mut fixture.save()), expected);
}

#[test]
fn all_refusals_are_returned_together() {
    let fixture = ReviewFixture::with_host(&["etc/config"]);
    fixture.upper_file("fine", "fine\n");
    fixture.upper_file("etc/hooks/pre-commit", "#!/bin/sh\n");
    fixture.upper_file("suid", "x");
    chmod(&fixture.upper("suid"), 0o4755);
    fixture.upper_link("abs", "/etc/passwd");
    fixture.upper_link("sub/up", "../../x");
    mknodat(CWD, fixture.upper("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    fs::File::create(fixture.upper("huge")).unwrap().set_len(1 << 40).unwrap();
    let denied = RefusalReason::Denied { rule: rule("deny_write: etc/hooks/**") };
    check(
        &fixture,
        &[
            ("abs", RefusalReason::LinkLeaves { target: "/etc/passwd".into() }),
            ("etc/hooks", denied.clone()),
            ("etc/hooks/pre-commit", denied),
            ("fifo", RefusalReason::SpecialFile),
            ("huge", RefusalReason::NotKept { why: crate::UnsavedReason::TooLarge }),
            ("sub/up", RefusalReason::LinkLeaves { target: "../../x".into() }),
            ("suid", RefusalReason::SpecialMode { mode: 0o4755 }),
        ],
    );
}

#[test]
fn deleting_a_directory_with_denied_files_is_refused() {
    let fixture = ReviewFixture::with_host(&["etc/hooks/pre-commit", "etc/HEAD"]);
    fixture.whiteout("etc");
    let denied = RefusalReason::Denied { rule: rule("deny_write: etc/hooks/**") };
    check(&fixture, &[("etc/hooks", denied.clone()), ("etc/hooks/pre-commit", denied)]);
}

#[test]
fn name_in_a_git_directory_through_a_link_is_refused() {
    let inside = |name: &str| RefusalReason::InsideGitDirectory { directory: name.into() };
    // The link and the file come together.
    let fixture = ReviewFixture::new();
    fixture.upper_link(".git", "tools");
    fixture.upper_file("tools/hooks/pre-commit", "x\n");
    check(
        &fixture,
        &[
            (".git", RefusalReason::GitElsewhere),
            ("tools", inside(".git")),
            ("tools/hooks", inside(".git/hooks")),
            ("tools/hooks/pre-commit", inside(".git/hooks/pre-commit")),
        ],
    );
    // The file was there before.
    let fixture = ReviewFixture::with_host(&["tools/hooks/x"]);
    fixture.upper_link(".git", "tools");
    check(&fixture, &[(".git", RefusalReason::GitElsewhere)]);
    // The link was there before.
    let fixture = ReviewFixture::with_host(&["tools/y"]);
    symlink("tools", fixture.host(".git")).unwrap();
    fixture.upper_file("tools/hooks/x", "x\n");
    check(&fixture, &[("tools/hooks", inside(".git/hooks")), ("tools/hooks/x", inside(".git/hooks/x"))]);
}

#[test]
fn git_is_not_redirected_to_files_of_the_sandbox() {
    let fixture = ReviewFixture::with_host(&["module/.git", "worktree/.git", "plain/.git/HEAD"]);
    fixture.upper_file("module/.git", "gitdir: ../g3\n");
    fixture.upper_file("new/.git", "gitdir: ../g3\n");
    fixture.upper_link("linked/.git", "../g3");
    // A real `.git` directory is left to the policy, and deleting a `.git` file is harmless.
    fixture.upper_file("plain/.git/index", "x");
    fixture.whiteout("worktree/.git");
    check(&fixture, &["linked/.git", "module/.git", "new/.git"].map(|path| (path, RefusalReason::GitElsewhere)));
}

#[test]
fn bare_repository_of_any_name_is_refused() {
    let bare = |path| RefusalReason::BareRepository { directory: Path::new(path).to_owned() };
    let fixture =
        ReviewFixture::with_host(&["half/objects/x", "half/refs/x", "whole/HEAD", "whole/objects/x", "whole/refs/x"]);
    for file in ["new/HEAD", "new/objects/x", "new/refs/x", "new/config", "half/HEAD", "whole/hooks/update"] {
        fixture.upper_file(file, "x");
    }
    // Directories that are not repositories, and entries that git does not obey, are allowed.
    for file in ["notes/HEAD", "notes/config", "hooks/config/refs", "whole/refs/heads/main", "whole/objects/ab/cd"] {
        fixture.upper_file(file, "x");
    }
    fixture.upper_file("split/HEAD", "x");
    fixture.upper_file("split/commondir", "../notes");
    let expected = [
        ("half/HEAD", bare("half")),
        ("new/HEAD", bare("new")),
        ("new/config", bare("new")),
        ("new/objects", bare("new")),
        ("new/refs", bare("new")),
        ("split/HEAD", bare("split")),
        ("split/commondir", bare("split")),
        ("whole/hooks", bare("whole")),
        ("whole/hooks/update", bare("whole")),
    ];
    check(&fixture, &expected);
}

#[test]
fn changes_on_the_host_are_conflicts() {
    let fixture = ReviewFixture::with_host(&["edited", "gone", "replaced", "dir/a", "left/a"]);
    for file in ["edited", "replaced", "appeared", "left/new"] {
        fixture.upper_file(file, "mine\n");
    }
    fixture.whiteout("gone");
    fixture.whiteout("dir");
    let mut saved = fixture.save();
    fixture.host_file("edited", "theirs\n");
    fs::write(fixture.host("copy"), "replaced\n").unwrap();
    fs::rename(fixture.host("copy"), fixture.host("replaced")).unwrap();
    fixture.host_file("appeared", "theirs\n");
    fixture.host_file("dir/b", "theirs\n");
    fs::remove_file(fixture.host("gone")).unwrap();
    fs::remove_dir_all(fixture.host("left")).unwrap();
    let conflict = |path: &str, difference| (path.to_owned(), RefusalReason::Conflict(difference));
    assert_eq!(
        refusals(&fixture, &mut saved),
        [
            conflict("dir", HostDifference::NotEmpty),
            conflict("gone", HostDifference::Gone),
            conflict("appeared", HostDifference::Appeared),
            conflict("edited", HostDifference::Changed),
            conflict("left/new", HostDifference::Gone),
            conflict("replaced", HostDifference::Changed),
        ]
    );
}

#[test]
fn change_with_the_same_size_and_time_is_detected() {
    let fixture = ReviewFixture::with_host(&["file"]);
    fixture.upper_file("file", "mine\n");
    let mut saved = fixture.save();
    let time = fs::metadata(fixture.host("file")).unwrap().modified().unwrap();
    super::fixture::write_after(&fixture.host("file"), "FILE\n", std::time::SystemTime::now());
    fs::File::options().write(true).open(fixture.host("file")).unwrap().set_modified(time).unwrap();
    assert_eq!(refusals(&fixture, &mut saved), [("file".to_owned(), RefusalReason::Conflict(HostDifference::Changed))]);
}

#[test]
fn directory_that_became_a_link_on_the_host_is_refused() {
    let fixture = ReviewFixture::with_host(&["dir/a", "elsewhere/a"]);
    fixture.upper_file("dir/b", "mine\n");
    let mut saved = fixture.save();
    fs::rename(fixture.host("dir"), fixture.host("moved")).unwrap();
    symlink("/tmp", fixture.host("dir")).unwrap();
    assert_eq!(refusals(&fixture, &mut saved), [("dir/b".to_owned(), RefusalReason::ThroughLink)]);
}

#[test]
fn conflict_found_when_saving_is_kept() {
    let fixture = ReviewFixture::with_host(&["file"]);
    fixture.upper_file("file", "mine\n");
    let mut saved =
        SavedChanges::save(&fixture.layers_since(std::time::SystemTime::UNIX_EPOCH), &fixture.saved()).unwrap();
    assert_eq!(refusals(&fixture, &mut saved), [("file".to_owned(), RefusalReason::Conflict(HostDifference::Changed))]);
}

#[test]
fn tampered_manifest_does_not_leave_the_workspace() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("file", "mine\n");
    let mut saved = fixture.save();
    for path in ["../outside", "/etc/outside", "a/../../outside"] {
        let mut manifest = crate::review::manifest::Manifest::read(&fixture.saved()).unwrap();
        manifest.changes[0].change.path = path.into();
        manifest.write(&fixture.saved()).unwrap();
        // The set that was shown is gone, and the one that is there now is refused as well.
        let shown = apply(&mut saved, &fixture.host(""), &ApplyOptions::default(), &hooks);
        assert!(matches!(shown, Err(ApplyError::Stale)), "{shown:?}");
        let mut tampered = SavedChanges::open(&fixture.saved()).unwrap();
        assert_eq!(refusals(&fixture, &mut tampered), [(path.to_owned(), RefusalReason::BadPath)]);
    }
}

#[test]
fn refusal_names_the_rule_and_the_difference() {
    let fixture = ReviewFixture::with_host(&["edited"]);
    fixture.upper_file("edited", "mine\n");
    fixture.upper_file("etc/hooks/pre-commit", "x\n");
    let mut saved = fixture.save();
    fixture.host_file("edited", "theirs\n");
    let error = apply(&mut saved, &fixture.host(""), &ApplyOptions::default(), &hooks).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nothing was applied: `edited`: it changed on the host since the sandbox was made; \
         `etc/hooks`: denied by deny_write: etc/hooks/** (sandbox.policy.yaml:7); \
         `etc/hooks/pre-commit`: denied by deny_write: etc/hooks/** (sandbox.policy.yaml:7)"
    );
    assert_eq!(error.code(), protocol::ProblemCode::ApplyConflict);
    let ApplyError::Refused(refusals) = error else { panic!("{error:?}") };
    let conflict = serde_json::json!({"path": "edited", "reason": "conflict", "difference": "changed"});
    assert_eq!(serde_json::to_value(&refusals[0]).unwrap(), conflict);
    assert_eq!(serde_json::to_value(&refusals[1]).unwrap()["rule"]["line"], 7);
    let only = apply(&mut saved, &fixture.host(""), &ApplyOptions::only(["edited"]), &hooks).unwrap_err();
    let expected = "nothing was applied: `edited`: it changed on the host since the sandbox was made";
    assert_eq!(only.to_string(), expected);
}
