//! Changing the file tree: mounts, roots, and file handles that bypass both.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use crate::attack::{Attack, Control, Group::Fs, Verdict, program};
use crate::lead::Lead;
use crate::raw::{self, Arg};

pub(crate) fn attacks() -> Vec<Attack> {
    let alone = |attack: Attack| attack.shown(Control::Namespaced);
    vec![
        alone(program(Fs, "fs_mount", "mount a file system", mount)),
        alone(program(Fs, "fs_mount_bind", "bind a writable place over a read-only one", bind)),
        alone(program(Fs, "fs_mount_proc", "mount a /proc without covers", proc)),
        alone(program(Fs, "fs_mount_overlay", "mount an overlay over a read-only tree", overlay)),
        alone(program(Fs, "fs_remount", "make a read-only mount writable", remount)),
        alone(program(Fs, "fs_unmount", "take a cover off", unmount)),
        alone(program(Fs, "fs_move_mount", "move a mount elsewhere", move_mount)),
        alone(program(Fs, "fs_open_tree", "clone a tree by open_tree", open_tree)),
        alone(program(Fs, "fs_fsopen", "mount by fsopen and fsmount", fsopen)),
        alone(program(Fs, "fs_mount_setattr", "clear read-only by mount_setattr", setattr)),
        alone(program(Fs, "fs_chroot", "leave by chroot", chroot)),
        alone(program(Fs, "fs_pivot_root", "leave by pivot_root", pivot)),
        program(Fs, "fs_file_handle", "open a host file by handle", handle).shown(Control::Root),
    ]
}

/// A new directory to mount on.
fn place(lead: &Lead, name: &str) -> std::path::PathBuf {
    let path = lead.scratch(name);
    fs::create_dir_all(&path).expect("directory");
    path
}

fn tmpfs(on: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount("tmpfs", on, "tmpfs", MountFlags::empty(), None)?)
}

fn mount(lead: &Lead) -> Verdict {
    Verdict::of("tmpfs", tmpfs(&place(lead, "mount")))
}

fn bind(lead: &Lead) -> Verdict {
    let over = if lead.inside { "/etc".into() } else { place(lead, "over") };
    Verdict::of("bind", rustix::mount::mount_bind(place(lead, "mount"), over))
}

fn proc(lead: &Lead) -> Verdict {
    Verdict::of("proc", rustix::mount::mount("proc", place(lead, "mount"), "proc", MountFlags::empty(), None))
}

fn overlay(lead: &Lead) -> Verdict {
    let base = place(lead, "mount");
    tmpfs(&base).or_else(|error| if lead.inside { Ok(()) } else { Err(error) }).expect("own mount");
    let layers = ["lower", "upper", "work", "merged"].map(|name| base.join(name));
    for layer in &layers {
        fs::create_dir_all(layer).expect("directory");
    }
    let [lower, upper, work, merged] = layers.map(|layer| layer.display().to_string());
    let options = raw::text(format!("lowerdir={lower},upperdir={upper},workdir={work},userxattr"));
    Verdict::of("overlay", rustix::mount::mount("overlay", merged, "overlay", MountFlags::empty(), options.as_c_str()))
}

/// The control first creates its own read-only mount.
fn read_only_mount(lead: &Lead) -> std::path::PathBuf {
    if lead.inside {
        return "/usr".into();
    }
    let own = place(lead, "mount");
    rustix::mount::mount("tmpfs", &own, "tmpfs", MountFlags::RDONLY, None).expect("own mount");
    own
}

fn remount(lead: &Lead) -> Verdict {
    let own = read_only_mount(lead);
    Verdict::of("remount", rustix::mount::mount_remount(own, MountFlags::empty(), c""))
}

fn unmount(lead: &Lead) -> Verdict {
    let covers = if lead.inside {
        ["/proc/sys", "/proc/kcore", "/workspace", "/usr", "/tmp"].map(Into::into).to_vec()
    } else {
        vec![read_only_mount(lead)]
    };
    let tries = covers
        .into_iter()
        .map(|cover: std::path::PathBuf| Verdict::of("umount", rustix::mount::unmount(cover, UnmountFlags::DETACH)));
    Verdict::any(tries)
}

fn move_mount(lead: &Lead) -> Verdict {
    let from = read_only_mount(lead);
    let to = place(lead, "moved");
    let old = rustix::mount::mount_move(&from, &to);
    let new = rustix::mount::move_mount(CWD, &from, CWD, &to, MoveMountFlags::empty());
    Verdict::any([Verdict::of("mount", old), Verdict::of("move_mount", new)])
}

fn open_tree(lead: &Lead) -> Verdict {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Verdict::of("open_tree", rustix::mount::open_tree(CWD, lead.scratch(""), flags))
}

fn fsopen(_: &Lead) -> Verdict {
    let made = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
        rustix::mount::fsconfig_create(&context)?;
        rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
    });
    Verdict::of("fsmount", made)
}

fn setattr(lead: &Lead) -> Verdict {
    let own = read_only_mount(lead);
    let directory = rustix::fs::open(&own, OFlags::PATH, Mode::empty()).expect("open");
    // struct mount_attr: set, clear (MOUNT_ATTR_RDONLY), propagation, user namespace.
    let attributes: Vec<u8> = [0_u64, 1, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut arguments = [
        Arg::Number(directory.as_raw_fd().into()),
        Arg::Text(c""),
        Arg::Number(libc::AT_EMPTY_PATH.into()),
        Arg::Bytes(&attributes),
        Arg::Number(32),
    ];
    Verdict::of("mount_setattr", raw::call(libc::SYS_mount_setattr, &mut arguments))
}

fn chroot(lead: &Lead) -> Verdict {
    Verdict::of("chroot", rustix::process::chroot(place(lead, "root")))
}

fn pivot(lead: &Lead) -> Verdict {
    let root = place(lead, "root");
    if !lead.inside {
        tmpfs(&root).expect("own mount");
    }
    fs::create_dir_all(root.join("old")).expect("directory");
    Verdict::of("pivot_root", rustix::process::pivot_root(&root, root.join("old")))
}

fn handle(lead: &Lead) -> Verdict {
    let secret = lead.secret();
    // Inside, the secret has no name. Any file's handle will do, because handles can be guessed.
    let known = if lead.inside { Path::new("/usr/bin/env") } else { secret.as_path() };
    open_by_handle(known, known)
}

/// Opens the file handle of `wanted` through the mount of `mount`.
pub(super) fn open_by_handle(mount: &Path, wanted: &Path) -> Verdict {
    const MAX_HANDLE: u32 = 128;
    let mut handle = vec![0; 8 + MAX_HANDLE as usize];
    handle[..4].copy_from_slice(&MAX_HANDLE.to_ne_bytes());
    let mut mount_id = [0; 8];
    let path = raw::text(wanted);
    let named = raw::call(
        libc::SYS_name_to_handle_at,
        &mut [
            Arg::Number(libc::AT_FDCWD.into()),
            Arg::Text(&path),
            Arg::Buffer(&mut handle),
            Arg::Buffer(&mut mount_id),
            Arg::Number(0),
        ],
    );
    let opened = named.and_then(|_| {
        let directory = fs::File::open(mount)?;
        let mut arguments =
            [Arg::Number(directory.as_raw_fd().into()), Arg::Bytes(&handle), Arg::Number(libc::O_RDONLY.into())];
        raw::call(libc::SYS_open_by_handle_at, &mut arguments)
    });
    Verdict::of("open_by_handle_at", opened.map(raw::own))
}
