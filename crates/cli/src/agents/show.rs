//! `viv agents show`, `path` and `rm`: one installed agent.

use std::path::Path;
use std::process::ExitCode;

use protocol::ProblemCode;
use serde_json::json;

use super::AgentSpec;
use super::install_folder::{self, InstallFolder};
use super::manifest::InstallManifest;
use super::progress::{megabytes, size};
use crate::failure::Failure;
use crate::output::{self, message};

/// Runs `viv agents show`.
pub(super) fn print(root: &Path, wanted: &AgentSpec, json: bool) -> Result<ExitCode, Failure> {
    let Some(place) = place(root, wanted) else { return built_in(wanted) };
    let is_selected =
        |manifest: &InstallManifest| wanted.version.as_ref().is_none_or(|version| *version == manifest.version);
    let manifests: Vec<InstallManifest> = place.installed().into_iter().filter(is_selected).collect();
    if manifests.is_empty() {
        return Err(install_folder::not_installed(wanted));
    }
    if json {
        return write_json(&serde_json::to_string_pretty(&manifests).unwrap_or_default());
    }
    for manifest in &manifests {
        let folder = place.version(&manifest.version);
        write(&format!("\x1b[1m{} {}\x1b[0m", manifest.name, manifest.version))?;
        write(&format!("  package    {}", manifest.package))?;
        write(&format!("  integrity  {}", manifest.integrity))?;
        write(&format!("  installed  {}", manifest.installed_at))?;
        write(&format!("  folder     {} ({})", folder.display(), megabytes(size(&folder))))?;
        write(&format!("  packages   {} (hashes in installed.json)", manifest.packages.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `viv agents path`.
pub(super) fn print_path(root: &Path, wanted: &AgentSpec, json: bool) -> Result<ExitCode, Failure> {
    let Some(package) = wanted.package() else { return built_in(wanted) };
    let found = install_folder::find(root, wanted).ok_or_else(|| install_folder::not_installed(wanted))?;
    let program = found.program.join("node_modules").join(package.program);
    if json {
        return write_json(&json!({"path": program, "node": found.node.filter(|_| package.needs_node)}).to_string());
    }
    write(&program.display().to_string())
}

/// Runs `viv agents rm`.
pub(super) fn remove(root: &Path, wanted: &AgentSpec) -> Result<ExitCode, Failure> {
    let Some(place) = place(root, wanted) else { return built_in(wanted) };
    let _lock = place.lock()?;
    let is_selected =
        |manifest: &InstallManifest| wanted.version.as_ref().is_none_or(|version| *version == manifest.version);
    let versions: Vec<InstallManifest> = place.installed().into_iter().filter(is_selected).collect();
    if versions.is_empty() {
        return Err(install_folder::not_installed(wanted));
    }
    for InstallManifest { version, .. } in versions {
        let hidden = place.folder.join(format!(".{version}"));
        // Hide the folder first, so that a half removed version is never found.
        let removed = std::fs::rename(place.version(&version), &hidden).and_then(|()| std::fs::remove_dir_all(&hidden));
        removed.map_err(|error| {
            Failure::new(ProblemCode::Internal, format!("cannot remove {} {version}", place.name)).because(&error)
        })?;
        message!("removed {} {version}", place.name);
    }
    Ok(ExitCode::SUCCESS)
}

fn place(root: &Path, wanted: &AgentSpec) -> Option<InstallFolder> {
    Some(InstallFolder::of_agent(root, wanted.agent.id(), wanted.package()?))
}

fn built_in(wanted: &AgentSpec) -> Result<ExitCode, Failure> {
    let what = format!("agent `{wanted}` is built into viv and needs no installation");
    Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv agents ls"))
}

fn write(line: &str) -> Result<ExitCode, Failure> {
    output::print(&format!("{line}\n")).map(|()| ExitCode::SUCCESS)
}

fn write_json(text: &str) -> Result<ExitCode, Failure> {
    output::print_json_text(&format!("{text}\n")).map(|()| ExitCode::SUCCESS)
}
