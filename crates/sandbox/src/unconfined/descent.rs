//! Everything a process started, found by asking the kernel who is whose child.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Ends the group of `leader` and everything it started, in whatever group that is now.
///
/// Each process found is stopped before its children are looked up, so that none can be born unseen.
pub(super) fn kill_family(leader: Pid) {
    let mut found = vec![leader];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        let _ = kill_process(process, Signal::STOP);
        found.extend(children(process));
        next += 1;
    }
    let _ = kill_process_group(leader, Signal::KILL);
    for process in found {
        let _ = kill_process(process, Signal::KILL);
    }
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
