//! Choice of the sandbox backend: the one of `--backend`, else the configured one, else the first that works.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use jail::Spawner;
use sandbox::{
    ContainerBackend, ContainerSettings, EngineKind, FallbackBackend, JailBackend, SandboxBackend, SandboxError,
};
use serde::{Deserialize, Serialize};

use crate::config::{Config, SandboxSection};
use crate::failure::Failure;

/// Name of a sandbox backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BackendName {
    /// Built-in sandbox
    Jail,
    /// Podman container
    Podman,
    /// Docker container
    Docker,
}

/// Arguments that choose the sandbox.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct SandboxArguments {
    /// Sandbox backend [default: `sandbox.backend` of viv.toml, else the first that works of jail, podman, docker]
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<BackendName>,
}

/// Returns the backend for this process; fails if the named one cannot be used.
pub(crate) fn choose(config: &Config, spawner: &Arc<Spawner>) -> Result<Arc<dyn SandboxBackend>, Failure> {
    match config.backend.or(config.file.sandbox.backend) {
        Some(name) => Ok(named(name, config, &config.file.sandbox, spawner)?),
        None => Ok(first_that_works(config, spawner)?),
    }
}

/// Returns the backend `name` with the settings of `section`.
pub(crate) fn named(
    name: BackendName,
    config: &Config,
    section: &SandboxSection,
    spawner: &Arc<Spawner>,
) -> Result<Arc<dyn SandboxBackend>, SandboxError> {
    let kind = match name {
        BackendName::Jail => return Ok(Arc::new(JailBackend::new(Arc::clone(spawner))?)),
        BackendName::Podman => EngineKind::Podman,
        BackendName::Docker => EngineKind::Docker,
    };
    Ok(Arc::new(container(settings(kind, config, section), config, spawner)?))
}

/// Returns a backend for one container engine.
pub(crate) fn container(
    settings: ContainerSettings,
    config: &Config,
    spawner: &Arc<Spawner>,
) -> Result<ContainerBackend, SandboxError> {
    ContainerBackend::new(settings, Arc::clone(spawner), scratch(config))
}

/// Returns the settings of a container engine; keys that are not configured have their default.
pub(crate) fn settings(kind: EngineKind, config: &Config, section: &SandboxSection) -> ContainerSettings {
    let default = ContainerSettings::with_defaults(kind, config.runtime_dir.as_deref());
    ContainerSettings {
        kind,
        sockets: section.socket.clone().map_or(default.sockets, |socket| vec![socket]),
        image: section.image.clone().unwrap_or(default.image),
        entrypoint: section.entrypoint.clone(),
        runtime: section.runtime.clone(),
        pull: section.pull,
    }
}

/// Returns a backend that uses the jail, or else Podman, or else Docker.
fn first_that_works(config: &Config, spawner: &Arc<Spawner>) -> Result<Arc<dyn SandboxBackend>, SandboxError> {
    let engines = [EngineKind::Podman, EngineKind::Docker].map(|kind| settings(kind, config, &config.file.sandbox));
    Ok(Arc::new(FallbackBackend::detect(spawner, engines, &scratch(config))?))
}

/// Returns the engine sockets that exist now.
pub(crate) fn sockets(config: &Config) -> Vec<PathBuf> {
    let of = |kind| settings(kind, config, &config.file.sandbox).sockets;
    [EngineKind::Podman, EngineKind::Docker].into_iter().flat_map(of).filter(|socket| socket.exists()).collect()
}

/// Returns the directory for files that containers mount.
fn scratch(config: &Config) -> PathBuf {
    config.data_dir.join("containers")
}
