//! A running sandbox with our init inside: a jail or a container.
//!
//! Jails and containers differ in how they are made and in the resources to release; everything between is here.

mod commands;
mod resources;

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{WORKSPACE, lock};
use jail::{ExecPlan, HostUser, Jail, Spawner};
use protocol::KeyEnforcements;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use self::commands::{Commands, PendingCommand, forward_events};
pub(crate) use self::resources::SandboxResources;
use self::resources::{KernelCounters, SharedResources};
use crate::blocking::BlockingRunner;
use crate::environment::default_environment;
use crate::files::FilesOnDisk;
use crate::stdio::{CommandStdio, Resize};
use crate::terminal;
use crate::user_thread::run_as_user;
use crate::{
    ExecSpec, ExecUser, InsidePort, InsideProcess, OverlayLayers, ProcessExit, Sandbox, SandboxError, SandboxFuture,
    SandboxPort, SandboxProcess, StreamKind, Toolchains, WindowSize, WorkspaceFiles,
};

const SIGKILL: i32 = 9;
/// How long an init may take to kill a command. With its own kernel, a container may let a command stop the init.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A sandbox that was just made, before its events are read.
pub(crate) struct NewSandbox {
    pub(crate) id: String,
    /// The path of the workspace inside.
    pub(crate) workspace_at: PathBuf,
    pub(crate) toolchains: Toolchains,
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) runner: BlockingRunner,
    pub(crate) made: jail::NewJail,
    pub(crate) resources: Box<dyn SandboxResources>,
    pub(crate) layers: Option<OverlayLayers>,
    pub(crate) effective: KeyEnforcements,
    pub(crate) policy: Arc<policy::EffectivePolicy>,
}

/// A sandbox that can run commands.
pub(crate) struct RunningSandbox {
    id: String,
    workspace_at: PathBuf,
    toolchains: Toolchains,
    /// Held because a spawner ends its sandboxes when its last handle is dropped.
    _spawner: Arc<Spawner>,
    runner: BlockingRunner,
    jail: Arc<Jail>,
    resources: SharedResources,
    models: Mutex<Option<TcpListener>>,
    egress: Mutex<Option<TcpListener>>,
    dns: Mutex<Option<(TcpListener, UdpSocket)>>,
    files: FilesOnDisk,
    /// The devpts instance in which terminals are made; `None` when init makes them, and after `destroy`.
    terminals: Mutex<Option<Arc<OwnedFd>>>,
    init_makes_terminals: bool,
    layers: Option<OverlayLayers>,
    effective: KeyEnforcements,
    commands: Arc<Commands>,
    ended: watch::Receiver<bool>,
    /// The task that reads the events of the sandbox. It ends with the control socket.
    _events: TaskTracker,
}

impl RunningSandbox {
    /// Starts to read the events of the sandbox.
    pub(crate) fn watch(new: NewSandbox) -> Result<Self, SandboxError> {
        let failed = |source| SandboxError::Exec { doing: "watch", source };
        let jail = Arc::new(new.made.jail);
        let commands = Arc::new(Commands::default());
        let (ended_sender, ended) = watch::channel(false);
        let control = UnixStream::from_std(jail.control().map_err(failed)?).map_err(failed)?;
        let events = TaskTracker::new();
        events.spawn(forward_events(control, Arc::clone(&jail), new.runner, Arc::clone(&commands), ended_sender));
        Ok(Self {
            id: new.id,
            workspace_at: new.workspace_at.clone(),
            toolchains: new.toolchains,
            _spawner: new.spawner,
            runner: new.runner,
            jail,
            resources: Arc::new(Mutex::new(Some(new.resources))),
            models: Mutex::new(Some(new.made.models)),
            egress: Mutex::new(Some(new.made.egress)),
            dns: Mutex::new(new.made.dns),
            files: FilesOnDisk::new(new.made.workspace, new.workspace_at, new.policy, Some(HostUser::for_sandboxes())),
            init_makes_terminals: new.made.terminals.is_none(),
            terminals: Mutex::new(new.made.terminals.map(Arc::new)),
            layers: new.layers,
            effective: new.effective,
            commands,
            ended,
            _events: events,
        })
    }

