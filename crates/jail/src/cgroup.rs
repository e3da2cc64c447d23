//! Cgroups: limits on memory, processes and processor time of all processes of a sandbox together.
//!
//! Both cgroup versions are supported. A limit that this machine cannot enforce is an error here. Whether a weaker limit
//! is acceptable is decided by the policy.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::lock;

use crate::cgroup_files::{controller_files, write_setting};
use crate::{cgroup_watch, kernel_text};

/// A resource that a cgroup limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CgroupController {
    /// Bytes of memory, swap included.
    Memory,
    /// Number of processes and threads.
    Pids,
    /// Processor time.
    Cpu,
}

impl CgroupController {
    /// All controllers.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

impl fmt::Display for CgroupController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The cgroup version that a controller is bound to on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// Version 1: a separate hierarchy for the controller.
    V1,
    /// Version 2: the unified hierarchy.
    V2,
}

impl fmt::Display for CgroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "cgroup version 1",
            Self::V2 => "cgroup version 2",
        })
    }
}

/// The cgroup limits of a sandbox. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CgroupLimits {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u64>,
    /// Bytes of socket buffers. Version 1 counts them apart from other memory. With version 2 they are a part of
    /// `memory_bytes`, and this limit is not used.
    pub socket_bytes: Option<u64>,
}

impl CgroupLimits {
    pub(crate) fn of(&self, controller: CgroupController) -> Option<u64> {
        match controller {
            CgroupController::Memory => self.memory_bytes,
            CgroupController::Pids => self.pids,
            CgroupController::Cpu => self.cpu_millis,
        }
    }
}

/// The controllers that this process may use on this machine.
#[derive(Debug)]
pub struct CgroupRoot {
    controllers: Vec<(CgroupController, CgroupVersion, PathBuf)>,
    /// The prefix of our groups' names. It identifies this process, so that groups of dead hosts can be recognised.
    owner: String,
    next: AtomicU64,
    /// The group with which the controllers were probed. The first sandbox uses it.
    probed: Mutex<Option<Cgroup>>,
}

impl CgroupRoot {
    /// Finds and probes each controller, and removes the groups of dead hosts.
    pub fn probe() -> io::Result<Self> {
        let mounts = kernel_text::read("/proc/self/mountinfo")?;
        let own = kernel_text::read("/proc/self/cgroup")?;
        let owner = format!("{}-{}", std::process::id(), start_time(std::process::id()).unwrap_or_default());
        let (name, mut group, mut controllers) = (format!("{owner}-0"), Cgroup::default(), Vec::new());
        for controller in CgroupController::ALL {
            let Some((hierarchy, base)) = find_controller(controller, &mounts, &own) else { continue };
            let base = base.join("viv");
            // A controller that cannot be used is left out; `create` fails when a limit needs it.
            if make_base(controller, hierarchy, &base).is_err() {
                continue;
            }
            sweep(&base);
            let (known, directory) = (group.directories.len(), base.join(&name));
            let added = group.add(controller, hierarchy, directory, &CgroupLimits::default());
            match added.and_then(|()| group.open_handles()) {
                Ok(_) => controllers.push((controller, hierarchy, base)),
                Err(_) => drop(Cgroup { directories: group.directories.split_off(known), v2: None }),
            }
        }
        Ok(Self { controllers, owner, next: AtomicU64::new(1), probed: Mutex::new(Some(group)) })
    }

    /// Returns the cgroup version of a controller; `None` when it cannot be used on this machine.
    pub fn hierarchy(&self, controller: CgroupController) -> Option<CgroupVersion> {
        self.controllers.iter().find(|(found, ..)| *found == controller).map(|(_, hierarchy, _)| *hierarchy)
    }

    /// Makes a group with `limits`. Fails when one of them cannot be set.
    pub fn create(&self, limits: &CgroupLimits) -> io::Result<Cgroup> {
        if let Some(missing) = CgroupController::ALL
            .into_iter()
            .find(|controller| limits.of(*controller).is_some() && self.hierarchy(*controller).is_none())
        {
            return Err(io::Error::other(format!("this user may not use a {missing} cgroup")));
        }
        let probed = lock(&self.probed).take();
        let name = match probed.as_ref().and_then(|group| group.names().next()) {
            Some(name) => name.to_owned(),
            None => format!("{}-{}", self.owner, self.next.fetch_add(1, Ordering::Relaxed)),
        };
        let mut group = probed.unwrap_or_default();
        for (controller, hierarchy, base) in &self.controllers {
            group.add(*controller, *hierarchy, base.join(&name), limits)?;
        }
        Ok(group)
    }
}

/// The descriptors with which a process joins a group.
#[derive(Debug, Default)]
pub(crate) struct CgroupHandles {
    /// The `tasks` file of each v1 group. A process that writes `0` there joins the group.
    pub(crate) tasks: Vec<OwnedFd>,
    /// The v2 directory, for a process that is cloned into it.
    pub(crate) v2: Option<OwnedFd>,
}

/// The group of one sandbox. Dropping it removes the group, so drop it after all processes have ended.
#[derive(Debug, Default)]
pub struct Cgroup {
    directories: Vec<(CgroupVersion, PathBuf)>,
    v2: Option<PathBuf>,
}

