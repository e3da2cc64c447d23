//! The engine behind its socket: who it is, what it can keep, and the few things asked of it.

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
use jail::{CgroupController, EngineNamespaces, GuestKernel};
use serde::Serialize;

use super::body::{HOST, OWNER, host_name};
use super::owner::{listener, quarters};
use super::place::{Places, is_dead};
use super::turn::Turn;
use super::words::{in_its_words, said, unavailable};
use super::{ContainerSettings, create};
use crate::SandboxError;

/// How often a list that cannot be read is asked for.
const LOOKS: usize = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// How long an engine may take to answer one request.
const PATIENCE_SECS: u64 = 120;

/// Whose API an engine speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

impl EngineKind {
    /// Its name on the command line and in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// A line that makes it listen.
    fn start(self) -> &'static str {
        match (self, rustix::process::geteuid().is_root()) {
            (Self::Docker, _) => "sudo systemctl start docker",
            (Self::Podman, true) => "sudo systemctl start podman.socket",
            (Self::Podman, false) => "systemctl --user start podman.socket",
        }
    }
}

/// What an engine is, and what it can keep of a policy.
#[derive(Debug, Clone, Serialize)]
pub struct EngineReport {
    /// Whose API it is.
    pub kind: EngineKind,
    /// Where it listens.
    pub socket: PathBuf,
    /// Its own version.
    pub version: String,
    /// Whether it runs without root.
    pub rootless: bool,
    /// The OCI runtimes it knows.
    pub runtimes: Vec<String>,
    /// Keys of a policy that it cannot keep.
    pub cannot_keep: Vec<&'static str>,
}

/// An engine that answered.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    api: Docker,
    kind: EngineKind,
    socket: PathBuf,
    info: SystemInfo,
    rootless: bool,
}

impl Engine {
    /// The first of the sockets behind which the right engine answers.
    pub(super) async fn connect(settings: &ContainerSettings) -> Result<Self, SandboxError> {
        let mut tried = Vec::new();
        for socket in &settings.sockets {
            match Self::open(settings.kind, socket).await {
                Ok(engine) => return engine.fit_for(settings),
                Err(why) => tried.push(format!("{}: {why}", socket.display())),
            }
        }
        let name = settings.kind.as_str();
        let missing = format!("no {name} engine answers ({})", tried.join("; "));
        Err(unavailable(missing, settings.kind.start()))
    }

    async fn open(kind: EngineKind, socket: &Path) -> Result<Self, String> {
        if !socket.exists() {
            return Err("there is no such socket".to_owned());
        }
        let path = socket.to_string_lossy();
        let api = Docker::connect_with_unix(&path, PATIENCE_SECS, bollard::API_DEFAULT_VERSION);
        let api = api.map_err(|error| said(&error))?.negotiate_version().await.map_err(|error| said(&error))?;
        let version = api.version().await.map_err(|error| said(&error))?;
        let parts = version.components.unwrap_or_default();
        let is_podman = parts.iter().any(|part| part.name.to_lowercase().contains("podman"));
        if is_podman != (kind == EngineKind::Podman) {
            return Err(format!("what answers is not {}", kind.as_str()));
        }
        let info = api.info().await.map_err(|error| said(&error))?;
        let rootless = !listener(socket).map_err(|error| error.to_string())?.uid.is_root();
        Ok(Self { api, kind, socket: socket.to_owned(), info, rootless })
    }

