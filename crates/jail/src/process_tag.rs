//! A tag that says which command a process descends from.
//!
//! The tag is a resource limit that nothing else uses, set to a different value for each command. A child inherits it,
//! a hard limit cannot be raised again, and the system call filter does not let commands lower it.

use rustix::process::{Pid, Resource};

use crate::sys;

/// The resource limit that holds the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessTag {
    /// The run time of real-time processes: for the host's kernel.
    RealtimeLimit,
    /// The resident size, which Linux has ignored since 2.4: for kernels such as gVisor, which support few limits.
    ResidentLimit,
}

impl ProcessTag {
    /// Returns the limit as `setrlimit` takes it.
    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::RealtimeLimit => Resource::Rttime,
            Self::ResidentLimit => Resource::Rss,
        }
    }

    /// Returns the limit's number as a system call filter sees it.
    pub(crate) fn number(self) -> libc::__rlimit_resource_t {
        match self {
            Self::RealtimeLimit => libc::RLIMIT_RTTIME,
            Self::ResidentLimit => libc::RLIMIT_RSS,
        }
    }

    /// Returns the tag of the command `exec`.
    pub(crate) fn value(self, exec: u64) -> u64 {
        const FIRST: u64 = 1 << 40;
        let limit = rustix::process::getrlimit(self.resource()).maximum.unwrap_or(FIRST);
        limit.saturating_sub(exec + 1)
    }

    /// Returns the tag of a process; `None` when it can no longer be read.
    pub(crate) fn of(self, pid: Pid) -> Option<u64> {
        match self {
            // Read from /proc, because prlimit(2) is refused for a process that changed its user.
            Self::RealtimeLimit => {
                let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).ok()?;
                let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
                line.split_whitespace().nth(1)?.parse().ok()
            }
            Self::ResidentLimit => sys::limit_of(pid, self.number()),
        }
    }
}
