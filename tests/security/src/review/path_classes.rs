//! Files that the host executes by itself, and aliases of them.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use rustix::fs::{CWD, FileType, Mode};
use sandbox::OverlayLayers;

use super::landing::{git_runs, land, landed, link, planted, touch, write, write_repository};
use crate::attack::{Attack, Group::Review, Harm, Verdict, program};
use crate::lead::Lead;
use crate::scene::Scene;

const STATUS: &[&str] = &["status"];
const COMMIT: &[&str] = &["commit", "--quiet", "--allow-empty", "--message", "x"];

pub(crate) fn attacks() -> Vec<Attack> {
    [repositories(), settings_of_the_host(), names(), kinds(), unconfirmed()].concat()
}

fn attack(name: &'static str, what: &'static str, run: fn(&Lead) -> Verdict, harm: Harm) -> Attack {
    program(Review, name, what, run).harming(harm)
}

/// Repositories that git would obey.
fn repositories() -> Vec<Attack> {
    vec![
        attack(
            "review_bare_below_git",
            "hide a repository below `.git`, and lead there by a link",
            |lead| planted(lead, below_git(lead, &[("handbook", ".git/evil")])),
            |scene, layers| git_runs(scene, layers, &[], ("handbook", STATUS)),
        ),
        attack(
            "review_bare_chain",
            "the same by a chain of links",
            |lead| {
                planted(lead, below_git(lead, &[("one", "two"), ("two", "sub/three"), ("sub/three", "../.git/evil")]))
            },
            |scene, layers| git_runs(scene, layers, &[], ("one", STATUS)),
        ),
        attack(
            "review_git_link",
            "have `.git` of a directory be a link to another one",
            |lead| {
                planted(
                    lead,
                    write_repository(lead, "store", "../mod").and_then(|()| link(lead, "mod/.git", "../store")),
                )
            },
            |scene, layers| git_runs(scene, layers, &[], ("mod", STATUS)),
        ),
        attack(
            "review_worktree_pointer",
            "have `.git` of a directory be a file that points elsewhere, like that of a worktree or submodule",
            |lead| planted(lead, pointer(lead)),
            |scene, layers| git_runs(scene, layers, &[], ("tree", STATUS)),
        ),
        attack(
            "review_commondir",
            "split a repository, so that its settings are in another directory",
            |lead| planted(lead, split(lead)),
            |scene, layers| git_runs(scene, layers, &[], ("split", STATUS)),
        ),
        attack(
            "review_directory_rename",
            "make a repository under a harmless name, and rename the directory above it",
            |lead| planted(lead, renamed(lead)),
            |scene, layers| git_runs(scene, layers, &[], ("vendor/new/repository", STATUS)),
        ),
        attack(
            "review_bare_by_links",
            "put a bare repository together from links",
            |lead| planted(lead, of_links(lead)),
            |scene, layers| git_runs(scene, layers, &[], ("parts", STATUS)),
        ),
    ]
}

/// Files that only the settings of the host's git make dangerous.
fn settings_of_the_host() -> Vec<Attack> {
    vec![
        attack(
            "review_hooks_path",
            "edit a hook in the directory that the host's `core.hooksPath` names",
            |lead| planted(lead, write(lead, "scripts/git/pre-commit", &script(lead))),
            |scene, layers| git_runs(scene, layers, &[("core.hooksPath", "scripts/git")], (".", COMMIT)),
        ),
        attack(
            "review_hooks_path_link",
            "edit a hook behind a link on the way to that directory",
            |lead| planted(lead, write(lead, "real/pre-commit", &script(lead))),
            |scene, layers| {
                // The link is the host's own. In the control the attacker's file may be there first.
                std::os::unix::fs::symlink("real", scene.workspace().join("hooks-link")).expect("link");
                git_runs(scene, layers, &[("core.hooksPath", "hooks-link")], (".", COMMIT))
            },
        ),
        attack(
            "review_include_path",
            "edit a file that the host's git settings include",
            |lead| {
                planted(lead, write(lead, "team.config", &format!("[core]\n\tfsmonitor = \"{}; true\"\n", touch(lead))))
            },
            |scene, layers| git_runs(scene, layers, &[("include.path", "../team.config")], (".", STATUS)),
        ),
        attack(
            "review_filter",
            "edit the program of a filter that the host's git settings name",
            |lead| planted(lead, write(lead, "scripts/clean.sh", &script(lead))),
            |scene, layers| {
                fs::write(scene.workspace().join(".gitattributes"), "*.md filter=tidy\n").expect("attributes");
                let settings = [("filter.tidy.clean", "sh ./scripts/clean.sh %f")];
                git_runs(scene, layers, &settings, (".", &["add", "README.md"]))
            },
        ),
        attack(
            "review_attributes",
            "select a program of the host's git settings for further files, by attributes",
            |lead| planted(lead, write(lead, ".gitattributes", "* filter=anything\n")),
            |scene, layers| landed(scene, layers, &[".gitattributes"]),
        ),
        attack(
            "review_submodule_command",
            "name a command in the list of submodules",
            |lead| planted(lead, write(lead, ".gitmodules", "[submodule \"x\"]\n\tpath = x\n\tupdate = !touch x\n")),
            |scene, layers| landed(scene, layers, &[".gitmodules"]),
        ),
    ]
}

