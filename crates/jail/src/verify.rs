//! Verification from outside that a finished sandbox is as planned.
//!
//! The recipe stops at any step that fails, so these checks should always pass. They run before the first command, so
//! that a defect in the recipe does not become an escape.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::cgroup::Cgroup;
use crate::kernel_text;

const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// The host's namespaces, which never change. Read once.
static HOST_NAMESPACES: OnceLock<Result<Vec<PathBuf>, String>> = OnceLock::new();

/// Namespaces that every engine makes. Most engines make no user namespace, and some no cgroup namespace.
const CONTAINER_NAMESPACES: [&str; 5] = ["ipc", "mnt", "net", "pid", "uts"];

/// Returns whether a process sees the names of the host's cgroups.
pub(crate) fn sees_cgroups(pid: i32) -> bool {
    check_namespaces(pid, &["cgroup"]).is_err()
}

/// Checks the process that is a container's own kernel. Processes inside it cannot be checked from the host. It stays in
/// the host's PID namespace and keeps the capabilities that it needs to trace its processes.
pub(crate) fn check_own_kernel(pid: i32) -> Result<(), String> {
    check_namespaces(pid, &["ipc", "mnt", "net", "uts"])?;
    let status = read(pid, "status")?;
    let has_line = |line: &str| status.lines().any(|found| found == line);
    if !has_line("Seccomp:\t2") || !has_line("NoNewPrivs:\t1") {
        return Err("the container's own kernel runs without a system call filter".to_owned());
    }
    Ok(())
}

/// Checks the init of a container; the error says what is not as planned.
pub(crate) fn check_container_init(pid: i32) -> Result<(), String> {
    check_namespaces(pid, &CONTAINER_NAMESPACES)?;
    check_status(&read(pid, "status")?)
}

/// Checks the init of a jail; the error says what is not as planned.
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
            Err("init is not in the cgroups that limit it".to_owned())
        }
        _ => Ok(()),
    }
}

fn read(pid: i32, file: &str) -> Result<String, String> {
    kernel_text::read(format!("/proc/{pid}/{file}")).map_err(|error| format!("cannot read `{file}` of init: {error}"))
}

/// Reads the host's namespaces ahead, while a sandbox is being made.
pub(crate) fn load_host_namespaces() {
    host_namespaces();
}

fn host_namespaces() -> &'static Result<Vec<PathBuf>, String> {
    HOST_NAMESPACES.get_or_init(|| namespaces("self"))
}

fn namespaces(process: &str) -> Result<Vec<PathBuf>, String> {
    let of = |name| fs::read_link(format!("/proc/{process}/ns/{name}"));
    NAMESPACES
        .iter()
        .map(|name| of(name).map_err(|error| format!("cannot read the {name} namespace: {error}")))
        .collect()
}

/// Fails when one of `kinds` is the host's namespace.
fn check_namespaces(pid: i32, kinds: &[&str]) -> Result<(), String> {
    let host = host_namespaces().clone()?;
    let mut pairs = NAMESPACES.into_iter().zip(namespaces(&pid.to_string())?.into_iter().zip(host));
    match pairs.find(|(name, (own, host))| kinds.contains(name) && own == host) {
        Some((name, _)) => Err(format!("init shares the host's {name} namespace")),
        None => Ok(()),
    }
}

fn check_status(status: &str) -> Result<(), String> {
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.map(str::trim).ok_or_else(|| format!("the status of init has no `{key}`"))
    };
    for key in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
        if value(key)?.bytes().any(|digit| digit != b'0') {
            return Err(format!("init holds capabilities ({key})"));
        }
    }
    if value("NoNewPrivs")? != "1" {
        return Err("init can gain privileges (NoNewPrivs is off)".to_owned());
    }
    if value("Seccomp")? != "2" {
        return Err("no system call filter is installed".to_owned());
    }
    if value("Uid")?.split_whitespace().any(|uid| uid == "0") {
        return Err("init is root on the host".to_owned());
    }
    Ok(())
}

/// Checks that exactly one id inside is mapped, and not to root.
fn check_map(map: &str) -> Result<(), String> {
    let fields: Vec<_> = map.split_whitespace().collect();
    match fields[..] {
        [_, outside, "1"] if outside != "0" => Ok(()),
        _ => Err(format!("the id map of init is `{}`", map.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Uid:\t7\t7\t7\t7\nCapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t0000\nCapAmb:\t0000\n\
                        NoNewPrivs:\t1\nSeccomp:\t2\n";

    #[test]
    fn confined_process_passes() {
        assert_eq!(check_status(GOOD), Ok(()));
        assert_eq!(check_map("      1000 1900000000          1\n"), Ok(()));
    }

    #[test]
    fn process_that_lacks_one_restriction_fails() {
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
    fn process_of_the_host_fails() {
        let result = check(std::process::id().cast_signed(), None);
        assert_eq!(result, Err("init shares the host's cgroup namespace".to_owned()));
    }
}
