//! The process table: who descends from whom, and who is still there.

use std::collections::HashSet;
use std::path::Path;

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    started: u64,
}

/// Everything that descends from `root`, itself included.
pub(crate) fn family(root: u32) -> Vec<Process> {
    let all: Vec<_> = table().collect();
    let mut known = HashSet::from([root]);
    // A child is often numbered after its parent, but need not be.
    loop {
        let before = known.len();
        known.extend(all.iter().filter(|row| known.contains(&row.parent)).map(|row| row.pid).collect::<Vec<_>>());
        if known.len() == before {
            break;
        }
    }
    let members = all.iter().filter(|row| known.contains(&row.pid));
    members.map(|row| Process { pid: row.pid, started: row.started }).collect()
}

/// Those of `processes` that live on. What has ended and was not yet waited for does not count.
pub(crate) fn alive(processes: &[Process]) -> Vec<Process> {
    let now: HashSet<_> = table().map(|row| Process { pid: row.pid, started: row.started }).collect();
    processes.iter().copied().filter(|process| now.contains(process)).collect()
}

/// Processes whose command line names `path`: a server on that data directory, and whatever it forked.
pub(crate) fn naming(path: &Path) -> Vec<u32> {
    let needle = path.as_os_str().as_encoded_bytes();
    let names = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == needle)
    };
    table().map(|row| row.pid).filter(names).collect()
}

/// The most memory a process has had resident, in bytes.
pub(crate) fn peak_resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

struct Row {
    pid: u32,
    parent: u32,
    started: u64,
}

/// Every process that has not ended.
fn table() -> impl Iterator<Item = Row> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything.
        let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ended = matches!(rest[0], "Z" | "X");
        (!ended).then(|| Row { pid, parent: rest[1].parse().unwrap_or(0), started: rest[19].parse().unwrap_or(0) })
    })
}
