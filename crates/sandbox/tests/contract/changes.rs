//! Tests of changes: listing, applying to the host, and restoring in the next sandbox of a session.

use std::fs;
use std::os::unix::fs::symlink;

use sandbox::{ApplyError, ApplyOptions, ChangeKind, Sandbox, SandboxSpec, SavedChanges, apply};

use crate::{NamedTest, Subject, policy, shell, spec, text};

pub(crate) fn confined() -> Vec<NamedTest> {
    crate::tests![
        overlay_changes_are_listed_deletions_first,
        applied_changes_match_what_the_sandbox_saw,
        changes_are_restored_in_the_next_sandbox,
        files_changed_on_the_host_are_conflicts,
        changes_denied_by_the_sandboxs_policy_are_not_applied,
        commits_made_inside_arrive_under_refs_viv
    ]
}

const WORK: &str = "echo new > added; echo more >> kept/file; rm gone; chmod 755 kept/file; ln -s kept/file link; \
                    rm -r folder; echo now > folder; rm plain; mkdir -p plain/deep; echo x > plain/deep/x; \
                    mkdir empty; chmod 700 empty; printf odd > '-rf'; printf odd > \"$(printf 'two\\nlines')\"";
const LOOK: &str = "find . -printf '%y %m %p %l\\n' | sort; find . -type f -exec sha256sum {} + | sort";

fn workspace() -> tempfile::TempDir {
    let host = tempfile::tempdir().expect("workspace");
    for directory in ["kept", "folder"] {
        fs::create_dir(host.path().join(directory)).expect("directory");
    }
    for file in ["kept/file", "folder/in", "gone", "plain"] {
        fs::write(host.path().join(file), "before\n").expect("file");
    }
    symlink("gone", host.path().join("old")).expect("link");
    host
}

async fn begin(subject: &Subject, host: &tempfile::TempDir) -> Box<dyn Sandbox> {
    subject.backend.create(spec(subject, Some(host.path().to_owned()))).await.expect("sandbox")
}

async fn save_and_end(sandbox: Box<dyn Sandbox>, into: &tempfile::TempDir) -> SavedChanges {
    let layers = sandbox.layers().expect("layers");
    sandbox.destroy().await.expect("destroy");
    SavedChanges::save_final(&layers, into.path()).expect("save")
}

async fn changes_are_restored_in_the_next_sandbox(subject: Subject) {
    let (host, kept) = (workspace(), tempfile::tempdir().expect("kept"));
    let first = begin(&subject, &host).await;
    assert_eq!(shell(&*first, WORK).await.exit.code, Some(0));
    let left = text(&shell(&*first, LOOK).await.stdout);
    let saved = save_and_end(first, &kept).await;

    let second = begin(&subject, &host).await;
    saved.restore(&*second).await.expect("restore");
    let found = text(&shell(&*second, LOOK).await.stdout);
    assert_eq!(found, left);
    let again = save_and_end(second, &kept).await;
    let message = |saved: &SavedChanges| -> Vec<_> {
        saved
            .changes()
            .map(|change| (change.path.clone(), change.kind, change.entry.clone(), change.conflict))
            .collect()
    };
    assert_eq!(message(&again), message(&saved));
    assert!(fs::read_to_string(host.path().join("gone")).is_ok(), "the host was changed");
}

async fn files_changed_on_the_host_are_conflicts(subject: Subject) {
    let (host, kept) = (workspace(), tempfile::tempdir().expect("kept"));
    let first = begin(&subject, &host).await;
    shell(&*first, "echo theirs > kept/file; echo theirs > fresh; echo theirs > gone").await;
    save_and_end(first, &kept).await;

    fs::write(host.path().join("kept/file"), "ours\n").expect("file");
    fs::write(host.path().join("fresh"), "ours\n").expect("file");
    for _ in 0..2 {
        let next = begin(&subject, &host).await;
        SavedChanges::open(kept.path()).expect("saved").restore(&*next).await.expect("restore");
        let saved = save_and_end(next, &kept).await;
        let conflicts: Vec<_> = saved.changes().filter(|change| change.conflict).map(|change| &change.path).collect();
        assert_eq!(conflicts, ["fresh", "kept/file"].map(std::path::Path::new));
    }
}

