//! A container of an engine, together with everything that was made for it on the host.

use std::future::Future;
use std::pin::Pin;

use jail::{CgroupLimits, CgroupWatch, MountLayout};

use super::bridge::PortBridge;
use super::container_dir::ContainerDir;
use super::engine::ContainerEngine;
use super::engine_error::unavailable;
use crate::SandboxError;
use crate::blocking::BlockingRunner;
use crate::running::SandboxResources;

/// A container, with the mounts and directories that were made for it.
pub(super) struct EngineContainer {
    engine: ContainerEngine,
    /// The container's name in the engine.
    name: String,
    watch: Option<CgroupWatch>,
    /// Forwards the ports of a container that cannot pass listeners out.
    bridge: Option<PortBridge>,
    // Dropped before the directory that it is mounted in.
    layout: Option<MountLayout>,
    directory: Option<ContainerDir>,
}

impl EngineContainer {
    /// Returns a handle to the container `name`, which the engine may not have created yet.
    pub(super) fn new(engine: ContainerEngine, name: String, directory: ContainerDir, layout: MountLayout) -> Self {
        Self { engine, name, watch: None, bridge: None, layout: Some(layout), directory: Some(directory) }
    }

    /// Returns the container's directory on the host; `None` once released.
    pub(super) fn directory(&self) -> Option<&ContainerDir> {
        self.directory.as_ref()
    }

    pub(super) fn set_bridge(&mut self, bridge: PortBridge) {
        self.bridge = Some(bridge);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn engine(&self) -> &ContainerEngine {
        &self.engine
    }

    pub(super) fn set_watch(&mut self, watch: CgroupWatch) {
        self.watch = Some(watch);
    }

    /// Sets the limit of socket buffers, which engines do not offer.
    pub(super) fn limit_sockets(&self, requested: &CgroupLimits) -> Result<(), SandboxError> {
        let (Some(bytes), Some(watch)) = (requested.socket_bytes, &self.watch) else { return Ok(()) };
        watch.limit_sockets(bytes).map_err(|error| {
            unavailable(
                format!("`proc.sockets` cannot be enforced here: cannot set the limit in the engine's cgroup: {error}"),
                "use `--backend=jail`",
            )
        })
    }

    /// Fails unless the kernel has the requested memory limit. Some engines accept a limit and ignore it.
    pub(super) fn check_limits(&self, requested: &CgroupLimits) -> Result<(), SandboxError> {
        let Some(bytes) = requested.memory_bytes else { return Ok(()) };
        let found = self.watch.as_ref().and_then(CgroupWatch::memory_limit);
        if found.is_some_and(|found| found <= bytes) {
            return Ok(());
        }
        Err(unavailable(
            "`proc.memory` cannot be enforced here: the engine accepted the limit, but the kernel has none",
            "add `degrade: {memory: rlimit}` to the policy, or use `--backend=jail`",
        ))
    }
}

impl SandboxResources for EngineContainer {
    fn oom_kills(&self) -> u64 {
        self.watch.as_ref().map_or(0, CgroupWatch::oom_kills)
    }

    fn cpu_micros(&self) -> Option<u64> {
        self.watch.as_ref().and_then(CgroupWatch::cpu_micros)
    }

    fn release(mut self: Box<Self>, runner: BlockingRunner) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            self.engine.remove(&self.name).await;
            let on_host = (self.layout.take(), self.directory.take());
            // Unmounting may wait for the kernel.
            drop(runner.run(move || drop(on_host)).await);
        })
    }
}

impl Drop for EngineContainer {
    fn drop(&mut self) {
        // After `release` nothing is left. Otherwise the control socket has been closed: the init exits, and the engine
        // removes the container. Within a runtime, the removal is requested as well.
        if self.layout.is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (engine, name) = (self.engine.clone(), std::mem::take(&mut self.name));
            runtime.spawn(async move { engine.remove(&name).await });
        }
        // The mounts are removed here and not in the task, because a host that exits does not wait for its tasks.
    }
}
