//! Whether git tracks a file of the workspace.
//!
//! Each file belongs to the nearest repository above it: one in the workspace, or the one that contains the workspace. An
//! index is read once, when the first question about its repository comes.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::git_index::{GitIndex, is_below};

/// The largest index that is read.
const MAX_INDEX_BYTES: u64 = 512 << 20;
/// The longest `.git` file.
const MAX_LINK_BYTES: u64 = 8192;

/// The repositories of one workspace.
pub(super) struct WorkspaceRepositories {
    workspace: PathBuf,
    /// The repository of each directory of the workspace that was asked about.
    directories: HashMap<PathBuf, Option<Rc<Repository>>>,
}

/// A repository and its index.
struct Repository {
    /// The top directory of its worktree on the host.
    top: PathBuf,
    /// The index file on the host.
    index_path: PathBuf,
    index: Option<GitIndex>,
    /// The shared part of a split index.
    shared: Option<GitIndex>,
}

impl WorkspaceRepositories {
    pub(super) fn new(workspace: &Path) -> Self {
        Self { workspace: workspace.to_owned(), directories: HashMap::new() }
    }

    /// Returns whether git tracks the file `path`, or a file in the directory `path`.
    pub(super) fn tracks(&mut self, path: &Path) -> io::Result<bool> {
        let Some(repository) = self.repository(path.parent().unwrap_or(Path::new("")))? else { return Ok(false) };
        let full = self.workspace.join(path);
        let Ok(name) = full.strip_prefix(&repository.top) else { return Ok(false) };
        let name = name.as_os_str().as_bytes();
        // Entries of the shared part that the index removed still count: a file that was tracked a moment ago stays.
        Ok([&repository.index, &repository.shared].into_iter().flatten().any(|index| index.tracks(name)))
    }

    /// Returns the path in the workspace of the index that has `path`; `None` when the index is outside.
    pub(super) fn index_of(&mut self, path: &Path) -> Option<PathBuf> {
        let repository = self.repository(path.parent().unwrap_or(Path::new(""))).ok()??;
        Some(repository.index_path.strip_prefix(&self.workspace).ok()?.to_owned())
    }

    /// Returns the index file at `index` with everything in `absent` marked; `None` when it cannot be marked.
    pub(super) fn marked(&self, index: &Path, absent: &[PathBuf]) -> Option<Vec<u8>> {
        let full = self.workspace.join(index);
        let repository = self.directories.values().flatten().find(|repository| repository.index_path == full)?;
        let names: Vec<_> = absent
            .iter()
            .filter_map(|path| Some(self.workspace.join(path).strip_prefix(&repository.top).ok()?.to_owned()))
            .collect();
        let is_absent = |name: &[u8]| {
            names.iter().map(|path| path.as_os_str().as_bytes()).any(|path| name == path || is_below(name, path))
        };
        repository.index.as_ref()?.marked(is_absent)
    }

    /// Returns the target of the link `path`, if it is a regular file of the workspace.
    pub(super) fn target(&self, path: &Path) -> Option<PathBuf> {
        let target = self.workspace.join(path).canonicalize().ok()?;
        let is_file = std::fs::symlink_metadata(&target).is_ok_and(|target| target.is_file());
        target.strip_prefix(&self.workspace).ok().filter(|_| is_file).map(Path::to_owned)
    }

    /// Returns the repository of a directory of the workspace.
    fn repository(&mut self, directory: &Path) -> io::Result<Option<Rc<Repository>>> {
        if let Some(known) = self.directories.get(directory) {
            return Ok(known.clone());
        }
        let full = self.workspace.join(directory);
        let found = match (Repository::at(&full)?, directory.parent()) {
            (Some(repository), _) => Some(Rc::new(repository)),
            (None, Some(parent)) => self.repository(parent)?,
            (None, None) => self.containing()?,
        };
        self.directories.insert(directory.to_owned(), found.clone());
        Ok(found)
    }

    /// Returns the repository that contains the workspace.
    fn containing(&self) -> io::Result<Option<Rc<Repository>>> {
        for above in self.workspace.ancestors().skip(1) {
            if let Some(repository) = Repository::at(above)? {
                return Ok(Some(Rc::new(repository)));
            }
        }
        Ok(None)
    }
}

impl Repository {
    /// Returns the repository whose worktree has its top at `top`.
    fn at(top: &Path) -> io::Result<Option<Self>> {
        let link = top.join(".git");
        let directory = match std::fs::metadata(&link) {
            Ok(found) if found.is_dir() => link,
            Ok(found) if found.is_file() => match linked(&link) {
                Some(directory) => top.join(directory),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let directory = directory.canonicalize().unwrap_or(directory);
        let index_path = directory.join("index");
        let index = read(&index_path, MAX_INDEX_BYTES)?.and_then(GitIndex::parse);
        let shared = index.as_ref().and_then(GitIndex::shared_file);
        let shared = match shared {
            Some(name) => read(&directory.join(name), MAX_INDEX_BYTES)?.and_then(GitIndex::parse),
            None => None,
        };
        Ok(Some(Self { top: top.to_owned(), index_path, index, shared }))
    }
}

/// Returns the directory that a `.git` file names.
fn linked(file: &Path) -> Option<PathBuf> {
    let content = read(file, MAX_LINK_BYTES).ok()??;
    let text = String::from_utf8(content).ok()?;
    Some(text.strip_prefix("gitdir:")?.trim().into())
}

/// Returns the content of a regular file; `None` when there is none or it is too long.
fn read(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    // Non-blocking, because opening a FIFO would wait for its writer.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking).open(path);
    let file: File = match opened {
        Ok(file) => file,
        Err(_) => return Ok(None),
    };
    let stat = file.metadata()?;
    if !stat.is_file() || stat.len() > limit {
        return Ok(None);
    }
    let mut content = Vec::with_capacity(usize::try_from(stat.len()).unwrap_or_default());
    file.take(limit).read_to_end(&mut content)?;
    Ok(Some(content))
}
