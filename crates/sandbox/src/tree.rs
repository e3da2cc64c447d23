//! A walk over a directory tree by descriptor, which follows no link.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;

use crate::beneath;

/// Whether the walk enters a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VisitNext {
    /// Walk its entries.
    Enter,
    /// Skip its entries.
    Skip,
}

/// The longest path that can be opened in one call.
const MAX_PATH_BYTES: usize = 3800;
/// How many characters of a long path an error shows.
const SHOWN_CHARS: usize = 60;

/// Calls `each` for everything below `top`, a path below `root`, with paths relative to `root`. Directories that this user
/// cannot read are skipped: a sandbox of the same user cannot read them either.
pub(crate) fn visit(
    root: &OwnedFd,
    top: &Path,
    each: &mut dyn FnMut(&Path, FileType) -> io::Result<VisitNext>,
) -> io::Result<()> {
    let mut open = vec![top.to_owned()];
    while let Some(path) = open.pop() {
        let directory = match beneath::directory(root, &path) {
            Ok(directory) => directory,
            Err(error) if error == Errno::ACCESS || beneath::is_absence(error) => continue,
            Err(error) => return Err(error.into()),
        };
        read(&directory, &path, &mut |path, kind| {
            let next = each(&path, kind)?;
            if kind != FileType::Directory || next == VisitNext::Skip {
                return Ok(());
            }
            if path.as_os_str().len() > MAX_PATH_BYTES {
                return Err(io::Error::other(format!("`{}` is nested too deep", end_of(&path))));
            }
            open.push(path);
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns the end of a long path, which is more specific than its beginning.
fn end_of(path: &Path) -> String {
    let path = path.to_string_lossy();
    match path.char_indices().rev().nth(SHOWN_CHARS) {
        Some((start, _)) => format!("…{}", &path[start..]),
        None => path.into_owned(),
    }
}

fn read(directory: &OwnedFd, path: &Path, each: &mut dyn FnMut(PathBuf, FileType) -> io::Result<()>) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not report the type.
            FileType::Unknown => match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            },
            kind => kind,
        };
        each(path.join(OsStr::from_bytes(name.to_bytes())), kind)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn error_for_deep_nesting_shows_the_end_of_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let root = beneath::root(&directory.path().canonicalize().unwrap()).unwrap();
        let deep = vec!["ü".repeat(100); 18].join("/");
        fs::create_dir_all(directory.path().join(&deep)).unwrap();
        let inner = beneath::directory(&root, Path::new(&deep)).unwrap();
        rustix::fs::mkdirat(&inner, format!("{}-the-end", "ü".repeat(95)), rustix::fs::Mode::RWXU).unwrap();
        let refused = visit(&root, Path::new(""), &mut |_, _| Ok(VisitNext::Enter)).unwrap_err().to_string();
        assert!(refused.starts_with("`…ü") && refused.ends_with("ü-the-end` is nested too deep"), "{refused}");
        assert!(refused.chars().count() < 100, "{refused}");
    }

    #[test]
    fn short_path_is_shown_whole() {
        assert_eq!(end_of(Path::new("a/b")), "a/b");
    }
}