    /// Refuses what no container of it could keep, whatever the policy.
    fn fit_for(self, settings: &ContainerSettings) -> Result<Self, SandboxError> {
        if !self.has("seccomp") {
            let missing = format!("this {} has no seccomp: system calls could not be filtered", self.kind.as_str());
            return Err(unavailable(missing, "viv exec --backend=jail -- true"));
        }
        if self.kind == EngineKind::Docker && self.is_rootless() {
            return Err(unavailable(
                "docker without root shows who owns a workspace as root inside: it can map that user to no other",
                "systemctl --user start podman.socket, and use `--backend=podman`; or use `--backend=jail`",
            ));
        }
        let Some(runtime) = &settings.runtime else { return Ok(self) };
        let (known, name) = (self.runtimes(), self.kind.as_str());
        match self.kind {
            EngineKind::Docker if !known.contains(runtime) => Err(unavailable(
                format!("{name} knows no runtime `{runtime}`, only {}", known.join(", ")),
                format!("sudo apt-get install {runtime}, and name it under `runtimes` in /etc/docker/daemon.json"),
            )),
            // It takes no runtime with a container, and says nothing when it is given one.
            EngineKind::Podman if !self.runs_by_itself(runtime) => Err(unavailable(
                format!("{name} runs containers with its own runtime, which is not `{runtime}`"),
                format!("write `runtime = \"{runtime}\"` under `[engine]` in /etc/containers/containers.conf"),
            )),
            _ => Ok(self),
        }
    }

    /// Whether `runtime` is what the engine uses when nobody says.
    fn runs_by_itself(&self, runtime: &str) -> bool {
        self.info.default_runtime.as_deref().is_some_and(|default| default.rsplit('/').next() == Some(runtime))
    }

    /// Whose kernel the commands of its containers meet.
    pub(super) fn kernel(&self, settings: &ContainerSettings) -> GuestKernel {
        let runtime = settings.runtime.as_ref().or(self.info.default_runtime.as_ref());
        let own = runtime.is_some_and(|runtime| runtime.rsplit('/').next().is_some_and(|name| name.contains("runsc")));
        if own { GuestKernel::Own } else { GuestKernel::Host }
    }

    /// Whether the engine tells of a security option of that name.
    fn has(&self, name: &str) -> bool {
        let options = self.info.security_options.iter().flatten();
        options.into_iter().any(|option| option.split(',').any(|part| part == format!("name={name}") || part == name))
    }

    fn runtimes(&self) -> Vec<String> {
        let mut names: Vec<String> = self.info.runtimes.iter().flat_map(HashMap::keys).cloned().collect();
        names.sort();
        names
    }

    /// Podman does not say so of itself: whoever listens does.
    fn is_rootless(&self) -> bool {
        self.rootless || self.has("rootless")
    }

