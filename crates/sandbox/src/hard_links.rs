//! Hard links that lead from a bind workspace to other directories of the host.
//!
//! Package managers link files of their caches into a project. A write inside to such a file would change the cache, and
//! with it every other project. So each file that has a name outside is replaced by a private copy before the sandbox
//! starts. Names that are all in the workspace stay linked to each other.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, fchmod, fchown, fstat, futimens, linkat,
    openat, renameat, statat, unlinkat,
};

use crate::SandboxError;
use crate::beneath;
use crate::tree::{VisitNext, visit};

/// The largest file that is copied.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The most bytes that are copied of all files together.
const MAX_TOTAL_BYTES: u64 = 4 << 30;
/// The name of a copy until it replaces the file.
const TEMPORARY: &str = ".viv-private-copy";

/// The result of [`separate`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SeparatedLinks {
    /// How many files were replaced by private copies.
    pub(crate) files: usize,
    /// The size of these files together.
    pub(crate) bytes: u64,
}

/// Replaces every file of `workspace` that has a name outside by a private copy. Fails before any change when a file is too
/// large to be copied.
pub(crate) fn separate(workspace: &Path) -> Result<SeparatedLinks, SandboxError> {
    let failed =
        |source| SandboxError::Create { step: format!("copy linked files in `{}`", workspace.display()), source };
    let root = workspace.canonicalize().and_then(|path| beneath::root(&path)).map_err(failed)?;
    let linked = linked_files(&root).map_err(failed)?;
    check_sizes(&linked)?;
    let mut separated = SeparatedLinks::default();
    for file in &linked {
        file.separate(&root).map_err(|source| SandboxError::Create {
            step: format!("copy `{}`, which has another name outside the workspace", file.names[0].display()),
            source,
        })?;
        separated.files += file.names.len();
        separated.bytes += file.size;
    }
    Ok(separated)
}

/// A file with names inside and outside of the workspace.
struct LinkedFile {
    /// The names inside, at least one.
    names: Vec<PathBuf>,
    size: u64,
}

fn linked_files(root: &OwnedFd) -> io::Result<Vec<LinkedFile>> {
    let mut files: HashMap<(u64, u64), (LinkedFile, u64)> = HashMap::new();
    let mut directory: Option<(PathBuf, OwnedFd)> = None;
    visit(root, Path::new(""), &mut |path, kind| {
        if kind != FileType::RegularFile {
            return Ok(VisitNext::Enter);
        }
        let Some(stat) = stat_in(root, path, &mut directory)? else { return Ok(VisitNext::Enter) };
        if stat.st_nlink > 1 && can_be_written(&stat) {
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            let file = files.entry((stat.st_dev, stat.st_ino));
            let (file, _) = file.or_insert((LinkedFile { names: Vec::new(), size }, stat.st_nlink));
            file.names.push(path.to_owned());
        }
        Ok(VisitNext::Enter)
    })?;
    let mut outside: Vec<_> =
        files.into_values().filter(|(file, names)| (file.names.len() as u64) < *names).map(|(file, _)| file).collect();
    outside.sort_by(|one, two| one.names.cmp(&two.names));
    Ok(outside)
}

