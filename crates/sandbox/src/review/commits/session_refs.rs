//! The branches of a session, parsed from its saved `.git` without git.
//!
//! The sandbox wrote these files. A name that git would not accept, a link and a reference to another reference are left
//! out and reported; none of them is followed.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;

use serde::Serialize;

use super::ref_name::{is_object_id, is_valid_branch};
use super::repository_start::{
    GIT, HEADS, MAX_BRANCHES, MAX_PACKED_BYTES, MAX_REFERENCE_BYTES, RepositoryStart, packed_branches, symbolic,
};
use crate::review::content_store::ContentStore;
use crate::review::json_path::quoted;
use crate::review::{SavedChange, SavedChanges, SavedEntry};

/// The name of the checked-out commit, where no branch has it.
pub(super) const HEAD: &str = "HEAD";

/// A branch of a session that moved, or its detached `HEAD`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CommitTip {
    /// The name below `refs/viv/<session>/`: `heads/<branch>`, or `HEAD`.
    pub reference: String,
    /// The id of the commit.
    pub id: String,
}

impl CommitTip {
    /// Returns the name of the branch; `None` for a detached `HEAD`.
    pub fn branch(&self) -> Option<&str> {
        self.reference.strip_prefix("heads/")
    }
}

/// A reference of the session that is not imported.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SkippedReference {
    /// The name, quoted for display.
    pub name: String,
    /// The reason.
    pub reason: &'static str,
}

/// The branches of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionReferences {
    /// Branches that differ from the start of the session, and a detached `HEAD`.
    pub(crate) tips: Vec<CommitTip>,
    /// The checked-out commit, if it is one of the tips.
    pub(crate) head: Option<String>,
    pub(crate) skipped: Vec<SkippedReference>,
}

/// Returns the branches that moved in the session, and its detached `HEAD`, by name. Neither git nor the host's repository
/// is used.
pub fn commit_tips(saved: &SavedChanges) -> io::Result<Vec<CommitTip>> {
    Ok(SessionReferences::read(saved)?.tips)
}

impl SessionReferences {
    pub(crate) fn read(saved: &SavedChanges) -> io::Result<Self> {
        let start = saved.manifest.repository.clone().unwrap_or_default();
        let mut read = ReferenceFiles { saved, head: None, loose: BTreeMap::new(), packed: None, skipped: Vec::new() };
        for record in &saved.manifest.changes {
            if let Ok(name) = record.change.path.strip_prefix(GIT) {
                read.file(name, &record.change)?;
            }
        }
        Ok(read.resolve(&start))
    }
}

/// The changed files of references.
struct ReferenceFiles<'a> {
    saved: &'a SavedChanges,
    /// The content of `HEAD`, if it changed.
    head: Option<String>,
    /// Changed files of branches; `None` when the file was deleted.
    loose: BTreeMap<String, Option<String>>,
    /// The branches in `packed-refs`, if it changed.
    packed: Option<BTreeMap<String, String>>,
    skipped: Vec<SkippedReference>,
}

