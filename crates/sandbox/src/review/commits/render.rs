//! Commits as text for a terminal. The sandbox wrote names, messages and contents, so all of them are escaped.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base::Digest;
use sha2::{Digest as _, Sha256};

use super::CommitsError;
use super::bare::BareRepository;
use super::commit::{Commit, CommitChange, ImportedTip, SessionCommits, TipRelation};
use super::host_repository::HostRepository;
use super::list::CommitReader;
use crate::review::json_path::quoted;
use crate::review::{ClassName, SavedChange, SavedChanges, SavedEntry, visible};

/// Digits of an id that are shown.
const SHORT: usize = 12;

/// Returns the commits as text: one block for each branch, then one for each commit. Empty without commits.
pub fn render_commits(commits: &SessionCommits) -> String {
    let mut text = String::new();
    for tip in &commits.tips {
        let _ = writeln!(text, "{}", headline(tip));
        let name = tip.tip.branch().unwrap_or("HEAD");
        for commit in commits.commits.iter().filter(|commit| commit.branch == name) {
            render_commit(&mut text, commit);
        }
        for change in tip.changes.iter().filter(|change| change.class != ClassName::Plain) {
            let why = change.why.as_deref().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
            let class = match change.class {
                ClassName::RunsByItself => "runs by itself, needs --confirm",
                ClassName::Refused => "refused",
                ClassName::Plain | ClassName::Ignored => "ignored",
            };
            let _ = writeln!(text, "! {}  {class}{why}", quoted(&change.path));
        }
        text.push('\n');
    }
    if commits.omitted > 0 {
        let _ = writeln!(text, "{} further commits are not listed", commits.omitted);
    }
    for skipped in &commits.skipped {
        let _ = writeln!(text, "reference {} was not imported: {}", skipped.name, skipped.reason);
    }
    text
}

fn headline(tip: &ImportedTip) -> String {
    let name =
        tip.tip.branch().map_or_else(|| "detached HEAD".to_owned(), |branch| format!("branch {}", one_line(branch)));
    let count = match tip.commit_count {
        1 => "1 commit".to_owned(),
        count => format!("{count} commits"),
    };
    let start = tip.start.as_deref().map(short).unwrap_or_default();
    let how = match tip.relation {
        TipRelation::Forward => format!("{count} since {start}"),
        TipRelation::Rewritten => format!("{count} that replace commits of the host since {start}"),
        TipRelation::New => format!("{count}, the host has no such branch"),
        TipRelation::Detached => format!("{count} on no branch"),
        TipRelation::Landed => "the host's branch has these commits".to_owned(),
    };
    format!("{name} at {}: {how} (in `{}`)", short(&tip.tip.id), one_line(&tip.imported_as))
}

fn render_commit(text: &mut String, commit: &Commit) {
    let _ = writeln!(text, "\ncommit {}", commit.id);
    let note = if commit.other_identity { "  (not the identity of this session)" } else { "" };
    let _ = writeln!(text, "Author: {} <{}>{note}", one_line(&commit.author), one_line(&commit.email));
    if (&commit.committer, &commit.committer_email) != (&commit.author, &commit.email) {
        let _ = writeln!(text, "Commit: {} <{}>", one_line(&commit.committer), one_line(&commit.committer_email));
    }
    let _ = writeln!(text, "Date:   {}\n", commit.time);
    for line in visible(&commit.message).lines() {
        let _ = writeln!(text, "{}", format!("    {line}").trim_end());
    }
    text.push('\n');
    for file in &commit.files {
        let lines = if file.lines.binary {
            "binary".to_owned()
        } else {
            format!("+{} -{}", file.lines.added, file.lines.removed)
        };
        let _ = writeln!(text, " {}  {lines}", quoted(&file.path));
    }
}

fn short(id: &str) -> &str {
    id.get(..SHORT).unwrap_or(id)
}

/// Returns the text in one line, with every control character escaped.
fn one_line(text: &str) -> String {
    visible(text).replace('\n', "^J").replace('\t', " ")
}

/// Returns the patch of each branch against the start of the session, without the paths whose saved file has the same
/// content: those are among the changes of files. The patch is safe to print.
pub fn commit_patch(saved: &SavedChanges, commits: &SessionCommits) -> Result<String, CommitsError> {
    let waiting = || commits.tips.iter().filter(|tip| !tip.changes.is_empty());
    if waiting().next().is_none() {
        return Ok(String::new());
    }
    let host = HostRepository::open(saved.workspace())?;
    let view = BareRepository::view(saved, &host)?;
    let reader = CommitReader { view: &view };
    let files: HashMap<&Path, &SavedChange> = saved.changes().map(|change| (change.path.as_path(), change)).collect();
    let mut text = String::new();
    for tip in waiting() {
        let (hidden, paths): (Vec<_>, Vec<_>) =
            only_in_commits(&reader, tip, &files)?.into_iter().partition(|path| is_hidden(saved, path));
        for path in hidden {
            let _ = writeln!(text, "# {}: hidden by the policy, its content is not shown", quoted(path));
        }
        if !paths.is_empty() {
            text.push_str(&visible(&reader.patch(&tip.base, &tip.tip.id, &paths)?));
        }
    }
    Ok(text)
}

/// Returns whether the policy hides a file from the session. The host's content of such a file never appears in a patch.
fn is_hidden(saved: &SavedChanges, path: &Path) -> bool {
    saved.manifest.denials.rule_denying(path).is_some_and(|rule| rule.text.contains("deny_read"))
}

/// Returns the paths of a tip whose content differs from the saved file of the session.
fn only_in_commits<'a>(
    reader: &CommitReader<'_>,
    tip: &'a ImportedTip,
    files: &HashMap<&Path, &SavedChange>,
) -> Result<Vec<&'a PathBuf>, CommitsError> {
    let candidates = tip.changes.iter().filter(|change| files.contains_key(change.path.as_path()));
    let ids: Vec<String> = candidates.filter_map(|change| change.id.clone()).collect();
    let contents: HashMap<String, Option<Vec<u8>>> = ids.iter().cloned().zip(reader.objects(&ids)?).collect();
    let is_same = |change: &CommitChange| {
        let Some(file) = files.get(change.path.as_path()) else { return false };
        let content = change.id.as_ref().and_then(|id| contents.get(id)).and_then(Option::as_deref);
        match (&file.entry, content) {
            (None, None) => change.mode == 0,
            (Some(SavedEntry::Regular { mode, sha256, .. }), Some(content)) => {
                let executable = (mode & 0o100 != 0) == (change.mode == 0o100_755);
                change.mode & 0o170_000 == 0o100_000 && executable && digest(content) == *sha256
            }
            (Some(SavedEntry::Symlink { target }), Some(content)) => {
                change.mode == 0o120_000 && target.as_os_str().as_encoded_bytes() == content
            }
            _ => false,
        }
    };
    Ok(tip.changes.iter().filter(|change| !is_same(change)).map(|change| &change.path).collect())
}

fn digest(content: &[u8]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(content);
    Digest::finish(hasher).to_string()
}
