//! The control group that an engine has put a process into, looked at from outside.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the memory of a process is counted.
#[derive(Debug, Clone)]
pub struct CgroupWatch {
    directory: Option<PathBuf>,
}

impl CgroupWatch {
    /// The group that `pid` is in now.
    pub fn of(pid: i32) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self { directory: memory_group(&read("/proc/self/mountinfo"), &read(&format!("/proc/{pid}/cgroup"))) }
    }

    /// The limit of memory the kernel has for it, in bytes.
    pub fn memory_limit(&self) -> Option<u64> {
        let directory = self.directory.as_ref()?;
        let read = |file: &str| fs::read_to_string(directory.join(file)).ok();
        read("memory.max").or_else(|| read("memory.limit_in_bytes"))?.trim().parse().ok()
    }

    /// How many of its processes were killed because memory ran out.
    pub fn oom_kills(&self) -> u64 {
        self.directory.as_deref().and_then(oom_kills).unwrap_or(0)
    }
}

/// The directory of the memory controller for a process whose /proc file says `own`.
fn memory_group(mounts: &str, own: &str) -> Option<PathBuf> {
    let group = |wanted: &str| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            controllers.split(',').any(|found| found == wanted).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let mut unified = None;
    for line in mounts.lines() {
        let (mount, kind) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        if kind.starts_with("cgroup ") && kind.split([' ', ',']).any(|option| option == "memory") {
            return Some(Path::new(point).join(group("memory")?));
        }
        if kind.starts_with("cgroup2 ") {
            unified = group("").map(|path| Path::new(point).join(path));
        }
    }
    unified
}

/// How many processes of the group in `directory` were killed for want of memory; `None` where it counts none.
pub(crate) fn oom_kills(directory: &Path) -> Option<u64> {
    let read = |file: &str| fs::read_to_string(directory.join(file)).ok();
    let text = read("memory.events").or_else(|| read("memory.oom_control"))?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_group_is_found_in_either_version() {
        let first = "30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let second = "31 20 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let own = "4:memory:/docker/abc\n0::/engine/abc\n";
        assert_eq!(memory_group(first, own), Some("/sys/fs/cgroup/memory/docker/abc".into()));
        assert_eq!(memory_group(second, own), Some("/sys/fs/cgroup/engine/abc".into()));
        assert_eq!(memory_group("", own), None);
    }
}
