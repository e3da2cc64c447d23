//! Where what containers are given lies on the host: one directory a host process, one in it a container.
//!
//! Workspaces are mounted in here. Nothing is ever removed with what is in it: a mount that is still there must make
//! the removal fail, not be emptied.

use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jail::{GuestSocket, MountLayout, start_time};

/// Our init, built with us and linked statically.
const INSIDE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/viv-inside"));

/// The directories of this process.
#[derive(Debug)]
pub(super) struct Places {
    directory: PathBuf,
    owner: String,
    next: AtomicU64,
}

impl Places {
    /// Makes the directory of this process under `scratch` and sweeps those of processes that are dead.
    pub(super) fn open(scratch: PathBuf) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&scratch)?;
        let scratch = scratch.canonicalize()?;
        sweep(&scratch);
        let pid = std::process::id();
        let owner = format!("{pid}-{}", start_time(pid).unwrap_or_default());
        // Two backends of one process: each has its own.
        let numbers = 0..;
        for number in numbers {
            let directory = scratch.join(format!("{owner}-{number}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    let mut init = std::fs::OpenOptions::new();
                    let mut init = init.write(true).create_new(true).mode(0o755).open(directory.join("inside"))?;
                    io::Write::write_all(&mut init, INSIDE)?;
                    return Ok(Self { directory, owner, next: AtomicU64::new(0) });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// This process, by a name nobody gets again until the next boot.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// A place for one more container.
    pub(super) fn new_place(self: &Arc<Self>) -> io::Result<Place> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = Place { directory: self.directory.join(number.to_string()), places: Arc::clone(self) };
        std::fs::DirBuilder::new().mode(0o700).create(&place.directory)?;
        std::fs::DirBuilder::new().mode(0o700).create(place.stage())?;
        // Inside it is another user's.
        std::fs::DirBuilder::new().mode(0o755).create(place.door())?;
        Ok(place)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        remove_empty(&self.directory);
    }
}

/// Removes the directory of a process, once nothing of its containers is in it.
fn remove_empty(directory: &Path) {
    let _ = std::fs::remove_file(directory.join("inside"));
    let _ = std::fs::remove_dir(directory);
}

/// Removes the directory of one container, whose stage has been taken down.
fn remove_place(directory: &Path) {
    for socket in [GuestSocket::SOCKET, GuestSocket::MODELS, GuestSocket::EGRESS] {
        let _ = std::fs::remove_file(directory.join("door").join(socket));
    }
    for part in ["door", "stage", ""] {
        let _ = std::fs::remove_dir(directory.join(part));
    }
}

/// Whether the process that `owner` names has ended.
pub(super) fn is_dead(owner: &str) -> bool {
    let mut parts = owner.split('-');
    let (pid, born) = (parts.next().and_then(|pid| pid.parse().ok()), parts.next().and_then(|born| born.parse().ok()));
    matches!((pid, born), (Some(pid), Some(born)) if start_time(pid) != Some(born))
}

fn sweep(scratch: &Path) {
    for entry in std::fs::read_dir(scratch).into_iter().flatten().flatten() {
        if !is_dead(&entry.file_name().to_string_lossy()) {
            continue;
        }
        for place in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            MountLayout::sweep(&place.path().join("stage"));
            remove_place(&place.path());
        }
        remove_empty(&entry.path());
    }
}

/// The directory of one container; gone when dropped, which must be after its stage.
#[derive(Debug)]
pub(super) struct Place {
    directory: PathBuf,
    places: Arc<Places>,
}

impl Place {
    /// Where its files are laid out.
    pub(super) fn stage(&self) -> PathBuf {
        self.directory.join("stage")
    }

    /// Holds the socket, and nothing else: the only directory of ours that is shown inside.
    pub(super) fn door(&self) -> PathBuf {
        self.directory.join("door")
    }

    /// The program of the init.
    pub(super) fn init(&self) -> PathBuf {
        self.directory.with_file_name("inside")
    }

    /// Whose it is.
    pub(super) fn owner(&self) -> &str {
        self.places.owner()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        remove_place(&self.directory);
    }
}
