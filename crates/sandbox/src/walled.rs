//! A running sandbox with our init in it, whatever built the walls around it.
//!
//! A jail and a container differ in who makes them and in what is left to clear away; everything between is here.

mod commands;
mod remains;

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{WORKSPACE, lock};
use jail::{ExecPlan, HostUser, Jail, Spawner};
use serde_json::{Map, Value};
use tokio::net::UnixStream;
use tokio::sync::watch;

use self::commands::{Awaited, Commands, hear};
pub(crate) use self::remains::Remains;
use self::remains::{Count, Left};
use crate::ends::{Ends, Resize};
use crate::environment::default_environment;
use crate::files::FilesOnDisk;
use crate::inside::as_user;
use crate::terminal;
use crate::{
    ExecSpec, ExecUser, OverlayLayers, ProcessExit, Sandbox, SandboxError, SandboxFuture, SandboxPort, SandboxProcess,
    WindowSize, WorkspaceFiles,
};

const SIGKILL: i32 = 9;
/// How long an init may take to end a command. It cannot be stopped by one where the host's kernel is also theirs;
/// another kernel may let it be.
const PATIENCE: Duration = Duration::from_secs(5);

/// A sandbox that was just made, before anybody listens to it.
pub(crate) struct Built {
    pub(crate) id: String,
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) made: jail::NewJail,
    pub(crate) remains: Box<dyn Remains>,
    pub(crate) layers: Option<OverlayLayers>,
    pub(crate) effective: Map<String, Value>,
    pub(crate) policy: Arc<policy::EffectivePolicy>,
}

/// One sandbox.
pub(crate) struct Walled {
    id: String,
    /// When the last handle to it is gone, every sandbox it made ends.
    spawner: Arc<Spawner>,
    jail: Arc<Jail>,
    remains: Left,
    models: Mutex<Option<TcpListener>>,
    egress: Mutex<Option<TcpListener>>,
    names: Mutex<Option<(TcpListener, UdpSocket)>>,
    files: FilesOnDisk,
    /// Where its terminals are made; inside, where there is none.
    terminals: Mutex<Option<Arc<OwnedFd>>>,
    makes_terminals: bool,
    layers: Option<OverlayLayers>,
    effective: Map<String, Value>,
    commands: Arc<Commands>,
    ended: watch::Receiver<bool>,
}

impl Walled {
    /// Listens to it from now on.
    pub(crate) fn watch(built: Built) -> Result<Self, SandboxError> {
        let exec = |source| SandboxError::Exec { doing: "watch", source };
        let jail = Arc::new(built.made.jail);
        let commands = Arc::new(Commands::default());
        let (tell, ended) = watch::channel(false);
        let control = UnixStream::from_std(jail.control().map_err(exec)?).map_err(exec)?;
        let alone = built.spawner.is_here();
        tokio::spawn(hear(control, Arc::clone(&jail), alone, Arc::clone(&commands), tell));
        Ok(Self {
            id: built.id,
            spawner: built.spawner,
            jail,
            remains: Arc::new(Mutex::new(Some(built.remains))),
            models: Mutex::new(Some(built.made.models)),
            egress: Mutex::new(Some(built.made.egress)),
            names: Mutex::new(built.made.names),
            files: FilesOnDisk::new(built.made.workspace, built.policy, Some(HostUser::of_our_sandboxes())),
            makes_terminals: built.made.terminals.is_none(),
            terminals: Mutex::new(built.made.terminals.map(Arc::new)),
            layers: built.layers,
            effective: built.effective,
            commands,
            ended,
        })
    }

