//! Files of a workspace that the host's git settings name.
//!
//! `core.hooksPath`, `include.path`, filters and similar settings make git read or execute files of any name. If such a
//! setting names a path of the workspace, a change there would run on the host unseen.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::folded_name::folded;
use super::host_git::{self, GitSetting};

/// Names of hooks, for a host whose directory of hooks is the workspace itself.
const HOOKS: &[&str] = &[
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-prepare-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "post-index-change",
];

/// Settings whose value is a path, as the first and the last part of the key.
const PATHS: &[(&str, &str)] = &[
    ("core", "hookspath"),
    ("core", "attributesfile"),
    ("core", "excludesfile"),
    ("include", "path"),
    ("includeif", "path"),
    ("init", "templatedir"),
    ("commit", "template"),
    ("gpg", "allowedsignersfile"),
    ("gpg", "revocationfile"),
    ("http", "cookiefile"),
    ("http", "sslcainfo"),
    ("http", "sslcapath"),
];

/// Settings whose value is a command.
const COMMANDS: &[(&str, &str)] = &[
    ("alias", ""),
    ("browser", "cmd"),
    ("browser", "path"),
    ("core", "fsmonitor"),
    ("core", "sshcommand"),
    ("core", "editor"),
    ("core", "pager"),
    ("core", "askpass"),
    ("core", "gitproxy"),
    ("core", "alternaterefscommand"),
    ("credential", "helper"),
    ("diff", "command"),
    ("diff", "external"),
    ("diff", "textconv"),
    ("difftool", "cmd"),
    ("difftool", "path"),
    ("filter", "clean"),
    ("filter", "process"),
    ("filter", "smudge"),
    ("gpg", "defaultkeycommand"),
    ("gpg", "program"),
    ("guitool", "cmd"),
    ("hook", "command"),
    ("imap", "tunnel"),
    ("instaweb", "httpd"),
    ("interactive", "difffilter"),
    ("lfs", "clean"),
    ("lfs", "path"),
    ("lfs", "smudge"),
    ("man", "cmd"),
    ("man", "path"),
    ("merge", "driver"),
    ("mergetool", "cmd"),
    ("mergetool", "path"),
    ("pager", ""),
    ("remote", "receivepack"),
    ("remote", "uploadpack"),
    ("sequence", "editor"),
    ("submodule", "update"),
    ("tar", "command"),
    ("trailer", "cmd"),
    ("trailer", "command"),
    ("uploadpack", "packobjectshook"),
    ("sendemail", "cccmd"),
    ("sendemail", "headercmd"),
    ("sendemail", "sendmailcmd"),
    ("sendemail", "smtpserver"),
    ("sendemail", "tocmd"),
];

/// Programs that execute the file in their first argument. Versions after the name are left out.
const INTERPRETERS: &[&str] = &[
    ".", "bash", "bun", "dash", "deno", "env", "exec", "fish", "ksh", "node", "perl", "php", "pypy", "python", "ruby",
    "sh", "source", "tclsh", "zsh",
];

/// The paths of a workspace that the host's git settings name, in folded form.
#[derive(Debug, Default)]
pub(crate) struct HostSettings {
    /// Each path with everything below it, by the key of the setting.
    paths: HashMap<PathBuf, String>,
    /// The directories above these paths.
    above: HashMap<PathBuf, String>,
}

impl HostSettings {
    /// Asks the host's git about `workspace`, which must be an absolute path without links.
    pub(crate) fn read(workspace: &Path) -> io::Result<Self> {
        let settings = host_git::settings(workspace)?;
        let top = host_git::top_directory(workspace)?;
        Ok(Self::of(workspace, top.as_deref().unwrap_or(workspace), &settings))
    }

    fn of(workspace: &Path, top: &Path, settings: &[GitSetting]) -> Self {
        let mut this = Self::default();
        for setting in settings {
            let file = setting.file.as_deref().map(|file| workspace.join(file));
            // A file of settings in the workspace is obeyed. Those in `.git` are never applied.
            if let Some(inside) = file.as_deref().and_then(|file| inside(workspace, file)) {
                this.add(&inside, "include.path");
            }
            let directory = file.as_deref().and_then(Path::parent).unwrap_or(workspace);
            for named in named_paths(setting, workspace, top, directory) {
                this.add(&named, &setting.key);
            }
        }
        this
    }

