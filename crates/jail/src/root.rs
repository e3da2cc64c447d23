//! The private root: what exists inside, mount by mount.
//!
//! Everything is attached by descriptor under a fresh tmpfs that only this process has seen, so no name
//! the sandbox could have planted is ever followed. The host's tree is gone when `enter` returns.

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

use crate::error::{During, Failure, SetupStep};
use crate::guard;
use crate::layering::Layering;
use crate::plan::{JailPlan, WorkspacePlan};
use crate::source::{Sources, clone_at, clone_tree};
use crate::sys::{self, attr};

/// Where the writable space is attached while the root is built in it: in the host's tree, which goes as a whole
/// when the root is entered. To unmount anything waits for every processor, so it is done once. It is over the
/// host's /proc, where nobody's workspace is: without root, what a plan names is opened after this.
const SCRATCH: &str = "/proc";
/// Devices that give nothing away; everything else of /dev does not exist inside.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// How many watchers of files a namespace may have, and where the number for one user of the machine stands.
const WATCHING: [(&str, &str); 2] = [
    ("sys/user/max_inotify_instances", "sys/fs/inotify/max_user_instances"),
    ("sys/user/max_inotify_watches", "sys/fs/inotify/max_user_watches"),
];
/// Parts of /proc that speak of the host: its keys, its memory, its boot, what its people type.
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

/// A root under construction.
pub(crate) struct Root {
    /// The top of the new tree.
    top: OwnedFd,
    /// The one size-limited file system that everything writable lies on.
    scratch: OwnedFd,
    /// Directories that were made for something to stand in: most things stand in one of two.
    made: RefCell<BTreeSet<PathBuf>>,
}

