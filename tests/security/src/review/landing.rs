//! The host's side of an attack on the review: applies the changes like a person who confirms nothing, and then works in the
//! directory.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use sandbox::{ApplyOptions, OverlayLayers, SavedChanges};

use crate::attack::{Verdict, Walls};
use crate::lead::Lead;
use crate::scene::Scene;

/// A change that the review must allow.
const PLAIN: &str = "notes.txt";
/// The file that a planted program creates outside the workspace.
const TRACE: &str = "planted-program-ran";

/// Returns the verdict of an attacker who planted files. The host decides whether the attack succeeded.
pub(super) fn planted(lead: &Lead, result: io::Result<()>) -> Verdict {
    let plain = fs::write(lead.work(PLAIN), "x");
    Verdict::Blocked(format!("the host will see ({result:?} {plain:?})"))
}

/// Writes a file of the workspace, and the directories above it.
pub(super) fn write(lead: &Lead, path: impl AsRef<Path>, content: &str) -> io::Result<()> {
    let path = lead.work(path);
    fs::create_dir_all(path.parent().expect("parent"))?;
    fs::write(&path, content)?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

pub(super) fn link(lead: &Lead, path: &str, target: impl AsRef<Path>) -> io::Result<()> {
    let path = lead.work(path);
    fs::create_dir_all(path.parent().expect("parent"))?;
    std::os::unix::fs::symlink(target, path)
}

/// Returns the command that shows that a planted program ran.
pub(super) fn touch(lead: &Lead) -> String {
    format!("touch '{}'", lead.outside.join(TRACE).display())
}

/// Writes a repository whose settings name a command.
pub(super) fn write_repository(lead: &Lead, directory: &str, work_tree: &str) -> io::Result<()> {
    for name in ["objects", "refs"] {
        fs::create_dir_all(lead.work(directory).join(name))?;
    }
    write(lead, Path::new(directory).join("HEAD"), "ref: refs/heads/main\n")?;
    let core = format!("repositoryformatversion = 0\n\tbare = false\n\tworktree = {work_tree}");
    let config = format!("[core]\n\t{core}\n\tfsmonitor = \"{}; true\"\n", touch(lead));
    write(lead, Path::new(directory).join("config"), &config)
}

/// Applies everything that needs no consent: all at once, and then the rest path by path. Does nothing for a control, whose
/// program has changed the workspace itself.
pub(super) fn land(scene: &Scene, layers: Option<&OverlayLayers>) {
    let Some(layers) = layers else { return };
    let mut saved = SavedChanges::save_final(layers, &scene.outside().join("saved")).expect("save");
    let policy = crate::stage::policy(Walls::Usual);
    let denying = |path: &Path| sandbox::denying_rule(&policy, path);
    let options = ApplyOptions { denials: policy.file_denials(), ..ApplyOptions::default() };
    let all = ApplyOptions { skip_refused: true, ..options.clone() };
    sandbox::apply(&mut saved, &scene.workspace(), &all, &denying).expect("apply");
    let paths: Vec<_> = saved.changes().map(|change| change.path.clone()).collect();
    for path in paths {
        let one = ApplyOptions { paths: vec![path], ..options.clone() };
        // The check afterwards searches for the refused changes.
        let _ = sandbox::apply(&mut saved, &scene.workspace(), &one, &denying);
    }
    assert!(scene.workspace().join(PLAIN).exists(), "the review lets nothing through");
}

/// Lands the changes and returns the first of `paths` that is on the host then, as a file, link or anything else.
pub(super) fn landed(scene: &Scene, layers: Option<&OverlayLayers>, paths: &[&str]) -> Option<String> {
    land(scene, layers);
    let found = paths.iter().find(|path| scene.workspace().join(path).symlink_metadata().is_ok());
    found.map(|path| format!("`{path}` is on the host"))
}

/// Lands the changes in a repository with these settings, and runs git in a directory of it. Returns whether git ran a
/// planted program.
pub(super) fn git_runs(
    scene: &Scene,
    layers: Option<&OverlayLayers>,
    settings: &[(&str, &str)],
    (directory, arguments): (&str, &[&str]),
) -> Option<String> {
    if !settings.is_empty() {
        git(scene, ".", &["init", "--quiet"]);
    }
    for (key, value) in settings {
        git(scene, ".", &["config", key, value]);
    }
    land(scene, layers);
    if scene.workspace().join(directory).is_dir() {
        git(scene, directory, arguments);
    }
    scene.outside().join(TRACE).exists().then(|| "git ran a command on the host".into())
}

fn git(scene: &Scene, directory: &str, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=A", "-c", "user.email=a@example.com"]).args(arguments);
    git.current_dir(scene.workspace().join(directory)).stdin(Stdio::null());
    // Only files in the workspace may influence git.
    git.env_remove("GIT_DIR").env("HOME", scene.outside()).env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("GIT_CEILING_DIRECTORIES", scene.workspace().parent().expect("parent"));
    // Without a repository git fails, which is the desired result.
    git.output().expect("git");
}