    fn add(&mut self, path: &Path, key: &str) {
        let path = folded(path);
        if path.as_os_str().is_empty() {
            let hooks = HOOKS.iter().filter(|_| key == "core.hookspath");
            return hooks.for_each(|hook| drop(self.paths.insert(hook.into(), key.to_owned())));
        }
        for directory in path.ancestors().skip(1).filter(|directory| !directory.as_os_str().is_empty()) {
            self.above.insert(directory.to_owned(), key.to_owned());
        }
        self.paths.insert(path, key.to_owned());
    }

    /// Returns the setting that names exactly this path. The caller asks for the directories above it as well.
    pub(crate) fn naming(&self, path: &Path) -> Option<&str> {
        self.paths.get(path).map(String::as_str)
    }

    /// Returns the setting that names a path below this one.
    pub(crate) fn naming_below(&self, path: &Path) -> Option<&str> {
        self.above.get(path).map(String::as_str)
    }
}

/// Returns the paths of the workspace that one setting names.
fn named_paths(setting: &GitSetting, workspace: &Path, top: &Path, directory: &Path) -> Vec<PathBuf> {
    let (first, last) = (setting.key.split('.').next(), setting.key.rsplit('.').next());
    let is_in = |list: &[(&str, &str)]| {
        list.iter().any(|(section, name)| first == Some(*section) && (name.is_empty() || last == Some(*name)))
    };
    let words: Vec<&str> = if is_in(PATHS) {
        vec![&setting.value]
    } else if is_in(COMMANDS) {
        command_files(setting, &[workspace, top])
    } else {
        Vec::new()
    };
    let is_command = !is_in(PATHS);
    let mut paths = Vec::new();
    for word in words.into_iter().filter(|word| !word.is_empty()) {
        let bases = [directory, workspace, top];
        let relative = |base: &Path| inside(workspace, &base.join(word));
        match word.strip_prefix('~').and_then(|rest| rest.split_once('/')) {
            // The home directory is one of the directories above the workspace, if the path is inside at all.
            Some((_, rest)) => {
                let homes = workspace.ancestors();
                paths.extend(homes.filter_map(|home| inside(workspace, &home.join(rest))));
            }
            None => paths.extend(bases.into_iter().filter_map(relative)),
        }
    }
    // A command without a directory is searched in PATH, never in the workspace.
    paths.retain(|path| !is_command || !path.as_os_str().is_empty());
    paths
}

/// Returns the words of a command that name files. A word without a slash is a file if an interpreter executes it, or if
/// one of the directories `bases` has it. The second rule does not hold for aliases, whose arguments are mostly arguments
/// of git.
fn command_files<'a>(setting: &'a GitSetting, bases: &[&Path]) -> Vec<&'a str> {
    let is_alias = setting.key.starts_with("alias.");
    let words = setting.value.split(|sign: char| sign.is_whitespace() || "'\"`;|&()<>=!".contains(sign));
    let (mut files, mut before) = (Vec::new(), None);
    for word in words.filter(|word| !word.is_empty()) {
        let is_option = word.starts_with('-');
        let exists = || bases.iter().any(|base| base.join(word).is_file());
        let is_executed = before.is_some_and(is_interpreter) && !is_option;
        if looks_like_path(word) || is_executed || (before.is_some() && !is_option && !is_alias && exists()) {
            files.push(word);
        }
        // The file of an interpreter may follow its options, but `-c`, `-e` and `-m` take no file.
        let is_skipped = is_option && !matches!(word, "-c" | "-e" | "-m" | "--eval" | "--command");
        before = if is_skipped { before.or(Some(word)) } else { Some(word) };
    }
    files
}