impl ReferenceFiles<'_> {
    fn file(&mut self, name: &Path, change: &SavedChange) -> io::Result<()> {
        if name == Path::new(HEAD) {
            self.head = Some(self.text(change, MAX_REFERENCE_BYTES)?.unwrap_or_default().trim().to_owned());
        } else if name == Path::new("packed-refs") {
            let content = self.text(change, MAX_PACKED_BYTES)?;
            if content.is_none() && change.entry.is_some() {
                self.skip(name, "the file cannot be read as text");
            }
            self.packed = Some(packed_branches(&content.unwrap_or_default()));
        } else if let Ok(branch) = name.strip_prefix(HEADS)
            && !branch.as_os_str().is_empty()
            && !matches!(change.entry, Some(SavedEntry::Directory { .. }))
            && !is_directory_of_host(change)
        {
            self.branch(name, branch, change)?;
        }
        Ok(())
    }

    fn branch(&mut self, name: &Path, branch: &Path, change: &SavedChange) -> io::Result<()> {
        // Locks of commands that were killed are not references.
        let is_lock = branch.extension().is_some_and(|extension| extension == "lock");
        let Some(valid) = branch.to_str().filter(|branch| is_valid_branch(branch)) else {
            if !is_lock && change.entry.is_some() {
                self.skip(name, "git does not accept the name");
            }
            return Ok(());
        };
        if self.loose.len() >= MAX_BRANCHES {
            self.skip(name, "the session has too many branches");
            return Ok(());
        }
        let content = self.text(change, MAX_REFERENCE_BYTES)?.map(|text| text.trim().to_owned());
        let id = content.as_ref().filter(|content| is_object_id(content)).cloned();
        if id.is_none() && change.entry.is_some() {
            let is_link = matches!(change.entry, Some(SavedEntry::Symlink { .. }));
            let names_another = content.is_some_and(|content| content.starts_with("ref:"));
            let reason = if is_link || names_another { "it names another reference" } else { "it has no commit id" };
            self.skip(name, reason);
        }
        self.loose.insert(valid.to_owned(), id);
        Ok(())
    }

    /// Returns the text of a saved file; `None` when it was deleted, is not a regular file, too large or not UTF-8.
    fn text(&self, change: &SavedChange, limit: u64) -> io::Result<Option<String>> {
        let Some(SavedEntry::Regular { sha256, size, .. }) = &change.entry else { return Ok(None) };
        if *size > limit {
            return Ok(None);
        }
        let mut content = Vec::new();
        ContentStore::of(self.saved.directory()).open(sha256)?.take(limit).read_to_end(&mut content)?;
        Ok(String::from_utf8(content).ok())
    }

    fn skip(&mut self, name: &Path, reason: &'static str) {
        self.skipped.push(SkippedReference { name: quoted(name), reason });
    }

    fn resolve(mut self, start: &RepositoryStart) -> SessionReferences {
        let mut branches = self.packed.take().unwrap_or_else(|| start.packed.clone());
        for (name, id) in &start.loose {
            if !self.loose.contains_key(name) {
                branches.insert(name.clone(), id.clone());
            }
        }
        for (name, id) in &self.loose {
            if let Some(id) = id {
                branches.insert(name.clone(), id.clone());
            }
        }
        let head = self.head.as_deref().unwrap_or(&start.head);
        let (branch, detached) = (symbolic(head), Some(head).filter(|id| is_object_id(id)));
        let head = detached.or_else(|| branch.and_then(|name| branches.get(name)).map(String::as_str));
        let head = head.filter(|id| Some(*id) != start.head_commit()).map(str::to_owned);
        let detached = detached.filter(|id| head.as_deref() == Some(*id)).map(str::to_owned);
        let moved = branches.iter().filter(|(name, id)| start.branch(name) != Some(id.as_str()));
        let mut tips: Vec<CommitTip> = moved
            .filter(|(name, _)| !is_below_another(name, &branches))
            .map(|(name, id)| CommitTip { reference: format!("heads/{name}"), id: id.clone() })
            .collect();
        tips.extend(detached.map(|id| CommitTip { reference: HEAD.to_owned(), id }));
        tips.sort();
        let head = head.filter(|id| tips.iter().any(|tip| tip.id == *id));
        self.skipped.sort();
        SessionReferences { tips, head, skipped: self.skipped }
    }
}

/// Returns whether a deleted path was a directory.
fn is_directory_of_host(change: &SavedChange) -> bool {
    change.entry.is_none() && change.base.is_some_and(|base| base.is_directory())
}

/// Returns whether `a` and `a/b` are both branches, which git cannot store.
fn is_below_another(name: &str, branches: &BTreeMap<String, String>) -> bool {
    name.match_indices('/').any(|(at, _)| name.get(..at).is_some_and(|above| branches.contains_key(above)))
}
