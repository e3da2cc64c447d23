//! The branches of the host's repository when a sandbox was made.
//!
//! They are read without git, because a sandbox is made in milliseconds.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::ref_name::{is_object_id, is_valid_branch};
use crate::beneath;

/// The directory of the repository in a workspace.
pub(super) const GIT: &str = ".git";
/// The beginning of a branch's full name.
pub(super) const HEADS: &str = "refs/heads/";
/// The largest file of references.
pub(super) const MAX_PACKED_BYTES: u64 = 32 << 20;
/// The largest file of one reference.
pub(super) const MAX_REFERENCE_BYTES: u64 = 4096;
/// The most branches that are read.
pub(super) const MAX_BRANCHES: usize = 50_000;

/// The branches of a repository, by name without `refs/heads/`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryStart {
    /// The branch or commit that was checked out, as `HEAD` has it.
    #[serde(default)]
    pub(crate) head: String,
    /// Branches with a file of their own.
    #[serde(default)]
    pub(crate) loose: BTreeMap<String, String>,
    /// Branches in `packed-refs`. A branch may also be in `loose`, which counts.
    #[serde(default)]
    pub(crate) packed: BTreeMap<String, String>,
}

impl RepositoryStart {
    /// Reads the branches of the repository in `workspace`; empty when they cannot be read.
    pub(crate) fn read_or_empty(workspace: &Path) -> Self {
        Self::read(workspace).unwrap_or_default()
    }

    /// Reads the branches of the repository in `workspace`; empty without a `.git` directory.
    pub(crate) fn read(workspace: &Path) -> io::Result<Self> {
        let root = beneath::root(workspace)?;
        let git = match beneath::directory(&root, Path::new(GIT)) {
            Ok(git) => git,
            Err(error) if beneath::is_absence(error) || error == rustix::io::Errno::LOOP => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        };
        let head = read(&git, Path::new("HEAD"), MAX_REFERENCE_BYTES)?.unwrap_or_default().trim().to_owned();
        let packed = read(&git, Path::new("packed-refs"), MAX_PACKED_BYTES)?.unwrap_or_default();
        Ok(Self { head, loose: loose(&git)?, packed: packed_branches(&packed) })
    }

    /// Returns the commit of a branch; `None` when it did not exist.
    pub(crate) fn branch(&self, name: &str) -> Option<&str> {
        self.loose.get(name).or_else(|| self.packed.get(name)).map(String::as_str)
    }

    /// Returns the branch that is checked out; `None` when a commit is.
    pub(crate) fn head_branch(&self) -> Option<&str> {
        symbolic(&self.head)
    }

    /// Returns the commit that is checked out; `None` in an empty repository.
    pub(crate) fn head_commit(&self) -> Option<&str> {
        match self.head_branch() {
            Some(branch) => self.branch(branch),
            None => Some(self.head.as_str()).filter(|id| is_object_id(id)),
        }
    }

    /// Returns the commits of all branches, and the one that is checked out.
    pub(crate) fn commits(&self) -> Vec<&str> {
        let branches = self.loose.values().chain(self.packed.values()).map(String::as_str);
        let mut commits: Vec<&str> = branches.chain(self.head_commit()).collect();
        commits.sort_unstable();
        commits.dedup();
        commits
    }
}

/// Returns the branch that the content of `HEAD` names.
pub(super) fn symbolic(content: &str) -> Option<&str> {
    content.strip_prefix("ref:").map(str::trim).and_then(|name| name.strip_prefix(HEADS))
}

/// Returns the branches in the content of `packed-refs`. Lines that are not of a branch are left out.
pub(super) fn packed_branches(content: &str) -> BTreeMap<String, String> {
    let lines = content.lines().filter(|line| !line.starts_with(['#', '^']));
    let entries = lines.filter_map(|line| {
        let (id, name) = line.split_once(' ')?;
        Some((name.strip_prefix(HEADS)?, id))
    });
    let valid = entries.filter(|(name, id)| is_valid_branch(name) && is_object_id(id));
    valid.take(MAX_BRANCHES).map(|(name, id)| (name.to_owned(), id.to_owned())).collect()
}

fn loose(git: &OwnedFd) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        let place = Path::new(HEADS).join(&directory);
        let entries = match beneath::directory(git, &place) {
            Ok(entries) => entries,
            Err(error) if beneath::is_absence(error) => continue,
            Err(error) => return Err(error.into()),
        };
        for name in beneath::names(&entries)? {
            let name = directory.join(OsStr::from_bytes(name?.to_bytes()));
            let path = Path::new(HEADS).join(&name);
            let kind = beneath::stamp(git, &path)?.map(|stamp| stamp.kind());
            if kind == Some(FileType::Directory) {
                open.push(name);
                continue;
            }
            let Some(branch) = name.to_str().filter(|name| is_valid_branch(name)) else { continue };
            let content = read(git, &path, MAX_REFERENCE_BYTES)?.unwrap_or_default();
            if is_object_id(content.trim()) && found.len() < MAX_BRANCHES {
                found.insert(branch.to_owned(), content.trim().to_owned());
            }
        }
    }
    Ok(found)
}

/// Returns the text of a file; `None` when it is not a regular file, too large or not UTF-8.
fn read(git: &OwnedFd, path: &Path, limit: u64) -> io::Result<Option<String>> {
    let Some(file) = beneath::regular(git, path)? else { return Ok(None) };
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    Ok(String::from_utf8(content).ok().filter(|text| text.len() as u64 <= limit))
}