async fn changes_denied_by_the_sandboxs_policy_are_not_applied(subject: Subject) {
    let (host, kept) = (workspace(), tempfile::tempdir().expect("kept"));
    let narrowed = policy(&subject, &[("ld.so.cache]", "ld.so.cache]\n  deny_write: [\"kept/**\"]")]);
    let given = SandboxSpec { policy: narrowed, ..spec(&subject, Some(host.path().to_owned())) };
    let sandbox = subject.backend.create(given).await.expect("sandbox");
    shell(&*sandbox, "echo theirs > kept/file; echo theirs > free").await;
    drop(save_and_end(sandbox, &kept).await);

    let mut saved = SavedChanges::open(kept.path()).expect("saved");
    let refused =
        apply(&mut saved, host.path(), &ApplyOptions::default(), &|_| None).expect_err("applied what was denied");
    let ApplyError::Refused(refusals) = refused else { panic!("{refused}") };
    let message: Vec<_> = refusals.iter().map(ToString::to_string).collect();
    assert_eq!(message, ["`kept/file`: denied by fs.deny_write: \"kept/**\" (test:6)"]);
    apply(&mut saved, host.path(), &ApplyOptions::only(["free"]), &|_| None).expect("what was not denied");
    assert_eq!(fs::read_to_string(host.path().join("kept/file")).expect("file"), "before\n");
    assert_eq!(fs::read_to_string(host.path().join("free")).expect("file"), "theirs\n");
}

/// Commits arrive by git's own transfer; the host's branches, HEAD and index stay as they are.
async fn commits_made_inside_arrive_under_refs_viv(subject: Subject) {
    const GIT: &str = "export HOME=/tmp GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; \
                       export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; ";
    let (host, kept) = (workspace(), tempfile::tempdir().expect("kept"));
    let on_host = |line: &str| {
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", &format!("{GIT} {line}")]).current_dir(host.path()).output().expect("git");
        assert!(output.status.success(), "{line}: {output:?}");
        text(&output.stdout)
    };
    on_host("git init -q -b main . && git add -A && git commit -qm first && git branch old");
    let sandbox = begin(&subject, &host).await;
    if shell(&*sandbox, "command -v git").await.exit.code != Some(0) {
        assert_ne!(subject.name, "jail", "only an image may be without git");
        return sandbox.destroy().await.expect("destroy");
    }
    let work = "echo more >> plain && git commit -qam second && git switch -qc topic && git rm -q gone && \
                git commit -qm third && git tag done && git switch -q main && git merge -q --no-ff -m fourth topic && \
                git branch -D old && git stash list && git rebase -q HEAD~1 && git gc -q && git status --porcelain";
    let done = shell(&*sandbox, &format!("{GIT} {work}")).await;
    assert_eq!((done.exit.code, text(&done.stderr)), (Some(0), String::new()));
    let log = text(&shell(&*sandbox, &format!("{GIT} git log --all --format='%H %s %D'")).await.stdout);
    let before = on_host("cat .git/HEAD .git/index | sha256sum; git for-each-ref refs/heads refs/tags");
    let saved = save_and_end(sandbox, &kept).await;
    let commits = sandbox::import_commits(&saved, "s1").expect("imported");
    let tips: Vec<_> = commits.tips.iter().map(|tip| tip.tip.reference.as_str()).collect();
    assert_eq!(tips, ["heads/main", "heads/topic"]);
    let imported = on_host("git log --format='%H %s' refs/viv/s1/heads/main");
    assert!(imported.lines().all(|line| log.contains(line)) && imported.contains(" third\n"), "{imported} in {log}");
    assert_eq!(on_host("cat .git/HEAD .git/index | sha256sum; git for-each-ref refs/heads refs/tags"), before);
    sandbox::apply_commits(&saved, "s1", None, &ApplyOptions::default(), &|_| None).expect("forward");
    assert_eq!(on_host("git log --format='%H %s' main"), imported);
    assert_eq!(on_host("git fsck --strict; git status --porcelain"), "");
}

