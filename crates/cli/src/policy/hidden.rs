//! The part of `viv policy explain` about files: which files of this directory are hidden, and where their content is still.
//!
//! History is searched with git on the host. The repository is not trusted to choose programs: hooks, monitors, signature
//! programs and external diffs are off, and nothing is fetched.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ::policy::{EffectivePolicy, Explanation, PolicyKey};
use sandbox::{HiddenFiles, quoted};

use super::PolicyCommandError;

/// The most hidden paths that are listed and searched in the history.
const MAX_LISTED: usize = 100;
/// Settings that keep git from running programs that the repository names.
const SAFE_SETTINGS: [&str; 12] = [
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.pager=cat",
    "-c",
    "log.showSignature=false",
    "-c",
    "diff.external=",
    "-c",
    "protocol.allow=never",
];

/// Returns the hidden files of the project directory as sentences; none without a project.
pub(super) fn explain(
    policy: &EffectivePolicy,
    workspace: Option<&Path>,
) -> Result<Vec<Explanation>, PolicyCommandError> {
    let Some(workspace) = workspace else { return Ok(Vec::new()) };
    let failed = |source| PolicyCommandError::Read { path: workspace.to_owned(), source };
    let hidden = HiddenFiles::find(workspace, &policy.fs().deny_read).map_err(failed)?;
    let Some(rule) = ::policy::explain(policy).iter().find(|sentence| sentence.key == PolicyKey::FsDenyRead) else {
        return Ok(Vec::new());
    };
    let sentence = |text: String| Explanation { text, ..rule.clone() };
    Ok(sentences(&hidden, &in_history(workspace, &hidden)).into_iter().map(sentence).collect())
}

fn sentences(hidden: &HiddenFiles, in_history: &BTreeSet<PathBuf>) -> Vec<String> {
    let mut sentences: Vec<String> = count(hidden.count()).into_iter().map(|count| format!("{count} here.")).collect();
    let paths = hidden.paths();
    for path in paths.iter().take(MAX_LISTED) {
        let mut text = format!("Hidden: {}.", quoted(path));
        if hidden.tracked.contains(path) {
            text.push_str(" Git tracks it; git inside does not see it as deleted.");
        }
        if in_history.iter().any(|known| known.starts_with(path)) {
            text.push_str(" Warning: git history contains it, and the sandbox can read the history.");
        }
        sentences.push(text);
    }
    if paths.len() > MAX_LISTED {
        sentences.push(format!("Hidden: {} more.", paths.len() - MAX_LISTED));
    }
    for path in &hidden.masked_configs {
        let what = "contains credentials; the sandbox sees it without them";
        sentences.push(format!("Warning: {} {what}.", quoted(path)));
    }
    sentences
}

/// Returns `N files are hidden by the policy`; `None` for zero.
pub(crate) fn count(files: usize) -> Option<String> {
    match files {
        0 => None,
        1 => Some("1 file is hidden by the policy".to_owned()),
        files => Some(format!("{files} files are hidden by the policy")),
    }
}

/// Returns the hidden files that any commit of the repository contains. Empty without git or a repository.
fn in_history(workspace: &Path, hidden: &HiddenFiles) -> BTreeSet<PathBuf> {
    let paths: Vec<PathBuf> = hidden.paths().into_iter().take(MAX_LISTED).collect();
    if paths.is_empty() {
        return BTreeSet::new();
    }
    let mut git = Command::new("git");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
        git.env_remove(name);
    }
    git.env("GIT_NO_LAZY_FETCH", "1").env("GIT_OPTIONAL_LOCKS", "0").current_dir(workspace).args(SAFE_SETTINGS);
    git.args(["--literal-pathspecs", "log", "--all", "--format=", "--name-only", "--relative", "-z"]);
    git.args(["--no-ext-diff", "--no-textconv", "--no-renames", "--diff-filter=AM", "--"]).args(&paths);
    let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let Ok(output) = output else { return BTreeSet::new() };
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsString::from_vec(name.to_vec()))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use sandbox::HiddenFiles;

    use super::{count, sentences};

    #[test]
    fn hidden_files_are_counted_and_named_with_warnings() {
        let mut hidden = HiddenFiles::default();
        hidden.named = vec!["private".into()];
        hidden.secrets = vec![".env".into()];
        hidden.tracked = vec!["private".into()];
        hidden.masked_configs = vec![".git/config".into()];
        let history: BTreeSet<PathBuf> = [".env".into()].into();
        insta::assert_snapshot!(sentences(&hidden, &history).join("\n"), @"
        2 files are hidden by the policy here.
        Hidden: .env. Warning: git history contains it, and the sandbox can read the history.
        Hidden: private. Git tracks it; git inside does not see it as deleted.
        Warning: .git/config contains credentials; the sandbox sees it without them.
        ");
        assert_eq!((count(0), count(1).as_deref()), (None, Some("1 file is hidden by the policy")));
    }
}
