//! Limits on all processes of a sandbox together: memory, processes, processor time.
//!
//! Both versions of cgroups are spoken. What the machine cannot limit is an error here; whether a weaker
//! means will do is for the policy to say, never for this file.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::lock;

use crate::{cgroup_watch, kernel_text};

/// What can be limited.
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
    /// All of them.
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

/// Which version of cgroups a controller is bound to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A tree of its own.
    V1,
    /// The unified tree.
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

/// What a sandbox may use. `None` means no limit was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CgroupLimits {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u64>,
}

impl CgroupLimits {
    fn of(&self, controller: CgroupController) -> Option<u64> {
        match controller {
            CgroupController::Memory => self.memory_bytes,
            CgroupController::Pids => self.pids,
            CgroupController::Cpu => self.cpu_millis,
        }
    }
}

/// Where this machine keeps the controllers, and whether we may use them.
#[derive(Debug)]
pub struct CgroupRoot {
    places: Vec<(CgroupController, CgroupVersion, PathBuf)>,
    /// Names our groups, so that those of a host that died can be told.
    owner: String,
    next: AtomicU64,
    /// The group the controllers were tried with: the first sandbox's.
    tried: Mutex<Option<Cgroup>>,
}

impl CgroupRoot {
    /// Looks where each controller is, tries it, and sweeps what hosts that died have left behind.
    pub fn probe() -> io::Result<Self> {
        let mounts = kernel_text::read("/proc/self/mountinfo")?;
        let own = kernel_text::read("/proc/self/cgroup")?;
        let owner = format!("{}-{}", std::process::id(), start_time(std::process::id()).unwrap_or_default());
        let (name, mut group, mut places) = (format!("{owner}-0"), Cgroup::default(), Vec::new());
        for controller in CgroupController::ALL {
            let Some((hierarchy, base)) = place(controller, &mounts, &own) else { continue };
            let base = base.join("viv");
            // What cannot be had here is refused by whoever asks for it, by its name.
            if open_base(controller, hierarchy, &base).is_err() {
                continue;
            }
            sweep(&base);
            let (known, directory) = (group.directories.len(), base.join(&name));
            let added = group.add(controller, hierarchy, directory, &CgroupLimits::default());
            match added.and_then(|()| group.entrance()) {
                Ok(_) => places.push((controller, hierarchy, base)),
                Err(_) => drop(Cgroup { directories: group.directories.split_off(known), v2: None }),
            }
        }
        Ok(Self { places, owner, next: AtomicU64::new(1), tried: Mutex::new(Some(group)) })
    }

    /// By which version a controller is enforced here, if it can be.
    pub fn hierarchy(&self, controller: CgroupController) -> Option<CgroupVersion> {
        self.places.iter().find(|(found, ..)| *found == controller).map(|(_, hierarchy, _)| *hierarchy)
    }

    /// Makes a group with `limits`. Every limit that is asked for is set, or it fails.
    pub fn create(&self, limits: &CgroupLimits) -> io::Result<Cgroup> {
        if let Some(missing) = CgroupController::ALL
            .into_iter()
            .find(|controller| limits.of(*controller).is_some() && self.hierarchy(*controller).is_none())
        {
            return Err(io::Error::other(format!("no {missing} cgroup")));
        }
        let tried = lock(&self.tried).take();
        let name = match tried.as_ref().and_then(|group| group.names().next()) {
            Some(name) => name.to_owned(),
            None => format!("{}-{}", self.owner, self.next.fetch_add(1, Ordering::Relaxed)),
        };
        let mut group = tried.unwrap_or_default();
        for (controller, hierarchy, base) in &self.places {
            group.add(*controller, *hierarchy, base.join(&name), limits)?;
        }
        Ok(group)
    }
}