/// Other names of the same files.
fn names() -> Vec<Attack> {
    vec![
        attack(
            "review_many_names",
            "give a file so many names that the denied one is overlooked",
            |lead| planted(lead, many_names(lead)),
            |scene, layers| landed(scene, layers, &[".hg/hgrc"]),
        ),
        attack(
            "review_link_name",
            "give a harmless directory the name of a tool's settings, by a link",
            |lead| {
                planted(
                    lead,
                    write(lead, "tools/config.toml", "[build]\n").and_then(|()| link(lead, ".cargo", "tools")),
                )
            },
            |scene, layers| landed(scene, layers, &[".cargo/config.toml"]),
        ),
        attack(
            "review_case",
            "write `.git` in capital letters, for a file system that ignores case",
            |lead| planted(lead, write(lead, "vendor/.GIT/config", "x")),
            |scene, layers| landed(scene, layers, &["vendor/.GIT/config"]),
        ),
        attack(
            "review_unicode",
            "write `.git` with a character that some file systems ignore",
            |lead| planted(lead, write(lead, "vendor/.g\u{200c}it/config", "x")),
            |scene, layers| landed(scene, layers, &["vendor/.g\u{200c}it/config"]),
        ),
        attack(
            "review_ntfs",
            "write `.git` as a short name, or as a stream of NTFS",
            |lead| planted(lead, NTFS.iter().try_for_each(|path| write(lead, path, "x"))),
            |scene, layers| landed(scene, layers, &NTFS),
        ),
        attack(
            "review_dangling_link",
            "leave a link to a hook that does not exist yet",
            |lead| planted(lead, link(lead, "later", ".git/hooks/post-commit")),
            |scene, layers| landed(scene, layers, &["later"]),
        ),
        attack(
            "review_link_home",
            "leave a link that leads to the person's home",
            |lead| planted(lead, link(lead, "notes", lead.outside.join("home"))),
            |scene, layers| landed(scene, layers, &["notes"]),
        ),
        attack(
            "review_link_out",
            "leave a link that leads out by another link, which the host has",
            |lead| planted(lead, link(lead, "secret", "way-out/home/.ssh/id_ed25519")),
            |scene, layers| landed(scene, layers, &["secret"]),
        ),
    ]
}

const NTFS: [&str; 4] =
    ["vendor/GIT~1/config", "vendor/.git::$INDEX_ALLOCATION/config", "vendor/.git. /config", "vendor\\.git\\config"];

/// Files that are more than their content.
fn kinds() -> Vec<Attack> {
    vec![
        attack(
            "review_hard_link_out",
            "write through a hard link of the workspace to a file outside",
            |lead| planted(lead, fs::write(lead.work("shared"), "owned")),
            |scene, layers| {
                land(scene, layers);
                // The scene compares the file outside.
                None
            },
        ),
        attack(
            "review_modes",
            "have files applied that everybody on the host can write",
            |lead| planted(lead, open_modes(lead)),
            writable_for_others,
        ),
        attack(
            "review_fifo",
            "have a FIFO applied, which blocks the program that reads it",
            |lead| {
                let mode = Mode::from_raw_mode(0o666);
                let made = rustix::fs::mknodat(CWD, lead.work("pipe"), FileType::Fifo, mode, 0);
                planted(lead, made.map_err(io::Error::from))
            },
            |scene, layers| {
                land(scene, layers);
                let found = scene.workspace().join("pipe").symlink_metadata();
                found.is_ok_and(|found| found.file_type().is_fifo()).then(|| "a FIFO is on the host".into())
            },
        ),
    ]
}

