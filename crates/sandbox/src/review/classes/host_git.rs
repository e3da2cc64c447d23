//! Questions to the host's git about a workspace.
//!
//! Only commands that read are run. Hooks, the file system monitor and terminal prompts are off, so git starts no program of
//! the repository. A host without git, or a workspace without a repository, has no settings and ignores no file.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Settings that keep git from starting programs, and that let root read a repository of another user.
const SAFE_SETTINGS: [&str; 10] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.untrackedCache=false",
    "-c",
    "safe.directory=*",
    "-c",
    "safe.bareRepository=explicit",
];

/// Variables that would make git use another repository or write a log.
const UNSET: [&str; 11] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_TRACE",
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
    "GIT_TRACE_SETUP",
    "GIT_CONFIG",
];

/// The arguments that list every setting with its file.
const LIST_SETTINGS: [&str; 5] = ["config", "--list", "--show-origin", "--includes", "-z"];

/// One setting of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitSetting {
    /// The file that contains it; relative to the workspace, or absolute.
    pub(crate) file: Option<PathBuf>,
    /// Section and name in lower case; a subsection as written.
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Returns every setting that git has in `workspace`.
pub(crate) fn settings(workspace: &Path) -> io::Result<Vec<GitSetting>> {
    let Some(output) = ask(workspace, &LIST_SETTINGS, None)? else { return Ok(Vec::new()) };
    let mut parts = output.stdout.split(|byte| *byte == 0);
    let mut settings = Vec::new();
    while let (Some(origin), Some(setting)) = (parts.next(), parts.next()) {
        let setting = String::from_utf8_lossy(setting);
        let (key, value) = setting.split_once('\n').unwrap_or((&setting, ""));
        let file = origin.strip_prefix(b"file:").map(|path| PathBuf::from(OsStr::from_bytes(path)));
        // The safe settings themselves come from the command line.
        if origin != b"command line:" {
            settings.push(GitSetting { file, key: key.to_owned(), value: value.to_owned() });
        }
    }
    Ok(settings)
}

/// Returns the top directory of the repository that `workspace` belongs to.
pub(crate) fn top_directory(workspace: &Path) -> io::Result<Option<PathBuf>> {
    let Some(output) = ask(workspace, &["rev-parse", "--show-toplevel"], None)? else { return Ok(None) };
    let path = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
    Ok((!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path))))
}

/// Returns the paths among `paths` that the repository ignores and does not track. A directory has a trailing slash. Paths
/// about which git cannot decide, such as those in a submodule, are not ignored.
///
/// A repository above that ignores the whole workspace, such as one in a home directory, says nothing about its files.
pub(crate) fn ignored(workspace: &Path, paths: &[Vec<u8>]) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if paths.is_empty() || !is_part_of_repository(workspace)? {
        return Ok(found);
    }
    let mut rest = paths;
    // git stops at the first path that it cannot judge, so the question continues behind it.
    for _ in 0..MAX_QUESTIONS {
        if rest.is_empty() {
            break;
        }
        let mut question = rest.join(&0);
        question.push(0);
        let arguments = ["check-ignore", "--stdin", "-z", "--verbose", "--non-matching"];
        let Some(output) = ask(workspace, &arguments, Some(&question))? else { break };
        let fields: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
        let (answers, _) = fields.as_chunks::<4>();
        for [source, _, pattern, path] in answers {
            if !source.is_empty() && !pattern.starts_with(b"!") {
                found.push(PathBuf::from(OsStr::from_bytes(path)));
            }
        }
        if answers.len() >= rest.len() {
            break;
        }
        rest = rest.get(answers.len() + 1..).unwrap_or_default();
    }
    Ok(found)
}

/// Returns whether the workspace is in a repository that does not ignore it as a whole.
fn is_part_of_repository(workspace: &Path) -> io::Result<bool> {
    let Some(prefix) = ask(workspace, &["rev-parse", "--show-prefix"], None)? else { return Ok(false) };
    if !prefix.status.success() || prefix.stdout == b"\n" {
        return Ok(prefix.status.success());
    }
    let whole = ask(workspace, &["check-ignore", "--quiet", "."], None)?;
    Ok(whole.is_some_and(|output| output.status.code() == Some(1)))
}

