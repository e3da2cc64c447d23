//! A look from outside: is the finished sandbox what the plan said?
//!
//! The recipe stops at any step that fails, so nothing should ever be found here. It is looked for all the
//! same, before the first command runs: a defect in the recipe must not become a hole in the wall.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::cgroup::Cgroup;
use crate::kernel_text;

const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// The host's namespaces. Nobody here ever leaves them: they are looked up once.
static OURS: OnceLock<Result<Vec<PathBuf>, String>> = OnceLock::new();

/// Namespaces that every engine makes: most leave out the one of users, and some the one of control groups.
const GUEST_NAMESPACES: [&str; 5] = ["ipc", "mnt", "net", "pid", "uts"];

/// Whether a process sees the names of the host's control groups.
pub(crate) fn sees_cgroups(pid: i32) -> bool {
    check_namespaces(pid, &["cgroup"]).is_err()
}

/// Checks the process that is the kernel of a sandbox: what is inside is not the host's to look at. It keeps the
/// host's numbers of processes and what it needs to trace its own.
pub(crate) fn check_kernel(pid: i32) -> Result<(), String> {
    check_namespaces(pid, &["ipc", "mnt", "net", "uts"])?;
    let status = read(pid, "status")?;
    let says = |line: &str| status.lines().any(|found| found == line);
    if !says("Seccomp:\t2") || !says("NoNewPrivs:\t1") {
        return Err("the kernel of the sandbox is under no filter of system calls".to_owned());
    }
    Ok(())
}

/// Checks our init in a sandbox that an engine made; the error says what is not as planned.
pub(crate) fn check_guest(pid: i32) -> Result<(), String> {
    check_namespaces(pid, &GUEST_NAMESPACES)?;
    check_status(&read(pid, "status")?)
}

/// Checks the init of a sandbox; the error says what is not as planned.
pub(crate) fn check(pid: i32, group: Option<&Cgroup>) -> Result<(), String> {
    check_namespaces(pid, &NAMESPACES)?;
    let read = |file: &str| read(pid, file);
    check_status(&read("status")?)?;
    check_map(&read("uid_map")?)?;
    check_map(&read("gid_map")?)?;
    let groups = read("cgroup")?;
    let joined = |name: &str| groups.lines().filter(|line| line.ends_with(&format!("/{name}"))).count();
    match group.and_then(|group| group.names().next()) {
        Some(name) if joined(name) < group.map_or(0, |group| group.names().count()) => {
            Err("it is not in the control groups that limit it".to_owned())
        }
        _ => Ok(()),
    }
}

fn read(pid: i32, file: &str) -> Result<String, String> {
    kernel_text::read(format!("/proc/{pid}/{file}")).map_err(|error| format!("cannot read its {file}: {error}"))
}

/// Looks up what a sandbox is compared with; there is time for it while one is made.
pub(crate) fn look_around() {
    ours();
}

fn ours() -> &'static Result<Vec<PathBuf>, String> {
    OURS.get_or_init(|| namespaces("self"))
}

fn namespaces(process: &str) -> Result<Vec<PathBuf>, String> {
    let of = |name| fs::read_link(format!("/proc/{process}/ns/{name}"));
    NAMESPACES.iter().map(|name| of(name).map_err(|error| format!("namespace {name}: {error}"))).collect()
}

/// None of `kinds` may be the host's.
fn check_namespaces(pid: i32, kinds: &[&str]) -> Result<(), String> {
    let ours = ours().clone()?;
    let mut pairs = NAMESPACES.into_iter().zip(namespaces(&pid.to_string())?.into_iter().zip(ours));
    match pairs.find(|(name, (its, ours))| kinds.contains(name) && its == ours) {
        Some((name, _)) => Err(format!("it shares the host's {name} namespace")),
        None => Ok(()),
    }
}

fn check_status(status: &str) -> Result<(), String> {
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.map(str::trim).ok_or_else(|| format!("its status has no {key}"))
    };
    for key in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
        if value(key)?.bytes().any(|digit| digit != b'0') {
            return Err(format!("it holds capabilities ({key})"));
        }
    }
    if value("NoNewPrivs")? != "1" {
        return Err("it could gain privileges".to_owned());
    }
    if value("Seccomp")? != "2" {
        return Err("no system call filter is installed".to_owned());
    }
    if value("Uid")?.split_whitespace().any(|uid| uid == "0") {
        return Err("it is root on the host".to_owned());
    }
    Ok(())
}

/// One id inside, mapped to one that is not root.
fn check_map(map: &str) -> Result<(), String> {
    let fields: Vec<_> = map.split_whitespace().collect();
    match fields[..] {
        [_, outside, "1"] if outside != "0" => Ok(()),
        _ => Err(format!("its ids are mapped as `{}`", map.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Uid:\t7\t7\t7\t7\nCapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t0000\nCapAmb:\t0000\n\
                        NoNewPrivs:\t1\nSeccomp:\t2\n";

    #[test]
    fn a_tight_process_passes() {
        assert_eq!(check_status(GOOD), Ok(()));
        assert_eq!(check_map("      1000 1900000000          1\n"), Ok(()));
    }

    #[test]
    fn whatever_is_looser_does_not() {
        for (good, loose) in [
            ("CapEff:\t0000", "CapEff:\t0400"),
            ("CapBnd:\t0000", "CapBnd:\t01ff"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Uid:\t7\t7", "Uid:\t7\t0"),
            ("Seccomp:\t2\n", ""),
        ] {
            assert!(check_status(&GOOD.replace(good, loose)).is_err(), "{loose} passed");
        }
        for map in ["0 0 4294967295", "1000 0 1", "1000 100000 65536", ""] {
            assert!(check_map(map).is_err(), "{map} passed");
        }
    }

    #[test]
    fn a_process_of_the_host_does_not_pass() {
        let told = check(std::process::id().cast_signed(), None);
        assert_eq!(told, Err("it shares the host's cgroup namespace".to_owned()));
    }
}
