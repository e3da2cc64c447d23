//! Installation of an agent in the data directory, complete or not at all.
//!
//! A version is installed in a hidden folder, checked, and then renamed. A visible folder is therefore complete.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ::agents::NpmPackage;
use protocol::ProblemCode;

use super::install_folder::InstallFolder;
use super::manifest::InstallManifest;
use super::progress::{InstallProgress, megabytes, size};
use super::{AgentSpec, agent_spec, npm};
use crate::failure::Failure;
use crate::output::message;

/// One installed version.
pub(super) struct InstallResult {
    pub(super) name: &'static str,
    pub(super) version: String,
    pub(super) folder: PathBuf,
    /// Whether the version was installed before.
    pub(super) was_there: bool,
}

/// Installs an agent, and Node if the agent needs it; returns both. An installed version is left as it is.
pub(super) fn ensure(root: &Path, wanted: &AgentSpec, cache: Option<&Path>) -> Result<Vec<InstallResult>, Failure> {
    let Some(package) = wanted.package() else { return Ok(Vec::new()) };
    let place = InstallFolder::of_agent(root, wanted.agent.id(), package);
    let mut installed = vec![ensure_version(&place, wanted.version.as_deref(), cache)?];
    if package.needs_node {
        installed.push(ensure_version(&InstallFolder::of_node(root), None, cache)?);
    }
    Ok(installed)
}

/// Prints a line for each installed version.
pub(super) fn tell(installed: &[InstallResult]) {
    for one in installed {
        let (name, version) = (one.name, &one.version);
        if one.was_there {
            message!("{name} {version} is already installed");
        } else {
            message!("installed {name} {version} · {} · {}", megabytes(size(&one.folder)), one.folder.display());
        }
    }
}

fn ensure_version(
    place: &InstallFolder,
    version: Option<&str>,
    cache: Option<&Path>,
) -> Result<InstallResult, Failure> {
    let version = version.unwrap_or(place.package.version);
    let found = |version: String, was_there| {
        let folder = place.version(&version);
        InstallResult { name: place.name, version, folder, was_there }
    };
    // A visible folder is complete, so no lock is needed to find it.
    if place.version(version).is_dir() {
        return Ok(found(version.to_owned(), true));
    }
    let _lock = place.lock()?;
    if place.version(version).is_dir() {
        return Ok(found(version.to_owned(), true));
    }
    let hidden = place.folder.join(format!(".{version}"));
    let manifest = fetch(place, version, &hidden, cache).inspect_err(|_| {
        // The next installation removes the folder if this fails.
        let _ = std::fs::remove_dir_all(&hidden);
    })?;
    let folder = place.version(&manifest.version);
    if folder.is_dir() {
        // `latest` is a version that was installed under its number.
        let _ = std::fs::remove_dir_all(&hidden);
        return Ok(found(manifest.version, true));
    }
    std::fs::rename(&hidden, &folder).map_err(not_kept)?;
    Ok(found(manifest.version, false))
}

/// Downloads a version into `folder`; fails if its hash or program is not as expected.
fn fetch(
    place: &InstallFolder,
    version: &str,
    folder: &Path,
    cache: Option<&Path>,
) -> Result<InstallManifest, Failure> {
    std::fs::DirBuilder::new().mode(0o755).create(folder).map_err(not_kept)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).map_err(not_kept)?;
    let package = place.package;
    let progress = InstallProgress::begin(format!("{} {version}", place.name));
    npm::install(folder, &format!("{}@{version}", package.npm), cache, progress)?;
    let now = jiff::Timestamp::now().to_string();
    let manifest = InstallManifest::from_lock(folder, place.name, package.npm, now).ok_or_else(|| {
        Failure::new(ProblemCode::InstallFailed, format!("npm recorded no hash for a package of `{}`", package.npm))
    })?;
    check(package, &manifest, folder)?;
    manifest.write(folder).map_err(not_kept)?;
    Ok(manifest)
}

fn check(package: &NpmPackage, manifest: &InstallManifest, folder: &Path) -> Result<(), Failure> {
    let (name, version) = (package.npm, &manifest.version);
    if !agent_spec::is_version(version) {
        return Err(Failure::new(
            ProblemCode::InstallFailed,
            format!("invalid version `{version}` of npm package `{name}`"),
        ));
    }
    if version == package.version && manifest.integrity != package.integrity {
        let what = format!("hash mismatch of npm package `{name}@{version}`");
        let why = format!("found {}, expected {}", manifest.integrity, package.integrity);
        return Err(Failure::new(ProblemCode::InstallFailed, what).detail(why).help("npm config get registry"));
    }
    let program = folder.join("node_modules").join(package.program);
    if !program.is_file() {
        let what = format!("npm package `{name}@{version}` lacks its program `{}`", package.program);
        return Err(Failure::new(ProblemCode::InstallFailed, what).help(format!("npm view {name} versions")));
    }
    Ok(())
}

fn not_kept(error: std::io::Error) -> Failure {
    Failure::new(ProblemCode::InstallFailed, "cannot write the installation").because(&error)
}
