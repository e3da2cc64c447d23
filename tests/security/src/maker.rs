//! The backends under attack: the jail, and container engines that the suite starts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engines::Engine;
use jail::Spawner;
use sandbox::{ContainerBackend, EngineKind, JailBackend, SandboxBackend};

/// A backend, with arguments for another process to create the same one.
#[derive(Clone)]
pub(crate) struct Maker {
    pub(crate) backend: Arc<dyn SandboxBackend>,
    /// The name in the table.
    name: &'static str,
    /// The socket of its engine; none for the jail.
    socket: Option<PathBuf>,
    spawner: Arc<Spawner>,
}

/// A Docker container with gVisor.
const GVISOR: &str = "gvisor";

/// Each kind of container: its name, its engine, and the runtime unless it is the default.
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

    /// Returns the container backend with that name; its files are below `scratch`.
    fn container(name: &str, socket: PathBuf, spawner: &Arc<Spawner>, scratch: &Path) -> Self {
        let known = CONTAINERS.into_iter().find(|(known, ..)| *known == name);
        let (name, kind, runtime) = known.expect("a kind of container");
        let mut settings = engines::settings(kind, socket.clone());
        settings.runtime = runtime.map(str::to_owned);
        let backend = ContainerBackend::new(settings, Arc::clone(spawner), scratch.join(name)).expect("backend");
        Self { backend: Arc::new(backend), name, socket: Some(socket), spawner: Arc::clone(spawner) }
    }

    /// Returns the jail and every kind of container.
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

    /// Returns whether the sandbox has its own kernel. Then exceeding a limit ends the whole sandbox, and there is no
    /// bind workspace.
    pub(crate) fn has_own_kernel(&self) -> bool {
        self.name == GVISOR
    }

    /// Returns the same backend as the next host creates it over `scratch`.
    pub(crate) fn again(&self, scratch: &Path) -> Self {
        Self::from_arguments(&self.to_arguments(), &self.spawner, scratch)
    }

    /// Returns arguments for another process to create the same backend.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let socket = self.socket.iter();
        socket.flat_map(|socket| [self.name.to_owned(), socket.display().to_string()]).collect()
    }

    /// Returns the backend that the arguments describe.
    pub(crate) fn from_arguments(arguments: &[String], spawner: &Arc<Spawner>, scratch: &Path) -> Self {
        let [name, socket] = arguments else { return Self::jail(spawner) };
        Self::container(name, socket.into(), spawner, scratch)
    }
}
