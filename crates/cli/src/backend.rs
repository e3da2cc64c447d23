//! Which sandbox commands run in: the one that was asked for, else the configured one, else the first that works.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use jail::Spawner;
use sandbox::{Backend, ContainerBackend, ContainerSettings, EngineKind, FirstThatWorks, JailBackend, SandboxError};
use serde::Deserialize;

use crate::config::{Config, SandboxSection};
use crate::failure::Failure;

/// The image that the Dockerfile of this project makes.
const IMAGE: &str = "localhost/vivarium:latest";

/// A backend, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
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
pub(crate) struct PlaceArguments {
    /// The sandbox to use [default: `sandbox.backend` of viv.toml, else the first that works: jail, podman, docker]
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<BackendName>,
}

/// The backend for this process.
pub(crate) fn choose(config: &Config, spawner: Spawner) -> Result<Arc<dyn Backend>, Failure> {
    let spawner = Arc::new(spawner);
    match config.backend.or(config.file.sandbox.backend) {
        Some(name) => Ok(named(name, config, &config.file.sandbox, &spawner)?),
        None => Ok(first_that_works(config, &spawner)?),
    }
}

/// The backend of that name, with the image and so on of `section`.
pub(crate) fn named(
    name: BackendName,
    config: &Config,
    section: &SandboxSection,
    spawner: &Arc<Spawner>,
) -> Result<Arc<dyn Backend>, SandboxError> {
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
    ContainerBackend::new(settings, Arc::clone(spawner), config.data_dir.join("containers"))
}

/// How an engine is used: where it listens by custom, unless the configuration says.
pub(crate) fn settings(kind: EngineKind, config: &Config, section: &SandboxSection) -> ContainerSettings {
    let own = |path: &str| config.runtime_dir.as_ref().map(|directory| directory.join(path));
    let usual = match kind {
        EngineKind::Docker => [Some(PathBuf::from("/var/run/docker.sock")), own("docker.sock")],
        EngineKind::Podman => [Some(PathBuf::from("/run/podman/podman.sock")), own("podman/podman.sock")],
    };
    ContainerSettings {
        kind,
        sockets: section.socket.clone().map_or_else(|| usual.into_iter().flatten().collect(), |socket| vec![socket]),
        image: section.image.clone().unwrap_or_else(|| IMAGE.to_owned()),
        entrypoint: section.entrypoint.clone(),
        runtime: section.runtime.clone(),
        pull: section.pull,
    }
}

/// The jail; where this machine does not let it be made, Podman, then Docker.
fn first_that_works(config: &Config, spawner: &Arc<Spawner>) -> Result<Arc<dyn Backend>, SandboxError> {
    let jail: Arc<dyn Backend> = Arc::new(JailBackend::new(Arc::clone(spawner))?);
    // Engines that do not run are no choice, and would only lengthen the message.
    let listening = [EngineKind::Podman, EngineKind::Docker].into_iter().filter_map(|kind| {
        let settings = settings(kind, config, &config.file.sandbox);
        settings.sockets.iter().any(|socket| socket.exists()).then_some(settings)
    });
    let engines = listening
        .map(|settings| container(settings, config, spawner).map(|backend| Arc::new(backend) as Arc<dyn Backend>));
    let mut backends = vec![jail];
    backends.extend(engines.collect::<Result<Vec<_>, _>>()?);
    Ok(Arc::new(FirstThatWorks::of(backends)))
}
