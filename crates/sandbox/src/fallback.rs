//! A backend that uses the first of several backends that works on this machine.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use base::WORKSPACE;
use jail::Spawner;
use policy::EffectivePolicy;

use crate::{
    ContainerBackend, ContainerSettings, JailBackend, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxSpec,
};

/// Tries backends in order until one has made a sandbox, and then always uses that one.
///
/// Only a backend that fails with [`SandboxError::Unavailable`] is skipped. Any other error is returned.
pub struct FallbackBackend {
    backends: Vec<Arc<dyn SandboxBackend>>,
    chosen: OnceLock<Arc<dyn SandboxBackend>>,
}

impl FallbackBackend {
    /// Returns a backend that tries `backends` in order.
    pub fn new(backends: Vec<Arc<dyn SandboxBackend>>) -> Self {
        Self { backends, chosen: OnceLock::new() }
    }

    /// Returns a backend that tries the jail, then each of `engines` whose socket exists. Mounts of containers are laid
    /// out under `scratch`.
    pub fn detect(
        spawner: &Arc<Spawner>,
        engines: impl IntoIterator<Item = ContainerSettings>,
        scratch: &Path,
    ) -> Result<Self, SandboxError> {
        let mut backends: Vec<Arc<dyn SandboxBackend>> = vec![Arc::new(JailBackend::new(Arc::clone(spawner))?)];
        // Engines that do not run are left out, so that the error does not list them.
        for settings in engines.into_iter().filter(ContainerSettings::is_listening) {
            backends.push(Arc::new(ContainerBackend::new(settings, Arc::clone(spawner), scratch.to_owned())?));
        }
        Ok(Self::new(backends))
    }

    async fn try_all(&self, spec: SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let (mut reasons, mut first_fix) = (Vec::new(), String::new());
        for backend in &self.backends {
            match backend.create(spec.clone()).await {
                Ok(sandbox) => {
                    self.chosen.get_or_init(|| Arc::clone(backend));
                    return Ok(sandbox);
                }
                Err(SandboxError::Unavailable { missing, fix }) => {
                    reasons.push(format!("{}: {missing}", backend.name()));
                    if first_fix.is_empty() {
                        first_fix = fix;
                    }
                }
                Err(other) => return Err(other),
            }
        }
        Err(SandboxError::Unavailable { missing: reasons.join("; "), fix: first_fix })
    }
}

impl SandboxBackend for FallbackBackend {
    fn name(&self) -> &'static str {
        self.chosen.get().or(self.backends.first()).map_or("none", |backend| backend.name())
    }

    fn workspace_path(&self, path: &Path, policy: &EffectivePolicy) -> PathBuf {
        let backend = self.chosen.get().or(self.backends.first());
        backend.map_or_else(|| PathBuf::from(WORKSPACE), |backend| backend.workspace_path(path, policy))
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

    /// A backend that is not available.
    struct UnavailableBackend(&'static str);

    impl SandboxBackend for UnavailableBackend {
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
        SandboxSpec {
            id: "one".into(),
            workspace: None,
            workspace_at: "/workspace".into(),
            toolchains: crate::Toolchains::default(),
            mounts: vec![],
            files: vec![],
            policy: Arc::new(policy),
        }
    }

    #[tokio::test]
    async fn first_working_backend_is_used_from_then_on() {
        let scratch = tempfile::tempdir().unwrap();
        let open: Arc<dyn SandboxBackend> = Arc::new(UnconfinedBackend::new(scratch.path().to_owned()));
        let first = FallbackBackend::new(vec![
            Arc::new(UnavailableBackend("jail")),
            open,
            Arc::new(UnavailableBackend("docker")),
        ]);
        assert_eq!(first.name(), "jail");
        first.create(spec()).await.unwrap().destroy().await.unwrap();
        assert_eq!(first.name(), "unconfined");
        first.create(spec()).await.unwrap().destroy().await.unwrap();
    }

    #[tokio::test]
    async fn error_lists_every_reason_and_the_first_fix() {
        let none =
            FallbackBackend::new(vec![Arc::new(UnavailableBackend("jail")), Arc::new(UnavailableBackend("podman"))]);
        let Err(SandboxError::Unavailable { missing, fix }) = none.create(spec()).await else { panic!("made") };
        assert_eq!(missing, "jail: jail is not there; podman: podman is not there");
        assert_eq!(fix, "install jail");
    }
}