/// Files that run by themselves, which nobody has confirmed.
fn unconfirmed() -> Vec<Attack> {
    vec![
        attack(
            "review_workflow",
            "have a CI workflow applied among other files",
            |lead| planted(lead, WORKFLOWS.iter().try_for_each(|path| write(lead, path, "x"))),
            |scene, layers| landed(scene, layers, &WORKFLOWS),
        ),
        attack(
            "review_instructions",
            "have instructions of other agents applied among other files",
            |lead| planted(lead, INSTRUCTIONS.iter().try_for_each(|path| write(lead, path, "x"))),
            |scene, layers| landed(scene, layers, &INSTRUCTIONS),
        ),
        attack(
            "review_tool_configuration",
            "have settings of build tools applied that name a program",
            |lead| planted(lead, TOOLS.iter().try_for_each(|path| write(lead, path, "x"))),
            |scene, layers| landed(scene, layers, &TOOLS),
        ),
        attack(
            "review_hook_manager",
            "have hooks of a hook manager applied",
            |lead| planted(lead, HOOKS.iter().try_for_each(|path| write(lead, path, "x"))),
            |scene, layers| landed(scene, layers, &HOOKS),
        ),
    ]
}

const WORKFLOWS: [&str; 4] =
    [".github/workflows/ci.yml", ".gitlab-ci.yml", ".circleci/config.yml", "other/.forgejo/workflows/x.yml"];
const INSTRUCTIONS: [&str; 6] =
    ["CLAUDE.md", "other/AGENTS.md", "GEMINI.md", ".cursorrules", ".github/copilot-instructions.md", "other/claude.MD"];
const TOOLS: [&str; 7] = [
    ".cargo/config.toml",
    ".yarnrc.yml",
    ".yarn/releases/yarn.cjs",
    "mise.toml",
    ".tool-versions",
    ".vim/x",
    ".pnpmfile.cjs",
];
const HOOKS: [&str; 4] = [".husky/pre-commit", ".githooks/pre-push", "lefthook.yml", ".pre-commit-config.yaml"];

fn script(lead: &Lead) -> String {
    format!("#!/bin/sh\n{}\ncat\n", touch(lead))
}

fn below_git(lead: &Lead, links: &[(&str, &str)]) -> io::Result<()> {
    write_repository(lead, ".git/evil", "../..")?;
    links.iter().try_for_each(|(path, target)| link(lead, path, target))
}

fn pointer(lead: &Lead) -> io::Result<()> {
    write_repository(lead, "store", "../tree")?;
    write(lead, "tree/.git", "gitdir: ../store\n")
}

fn split(lead: &Lead) -> io::Result<()> {
    write_repository(lead, "store", "../split")?;
    let config = fs::read_to_string(lead.work("store/config"))?;
    write(lead, "store/config", &format!("{config}[extensions]\n\tworktreeConfig = true\n"))?;
    write(lead, "split/HEAD", "ref: refs/heads/main\n")?;
    write(lead, "split/config.worktree", "[core]\n\tbare = false\n\tworktree = ..\n")?;
    write(lead, "split/commondir", "../store\n")
}

fn renamed(lead: &Lead) -> io::Result<()> {
    write_repository(lead, "vendor/old/repository", "..")?;
    fs::rename(lead.work("vendor/old"), lead.work("vendor/new"))
}

fn of_links(lead: &Lead) -> io::Result<()> {
    write_repository(lead, "store", "../parts")?;
    // git accepts every part except `HEAD` as a link.
    write(lead, "parts/HEAD", "ref: refs/heads/main\n")?;
    ["objects", "refs", "config"]
        .iter()
        .try_for_each(|name| link(lead, &format!("parts/{name}"), format!("../store/{name}")))
}

fn many_names(lead: &Lead) -> io::Result<()> {
    (0..100).try_for_each(|number| link(lead, &format!(".alias{number:03}"), "store"))?;
    write(lead, "store/hgrc", "[hooks]\nupdate = id\n")?;
    link(lead, ".hg", "store")
}

fn open_modes(lead: &Lead) -> io::Result<()> {
    for (path, mode) in [("open/file", 0o666), ("open/program", 0o777), ("open", 0o777), ("README.md", 0o666)] {
        if path.contains('/') {
            write(lead, path, "x")?;
        }
        fs::set_permissions(lead.work(path), PermissionsExt::from_mode(mode))?;
    }
    fs::write(lead.work("README.md"), "edited")
}

fn writable_for_others(scene: &Scene, layers: Option<&OverlayLayers>) -> Option<String> {
    land(scene, layers);
    let paths = ["open/file", "open/program", "open", "README.md"];
    let is_open = |path: &&&str| {
        let found = fs::metadata(scene.workspace().join(path));
        found.is_ok_and(|found| found.mode() & 0o022 != 0)
    };
    paths.iter().find(is_open).map(|path| format!("others can write `{path}`"))
}