    async fn start(&self, spec: ExecSpec) -> Result<SandboxProcess, SandboxError> {
        if spec.user == ExecUser::Root {
            return Err(SandboxError::Unavailable {
                missing: "a sandbox has one user inside, who is not root and cannot become it".to_owned(),
                fix: "run the command as the ordinary user".to_owned(),
            });
        }
        let program = spec.command.first().cloned().unwrap_or_default();
        let step = |doing| move |source| SandboxError::Exec { doing, source };
        let ends = match spec.terminal {
            Some(size) if !self.makes_terminals => self.terminal(size).await?,
            _ => Ends::pipes().map_err(step("connect"))?,
        };
        let before = Count::of(&self.remains);
        let Awaited { exec, started, exited } = self.commands.expect();
        let window = spec.terminal.filter(|_| self.makes_terminals);
        let plan = ExecPlan { window: window.map(WindowSize::rows_and_columns), ..exec_plan(exec, spec) };
        if self.jail.exec(plan, ends.theirs()).is_err() {
            self.commands.forget(exec);
            return Err(SandboxError::Gone);
        }
        let (stdin, [stdout, stderr], resize) = ends.ours();
        let resize = if window.is_some() { self.resize_inside(exec) } else { resize };
        match started.await {
            Ok(Ok(())) => {}
            Ok(Err(errno)) => return Err(not_started(program, errno)),
            Err(_) => return Err(SandboxError::Gone),
        }
        let (jail, remains) = (Arc::clone(&self.jail), Arc::clone(&self.remains));
        let commands = Arc::clone(&self.commands);
        Ok(SandboxProcess {
            stdin: Some(stdin),
            stdout,
            stderr,
            resize,
            kill: Box::new(move || end_command(exec, &jail, &commands)),
            exit: Box::pin(async move {
                let mut exit: ProcessExit = exited.await.map_err(|_| SandboxError::Gone)?;
                before.correct(&mut exit, &Count::of(&remains));
                Ok(exit)
            }),
        })
    }

    /// Tells a terminal inside of its size.
    fn resize_inside(&self, exec: u64) -> Resize {
        let jail = Arc::clone(&self.jail);
        Box::new(move |size| {
            // A sandbox that is gone has no window.
            let _ = jail.resize(exec, size.rows_and_columns());
        })
    }

    async fn terminal(&self, size: WindowSize) -> Result<Ends, SandboxError> {
        let terminals = lock(&self.terminals).clone().ok_or(SandboxError::Gone)?;
        let made = as_user(Some(HostUser::of_our_sandboxes()), move || terminal::open(&terminals, size)).await;
        let ends = made.flatten().and_then(|(master, slave)| Ends::terminal(master, slave));
        ends.map_err(|source| SandboxError::Exec { doing: "make a terminal for", source })
    }
}

/// Ends a command; or, when its init does not do so, everything.
fn end_command(exec: u64, jail: &Arc<Jail>, commands: &Arc<Commands>) {
    // A sandbox that is gone has no command left to kill.
    let _ = jail.kill_exec(exec);
    let (jail, commands) = (Arc::clone(jail), Arc::clone(commands));
    let late = async move {
        tokio::time::sleep(PATIENCE).await;
        if commands.awaits(exec) {
            jail.kill();
        }
    };
    // Whoever asks is in a runtime, or waits for nothing.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(late);
    }
}

fn exec_plan(exec: u64, spec: ExecSpec) -> ExecPlan {
    let env = if spec.env.is_empty() { default_environment() } else { spec.env };
    let workdir = spec.workdir.unwrap_or_else(|| WORKSPACE.to_owned());
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

impl Sandbox for Walled {
    fn id(&self) -> &str {
        &self.id
    }

    fn take_listener(&self, port: SandboxPort) -> Option<TcpListener> {
        match port {
            SandboxPort::Models => lock(&self.models).take(),
            SandboxPort::Egress => lock(&self.egress).take(),
        }
    }

    fn take_names(&self) -> Option<(TcpListener, UdpSocket)> {
        lock(&self.names).take()
    }

    fn exec(&self, spec: ExecSpec) -> SandboxFuture<'_, SandboxProcess> {
        Box::pin(self.start(spec))
    }

    fn files(&self) -> &dyn WorkspaceFiles {
        &self.files
    }

    fn effective(&self) -> Value {
        Value::Object(self.effective.clone())
    }

    fn layers(&self) -> Option<OverlayLayers> {
        self.layers.clone()
    }

    fn destroy(&self) -> SandboxFuture<'_, ()> {
        Box::pin(async move {
            // Its mounts stay as long as they are held open.
            self.files.close();
            lock(&self.terminals).take();
            self.jail.kill();
            let mut ended = self.ended.clone();
            // A closed channel means that nobody is left to tell: the sandbox has ended.
            drop(ended.wait_for(|ended| *ended).await);
            let remains = lock(&self.remains).take();
            if let Some(remains) = remains {
                remains.clear(self.spawner.is_here()).await;
            }
            Ok(())
        })
    }
}

impl Drop for Walled {
    fn drop(&mut self) {
        self.jail.kill();
    }
}
