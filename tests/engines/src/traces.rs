//! What containers leave mounted, wherever their engine lives.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Mounts below one place, in the host's tree and in that of the engine behind a socket: one of an ordinary user has
/// mounts of its own.
#[derive(Debug, Clone)]
pub struct MountTraces {
    /// The place.
    pub place: PathBuf,
    /// Where the engine listens.
    pub socket: PathBuf,
}

impl MountTraces {
    /// How many there are.
    pub fn count(&self) -> usize {
        let engine = UnixStream::connect(&self.socket).expect("the engine");
        let engine = rustix::net::sockopt::socket_peercred(&engine).expect("who listens").pid;
        let below = |process: &str| {
            let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo")).expect("mounts");
            let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
            points.filter(|point| Path::new(point).starts_with(&self.place)).count()
        };
        below("self") + below(&engine.as_raw_nonzero().to_string())
    }
}
