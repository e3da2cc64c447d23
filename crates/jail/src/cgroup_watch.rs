//! The control group that an engine has put a process into, looked at from outside.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the memory and the processor time of a process are counted.
#[derive(Debug, Clone)]
pub struct CgroupWatch {
    memory: Option<PathBuf>,
    processor: Option<PathBuf>,
}

impl CgroupWatch {
    /// The group that `pid` is in now.
    pub fn of(pid: i32) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (mounts, own) = (read("/proc/self/mountinfo"), read(&format!("/proc/{pid}/cgroup")));
        Self { memory: group("memory", &mounts, &own), processor: group("cpuacct", &mounts, &own) }
    }

    /// The limit of memory the kernel has for it, in bytes.
    pub fn memory_limit(&self) -> Option<u64> {
        let directory = self.memory.as_ref()?;
        let read = |file: &str| fs::read_to_string(directory.join(file)).ok();
        read("memory.max").or_else(|| read("memory.limit_in_bytes"))?.trim().parse().ok()
    }

    /// How many of its processes were killed because memory ran out.
    pub fn oom_kills(&self) -> u64 {
        self.memory.as_deref().and_then(oom_kills).unwrap_or(0)
    }

    /// Processor time that everything in it has used so far.
    pub fn cpu_micros(&self) -> Option<u64> {
        let directory = self.processor.as_ref()?;
        let read = |file: &str| fs::read_to_string(directory.join(file)).ok();
        let told = read("cpu.stat").and_then(|text| number_after("usage_usec ", &text));
        told.or_else(|| Some(read("cpuacct.usage")?.trim().parse::<u64>().ok()? / 1000))
    }
}

/// The directory of a controller, as the first version calls it, for a process whose /proc file says `own`.
fn group(controller: &str, mounts: &str, own: &str) -> Option<PathBuf> {
    let path_of = |wanted: &str| {
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
        if kind.starts_with("cgroup ") && kind.split([' ', ',']).any(|option| option == controller) {
            return Some(Path::new(point).join(path_of(controller)?));
        }
        if kind.starts_with("cgroup2 ") {
            unified = path_of("").map(|path| Path::new(point).join(path));
        }
    }
    unified
}

/// How many processes of the group in `directory` were killed for want of memory; `None` where it counts none.
pub(crate) fn oom_kills(directory: &Path) -> Option<u64> {
    let read = |file: &str| fs::read_to_string(directory.join(file)).ok();
    let text = read("memory.events").or_else(|| read("memory.oom_control"))?;
    number_after("oom_kill ", &text)
}

/// The number in the line that begins with `name`.
fn number_after(name: &str, text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_in_either_version() {
        let first = "30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     32 20 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
        let second = "31 20 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let own = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/def\n0::/engine/abc\n";
        assert_eq!(group("memory", first, own), Some("/sys/fs/cgroup/memory/docker/abc".into()));
        assert_eq!(group("cpuacct", first, own), Some("/sys/fs/cgroup/cpu/docker/def".into()));
        assert_eq!(group("memory", second, own), Some("/sys/fs/cgroup/engine/abc".into()));
        assert_eq!(group("memory", "", own), None);
    }
}
