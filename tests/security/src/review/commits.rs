//! Commits, refs and git plumbing that reach the host unseen.
//!
//! Each attack is a script in a repository. In the sandbox, the session's commits are imported, shown and applied, and the
//! files are applied as well. The control is a host that takes the session's `.git` as files, and shows it with plain git.

mod host;

use sandbox::{ApplyOptions, ExecSpec, SavedChanges};

use crate::attack::{Attack, Group::Review, Place, Verdict, Walls, scenario};
use crate::stage::Stage;

use host::Host;

const CONTROL: &str = "where `.git` is copied as files, and shown by plain git";

/// A script of the sandbox, and the harm that it does to a host.
struct Trick {
    script: String,
    /// How a host without the review takes and shows the result.
    careless: Careless,
    harm: fn(&Host, &str) -> Option<String>,
}

/// A host without the review.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Careless {
    /// Takes `.git` as files, and shows the changed files.
    ShowsFiles,
    /// Takes `.git` as files, and shows the commits and references by plain git.
    ShowsCommits,
    /// Fetches the branch, and shows the commits by git in the session's repository.
    Fetches,
}

macro_rules! trick {
    ($name:literal, $what:literal, $careless:ident, $script:expr, $harm:expr) => {
        scenario(Review, $name, $what, CONTROL, |stage, place| {
            carry_out(stage, place, &Trick { script: $script.into(), careless: Careless::$careless, harm: $harm })
        })
    };
}

pub(crate) fn attacks() -> Vec<Attack> {
    [unseen_content(), deceiving_words(), foreign_references(), planted_programs(), bad_objects()].concat()
}

/// Commits whose content the review does not show.
fn unseen_content() -> Vec<Attack> {
    const EVIL: &str = "echo evil-payload > run.sh; git add run.sh; git commit -qm add; ";
    vec![
        trick!(
            "review_commit_unseen",
            "commit a workflow that no changed file shows",
            ShowsFiles,
            "mkdir -p .github/workflows; echo evil-payload > .github/workflows/ci.yml; git add -A; git commit -qm tidy; \
             git update-index --skip-worktree .github/workflows/ci.yml; rm -r .github",
            |host, shown| host.has_unseen_payload(shown)
        ),
        trick!(
            "review_commit_replace",
            "show another content of a commit by a replace reference",
            ShowsCommits,
            format!(
                "{EVIL}{}",
                "good=$(echo good | git hash-object -w --stdin); git replace $(git rev-parse :run.sh) $good; rm run.sh"
            ),
            |host, shown| host.has_unseen_payload(shown)
        ),
        trick!(
            "review_commit_shallow",
            "hide a commit behind the end of a shallow history",
            ShowsCommits,
            format!("{EVIL}{}", "git rm -q run.sh; git commit -qm undo; git rev-parse HEAD > .git/shallow"),
            |host, shown| host.has_unseen_commit(shown, "add")
        ),
        trick!(
            "review_commit_graft",
            "hide a commit by a graft",
            ShowsCommits,
            format!(
                "{EVIL}{}",
                "git rm -q run.sh; git commit -qm undo; mkdir -p .git/info; \
                echo $(git rev-parse HEAD HEAD~2) > .git/info/grafts"
            ),
            |host, shown| host.has_unseen_commit(shown, "add")
        ),
        trick!(
            "review_commit_false_object",
            "store an innocent content under the id of another",
            Fetches,
            "git checkout -q old -- run.sh; git commit -qm add; id=$(git rev-parse HEAD:run.sh); \
             file=.git/objects/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-); \
             good=$(echo good | git hash-object -w --stdin); rm -f $file run.sh; \
             cp .git/objects/$(echo $good | cut -c1-2)/$(echo $good | cut -c3-) $file",
            |host, shown| host.has_unseen_payload(shown)
        ),
    ]
}

/// Words of commits that deceive the person who reads them.
fn deceiving_words() -> Vec<Attack> {
    vec![
        trick!(
            "review_commit_names",
            "drive the terminal by the name of a branch",
            ShowsCommits,
            "git commit -q --allow-empty -m x; printf '%s refs/heads/a\\033[2Jb\\n' $(git rev-parse HEAD) >> .git/packed-refs; \
             cp .git/refs/heads/main \".git/refs/heads/$(printf 'c\\033[2Jd')\"",
            |_, shown| shown.contains('\u{1b}').then(|| "control characters are shown".to_owned())
        ),
        trick!(
            "review_commit_shell_name",
            "run a command by the name of a branch in the command to paste",
            ShowsCommits,
            "git switch -qc 'a$(touch${IFS}pasted)'; git commit -q --allow-empty -m x",
            |host, shown| {
                for line in shown.lines().filter_map(|line| line.strip_prefix("paste: ")) {
                    host.run(line);
                }
                host.workspace.join("pasted").exists().then(|| "the pasted command ran another".to_owned())
            }
        ),
        trick!(
            "review_commit_message",
            "drive the terminal by a commit message and an author's name",
            ShowsCommits,
            "printf 'x\\n\\n\\033]52;c;eA==\\007\\033[2Jgone \\342\\200\\256txt' > .git/m; echo 1 >> a; \
             git -c user.name=\"$(printf 'A\\033[2K')\" commit -qaF .git/m",
            |_, shown| shown.contains(['\u{1b}', '\u{202e}']).then(|| "control characters are shown".to_owned())
        ),
        trick!(
            "review_commit_author",
            "commit in the name of another person without a mark",
            ShowsCommits,
            "echo 1 >> a; git -c user.name='The Maintainer' -c user.email=boss@example.com commit -qam fix",
            |_, shown| {
                let is_marked = shown.contains("not the identity of this session");
                (shown.contains("The Maintainer") && !is_marked).then(|| "the other name has no mark".to_owned())
            }
        ),
    ]
}

