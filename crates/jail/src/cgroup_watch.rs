//! Reads the usage of a container's cgroup, which its engine made.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup_files::SOCKET_LIMIT;

/// The cgroup directories that count a process's memory and processor time.
#[derive(Debug, Clone)]
pub struct CgroupWatch {
    memory: Option<PathBuf>,
    processor: Option<PathBuf>,
}

impl CgroupWatch {
    /// Returns a watch of the cgroups that `pid` is in now.
    pub fn of(pid: i32) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (mounts, own) = (read("/proc/self/mountinfo"), read(&format!("/proc/{pid}/cgroup")));
        Self { memory: group("memory", &mounts, &own), processor: group("cpuacct", &mounts, &own) }
    }

    /// Returns the memory limit in bytes, as the kernel has it.
    pub fn memory_limit(&self) -> Option<u64> {
        let directory = self.memory.as_ref()?;
        let read = |file: &str| fs::read_to_string(directory.join(file)).ok();
        read("memory.max").or_else(|| read("memory.limit_in_bytes"))?.trim().parse().ok()
    }

    /// Sets the limit of socket buffers in a v1 group. Only root can do this for the group of an engine.
    pub fn limit_sockets(&self, bytes: u64) -> std::io::Result<()> {
        let directory = self.memory.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        fs::write(directory.join(SOCKET_LIMIT), bytes.to_string())
    }

    /// Returns how many processes were killed because memory ran out.
    pub fn oom_kills(&self) -> u64 {
        self.memory.as_deref().and_then(oom_kills).unwrap_or(0)
    }

    /// Returns the processor time that all processes of the group have used so far.
    pub fn cpu_micros(&self) -> Option<u64> {
        let directory = self.processor.as_ref()?;
        let read = |file: &str| fs::read_to_string(directory.join(file)).ok();
        let v2 = read("cpu.stat").and_then(|text| number_after("usage_usec ", &text));
        v2.or_else(|| Some(read("cpuacct.usage")?.trim().parse::<u64>().ok()? / 1000))
    }
}

/// Returns the directory of a controller (by its v1 name) for a process whose `/proc/PID/cgroup` is `own`.
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

/// Returns how many processes of the group were killed because memory ran out; `None` when the group does not count them.
pub(crate) fn oom_kills(directory: &Path) -> Option<u64> {
    let read = |file: &str| fs::read_to_string(directory.join(file)).ok();
    let text = read("memory.events").or_else(|| read("memory.oom_control"))?;
    number_after("oom_kill ", &text)
}

/// Returns the number in the line that begins with `name`.
fn number_after(name: &str, text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_in_both_cgroup_versions() {
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
