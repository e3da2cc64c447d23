//! The private root of a sandbox, built mount by mount.
//!
//! Everything is attached by descriptor below a fresh tmpfs that no other process can reach, so no name planted by a
//! sandbox is followed. When `enter` returns, the host's tree is unmounted.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use base::{HOME, WORKSPACE};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    fspick, mount_change, move_mount, unmount,
};

use crate::error::{During, SetupFailure, SetupStep};
use crate::guard;
use crate::mask::MaskEntries;
use crate::mount_sources::{MountSources, clone_at, clone_tree};
use crate::overlay::OverlayBuilder;
use crate::plan::{JailPlan, LayerPlan, WorkspacePlan};
use crate::sys::{self, attr};

/// The path at which the writable space is attached while the root is built in it. It is in the host's tree, which is
/// unmounted as a whole when the root is entered: each unmount waits for every processor. It covers the host's /proc,
/// because no workspace can be there: without root, the plan's paths are opened after this mount.
const SCRATCH: &str = "/proc";
/// The most terminals of one sandbox. All terminals of the machine share one limit, 4096 by default.
pub const MAX_TERMINALS: u32 = 64;
/// The only devices inside. They reveal nothing about the host.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// The inotify limits of a user namespace, each with the limit of one user of the machine.
const INOTIFY_LIMITS: [(&str, &str); 2] = [
    ("sys/user/max_inotify_instances", "sys/fs/inotify/max_user_instances"),
    ("sys/user/max_inotify_watches", "sys/fs/inotify/max_user_watches"),
];
/// Entries of /proc that reveal the host: its keys, memory, boot options and terminals.
const MASKED: [&str; 21] = [
    "acpi",
    "asound",
    "bus",
    "cmdline",
    "fs",
    "interrupts",
    "irq",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "modules",
    "sched_debug",
    "scsi",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
    "tty",
    "vmallocinfo",
];

/// A private root under construction.
pub(crate) struct PrivateRoot {
    /// The top of the new tree.
    top: OwnedFd,
    /// The one size-limited file system that holds everything writable.
    scratch: OwnedFd,
    /// Parent directories that were made already. Most mount points share one of two parents.
    made: RefCell<BTreeSet<PathBuf>>,
}

impl PrivateRoot {
    /// Separates the mounts of this process from the host's and attaches an empty root in the writable space.
    pub(crate) fn start() -> Result<Self, SetupFailure> {
        make_mounts_private().during(SetupStep::PrivateMounts, "/")?;

        let scratch = tmpfs(1 << 20, 64, 0o700).during(SetupStep::Scratch, "tmpfs")?;
        attach(&scratch, rustix::fs::CWD, SCRATCH).during(SetupStep::Scratch, SCRATCH)?;
        for (name, mode) in [("tmp", 0o1777), ("home", 0o755), ("shm", 0o1777), ("root", 0o755), ("empty", 0o555)] {
            mkdirat(&scratch, name, Mode::from_raw_mode(mode)).during(SetupStep::Scratch, name)?;
            rustix::fs::chmodat(&scratch, name, Mode::from_raw_mode(mode), AtFlags::empty())
                .during(SetupStep::Scratch, name)?;
        }

        let root = tmpfs(4 << 20, 4096, 0o755).during(SetupStep::NewRoot, "tmpfs")?;
        attach(&root, &scratch, "root").during(SetupStep::NewRoot, "root")?;
        let this = Self { top: root, scratch, made: RefCell::default() };
        for (name, target) in [("tmp", "/tmp"), ("home", HOME)] {
            this.expose(name, target).during(SetupStep::Scratch, target)?;
        }
        Ok(this)
    }

