//! Files in the workspace that act later, or that the kernel treats specially.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use policy::Action;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use sandbox::{ApplyOptions, OverlayLayers, SavedChanges};

use crate::attack::{Attack, Control, Group::Fs, Verdict, Walls, program};
use crate::lead::Lead;
use crate::raw::{self, Arg};
use crate::scene::Scene;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Fs, "fs_hook", "have a git hook applied that did not exist yet", hook).harming(hook_is_there),
        program(Fs, "fs_editor_config", "have settings of editors and agents applied that did not exist yet", editor)
            .harming(settings_are_there),
        program(Fs, "fs_editor_nested", "the same in a directory below, which is opened like any other", editor_nested)
            .harming(nested_settings_are_there),
        program(Fs, "fs_setuid_run", "run a program that changes who one is", setuid_run),
        program(Fs, "fs_setuid_chmod", "leave a setuid program on the host by chmod", setuid_chmod)
            .behind(Walls::Bound)
            .harming(setuid_is_there),
        program(Fs, "fs_setuid_create", "the same by the mode of open, mkdir and mknod", setuid_create)
            .behind(Walls::Bound)
            .harming(setuid_is_there),
        program(Fs, "fs_setuid_openat2", "the same by openat2, whose mode is behind a pointer", setuid_openat2)
            .behind(Walls::Bound)
            .harming(setuid_is_there),
        program(Fs, "fs_device_make", "make a device node", make_device).shown(Control::Root),
        program(Fs, "fs_device_planted", "open a device node of the repository", planted_device)
            .shown(Control::Probe(device_probe, "only root can plant one, so others read /dev/zero")),
        program(Fs, "fs_devices", "find a device beyond the six", devices),
        program(Fs, "fs_overlay_xattr", "steer the overlay by its own attributes", overlay_attributes)
            .harming(attributes_are_there),
        program(Fs, "fs_whiteout", "forge a whiteout, to hide a host file from review", whiteout).shown(Control::Root),
    ]
}

pub(super) fn unseen(result: &io::Result<()>) -> Verdict {
    Verdict::Blocked(format!("the host will see ({result:?})"))
}

fn write_with_parents(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path.parent().expect("parent"))?;
    fs::write(path, "#!/bin/sh\necho owned\n")?;
    fs::set_permissions(path, PermissionsExt::from_mode(0o755))
}

/// Changes to unprotected paths, which the review must allow.
pub(super) const PLAIN: &str = "notes.txt";

/// Applies every change that the review allows, one by one.
pub(super) fn review(scene: &Scene, layers: Option<&OverlayLayers>) {
    let Some(layers) = layers else { return };
    let mut saved = SavedChanges::save_final(layers, &scene.outside().join("saved")).expect("save");
    let policy = crate::stage::policy(Walls::Usual);
    let denying = |path: &Path| {
        let decision = policy.decide(&Action::Write(Path::new("/workspace").join(path)));
        (!decision.is_allowed()).then_some(decision.rule)
    };
    let paths: Vec<_> = saved.changes().map(|change| change.path.clone()).collect();
    for path in &paths {
        // The check afterwards searches for the refused changes.
        let _ = sandbox::apply(&mut saved, &scene.workspace(), &ApplyOptions::only([path]), &denying);
    }
    assert!(scene.workspace().join(PLAIN).exists(), "the review lets nothing through");
}

fn hook(lead: &Lead) -> Verdict {
    let plain = fs::write(lead.work(PLAIN), "x");
    unseen(&plain.and_then(|()| write_with_parents(&lead.work(".git/hooks/post-commit"))))
}

fn hook_is_there(scene: &Scene, layers: Option<&OverlayLayers>) -> Option<String> {
    review(scene, layers);
    scene.workspace().join(".git/hooks/post-commit").exists().then(|| "the hook is on the host".into())
}

const SETTINGS: [&str; 4] = [".vscode/tasks.json", ".mcp.json", ".claude/settings.json", "sandbox.policy.yaml"];

/// Paths below `other`, which exists on the host.
const NESTED: [&str; 12] = [
    "other/.vscode/tasks.json",
    "other/.claude/settings.json",
    "other/.mcp.json",
    "other/.envrc",
    "other/.cursor/mcp.json",
    "other/.devcontainer/devcontainer.json",
    "other/.zed/tasks.json",
    "other/.idea/workspace.xml",
    "other/.gemini/settings.json",
    "other/.exrc",
    "other/new/.opencode/opencode.json",
    "other/new/sandbox.policy.yaml",
];

