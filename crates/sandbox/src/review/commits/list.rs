//! Reads imported commits: authors, messages, changed paths and patches.
//!
//! Git reads them in a repository of our own that has the host's objects only. There, no attribute, driver or setting of
//! the host or of the commits changes the output.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::CommitsError;
use super::bare::BareRepository;
use super::commit::{Commit, CommitChange, CommitFile, CommitIdentity};
use super::git::{GitCommand, GitOutput};
use super::ref_name::is_object_id;
use crate::overlay::ChangeKind;
use crate::review::{ClassName, LineCount};

/// The longest patch in bytes.
const MAX_PATCH: usize = 8 << 20;
/// The longest output of one command that is parsed.
const MAX_OUTPUT: usize = 64 << 20;
/// The most paths of a patch.
const MAX_PATHS: usize = 400;
/// Options that make a comparison independent of settings.
const PLAIN: [&str; 6] = ["--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative", "-r"];

/// A reader of commits.
pub(crate) struct CommitReader<'a> {
    pub(crate) view: &'a BareRepository,
}

impl CommitReader<'_> {
    /// Returns whether the repository has a commit with this id.
    pub(crate) fn has(&self, id: &str) -> Result<bool, CommitsError> {
        Ok(self.git(["cat-file", "-e", &format!("{id}^{{commit}}")]).run()?.succeeded)
    }

    /// Returns whether `ancestor` is `id` or an ancestor of it.
    pub(crate) fn is_ancestor(&self, ancestor: &str, id: &str) -> Result<bool, CommitsError> {
        Ok(self.git(["merge-base", "--is-ancestor", ancestor, id]).run()?.succeeded)
    }

    /// Returns the best common ancestor of two commits; `None` when they have none.
    pub(crate) fn merge_base(&self, one: &str, other: &str) -> Result<Option<String>, CommitsError> {
        let found = self.git(["merge-base", one, other]).run()?;
        Ok(found.text().lines().next().filter(|id| found.succeeded && is_object_id(id)).map(str::to_owned))
    }

    /// Returns the ids of commits that `tip` has and `without` do not have, newest first, and their number.
    pub(crate) fn ids(&self, tip: &str, without: &[&str], most: usize) -> Result<(Vec<String>, usize), CommitsError> {
        let mut input = format!("{tip}\n");
        for id in without {
            input.push_str(&format!("^{id}\n"));
        }
        let command = ["rev-list", "--topo-order", "--ignore-missing", "--stdin"];
        let text = self.git(command).input(input).limit(MAX_OUTPUT).run()?.checked()?.text();
        let ids: Vec<&str> = text.lines().filter(|id| is_object_id(id)).collect();
        Ok((ids.iter().take(most).map(|id| (*id).to_owned()).collect(), ids.len()))
    }

    /// Returns the commits with these ids.
    pub(crate) fn commits(&self, ids: &[String], reference: &str) -> Result<Vec<Commit>, CommitsError> {
        let files = self.files(ids)?;
        let mut commits = Vec::with_capacity(ids.len());
        for (id, content) in ids.iter().zip(self.objects(ids)?) {
            let content = content.ok_or_else(|| CommitsError::Refused(format!("commit {id} cannot be read")))?;
            let files = files.get(id.as_str()).cloned().unwrap_or_default();
            commits.push(Commit::parse(id, reference, &content, files));
        }
        Ok(commits)
    }

    /// Returns the contents of objects, in order; `None` for one that is missing or too large.
    pub(crate) fn objects(&self, ids: &[String]) -> Result<Vec<Option<Vec<u8>>>, CommitsError> {
        let input: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let output = self.git(["cat-file", "--batch=%(objectsize)"]).input(input).limit(MAX_OUTPUT).run()?;
        let GitOutput { stdout, .. } = output.checked()?;
        let mut rest = stdout.as_slice();
        let mut found = Vec::with_capacity(ids.len());
        for _ in ids {
            let object = next_object(rest);
            rest = object.as_ref().map_or(rest, |(_, rest)| rest);
            found.push(object.and_then(|(content, _)| content.map(<[u8]>::to_vec)));
        }
        Ok(found)
    }

    /// Returns the changed files of each commit against its first parent.
    fn files(&self, ids: &[String]) -> Result<HashMap<String, Vec<CommitFile>>, CommitsError> {
        let input: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let command = ["diff-tree", "--stdin", "--root", "--numstat", "-z", "--diff-merges=first-parent"];
        let command = command.into_iter().chain(PLAIN);
        let output = self.git(command).input(input).limit(MAX_OUTPUT).run()?.checked()?;
        let mut files: HashMap<String, Vec<CommitFile>> = HashMap::new();
        let mut current = None;
        for record in output.stdout.split(|byte| *byte == 0) {
            // The line of a commit has no tab, the line of a file has two.
            let text = String::from_utf8_lossy(record);
            let id = text.trim();
            if is_object_id(id) {
                current = Some(id.to_owned());
            } else if let (Some(id), Some(file)) = (&current, CommitFile::parse(record)) {
                files.entry(id.clone()).or_default().push(file);
            }
        }
        Ok(files)
    }

    /// Returns the paths that differ between two commits or trees.
    pub(crate) fn changes(&self, from: &str, to: &str) -> Result<Vec<CommitChange>, CommitsError> {
        let command = ["diff-tree", "--raw", "--no-abbrev", "-z"].into_iter().chain(PLAIN).chain([from, to]);
        let output = self.git(command).limit(MAX_OUTPUT).run()?.checked()?;
        if output.cut {
            return Err(CommitsError::Unsupported("the commits change too many paths".to_owned()));
        }
        let mut fields = output.stdout.split(|byte| *byte == 0);
        let mut changes = Vec::new();
        while let (Some(head), Some(path)) = (fields.next().filter(|head| !head.is_empty()), fields.next()) {
            let invalid = || CommitsError::Refused("the list of changed paths cannot be read".to_owned());
            changes.push(change(head, path).ok_or_else(invalid)?);
        }
        Ok(changes)
    }

    /// Returns the patch between two commits, of these paths. It is not safe to print.
    pub(crate) fn patch(&self, from: &str, to: &str, paths: &[&PathBuf]) -> Result<String, CommitsError> {
        let command = ["diff-tree", "-p", "--src-prefix=a/", "--dst-prefix=b/"].into_iter().chain(PLAIN);
        let mut arguments: Vec<std::ffi::OsString> = command.chain([from, to, "--"]).map(Into::into).collect();
        for path in paths.iter().take(MAX_PATHS) {
            let mut word = std::ffi::OsString::from(":(literal,top)");
            word.push(path);
            arguments.push(word);
        }
        let output = GitCommand::new(self.view.place(), arguments).limit(MAX_PATCH).run()?.checked()?;
        let mut text = output.text();
        if output.cut {
            text.push_str("\n# the patch is longer and was cut here\n");
        }
        if paths.len() > MAX_PATHS {
            text.push_str(&format!("# {} further paths are not shown\n", paths.len() - MAX_PATHS));
        }
        Ok(text)
    }

    fn git<'b>(&self, arguments: impl IntoIterator<Item = &'b str>) -> GitCommand<'_> {
        GitCommand::new(self.view.place(), arguments)
    }
}

