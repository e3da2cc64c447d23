//! What is never applied, and that nothing is when anything is refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use policy::{LayerName, RuleRef};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::fixture::{Desk, chmod, tree};
use crate::review::{ApplyError, HostDifference, RefusalReason, SavedChanges, apply};

fn rule(text: &str) -> RuleRef {
    RuleRef { file: "sandbox.policy.yaml".into(), line: Some(7), text: text.into(), layer: LayerName::Base }
}

/// Denies `.git/hooks` and all below.
fn hooks(path: &Path) -> Option<RuleRef> {
    path.starts_with(".git/hooks").then(|| rule("deny_write: .git/hooks/**"))
}

/// Applies everything and gives path and reason of each refusal; the host must not have changed.
#[track_caller]
fn refusals(desk: &Desk, saved: &mut SavedChanges) -> Vec<(String, RefusalReason)> {
    let before = tree(&desk.host(""));
    let refusals = match apply(saved, &desk.host(""), None, &hooks) {
        Err(ApplyError::Refused(refusals)) => refusals,
        other => panic!("{other:?}"),
    };
    assert_eq!(tree(&desk.host("")), before, "something was applied");
    refusals.into_iter().map(|refusal| (refusal.path.display().to_string(), refusal.reason)).collect()
}

#[track_caller]
fn check(desk: &Desk, expected: &[(&str, RefusalReason)]) {
    let expected: Vec<_> = expected.iter().map(|(path, reason)| ((*path).to_owned(), reason.clone())).collect();
    assert_eq!(refusals(desk, &mut desk.save()), expected);
}

