//! Installs gVisor for the tests: the package of this Debian release if it is new enough, else of the next release.
//!
//! gVisor is one static program without dependencies. Older versions refuse system calls that current `ls` makes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{identity, workspace};

/// The date of the oldest version that works.
const OLDEST: u32 = 20_230_601;
/// A release with an older package, and the release that has a newer one.
const RELEASES: (&str, &str) = ("bookworm", "trixie");

/// Installs gVisor unless a new enough version is present. Keeps the download in `cache`.
pub(crate) fn install(cache: &Path) -> Result<()> {
    let version = workspace::output(Command::new("runsc").arg("--version"))?;
    if day(&version).is_some_and(|day| day >= OLDEST) {
        return Ok(());
    }
    let package = match find_package(cache) {
        Some(package) => package,
        None => download(cache)?,
    };
    workspace::output(identity::as_root("dpkg").arg("--install").arg(package)).map(drop)
}

/// Returns the date in a version such as `0.0~20240729.0` or `release-20240729.0`.
fn day(version: &str) -> Option<u32> {
    let digits = version.split(|letter: char| !letter.is_ascii_digit());
    digits.filter(|part| part.len() == 8).find_map(|part| part.parse().ok())
}

fn find_package(cache: &Path) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(cache).ok()?.flatten().map(|entry| entry.path());
    let mut packages = entries.filter(|path| path.extension().is_some_and(|kind| kind == "deb"));
    packages
        .find(|path| path.file_name().and_then(|name| day(&name.to_string_lossy())).is_some_and(|day| day >= OLDEST))
}

/// Downloads the package of the next release from the machine's own sources, with separate package lists, so that no
/// other package comes from that release.
fn download(cache: &Path) -> Result<std::path::PathBuf> {
    let (parts, lists) = (cache.join("sources"), cache.join("lists"));
    for folder in [&parts, &lists.join("partial")] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let mut found = 0;
    for name in ["sources.list", "sources.list.d/debian.sources"] {
        let Ok(text) = std::fs::read_to_string(Path::new("/etc/apt").join(name)) else { continue };
        let kind = if name.ends_with("sources") { "next.sources" } else { "next.list" };
        found += usize::from(text.contains(RELEASES.0));
        std::fs::write(parts.join(kind), text.replace(RELEASES.0, RELEASES.1))?;
    }
    if found == 0 {
        bail!("this release has no runsc of {OLDEST} or later\n  help: install one from gvisor.dev");
    }
    let apt = |arguments: &[&str]| {
        let mut command = identity::as_root("apt-get");
        command.args(["-o", "Dir::Etc::sourcelist=/dev/null", "-o"]);
        command.arg(format!("Dir::Etc::sourceparts={}", parts.display()));
        command.arg("-o").arg(format!("Dir::State::lists={}", lists.display()));
        workspace::output(command.args(arguments).current_dir(cache))
    };
    apt(&["update"])?;
    apt(&["download", "runsc"])?;
    find_package(cache).context("apt-get downloaded no runsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_is_found_in_both_version_formats() {
        assert_eq!(day("runsc version 0.0~20221219.0\nspec: 1.0.2-dev"), Some(20_221_219));
        assert_eq!(day("runsc version release-20240729.0"), Some(20_240_729));
        assert_eq!(day("runsc_0.0~20240729.0-4+b7_amd64.deb"), Some(20_240_729));
        assert_eq!(day("none"), None);
    }
}