impl Root {
    /// Parts our mounts from the host's and attaches an empty root in the writable space.
    pub(crate) fn start() -> Result<Self, Failure> {
        part_from_host().during(SetupStep::PrivateMounts, "/")?;

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

    /// Gives the writable space the size of the plan.
    pub(crate) fn resize(&self, plan: &JailPlan) -> Result<(), Failure> {
        let resize = || -> io::Result<()> {
            let context = fspick(&self.scratch, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
            for (key, value) in limits(plan.disk_bytes, plan.disk_inodes) {
                fsconfig_set_string(&context, key, value)?;
            }
            Ok(fsconfig_reconfigure(&context)?)
        };
        resize().during(SetupStep::Scratch, "size")
    }

    /// Shows the host paths of the plan, its links and its files.
    pub(crate) fn fill(&self, plan: &JailPlan, sources: &Sources) -> Result<(), Failure> {
        for (tree, target) in &sources.binds {
            self.mount(tree, target).during(SetupStep::MountSystem, target.display())?;
        }
        for (link, content) in &plan.links {
            self.parents(link).during(SetupStep::PlaceFiles, link.display())?;
            symlinkat(content, &self.top, inside(link)).during(SetupStep::PlaceFiles, link.display())?;
        }
        // Last, so that a file can be placed in the home too; nothing runs inside yet that could be in the way.
        for (path, content) in &plan.files {
            self.place(path, content).during(SetupStep::PlaceFiles, path.display())?;
        }
        Ok(())
    }

    /// A /proc of our own PID namespace, with what speaks of the host covered and sysctls read-only.
    pub(crate) fn mount_proc(&self) -> Result<(), Failure> {
        let proc = new_fs("proc", &[], &[]).during(SetupStep::MountProc, "/proc")?;
        sys::mount_setattr(proc.as_fd(), attr::NOSUID | attr::NODEV | attr::NOEXEC, false, None)
            .during(SetupStep::MountProc, "/proc")?;
        self.mount(&proc, Path::new("/proc")).during(SetupStep::MountProc, "/proc")?;

        // Forbidding nested user namespaces closes most of the kernel's attack surface for good. It is
        // written before sysctls become read-only, and counts for this namespace only.
        write_at(&proc, "sys/user/max_user_namespaces", "0").during(SetupStep::ForbidNesting, "max_user_namespaces")?;

        // What watches files is counted for whoever started the sandbox as well, who is to keep half of it.
        for (own, all) in WATCHING {
            halve(&proc, own, all).during(SetupStep::ForbidNesting, own)?;
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
        Ok(())
    }

    /// Six devices, terminals of our own, shared memory, and the usual links.
    pub(crate) fn mount_devices(&self) -> Result<(), Failure> {
        for name in DEVICES {
            let device = clone_tree(&Path::new("/dev").join(name)).during(SetupStep::MountDevices, name)?;
            sys::mount_setattr(device.as_fd(), attr::NOSUID | attr::NOEXEC, false, None)
                .during(SetupStep::MountDevices, name)?;
            self.mount(&device, &Path::new("/dev").join(name)).during(SetupStep::MountDevices, name)?;
        }
        let terminals = new_fs("devpts", &["newinstance"], &[("ptmxmode", "0666"), ("mode", "620")])
            .during(SetupStep::MountDevices, "pts")?;
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

    /// The workspace at `/workspace`; with an overlay, also a descriptor of the layer that holds changes.
    pub(crate) fn mount_workspace(&self, plan: &WorkspacePlan, sources: &Sources) -> Result<Option<OwnedFd>, Failure> {
        let target = Path::new(WORKSPACE);
        let layering = Layering { scratch: &self.scratch, at: SCRATCH, owner: None };
        match (plan, &sources.workspace) {
            (WorkspacePlan::Overlay { masks, .. }, Some(lower)) => {
                let (merged, upper) = layering.overlay(lower, masks).during(SetupStep::MountWorkspace, "overlay")?;
                self.mount(&merged, target).during(SetupStep::MountWorkspace, WORKSPACE)?;
                Ok(Some(upper))
            }
            (WorkspacePlan::ReadOnly { masks, .. }, Some(lower)) if !masks.is_empty() => {
                let merged = layering.masked(lower, masks).during(SetupStep::MountWorkspace, "overlay")?;
                self.mount(&merged, target).during(SetupStep::MountWorkspace, WORKSPACE)?;
                Ok(None)
            }
            (WorkspacePlan::ReadOnly { .. }, Some(tree)) => {
                self.mount(tree, target).during(SetupStep::MountWorkspace, WORKSPACE)?;
                Ok(None)
            }
            (WorkspacePlan::Bind { hidden, kept, .. }, Some(tree)) => {
                self.mount(tree, target).during(SetupStep::MountWorkspace, WORKSPACE)?;
                let empty = clone_at(self.scratch.as_fd(), "empty", OpenTreeFlags::empty());
                let empty = empty.during(SetupStep::MountWorkspace, "empty")?;
                guard::keep(tree, kept).during(SetupStep::MountWorkspace, "fs.deny_write")?;
                guard::hide(tree, hidden, empty.as_fd()).during(SetupStep::MountWorkspace, "fs.deny_read")?;
                Ok(None)
            }
            _ => {
                mkdirat(&self.scratch, "workspace", Mode::from_raw_mode(0o755))
                    .during(SetupStep::MountWorkspace, WORKSPACE)?;
                self.expose("workspace", WORKSPACE).during(SetupStep::MountWorkspace, WORKSPACE)?;
                Ok(None)
            }
        }
    }

    /// The finished workspace, for the host: what is opened through it is what a command inside would see.
    pub(crate) fn open_workspace(&self) -> Result<OwnedFd, Failure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.top, inside(Path::new(WORKSPACE)), flags, Mode::empty())
            .during(SetupStep::MountWorkspace, WORKSPACE)
    }

    /// Where terminals inside are made, for the host.
    pub(crate) fn open_terminals(&self) -> Result<OwnedFd, Failure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.top, "dev/pts", flags, Mode::empty()).during(SetupStep::MountDevices, "pts")
    }