/// Returns the first object of an output of `cat-file --batch=%(objectsize)`, and the rest.
fn next_object(output: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let end = output.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = (output.get(..end)?, output.get(end + 1..)?);
    let Some(size) = std::str::from_utf8(line).ok().and_then(|line| line.parse::<usize>().ok()) else {
        return Some((None, rest));
    };
    Some((Some(rest.get(..size)?), rest.get(size + 1..)?))
}

/// Parses `:oldmode newmode oldid newid letter` and the path after it.
fn change(head: &[u8], path: &[u8]) -> Option<CommitChange> {
    let head = std::str::from_utf8(head).ok()?.strip_prefix(':')?;
    let mut words = head.split(' ');
    let mut mode = || words.next().and_then(|mode| u32::from_str_radix(mode, 8).ok());
    let (old_mode, new_mode) = (mode()?, mode()?);
    let (_, new_id) = (words.next()?, words.next()?);
    let kind = match (old_mode, new_mode) {
        (0, _) => ChangeKind::Added,
        (_, 0) => ChangeKind::Deleted,
        _ => ChangeKind::Modified,
    };
    let id = is_object_id(new_id).then(|| new_id.to_owned());
    Some(CommitChange {
        path: PathBuf::from(OsStr::from_bytes(path)),
        kind,
        mode: new_mode,
        id,
        class: ClassName::Plain,
        why: None,
    })
}

impl CommitFile {
    /// Parses `added<TAB>removed<TAB>path`.
    fn parse(record: &[u8]) -> Option<Self> {
        let mut parts = record.splitn(3, |byte| *byte == b'\t');
        let mut number = || parts.next().map(String::from_utf8_lossy).map(|text| text.trim().to_owned());
        let (added, removed) = (number()?, number()?);
        let path = PathBuf::from(OsStr::from_bytes(parts.next()?));
        let lines = LineCount {
            added: added.parse().unwrap_or_default(),
            removed: removed.parse().unwrap_or_default(),
            binary: added == "-",
        };
        Some(Self { path, lines })
    }
}

impl Commit {
    /// Parses the content of a commit object.
    fn parse(id: &str, reference: &str, content: &[u8], files: Vec<CommitFile>) -> Self {
        let text = String::from_utf8_lossy(content);
        let (headers, message) = text.split_once("\n\n").unwrap_or((&text, ""));
        let header = |name: &str| {
            let mut lines = headers.lines();
            lines.find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '))).unwrap_or_default()
        };
        let (author, committer) = (CommitIdentity::parse(header("author")), CommitIdentity::parse(header("committer")));
        let message = message.trim_end().to_owned();
        let subject = message.lines().next().unwrap_or_default().to_owned();
        Self {
            id: id.to_owned(),
            branch: reference.strip_prefix("heads/").unwrap_or(reference).to_owned(),
            author: author.name,
            email: author.email,
            time: author.time,
            committer: committer.name,
            committer_email: committer.email,
            other_identity: false,
            subject,
            message,
            files,
        }
    }
}