#[test]
fn all_refusals_are_told_at_once() {
    let desk = Desk::with_host(&[".git/config"]);
    desk.upper_file("fine", "fine\n");
    desk.upper_file(".git/hooks/pre-commit", "#!/bin/sh\n");
    desk.upper_file("suid", "x");
    chmod(&desk.upper("suid"), 0o4755);
    desk.upper_link("abs", "/etc/passwd");
    desk.upper_link("sub/up", "../../x");
    mknodat(CWD, desk.upper("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    fs::File::create(desk.upper("huge")).unwrap().set_len(1 << 40).unwrap();
    let denied = RefusalReason::Denied { rule: rule("deny_write: .git/hooks/**") };
    check(
        &desk,
        &[
            (".git/hooks", denied.clone()),
            (".git/hooks/pre-commit", denied),
            ("abs", RefusalReason::LinkLeaves { target: "/etc/passwd".into() }),
            ("fifo", RefusalReason::SpecialFile),
            ("huge", RefusalReason::NotKept { why: crate::UnsavedReason::TooLarge }),
            ("sub/up", RefusalReason::LinkLeaves { target: "../../x".into() }),
            ("suid", RefusalReason::SpecialMode { mode: 0o4755 }),
        ],
    );
}

#[test]
fn deleting_a_directory_does_not_delete_what_is_denied_in_it() {
    let desk = Desk::with_host(&[".git/hooks/pre-commit", ".git/HEAD"]);
    desk.whiteout(".git");
    let denied = RefusalReason::Denied { rule: rule("deny_write: .git/hooks/**") };
    check(&desk, &[(".git/hooks", denied.clone()), (".git/hooks/pre-commit", denied)]);
}

#[test]
fn a_denied_name_cannot_be_had_through_a_link() {
    let through =
        |name: &str| RefusalReason::DeniedThroughLink { name: name.into(), rule: rule("deny_write: .git/hooks/**") };
    // The link and the file come together.
    let desk = Desk::new();
    desk.upper_link(".git", "tools");
    desk.upper_file("tools/hooks/pre-commit", "x\n");
    check(
        &desk,
        &[
            (".git", RefusalReason::GitElsewhere),
            ("tools/hooks", through(".git/hooks")),
            ("tools/hooks/pre-commit", through(".git/hooks/pre-commit")),
        ],
    );
    // The file was there before.
    let desk = Desk::with_host(&["tools/hooks/x"]);
    desk.upper_link(".git", "tools");
    let expected = [("tools/hooks", through(".git/hooks")), ("tools/hooks/x", through(".git/hooks/x"))];
    check(&desk, &[&[(".git", RefusalReason::GitElsewhere)], expected.as_slice()].concat());
    // The link was there before.
    let desk = Desk::with_host(&["tools/y"]);
    symlink("tools", desk.host(".git")).unwrap();
    desk.upper_file("tools/hooks/x", "x\n");
    check(&desk, &expected);
}

#[test]
fn git_is_not_sent_to_what_the_sandbox_furnished() {
    let desk = Desk::with_host(&["module/.git", "worktree/.git", "plain/.git/HEAD"]);
    desk.upper_file("module/.git", "gitdir: ../g3\n");
    desk.upper_file("new/.git", "gitdir: ../g3\n");
    desk.upper_link("linked/.git", "../g3");
    // A directory of its own is the policy's, and to have none any more is harmless.
    desk.upper_file("plain/.git/index", "x");
    desk.whiteout("worktree/.git");
    check(&desk, &["linked/.git", "module/.git", "new/.git"].map(|path| (path, RefusalReason::GitElsewhere)));
}

#[test]
fn a_directory_that_git_takes_for_a_repository_is_refused_by_any_name() {
    let bare = |path| RefusalReason::BareRepository { directory: Path::new(path).to_owned() };
    let desk = Desk::with_host(&["half/objects/x", "half/refs/x", "whole/HEAD", "whole/objects/x", "whole/refs/x"]);
    for file in ["new/HEAD", "new/objects/x", "new/refs/x", "new/config", "half/HEAD", "whole/hooks/update"] {
        desk.upper_file(file, "x");
    }
    // What git would not take for one, and what it does not obey, is free.
    for file in ["notes/HEAD", "notes/config", "hooks/config/refs", "whole/refs/heads/main", "whole/objects/ab/cd"] {
        desk.upper_file(file, "x");
    }
    desk.upper_file("split/HEAD", "x");
    desk.upper_file("split/commondir", "../notes");
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
    check(&desk, &expected);
}

#[test]
fn what_the_host_changed_is_a_conflict() {
    let desk = Desk::with_host(&["edited", "gone", "replaced", "dir/a", "left/a"]);
    for file in ["edited", "replaced", "appeared", "left/new"] {
        desk.upper_file(file, "mine\n");
    }
    desk.whiteout("gone");
    desk.whiteout("dir");
    let mut saved = desk.save();
    desk.host_file("edited", "theirs\n");
    fs::write(desk.host("copy"), "replaced\n").unwrap();
    fs::rename(desk.host("copy"), desk.host("replaced")).unwrap();
    desk.host_file("appeared", "theirs\n");
    desk.host_file("dir/b", "theirs\n");
    fs::remove_file(desk.host("gone")).unwrap();
    fs::remove_dir_all(desk.host("left")).unwrap();
    let conflict = |path: &str, difference| (path.to_owned(), RefusalReason::Conflict(difference));
    assert_eq!(
        refusals(&desk, &mut saved),
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
fn even_a_change_that_left_size_and_time_alone_is_seen() {
    let desk = Desk::with_host(&["file"]);
    desk.upper_file("file", "mine\n");
    let mut saved = desk.save();
    let time = fs::metadata(desk.host("file")).unwrap().modified().unwrap();
    super::fixture::write_after(&desk.host("file"), "FILE\n", std::time::SystemTime::now());
    fs::File::options().write(true).open(desk.host("file")).unwrap().set_modified(time).unwrap();
    assert_eq!(refusals(&desk, &mut saved), [("file".to_owned(), RefusalReason::Conflict(HostDifference::Changed))]);
}

#[test]
fn a_directory_that_became_a_link_on_the_host_is_not_entered() {
    let desk = Desk::with_host(&["dir/a", "elsewhere/a"]);
    desk.upper_file("dir/b", "mine\n");
    let mut saved = desk.save();
    fs::rename(desk.host("dir"), desk.host("moved")).unwrap();
    symlink("/tmp", desk.host("dir")).unwrap();
    assert_eq!(refusals(&desk, &mut saved), [("dir/b".to_owned(), RefusalReason::ThroughLink)]);
}

#[test]
fn a_conflict_seen_when_saving_stays_one() {
    let desk = Desk::with_host(&["file"]);
    desk.upper_file("file", "mine\n");
    let mut saved = SavedChanges::save(&desk.layers_since(std::time::SystemTime::UNIX_EPOCH), &desk.saved()).unwrap();
    assert_eq!(refusals(&desk, &mut saved), [("file".to_owned(), RefusalReason::Conflict(HostDifference::Changed))]);
}

#[test]
fn a_tampered_list_leads_nowhere_else() {
    let desk = Desk::new();
    desk.upper_file("file", "mine\n");
    let mut saved = desk.save();
    for path in ["../outside", "/etc/outside", "a/../../outside"] {
        let mut manifest = crate::review::manifest::Manifest::read(&desk.saved()).unwrap();
        manifest.changes[0].change.path = path.into();
        manifest.write(&desk.saved()).unwrap();
        assert_eq!(refusals(&desk, &mut saved), [(path.to_owned(), RefusalReason::BadPath)]);
    }
}

#[test]
fn a_refusal_names_the_rule_and_the_difference() {
    let desk = Desk::with_host(&["edited"]);
    desk.upper_file("edited", "mine\n");
    desk.upper_file(".git/hooks/pre-commit", "x\n");
    let mut saved = desk.save();
    desk.host_file("edited", "theirs\n");
    let error = apply(&mut saved, &desk.host(""), None, &hooks).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nothing was applied: `.git/hooks`: denied by deny_write: .git/hooks/** (sandbox.policy.yaml:7) (and 2 more)"
    );
    assert_eq!(error.code(), protocol::ProblemCode::ApplyConflict);
    let ApplyError::Refused(refusals) = error else { panic!("{error:?}") };
    let conflict = serde_json::json!({"path": "edited", "reason": "conflict", "difference": "changed"});
    assert_eq!(serde_json::to_value(&refusals[2]).unwrap(), conflict);
    assert_eq!(serde_json::to_value(&refusals[0]).unwrap()["rule"]["line"], 7);
    let only = apply(&mut saved, &desk.host(""), Some(&[Path::new("edited")]), &hooks).unwrap_err();
    let expected = "nothing was applied: `edited`: it changed on the host since the sandbox was made";
    assert_eq!(only.to_string(), expected);
}
