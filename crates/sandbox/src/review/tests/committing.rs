//! Commits of a session, with a real repository on the host and real git on both sides.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::fixture::{ReviewFixture, write};
use crate::review::{
    ApplyOptions, CommitsError, SavedChanges, SessionCommits, TipRelation, apply, apply_commits, commit_patch,
    commit_tips, import_commits, remove_imported_commits, render_commits,
};

/// Git with an identity, and without settings of the person who runs the tests.
const ENVIRONMENT: &str = "unset GIT_DIR; export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=ada \
    GIT_AUTHOR_EMAIL=ada@example.com GIT_COMMITTER_NAME=ada GIT_COMMITTER_EMAIL=ada@example.com; set -e; ";

/// A host with a repository, and a session that works on a copy of it.
pub(super) struct CommitFixture {
    review: ReviewFixture,
    work: tempfile::TempDir,
}

impl CommitFixture {
    pub(super) fn new() -> Self {
        Self::with("git init -q -b main .; echo one > a; echo two > b; git add -A; git commit -qm first")
    }

    pub(super) fn with(setup: &str) -> Self {
        let this = Self { review: ReviewFixture::new(), work: tempfile::tempdir().unwrap() };
        this.host(setup);
        this.copy();
        this
    }

    /// Copies the host's files to the work directory.
    fn copy(&self) {
        run(self.work.path(), &format!("cp -a {}/. .", self.review.host("").display()));
    }

    pub(super) fn host(&self, script: &str) -> String {
        run(&self.review.host(""), script)
    }

    /// Runs a script as the session, and saves its changes as an overlay would show them.
    pub(super) fn session(&self, script: &str) -> SavedChanges {
        fs::remove_dir_all(self.review.upper("")).unwrap();
        self.review.upper_directory("");
        let layers = self.review.layers();
        run(self.work.path(), script);
        let (host, work) = (files(&self.review.host("")), files(self.work.path()));
        for path in &work {
            let (new, old) = (self.work.path().join(path), self.review.host(path));
            let is_new = |new: &Path| fs::read(new).ok() != fs::read(&old).ok();
            if new.is_symlink() {
                let target = fs::read_link(&new).unwrap();
                self.review.upper_link(path, target.to_str().unwrap());
            } else if !old.exists() || is_new(&new) {
                write(&self.review.upper(path), &fs::read(&new).unwrap());
            }
        }
        // A directory above in place of a file needs no whiteout.
        let is_gone = |path: &&PathBuf| !work.contains(path) && !self.review.upper(path).exists();
        for gone in host.iter().filter(is_gone) {
            self.review.whiteout(gone);
        }
        SavedChanges::save(&layers, &self.review.saved()).unwrap()
    }

    fn listed(&self, script: &str) -> SessionCommits {
        import_commits(&self.session(script), "s1").unwrap()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.review.host(path)
    }
}

/// Returns the paths of all files and links below a directory.
fn files(root: &Path) -> Vec<PathBuf> {
    let found = run(root, "find . -mindepth 1 \\( -type f -o -type l \\) -printf '%P\\n' | LC_ALL=C sort");
    found.lines().map(PathBuf::from).collect()
}

pub(super) fn run(directory: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-c", &format!("{ENVIRONMENT} {script}")]).current_dir(directory).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn subjects(commits: &SessionCommits) -> Vec<String> {
    commits.commits.iter().map(|commit| format!("{} {}", commit.branch, commit.subject)).collect()
}

fn relations(commits: &SessionCommits) -> Vec<(String, TipRelation)> {
    commits.tips.iter().map(|tip| (tip.tip.reference.clone(), tip.relation)).collect()
}

const COMMIT: &str = "echo more >> a; git commit -qam second";