fn editor(lead: &Lead) -> Verdict {
    write_settings(lead, &SETTINGS)
}

fn editor_nested(lead: &Lead) -> Verdict {
    write_settings(lead, &NESTED)
}

fn write_settings(lead: &Lead, names: &[&str]) -> Verdict {
    let plain = fs::write(lead.work(PLAIN), "x");
    unseen(&plain.and_then(|()| names.iter().try_for_each(|name| write_with_parents(&lead.work(name)))))
}

fn settings_are_there(scene: &Scene, layers: Option<&OverlayLayers>) -> Option<String> {
    are_there(scene, layers, &SETTINGS)
}

fn nested_settings_are_there(scene: &Scene, layers: Option<&OverlayLayers>) -> Option<String> {
    are_there(scene, layers, &NESTED)
}

fn are_there(scene: &Scene, layers: Option<&OverlayLayers>, names: &[&str]) -> Option<String> {
    review(scene, layers);
    let found: Vec<_> = names.iter().filter(|name| scene.workspace().join(name).exists()).collect();
    (!found.is_empty()).then(|| format!("{found:?} are on the host"))
}

/// Runs a planted file of another owner, which only root can create, and the system's `su`, which has no effect for
/// root.
fn setuid_run(lead: &Lead) -> Verdict {
    let own = rustix::process::geteuid().as_raw().to_string();
    let planted = Command::new(lead.work("setuid")).arg("__euid").output();
    let planted = planted.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    Verdict::any([
        Verdict::when(planted.as_ref().is_ok_and(|id| *id != own && !id.is_empty()), format!("planted: {planted:?}")),
        Verdict::when(!rustix::process::geteuid().is_root() && su_is_root(), "su"),
    ])
}

/// Returns whether `su` is root while it waits for a password.
fn su_is_root() -> bool {
    let su = Command::new("su").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(mut su) = su else { return false };
    // `su` prints `Password:` after its start.
    let _ = su.stderr.take().map(|mut stderr| stderr.read(&mut [0; 1]));
    let status = fs::read_to_string(format!("/proc/{}/status", su.id())).unwrap_or_default();
    let _ = su.kill();
    let _ = su.wait();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    ids.split_whitespace().nth(1) == Some("0")
}

fn setuid_chmod(lead: &Lead) -> Verdict {
    let made = fs::write(lead.work("left"), "#!/bin/sh\n");
    let modes = [0o4755, 0o2755].map(|mode| {
        let path = raw::text(lead.work("left"));
        let plain = raw::call(libc::SYS_chmod, &mut [Arg::Text(&path), Arg::Number(mode)]);
        let at = raw::call(
            libc::SYS_fchmodat,
            &mut [Arg::Number(libc::AT_FDCWD.into()), Arg::Text(&path), Arg::Number(mode)],
        );
        let at_with_flags = raw::call(
            libc::SYS_fchmodat2,
            &mut [Arg::Number(libc::AT_FDCWD.into()), Arg::Text(&path), Arg::Number(mode), Arg::Number(0)],
        );
        let open = fs::File::open(lead.work("left")).and_then(|file| {
            fs::set_permissions(lead.work("left"), PermissionsExt::from_mode(u32::try_from(mode).unwrap_or(0)))?;
            file.set_permissions(PermissionsExt::from_mode(u32::try_from(mode).unwrap_or(0)))
        });
        format!("{plain:?} {at:?} {at_with_flags:?} {open:?}")
    });
    Verdict::Blocked(format!("the host will see ({made:?} {modes:?})"))
}

fn setuid_create(lead: &Lead) -> Verdict {
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o4755).open(lead.work("left"));
    let path = raw::text(lead.work("left-2"));
    let created = raw::call(libc::SYS_creat, &mut [Arg::Text(&path), Arg::Number(0o4755)]);
    let path = raw::text(lead.work("left-3"));
    let regular = Arg::Number(i64::from(libc::S_IFREG | 0o4755));
    let node = raw::call(libc::SYS_mknod, &mut [Arg::Text(&path), regular, Arg::Number(0)]);
    Verdict::Blocked(format!("the host will see ({opened:?} {created:?} {node:?})"))
}

