//! A client of a container engine: its identity, the limits that it can enforce, and the requests that we make.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, ContainerSummary, SystemInfo, SystemInfoCgroupVersionEnum};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder, StartContainerOptions, WaitContainerOptions,
};
use futures_util::{StreamExt, TryStreamExt};
use jail::{CgroupController, ContainerKernel, EngineNamespaces};
use serde::Serialize;

use super::container_dir::{HostScratch, is_dead};
use super::create_request::{HOST, OWNER, host_name};
use super::creation_lock::CreationLock;
use super::engine_error::{engine_message, request_failed, unavailable};
use super::engine_owner::{engine_namespaces, socket_owner};
use super::{ContainerSettings, create};
use crate::SandboxError;

/// How often a container list is requested when it cannot be parsed.
const LIST_ATTEMPTS: usize = 4;
const LIST_PAUSE: Duration = Duration::from_millis(50);

/// How long an engine may take to answer one request.
const REQUEST_TIMEOUT_SECS: u64 = 120;

/// A kind of container engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

impl EngineKind {
    /// Returns the name on the command line and in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// Returns the shell command that starts the engine.
    fn start_command(self) -> &'static str {
        match (self, rustix::process::geteuid().is_root()) {
            (Self::Docker, _) => "sudo systemctl start docker",
            (Self::Podman, true) => "sudo systemctl start podman.socket",
            (Self::Podman, false) => "systemctl --user start podman.socket",
        }
    }
}

/// The identity of an engine, and the policy keys that it cannot enforce.
#[derive(Debug, Clone, Serialize)]
pub struct EngineReport {
    /// The kind of engine.
    pub kind: EngineKind,
    /// The socket on which it listens.
    pub socket: PathBuf,
    /// The engine's version.
    pub version: String,
    /// Whether it runs without root.
    pub rootless: bool,
    /// The OCI runtimes that it knows.
    pub runtimes: Vec<String>,
    /// The policy keys that it cannot enforce.
    pub cannot_keep: Vec<&'static str>,
}

/// A connection to an engine.
#[derive(Debug, Clone)]
pub(super) struct ContainerEngine {
    api: Docker,
    kind: EngineKind,
    socket: PathBuf,
    info: SystemInfo,
    rootless: bool,
}

impl ContainerEngine {
    /// Connects to the first socket on which an engine of the right kind answers.
    pub(super) async fn connect(settings: &ContainerSettings) -> Result<Self, SandboxError> {
        let mut failures = Vec::new();
        for socket in &settings.sockets {
            match Self::open(settings.kind, socket).await {
                Ok(engine) => return engine.check_usable(settings),
                Err(reason) => failures.push(format!("{}: {reason}", socket.display())),
            }
        }
        let name = settings.kind.as_str();
        let missing = format!("no {name} engine answers ({})", failures.join("; "));
        Err(unavailable(missing, settings.kind.start_command()))
    }

    async fn open(kind: EngineKind, socket: &Path) -> Result<Self, String> {
        if !socket.exists() {
            return Err("the socket does not exist".to_owned());
        }
        let path = socket.to_string_lossy();
        let api = Docker::connect_with_unix(&path, REQUEST_TIMEOUT_SECS, bollard::API_DEFAULT_VERSION);
        let api = api
            .map_err(|error| engine_message(&error))?
            .negotiate_version()
            .await
            .map_err(|error| engine_message(&error))?;
        let version = api.version().await.map_err(|error| engine_message(&error))?;
        let parts = version.components.unwrap_or_default();
        let is_podman = parts.iter().any(|part| part.name.to_lowercase().contains("podman"));
        if is_podman != (kind == EngineKind::Podman) {
            return Err(format!("the engine that answers is not {}", kind.as_str()));
        }
        let info = api.info().await.map_err(|error| engine_message(&error))?;
        let rootless = !socket_owner(socket).map_err(|error| error.to_string())?.uid.is_root();
        Ok(Self { api, kind, socket: socket.to_owned(), info, rootless })
    }