/// How often the question about ignored paths is continued.
const MAX_QUESTIONS: usize = 64;

/// Runs git in `workspace`; returns `None` when the host has no git.
fn ask(workspace: &Path, arguments: &[&str], input: Option<&[u8]>) -> io::Result<Option<Output>> {
    let mut git = Command::new("git");
    git.args(SAFE_SETTINGS).args(arguments).current_dir(workspace);
    for name in UNSET {
        git.env_remove(name);
    }
    git.env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
    git.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    git.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = match git.spawn() {
        Ok(running) => running,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let stdin = running.stdin.take();
    // Another thread writes, because git answers before it has read everything.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // git may end before it has read everything; its answer says how far it came.
                let _ = stdin.write_all(input);
            }
        });
        running.wait_with_output()
    })?;
    Ok(Some(output))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn repository(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        git(directory.path(), &["init", "--quiet"]);
        for (path, content) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        directory
    }

    fn git(directory: &Path, arguments: &[&str]) {
        let done = Command::new("git").args(arguments).current_dir(directory).status().unwrap();
        assert!(done.success(), "{arguments:?}");
    }

    fn ask_ignored(directory: &Path, paths: &[&str]) -> Vec<String> {
        let paths: Vec<_> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        ignored(directory, &paths).unwrap().iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn ignored_paths_are_found_unless_they_are_tracked() {
        let files = [(".gitignore", "target/\n*.log\n!kept.log\n"), ("old.log", "x"), ("sub/.gitignore", "made\n")];
        let directory = repository(&files);
        git(directory.path(), &["add", "--force", "old.log"]);
        let asked = ["src/a.rs", "target/", "target/debug/x", "new.log", "kept.log", "old.log", "sub/made", "made"];
        assert_eq!(ask_ignored(directory.path(), &asked), ["target/", "target/debug/x", "new.log", "sub/made"]);
    }

    #[test]
    fn a_repository_above_that_ignores_the_workspace_is_not_asked() {
        let directory = repository(&[(".gitignore", "*\n"), ("project/file", "x")]);
        assert_eq!(ask_ignored(&directory.path().join("project"), &["file", "new"]), [""; 0]);
        assert_eq!(ask_ignored(directory.path(), &["new"]), ["new"]);
        let directory = repository(&[(".gitignore", "*.log\n"), ("project/file", "x")]);
        assert_eq!(ask_ignored(&directory.path().join("project"), &["file", "new.log"]), ["new.log"]);
    }

    #[test]
    fn a_path_behind_a_link_does_not_end_the_question() {
        let directory = repository(&[(".gitignore", "*.log\n"), ("real/x", "x")]);
        symlink("real", directory.path().join("link")).unwrap();
        let asked = ["a.log", "link/b.log", "c.log", "link/d", "e.log"];
        assert_eq!(ask_ignored(directory.path(), &asked), ["a.log", "c.log", "e.log"]);
    }

    #[test]
    fn settings_name_their_file_and_no_repository_ignores_nothing() {
        let directory = repository(&[]);
        git(directory.path(), &["config", "core.hooksPath", ".husky"]);
        let wanted = GitSetting {
            file: Some(".git/config".into()),
            key: "core.hookspath".to_owned(),
            value: ".husky".to_owned(),
        };
        assert!(settings(directory.path()).unwrap().contains(&wanted));
        assert_eq!(top_directory(directory.path()).unwrap(), Some(directory.path().canonicalize().unwrap()));
        let plain = tempfile::tempdir().unwrap();
        std::fs::write(plain.path().join(".gitignore"), "*\n").unwrap();
        assert_eq!(ask_ignored(plain.path(), &["a", "b"]), [""; 0]);
        assert_eq!(top_directory(plain.path()).unwrap(), None);
    }
}