async fn overlay_changes_are_listed_deletions_first(subject: Subject) {
    let host = tempfile::tempdir().expect("host");
    fs::create_dir_all(host.path().join("old/deep")).expect("dir");
    for name in ["same", "edited", "removed", "old/deep/file"] {
        fs::write(host.path().join(name), "before\n").expect("file");
    }
    let sandbox = subject.backend.create(spec(&subject, Some(host.path().to_owned()))).await.expect("sandbox");
    let script = "echo after > edited; rm removed; rm -r old; mkdir old; echo x > old/new; ln -s /etc/passwd link";
    assert_eq!(shell(&*sandbox, script).await.exit.code, Some(0));
    sandbox.destroy().await.expect("destroy");
    let layers = sandbox.layers().expect("layers");
    let changes: Vec<_> = layers
        .changes()
        .expect("changes")
        .into_iter()
        .map(|change| (change.kind, text(change.path.as_os_str().as_encoded_bytes())))
        .collect();
    let expect = [
        (ChangeKind::Deleted, "old/deep"),
        (ChangeKind::Deleted, "old/deep/file"),
        (ChangeKind::Deleted, "removed"),
        (ChangeKind::Modified, "edited"),
        (ChangeKind::Added, "link"),
        (ChangeKind::Added, "old/new"),
    ];
    assert_eq!(changes, expect.map(|(kind, path)| (kind, path.to_owned())));
    assert_eq!(layers.after("edited".as_ref(), 100).expect("read"), Some(b"after\n".to_vec()));
    assert_eq!(layers.before("edited".as_ref(), 100).expect("read"), Some(b"before\n".to_vec()));
    assert_eq!(layers.after("link".as_ref(), 100).expect("a link is not followed"), None);
}

/// Names, types, permissions, link targets and digests of everything.
const LISTING: &str = "find . -mindepth 1 -printf '%P %y %m %l\\n' | LC_ALL=C sort; \
                       find . -type f -exec sha256sum {} + | LC_ALL=C sort";

fn listing_on_host(directory: &std::path::Path) -> String {
    let output = std::process::Command::new("/bin/sh").args(["-c", LISTING]).current_dir(directory).output();
    text(&output.expect("listing").stdout)
}

async fn applied_changes_match_what_the_sandbox_saw(subject: Subject) {
    let (host, saved) = (tempfile::tempdir().expect("host"), tempfile::tempdir().expect("saved"));
    for name in [
        "same",
        "edited",
        "removed",
        "touched",
        "mode",
        "old/deep/file",
        "again/sub/a",
        "again/b",
        "moved/x",
        "file",
        "dir/y",
    ] {
        let path = host.path().join(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("dir");
        fs::write(path, format!("{name}\n")).expect("file");
    }
    let before = listing_on_host(host.path());
    let sandbox = subject.backend.create(spec(&subject, Some(host.path().to_owned()))).await.expect("sandbox");
    let script = "set -e; echo after >> edited; rm removed; touch touched; chmod 755 mode; rm -r old; \
        rm -r again; mkdir again again/sub; echo new > again/sub/c; mv moved elsewhere; ln edited hard; \
        rm file; mkdir -p file/now; echo x > file/now/x; rm -r dir; ln -s same dir; ln -s ../same again/link; \
        mkdir -m 711 closed; : > closed/empty; mv same renamed; printf x > \"$(printf 'odd\\377\\nname')\"";
    let result = shell(&*sandbox, script).await;
    assert_eq!((text(&result.stderr), result.exit.code), (String::new(), Some(0)));
    let seen = text(&shell(&*sandbox, LISTING).await.stdout);
    sandbox.destroy().await.expect("destroy");
    let layers = sandbox.layers().expect("layers");
    assert_eq!(listing_on_host(host.path()), before);
    let directory = saved.path().join("changes");
    let mut changes = SavedChanges::save_final(&layers, &directory).expect("save");
    drop((sandbox, layers));
    assert!(changes.change("touched".as_ref()).is_none(), "a file that was only touched did not change");
    apply(&mut changes, host.path(), &ApplyOptions::default(), &|_| None).expect("apply");
    assert_eq!(listing_on_host(host.path()), seen);
    sandbox::undo(&directory).expect("undo");
    assert_eq!(listing_on_host(host.path()), before);
}
