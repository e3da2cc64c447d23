//! The files of a cgroup and the values that set its limits, for both cgroup versions.

use std::fs;
use std::io;
use std::path::Path;

use crate::cgroup::{CgroupController, CgroupLimits, CgroupVersion};

/// The file of a v1 memory group that limits its socket buffers. Its name says TCP, but the kernel counts the buffers of
/// UDP sockets there too. Buffers of unix sockets count as memory.
pub(crate) const SOCKET_LIMIT: &str = "memory.kmem.tcp.limit_in_bytes";

/// The file names and values of one controller, for both cgroup versions.
pub(crate) struct ControllerFiles {
    v1: Vec<(&'static str, String)>,
    v2: Vec<(&'static str, String)>,
}

impl ControllerFiles {
    pub(crate) fn for_hierarchy(self, hierarchy: CgroupVersion) -> Vec<(&'static str, String)> {
        match hierarchy {
            CgroupVersion::V1 => self.v1,
            CgroupVersion::V2 => self.v2,
        }
    }
}

/// Returns the files to write for a controller. Without a limit, they are set to unlimited.
pub(crate) fn controller_files(controller: CgroupController, limits: &CgroupLimits) -> ControllerFiles {
    const PERIOD_MICROS: u64 = 100_000;
    let value = |none: &str| limits.of(controller).map_or(none.to_owned(), |limit| limit.to_string());
    match controller {
        CgroupController::Memory => ControllerFiles {
            v1: [
                ("memory.limit_in_bytes", value("-1")),
                // The limit of memory and swap together, so that no swap is used. Absent when swap accounting is off.
                ("memory.memsw.limit_in_bytes", value("-1")),
            ]
            .into_iter()
            .chain(limits.socket_bytes.map(|bytes| (SOCKET_LIMIT, bytes.to_string())))
            .collect(),
            v2: vec![
                ("memory.max", value("max")),
                ("memory.swap.max", "0".to_owned()),
                ("memory.oom.group", "0".to_owned()),
            ],
        },
        CgroupController::Pids => {
            ControllerFiles { v1: vec![("pids.max", value("max"))], v2: vec![("pids.max", value("max"))] }
        }
        CgroupController::Cpu => {
            let quota = limits.cpu_millis.map(|millis| (millis * PERIOD_MICROS / 1000).max(1000).to_string());
            let (v1, v2) = (quota.clone().unwrap_or("-1".to_owned()), quota.unwrap_or("max".to_owned()));
            ControllerFiles {
                v1: vec![("cpu.cfs_period_us", PERIOD_MICROS.to_string()), ("cpu.cfs_quota_us", v1)],
                v2: vec![("cpu.max", format!("{v2} {PERIOD_MICROS}"))],
            }
        }
    }
}

/// Writes a limit. Files that only exist with swap accounting may be missing; any other failure is an error.
pub(crate) fn write_setting(file: &Path, value: &str) -> io::Result<()> {
    match fs::write(file, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && file.to_string_lossy().contains("sw") => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = file.file_name().unwrap_or_default().display();
            Err(io::Error::other(format!("this kernel's cgroups have no `{name}`")))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_processor_is_a_quota_of_half_the_period() {
        let limits = CgroupLimits { cpu_millis: Some(500), ..CgroupLimits::default() };
        let half = controller_files(CgroupController::Cpu, &limits);
        assert_eq!(half.v2, [("cpu.max", "50000 100000".to_owned())]);
        let whole = controller_files(CgroupController::Cpu, &CgroupLimits::default());
        assert_eq!(whole.v2, [("cpu.max", "max 100000".to_owned())]);
    }

    #[test]
    fn socket_memory_has_its_own_limit_in_version_1_only() {
        let limits = CgroupLimits { socket_bytes: Some(1 << 20), ..CgroupLimits::default() };
        let files = controller_files(CgroupController::Memory, &limits);
        assert!(files.v1.contains(&(SOCKET_LIMIT, "1048576".to_owned())), "{:?}", files.v1);
        assert!(files.v2.iter().all(|(file, _)| !file.contains("tcp")), "{:?}", files.v2);
    }
}