#[test]
fn commit_is_reviewed_and_fast_forwards_the_host() {
    let fixture = CommitFixture::new();
    for hook in ["post-merge", "reference-transaction", "post-checkout", "post-index-change"] {
        let path = fixture.path(&format!(".git/hooks/{hook}"));
        write(&path, b"#!/bin/sh\ntouch ran\n");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let index = fs::read(fixture.path(".git/index")).unwrap();
    let saved = fixture.session(&format!("{COMMIT}; git status -s"));
    let shown: Vec<PathBuf> = saved.stat().unwrap().into_iter().map(|stat| stat.path).collect();
    assert_eq!(shown, [Path::new("a")]);
    let commits = import_commits(&saved, "s1").unwrap();
    assert_eq!(subjects(&commits), ["main second"]);
    let commit = &commits.commits[0];
    assert_eq!(
        (commit.author.as_str(), commit.email.as_str(), commit.message.as_str()),
        ("ada", "ada@example.com", "second")
    );
    assert_eq!(
        commit.files.iter().map(|file| (&*file.path, file.lines.added)).collect::<Vec<_>>(),
        [(Path::new("a"), 1)]
    );
    assert_eq!(commit_patch(&saved, &commits).unwrap(), "", "the file change shows the same content");
    assert_eq!(fs::read(fixture.path(".git/index")).unwrap(), index, "the review changed the index");
    assert_eq!(fixture.host("git rev-parse refs/viv/s1/heads/main refs/viv/s1/HEAD").lines().next(), Some(&*commit.id));
    assert_eq!(fixture.host("git log --format=%s main"), "first\n");

    let tips = commit_tips(&saved).unwrap();
    let applied = apply_commits(&saved, "s1", Some(&tips), &ApplyOptions::default(), &|_| None).unwrap();
    assert_eq!((applied.branch.as_str(), applied.to.as_str(), applied.commit_count), ("main", commit.id.as_str(), 1));
    assert!(!fixture.path("ran").exists(), "a hook ran");
    fixture.host("rm .git/hooks/*");
    assert_eq!(fixture.host("git log --format=%s main; git status --porcelain; git fsck --strict"), "second\nfirst\n");
    let saved = SavedChanges::open(&fixture.review.saved()).unwrap();
    assert_eq!(saved.stat().unwrap(), [], "the landed file is still pending");
    assert_eq!(relations(&import_commits(&saved, "s1").unwrap()), [("heads/main".to_owned(), TipRelation::Landed)]);
    assert!(matches!(
        apply_commits(&saved, "s1", None, &ApplyOptions::default(), &|_| None),
        Err(CommitsError::NoCommits)
    ));
}

#[test]
fn commit_without_a_file_change_is_visible() {
    let fixture = CommitFixture::new();
    let saved = fixture.session(
        "mkdir -p .github/workflows; echo 'on: push' > .github/workflows/ci.yml; git add -A; git commit -qm tidy; \
         git update-index --skip-worktree .github/workflows/ci.yml; rm -r .github; git status --porcelain",
    );
    assert_eq!(saved.stat().unwrap(), []);
    let commits = import_commits(&saved, "s1").unwrap();
    assert_eq!(commits.commit_paths(), [Path::new(".github/workflows/ci.yml")]);
    let text = render_commits(&commits);
    assert!(text.contains(" .github/workflows/ci.yml  +1 -0\n") && text.contains("    tidy\n"), "{text}");
    let patch = commit_patch(&saved, &commits).unwrap();
    assert!(patch.contains("+++ b/.github/workflows/ci.yml\n") && patch.contains("+on: push\n"), "{patch}");
}

#[test]
fn index_alone_is_neither_a_change_nor_a_conflict() {
    let fixture = CommitFixture::new();
    let mut saved = fixture.session("touch b; echo x >> a; git add a; git config user.name other");
    fixture.host("touch b; git status; git add b; git config user.email x@example.com");
    assert!(commit_tips(&saved).unwrap().is_empty());
    assert!(import_commits(&saved, "s1").unwrap().is_empty());
    let applied =
        apply(&mut saved, &fixture.path("").components().collect::<PathBuf>(), &ApplyOptions::default(), &|_| None);
    assert_eq!(applied.unwrap().changes.len(), 1);
    assert_eq!(fixture.host("git config user.name || echo none"), "none\n");
}

#[test]
fn amended_rebased_new_detached_and_merged_commits_are_imported() {
    let base = "git init -q -b main .; echo one > a; git add -A; git commit -qm first; echo two > b; git add -A; \
                git commit -qm second; git branch old";
    for (script, relation, expected) in [
        ("git commit -q --amend -m again", ("heads/main", TipRelation::Rewritten), &["main again"][..]),
        (
            "git switch -qc side HEAD~1; echo c > c; git add -A; git commit -qm side; git rebase -q main",
            ("heads/side", TipRelation::New),
            &["side side"],
        ),
        (
            "git switch -q --detach; echo c > c; git add -A; git commit -qm lone",
            ("HEAD", TipRelation::Detached),
            &["HEAD lone"],
        ),
        (
            "git switch -qc side HEAD~1; echo c > c; git add -A; git commit -qm side; git switch -q main; \
             git merge -q --no-ff -m merged side; git branch -qD side",
            ("heads/main", TipRelation::Forward),
            &["main merged", "main side"],
        ),
        (
            "echo c > c; git add -A; git commit -qm packed; git gc -q; git branch -qD old",
            ("heads/main", TipRelation::Forward),
            &["main packed"],
        ),
        ("git checkout -q --orphan new; git commit -qm root", ("heads/new", TipRelation::New), &["new root"]),
        (
            "rm -rf .git; git init -q -b main; git add -A; git commit -qm other",
            ("heads/main", TipRelation::Rewritten),
            &["main other"],
        ),
    ] {
        let fixture = CommitFixture::with(base);
        let commits = fixture.listed(script);
        assert_eq!(relations(&commits), [(relation.0.to_owned(), relation.1)], "{script}");
        assert_eq!(subjects(&commits), expected, "{script}");
        assert_eq!(fixture.host("git fsck --strict; git status --porcelain"), "", "{script}");
        assert_eq!(
            fixture.host("git log -1 --format=%s; git branch --format='%(refname:short)'"),
            "second\nmain\nold\n"
        );
    }
}

#[test]
fn branches_that_did_not_move_are_not_imported() {
    let fixture = CommitFixture::with(
        "git init -q -b main .; echo one > a; git add -A; git commit -qm first; git branch x; git branch y; \
         git pack-refs --all; echo two > a; git commit -qam second",
    );
    let commits = fixture.listed("git branch -qD x; git gc -q; git switch -q y; git tag t");
    assert!(commits.tips.is_empty(), "{:?}", commits.tips);
}

#[test]
fn thousand_commits_are_listed() {
    let fixture = CommitFixture::new();
    let commits = fixture.listed(
        "{ for i in $(seq 1000); do echo 'commit refs/heads/main'; echo \"committer ada <ada@example.com> $i +0000\"; \
         echo 'data 1'; echo m; [ $i = 1 ] && echo 'from refs/heads/main^0'; echo 'M 644 inline f'; echo 'data 5'; \
         printf '%04d\\n' $i; done; } | git fast-import --quiet; git reset -q --hard",
    );
    assert_eq!((commits.commits.len(), commits.omitted, commits.tips[0].commit_count), (1000, 0, 1000));
    assert_eq!(fixture.host("git rev-list --count refs/viv/s1/heads/main"), "1001\n");
}

#[test]
fn import_follows_the_session_and_is_removed_with_it() {
    let fixture = CommitFixture::new();
    fixture.listed(&format!("{COMMIT}; git branch side"));
    assert_eq!(
        fixture.host("git for-each-ref --format='%(refname)' refs/viv"),
        "refs/viv/s1/HEAD\nrefs/viv/s1/heads/main\nrefs/viv/s1/heads/side\n"
    );
    fixture.listed("git branch -qD side; git branch side/way; git commit -q --amend -m other");
    let listed = fixture.host("git for-each-ref --format='%(refname) %(subject)' refs/viv");
    assert_eq!(listed, "refs/viv/s1/HEAD other\nrefs/viv/s1/heads/main other\nrefs/viv/s1/heads/side/way second\n");
    remove_imported_commits(&fixture.review.saved()).unwrap();
    assert_eq!(fixture.host("git for-each-ref refs/viv"), "");
    remove_imported_commits(&fixture.review.saved()).unwrap();
}

#[test]
fn commits_are_left_when_the_branch_cannot_move_forward() {
    for (inside, on_host, why) in [
        (COMMIT, "echo 3 > c; git add c; git commit -qm host", "moved since the session began"),
        (COMMIT, "git switch -qc elsewhere", "no commits for the host's current branch `elsewhere`"),
        (COMMIT, "git switch -q --detach", "not a branch"),
        (COMMIT, "echo local >> a", "would be overwritten"),
        ("git commit -q --amend -m other", "true", "rewrote commits"),
        ("echo x > new; git add -A; git commit -qm new", "echo mine > new", "would be overwritten"),
    ] {
        let fixture = CommitFixture::new();
        let saved = fixture.session(inside);
        fixture.host(on_host);
        let before = fixture.host("git rev-parse HEAD; git status --porcelain; cat a");
        let error = apply_commits(&saved, "s1", None, &ApplyOptions::default(), &|_| None).unwrap_err();
        assert!(matches!(error, CommitsError::NotForward { .. }) && error.to_string().contains(why), "{error}");
        assert_eq!(error.merge_command().as_deref(), Some("git merge refs/viv/s1/heads/main"));
        assert_eq!(fixture.host("git rev-parse HEAD; git status --porcelain; cat a"), before);
        assert!(!fixture.host("git rev-parse refs/viv/s1/heads/main").is_empty());
    }
}

#[test]
fn denied_paths_and_links_that_leave_are_not_landed() {
    for (inside, why) in [
        ("echo x > .envrc; git add -A; git commit -qm x", "was not confirmed"),
        ("mkdir .vscode; echo x > .vscode/tasks.json; git add -A; git commit -qm x", "`.vscode/tasks.json`: "),
        ("ln -s /etc/passwd way; git add -A; git commit -qm x", "may leave the workspace"),
        (
            "mkdir -p v/objects v/refs; echo ref: x > v/HEAD; echo > v/config; echo > v/objects/x; echo > v/refs/x; git add -A; git commit -qm x",
            "bare repository",
        ),
        (
            "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm x",
            "`sub`: it belongs to a submodule",
        ),
    ] {
        let fixture = CommitFixture::new();
        let saved = fixture.session(inside);
        let rules = |path: &Path| {
            let document = policy::CeilingLayer::built_in().unwrap();
            let base = policy::BaseLayer::preset(policy::Preset::Balanced).unwrap();
            crate::review::denying_rule(&policy::effective(&document, &base, &[]), path)
        };
        for on_host in ["true", "git commit -q --allow-empty -m later"] {
            fixture.host(on_host);
            let error = apply_commits(&saved, "s1", None, &ApplyOptions::default(), &rules).unwrap_err();
            let is_denied = matches!(error, CommitsError::Denied { .. }) && error.to_string().contains(why);
            assert!(is_denied, "{inside}, {on_host}: {error}");
            assert_eq!(error.merge_command(), None, "the command would land the refused path");
        }
        fixture.host("git reset -q --hard HEAD~1");
        assert_eq!(fixture.host("git log --format=%s; git status --porcelain"), "first\n");
    }
}

#[test]
fn only_the_reviewed_tips_are_applied() {
    let fixture = CommitFixture::new();
    let reviewed = commit_tips(&fixture.session(COMMIT)).unwrap();
    let later = fixture.session("echo evil >> a; git commit -qam third");
    assert!(matches!(
        apply_commits(&later, "s1", Some(&reviewed), &ApplyOptions::default(), &|_| None),
        Err(CommitsError::Stale)
    ));
    assert_eq!(fixture.host("git log --format=%s"), "first\n");
}

#[test]
fn kinds_of_repositories_are_handled_or_refused_by_name() {
    let sha256 = "git init -q -b main --object-format=sha256 .; echo one > a; git add -A; git commit -qm first";
    let fixture = CommitFixture::with(sha256);
    let saved = fixture.session(COMMIT);
    assert_eq!(apply_commits(&saved, "s1", None, &ApplyOptions::default(), &|_| None).unwrap().to.len(), 64);

    let shallow = "git init -q -b main up; (cd up; echo 1 > a; git add -A; git commit -qm one; echo 2 > a; \
                   git commit -qam two); git clone -q --depth=1 file://$PWD/up c; mv c/.git c/a .; rm -r up c";
    let fixture = CommitFixture::with(shallow);
    let saved = fixture.session(COMMIT);
    assert_eq!(apply_commits(&saved, "s1", None, &ApplyOptions::default(), &|_| None).unwrap().commit_count, 1);
    assert_eq!(fixture.host("git log --format=%s; git fsck; git status --porcelain"), "second\ntwo\n");

    for (setup, why) in [
        ("git init -q -b main .; git commit -qm x --allow-empty; git config remote.o.promisor true", "partial clone"),
        (
            "git init -q -b main r; (cd r; git commit -qm x --allow-empty); mv r/.git g; echo 'gitdir: g' > .git",
            "is a file",
        ),
        ("echo nothing > x", "no repository on the host"),
    ] {
        let fixture = CommitFixture::with(setup);
        let saved =
            fixture.session("[ -d .git ] || rm -f .git; git init -q -b main; echo z > z; git add z; git commit -qm z");
        let error = import_commits(&saved, "s1").unwrap_err();
        assert!(matches!(error, CommitsError::Unsupported(_)) && error.to_string().contains(why), "{setup}: {error}");
    }
}