/// Returns the metadata of a file. The directory stays open for the next one, which is usually in the same directory.
fn stat_in(root: &OwnedFd, path: &Path, open: &mut Option<(PathBuf, OwnedFd)>) -> io::Result<Option<Stat>> {
    let (parent, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
    if open.as_ref().is_none_or(|(directory, _)| directory != parent) {
        match beneath::directory(root, parent) {
            Ok(directory) => *open = Some((parent.to_owned(), directory)),
            Err(error) if beneath::is_absence(error) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    let Some((_, directory)) = open else { return Ok(None) };
    Ok(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok())
}

/// Returns whether the sandbox could write the file. Another user's file that nobody else may write is safe.
fn can_be_written(stat: &Stat) -> bool {
    let user = rustix::process::geteuid();
    user.is_root() || stat.st_uid == user.as_raw() || stat.st_mode & 0o022 != 0
}

fn check_sizes(linked: &[LinkedFile]) -> Result<(), SandboxError> {
    let fix = "set `fs.workspace: overlay`, or install the packages again without hard links";
    let refuse = |missing: String| SandboxError::Unavailable { missing, fix: fix.to_owned() };
    if let Some(file) = linked.iter().find(|file| file.size > MAX_FILE_BYTES) {
        let (name, size) = (file.names[0].display(), file.size);
        return Err(refuse(format!(
            "`{name}` has another name outside the workspace, which `fs.workspace: bind` would let the sandbox change; \
             its {size} bytes are more than the limit of {MAX_FILE_BYTES} for a private copy"
        )));
    }
    let total: u64 = linked.iter().map(|file| file.size).sum();
    if total <= MAX_TOTAL_BYTES {
        return Ok(());
    }
    Err(refuse(format!(
        "{} files have other names outside the workspace, which `fs.workspace: bind` would let the sandbox change; their \
         {total} bytes are more than the limit of {MAX_TOTAL_BYTES} for private copies",
        linked.len()
    )))
}

impl LinkedFile {
    /// Replaces every name by a link to one new copy. Each name always has either the old or the new file.
    fn separate(&self, root: &OwnedFd) -> io::Result<()> {
        let first = Place::find(root, &self.names[0])?;
        let Some(mut source) = beneath::regular(root, &self.names[0])? else { return Ok(()) };
        let stat = fstat(&source)?;
        first.remove_temporary()?;
        let copy = first.create(&stat, &mut source)?;
        let after = fstat(&source)?;
        let same =
            (stat.st_size, stat.st_mtime, stat.st_mtime_nsec) == (after.st_size, after.st_mtime, after.st_mtime_nsec);
        if !same {
            first.remove_temporary()?;
            return Err(io::Error::other("the file changed while it was copied"));
        }
        copy.sync_all()?;
        first.replace()?;
        for name in &self.names[1..] {
            let other = Place::find(root, name)?;
            other.remove_temporary()?;
            linkat(&first.directory, &first.name, &other.directory, TEMPORARY, AtFlags::empty())?;
            other.replace()?;
        }
        Ok(())
    }
}

/// A name in an open directory.
struct Place {
    directory: OwnedFd,
    name: PathBuf,
}

impl Place {
    fn find(root: &OwnedFd, path: &Path) -> io::Result<Self> {
        let directory = beneath::directory(root, path.parent().unwrap_or(Path::new("")))?;
        Ok(Self { directory, name: path.file_name().unwrap_or_default().into() })
    }

    /// Writes a copy of `source` beside the file, with its owner, mode and times.
    fn create(&self, stat: &Stat, source: &mut std::fs::File) -> io::Result<std::fs::File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut copy = std::fs::File::from(openat(&self.directory, TEMPORARY, flags, Mode::from_raw_mode(0o600))?);
        io::copy(source, &mut copy)?;
        let owned = fchown(&copy, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid))).is_ok();
        // A set-id bit is only right for the owner that it had.
        let mode = stat.st_mode & if owned { 0o7777 } else { 0o777 };
        fchmod(&copy, Mode::from_raw_mode(mode))?;
        let time = |secs, nanos| Timespec { tv_sec: secs, tv_nsec: i64::try_from(nanos).unwrap_or_default() };
        futimens(
            &copy,
            &Timestamps {
                last_access: time(stat.st_atime, stat.st_atime_nsec),
                last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
            },
        )?;
        Ok(copy)
    }

    fn replace(&self) -> io::Result<()> {
        Ok(renameat(&self.directory, TEMPORARY, &self.directory, &self.name)?)
    }

    /// Removes a copy that an interrupted run left.
    fn remove_temporary(&self) -> io::Result<()> {
        match unlinkat(&self.directory, TEMPORARY, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::{SeparatedLinks, separate};

    #[test]
    fn files_with_names_outside_become_private() {
        let host = tempfile::tempdir().unwrap();
        let (cache, workspace) = (host.path().join("cache"), host.path().join("project"));
        fs::create_dir_all(workspace.join(".venv/lib")).unwrap();
        fs::create_dir(&cache).unwrap();
        fs::write(cache.join("six.py"), "cached").unwrap();
        fs::set_permissions(cache.join("six.py"), PermissionsExt::from_mode(0o555)).unwrap();
        fs::hard_link(cache.join("six.py"), workspace.join(".venv/lib/six.py")).unwrap();
        fs::hard_link(cache.join("six.py"), workspace.join("again.py")).unwrap();
        fs::write(workspace.join("own"), "own").unwrap();
        fs::hard_link(workspace.join("own"), workspace.join("twin")).unwrap();
        let inode = |name: &str| fs::metadata(workspace.join(name)).unwrap().ino();
        let own = inode("own");

        assert_eq!(separate(&workspace).unwrap(), SeparatedLinks { files: 2, bytes: 6 });
        assert_eq!(fs::metadata(cache.join("six.py")).unwrap().nlink(), 1);
        assert_eq!(fs::read_to_string(workspace.join(".venv/lib/six.py")).unwrap(), "cached");
        assert_eq!(fs::metadata(workspace.join("again.py")).unwrap().mode() & 0o7777, 0o555);
        assert_eq!(inode(".venv/lib/six.py"), inode("again.py"), "names inside stay linked to each other");
        assert_eq!((inode("own"), inode("twin")), (own, own));
        assert_eq!(separate(&workspace).unwrap(), SeparatedLinks::default(), "nothing is left to copy");
    }

    #[test]
    fn large_files_are_refused_before_any_is_copied() {
        let host = tempfile::tempdir().unwrap();
        let workspace = host.path().join("project");
        fs::create_dir(&workspace).unwrap();
        for (name, size) in [("a", 1), ("b", super::MAX_FILE_BYTES + 1)] {
            fs::File::create(host.path().join(name)).unwrap().set_len(size).unwrap();
            fs::hard_link(host.path().join(name), workspace.join(name)).unwrap();
        }
        let refused = format!("{:?}", separate(&workspace).unwrap_err());
        assert!(refused.contains("`b` has another name outside") && refused.contains("overlay"), "{refused}");
        assert_eq!(fs::metadata(workspace.join("a")).unwrap().nlink(), 2);
    }
}
