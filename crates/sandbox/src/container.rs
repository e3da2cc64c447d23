//! Sandboxes in containers: Docker or Podman, whichever OCI runtime they use, spoken to through their API.
//!
//! The engine makes the walls from the same policy that a jail is made from: no network ever, a read-only root, no
//! capability, limits, a user that is nobody on the host. Inside, our own init takes commands over the one socket
//! that is mounted, so that commands, files, listeners and ends are the same as in a jail. What an engine cannot
//! keep is refused by the name of its key. When this process dies the socket closes, and the container with it.
//!
//! Not here: how a workspace is laid out (`jail::Stage`), and the life of a sandbox that runs (`walled`).

mod apart;
mod body;
mod bridge;
mod engine;
mod owner;
mod place;
mod turn;
mod words;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bollard::models::ContainerCreateBody;
use jail::{
    CgroupLimits, CgroupWatch, EngineNamespaces, GuestOrder, GuestSocket, HostUser, Jail, JailPlan, MountLayout,
    NewJail, Spawner,
};
use tokio::net::UnixListener;
use tokio::sync::OnceCell;

use self::apart::{Ways, cgroup_names, keeper};
use self::body::{Container, create_body, mounts};
use self::engine::{Engine, unique};
pub use self::engine::{EngineKind, EngineReport};
use self::place::{Place, Places};
use self::words::unavailable;
use crate::jailed::describe;
use crate::plan::plan;
use crate::source::Sources;
use crate::system::System;
use crate::walled::{Built, Remains, Walled};
use crate::{
    ExecSpec, OverlayLayers, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxSpec, limits, refusal,
};

/// How long an engine may take until the first program of a container runs.
const START: Duration = Duration::from_secs(60);
/// Places whose content is the image's: a policy that lets them be read means those.
const OF_THE_IMAGE: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];

/// The image that the Dockerfile of this project makes.
const IMAGE: &str = "localhost/vivarium:latest";

/// Which engine to use, and for what.
#[derive(Debug, Clone)]
pub struct ContainerSettings {
    /// Whose API it is.
    pub kind: EngineKind,
    /// Where it may listen, the likeliest first.
    pub sockets: Vec<PathBuf>,
    /// What containers are made of.
    pub image: String,
    /// Runs once in each new container, before anything else; nothing when empty.
    pub entrypoint: Vec<String>,
    /// The OCI runtime, by the name the engine knows it by; its own default when absent.
    pub runtime: Option<String>,
    /// Whether an image that is not there is fetched.
    pub pull: bool,
}

impl ContainerSettings {
    /// An engine where it listens by custom, for everybody and below `runtime_dir` for one user, with the image that
    /// the Dockerfile of this project makes.
    pub fn usual(kind: EngineKind, runtime_dir: Option<&Path>) -> Self {
        let (everybody, own) = match kind {
            EngineKind::Docker => ("/var/run/docker.sock", "docker.sock"),
            EngineKind::Podman => ("/run/podman/podman.sock", "podman/podman.sock"),
        };
        let own = runtime_dir.map(|directory| directory.join(own));
        let mut sockets: Vec<PathBuf> = std::iter::once(PathBuf::from(everybody)).chain(own).collect();
        if !rustix::process::geteuid().is_root() {
            // For root's engine an ordinary user can lay nothing out.
            sockets.reverse();
        }
        Self { kind, sockets, image: IMAGE.to_owned(), entrypoint: Vec::new(), runtime: None, pull: false }
    }

    /// Whether an engine seems to run there.
    pub(crate) fn is_listening(&self) -> bool {
        self.sockets.iter().any(|socket| socket.exists())
    }
}

/// Makes sandboxes with a container engine.
#[derive(Clone)]
pub struct ContainerBackend {
    settings: Arc<ContainerSettings>,
    spawner: Arc<Spawner>,
    engine: Arc<OnceCell<Engine>>,
    places: Arc<Places>,
}

