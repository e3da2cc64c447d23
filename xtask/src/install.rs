//! What the checks need on a fresh Debian or Ubuntu machine, and nothing more.
//!
//! Only what is missing is installed. What is downloaded is kept in a folder of the user's cache whose
//! name says for which system it is good, so that a second machine with the same cache downloads nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{gvisor, identity, venv, workspace};

/// A Debian package, and why we need it.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

/// What `cargo xtask test` uses.
pub(crate) const TESTS: &[Package] = &[
    Package { name: "curl", reason: "calls the session API over TLS as other programs do" },
    Package { name: "docker.io", reason: "the sandbox tests start an engine of it, on a directory of their own" },
    Package { name: "git", reason: "tidy asks it which files are tracked" },
    Package { name: "iproute2", reason: "ip sets up the internet that attacks on the proxy are made in" },
    Package { name: "npm", reason: "the real agents come from it" },
    Package { name: "openssl", reason: "speaks to a host whose TLS is opened, from inside" },
    Package { name: "podman", reason: "the sandbox tests start an engine of it too" },
    Package { name: "rootlesskit", reason: "starts a Docker of an ordinary user, which must be refused" },
    Package { name: "runc", reason: "runs the containers of both on a machine with either version of cgroups" },
    Package { name: "runsc", reason: "gVisor: a runtime of Docker in the sandbox tests" },
    Package { name: "passwd", reason: "useradd makes the ordinary user that tests run as a second time" },
    Package { name: "uidmap", reason: "newuidmap gives that user's engine the users that are in images" },
    Package { name: "util-linux", reason: "setpriv becomes that user" },
];

/// What `cargo xtask test --agents` and the bench of agents use.
pub(crate) const AGENTS: &[Package] = &[Package { name: "npm", reason: "real agents come from it" }];

/// Installs everything that `cargo xtask test` uses.
pub(crate) fn run_all() -> Result<()> {
    run(TESTS)?;
    gvisor::install(&private_cache("gvisor")?)?;
    venv::install()
}

/// Installs every real agent with `viv`, in the versions it pins, into a folder that outlives the checkout.
/// What is there is not downloaded again.
pub(crate) fn agents(viv: &Path) -> Result<String> {
    let folder = private_agents_folder()?;
    let listed = workspace::output(Command::new(viv).args(["--json", "agents", "ls"]).arg("--data-dir").arg(&folder))?;
    let listed: serde_json::Value = serde_json::from_str(&listed).context("`viv agents ls` printed no JSON")?;
    let packaged = listed.as_array().into_iter().flatten().filter(|agent| agent["package"].is_string());
    let names: Vec<&str> = packaged.filter_map(|agent| agent["id"].as_str()).collect();
    install_agents(viv, &names)
}

/// Installs these agents as [`agents`] does.
pub(crate) fn install_agents(viv: &Path, names: &[&str]) -> Result<String> {
    let folder = private_agents_folder()?;
    let install = |name: &str| {
        let mut command = Command::new(viv);
        command.args(["agents", "install", name]).arg("--data-dir").arg(&folder);
        crate::step::quietly(command.arg("--cache").arg(folder.join("npm")))
    };
    // Most of the time goes by waiting for the registry; each agent has a lock of its own.
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
    std::fs::create_dir_all(&folder).context("cannot make the folder for agents")?;
    // A data directory that others could write to is refused.
    let private = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    std::fs::set_permissions(&folder, private).context("cannot make the folder for agents private")?;
    Ok(folder)
}

/// Where the agents for tests are: a data directory of `viv`, one folder a version.
pub(crate) fn agents_folder() -> Result<PathBuf> {
    cache_folder(&format!("agents-{}-{}", std::env::consts::OS, std::env::consts::ARCH))
}

/// Installs what is missing of `wanted`, showing progress.
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
    std::fs::create_dir_all(archives.join("partial")).context("cannot make the cache folder")?;
    // The lists may be there already; fetching them takes longer than most packages.
    if !apt(&["install"], &archives, &names)? {
        apt(&["update"], &archives, &[])?;
        if !apt(&["install"], &archives, &names)? {
            bail!("cannot install {}\n  help: sudo apt-get install {}", names.join(", "), names.join(" "));
        }
    }
    Ok(())
}

/// A word on what `run` found, for the line of the step.
pub(crate) fn note(wanted: &[Package]) -> String {
    format!("{} packages present", wanted.len())
}

/// Whether a package is there; a program of that name from elsewhere is as good.
fn is_installed(package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(package).is_file()) {
        return true;
    }
    let query = workspace::output(Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", package]));
    query.is_ok_and(|status| status.trim() == "installed")
}

/// Runs apt-get as root; whether it succeeded.
fn apt(action: &[&str], archives: &Path, packages: &[&str]) -> Result<bool> {
    let mut command = identity::as_root("apt-get");
    let keep = format!("Dir::Cache::archives={}", archives.display());
    command.args(["-y", "--no-install-recommends", "-o", &keep, "-o", "APT::Keep-Downloaded-Packages=true"]);
    command.args(action).args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.status().context("cannot run apt-get: this needs Debian or Ubuntu, and root or sudo")?;
    Ok(status.success())
}

/// A folder of the cache, made.
fn private_cache(name: &str) -> Result<PathBuf> {
    let folder = cache_folder(&format!("{name}-{}", system()?))?;
    std::fs::create_dir_all(&folder).context("cannot make the cache folder")?;
    Ok(folder)
}

/// The folder of the user's cache for what is good for `key` only.
pub(crate) fn cache_folder(key: &str) -> Result<PathBuf> {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = given.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("viv-test").join(key))
}

/// Distribution, version and architecture, as in `debian-12-amd64`.
fn system() -> Result<String> {
    let release = std::fs::read_to_string("/etc/os-release").context("cannot tell the distribution")?;
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
    fn the_cache_is_keyed_by_system() {
        let release = "PRETTY_NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(system_key(release, "amd64"), "debian-12-amd64");
        assert!(cache_folder("debian-12-amd64").unwrap().ends_with("viv-test/debian-12-amd64"));
    }

    #[test]
    fn a_package_nobody_made_is_not_installed() {
        assert!(!is_installed("viv-no-such-package"));
    }
}