/// The files of one controller, in both versions' words.
struct Settings {
    v1: Vec<(&'static str, String)>,
    v2: Vec<(&'static str, String)>,
}

impl Settings {
    fn for_hierarchy(self, hierarchy: CgroupVersion) -> Vec<(&'static str, String)> {
        match hierarchy {
            CgroupVersion::V1 => self.v1,
            CgroupVersion::V2 => self.v2,
        }
    }
}

/// What is written where; a limit that nobody asked for is none.
fn settings(controller: CgroupController, limits: &CgroupLimits) -> Settings {
    const PERIOD_MICROS: u64 = 100_000;
    let word = |none: &str| limits.of(controller).map_or(none.to_owned(), |limit| limit.to_string());
    match controller {
        CgroupController::Memory => Settings {
            v1: vec![
                ("memory.limit_in_bytes", word("-1")),
                // Memory and swap together: no swap beside. Absent where swap accounting is off.
                ("memory.memsw.limit_in_bytes", word("-1")),
            ],
            v2: vec![
                ("memory.max", word("max")),
                ("memory.swap.max", "0".to_owned()),
                ("memory.oom.group", "0".to_owned()),
            ],
        },
        CgroupController::Pids => Settings { v1: vec![("pids.max", word("max"))], v2: vec![("pids.max", word("max"))] },
        CgroupController::Cpu => {
            let quota = limits.cpu_millis.map(|millis| (millis * PERIOD_MICROS / 1000).max(1000).to_string());
            let (v1, v2) = (quota.clone().unwrap_or("-1".to_owned()), quota.unwrap_or("max".to_owned()));
            Settings {
                v1: vec![("cpu.cfs_period_us", PERIOD_MICROS.to_string()), ("cpu.cfs_quota_us", v1)],
                v2: vec![("cpu.max", format!("{v2} {PERIOD_MICROS}"))],
            }
        }
    }
}

/// Writes a limit. The files that only exist with swap may be missing; every other must take its value.
fn write_setting(file: &Path, value: &str) -> io::Result<()> {
    match fs::write(file, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && file.to_string_lossy().contains("sw") => Ok(()),
        other => other,
    }
}

/// What a process joins a group by.
#[derive(Debug, Default)]
pub(crate) struct Entrance {
    /// `tasks` of each v1 group: a process that writes `0` there joins it.
    pub(crate) tasks: Vec<OwnedFd>,
    /// The v2 directory, for a clone that starts in it.
    pub(crate) v2: Option<OwnedFd>,
}

/// The group of one sandbox; removed when it is dropped, which must be after the sandbox is dead.
#[derive(Debug, Default)]
pub struct Cgroup {
    directories: Vec<(CgroupVersion, PathBuf)>,
    v2: Option<PathBuf>,
}

impl Cgroup {
    /// Sets one controller's limit in `directory`, which is made unless it is there already.
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
        for (file, value) in settings(controller, limits).for_hierarchy(hierarchy) {
            write_setting(&directory.join(file), &value)?;
        }
        if hierarchy == CgroupVersion::V2 {
            self.v2 = Some(directory);
        }
        Ok(())
    }

    /// Whether the kernel has `controller`'s limit as it was set.
    pub(crate) fn read_back(&self, controller: CgroupController, limits: &CgroupLimits) -> io::Result<()> {
        let differs = || io::Error::other(format!("the {controller} limit reads otherwise than it was set"));
        let mut read = 0;
        for (hierarchy, directory) in &self.directories {
            for (file, value) in settings(controller, limits).for_hierarchy(*hierarchy) {
                match fs::read_to_string(directory.join(file)) {
                    Ok(found) if found.trim() == value => read += 1,
                    Ok(_) => return Err(differs()),
                    // Another controller's directory, or no accounting of swap here.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if read == 0 { Err(differs()) } else { Ok(()) }
    }

    /// Opens what a process joins it by.
    pub(crate) fn entrance(&self) -> io::Result<Entrance> {
        let v1 = self.directories.iter().filter(|(hierarchy, _)| *hierarchy == CgroupVersion::V1);
        let open = |path: &Path| fs::OpenOptions::new().write(true).open(path.join("tasks")).map(OwnedFd::from);
        let tasks = v1.map(|(_, path)| open(path)).collect::<io::Result<_>>()?;
        let v2 = self.v2.as_ref().map(|path| fs::File::open(path).map(OwnedFd::from)).transpose()?;
        Ok(Entrance { tasks, v2 })
    }

    /// The last part of the path of each of its directories, as /proc shows it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.directories.iter().filter_map(|(_, path)| path.file_name()?.to_str())
    }

    /// How many processes were killed because memory ran out.
    pub fn oom_kills(&self) -> u64 {
        self.directories.iter().find_map(|(_, path)| cgroup_watch::oom_kills(path)).unwrap_or(0)
    }

    /// Most memory used at once.
    pub fn peak_bytes(&self) -> Option<u64> {
        ["memory.peak", "memory.max_usage_in_bytes"].iter().find_map(|file| {
            let read = |(_, path): &(CgroupVersion, PathBuf)| fs::read_to_string(path.join(file)).ok();
            self.directories.iter().find_map(read)?.trim().parse().ok()
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for (_, directory) in &self.directories {
            // A group is busy until the kernel has let go of the last process: most often for some
            // microseconds, on a loaded machine longer than one would think. The next start sweeps the rest.
            let (mut pause, begun) = (Duration::from_micros(20), Instant::now());
            while let Err(error) = fs::remove_dir(directory) {
                if error.raw_os_error() != Some(libc::EBUSY) || begun.elapsed() > Duration::from_secs(2) {
                    break;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(2));
            }
        }
    }
}

/// Where a controller's own group of this process is.
fn place(controller: CgroupController, mounts: &str, own: &str) -> Option<(CgroupVersion, PathBuf)> {
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

/// The v2 group to make ours under: the root for root, for anybody else the group they are in, which
/// works where it was delegated and holds no process itself.
fn v2_parent(root: &Path, own: &str) -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return root.to_owned();
    }
    let relative = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    root.join(relative)
}

/// Makes the directory our groups are in.
fn open_base(controller: CgroupController, hierarchy: CgroupVersion, base: &Path) -> io::Result<()> {
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

/// Removes groups of hosts that are dead. A group that still has processes stays, busy.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        let owner = parts.next().and_then(|pid| pid.parse().ok());
        let born = parts.next().and_then(|time| time.parse().ok());
        if let (Some(pid), Some(born)) = (owner, born)
            && start_time(pid) != Some(born)
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// When a process started, in clock ticks since boot: with its number, a name nobody gets again.
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
    fn a_v1_controller_is_found_under_the_group_this_process_is_in() {
        let own = "4:memory:/host/inner\n1:cpu,cpuacct:/\n0::/\n";
        let memory = place(CgroupController::Memory, HYBRID, own);
        assert_eq!(memory, Some((CgroupVersion::V1, "/sys/fs/cgroup/memory/host/inner".into())));
        assert_eq!(place(CgroupController::Cpu, HYBRID, own), Some((CgroupVersion::V1, "/sys/fs/cgroup/cpu/".into())));
        assert_eq!(place(CgroupController::Pids, HYBRID, own), None);
    }

    #[test]
    fn half_a_processor_is_half_a_period() {
        let limits = CgroupLimits { cpu_millis: Some(500), ..CgroupLimits::default() };
        let half = settings(CgroupController::Cpu, &limits);
        assert_eq!(half.v2, [("cpu.max", "50000 100000".to_owned())]);
        let whole = settings(CgroupController::Cpu, &CgroupLimits::default());
        assert_eq!(whole.v2, [("cpu.max", "max 100000".to_owned())]);
    }
}