impl ContainerBackend {
    /// Keeps what containers are given under `scratch`, and clears away what a host that died left there.
    pub fn new(settings: ContainerSettings, spawner: Arc<Spawner>, scratch: PathBuf) -> Result<Self, SandboxError> {
        let places = Places::open(scratch).map_err(|source| create("make the directory of containers", source))?;
        Ok(Self { settings: Arc::new(settings), spawner, engine: Arc::new(OnceCell::new()), places: Arc::new(places) })
    }

    /// A spawner forked from this process, which must have one thread: first thing in `main`.
    pub fn spawner() -> Result<Arc<Spawner>, SandboxError> {
        Ok(Arc::new(Spawner::fork().map_err(refusal::explain)?))
    }

    /// What the engine is and can keep, or why it cannot be used.
    pub async fn report(&self) -> Result<EngineReport, SandboxError> {
        Ok(self.engine().await?.report())
    }

    /// The engine, once it has answered. What earlier hosts left with it is swept then.
    async fn engine(&self) -> Result<&Engine, SandboxError> {
        self.engine
            .get_or_try_init(|| async {
                let engine = Engine::connect(&self.settings).await?;
                engine.sweep(&self.places).await;
                Ok(engine)
            })
            .await
    }

    async fn make(&self, spec: SandboxSpec) -> Result<Walled, SandboxError> {
        let engine = self.engine().await?;
        engine.ensure_image(&self.settings).await?;
        let kernel = engine.kernel(&self.settings);
        let kept = limits::keep(&spec.policy, &keeper(kernel, &|controller| engine.keeps(controller)))?;
        let fs = spec.policy.fs();
        apart::check(kernel, &fs)?;
        let quarters = engine.quarters()?;
        let sources = Sources::beside(spec.workspace.as_deref(), &fs.write_paths)?;
        let plan = plan(&spec, &fs, kept.process, &sources, shown(&fs, &sources)?)?;
        if plan.names {
            return Err(unavailable(
                "`net.dns: stub` answers at a port that nobody inside a container may take",
                "take `net.dns` out of the policy, or use `--backend=jail`",
            ));
        }
        let since = SystemTime::now();
        let (place, mut stage) = self.lay_out(plan.clone(), quarters).await?;
        let lower = plan.workspace.directory().cloned();
        let (upper, denials) = (stage.upper.take(), spec.policy.file_denials());
        let layers =
            upper.zip(lower).map(|(upper, lower)| OverlayLayers { upper: Arc::new(upper), lower, since, denials });

        let opened = |source| create("open its socket", source);
        let nofile = spec.policy.limits().nofile;
        let wanted = Wanted {
            body: create_body(&self.settings, &kept.group, nofile, mounts(&place, &stage), place.owner()),
            door: GuestSocket::open(&place.door()).map_err(opened)?,
            ways: Ways::open(kernel, &place).map_err(opened)?,
            order: GuestOrder { kernel, process: kept.process },
            limits: kept.group,
        };
        let mut container = Container::new(engine.clone(), unique(&spec.id), place, stage);
        let made = match start(&mut container, wanted).await {
            Ok(made) => made,
            Err(error) => {
                // Nobody else knows of it, and who is told of the error may end at once.
                Box::new(container).clear(self.spawner.is_here()).await;
                return Err(error);
            }
        };
        let mut effective = kept.effective;
        describe(&mut effective, fs.workspace_mode, "read-only image + mounts", "no network + seccomp + egress proxy");
        effective.insert("cgroup names".to_owned(), cgroup_names(kernel, &made.jail, self.settings.kind));
        Walled::watch(Built {
            id: spec.id,
            spawner: Arc::clone(&self.spawner),
            made,
            remains: Box::new(container),
            layers,
            effective,
            policy: spec.policy,
        })
    }

    /// Puts everything that a container is given where the engine can mount it from.
    async fn lay_out(
        &self,
        plan: JailPlan,
        quarters: Option<EngineNamespaces>,
    ) -> Result<(Place, MountLayout), SandboxError> {
        let place = self.places.new_place().map_err(|source| create("make its directory", source))?;
        let spawner = Arc::clone(&self.spawner);
        let staged = tokio::task::spawn_blocking(move || {
            let stage = MountLayout::make(&spawner, &place.stage(), &plan, quarters.as_ref())?;
            Ok((place, stage))
        });
        staged.await.map_err(|_| SandboxError::Gone)?.map_err(refusal::explain)
    }

