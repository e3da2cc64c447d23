//! Whose descendant a process is: a hard limit that nobody uses, a little lower for each command.
//!
//! It goes from parent to child, cannot be raised again, and the filter lets nobody lower it.

use rustix::process::{Pid, Resource};

use crate::sys;

/// Which limit it is: one that the kernel has and that is not used otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The time a real-time process may run.
    OfTheHost,
    /// The resident size, which Linux has not looked at since 2.4; kernels that stand in for it know few others.
    OfAnother,
}

impl Mark {
    /// The limit, as it is set.
    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::OfTheHost => Resource::Rttime,
            Self::OfAnother => Resource::Rss,
        }
    }

    /// The limit, as a filter sees it.
    pub(crate) fn number(self) -> libc::__rlimit_resource_t {
        match self {
            Self::OfTheHost => libc::RLIMIT_RTTIME,
            Self::OfAnother => libc::RLIMIT_RSS,
        }
    }

    /// The value that processes of a command have.
    pub(crate) fn value(self, exec: u64) -> u64 {
        const FIRST: u64 = 1 << 40;
        let limit = rustix::process::getrlimit(self.resource()).maximum.unwrap_or(FIRST);
        limit.saturating_sub(exec + 1)
    }

    /// The value that a process has; none when that can no longer be told.
    pub(crate) fn of(self, pid: Pid) -> Option<u64> {
        match self {
            // Also of a process that changed who it is, which no call would tell of.
            Self::OfTheHost => {
                let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).ok()?;
                let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
                line.split_whitespace().nth(1)?.parse().ok()
            }
            Self::OfAnother => sys::limit_of(pid, self.number()),
        }
    }
}
