//! Who makes the sandboxes that are attacked: the jail, or an engine that the suite has started.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engines::Engine;
use jail::Spawner;
use sandbox::{Backend, ContainerBackend, EngineKind, JailBackend};

/// A backend, and how another process makes the same one.
#[derive(Clone)]
pub(crate) struct Maker {
    pub(crate) backend: Arc<dyn Backend>,
    /// Which engine, and where it listens; the jail has none.
    engine: Option<(EngineKind, PathBuf)>,
    spawner: Arc<Spawner>,
}

impl Maker {
    pub(crate) fn jail(spawner: &Arc<Spawner>) -> Self {
        let backend = Arc::new(JailBackend::new(Arc::clone(spawner)).expect("jail"));
        Self { backend, engine: None, spawner: Arc::clone(spawner) }
    }

    /// Makes containers; what they are given lies below `scratch`.
    pub(crate) fn engine(kind: EngineKind, socket: PathBuf, spawner: &Arc<Spawner>, scratch: &Path) -> Self {
        let settings = engines::settings(kind, socket.clone());
        let backend = ContainerBackend::new(settings, Arc::clone(spawner), scratch.join(kind.as_str()));
        let backend = Arc::new(backend.expect("backend"));
        Self { backend, engine: Some((kind, socket)), spawner: Arc::clone(spawner) }
    }

    /// The jail and every engine.
    pub(crate) fn all(spawner: &Arc<Spawner>, engines: &[Engine], scratch: &Path) -> Vec<Self> {
        let made = engines.iter().map(|engine| Self::engine(engine.kind(), engine.socket(), spawner, scratch));
        std::iter::once(Self::jail(spawner)).chain(made).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.backend.name()
    }

    /// Another of the same, as the next host makes it over `scratch`.
    pub(crate) fn again(&self, scratch: &Path) -> Self {
        Self::from_arguments(&self.to_arguments(), &self.spawner, scratch)
    }

    /// What tells another process of the suite how to make the same.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let engine = self.engine.iter();
        engine.flat_map(|(kind, socket)| [kind.as_str().to_owned(), socket.display().to_string()]).collect()
    }

    /// The one that these arguments tell of.
    pub(crate) fn from_arguments(arguments: &[String], spawner: &Arc<Spawner>, scratch: &Path) -> Self {
        let [kind, socket] = arguments else { return Self::jail(spawner) };
        let kinds = [EngineKind::Docker, EngineKind::Podman];
        let kind = kinds.into_iter().find(|known| known.as_str() == kind).expect("an engine");
        Self::engine(kind, socket.into(), spawner, scratch)
    }
}
