//! Directories on the host from which containers are mounted: one for each host process, with one in it for each container.
//!
//! Workspaces are mounted in these directories, so no directory is removed recursively. A mount that is still there must
//! make the removal fail, and must not be emptied.

use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jail::{InitSocket, MountLayout, start_time};

/// The program of the init, built by `build.rs` and linked statically.
const INIT_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/viv-inside"));

/// The directory of this process.
#[derive(Debug)]
pub(super) struct HostScratch {
    directory: PathBuf,
    owner: String,
    next: AtomicU64,
}

impl HostScratch {
    /// Makes the directory of this process under `scratch` and removes those of dead processes.
    pub(super) fn open(scratch: PathBuf) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&scratch)?;
        let scratch = scratch.canonicalize()?;
        sweep(&scratch);
        let pid = std::process::id();
        let owner = format!("{pid}-{}", start_time(pid).unwrap_or_default());
        // Each backend of a process has its own directory.
        let numbers = 0..;
        for number in numbers {
            let directory = scratch.join(format!("{owner}-{number}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    let mut init = std::fs::OpenOptions::new();
                    let mut init = init.write(true).create_new(true).mode(0o755).open(directory.join("inside"))?;
                    io::Write::write_all(&mut init, INIT_PROGRAM)?;
                    return Ok(Self { directory, owner, next: AtomicU64::new(0) });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Returns the name of this process, which is unique until the next boot.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Makes the directory of one container.
    pub(super) fn new_container_dir(self: &Arc<Self>) -> io::Result<ContainerDir> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let container = ContainerDir { path: self.directory.join(number.to_string()), scratch: Arc::clone(self) };
        std::fs::DirBuilder::new().mode(0o700).create(&container.path)?;
        std::fs::DirBuilder::new().mode(0o700).create(container.layout())?;
        // The sandbox user, who is not the owner, must be able to enter it.
        std::fs::DirBuilder::new().mode(0o755).create(container.sockets())?;
        Ok(container)
    }
}

impl Drop for HostScratch {
    fn drop(&mut self) {
        remove_empty(&self.directory);
    }
}

/// Removes the directory of a process when no container has a directory in it.
fn remove_empty(directory: &Path) {
    let _ = std::fs::remove_file(directory.join("inside"));
    let _ = std::fs::remove_dir(directory);
}

/// Removes the directory of one container, whose layout must be unmounted.
fn remove_container_dir(directory: &Path) {
    for socket in [InitSocket::SOCKET, InitSocket::MODELS, InitSocket::EGRESS] {
        let _ = std::fs::remove_file(directory.join("door").join(socket));
    }
    for part in ["door", "stage", ""] {
        let _ = std::fs::remove_dir(directory.join(part));
    }
}

/// Returns whether the process named `owner` has ended.
pub(super) fn is_dead(owner: &str) -> bool {
    let mut parts = owner.split('-');
    let pid = parts.next().and_then(|pid| pid.parse().ok());
    let started = parts.next().and_then(|time| time.parse().ok());
    matches!((pid, started), (Some(pid), Some(started)) if start_time(pid) != Some(started))
}

fn sweep(scratch: &Path) {
    for entry in std::fs::read_dir(scratch).into_iter().flatten().flatten() {
        if !is_dead(&entry.file_name().to_string_lossy()) {
            continue;
        }
        for container in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            MountLayout::sweep(&container.path().join("stage"));
            remove_container_dir(&container.path());
        }
        remove_empty(&entry.path());
    }
}

/// The directory of one container. Dropping it removes the directory, so drop it after the mount layout.
#[derive(Debug)]
pub(super) struct ContainerDir {
    path: PathBuf,
    scratch: Arc<HostScratch>,
}

impl ContainerDir {
    /// Returns the directory of the mount layout.
    pub(super) fn layout(&self) -> PathBuf {
        self.path.join("stage")
    }

    /// Returns the directory of the sockets. It holds nothing else, and is the only one of these mounted inside.
    pub(super) fn sockets(&self) -> PathBuf {
        self.path.join("door")
    }

    /// Returns the path of the init's program.
    pub(super) fn init(&self) -> PathBuf {
        self.path.with_file_name("inside")
    }

    /// Returns the name of the process that owns the directory.
    pub(super) fn owner(&self) -> &str {
        self.scratch.owner()
    }
}

impl Drop for ContainerDir {
    fn drop(&mut self) {
        remove_container_dir(&self.path);
    }
}
