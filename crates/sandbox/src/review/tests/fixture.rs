//! A fixture with a host directory, an upper layer and a directory of saved changes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use policy::FileDenials;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};

use crate::review::file_stamp::nanos_of;
use crate::review::{RepositoryStart, SavedChanges};
use crate::{ChangeKind, OverlayLayers};

/// The three directories, in temporary directories.
pub(crate) struct ReviewFixture {
    directory: tempfile::TempDir,
    saved: tempfile::TempDir,
}

/// The entries of a tree: type, permissions and content by path.
pub(crate) type Tree = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

impl ReviewFixture {
    pub(crate) fn new() -> Self {
        Self::with_saved_in(&places()[0])
    }

    /// Makes a fixture with the saved changes in another directory, such as on another file system.
    pub(crate) fn with_saved_in(place: &Path) -> Self {
        let directory = tempfile::tempdir_in(&places()[0]).unwrap();
        for name in ["host", "upper"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory, saved: tempfile::tempdir_in(place).unwrap() }
    }

    /// Makes a fixture with these files on the host, each containing its name.
    pub(crate) fn with_host(files: &[&str]) -> Self {
        let this = Self::new();
        for file in files {
            this.host_file(file, &format!("{file}\n"));
        }
        this
    }

    pub(crate) fn host(&self, path: impl AsRef<Path>) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("host").join(path)
    }

    pub(crate) fn upper(&self, path: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join("upper").join(path)
    }

    pub(crate) fn saved(&self) -> PathBuf {
        self.saved.path().join("saved")
    }

    pub(crate) fn host_file(&self, path: impl AsRef<Path>, content: &str) {
        write(&self.host(path), content.as_bytes());
    }

    pub(crate) fn upper_file(&self, path: impl AsRef<Path>, content: &str) {
        write(&self.upper(path), content.as_bytes());
    }

    pub(crate) fn upper_directory(&self, path: impl AsRef<Path>) {
        fs::create_dir_all(self.upper(path)).unwrap();
    }

    pub(crate) fn upper_link(&self, path: impl AsRef<Path>, target: &str) {
        let path = self.upper(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Deletes a path of the host, as overlayfs marks it.
    pub(crate) fn whiteout(&self, path: impl AsRef<Path>) {
        let path = self.upper(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), makedev(0, 0)).unwrap();
    }

    /// Makes an opaque directory.
    pub(crate) fn opaque(&self, path: impl AsRef<Path>) {
        let path = self.upper(path);
        fs::create_dir_all(&path).unwrap();
        setxattr(&path, "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    }

    /// Returns the layers of a sandbox made now, after all files of the host.
    pub(crate) fn layers(&self) -> OverlayLayers {
        self.layers_since(SystemTime::now())
    }

    pub(crate) fn layers_since(&self, since: SystemTime) -> OverlayLayers {
        let upper = OwnedFd::from(fs::File::open(self.upper("")).unwrap());
        OverlayLayers {
            upper: Arc::new(upper),
            lower: self.host("").components().collect(),
            since,
            denials: FileDenials::default(),
            repository: RepositoryStart::read_or_empty(&self.host("")),
        }
    }

    pub(crate) fn save(&self) -> SavedChanges {
        SavedChanges::save(&self.layers(), &self.saved()).unwrap()
    }
}

/// Returns directories on file systems that support whiteouts and user attributes, the fastest first.
pub(crate) fn places() -> Vec<PathBuf> {
    let able = |place: &PathBuf| {
        let Ok(probe) = tempfile::tempdir_in(place) else { return false };
        let marked = setxattr(probe.path(), "user.overlay.opaque", b"y", XattrFlags::empty());
        let node = probe.path().join("node");
        let deleted = mknodat(CWD, &node, FileType::CharacterDevice, Mode::empty(), makedev(0, 0));
        marked.is_ok() && deleted.is_ok()
    };
    let places: Vec<_> = [PathBuf::from("/dev/shm"), std::env::temp_dir()].into_iter().filter(able).collect();
    assert!(!places.is_empty(), "no file system supports whiteouts and user attributes");
    places
}

pub(crate) fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    chmod(path, 0o644);
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Writes until the file system's clock has passed `moment`.
pub(crate) fn write_after(path: &Path, content: &str, moment: SystemTime) {
    let deadline = SystemTime::now() + Duration::from_secs(10);
    while SystemTime::now() < deadline {
        write(path, content.as_bytes());
        let metadata = path.metadata().unwrap();
        if metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec() > nanos_of(moment) {
            return;
        }
    }
    panic!("the clock of the file system does not advance");
}

/// Returns the changes as letters and paths.
pub(crate) fn listed(saved: &SavedChanges) -> Vec<String> {
    saved
        .changes()
        .map(|change| {
            let letter = match change.kind {
                ChangeKind::Deleted => 'D',
                ChangeKind::Added => 'A',
                ChangeKind::Modified => 'M',
            };
            format!("{letter} {}{}", change.path.display(), if change.conflict { " !" } else { "" })
        })
        .collect()
}

/// Returns everything below a directory.
pub(crate) fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let (letter, content) = match FileType::from_raw_mode(metadata.mode()) {
                FileType::Directory => ('d', Vec::new()),
                FileType::RegularFile => ('-', fs::read(&path).unwrap()),
                FileType::Symlink => ('l', fs::read_link(&path).unwrap().into_os_string().as_bytes().to_vec()),
                _ => ('?', Vec::new()),
            };
            if letter == 'd' {
                open.push(path.clone());
            }
            let name = path.strip_prefix(root).unwrap().to_owned();
            tree.insert(name, (letter, metadata.mode() & 0o7777, content));
        }
    }
    tree
}

pub(crate) fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
