//! The process table: descendants and survivors.

use std::collections::HashSet;
use std::path::Path;

/// A process with its start time, so that a reused number is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pid: u32,
    parent: u32,
    started: u64,
}

/// Returns `root` and its descendants, without the prewarmed sandbox of a spawner.
pub(crate) fn family(root: u32) -> Vec<Process> {
    let all: Vec<_> = table().collect();
    let mut known = HashSet::from([root]);
    // The number of a child can be lower than that of its parent.
    loop {
        let before = known.len();
        known.extend(all.iter().filter(|row| known.contains(&row.parent)).map(|row| row.pid).collect::<Vec<_>>());
        if known.len() == before {
            break;
        }
    }
    all.into_iter().filter(|process| known.contains(&process.pid) && !is_spare(process.pid)).collect()
}

/// Returns whether this is the init of a prewarmed sandbox, in which nothing runs.
fn is_spare(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
    value("Seccomp:") == "0" && value("NSpid:").split_whitespace().skip(1).eq(["1"])
}

/// Checks that all processes of an ended `viv` are dead: those in sandboxes at once, and the spawner a moment later,
/// when its socket is closed.
#[track_caller]
pub(crate) fn check_gone(viv: u32, family: &[Process]) {
    let inside: Vec<_> = family.iter().copied().filter(|one| one.pid != viv && one.parent != viv).collect();
    assert_eq!(alive(&inside), [], "a sandbox outlived its host");
    testkit::wait_until("the end of the spawner", || alive(family).is_empty());
}

/// Returns the running ones of `processes`; zombies do not count.
pub(crate) fn alive(processes: &[Process]) -> Vec<Process> {
    // Orphans get a new parent, so the parent is not part of the identity.
    let now: HashSet<_> = table().map(|process| (process.pid, process.started)).collect();
    processes.iter().copied().filter(|process| now.contains(&(process.pid, process.started))).collect()
}

/// Returns process, name, state and kernel wait channel of every thread of `processes`.
pub(crate) fn threads(processes: &[Process]) -> Vec<String> {
    let mut threads = Vec::new();
    for Process { pid, .. } in processes {
        for thread in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let read = |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let (stat, wchan) = (read("stat"), read("wchan"));
            // The name is in parentheses and may contain some; the state follows the last one.
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?');
            threads.push(format!("{pid} {} {state} {wchan}", read("comm").trim()));
        }
    }
    threads
}

/// Returns processes whose command line contains `path`: a server on that data directory and its children.
pub(crate) fn naming(path: &Path) -> Vec<u32> {
    let needle = path.as_os_str().as_encoded_bytes();
    let names = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == needle)
    };
    table().map(|row| row.pid).filter(names).collect()
}

/// Returns the peak resident memory of a process in bytes.
pub(crate) fn peak_resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Returns all running processes.
fn table() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may contain any character.
        let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ended = matches!(rest[0], "Z" | "X");
        (!ended).then(|| Process { pid, parent: rest[1].parse().unwrap_or(0), started: rest[19].parse().unwrap_or(0) })
    })
}