    /// Runs what the settings want run first in every container.
    async fn enter(&self, sandbox: &Walled) -> Result<(), SandboxError> {
        if self.settings.entrypoint.is_empty() {
            return Ok(());
        }
        let command = self.settings.entrypoint.clone();
        let spec = ExecSpec { command, timeout: Some(START), output_limit: Some(4096), ..ExecSpec::default() };
        let failed = |said: String| {
            create(&format!("run its entrypoint `{}`", self.settings.entrypoint.join(" ")), std::io::Error::other(said))
        };
        let result = crate::run(sandbox, spec, &mut |_, _| {}).await.map_err(|error| failed(error.to_string()))?;
        if result.exit.code == Some(0) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&result.stderr).trim().to_owned();
        Err(failed(match (result.timed_out, result.exit.out_of_memory, result.exit.code) {
            (true, ..) => format!("it took over {} s: {said}", START.as_secs()),
            (_, true, _) => format!("it ran out of memory: {said}"),
            (.., Some(code)) => format!("it ended with code {code}: {said}"),
            _ => format!("a signal ended it: {said}"),
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
            if let Err(error) = self.enter(&sandbox).await {
                sandbox.destroy().await?;
                return Err(error);
            }
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }
}

/// A container that is to run, and what it will be asked for then.
struct Wanted {
    body: ContainerCreateBody,
    /// Where its init calls.
    door: std::os::unix::net::UnixListener,
    ways: Option<Ways>,
    order: GuestOrder,
    limits: CgroupLimits,
}

/// Has `container` run, with our init as its first program, and looks whether it is what was wanted.
async fn start(container: &mut Container, wanted: Wanted) -> Result<NewJail, SandboxError> {
    let engine = container.engine().clone();
    engine.start(wanted.body, container.name()).await?;
    let control = wait_for_call(&engine, container, wanted.door).await?;
    let order = wanted.order;
    let made = match wanted.ways {
        None => blocking(move || Jail::adopt(control, &order).map_err(refusal::explain)).await?,
        Some(ways) => ways.adopt(&engine, container, control, order).await?,
    };
    container.watch(CgroupWatch::of(made.jail.pid()));
    container.check_limits(&wanted.limits)?;
    Ok(made)
}

/// The socket of the init inside, once it has called.
async fn wait_for_call(
    engine: &Engine,
    container: &Container,
    door: std::os::unix::net::UnixListener,
) -> Result<OwnedFd, SandboxError> {
    let listening = |source| create("listen to the container", source);
    let door = UnixListener::from_std(door).map_err(listening)?;
    tokio::select! {
        called = door.accept() => {
            let control = called.and_then(|(control, _)| control.into_std()).map_err(listening)?;
            control.set_nonblocking(false).map_err(listening)?;
            Ok(control.into())
        }
        ended = engine.ended(container.name()) => Err(create("start its init", std::io::Error::other(ended))),
        () = tokio::time::sleep(START) => Err(create("start its init", std::io::ErrorKind::TimedOut.into())),
    }
}

/// What is shown beside the image: who there is, and the host paths that no image has.
fn shown(fs: &policy::FsPolicy, sources: &Sources) -> Result<System, SandboxError> {
    let user = HostUser::of_our_sandboxes();
    let mut system = System::of_user(user.uid(), user.gid());
    let others = fs.read_paths.iter().filter(|path| !OF_THE_IMAGE.iter().any(|part| path.starts_with(part)));
    let others: Vec<PathBuf> = others.cloned().collect();
    for path in &others {
        system.show(path, &others, sources)?;
    }
    Ok(system)
}

/// Does what may wait for the kernel, or for a container.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| SandboxError::Gone)?
}

fn create(step: &str, source: std::io::Error) -> SandboxError {
    SandboxError::Create { step: step.to_owned(), source }
}
