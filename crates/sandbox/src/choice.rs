//! The first of several backends that this machine lets work.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use jail::Spawner;

use crate::{
    ContainerBackend, ContainerSettings, JailBackend, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxSpec,
};

/// Tries backends in turn, until one of them has made a sandbox; from then on it is that one.
///
/// Only a backend that says what is missing here is passed over: what failed for any other reason is told.
pub struct FallbackBackend {
    backends: Vec<Arc<dyn SandboxBackend>>,
    chosen: OnceLock<Arc<dyn SandboxBackend>>,
}

impl FallbackBackend {
    /// Of these, the best first.
    pub fn of(backends: Vec<Arc<dyn SandboxBackend>>) -> Self {
        Self { backends, chosen: OnceLock::new() }
    }

    /// The jail; where this machine does not let it be made, the first of `engines` that does. What containers are
    /// given is kept under `scratch`.
    pub fn here(
        spawner: &Arc<Spawner>,
        engines: impl IntoIterator<Item = ContainerSettings>,
        scratch: &Path,
    ) -> Result<Self, SandboxError> {
        let mut backends: Vec<Arc<dyn SandboxBackend>> = vec![Arc::new(JailBackend::new(Arc::clone(spawner))?)];
        // Engines that do not run are no choice, and would only lengthen the message.
        for settings in engines.into_iter().filter(ContainerSettings::is_listening) {
            backends.push(Arc::new(ContainerBackend::new(settings, Arc::clone(spawner), scratch.to_owned())?));
        }
        Ok(Self::of(backends))
    }

    async fn try_all(&self, spec: SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let (mut why, mut mended) = (Vec::new(), String::new());
        for backend in &self.backends {
            match backend.create(spec.clone()).await {
                Ok(sandbox) => {
                    self.chosen.get_or_init(|| Arc::clone(backend));
                    return Ok(sandbox);
                }
                Err(SandboxError::Unavailable { missing, fix }) => {
                    why.push(format!("{}: {missing}", backend.name()));
                    if mended.is_empty() {
                        mended = fix;
                    }
                }
                Err(other) => return Err(other),
            }
        }
        Err(SandboxError::Unavailable { missing: why.join("; "), fix: mended })
    }
}

impl SandboxBackend for FallbackBackend {
    fn name(&self) -> &'static str {
        self.chosen.get().or(self.backends.first()).map_or("none", |backend| backend.name())
    }

    fn create(&self, spec: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>> {
        match self.chosen.get() {
            Some(backend) => backend.create(spec),
            None => Box::pin(self.try_all(spec)),
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::{BaseLayer, CeilingLayer, PolicySource};

    use super::*;
    use crate::UnconfinedBackend;

    /// A backend that this machine does not let work.
    struct Absent(&'static str);

    impl SandboxBackend for Absent {
        fn name(&self) -> &'static str {
            self.0
        }

        fn create(&self, _: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>> {
            let (missing, fix) = (format!("{} is not there", self.0), format!("install {}", self.0));
            Box::pin(async move { Err(SandboxError::Unavailable { missing, fix }) })
        }
    }

    fn spec() -> SandboxSpec {
        let base = BaseLayer::read(&PolicySource::new("test", "version: 1\nfs: {workspace: bind}\n")).unwrap();
        let policy = policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]);
        SandboxSpec { id: "one".into(), workspace: None, mounts: vec![], files: vec![], policy: Arc::new(policy) }
    }

    #[tokio::test]
    async fn the_first_that_works_is_taken_and_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let open: Arc<dyn SandboxBackend> = Arc::new(UnconfinedBackend::new(scratch.path().to_owned()));
        let first = FallbackBackend::of(vec![Arc::new(Absent("jail")), open, Arc::new(Absent("docker"))]);
        assert_eq!(first.name(), "jail");
        first.create(spec()).await.unwrap().destroy().await.unwrap();
        assert_eq!(first.name(), "unconfined");
        first.create(spec()).await.unwrap().destroy().await.unwrap();
    }

    #[tokio::test]
    async fn when_none_works_each_says_why_and_the_best_is_mended() {
        let none = FallbackBackend::of(vec![Arc::new(Absent("jail")), Arc::new(Absent("podman"))]);
        let Err(SandboxError::Unavailable { missing, fix }) = none.create(spec()).await else { panic!("made") };
        assert_eq!(missing, "jail: jail is not there; podman: podman is not there");
        assert_eq!(fix, "install jail");
    }
}
