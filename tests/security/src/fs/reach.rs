//! Reaching host files by name, by link, and by open descriptors.

use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::attack::{Attack, Group::Fs, Verdict, Walls, program};
use crate::lead::Lead;
use crate::raw;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Fs, "fs_absolute_path", "read a host file by its path", absolute_path),
        program(Fs, "fs_dot_dot", "climb out of the workspace with `..`", dot_dot),
        program(Fs, "fs_symlink_read", "read through a symbolic link that leaves", symlink_read),
        program(Fs, "fs_symlink_write", "write through a symbolic link that leaves", symlink_write),
        program(Fs, "fs_symlink_planted", "follow a link that is in the repository already", symlink_planted),
        program(Fs, "fs_hard_link", "link a host file into the workspace", hard_link),
        program(Fs, "fs_hard_link_shared", "write a file that has a second name outside", hard_link_shared),
        program(Fs, "fs_shared_mapping", "write it through a shared mapping", shared_mapping),
        program(Fs, "fs_truncate", "truncate it by name", truncate),
        program(Fs, "fs_read_only_places", "write where programs are", read_only_places),
        program(Fs, "fs_own_program", "write into the mounted program of the agent", own_program),
        program(Fs, "fs_open_descriptors", "use descriptors the host left open (10 and 251)", open_descriptors),
        program(Fs, "fs_open_directory", "walk out through a directory the host left open", open_directory),
        program(Fs, "fs_tmp", "leave a file in the host's /tmp", leave_in_tmp).harming(found_in_tmp),
        program(Fs, "fs_shm", "leave a file in the host's /dev/shm", leave_in_shm).harming(found_in_shm),
        program(Fs, "fs_metadata", "change mode and times of a host file", metadata).harming(mode_changed),
        program(Fs, "fs_symlink_write_bound", "the same with the workspace bound, not layered", symlink_write)
            .behind(Walls::Bound),
        program(Fs, "fs_sys", "read and write /sys", sys),
    ]
}

fn read(path: impl AsRef<Path>) -> Verdict {
    let path = path.as_ref();
    match fs::read_to_string(path) {
        Ok(text) => Verdict::Succeeded(format!("{}: {text}", path.display())),
        Err(error) => Verdict::Blocked(format!("{}: {error}", path.display())),
    }
}

/// Appends, because the file may exist and not be replaceable.
fn append(path: &Path) -> io::Result<()> {
    io::Write::write_all(&mut fs::OpenOptions::new().append(true).open(path)?, b"attacked\n")
}

fn absolute_path(lead: &Lead) -> Verdict {
    read(lead.secret())
}

fn dot_dot(lead: &Lead) -> Verdict {
    let mut path = lead.workspace.clone();
    path.extend([".."; 40]);
    read(path.join(lead.secret().strip_prefix("/").expect("absolute")))
}

fn symlink_read(lead: &Lead) -> Verdict {
    let link = lead.work("link");
    symlink(lead.secret(), &link).expect("link");
    read(link)
}

fn symlink_write(lead: &Lead) -> Verdict {
    let link = lead.work("link");
    symlink(lead.target(), &link).expect("link");
    Verdict::of("append", append(&link))
}

fn symlink_planted(lead: &Lead) -> Verdict {
    let way_out = lead.work("way-out");
    Verdict::any([read(way_out.join("home/.ssh/id_ed25519")), Verdict::of("append", append(&way_out.join("target")))])
}

