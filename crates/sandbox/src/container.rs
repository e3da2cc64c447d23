//! The container backend: sandboxes made by Docker or Podman through their API, with any OCI runtime.
//!
//! The engine enforces the same policy as a jail: no network, a read-only root, no capabilities, limits, and a user that
//! does not exist on the host. Our own init runs inside and takes commands over the one mounted socket, so commands,
//! files, listeners and exits work as in a jail. A policy key that an engine cannot enforce is refused by its name. When
//! this process dies, the socket closes and the container ends.
//!
//! Not here: how a workspace is laid out (`jail::MountLayout`), and the running sandbox (`running`).

mod bridge;
mod container_dir;
mod create_request;
mod creation_lock;
mod engine;
mod engine_container;
mod engine_error;
mod engine_owner;
mod own_kernel;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::WORKSPACE;
use bollard::models::ContainerCreateBody;
use jail::{
    CgroupLimits, CgroupWatch, EngineNamespaces, HostUser, InitSettings, InitSocket, Jail, JailPlan, MountLayout,
    NewJail, Spawner,
};
use tokio::net::UnixListener;
use tokio::sync::OnceCell;

use self::container_dir::{ContainerDir, HostScratch};
use self::create_request::{create_body, mounts};
use self::engine::{ContainerEngine, unique_name};
pub use self::engine::{EngineKind, EngineReport};
use self::engine_container::EngineContainer;
use self::engine_error::unavailable;
use self::own_kernel::{PortSockets, kernel_rows, limit_enforcer};
use crate::blocking::BlockingRunner;
use crate::host_paths::HostPaths;
use crate::jail_backend::describe_enforcement;
use crate::plan::{SandboxPlan, plan};
use crate::running::{NewSandbox, RunningSandbox, SandboxResources};
use crate::system_files::SystemFiles;
use crate::{
    ExecSpec, OverlayLayers, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxSpec, limits, refusal,
};

/// How long an engine may take to start the first program of a container.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Directories that come from the image. A policy that allows to read them means the image's.
const IMAGE_DIRECTORIES: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];

/// The image that this project's Dockerfile builds.
const DEFAULT_IMAGE: &str = "localhost/vivarium:latest";

/// The engine to use, and how to make containers with it.
#[derive(Debug, Clone)]
pub struct ContainerSettings {
    /// The engine.
    pub kind: EngineKind,
    /// Sockets to try, the likeliest first.
    pub sockets: Vec<PathBuf>,
    /// The image of containers.
    pub image: String,
    /// A command that runs once in each new container, before any other; none when empty.
    pub entrypoint: Vec<String>,
    /// The OCI runtime, by the engine's name for it; the engine's default when absent.
    pub runtime: Option<String>,
    /// Whether a missing image is pulled.
    pub pull: bool,
}

impl ContainerSettings {
    /// Returns settings with the default image and the engine's usual sockets: the system's, and the user's below
    /// `runtime_dir`.
    pub fn with_defaults(kind: EngineKind, runtime_dir: Option<&Path>) -> Self {
        let (system, own) = match kind {
            EngineKind::Docker => ("/var/run/docker.sock", "docker.sock"),
            EngineKind::Podman => ("/run/podman/podman.sock", "podman/podman.sock"),
        };
        let own = runtime_dir.map(|directory| directory.join(own));
        let mut sockets: Vec<PathBuf> = std::iter::once(PathBuf::from(system)).chain(own).collect();
        if !rustix::process::geteuid().is_root() {
            // An ordinary user cannot lay out mounts for root's engine, so their own engine comes first.
            sockets.reverse();
        }
        Self { kind, sockets, image: DEFAULT_IMAGE.to_owned(), entrypoint: Vec::new(), runtime: None, pull: false }
    }

    /// Returns whether one of the sockets exists.
    pub(crate) fn is_listening(&self) -> bool {
        self.sockets.iter().any(|socket| socket.exists())
    }
}

/// Makes sandboxes with a container engine.
#[derive(Clone)]
pub struct ContainerBackend {
    settings: Arc<ContainerSettings>,
    spawner: Arc<Spawner>,
    runner: BlockingRunner,
    engine: Arc<OnceCell<ContainerEngine>>,
    scratch: Arc<HostScratch>,
}

impl ContainerBackend {
    /// Makes a backend that lays containers' mounts out under `scratch`. Removes what dead hosts left there.
    pub fn new(settings: ContainerSettings, spawner: Arc<Spawner>, scratch: PathBuf) -> Result<Self, SandboxError> {
        let scratch =
            HostScratch::open(scratch).map_err(|source| create("make the directory of containers", source))?;
        Ok(Self {
            settings: Arc::new(settings),
            runner: BlockingRunner::for_spawner(&spawner),
            spawner,
            engine: Arc::new(OnceCell::new()),
            scratch: Arc::new(scratch),
        })
    }

