//! Everything a process started, found by asking the kernel who is whose child.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

/// How long killed processes may take to be gone; the kernel needs far less.
const DYING: Duration = Duration::from_secs(1);

/// Processes that were killed and may not be gone yet.
#[derive(Default)]
pub(super) struct Dying(Vec<OwnedFd>);

/// Ends the group of `leader` and everything it started, in whatever group that is now.
///
/// Each process found is stopped before its children are looked up, so that none can be born unseen. They are held
/// by descriptor: a number may be somebody else's by the time it is used.
pub(super) fn kill_family(leader: Pid) -> Dying {
    let mut found: Vec<(Pid, OwnedFd)> = hold(leader).into_iter().collect();
    let mut next = 0;
    while let Some((process, held)) = found.get(next) {
        let _ = pidfd_send_signal(held, Signal::STOP);
        let children = children(*process);
        found.extend(children.into_iter().filter_map(hold));
        next += 1;
    }
    let _ = kill_process_group(leader, Signal::KILL);
    let held: Vec<OwnedFd> = found.into_iter().map(|(_, held)| held).collect();
    for process in &held {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    Dying(held)
}

impl Dying {
    /// Adds those of another family.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns when all of them are gone. Blocks.
    pub(super) fn wait(self) {
        let deadline = Instant::now() + DYING;
        for process in self.0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            // Readable means that it is dead; whether somebody reaped it is not our concern.
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout));
        }
    }
}

fn hold(process: Pid) -> Option<(Pid, OwnedFd)> {
    Some((process, pidfd_open(process, PidfdFlags::empty()).ok()?))
}

/// The children of every thread of `process`.
fn children(process: Pid) -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(parse).collect::<Vec<_>>()).collect()
}

fn parse(word: &str) -> Option<Pid> {
    Pid::from_raw(word.parse().ok()?)
}