    /// By what it keeps a limit, if it does. Without root it is given no group of the first version, and says
    /// nothing when it is asked for one.
    pub(super) fn keeps(&self, controller: CgroupController) -> Option<String> {
        let first = self.info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_1);
        let told = match controller {
            CgroupController::Memory => self.info.memory_limit,
            CgroupController::Pids => self.info.pids_limit,
            CgroupController::Cpu => self.info.cpu_cfs_quota,
        };
        let kept = told == Some(true) && !(first && self.is_rootless());
        kept.then(|| format!("{} (cgroup{})", self.kind.as_str(), if first { 1 } else { 2 }))
    }

    pub(super) fn report(&self) -> EngineReport {
        let keys = [
            (CgroupController::Memory, "proc.memory"),
            (CgroupController::Pids, "proc.pids"),
            (CgroupController::Cpu, "proc.cpus"),
        ];
        let lost = keys.into_iter().filter(|(controller, _)| self.keeps(*controller).is_none());
        EngineReport {
            kind: self.kind,
            socket: self.socket.clone(),
            version: self.info.server_version.clone().unwrap_or_default(),
            rootless: self.is_rootless(),
            runtimes: self.runtimes(),
            cannot_keep: lost.map(|(_, key)| key).collect(),
        }
    }

    /// The image is there, or is fetched where that was allowed.
    pub(super) async fn ensure_image(&self, settings: &ContainerSettings) -> Result<(), SandboxError> {
        let image = settings.image.as_str();
        let name = self.kind.as_str();
        match self.api.inspect_image(image).await {
            Ok(_) => Ok(()),
            Err(Error::DockerResponseServerError { status_code: 404, message }) if !settings.pull => Err(unavailable(
                format!("{name} has no image `{image}`, and was not told to fetch it ({})", message.trim()),
                if image.starts_with("localhost/") {
                    format!("{name} build -t {image} docs/container")
                } else {
                    format!("{name} pull {image}")
                },
            )),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => self.pull(image).await,
            Err(error) => Err(in_its_words("look for the image")(error)),
        }
    }

    async fn pull(&self, image: &str) -> Result<(), SandboxError> {
        let options = CreateImageOptionsBuilder::default().from_image(image).build();
        let pulled = self.api.create_image(Some(options), None, None).try_for_each(|_| async { Ok(()) }).await;
        pulled.map_err(in_its_words(&format!("fetch the image `{image}`")))
    }

    /// Where what it mounts is laid out; nothing where that is the host's own tree.
    pub(super) fn quarters(&self) -> Result<Option<EngineNamespaces>, SandboxError> {
        quarters(self.kind, &self.socket)
    }

    /// Makes and starts the container of that name.
    pub(super) async fn start(&self, mut body: ContainerCreateBody, name: &str) -> Result<(), SandboxError> {
        if let (true, Some(host)) = (self.is_rootless(), &mut body.host_config) {
            // The user whose engine it is has the same number inside, and is not root there.
            host.userns_mode = Some("keep-id".to_owned());
        }
        self.make(body, name).await?;
        let started = self.api.start_container(name, None::<StartContainerOptions>).await;
        started.map_err(in_its_words("start the container"))
    }

    async fn make(&self, body: ContainerCreateBody, name: &str) -> Result<(), SandboxError> {
        let _turn = if self.is_rootless() {
            Some(Turn::wait(&self.socket).await.map_err(|error| create("wait for the engine", error))?)
        } else {
            None
        };
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        self.api.create_container(Some(options), body).await.map_err(in_its_words("create the container"))?;
        Ok(())
    }

    /// The first process of a container, in the host's numbers.
    pub(super) async fn pid(&self, name: &str) -> Result<i32, SandboxError> {
        let told = self.api.inspect_container(name, None::<InspectContainerOptions>).await;
        let state = told.map_err(in_its_words("look at the container"))?.state;
        let pid = state.and_then(|state| state.pid).and_then(|pid| i32::try_from(pid).ok());
        pid.filter(|pid| *pid > 0).ok_or(SandboxError::Gone)
    }

    /// Comes when a container has ended; what the engine says of it.
    pub(super) async fn ended(&self, name: &str) -> String {
        match self.api.wait_container(name, None::<WaitContainerOptions>).next().await {
            Some(Ok(ended)) => format!("it ended with code {}", ended.status_code),
            Some(Err(error)) => said(&error),
            None => "it ended".to_owned(),
        }
    }

    /// Removes a container and everything in it; one that is gone is fine.
    pub(super) async fn remove(&self, name: &str) {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        // It may be on its way out already: the engine removes by itself what has ended.
        let _ = self.api.remove_container(name, Some(options)).await;
    }

    /// Every container of ours, whoever made it.
    async fn ours(&self) -> Result<Vec<ContainerSummary>, Error> {
        let filters = HashMap::from([("label".to_owned(), vec![OWNER.to_owned()])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let mut looks = 0;
        loop {
            looks += 1;
            match self.api.list_containers(Some(options.clone())).await {
                // Podman says of one that is about to end that it is `stopped`, which is no word of the API.
                Err(Error::JsonDataError { .. }) if looks < LOOKS => tokio::time::sleep(BETWEEN_LOOKS).await,
                listed => return listed,
            }
        }
    }

    /// Removes what processes of this host that are dead have left.
    pub(super) async fn sweep(&self, places: &Places) {
        let here = host_name();
        let ours = self.ours().await.unwrap_or_else(|error| {
            tracing::warn!(error = said(&error), "containers that others left cannot be looked for");
            Vec::new()
        });
        for container in ours {
            let labels = container.labels.unwrap_or_default();
            let (host, owner) = (labels.get(HOST), labels.get(OWNER));
            let left = host == Some(&here) && owner.is_some_and(|owner| owner != places.owner() && is_dead(owner));
            if let (true, Some(id)) = (left, container.id) {
                self.remove(&id).await;
            }
        }
    }
}

/// A name that no other container has: sandboxes of two processes may be called the same.
pub(super) fn unique(name: &str) -> String {
    let letters = name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    format!("viv-{}-{}", letters.collect::<String>(), uuid::Uuid::new_v4().simple())
}
