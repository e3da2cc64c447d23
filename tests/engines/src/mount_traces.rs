//! Mounts that containers leave, on the host and in a rootless engine's namespace.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Mounts below one directory, in the mount namespaces of the host and of the engine.
#[derive(Debug, Clone)]
pub struct MountTraces {
    /// The directory.
    pub directory: PathBuf,
    /// The engine's socket.
    pub socket: PathBuf,
}

impl MountTraces {
    /// Returns the number of mounts.
    pub fn count(&self) -> usize {
        let engine = UnixStream::connect(&self.socket).expect("the engine");
        let engine = rustix::net::sockopt::socket_peercred(&engine).expect("who listens").pid;
        let below = |process: &str| {
            let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo")).expect("mounts");
            let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
            points.filter(|point| Path::new(point).starts_with(&self.directory)).count()
        };
        below("self") + below(&engine.as_raw_nonzero().to_string())
    }
}
