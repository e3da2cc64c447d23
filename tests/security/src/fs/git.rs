//! Repositories planted for git on the host: their configuration names a command, and `git status` runs it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use sandbox::OverlayLayers;

use super::plant::{PLAIN, review, unseen};
use crate::attack::{Attack, Group::Fs, Verdict, program};
use crate::lead::Lead;
use crate::scene::Scene;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Fs, "fs_git_commondir", "have `git status` read configuration from outside `.git`", commondir)
            .harming(git_ran_it),
        program(Fs, "fs_git_nested", "have `git status` run a command in a repository below", nested)
            .harming(git_ran_it),
        program(Fs, "fs_git_file", "the same by a `.git` that is a file, or a link", elsewhere).harming(git_ran_it),
        program(Fs, "fs_git_bare", "the same by a repository that is not called `.git`", bare).harming(git_ran_it),
    ]
}

/// Directories in which the host runs `git status`.
const ASKED: [&str; 4] = [".", "vendor/x", "vendor/y", "vendor/bare"];
/// The file that the planted command creates outside the workspace.
const TRACE: &str = "git-ran-it";

/// The files of a repository whose configuration names a command.
fn furnish(lead: &Lead, directory: &str, work_tree: &str) -> io::Result<()> {
    let directory = lead.work(directory);
    for name in ["objects", "refs"] {
        fs::create_dir_all(directory.join(name))?;
    }
    fs::write(directory.join("HEAD"), "ref: refs/heads/main\n")?;
    let trace = lead.outside.join(TRACE);
    let command = format!("touch {}; true", trace.display());
    fs::write(
        directory.join("config"),
        format!(
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {work_tree}\n\tfsmonitor = \"{command}\"\n"
        ),
    )
}

fn left(result: io::Result<()>, lead: &Lead) -> Verdict {
    unseen(&result.and_then(|()| fs::write(lead.work(PLAIN), "x")))
}

fn commondir(lead: &Lead) -> Verdict {
    let made = furnish(lead, "g3", "..").and_then(|()| {
        fs::write(lead.work(".git/HEAD"), "ref: refs/heads/main\n")?;
        fs::write(lead.work(".git/commondir"), "../g3\n")
    });
    left(made, lead)
}

fn nested(lead: &Lead) -> Verdict {
    left(furnish(lead, "vendor/x/.git", ".."), lead)
}

fn elsewhere(lead: &Lead) -> Verdict {
    let made = furnish(lead, "g3", "../vendor/x").and_then(|()| {
        fs::create_dir_all(lead.work("vendor/x"))?;
        fs::create_dir_all(lead.work("vendor/y"))?;
        fs::write(lead.work("vendor/x/.git"), "gitdir: ../../g3\n")?;
        std::os::unix::fs::symlink("../../g3", lead.work("vendor/y/.git"))
    });
    left(made, lead)
}

fn bare(lead: &Lead) -> Verdict {
    left(furnish(lead, "vendor/bare", ".."), lead)
}

/// Reviews and applies the changes, then runs `git status` in every directory.
fn git_ran_it(scene: &Scene, layers: Option<&OverlayLayers>) -> Option<String> {
    review(scene, layers);
    for directory in ASKED.map(|directory| scene.workspace().join(directory)) {
        ask_git(scene, &directory);
    }
    scene.outside().join(TRACE).exists().then(|| "git ran a command on the host".into())
}

fn ask_git(scene: &Scene, directory: &Path) {
    if !directory.is_dir() {
        return;
    }
    let mut git = Command::new("git");
    git.arg("status").current_dir(directory).stdin(Stdio::null());
    // Only files in the workspace may influence git.
    git.env_remove("GIT_DIR").env("HOME", scene.outside()).env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("GIT_CEILING_DIRECTORIES", scene.workspace().parent().expect("parent"));
    // Without a repository git fails, which is the desired result.
    git.output().expect("git");
}
