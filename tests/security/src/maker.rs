//! Who makes the sandboxes that are attacked: the jail, or an engine that the suite has started.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engines::Engine;
use jail::Spawner;
use sandbox::{ContainerBackend, EngineKind, JailBackend, SandboxBackend};

/// A backend, and how another process makes the same one.
#[derive(Clone)]
pub(crate) struct Maker {
    pub(crate) backend: Arc<dyn SandboxBackend>,
    /// How it is called in the table.
    name: &'static str,
    /// Where its engine listens; the jail has none.
    socket: Option<PathBuf>,
    spawner: Arc<Spawner>,
}

/// A container of Docker whose kernel is gVisor.
const GVISOR: &str = "gvisor";

/// Each kind of container: how it is called, whose it is, and the runtime where that is not the engine's own.
const CONTAINERS: [(&str, EngineKind, Option<&str>); 4] = [
    ("docker", EngineKind::Docker, None),
    ("podman", EngineKind::Podman, None),
    (engines::ROOTLESS, EngineKind::Podman, None),
    (GVISOR, EngineKind::Docker, Some(engines::GVISOR)),
];

impl Maker {
    pub(crate) fn jail(spawner: &Arc<Spawner>) -> Self {
        let backend = Arc::new(JailBackend::new(Arc::clone(spawner)).expect("jail"));
        Self { backend, name: "jail", socket: None, spawner: Arc::clone(spawner) }
    }

    /// Makes containers of that name; what they are given lies below `scratch`.
    fn container(name: &str, socket: PathBuf, spawner: &Arc<Spawner>, scratch: &Path) -> Self {
        let known = CONTAINERS.into_iter().find(|(known, ..)| *known == name);
        let (name, kind, runtime) = known.expect("a kind of container");
        let mut settings = engines::settings(kind, socket.clone());
        settings.runtime = runtime.map(str::to_owned);
        let backend = ContainerBackend::new(settings, Arc::clone(spawner), scratch.join(name)).expect("backend");
        Self { backend: Arc::new(backend), name, socket: Some(socket), spawner: Arc::clone(spawner) }
    }

    /// The jail and every kind of container.
    pub(crate) fn all(spawner: &Arc<Spawner>, engines: &[Engine], scratch: &Path) -> Vec<Self> {
        let sockets = CONTAINERS.iter().filter_map(|(name, kind, _)| {
            let mut of_kind = engines.iter().filter(|engine| engine.kind() == *kind);
            let engine = of_kind.find(|engine| engine.is_rootless() == (*name == engines::ROOTLESS))?;
            Some((*name, engine.socket()))
        });
        let containers = sockets.map(|(name, socket)| Self::container(name, socket, spawner, scratch));
        std::iter::once(Self::jail(spawner)).chain(containers).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the sandbox has a kernel of its own: what takes too much ends all of it, and no workspace is bound.
    pub(crate) fn has_own_kernel(&self) -> bool {
        self.name == GVISOR
    }

    /// Another of the same, as the next host makes it over `scratch`.
    pub(crate) fn again(&self, scratch: &Path) -> Self {
        Self::from_arguments(&self.to_arguments(), &self.spawner, scratch)
    }

    /// What tells another process of the suite how to make the same.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let socket = self.socket.iter();
        socket.flat_map(|socket| [self.name.to_owned(), socket.display().to_string()]).collect()
    }

    /// The one that these arguments tell of.
    pub(crate) fn from_arguments(arguments: &[String], spawner: &Arc<Spawner>, scratch: &Path) -> Self {
        let [name, socket] = arguments else { return Self::jail(spawner) };
        Self::container(name, socket.into(), spawner, scratch)
    }
}