    /// Makes the new root the only one, and read-only. The scratch space goes with the host's tree, but for
    /// the places that were exposed.
    pub(crate) fn enter(self) -> Result<(), Failure> {
        rustix::process::fchdir(&self.top).during(SetupStep::PivotRoot, "/")?;
        rustix::process::pivot_root(".", ".").during(SetupStep::PivotRoot, "/")?;
        unmount(".", UnmountFlags::DETACH).during(SetupStep::PivotRoot, "old root")?;
        rustix::process::chdir("/").during(SetupStep::PivotRoot, "/")?;
        let root = openat(rustix::fs::CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .during(SetupStep::PivotRoot, "/")?;
        sys::mount_setattr(root.as_fd(), attr::RDONLY | attr::NOSUID | attr::NODEV, false, None)
            .during(SetupStep::PivotRoot, "/")
    }

    /// Covers a part of /proc with nothing: an empty directory, or a file that is always empty.
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

    /// Attaches `tree` at `target`, making a directory or file there to stand on.
    fn mount(&self, tree: &OwnedFd, target: &Path) -> io::Result<()> {
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode);
        if kind.is_dir() {
            self.mkdir(target)?;
        } else {
            self.place(target, b"")?;
        }
        attach(tree, &self.top, inside(target))
    }

    /// Shows a directory of the scratch space at `target`.
    fn expose(&self, name: &str, target: &str) -> io::Result<()> {
        let tree = clone_at(self.scratch.as_fd(), name, OpenTreeFlags::empty())?;
        sys::mount_setattr(tree.as_fd(), attr::NOSUID | attr::NODEV, false, None)?;
        self.mount(&tree, Path::new(target))
    }

    fn mkdir(&self, path: &Path) -> io::Result<()> {
        self.parents(path)?;
        match mkdirat(&self.top, inside(path), Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn parents(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) if parent.components().any(|part| matches!(part, Component::Normal(_))) => {
                if self.made.borrow().contains(parent) {
                    return Ok(());
                }
                self.mkdir(parent)?;
                self.made.borrow_mut().insert(parent.to_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn place(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.top, inside(path), flags, Mode::from_raw_mode(0o644))?;
        std::fs::File::from(file).write_all(content)
    }
}

/// `path` relative to the root; plans hold absolute paths without `..`.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// From here on nothing that is mounted or unmounted on one side is seen on the other.
pub(crate) fn part_from_host() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

/// Attaches a detached mount.
pub(crate) fn attach(tree: impl AsFd, dir: impl AsFd, path: impl rustix::path::Arg) -> io::Result<()> {
    Ok(move_mount(tree, "", dir, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// A new instance of a file system, not yet attached.
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

/// A file system in memory, with at most so many bytes and files.
pub(crate) fn tmpfs(bytes: u64, inodes: u64, mode: u32) -> io::Result<OwnedFd> {
    let [(size, bytes), (nr_inodes, inodes)] = limits(bytes, inodes);
    new_fs("tmpfs", &[], &[(size, &bytes), (nr_inodes, &inodes), ("mode", &format!("{mode:o}"))])
}

/// A size of zero would mean no limit at all.
fn limits(bytes: u64, inodes: u64) -> [(&'static str, String); 2] {
    [("size", bytes.max(4096).to_string()), ("nr_inodes", inodes.max(1).to_string())]
}

fn write_at(dir: impl AsFd, path: &str, content: &str) -> io::Result<()> {
    let file = openat(dir, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    std::fs::File::from(file).write_all(content.as_bytes())
}

/// Writes half of what stands at `all` to `own`. A kernel that has neither has nothing to be used up.
fn halve(dir: impl AsFd, own: &str, all: &str) -> io::Result<()> {
    let mut text = String::new();
    match openat(&dir, all, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => std::fs::File::from(file).read_to_string(&mut text)?,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let number: u64 = text.trim().parse().map_err(io::Error::other)?;
    write_at(dir, own, &(number / 2).to_string())
}

/// A borrowed descriptor of the current directory's root, for Landlock rules.
pub(crate) fn open_path(path: &str) -> io::Result<OwnedFd> {
    Ok(openat(rustix::fs::CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}
