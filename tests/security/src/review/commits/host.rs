//! The host of the attacks by commits: a repository, and another one that is private.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::stage::Stage;

/// A host with a repository, and another one that is private.
pub(super) struct Host {
    pub(super) directory: tempfile::TempDir,
    pub(super) workspace: PathBuf,
    /// The references at the start.
    before: String,
}

/// The environment of git on both sides.
const ENVIRONMENT: &str = "export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=safe.directory \
    GIT_CONFIG_VALUE_0='*' GIT_CONFIG_KEY_1=user.name GIT_CONFIG_VALUE_1=ada GIT_CONFIG_KEY_2=user.email \
    GIT_CONFIG_VALUE_2=ada@example.com; ";

impl Host {
    pub(super) fn build(stage: &Stage) -> Self {
        let directory = tempfile::Builder::new().prefix("commits-").tempdir_in(&stage.root).expect("directory");
        let workspace = directory.path().join("workspace");
        std::fs::create_dir_all(&workspace).expect("workspace");
        let mut this = Self { directory, workspace, before: String::new() };
        this.run(
            "git init -q -b main .; git config user.name ada; git config user.email ada@example.com; echo one > a; git add -A; \
             git commit -qm first; git branch release; git tag v1; git switch -qc old; echo evil-payload > run.sh; \
             git add -A; git commit -qm vulnerable; git switch -q main; \
             git init -q -b main ../private; cd ../private; echo private-secret > s; git add s; git commit -qm private-secret",
        );
        this.before = this.git("for-each-ref refs/heads refs/tags");
        this
    }

    pub(super) fn trace(&self) -> PathBuf {
        self.directory.path().join("trace")
    }

    pub(super) fn script(&self, script: &str) -> String {
        let private = self.directory.path().join("private");
        let id = self.git("-C ../private rev-parse HEAD");
        let script = script.replace("PRIVATE_ID", id.trim()).replace("PRIVATE", &private.display().to_string());
        format!("{ENVIRONMENT} set -e; {}", script.replace("TRACE", &self.trace().display().to_string()))
    }

    pub(super) fn shell(directory: &Path, script: &str) -> (bool, String) {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{ENVIRONMENT} {script}")]).current_dir(directory).stdin(Stdio::null());
        shell.env_remove("GIT_DIR");
        let output = shell.output().expect("sh");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(super) fn run(&self, script: &str) -> String {
        Self::shell(&self.workspace, script).1
    }

    pub(super) fn succeeds(&self, script: &str) -> bool {
        Self::shell(&self.workspace, script).0
    }

    pub(super) fn git(&self, arguments: &str) -> String {
        self.run(&format!("git {arguments} 2>/dev/null"))
    }

    /// Returns harm when the checked-out branch has the payload, and the review did not show it.
    pub(super) fn has_unseen_payload(&self, shown: &str) -> Option<String> {
        let landed = self.git("--no-replace-objects grep -h evil-payload main -- .");
        (landed.contains("evil-payload") && !shown.contains("evil-payload")).then(|| "unseen content landed".to_owned())
    }

    /// Returns harm when the checked-out branch has a commit that the review did not show.
    pub(super) fn has_unseen_commit(&self, shown: &str, subject: &str) -> Option<String> {
        self.run("rm -f .git/shallow .git/info/grafts");
        let landed = self.git("log --format='subject %s' main").contains(&format!("subject {subject}\n"));
        (landed && !shown.lines().any(|line| line.trim() == subject)).then(|| "an unseen commit landed".to_owned())
    }

    pub(super) fn moved(&self, names: &[&str]) -> Option<String> {
        let now = self.git("for-each-ref refs/heads refs/tags");
        let of = |list: &str, name: &str| list.lines().find(|line| line.ends_with(name)).map(str::to_owned);
        names.iter().find(|name| of(&now, name) != of(&self.before, name)).map(|name| format!("`{name}` moved"))
    }

    /// Works in the repository as a person would.
    pub(super) fn ran_something(&self) -> Option<String> {
        self.run("git status; git branch other; git checkout -q other; git switch -q main");
        self.trace().exists().then(|| "git ran a command on the host".to_owned())
    }
}