    /// Forks a spawner from this process, which must have one thread. Call it first in `main`.
    pub fn spawner() -> Result<Arc<Spawner>, SandboxError> {
        Ok(Arc::new(Spawner::fork().map_err(refusal::explain)?))
    }

    /// Returns a report on the engine, or why it cannot be used.
    pub async fn report(&self) -> Result<EngineReport, SandboxError> {
        Ok(self.engine().await?.report())
    }

    /// Returns the engine. The first call connects to it and removes containers of dead hosts.
    async fn engine(&self) -> Result<&ContainerEngine, SandboxError> {
        self.engine
            .get_or_try_init(|| async {
                let engine = ContainerEngine::connect(&self.settings).await?;
                engine.sweep(&self.scratch).await;
                Ok(engine)
            })
            .await
    }

    async fn make(&self, spec: SandboxSpec) -> Result<RunningSandbox, SandboxError> {
        let engine = self.engine().await?;
        engine.ensure_image(&self.settings).await?;
        let kernel = engine.kernel(&self.settings);
        let limits = limits::choose(&spec.policy, &limit_enforcer(kernel, &|controller| engine.enforces(controller)))?;
        let fs = spec.policy.fs();
        own_kernel::check(kernel, &fs)?;
        let namespaces = engine.namespaces()?;
        let host_paths = HostPaths::new(spec.workspace.as_deref(), &fs.write_paths)?;
        let SandboxPlan { jail: plan, denials, special } =
            plan(&spec, &fs, limits.process, &host_paths, system_files(&fs, &host_paths)?)?;
        refuse_name_server(&plan)?;
        let since = SystemTime::now();
        let (directory, mut layout) = self.lay_out(plan.clone(), namespaces).await?;
        let lower = plan.workspace.directory().cloned();
        let layers =
            layout.upper.take().zip(lower).map(|(upper, lower)| OverlayLayers::new(upper, lower, since, denials));

        let open_failed = |source| create("open the control socket", source);
        let nofile = spec.policy.limits().nofile;
        let request = ContainerRequest {
            body: create_body(&self.settings, &limits.group, nofile, mounts(&directory, &layout), directory.owner()),
            listener: InitSocket::open(&directory.sockets()).map_err(open_failed)?,
            ports: PortSockets::open(kernel, &directory).map_err(open_failed)?,
            init: InitSettings { kernel, process: limits.process },
            limits: limits.group,
        };
        let mut container = EngineContainer::new(engine.clone(), unique_name(&spec.id), directory, layout);
        let made = match start(&mut container, request).await {
            Ok(made) => made,
            Err(error) => {
                // Released here, because the caller may exit as soon as it gets the error.
                Box::new(container).release(self.runner).await;
                return Err(error);
            }
        };
        let mut effective = limits.effective;
        describe_enforcement(
            &mut effective,
            fs.workspace_mode,
            "read-only image + mounts",
            "no network + seccomp + egress proxy",
        );
        special.describe(&mut effective);
        for (key, row) in kernel_rows(kernel, &made.jail, self.settings.kind) {
            effective.set(key, row);
        }
        RunningSandbox::watch(NewSandbox {
            workspace_at: WORKSPACE.into(),
            toolchains: crate::Toolchains::default(),
            id: spec.id,
            spawner: Arc::clone(&self.spawner),
            runner: self.runner,
            made,
            resources: Box::new(container),
            layers,
            effective,
            policy: spec.policy,
        })
    }

    /// Lays the plan out as host paths that the engine can mount.
    async fn lay_out(
        &self,
        plan: JailPlan,
        namespaces: Option<EngineNamespaces>,
    ) -> Result<(ContainerDir, MountLayout), SandboxError> {
        let directory = self.scratch.new_container_dir();
        let directory = directory.map_err(|source| create("make the directory of the container", source))?;
        let spawner = Arc::clone(&self.spawner);
        blocking(move || {
            let layout = MountLayout::make(&spawner, &directory.layout(), &plan, namespaces.as_ref());
            Ok((directory, layout.map_err(refusal::explain)?))
        })
        .await
    }