    /// Fails when no container of this engine could be confined, whatever the policy says.
    fn check_usable(self, settings: &ContainerSettings) -> Result<Self, SandboxError> {
        if !self.has_security_option("seccomp") {
            let missing = format!("this {} has no seccomp, so system calls cannot be filtered", self.kind.as_str());
            return Err(unavailable(missing, "viv exec --backend=jail -- true"));
        }
        if self.kind == EngineKind::Docker && self.is_rootless() {
            return Err(unavailable(
                "rootless docker shows the owner of a workspace as root inside, and cannot map that user to another",
                "systemctl --user start podman.socket, and use `--backend=podman`; or use `--backend=jail`",
            ));
        }
        let Some(runtime) = &settings.runtime else { return Ok(self) };
        let (known, name) = (self.runtimes(), self.kind.as_str());
        match self.kind {
            EngineKind::Docker if !known.contains(runtime) => Err(unavailable(
                format!("{name} does not know the runtime `{runtime}`, only {}", known.join(", ")),
                format!("sudo apt-get install {runtime}, and add it to `runtimes` in /etc/docker/daemon.json"),
            )),
            // Podman ignores the runtime of a container without an error.
            EngineKind::Podman if !self.is_default_runtime(runtime) => Err(unavailable(
                format!("{name} runs containers with its default runtime, which is not `{runtime}`"),
                format!("set `runtime = \"{runtime}\"` under `[engine]` in /etc/containers/containers.conf"),
            )),
            _ => Ok(self),
        }
    }

    /// Returns whether `runtime` is the engine's default.
    fn is_default_runtime(&self, runtime: &str) -> bool {
        self.info.default_runtime.as_deref().is_some_and(|default| default.rsplit('/').next() == Some(runtime))
    }

    /// Returns the kernel that containers run on.
    pub(super) fn kernel(&self, settings: &ContainerSettings) -> ContainerKernel {
        let runtime = settings.runtime.as_ref().or(self.info.default_runtime.as_ref());
        let own = runtime.is_some_and(|runtime| runtime.rsplit('/').next().is_some_and(|name| name.contains("runsc")));
        if own { ContainerKernel::Own } else { ContainerKernel::Host }
    }

    /// Returns whether the engine reports the security option `name`.
    fn has_security_option(&self, name: &str) -> bool {
        let options = self.info.security_options.iter().flatten();
        options.into_iter().any(|option| option.split(',').any(|part| part == format!("name={name}") || part == name))
    }

    fn runtimes(&self) -> Vec<String> {
        let mut names: Vec<String> = self.info.runtimes.iter().flat_map(HashMap::keys).cloned().collect();
        names.sort();
        names
    }

    /// Returns whether the engine runs without root. Podman does not report it, so the owner of its socket decides.
    fn is_rootless(&self) -> bool {
        self.rootless || self.has_security_option("rootless")
    }

