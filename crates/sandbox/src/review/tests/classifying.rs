//! Tests of the classes of paths, at apply and in what a person sees.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use policy::{BaseLayer, CeilingLayer, FileDenials, PolicySource};

use super::fixture::{ReviewFixture, chmod};
use crate::OverlayLayers;
use crate::review::{
    ApplyError, ApplyOptions, ApplyReport, RefusalReason, RunKind, SavedChanges, apply, render_diff, render_stat,
};

fn git(fixture: &ReviewFixture, arguments: &[&str]) {
    let identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
    let done = Command::new("git").args(identity).args(arguments).current_dir(fixture.host("")).status().unwrap();
    assert!(done.success(), "{arguments:?}");
}

fn in_repository(files: &[&str]) -> ReviewFixture {
    let fixture = ReviewFixture::with_host(files);
    git(&fixture, &["init", "--quiet"]);
    fixture
}

fn apply_with(fixture: &ReviewFixture, options: &ApplyOptions) -> Result<ApplyReport, ApplyError> {
    apply(&mut fixture.save(), &fixture.host(""), options, &|_| None)
}

fn confirming(paths: &[&str]) -> ApplyOptions {
    ApplyOptions { confirm: paths.iter().map(Into::into).collect(), ..ApplyOptions::default() }
}

fn skipping() -> ApplyOptions {
    ApplyOptions { skip_refused: true, ..ApplyOptions::default() }
}