impl Cgroup {
    /// Sets one controller's limit in `directory`, which is made if it does not exist.
    fn add(
        &mut self,
        controller: CgroupController,
        hierarchy: CgroupVersion,
        directory: PathBuf,
        limits: &CgroupLimits,
    ) -> io::Result<()> {
        if !self.directories.iter().any(|(_, known)| *known == directory) {
            fs::create_dir(&directory)?;
            self.directories.push((hierarchy, directory.clone()));
        }
        for (file, value) in controller_files(controller, limits).for_hierarchy(hierarchy) {
            write_setting(&directory.join(file), &value)?;
        }
        if hierarchy == CgroupVersion::V2 {
            self.v2 = Some(directory);
        }
        Ok(())
    }

    /// Fails unless the kernel has `controller`'s limit as it was set.
    pub(crate) fn read_back(&self, controller: CgroupController, limits: &CgroupLimits) -> io::Result<()> {
        let differs = || io::Error::other(format!("the {controller} limit was set, but reads differently"));
        let mut read = 0;
        for (hierarchy, directory) in &self.directories {
            for (file, value) in controller_files(controller, limits).for_hierarchy(*hierarchy) {
                match fs::read_to_string(directory.join(file)) {
                    Ok(found) if found.trim() == value => read += 1,
                    Ok(_) => return Err(differs()),
                    // The directory of another controller, or swap accounting is off.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if read == 0 { Err(differs()) } else { Ok(()) }
    }

    /// Opens the descriptors with which a process joins the group.
    pub(crate) fn open_handles(&self) -> io::Result<CgroupHandles> {
        let v1 = self.directories.iter().filter(|(hierarchy, _)| *hierarchy == CgroupVersion::V1);
        let open = |path: &Path| fs::OpenOptions::new().write(true).open(path.join("tasks")).map(OwnedFd::from);
        let tasks = v1.map(|(_, path)| open(path)).collect::<io::Result<_>>()?;
        let v2 = self.v2.as_ref().map(|path| fs::File::open(path).map(OwnedFd::from)).transpose()?;
        Ok(CgroupHandles { tasks, v2 })
    }

    /// Returns the name of each of its directories, as /proc shows it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.directories.iter().filter_map(|(_, path)| path.file_name()?.to_str())
    }

    /// Returns how many processes were killed because memory ran out.
    pub fn oom_kills(&self) -> u64 {
        self.directories.iter().find_map(|(_, path)| cgroup_watch::oom_kills(path)).unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for (_, directory) in &self.directories {
            // A group is busy until the kernel has removed its last process, which takes microseconds, or much longer on
            // a loaded machine. A group that stays is removed at the next start.
            let (mut pause, started) = (Duration::from_micros(20), Instant::now());
            while let Err(error) = fs::remove_dir(directory) {
                if error.raw_os_error() != Some(libc::EBUSY) || started.elapsed() > Duration::from_secs(2) {
                    break;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(2));
            }
        }
    }
}

/// Returns the version of a controller, and the group of this process in which our groups are made.
fn find_controller(controller: CgroupController, mounts: &str, own: &str) -> Option<(CgroupVersion, PathBuf)> {
    let name = controller.name();
    for line in mounts.lines() {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (Some(filesystem), Some(_), Some(options)) = (kind.next(), kind.next(), kind.next()) else { continue };
        let point = mount.split(' ').nth(4)?;
        if filesystem == "cgroup" && options.split(',').any(|option| option == name) {
            let relative = own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':');
                let controllers = parts.nth(1)?;
                controllers.split(',').any(|found| found == name).then(|| parts.next()).flatten()
            })?;
            return Some((CgroupVersion::V1, Path::new(point).join(relative.trim_start_matches('/'))));
        }
        if filesystem == "cgroup2" {
            let root = Path::new(point);
            let available = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            if available.split_whitespace().any(|found| found == name) {
                return Some((CgroupVersion::V2, v2_parent(root, own)));
            }
        }
    }
    None
}

/// Returns the v2 group in which our groups are made: the top group for root, the group of this process for any other
/// user. The latter works when the group was delegated and holds no process itself.
fn v2_parent(root: &Path, own: &str) -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return root.to_owned();
    }
    let relative = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    root.join(relative)
}

/// Makes the directory that holds our groups.
fn make_base(controller: CgroupController, hierarchy: CgroupVersion, base: &Path) -> io::Result<()> {
    match fs::create_dir(base) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    if hierarchy == CgroupVersion::V2 {
        let enable = format!("+{controller}");
        for directory in [base.parent().unwrap_or(base), base] {
            fs::write(directory.join("cgroup.subtree_control"), &enable)?;
        }
    }
    Ok(())
}

/// Removes the groups of dead hosts. A group that still has processes cannot be removed and stays.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        let owner = parts.next().and_then(|pid| pid.parse().ok());
        let started = parts.next().and_then(|time| time.parse().ok());
        if let (Some(pid), Some(started)) = (owner, started)
            && start_time(pid) != Some(started)
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns when a process started, in clock ticks since boot. Process id and start time together identify a process.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = kernel_text::read(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 20 0:26 / /sys/fs/cgroup/memory rw,relatime shared:8 - cgroup cgroup rw,memory
31 20 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
";

    #[test]
    fn v1_controller_is_found_in_the_group_of_this_process() {
        let own = "4:memory:/host/inner\n1:cpu,cpuacct:/\n0::/\n";
        let memory = find_controller(CgroupController::Memory, HYBRID, own);
        assert_eq!(memory, Some((CgroupVersion::V1, "/sys/fs/cgroup/memory/host/inner".into())));
        let cpu = find_controller(CgroupController::Cpu, HYBRID, own);
        assert_eq!(cpu, Some((CgroupVersion::V1, "/sys/fs/cgroup/cpu/".into())));
        assert_eq!(find_controller(CgroupController::Pids, HYBRID, own), None);
    }
}
