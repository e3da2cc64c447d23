//! Further names of hidden files: a hard link has the same content under a name that no rule matches.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fstat};

use crate::beneath;
use crate::tree::{VisitNext, visit};

/// Returns the names in the workspace of hidden files that have more than one name, without those in `hidden`. The
/// workspace is searched only if there is such a file.
pub(super) fn find(root: &OwnedFd, hidden: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut linked = HashSet::new();
    for path in hidden {
        if let Some(file) = identity(root, path).filter(|(_, names)| *names > 1).map(|(file, _)| file) {
            linked.insert(file);
        }
    }
    let mut found = Vec::new();
    if linked.is_empty() {
        return Ok(found);
    }
    let known: HashSet<&Path> = hidden.iter().map(PathBuf::as_path).collect();
    visit(root, Path::new(""), &mut |path, kind| {
        if known.contains(path) {
            return Ok(VisitNext::Skip);
        }
        let is_linked = || identity(root, path).is_some_and(|(file, _)| linked.contains(&file));
        if kind == FileType::RegularFile && is_linked() {
            found.push(path.to_owned());
        }
        Ok(VisitNext::Enter)
    })?;
    Ok(found)
}

/// Returns device and inode of a regular file, and the number of its names.
fn identity(root: &OwnedFd, path: &Path) -> Option<((u64, u64), u64)> {
    let stat = fstat(beneath::path_handle(root, path).ok()?).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file.then_some(((stat.st_dev, stat.st_ino), stat.st_nlink))
}