/// References of the host that the session tries to change, or to read through.
fn foreign_references() -> Vec<Attack> {
    vec![
        trick!(
            "review_commit_host_branch",
            "move a branch of the host that is not checked out",
            ShowsCommits,
            "git commit -q --allow-empty -m evil; git update-ref refs/heads/release HEAD; git update-ref refs/tags/v1 HEAD",
            |host, _| host.moved(&["refs/heads/release", "refs/tags/v1"])
        ),
        trick!(
            "review_commit_packed_refs",
            "inject references by `packed-refs`",
            ShowsCommits,
            "git commit -q --allow-empty -m evil; id=$(git rev-parse HEAD); rm -f .git/refs/heads/release .git/refs/tags/v1; \
             for name in refs/heads/release refs/tags/v1 refs/remotes/origin/main refs/heads/../../x; do \
             echo $id $name; done | LC_ALL=C sort -k2 > .git/packed-refs",
            |host, _| host.moved(&["refs/heads/release", "refs/tags/v1"])
        ),
        trick!(
            "review_commit_symbolic",
            "make a branch another name of a protected branch, and a loop of references",
            ShowsCommits,
            "echo 'ref: refs/heads/release' > .git/refs/heads/main; echo 'ref: refs/heads/b' > .git/refs/heads/a; \
             echo 'ref: refs/heads/a' > .git/refs/heads/b",
            |host, _| {
                let found = host.git("symbolic-ref -q refs/heads/main; git symbolic-ref -q refs/heads/a");
                (!found.is_empty()).then(|| format!("a branch names another: {found}"))
            }
        ),
        trick!(
            "review_commit_alternates",
            "show a commit of another repository of the host by `objects/info/alternates`",
            ShowsCommits,
            "echo PRIVATE/.git/objects > .git/objects/info/alternates; echo PRIVATE_ID > .git/refs/heads/main",
            |_, shown| shown.contains("private-secret").then(|| "the review shows the other repository".to_owned())
        ),
    ]
}

/// Programs that git on the host would run.
fn planted_programs() -> Vec<Attack> {
    vec![
        trick!(
            "review_commit_hooks",
            "have hooks run on the host",
            ShowsFiles,
            "echo 1 >> a; git commit -qam x; mkdir -p .git/hooks; \
             for hook in reference-transaction post-checkout post-merge post-index-change; do \
             printf '#!/bin/sh\\ntouch TRACE\\n' > .git/hooks/$hook; chmod 755 .git/hooks/$hook; done",
            |host, _| host.ran_something()
        ),
        trick!(
            "review_commit_config",
            "have a command of `.git/config` run on the host",
            ShowsFiles,
            "echo 1 >> a; git commit -qam x; git config core.fsmonitor 'touch TRACE; true'; \
             git config uploadpack.packObjectsHook 'touch TRACE'; git config core.hooksPath .hooks",
            |host, _| host.ran_something()
        ),
        trick!(
            "review_commit_submodule",
            "land a submodule whose address is a command",
            ShowsFiles,
            "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = ext::touch TRACE\\n' > .gitmodules; git add .gitmodules; \
             git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x; git commit -qm x",
            |host, _| host.git("show main:.gitmodules").contains("ext::").then(|| "the address landed".to_owned())
        ),
    ]
}