fn hard_link(lead: &Lead) -> Verdict {
    let link = lead.work("stolen");
    match fs::hard_link(lead.secret(), &link) {
        Ok(()) => read(link),
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

/// Inside, the overlay takes the write. The host checks whether the other name changed.
fn unseen(result: io::Result<()>) -> Verdict {
    Verdict::Blocked(format!("the host will see ({result:?})"))
}

fn hard_link_shared(lead: &Lead) -> Verdict {
    unseen(append(&lead.work("shared")))
}

fn shared_mapping(lead: &Lead) -> Verdict {
    let file = fs::OpenOptions::new().read(true).write(true).open(lead.work("shared"));
    unseen(file.and_then(|file| raw::write_through_mapping(&file, b"took")))
}

fn truncate(lead: &Lead) -> Verdict {
    unseen(fs::OpenOptions::new().write(true).truncate(true).open(lead.work("shared")).map(drop))
}

fn read_only_places(lead: &Lead) -> Verdict {
    let places: Vec<PathBuf> = if lead.inside {
        ["/", "/usr", "/usr/bin", "/bin", "/lib", "/etc", "/proc", "/dev", "/run", "/run/attack", "/home"]
            .map(PathBuf::from)
            .into()
    } else {
        vec![lead.outside.clone()]
    };
    let known = if lead.inside { "/etc/passwd".into() } else { lead.target() };
    let made = places.iter().map(|place| Verdict::of("create", fs::write(place.join("planted"), "x")));
    Verdict::any(made.chain([Verdict::of("append", append(&known))]))
}

fn own_program(lead: &Lead) -> Verdict {
    // A running program cannot be opened for writing, even on the host; its name can be replaced there.
    let program = if lead.inside { PathBuf::from(crate::stage::PROGRAM) } else { lead.work("README.md") };
    let replaced = fs::rename(&program, program.with_extension("gone"));
    Verdict::any([Verdict::of("rename", replaced), Verdict::of("remove", fs::remove_file(&program))])
}

fn open_descriptors(_: &Lead) -> Verdict {
    // The attack's output uses 1 and 2; all higher descriptors belong to others.
    let open = raw::open_descriptors();
    let mut text = String::new();
    for descriptor in &open {
        let mut bytes = [0; 64];
        let file = raw::borrow(*descriptor).try_clone_to_owned().map(fs::File::from);
        if let Ok(count) = file.and_then(|file| file.read_at(&mut bytes, 0)) {
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }
    Verdict::when(!open.is_empty(), format!("{open:?} are open: {text}"))
}

fn open_directory(lead: &Lead) -> Verdict {
    let secret = lead.secret();
    let relative = secret.strip_prefix("/").expect("absolute");
    let tries = raw::open_descriptors().into_iter().map(|descriptor| {
        let opened = rustix::fs::openat(raw::borrow(descriptor).as_fd(), relative, OFlags::RDONLY, Mode::empty());
        let mut text = String::new();
        let read = opened.map_err(io::Error::from).and_then(|file| fs::File::from(file).read_to_string(&mut text));
        Verdict::of(&text, read)
    });
    Verdict::any(tries)
}

fn name_of(outside: &Path) -> String {
    let scene = outside.parent().and_then(Path::file_name).unwrap_or_default();
    format!("viv-planted-{}", scene.display())
}

fn leave_in_tmp(lead: &Lead) -> Verdict {
    unseen(fs::write(Path::new("/tmp").join(name_of(&lead.outside)), "x"))
}

fn leave_in_shm(lead: &Lead) -> Verdict {
    unseen(fs::write(Path::new("/dev/shm").join(name_of(&lead.outside)), "x"))
}

fn found(directory: &str, scene: &crate::scene::Scene) -> Option<String> {
    let path = Path::new(directory).join(name_of(&scene.outside()));
    fs::remove_file(&path).is_ok().then(|| format!("{} was there", path.display()))
}

fn found_in_tmp(scene: &crate::scene::Scene, _: Option<&sandbox::OverlayLayers>) -> Option<String> {
    found("/tmp", scene)
}

fn found_in_shm(scene: &crate::scene::Scene, _: Option<&sandbox::OverlayLayers>) -> Option<String> {
    found("/dev/shm", scene)
}

fn metadata(lead: &Lead) -> Verdict {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    unseen(fs::set_permissions(lead.work("README.md"), mode))
}

fn mode_changed(scene: &crate::scene::Scene, _: Option<&sandbox::OverlayLayers>) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let mode = fs::metadata(scene.workspace().join("README.md")).map(|data| data.mode() & 0o777).unwrap_or_default();
    (mode == 0o777).then(|| "the mode of a host file changed".into())
}

fn sys(_: &Lead) -> Verdict {
    Verdict::any(
        ["/sys/kernel/notes", "/sys/class/net/lo/address", "/sys/fs/cgroup", "/sys/kernel/debug"]
            .map(|path| Verdict::of(path, fs::metadata(path))),
    )
}