    /// Sets the size of the writable space to that of the plan.
    pub(crate) fn resize(&self, plan: &JailPlan) -> Result<(), SetupFailure> {
        let resize = || -> io::Result<()> {
            let context = fspick(&self.scratch, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
            for (key, value) in limits(plan.disk_bytes, plan.disk_inodes) {
                fsconfig_set_string(&context, key, value)?;
            }
            Ok(fsconfig_reconfigure(&context)?)
        };
        resize().during(SetupStep::Scratch, "size")
    }

    /// Adds the plan's host paths, links and files.
    pub(crate) fn fill(&self, plan: &JailPlan, sources: &MountSources) -> Result<(), SetupFailure> {
        for (tree, target) in &sources.binds {
            self.mount(tree, target).during(SetupStep::MountSystem, target.display())?;
        }
        for (number, (layer, tree)) in plan.layers.iter().zip(&sources.layers).enumerate() {
            self.mount_layer(number, layer, tree).during(SetupStep::MountSystem, layer.target.display())?;
        }
        for (link, target) in &plan.links {
            self.make_parents(link).during(SetupStep::PlaceFiles, link.display())?;
            symlinkat(target, &self.top, inside(link)).during(SetupStep::PlaceFiles, link.display())?;
        }
        // Files come last, so that they can be placed in the home too. Nothing runs inside yet that could interfere.
        for (path, content) in &plan.files {
            self.write_file(path, content).during(SetupStep::PlaceFiles, path.display())?;
        }
        Ok(())
    }

    /// Mounts a directory of the host under its layers.
    fn mount_layer(&self, number: usize, layer: &LayerPlan, tree: &OwnedFd) -> io::Result<()> {
        let entries = MaskEntries { masks: &layer.masks, covers: &layer.covers };
        if !layer.writable && entries.is_empty() {
            return self.mount(tree, &layer.target);
        }
        let folder = format!("layer{number}");
        mkdirat(&self.scratch, &folder, Mode::from_raw_mode(0o755))?;
        let builder = OverlayBuilder { scratch: &self.scratch, at: SCRATCH, folder: &folder, owner: None };
        let merged = if layer.writable { builder.overlay(tree, entries)?.0 } else { builder.masked(tree, entries)? };
        self.mount(&merged, &layer.target)
    }

    /// Mounts a read-only /proc of this PID namespace, with the entries that reveal the host covered.
    pub(crate) fn mount_proc(&self) -> Result<(), SetupFailure> {
        let proc = new_fs("proc", &[], &[]).during(SetupStep::MountProc, "/proc")?;
        sys::mount_setattr(proc.as_fd(), attr::NOSUID | attr::NODEV | attr::NOEXEC, false, None)
            .during(SetupStep::MountProc, "/proc")?;
        self.mount(&proc, Path::new("/proc")).during(SetupStep::MountProc, "/proc")?;

        // Forbidding nested user namespaces removes most of the kernel's attack surface. It is written before sysctls
        // become read-only, and applies to this namespace only.
        write_at(&proc, "sys/user/max_user_namespaces", "0").during(SetupStep::ForbidNesting, "max_user_namespaces")?;

        // The kernel also counts inotify watches for the user who started the sandbox. That user keeps half of the limit.
        for (namespace_limit, user_limit) in INOTIFY_LIMITS {
            halve(&proc, namespace_limit, user_limit).during(SetupStep::ForbidNesting, namespace_limit)?;
        }

        let sysctls = clone_at(proc.as_fd(), "sys", OpenTreeFlags::empty()).during(SetupStep::MaskProc, "sys")?;
        sys::mount_setattr(sysctls.as_fd(), attr::RDONLY, false, None).during(SetupStep::MaskProc, "sys")?;
        attach(&sysctls, &proc, "sys").during(SetupStep::MaskProc, "sys")?;
        for name in MASKED {
            match self.cover(&proc, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.during(SetupStep::MaskProc, name)?,
            }
        }
        // Read-only: a tool could otherwise change the memory of its agent, which runs as the same user, in /proc/PID/mem.
        sys::mount_setattr(proc.as_fd(), attr::RDONLY, false, None).during(SetupStep::MaskProc, "/proc")
    }

    /// Mounts six devices, a devpts instance and shared memory, and makes the usual links.
    pub(crate) fn mount_devices(&self) -> Result<(), SetupFailure> {
        for name in DEVICES {
            let device = clone_tree(&Path::new("/dev").join(name)).during(SetupStep::MountDevices, name)?;
            sys::mount_setattr(device.as_fd(), attr::NOSUID | attr::NOEXEC, false, None)
                .during(SetupStep::MountDevices, name)?;
            self.mount(&device, &Path::new("/dev").join(name)).during(SetupStep::MountDevices, name)?;
        }
        let options = [("ptmxmode", "0666"), ("mode", "620"), ("max", &MAX_TERMINALS.to_string())];
        let terminals = new_fs("devpts", &["newinstance"], &options).during(SetupStep::MountDevices, "pts")?;
        sys::mount_setattr(terminals.as_fd(), attr::NOSUID | attr::NOEXEC, false, None)
            .during(SetupStep::MountDevices, "pts")?;
        self.mount(&terminals, Path::new("/dev/pts")).during(SetupStep::MountDevices, "pts")?;
        self.expose("shm", "/dev/shm").during(SetupStep::MountDevices, "shm")?;
        let links = [
            ("/proc/self/fd", "dev/fd"),
            ("/proc/self/fd/0", "dev/stdin"),
            ("/proc/self/fd/1", "dev/stdout"),
            ("/proc/self/fd/2", "dev/stderr"),
            ("pts/ptmx", "dev/ptmx"),
        ];
        for (content, link) in links {
            symlinkat(content, &self.top, link).during(SetupStep::MountDevices, link)?;
        }
        Ok(())
    }

    /// Mounts the workspace at its path of the plan; with an overlay, returns the layer that holds changes.
    pub(crate) fn mount_workspace(
        &self,
        plan: &JailPlan,
        sources: &MountSources,
    ) -> Result<Option<OwnedFd>, SetupFailure> {
        let target = plan.workspace_at.as_path();
        let builder = OverlayBuilder { scratch: &self.scratch, at: SCRATCH, folder: "", owner: None };
        let at_target = |mounted: io::Result<()>| mounted.during(SetupStep::MountWorkspace, target.display());
        let upper = match (&plan.workspace, &sources.workspace) {
            (WorkspacePlan::Overlay { masks, covers, .. }, Some(lower)) => {
                let entries = MaskEntries { masks, covers };
                let (merged, upper) = builder.overlay(lower, entries).during(SetupStep::MountWorkspace, "overlay")?;
                at_target(self.mount(&merged, target))?;
                Some(upper)
            }
            (WorkspacePlan::ReadOnly { masks, covers, .. }, Some(lower)) if !masks.is_empty() || !covers.is_empty() => {
                let entries = MaskEntries { masks, covers };
                let merged = builder.masked(lower, entries).during(SetupStep::MountWorkspace, "overlay")?;
                at_target(self.mount(&merged, target))?;
                None
            }
            (WorkspacePlan::ReadOnly { .. }, Some(tree)) => {
                at_target(self.mount(tree, target))?;
                None
            }
            (WorkspacePlan::Bind { hidden, covers, protected, .. }, Some(tree)) => {
                at_target(self.mount(tree, target))?;
                let empty = clone_at(self.scratch.as_fd(), "empty", OpenTreeFlags::empty());
                let empty = empty.during(SetupStep::MountWorkspace, "empty")?;
                guard::protect(tree, protected).during(SetupStep::MountWorkspace, "fs.deny_write")?;
                guard::cover(tree, covers, &self.scratch).during(SetupStep::MountWorkspace, "fs.deny_read")?;
                guard::hide(tree, hidden, empty.as_fd()).during(SetupStep::MountWorkspace, "fs.deny_read")?;
                None
            }
            _ => {
                at_target(mkdirat(&self.scratch, "workspace", Mode::from_raw_mode(0o755)).map_err(Into::into))?;
                at_target(self.expose("workspace", target))?;
                None
            }
        };
        if target != Path::new(WORKSPACE) {
            symlinkat(target, &self.top, inside(Path::new(WORKSPACE))).during(SetupStep::MountWorkspace, WORKSPACE)?;
        }
        Ok(upper)
    }

    /// Returns the finished workspace for the host. Files opened through it are those that a command inside sees.
    pub(crate) fn open_workspace(&self, plan: &JailPlan) -> Result<OwnedFd, SetupFailure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.top, inside(&plan.workspace_at), flags, Mode::empty())
            .during(SetupStep::MountWorkspace, plan.workspace_at.display())
    }

    /// Returns the devpts instance, in which the host makes terminals.
    pub(crate) fn open_terminals(&self) -> Result<OwnedFd, SetupFailure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.top, "dev/pts", flags, Mode::empty()).during(SetupStep::MountDevices, "pts")
    }

    /// Makes the new root the only one, and read-only. The scratch space is unmounted with the host's tree, except for the
    /// directories that were exposed.
    pub(crate) fn enter(self) -> Result<(), SetupFailure> {
        rustix::process::fchdir(&self.top).during(SetupStep::PivotRoot, "/")?;
        rustix::process::pivot_root(".", ".").during(SetupStep::PivotRoot, "/")?;
        unmount(".", UnmountFlags::DETACH).during(SetupStep::PivotRoot, "old root")?;
        rustix::process::chdir("/").during(SetupStep::PivotRoot, "/")?;
        let root = openat(rustix::fs::CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .during(SetupStep::PivotRoot, "/")?;
        sys::mount_setattr(root.as_fd(), attr::RDONLY | attr::NOSUID | attr::NODEV, false, None)
            .during(SetupStep::PivotRoot, "/")
    }

    /// Covers an entry of /proc with an empty directory or an empty file.
    fn cover(&self, proc: &OwnedFd, name: &str) -> io::Result<()> {
        let kind = rustix::fs::statat(proc, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let cover = if rustix::fs::FileType::from_raw_mode(kind.st_mode).is_dir() {
            clone_at(self.scratch.as_fd(), "empty", OpenTreeFlags::empty())?
        } else {
            clone_tree(Path::new("/dev/null"))?
        };
        sys::mount_setattr(cover.as_fd(), attr::RDONLY, false, None)?;
        attach(&cover, proc, name)
    }

    /// Attaches `tree` at `target`, making the mount point first.
    fn mount(&self, tree: &OwnedFd, target: &Path) -> io::Result<()> {
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode);
        if kind.is_dir() {
            self.make_directory(target)?;
        } else {
            self.write_file(target, b"")?;
        }
        attach(tree, &self.top, inside(target))
    }

    /// Mounts a directory of the scratch space at `target`.
    fn expose(&self, name: &str, target: impl AsRef<Path>) -> io::Result<()> {
        let tree = clone_at(self.scratch.as_fd(), name, OpenTreeFlags::empty())?;
        sys::mount_setattr(tree.as_fd(), attr::NOSUID | attr::NODEV, false, None)?;
        self.mount(&tree, target.as_ref())
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.make_parents(path)?;
        match mkdirat(&self.top, inside(path), Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn make_parents(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) if parent.components().any(|part| matches!(part, Component::Normal(_))) => {
                if self.made.borrow().contains(parent) {
                    return Ok(());
                }
                self.make_directory(parent)?;
                self.made.borrow_mut().insert(parent.to_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.make_parents(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.top, inside(path), flags, Mode::from_raw_mode(0o644))?;
        std::fs::File::from(file).write_all(content)
    }
}

/// Returns `path` relative to the root. Plans hold absolute paths without `..`.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Stops mounts and unmounts from propagating between this mount namespace and the host's.
pub(crate) fn make_mounts_private() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

/// Attaches a detached mount.
pub(crate) fn attach(tree: impl AsFd, dir: impl AsFd, path: impl rustix::path::Arg) -> io::Result<()> {
    Ok(move_mount(tree, "", dir, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Returns a new instance of a file system, not yet attached.
pub(crate) fn new_fs(kind: &str, flags: &[&str], options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for flag in flags {
        fsconfig_set_flag(&context, *flag)?;
    }
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Returns a file system in memory with limits of bytes and files.
pub(crate) fn tmpfs(bytes: u64, inodes: u64, mode: u32) -> io::Result<OwnedFd> {
    let [(size, bytes), (nr_inodes, inodes)] = limits(bytes, inodes);
    new_fs("tmpfs", &[], &[(size, &bytes), (nr_inodes, &inodes), ("mode", &format!("{mode:o}"))])
}

/// Returns the mount options for the limits. A size of zero would mean no limit, so the values are at least one page and
/// one file.
fn limits(bytes: u64, inodes: u64) -> [(&'static str, String); 2] {
    [("size", bytes.max(4096).to_string()), ("nr_inodes", inodes.max(1).to_string())]
}

fn write_at(dir: impl AsFd, path: &str, content: &str) -> io::Result<()> {
    let file = openat(dir, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    std::fs::File::from(file).write_all(content.as_bytes())
}

/// Writes half of the value at `from` to `to`. A kernel that has no such limit needs none.
fn halve(dir: impl AsFd, to: &str, from: &str) -> io::Result<()> {
    let mut text = String::new();
    match openat(&dir, from, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => std::fs::File::from(file).read_to_string(&mut text)?,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let number: u64 = text.trim().parse().map_err(io::Error::other)?;
    write_at(dir, to, &(number / 2).to_string())
}

/// Returns a path descriptor, for Landlock rules.
pub(crate) fn open_path(path: &str) -> io::Result<OwnedFd> {
    Ok(openat(rustix::fs::CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}