/// Objects that git must refuse.
fn bad_objects() -> Vec<Attack> {
    const TREE: &str = "blob=$(echo '[core]' | git hash-object -w --stdin); \
        sub=$(printf \"100644 blob $blob\\tconfig\\n\" | git mktree); \
        tree=$(printf \"040000 tree $sub\\tNAME\\n\" | git mktree); \
        git update-ref refs/heads/main $(git commit-tree -p HEAD -m x $tree)";
    fn listed(host: &Host, name: &str) -> Option<String> {
        let found = host.git("rev-list --objects --all");
        found.lines().any(|line| line.ends_with(name)).then(|| format!("the host has the tree entry `{name}`"))
    }
    vec![
        trick!(
            "review_commit_dotgit",
            "land a tree with an entry `.git`",
            ShowsCommits,
            with_name(TREE, ".git"),
            |host, _| { listed(host, " .git/config") }
        ),
        trick!(
            "review_commit_dotgit_case",
            "the same with `.GIT`",
            ShowsCommits,
            with_name(TREE, ".GIT"),
            |host, _| { listed(host, " .GIT/config") }
        ),
        trick!(
            "review_commit_dotdot",
            "land a tree with an entry `..`",
            ShowsCommits,
            with_name(TREE, ".."),
            |host, _| { listed(host, " ../config") }
        ),
        trick!(
            "review_commit_corrupt_pack",
            "leave a damaged pack in the host's repository",
            ShowsCommits,
            "echo 1 >> a; git commit -qam x; git gc -q; chmod 644 .git/objects/pack/*.pack; \
             for pack in .git/objects/pack/*.pack; do printf 'xxxxxxxx' | dd of=$pack bs=1 seek=40 conv=notrunc 2>/dev/null; done",
            |host, _| (!host.succeeds("git fsck --full")).then(|| "the host's repository is damaged".to_owned())
        ),
    ]
}

fn with_name(script: &str, name: &str) -> String {
    script.replace("NAME", name)
}

fn carry_out(stage: &Stage, place: Place, trick: &Trick) -> Verdict {
    let host = Host::build(stage);
    let shown = match place {
        Place::Inside => review(stage, &host, trick),
        Place::Outside => take_as_files(&host, trick),
    };
    match (trick.harm)(&host, &shown) {
        Some(what) => Verdict::Succeeded(what),
        None => Verdict::Blocked("the host has no harm".to_owned()),
    }
}

/// Runs the script in a sandbox; returns everything that the review shows.
fn review(stage: &Stage, host: &Host, trick: &Trick) -> String {
    let sandbox = stage.sandbox(Walls::Usual, &host.workspace).expect("sandbox");
    let script = host.script(&trick.script).replace("HOME=/nonexistent", "HOME=/tmp");
    let spec = ExecSpec { command: vec!["sh".into(), "-c".into(), script], ..ExecSpec::default() };
    let result = stage.runtime.block_on(sandbox::run(&*sandbox, spec, &mut |_, _| {})).expect("run");
    assert_eq!(result.exit.code, Some(0), "the script failed: {}", String::from_utf8_lossy(&result.stderr));
    stage.destroy(&*sandbox);
    let layers = sandbox.layers().expect("layers");
    let mut saved = SavedChanges::save_final(&layers, &host.directory.path().join("saved")).expect("save");
    let mut shown = sandbox::render_diff(&saved, None).expect("diff");
    match sandbox::import_commits(&saved, "attack") {
        Ok(commits) => {
            shown += &sandbox::render_commits(&commits);
            shown += &sandbox::commit_patch(&saved, &commits).unwrap_or_else(|error| error.to_string());
        }
        Err(error) => shown += &error.to_string(),
    }
    // A person who applies everything that can be applied.
    let options = ApplyOptions { skip_refused: true, ignored: true, ..ApplyOptions::default() };
    match sandbox::apply_commits(&saved, "attack", None, &options, &|_| None) {
        Ok(applied) => shown += &format!("\napplied {}\n", applied.to),
        Err(error) => {
            let command = error.merge_command().map(|command| format!("paste: {command}\n"));
            shown += &format!("\n{error}\n{}", command.unwrap_or_default());
        }
    }
    // Files that the commits brought already are conflicts, and stay.
    let _ = sandbox::apply(&mut saved, &host.workspace, &options, &|_| None);
    shown
}

/// Runs the script in a copy of the workspace, and takes its files as they are; returns what plain git shows.
fn take_as_files(host: &Host, trick: &Trick) -> String {
    let work = host.directory.path().join("work");
    assert!(host.succeeds(&format!("cp -a . '{}'", work.display())), "copy");
    let (done, _) = Host::shell(&work, &host.script(&trick.script));
    assert!(done, "the script failed");
    let show = match trick.careless {
        Careless::ShowsFiles => "git diff --no-index --no-color ../workspace . | grep -v '/\\.git/'",
        Careless::ShowsCommits | Careless::Fetches => {
            "cat .git/packed-refs; git log --format='Author: %an <%ae>%n%n    %s%n%b' main; git show --format= main; \
             git for-each-ref --format='paste: git merge %(refname)' refs/heads"
        }
    };
    let shown = Host::shell(&work, show).1;
    match trick.careless {
        Careless::Fetches => {
            host.run(&format!("git fetch -q '{}' main; git merge -q --ff-only FETCH_HEAD", work.display()))
        }
        _ => host.run(&format!("rm -rf .git; cp -a '{}/.git' .git", work.display())),
    };
    shown
}