fn setuid_openat2(lead: &Lead) -> Verdict {
    let path = raw::text(lead.work("left"));
    // struct open_how: flags, mode, resolve.
    let flags = (libc::O_CREAT | libc::O_WRONLY) as u64;
    let how: Vec<u8> = [flags, 0o4755, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut arguments = [Arg::Number(libc::AT_FDCWD.into()), Arg::Text(&path), Arg::Bytes(&how), Arg::Number(24)];
    let opened = raw::call(libc::SYS_openat2, &mut arguments);
    Verdict::Blocked(format!("the host will see ({opened:?})"))
}

fn setuid_is_there(scene: &Scene, _: Option<&OverlayLayers>) -> Option<String> {
    let left = ["left", "left-2", "left-3"].into_iter().find(|name| {
        let file = fs::metadata(scene.workspace().join(name));
        file.is_ok_and(|data| data.mode() & 0o6000 != 0)
    });
    left.map(|name| format!("`{name}` on the host is setuid"))
}

fn make_device(lead: &Lead) -> Verdict {
    let zero = rustix::fs::makedev(1, 5);
    let places = [lead.work("made"), lead.scratch("made")];
    Verdict::any(places.map(|path| {
        let made = rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), zero);
        Verdict::of("mknod and open", made.map_err(io::Error::from).and_then(|()| read_zero(&path)))
    }))
}

fn read_zero(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.read_exact(&mut [1; 8])
}

fn planted_device(lead: &Lead) -> Verdict {
    Verdict::of("read", read_zero(&lead.work("device")))
}

fn device_probe(lead: &Lead) -> Verdict {
    let device = lead.work("device");
    Verdict::of("read", read_zero(if device.exists() { &device } else { Path::new("/dev/zero") }))
}

fn devices(_: &Lead) -> Verdict {
    const GIVEN: [&str; 13] =
        ["null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr", "ptmx", "pts", "shm"];
    // Not device nodes, but entries that container engines create: a link to a masked file of /proc, and the message
    // queues of the own IPC namespace.
    const NONE: [&str; 2] = ["core", "mqueue"];
    let listed = fs::read_dir("/dev").expect("/dev").flatten();
    let names = listed.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let more: Vec<_> = names.filter(|name| !GIVEN.iter().chain(&NONE).any(|known| known == name)).collect();
    let known = ["mem", "kmsg", "kvm", "fuse", "net/tun", "loop-control", "vsock", "userfaultfd"];
    let opened = known.iter().find(|name| fs::File::open(Path::new("/dev").join(name)).is_ok());
    Verdict::when(!more.is_empty() || opened.is_some(), format!("{more:?} {opened:?}"))
}

const ATTRIBUTES: [&str; 3] = ["user.overlay.opaque", "user.overlay.redirect", "user.overlay.metacopy"];

fn overlay_attributes(lead: &Lead) -> Verdict {
    let set = ATTRIBUTES.map(|name| rustix::fs::setxattr(lead.work("other"), name, b"/conf", XattrFlags::empty()));
    let seen = fs::read_to_string(lead.work("other/.env"));
    Verdict::any([Verdict::of("redirected", seen), Verdict::Blocked(format!("the host will see ({set:?})"))])
}

/// Returns the path in the overlay layer, or in the workspace itself.
fn attributes_are_there(scene: &Scene, layers: Option<&OverlayLayers>) -> Option<String> {
    let workspace = scene.workspace();
    let path = match layers {
        None => workspace.join("other"),
        Some(layers) => {
            let upper = std::os::fd::AsRawFd::as_raw_fd(&*layers.upper);
            format!("/proc/self/fd/{upper}/other").into()
        }
    };
    let found = ATTRIBUTES.into_iter().find(|name| {
        let mut value = [0; 16];
        rustix::fs::getxattr(&path, *name, &mut value).is_ok_and(|length| &value[..length] == b"/conf")
    });
    found.map(|name| format!("`{name}` is set"))
}

fn whiteout(lead: &Lead) -> Verdict {
    let nothing = rustix::fs::makedev(0, 0);
    let path = lead.work("forged");
    Verdict::of("mknod", rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), nothing))
}