    async fn start(&self, spec: ExecSpec) -> Result<SandboxProcess, SandboxError> {
        if spec.user == ExecUser::Root {
            return Err(SandboxError::Unavailable {
                missing: "commands in a sandbox cannot run as root".to_owned(),
                fix: "run the command as the ordinary user".to_owned(),
            });
        }
        let program = spec.command.first().cloned().unwrap_or_default();
        let step = |doing| move |source| SandboxError::Exec { doing, source };
        let stdio = match spec.terminal {
            Some(size) if !self.init_makes_terminals => self.open_terminal(size).await?,
            // A container with its own kernel cannot use sockets of the host.
            None if spec.streams == StreamKind::Sockets && !self.init_makes_terminals => {
                CommandStdio::sockets().map_err(step("connect"))?
            }
            _ => CommandStdio::pipes(HostUser::for_sandboxes()).map_err(step("connect"))?,
        };
        let before = KernelCounters::of(&self.resources);
        let PendingCommand { exec, started, exited } = self.commands.register();
        let window = spec.terminal.filter(|_| self.init_makes_terminals);
        let plan =
            ExecPlan { window: window.map(WindowSize::rows_and_columns), ..exec_plan(exec, spec, &self.workspace_at) };
        if self.jail.exec(plan, stdio.command_ends()).is_err() {
            self.commands.unregister(exec);
            return Err(SandboxError::Gone);
        }
        let (input, [stdout, stderr], resize) = stdio.into_host_ends();
        let resize = if window.is_some() { self.resize_inside(exec) } else { resize };
        match started.await {
            Ok(Ok(())) => {}
            Ok(Err(errno)) => return Err(not_started(program, errno)),
            Err(_) => return Err(SandboxError::Gone),
        }
        let (jail, resources) = (Arc::clone(&self.jail), Arc::clone(&self.resources));
        let commands = Arc::clone(&self.commands);
        Ok(SandboxProcess {
            stdin: Some(input),
            stdout,
            stderr,
            resize,
            kill: Box::new(move || kill_command(exec, &jail, &commands)),
            exit: Box::pin(async move {
                let mut exit: ProcessExit = exited.await.map_err(|_| SandboxError::Gone)?;
                before.correct(&mut exit, &KernelCounters::of(&resources));
                Ok(exit)
            }),
        })
    }

    /// Returns a function that resizes a terminal that init made.
    fn resize_inside(&self, exec: u64) -> Resize {
        let jail = Arc::clone(&self.jail);
        Box::new(move |size| {
            // This fails only when the sandbox is gone.
            let _ = jail.resize(exec, size.rows_and_columns());
        })
    }

    async fn open_terminal(&self, size: WindowSize) -> Result<CommandStdio, SandboxError> {
        let terminals = lock(&self.terminals).clone().ok_or(SandboxError::Gone)?;
        let made = run_as_user(Some(HostUser::for_sandboxes()), move || terminal::open(&terminals, size)).await;
        let stdio = made.flatten().and_then(|(master, slave)| CommandStdio::terminal(master, slave));
        stdio.map_err(|source| SandboxError::Exec { doing: "make a terminal for", source })
    }
}

/// Kills a command. When init does not do so in time, kills the whole sandbox.
fn kill_command(exec: u64, jail: &Arc<Jail>, commands: &Arc<Commands>) {
    // This fails only when the sandbox is gone, and its commands with it.
    let _ = jail.kill_exec(exec);
    let (jail, commands) = (Arc::clone(jail), Arc::clone(commands));
    let kill_sandbox_if_late = async move {
        tokio::time::sleep(KILL_TIMEOUT).await;
        if commands.is_registered(exec) {
            jail.kill();
        }
    };
    // Outside of a runtime nothing waits for the command.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(kill_sandbox_if_late);
    }
}