    /// Runs the entrypoint of the settings.
    async fn run_entrypoint(&self, sandbox: &RunningSandbox) -> Result<(), SandboxError> {
        if self.settings.entrypoint.is_empty() {
            return Ok(());
        }
        let command = self.settings.entrypoint.clone();
        let spec = ExecSpec { command, timeout: Some(START_TIMEOUT), output_limit: Some(4096), ..ExecSpec::default() };
        let failed = |reason: String| {
            let step = format!("run the entrypoint `{}`", self.settings.entrypoint.join(" "));
            create(&step, std::io::Error::other(reason))
        };
        let result = crate::run(sandbox, spec, &mut |_, _| {}).await.map_err(|error| failed(error.to_string()))?;
        if result.exit.code == Some(0) {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&result.stderr).trim().to_owned();
        Err(failed(match (result.timed_out, result.exit.out_of_memory, result.exit.code) {
            (true, ..) => format!("timed out after {} s: {stderr}", START_TIMEOUT.as_secs()),
            (_, true, _) => format!("ran out of memory: {stderr}"),
            (.., Some(code)) => format!("exited with code {code}: {stderr}"),
            _ => format!("ended by a signal: {stderr}"),
        }))
    }
}

impl SandboxBackend for ContainerBackend {
    fn name(&self) -> &'static str {
        self.settings.kind.as_str()
    }

    fn create(&self, spec: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>> {
        Box::pin(async move {
            let sandbox = Box::pin(self.make(spec)).await?;
            if let Err(error) = self.run_entrypoint(&sandbox).await {
                sandbox.destroy().await?;
                return Err(error);
            }
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }
}

/// A container to start, and the settings of its init.
struct ContainerRequest {
    body: ContainerCreateBody,
    /// Accepts the connection of the init.
    listener: std::os::unix::net::UnixListener,
    ports: Option<PortSockets>,
    init: InitSettings,
    limits: CgroupLimits,
}

/// Starts `container` with our init as its first program, and checks the result.
async fn start(container: &mut EngineContainer, request: ContainerRequest) -> Result<NewJail, SandboxError> {
    let engine = container.engine().clone();
    engine.start(request.body, container.name()).await?;
    let control = accept_init(&engine, container, request.listener).await?;
    let init = request.init;
    let made = match request.ports {
        None => blocking(move || Jail::adopt(control, &init).map_err(refusal::explain)).await?,
        Some(ports) => ports.adopt(&engine, container, control, init).await?,
    };
    container.set_watch(CgroupWatch::of(made.jail.pid()));
    container.limit_sockets(&request.limits)?;
    container.check_limits(&request.limits)?;
    Ok(made)
}

/// Waits until the init connects; returns its socket.
async fn accept_init(
    engine: &ContainerEngine,
    container: &EngineContainer,
    listener: std::os::unix::net::UnixListener,
) -> Result<OwnedFd, SandboxError> {
    let failed = |source| create("accept the connection of the init", source);
    let listener = UnixListener::from_std(listener).map_err(failed)?;
    tokio::select! {
        accepted = listener.accept() => {
            let control = accepted.and_then(|(control, _)| control.into_std()).map_err(failed)?;
            control.set_nonblocking(false).map_err(failed)?;
            Ok(control.into())
        }
        ended = engine.wait_for_end(container.name()) => {
            Err(create("start the init", std::io::Error::other(ended)))
        }
        () = tokio::time::sleep(START_TIMEOUT) => Err(create("start the init", std::io::ErrorKind::TimedOut.into())),
    }
}

/// Fails for a plan with a name server: no process inside a container may bind its port.
fn refuse_name_server(plan: &JailPlan) -> Result<(), SandboxError> {
    if !plan.dns {
        return Ok(());
    }
    Err(unavailable(
        "`net.dns: stub` needs a port that no process inside a container may bind",
        "remove `net.dns` from the policy, or use `--backend=jail`",
    ))
}

/// Returns the files to mount over the image: the user database, and readable host paths that no image has.
fn system_files(fs: &policy::FsPolicy, host_paths: &HostPaths) -> Result<SystemFiles, SandboxError> {
    let user = HostUser::for_sandboxes();
    let mut system = SystemFiles::for_user(user.uid(), user.gid());
    let others = fs.read_paths.iter().filter(|path| !IMAGE_DIRECTORIES.iter().any(|part| path.starts_with(part)));
    let others: Vec<PathBuf> = others.cloned().collect();
    for path in &others {
        system.add_path(path, &others, host_paths)?;
    }
    Ok(system)
}

/// Runs blocking work on a blocking thread. A container engine makes the sandbox, so this process may have threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| SandboxError::Gone)?
}

fn create(step: &str, source: std::io::Error) -> SandboxError {
    SandboxError::Create { step: step.to_owned(), source }
}