/// Returns path and reason of every refusal.
#[track_caller]
fn refusals(fixture: &ReviewFixture, options: &ApplyOptions) -> Vec<(String, RefusalReason)> {
    match apply_with(fixture, options) {
        Err(ApplyError::Refused(refused)) => {
            refused.into_iter().map(|refused| (refused.path.display().to_string(), refused.reason)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn applied(report: &ApplyReport) -> Vec<String> {
    report.changes.iter().map(|change| change.path.display().to_string()).collect()
}

fn unconfirmed(kind: RunKind) -> RefusalReason {
    RefusalReason::NotConfirmed { kind, name: None }
}

#[test]
fn files_that_run_by_themselves_are_applied_only_when_named() {
    let files = [
        (".cargo/config.toml", RunKind::ToolConfiguration),
        (".envrc", RunKind::ToolConfiguration),
        (".gitattributes", RunKind::GitConfiguration),
        (".github/workflows/ci.yml", RunKind::CiWorkflow),
        (".husky/pre-commit", RunKind::Hook),
        ("docs/Claude.MD", RunKind::AgentInstructions),
        ("sub/AGENTS.md", RunKind::AgentInstructions),
    ];
    let fixture = ReviewFixture::new();
    fixture.upper_file("src/main.rs", "x\n");
    fixture.upper_file("Makefile", "x\n");
    for (file, _) in files {
        fixture.upper_file(file, "x\n");
    }
    let expected: Vec<_> = files.iter().map(|(file, kind)| ((*file).to_owned(), unconfirmed(*kind))).collect();
    assert_eq!(refusals(&fixture, &ApplyOptions::default()), expected);
    assert_eq!(
        refusals(&fixture, &confirming(&[".cargo", ".envrc", ".github/workflows/ci.yml"])),
        [expected[2].clone(), expected[4].clone(), expected[5].clone(), expected[6].clone(),]
    );
    assert_eq!(refusals(&fixture, &confirming(&["."])), [(".".to_owned(), RefusalReason::NotChanged)]);
    let report = apply_with(&fixture, &skipping()).unwrap();
    assert_eq!(applied(&report), ["Makefile", "src", "src/main.rs"], "directories without entries are left out");
    assert_eq!(report.left_out.refused.len(), files.len());
    let names: Vec<_> = files.iter().map(|(file, _)| *file).collect();
    apply_with(&fixture, &confirming(&names)).unwrap();
    assert!(files.iter().all(|(file, _)| fixture.host(file).exists()));
}

#[test]
fn ignored_paths_are_left_out_and_counted() {
    let fixture = in_repository(&[".gitignore", "kept.log", "package/source", "package/made.log"]);
    fixture.host_file(".gitignore", "target/\n*.log\n.venv/\n");
    git(&fixture, &["add", "--force", "kept.log", "package/source"]);
    fixture.upper_file("target/debug/out", "x\n");
    fixture.upper_link(".venv/bin/python", "/usr/bin/python3");
    fixture.upper_file("kept.log", "edited\n");
    fixture.upper_file("src/new.rs", "x\n");
    fixture.upper_file("src/new.log", "x\n");
    fixture.whiteout("package");
    let shown = render_stat(&fixture.save().stat().unwrap());
    assert!(shown.ends_with("8 ignored paths are left out; --ignored includes them\n"), "{shown}");
    assert!(!shown.contains("target") && !shown.contains(".venv"), "{shown}");
    let everything = ApplyOptions { ignored: true, ..ApplyOptions::default() };
    let leaves = RefusalReason::LinkLeaves { target: "/usr/bin/python3".into() };
    assert_eq!(refusals(&fixture, &everything), [(".venv/bin/python".to_owned(), leaves)]);
    let report = apply_with(&fixture, &ApplyOptions::default()).unwrap();
    assert_eq!(applied(&report), ["package/source", "kept.log", "src", "src/new.rs"]);
    assert_eq!((report.left_out.ignored, report.left_out.refused.len()), (8, 0));
    assert!(fixture.host("package/made.log").exists(), "the directory of an ignored file stays");
}

#[test]
fn own_git_directory_is_neither_shown_nor_applied() {
    let fixture = in_repository(&["file", "vendor/lib/source"]);
    fs::create_dir_all(fixture.host("vendor/lib/.git/objects")).unwrap();
    let head = fs::read_to_string(fixture.host(".git/HEAD")).unwrap();
    fixture.upper_file(".git/HEAD", "ref: refs/heads/evil\n");
    fixture.upper_file(".git/hooks/post-checkout", "#!/bin/sh\n");
    fixture.upper_file("vendor/lib/.git/index", "x\n");
    fixture.upper_file("file", "edited\n");
    let saved = fixture.save();
    let shown = render_stat(&saved.stat().unwrap()) + &render_diff(&saved, None).unwrap();
    assert!(!shown.contains(".git"), "{shown}");
    assert_eq!(applied(&apply_with(&fixture, &ApplyOptions::default()).unwrap()), ["file"]);
    assert_eq!(fs::read_to_string(fixture.host(".git/HEAD")).unwrap(), head);
    assert!(!fixture.host(".git/hooks/post-checkout").exists() && !fixture.host("vendor/lib/.git/index").exists());
    // A new repository is refused, in every spelling.
    for spelling in ["new/.git", "new/.GIT", "new/.g\u{200c}it", "new/git~1", "new/.git ", ".Git", "new/.git::$DATA"] {
        let fixture = in_repository(&[]);
        fixture.upper_file(format!("{spelling}/config"), "x\n");
        let refused = refusals(&fixture, &ApplyOptions::default());
        let reason = RefusalReason::InsideGitDirectory { directory: spelling.into() };
        assert!(refused.contains(&(format!("{spelling}/config"), reason)), "{spelling}: {refused:?}");
    }
}

#[test]
fn paths_that_the_hosts_git_obeys_are_refused() {
    let fixture = in_repository(&["tools/clean.sh", "tools/hooks/pre-push"]);
    fixture.host_file("shared.config", "[user]\n");
    git(&fixture, &["config", "core.hooksPath", "tools/hooks"]);
    git(&fixture, &["config", "include.path", "../shared.config"]);
    git(&fixture, &["config", "filter.tidy.clean", "sh ./tools/clean.sh %f"]);
    symlink("tools", fixture.host("bin")).unwrap();
    for file in ["tools/clean.sh", "shared.config", "tools/hooks/pre-commit", "tools/other.sh"] {
        fixture.upper_file(file, "edited\n");
    }
    let by = |key: &str| RefusalReason::NamedByGit { key: key.to_owned(), name: None };
    let expected = [
        ("shared.config", by("include.path")),
        ("tools/clean.sh", by("filter.tidy.clean")),
        ("tools/hooks/pre-commit", by("core.hookspath")),
    ]
    .map(|(path, reason)| (path.to_owned(), reason));
    assert_eq!(refusals(&fixture, &ApplyOptions::default()), expected);
    assert_eq!(applied(&apply_with(&fixture, &skipping()).unwrap()), ["tools/other.sh"]);
}

#[test]
fn links_are_judged_by_where_they_lead() {
    let fixture = in_repository(&["tools/hook", "real/x"]);
    symlink("/etc", fixture.host("way-out")).unwrap();
    fs::create_dir_all(fixture.host(".git/evil")).unwrap();
    fixture.upper_link("handbook", ".git/evil");
    fixture.upper_link("first", "second");
    fixture.upper_link("second", "./.git");
    fixture.upper_link("leads-out", "way-out/passwd");
    fixture.upper_link(".cargo", "tools");
    fixture.upper_link("dangling", "nowhere/at/all");
    fixture.upper_link("plain", "real");
    let refused = refusals(&fixture, &ApplyOptions::default());
    let expected = [
        (".cargo", unconfirmed(RunKind::ToolConfiguration)),
        ("first", RefusalReason::LinkIntoGit { target: "second".into() }),
        ("handbook", RefusalReason::LinkIntoGit { target: ".git/evil".into() }),
        ("leads-out", RefusalReason::LinkLeaves { target: "way-out/passwd".into() }),
        ("second", RefusalReason::LinkIntoGit { target: "./.git".into() }),
    ];
    assert_eq!(refused, expected.map(|(path, reason)| (path.to_owned(), reason)));
}

#[test]
fn many_names_do_not_hide_a_denied_one() {
    let layers = |fixture: &ReviewFixture| OverlayLayers { denials: denials("{}"), ..fixture.layers() };
    let fixture = ReviewFixture::new();
    for number in 0..200 {
        fixture.upper_link(format!("a{number:03}"), "store");
    }
    fixture.upper_link(".hg", "store");
    fixture.upper_file("store/hgrc", "[hooks]\n");
    let mut saved = SavedChanges::save(&layers(&fixture), &fixture.saved()).unwrap();
    let error = apply(&mut saved, &fixture.host(""), &ApplyOptions::default(), &|_| None).unwrap_err();
    let ApplyError::Refused(refused) = error else { panic!("{error}") };
    let paths: Vec<_> = refused.iter().map(|refused| refused.path.display().to_string()).collect();
    assert_eq!(paths, [".hg", "store/hgrc"]);
    assert!(matches!(refused[0].reason, RefusalReason::LinkNamesDenied { .. }), "{refused:?}");
    assert!(matches!(refused[1].reason, RefusalReason::DeniedThroughLink { .. }), "{refused:?}");
}

/// Returns the denials of a policy with these keys under `fs`.
fn denials(keys: &str) -> FileDenials {
    let text = format!("version: 1\nfs: {keys}\n");
    let base = BaseLayer::read(&PolicySource::new("test", text)).unwrap();
    policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]).file_denials()
}

#[test]
fn a_default_denial_can_be_confirmed_and_a_written_one_cannot() {
    for (keys, is_confirmed) in [("{}", true), ("{deny_write: [\"**/.envrc\"]}", false)] {
        let fixture = ReviewFixture::new();
        fixture.upper_file(".envrc", "x\n");
        let layers = OverlayLayers { denials: denials(keys), ..fixture.layers() };
        let mut saved = SavedChanges::save(&layers, &fixture.saved()).unwrap();
        let result = apply(&mut saved, &fixture.host(""), &confirming(&[".envrc"]), &|_| None);
        assert_eq!(result.is_ok(), is_confirmed, "{keys}: {result:?}");
    }
}

/// In a second workspace of jj, `.jj/repo` is a file with the path of the repository.
#[test]
fn a_file_that_leads_to_another_repository_of_jj_is_refused() {
    let fixture = ReviewFixture::new();
    fixture.upper_file(".jj/repo", "/home/user/.cache/evil\n");
    let layers = OverlayLayers { denials: denials("{}"), ..fixture.layers() };
    let mut saved = SavedChanges::save(&layers, &fixture.saved()).unwrap();
    let result = apply(&mut saved, &fixture.host(""), &confirming(&[".jj/repo"]), &|_| None);
    assert!(matches!(result, Err(ApplyError::Refused(_))), "{result:?}");
    assert!(!fixture.host(".jj/repo").exists());
}

#[test]
fn applied_files_are_not_writable_for_others() {
    let fixture = ReviewFixture::with_host(&["shared", "script", "private"]);
    chmod(&fixture.host("shared"), 0o664);
    chmod(&fixture.host("private"), 0o600);
    for (file, mode) in
        [("new", 0o666), ("run", 0o777), ("shared", 0o666), ("script", 0o777), ("private", 0o644), ("dir/file", 0o644)]
    {
        fixture.upper_file(file, "edited\n");
        chmod(&fixture.upper(file), mode);
    }
    chmod(&fixture.upper("dir"), 0o777);
    apply_with(&fixture, &ApplyOptions::default()).unwrap();
    let mode = |path: &str| fs::metadata(fixture.host(path)).unwrap().mode() & 0o7777;
    let modes = ["new", "run", "shared", "script", "private", "dir", "dir/file"].map(mode);
    assert_eq!(modes, [0o644, 0o755, 0o664, 0o755, 0o600, 0o755, 0o644]);
}

#[test]
fn classes_are_shown_in_the_summary_and_in_the_diff() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("AGENTS.md", "x\n");
    fixture.upper_link("out", "/etc/passwd");
    fixture.upper_file("plain", "x\n");
    let saved = fixture.save();
    assert_eq!(
        render_stat(&saved.stat().unwrap()),
        "A AGENTS.md  +1 -0  runs by itself (agent instructions): applied only with --confirm\n\
         A out        +1 -0  refused: the link to `/etc/passwd` may leave the workspace\n\
         A plain      +1 -0\n3 paths changed, +3 -0\n"
    );
    let json = serde_json::to_value(saved.stat().unwrap()).unwrap();
    let class = |index: usize| (json[index]["class"].clone(), json[index]["why"].clone());
    assert_eq!(class(0), ("runs_by_itself".into(), "agent instructions".into()));
    assert_eq!((class(1).0, class(2)), ("refused".into(), ("plain".into(), serde_json::Value::Null)));
    let diff = render_diff(&saved, None).unwrap();
    let note = "# AGENTS.md: runs by itself (agent instructions): applied only with --confirm\ndiff --git";
    assert!(diff.starts_with(note), "{diff}");
    assert!(diff.contains("# out: refused: the link"), "{diff}");
    let only = render_diff(&saved, Some(&[Path::new("plain")])).unwrap();
    assert!(only.starts_with("diff --git a/plain"), "{only}");
}

#[test]
fn submodules_with_tricks_cannot_be_confirmed() {
    let fixture = ReviewFixture::new();
    fixture.upper_file(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = https://example.com/x\n");
    assert_eq!(refusals(&fixture, &ApplyOptions::default())[0].1, unconfirmed(RunKind::GitConfiguration));
    fixture.upper_file(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\tupdate = !touch /tmp/x\n");
    let refused = refusals(&fixture, &confirming(&[".gitmodules"]));
    assert!(matches!(refused[0].1, RefusalReason::Submodules { .. }), "{refused:?}");
}
