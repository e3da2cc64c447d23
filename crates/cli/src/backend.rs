//! Which sandbox commands run in: the one that was asked for, else the configured one, else the first that works.

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

/// A backend, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BackendName {
    /// The sandbox of our own
    Jail,
    /// A container of Podman
    Podman,
    /// A container of Docker
    Docker,
}

/// Where commands run, as it is typed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct SandboxArguments {
    /// The sandbox to use [default: `sandbox.backend` of viv.toml, else the first that works: jail, podman, docker]
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<BackendName>,
}

/// The backend for this process.
pub(crate) fn choose(config: &Config, spawner: &Arc<Spawner>) -> Result<Arc<dyn SandboxBackend>, Failure> {
    match config.backend.or(config.file.sandbox.backend) {
        Some(name) => Ok(named(name, config, &config.file.sandbox, spawner)?),
        None => Ok(first_that_works(config, spawner)?),
    }
}

/// The backend of that name, with the image and so on of `section`.
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

/// A backend for one engine.
pub(crate) fn container(
    settings: ContainerSettings,
    config: &Config,
    spawner: &Arc<Spawner>,
) -> Result<ContainerBackend, SandboxError> {
    ContainerBackend::new(settings, Arc::clone(spawner), scratch(config))
}

/// How an engine is used: where it listens by custom, unless the configuration says.
pub(crate) fn settings(kind: EngineKind, config: &Config, section: &SandboxSection) -> ContainerSettings {
    let usual = ContainerSettings::usual(kind, config.runtime_dir.as_deref());
    ContainerSettings {
        kind,
        sockets: section.socket.clone().map_or(usual.sockets, |socket| vec![socket]),
        image: section.image.clone().unwrap_or(usual.image),
        entrypoint: section.entrypoint.clone(),
        runtime: section.runtime.clone(),
        pull: section.pull,
    }
}

/// The jail; where this machine does not let it be made, Podman, then Docker.
fn first_that_works(config: &Config, spawner: &Arc<Spawner>) -> Result<Arc<dyn SandboxBackend>, SandboxError> {
    let engines = [EngineKind::Podman, EngineKind::Docker].map(|kind| settings(kind, config, &config.file.sandbox));
    Ok(Arc::new(FallbackBackend::here(spawner, engines, &scratch(config))?))
}

/// Sockets of engines that are there now.
pub(crate) fn sockets(config: &Config) -> Vec<PathBuf> {
    let of = |kind| settings(kind, config, &config.file.sandbox).sockets;
    [EngineKind::Podman, EngineKind::Docker].into_iter().flat_map(of).filter(|socket| socket.exists()).collect()
}

/// Where containers are given what they need.
fn scratch(config: &Config) -> PathBuf {
    config.data_dir.join("containers")
}