    /// Returns a description of the cgroup that enforces a limit; `None` when the engine cannot enforce it. A rootless
    /// engine has no v1 cgroups, and ignores limits without an error.
    pub(super) fn enforces(&self, controller: CgroupController) -> Option<String> {
        let is_v1 = self.info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_1);
        let reported = match controller {
            CgroupController::Memory => self.info.memory_limit,
            CgroupController::Pids => self.info.pids_limit,
            CgroupController::Cpu => self.info.cpu_cfs_quota,
        };
        let is_enforced = reported == Some(true) && !(is_v1 && self.is_rootless());
        is_enforced.then(|| format!("{} (cgroup{})", self.kind.as_str(), if is_v1 { 1 } else { 2 }))
    }

    pub(super) fn report(&self) -> EngineReport {
        let keys = [
            (CgroupController::Memory, "proc.memory"),
            (CgroupController::Pids, "proc.pids"),
            (CgroupController::Cpu, "proc.cpus"),
        ];
        let missing = keys.into_iter().filter(|(controller, _)| self.enforces(*controller).is_none());
        EngineReport {
            kind: self.kind,
            socket: self.socket.clone(),
            version: self.info.server_version.clone().unwrap_or_default(),
            rootless: self.is_rootless(),
            runtimes: self.runtimes(),
            cannot_keep: missing.map(|(_, key)| key).collect(),
        }
    }

    /// Fails unless the image exists, or could be pulled where the settings allow it.
    pub(super) async fn ensure_image(&self, settings: &ContainerSettings) -> Result<(), SandboxError> {
        let image = settings.image.as_str();
        let name = self.kind.as_str();
        match self.api.inspect_image(image).await {
            Ok(_) => Ok(()),
            Err(Error::DockerResponseServerError { status_code: 404, message }) if !settings.pull => Err(unavailable(
                format!("{name} has no image `{image}`, and `pull` is off ({})", message.trim()),
                if image.starts_with("localhost/") {
                    format!("{name} build -t {image} docs/container")
                } else {
                    format!("{name} pull {image}")
                },
            )),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => self.pull(image).await,
            Err(error) => Err(request_failed("look for the image")(error)),
        }
    }

    async fn pull(&self, image: &str) -> Result<(), SandboxError> {
        let options = CreateImageOptionsBuilder::default().from_image(image).build();
        let pulled = self.api.create_image(Some(options), None, None).try_for_each(|_| async { Ok(()) }).await;
        pulled.map_err(request_failed(&format!("pull the image `{image}`")))
    }

    /// Returns the namespaces in which mounts for this engine are laid out; `None` for the host's own.
    pub(super) fn namespaces(&self) -> Result<Option<EngineNamespaces>, SandboxError> {
        engine_namespaces(self.kind, &self.socket)
    }

    /// Creates and starts the container `name`.
    pub(super) async fn start(&self, mut body: ContainerCreateBody, name: &str) -> Result<(), SandboxError> {
        if let (true, Some(host)) = (self.is_rootless(), &mut body.host_config) {
            // The user who runs the engine keeps their user id inside, and is not root there.
            host.userns_mode = Some("keep-id".to_owned());
        }
        self.make(body, name).await?;
        let started = self.api.start_container(name, None::<StartContainerOptions>).await;
        started.map_err(request_failed("start the container"))
    }

    async fn make(&self, body: ContainerCreateBody, name: &str) -> Result<(), SandboxError> {
        let _lock = if self.is_rootless() {
            Some(CreationLock::acquire(&self.socket).await.map_err(|error| create("lock the engine", error))?)
        } else {
            None
        };
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        self.api.create_container(Some(options), body).await.map_err(request_failed("create the container"))?;
        Ok(())
    }

    /// Returns the process id of a container's first process on the host.
    pub(super) async fn pid(&self, name: &str) -> Result<i32, SandboxError> {
        let inspected = self.api.inspect_container(name, None::<InspectContainerOptions>).await;
        let state = inspected.map_err(request_failed("inspect the container"))?.state;
        let pid = state.and_then(|state| state.pid).and_then(|pid| i32::try_from(pid).ok());
        pid.filter(|pid| *pid > 0).ok_or(SandboxError::Gone)
    }

    /// Waits until a container has ended; returns how it ended, in a sentence.
    pub(super) async fn wait_for_end(&self, name: &str) -> String {
        match self.api.wait_container(name, None::<WaitContainerOptions>).next().await {
            Some(Ok(ended)) => format!("the container exited with code {}", ended.status_code),
            Some(Err(error)) => engine_message(&error),
            None => "the container ended".to_owned(),
        }
    }

    /// Removes a container and everything in it, if it exists.
    pub(super) async fn remove(&self, name: &str) {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        // This may fail because the engine itself removes a container that has ended.
        let _ = self.api.remove_container(name, Some(options)).await;
    }

    /// Returns all containers that have our label.
    async fn labelled_containers(&self) -> Result<Vec<ContainerSummary>, Error> {
        let filters = HashMap::from([("label".to_owned(), vec![OWNER.to_owned()])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.api.list_containers(Some(options.clone())).await {
                // Podman reports a container that is ending as `stopped`, a state that the API does not define.
                Err(Error::JsonDataError { .. }) if attempts < LIST_ATTEMPTS => tokio::time::sleep(LIST_PAUSE).await,
                listed => return listed,
            }
        }
    }

    /// Removes the containers of dead processes of this host.
    pub(super) async fn sweep(&self, scratch: &HostScratch) {
        let this_host = host_name();
        let containers = self.labelled_containers().await.unwrap_or_else(|error| {
            tracing::warn!(error = engine_message(&error), "cannot list containers of dead hosts; none was removed");
            Vec::new()
        });
        for container in containers {
            let labels = container.labels.unwrap_or_default();
            let (host, owner) = (labels.get(HOST), labels.get(OWNER));
            let is_orphan =
                host == Some(&this_host) && owner.is_some_and(|owner| owner != scratch.owner() && is_dead(owner));
            if let (true, Some(id)) = (is_orphan, container.id) {
                self.remove(&id).await;
            }
        }
    }
}

/// Returns a unique container name for a sandbox. Sandboxes of two processes may have the same id.
pub(super) fn unique_name(name: &str) -> String {
    let letters = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    format!("viv-{}-{}", letters.collect::<String>(), uuid::Uuid::new_v4().simple())
}
