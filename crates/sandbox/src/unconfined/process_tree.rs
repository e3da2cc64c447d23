//! Killing of a process with all its descendants, which are found in /proc.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

/// How long killed processes may take to end. The kernel needs far less.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Processes that were killed and may not have ended yet.
#[derive(Default)]
pub(super) struct KilledProcesses(Vec<OwnedFd>);

/// Kills the group of `leader` and all its descendants in other groups.
///
/// Each process is stopped before its children are listed, so that it cannot start another one unnoticed. Processes are
/// held by descriptor, because a process id may be reused.
pub(super) fn kill_tree(leader: Pid) -> KilledProcesses {
    let mut found: Vec<(Pid, OwnedFd)> = open(leader).into_iter().collect();
    let mut next = 0;
    while let Some((process, pidfd)) = found.get(next) {
        let _ = pidfd_send_signal(pidfd, Signal::STOP);
        let children = children(*process);
        found.extend(children.into_iter().filter_map(open));
        next += 1;
    }
    let _ = kill_process_group(leader, Signal::KILL);
    let pidfds: Vec<OwnedFd> = found.into_iter().map(|(_, pidfd)| pidfd).collect();
    for pidfd in &pidfds {
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
    }
    KilledProcesses(pidfds)
}

impl KilledProcesses {
    /// Adds other killed processes.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Waits until all of them have ended, or the timeout has passed. Blocks.
    pub(super) fn wait(self) {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        for process in self.0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            // A pidfd is readable when its process has ended, reaped or not.
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout));
        }
    }
}

fn open(process: Pid) -> Option<(Pid, OwnedFd)> {
    Some((process, pidfd_open(process, PidfdFlags::empty()).ok()?))
}

/// Returns the children of every thread of `process`.
fn children(process: Pid) -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(parse).collect::<Vec<_>>()).collect()
}

fn parse(word: &str) -> Option<Pid> {
    Pid::from_raw(word.parse().ok()?)
}