fn is_interpreter(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    let name =
        if name == "." { name } else { name.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.') };
    INTERPRETERS.contains(&name)
}

/// Returns whether a word of a command is a path: it has a slash, and is not a URL or an option.
fn looks_like_path(word: &str) -> bool {
    word.contains('/') && !word.contains("://") && !word.starts_with('-')
}

/// Returns `path` relative to the workspace, by its text; `None` when it is outside or the directory of git itself.
fn inside(workspace: &Path, path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(normal.pop()),
            other => normal.push(other),
        }
    }
    let inside = normal.strip_prefix(workspace).ok()?;
    (inside.iter().next() != Some(OsStr::new(".git"))).then(|| inside.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[track_caller]
    fn check(key: &str, value: &str, path: &str, expected: bool) {
        let (file, key) = (Some(".git/config".into()), key.to_owned());
        let settings = [GitSetting { file, key, value: value.to_owned() }];
        let read = HostSettings::of(Path::new("/home/you/project"), Path::new("/home/you/project"), &settings);
        let found = Path::new(path).ancestors().any(|part| read.naming(part).is_some());
        assert_eq!(found, expected, "{settings:?} on {path}");
    }

    #[test]
    fn paths_that_settings_name_are_found() {
        check("core.hookspath", ".husky", ".husky/pre-commit", true);
        check("core.hookspath", "./tools/hooks/", "tools/hooks/pre-commit", true);
        check("core.hookspath", "/home/you/project/hooks", "hooks/pre-push", true);
        check("core.hookspath", "~/project/hooks", "hooks/pre-push", true);
        check("core.hookspath", "/home/you/hooks", "hooks/pre-push", false);
        check("core.hookspath", ".", "pre-commit", true);
        check("core.hookspath", ".", "main.rs", false);
        check("include.path", "../shared.config", "shared.config", true);
        check("includeif.gitdir:~/project/.path", "../other.config", "other.config", true);
        check("core.attributesfile", "attributes", "attributes", true);
        check("filter.clean-it.clean", "sh ./tools/clean.sh %f", "tools/clean.sh", true);
        check("alias.st", "!'bin/status' --short", "bin/status", true);
        check("filter.x.clean", "python3.12 -u clean.py %f", "clean.py", true);
        check("filter.x.smudge", "/bin/sh clean", "clean", true);
        check("alias.go", "!sh -c 'git log'", "git", false);
        check("alias.go", "!git checkout package-lock.json", "package-lock.json", false);
        check("browser.mine.cmd", "tools/show", "tools/show", true);
        check("lfs.customtransfer.mine.path", "tools/send", "tools/send", true);
        check("sendemail.tocmd", "./tools/to", "tools/to", true);
        check("http.https://example.com.sslcainfo", "ca.pem", "ca.pem", true);
        check("merge.ours.driver", "true", "true", false);
        check("core.editor", "vim", "vim", false);
        check("remote.origin.url", "vendor/x", "vendor/x", false);
        check("credential.https://example.com/a.helper", "cache", "cache", false);
    }

    #[test]
    fn a_file_without_a_directory_is_named_by_a_command_if_it_exists() {
        let directory = tempfile::tempdir().unwrap();
        let (workspace, key) = (directory.path(), "core.sshcommand".to_owned());
        std::fs::write(workspace.join("settings"), "").unwrap();
        let setting = GitSetting { file: None, key, value: "ssh -F settings -l other".to_owned() };
        let read = HostSettings::of(workspace, workspace, &[setting]);
        assert!(read.naming(Path::new("settings")).is_some() && read.naming(Path::new("other")).is_none());
    }

    #[test]
    fn directories_above_a_named_path_are_known() {
        let key = "core.hookspath".to_owned();
        let setting = GitSetting { file: None, key, value: "tools/git/hooks".to_owned() };
        let read = HostSettings::of(Path::new("/w"), Path::new("/w"), &[setting]);
        assert!(read.naming_below(Path::new("tools")).is_some() && read.naming_below(Path::new("tools/git")).is_some());
        assert!(read.naming_below(Path::new("tools/git/hooks")).is_none());
    }
}
