//! Leftovers that the suite must not leave on the machine.

use std::path::Path;

/// Counts before and after the run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    mounts: usize,
    segments: usize,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let lines = |path| std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
        Self { mounts: lines("/proc/self/mountinfo"), segments: own_segments() }
    }
}

/// Fails with the leftovers of the scenes below `root`, after killed processes had time to end.
pub(crate) fn check(before: &Machine, root: &Path) -> Result<(), String> {
    let mut found = Vec::new();
    let clean = testkit::becomes_true(|| {
        found = left(before, root);
        found.is_empty()
    });
    if clean { Ok(()) } else { Err(found.join(", ")) }
}

fn left(before: &Machine, root: &Path) -> Vec<String> {
    let mut left = processes(root);
    left.extend(groups());
    let now = Machine::look();
    if now != *before {
        left.push(format!("{before:?} became {now:?}"));
    }
    left
}

/// Returns processes with the path of a scene in their arguments, including those in sandboxes.
fn processes(root: &Path) -> Vec<String> {
    let root = root.to_string_lossy().into_owned();
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let told = listed.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&root).then(|| format!("process {}: {line}", entry.file_name().display()))
    });
    told.collect()
}

/// Returns control groups with this process's id in their name.
fn groups() -> Vec<String> {
    let prefix = format!("{}-", std::process::id());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let trees = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let mut found = Vec::new();
    for tree in trees {
        find_groups(Path::new(tree), &prefix, 4, &mut found);
    }
    found
}

fn find_groups(directory: &Path, prefix: &str, depth: usize, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let ours = directory.ends_with("viv") && entry.file_name().to_string_lossy().starts_with(prefix);
        if ours {
            found.push(format!("control group {}", entry.path().display()));
        }
        find_groups(&entry.path(), prefix, depth - 1, found);
    }
}

/// Returns shared memory segments of this process.
fn own_segments() -> usize {
    let own = std::process::id().to_string();
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    table.lines().filter(|line| line.split_whitespace().nth(4) == Some(own.as_str())).count()
}
