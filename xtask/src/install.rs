//! Installs the packages that the checks need on a fresh Debian or Ubuntu machine.
//!
//! Only missing packages are installed. Downloads are kept in the user's cache, in a folder named after the system, so
//! that another machine with the same cache downloads nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{gvisor, identity, venv, workspace};

/// A Debian package with the reason for it.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

/// Packages for `cargo xtask test`.
pub(crate) const TESTS: &[Package] = &[
    Package { name: "chromium", reason: "uses the Inspector" },
    Package { name: "curl", reason: "calls the session API over TLS" },
    Package { name: "docker.io", reason: "the sandbox tests start a Docker engine on their own directory" },
    Package { name: "git", reason: "tidy lists the tracked files" },
    Package { name: "iproute2", reason: "ip sets up the network of the attacks on the proxy" },
    Package { name: "npm", reason: "installs the real agents" },
    Package { name: "openssl", reason: "connects from inside to a host whose TLS is intercepted" },
    Package { name: "podman", reason: "the sandbox tests start a Podman engine too" },
    Package { name: "rootlesskit", reason: "starts a rootless Docker, which `viv` must refuse" },
    Package { name: "runc", reason: "runs the containers of both engines with cgroups v1 and v2" },
    Package { name: "runsc", reason: "gVisor: a runtime of Docker in the sandbox tests" },
    Package { name: "passwd", reason: "useradd creates the ordinary user for tests" },
    Package { name: "uidmap", reason: "newuidmap maps the users in images for that user's engine" },
    Package { name: "util-linux", reason: "setpriv switches to that user" },
];

/// Packages for `cargo xtask test --agents` and `cargo xtask bench agents`.
pub(crate) const AGENTS: &[Package] = &[Package { name: "npm", reason: "installs the real agents" }];

/// Installs everything that `cargo xtask test` needs.
pub(crate) fn run_all() -> Result<()> {
    run(TESTS)?;
    gvisor::install(&private_cache("gvisor")?)?;
    venv::install()
}

/// Installs every real agent with `viv`, in its pinned version, into the user's cache. Agents that are present are not
/// downloaded again.
pub(crate) fn agents(viv: &Path) -> Result<String> {
    let folder = private_agents_folder()?;
    let listed = workspace::output(Command::new(viv).args(["--json", "agents", "ls"]).arg("--data-dir").arg(&folder))?;
    let listed: serde_json::Value = serde_json::from_str(&listed).context("`viv agents ls` printed no JSON")?;
    let packaged = listed.as_array().into_iter().flatten().filter(|agent| agent["package"].is_string());
    let names: Vec<&str> = packaged.filter_map(|agent| agent["id"].as_str()).collect();
    install_agents(viv, &names)
}

/// Installs the named agents as [`agents`] does.
pub(crate) fn install_agents(viv: &Path, names: &[&str]) -> Result<String> {
    let folder = private_agents_folder()?;
    let install = |name: &str| {
        let mut command = Command::new(viv);
        command.args(["agents", "install", name]).arg("--data-dir").arg(&folder);
        crate::step::quietly(command.arg("--cache").arg(folder.join("npm")))
    };
    // In parallel: most of the time is spent waiting for the registry, and each agent has its own lock.
    std::thread::scope(|scope| {
        let running: Vec<_> = names.iter().map(|name| scope.spawn(move || install(name))).collect();
        running.into_iter().try_for_each(|installer| match installer.join() {
            Ok(installed) => installed.map(drop),
            Err(_) => bail!("an installer panicked"),
        })
    })?;
    Ok(format!("{} present", names.join(", ")))
}

fn private_agents_folder() -> Result<PathBuf> {
    let folder = agents_folder()?;
    std::fs::create_dir_all(&folder).context("cannot create the folder for agents")?;
    // `viv` refuses a data directory that others can write to.
    let private = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    std::fs::set_permissions(&folder, private).context("cannot create the folder for agents private")?;
    Ok(folder)
}

/// Returns the data directory with the agents for tests.
pub(crate) fn agents_folder() -> Result<PathBuf> {
    cache_folder(&format!("agents-{}-{}", std::env::consts::OS, std::env::consts::ARCH))
}

/// Installs the missing packages of `wanted`, and shows progress.
pub(crate) fn run(wanted: &[Package]) -> Result<()> {
    let missing: Vec<&Package> = wanted.iter().filter(|package| !is_installed(package.name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        println!("  {}: {}", package.name, package.reason);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let archives = cache_folder(&system()?)?.join("archives");
    std::fs::create_dir_all(archives.join("partial")).context("cannot create the cache folder")?;
    // Without `update` first: package lists are often present, and fetching them takes longer than most packages.
    if !apt(&["install"], &archives, &names)? {
        apt(&["update"], &archives, &[])?;
        if !apt(&["install"], &archives, &names)? {
            bail!("cannot install {}\n  help: sudo apt-get install {}", names.join(", "), names.join(" "));
        }
    }
    Ok(())
}

/// Returns the summary of `run` for the step's line.
pub(crate) fn note(wanted: &[Package]) -> String {
    format!("{} packages present", wanted.len())
}

/// Returns whether a package, or a program with its name, is installed.
fn is_installed(package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(package).is_file()) {
        return true;
    }
    let query = workspace::output(Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", package]));
    query.is_ok_and(|status| status.trim() == "installed")
}

/// Runs apt-get as root, and returns whether it succeeded.
fn apt(action: &[&str], archives: &Path, packages: &[&str]) -> Result<bool> {
    let mut command = identity::as_root("apt-get");
    let keep = format!("Dir::Cache::archives={}", archives.display());
    command.args(["-y", "--no-install-recommends", "-o", &keep, "-o", "APT::Keep-Downloaded-Packages=true"]);
    command.args(action).args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.status().context("cannot run apt-get: this needs Debian or Ubuntu, and root or sudo")?;
    Ok(status.success())
}

/// Creates a folder of the cache for this system.
fn private_cache(name: &str) -> Result<PathBuf> {
    let folder = cache_folder(&format!("{name}-{}", system()?))?;
    std::fs::create_dir_all(&folder).context("cannot create the cache folder")?;
    Ok(folder)
}

/// Returns the folder `key` of the user's cache.
pub(crate) fn cache_folder(key: &str) -> Result<PathBuf> {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = given.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("viv-test").join(key))
}

/// Returns distribution, version and architecture, such as `debian-12-amd64`.
fn system() -> Result<String> {
    let release = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let architecture = workspace::output(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(system_key(&release, architecture.trim()))
}

fn system_key(release: &str, architecture: &str) -> String {
    let field = |name: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or("unknown").trim_matches('"').to_owned()
    };
    format!("{}-{}-{architecture}", field("ID"), field("VERSION_ID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_folder_names_the_system() {
        let release = "PRETTY_NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(system_key(release, "amd64"), "debian-12-amd64");
        assert!(cache_folder("debian-12-amd64").unwrap().ends_with("viv-test/debian-12-amd64"));
    }

    #[test]
    fn unknown_package_is_not_installed() {
        assert!(!is_installed("viv-no-such-package"));
    }
}
