//! Folders of installed versions, and the search for an installed agent.

use std::fs::File;
use std::path::{Path, PathBuf};

use ::agents::{NODE, NpmPackage, node_folder, versions_folder};
use protocol::ProblemCode;
use session::{AgentRegistry, RegisteredAgent};

use super::AgentSpec;
use super::manifest::InstallManifest;
use crate::failure::Failure;
use crate::output::message;

/// A package and the folder of its versions.
#[derive(Debug, Clone)]
pub(super) struct InstallFolder {
    pub(super) name: &'static str,
    pub(super) package: &'static NpmPackage,
    /// Contains one folder for each version.
    pub(super) folder: PathBuf,
}

impl InstallFolder {
    /// Returns the folder of an agent's versions.
    pub(super) fn of_agent(root: &Path, name: &'static str, package: &'static NpmPackage) -> Self {
        Self { name, package, folder: root.join(versions_folder(name)) }
    }

    /// Returns the folder of Node's versions.
    pub(super) fn of_node(root: &Path) -> Self {
        Self { name: "node", package: &NODE, folder: root.join(node_folder()) }
    }

    /// Waits for other installations in this folder and locks it. Removes the remains of killed installations.
    pub(super) fn lock(&self) -> Result<File, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(ProblemCode::InstallFailed, format!("cannot lock `{}`", self.folder.display())).because(&error)
        };
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        let lock = File::create(self.folder.join(".lock")).map_err(failed)?;
        if lock.try_lock().is_err() {
            message!("waiting for another installation of {} …", self.name);
            lock.lock().map_err(failed)?;
        }
        for entry in std::fs::read_dir(&self.folder).map_err(failed)?.flatten() {
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                std::fs::remove_dir_all(entry.path()).map_err(failed)?;
            }
        }
        Ok(lock)
    }

    /// Returns the folder of a version.
    pub(super) fn version(&self, version: &str) -> PathBuf {
        self.folder.join(version)
    }

    /// Returns the manifests of the installed versions, sorted by version.
    pub(super) fn installed(&self) -> Vec<InstallManifest> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let visible = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
        let mut manifests: Vec<_> = visible.filter_map(|entry| InstallManifest::read(&entry.path())).collect();
        manifests.sort_by(|one, other| one.version.cmp(&other.version));
        manifests
    }
}

/// Returns the installed agent that a session would start.
pub(super) fn find(root: &Path, wanted: &AgentSpec) -> Option<RegisteredAgent> {
    AgentRegistry::default().with_installed(root.to_owned()).find(wanted.agent.id(), wanted.version.as_deref())
}

/// Returns whether a session can start the agent.
pub(super) fn is_ready(root: &Path, wanted: &AgentSpec) -> bool {
    let Some(package) = wanted.package() else { return true };
    find(root, wanted).is_some_and(|found| !package.needs_node || found.node.is_some())
}

/// Error for an agent that is not installed.
pub(super) fn not_installed(wanted: &AgentSpec) -> Failure {
    Failure::new(ProblemCode::AgentNotInstalled, format!("agent `{wanted}` is not installed"))
        .help(format!("viv agents install {wanted}"))
}