fn exec_plan(exec: u64, spec: ExecSpec, workspace: &Path) -> ExecPlan {
    let env = if spec.env.is_empty() { default_environment() } else { spec.env };
    let workdir = spec.workdir.filter(|workdir| workdir != WORKSPACE);
    let workdir = workdir.unwrap_or_else(|| workspace.to_string_lossy().into_owned());
    ExecPlan { exec, argv: spec.command, env, workdir, terminal: spec.terminal.is_some(), window: None }
}

fn not_started(program: String, errno: i32) -> SandboxError {
    let source = io::Error::from_raw_os_error(errno);
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => SandboxError::NotFound(program),
        io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => SandboxError::NotExecutable(program),
        _ if errno == 8 => SandboxError::NotExecutable(program),
        _ => SandboxError::Exec { doing: "start", source },
    }
}

impl Sandbox for RunningSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn take_listener(&self, port: SandboxPort) -> Option<TcpListener> {
        match port {
            SandboxPort::Models => lock(&self.models).take(),
            SandboxPort::Egress => lock(&self.egress).take(),
        }
    }

    fn take_dns_sockets(&self) -> Option<(TcpListener, UdpSocket)> {
        lock(&self.dns).take()
    }

    fn exec(&self, spec: ExecSpec) -> SandboxFuture<'_, SandboxProcess> {
        Box::pin(self.start(spec))
    }

    fn files(&self) -> &dyn WorkspaceFiles {
        &self.files
    }

    fn effective(&self) -> KeyEnforcements {
        self.effective.clone()
    }

    fn toolchains(&self) -> Toolchains {
        self.toolchains.clone()
    }

    fn layers(&self) -> Option<OverlayLayers> {
        self.layers.clone()
    }

    fn processes(&self) -> Option<Vec<InsideProcess>> {
        // The host does not see the processes of a container with its own kernel.
        if self.init_makes_terminals {
            return None;
        }
        crate::processes::below(self.jail.pid()).ok()
    }

    fn ports(&self) -> Option<Vec<InsidePort>> {
        // The host does not see the sockets of a container with its own kernel.
        if self.init_makes_terminals {
            return None;
        }
        crate::ports::listening(self.jail.pid()).ok()
    }

    fn connect(&self, port: u16) -> SandboxFuture<'_, tokio::net::TcpStream> {
        if self.init_makes_terminals || crate::is_reserved_port(port) {
            return Box::pin(async { Err(crate::ports::cannot_connect()) });
        }
        Box::pin(async move {
            let failed = |source| SandboxError::Connect { port, source };
            let too_many = || failed(io::Error::from(io::ErrorKind::QuotaExceeded));
            let (request, answer) = self.commands.register_connection().ok_or_else(too_many)?;
            self.jail.connect(request, port).map_err(|_| SandboxError::Gone)?;
            let outcome = answer.await.map_err(|_| SandboxError::Gone)?;
            let socket = outcome.checked().map_err(|errno| failed(io::Error::from_raw_os_error(errno)))?;
            crate::ports::finish_connecting(socket, port).await.map_err(failed)
        })
    }

    fn destroy(&self) -> SandboxFuture<'_, ()> {
        Box::pin(async move {
            // Open descriptors would keep the mounts of the sandbox.
            self.files.close();
            lock(&self.terminals).take();
            self.jail.kill();
            let mut ended = self.ended.clone();
            // A closed channel also means that the sandbox has ended.
            drop(ended.wait_for(|ended| *ended).await);
            let resources = lock(&self.resources).take();
            if let Some(resources) = resources {
                resources.release(self.runner).await;
            }
            Ok(())
        })
    }
}

impl Drop for RunningSandbox {
    fn drop(&mut self) {
        self.jail.kill();
    }
}
