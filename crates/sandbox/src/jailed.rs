//! The default backend: a sandbox of our own, in milliseconds, with no daemon and no image.

mod commands;
mod plan;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use jail::{Cgroup, ExecPlan, HOME, HostUser, Jail, Limiter, Spawner, WORKSPACE};
use policy::WorkspaceMode;
use serde_json::{Map, Value, json};
use tokio::net::UnixStream;
use tokio::sync::watch;

use self::commands::{Awaited, Commands, hear};
use self::plan::plan;
use crate::ends::Ends;
use crate::files::FilesOnDisk;
use crate::inside::as_user;
use crate::refusal;
use crate::terminal;
use crate::{
    Backend, ExecSpec, Exit, Files, Layers, Port, Process, Sandbox, SandboxError, SandboxFuture, SandboxSpec, User,
    WindowSize, limits,
};

const SIGKILL: i32 = 9;

/// Makes sandboxes with the kernel's own means.
#[derive(Debug, Clone)]
pub struct JailBackend {
    spawner: Arc<Spawner>,
    limiter: Arc<Limiter>,
}

impl JailBackend {
    /// Forks a spawner of its own from this process, which must have one thread: first thing in `main`.
    pub fn fork() -> Result<Self, SandboxError> {
        Self::new(Arc::new(Spawner::fork().map_err(refusal::explain)?))
    }

    /// Uses `spawner`, which must have been started before the host had threads.
    pub fn new(spawner: Arc<Spawner>) -> Result<Self, SandboxError> {
        let limiter =
            Limiter::probe().map_err(|source| SandboxError::Create { step: "look for cgroups".into(), source })?;
        Ok(Self { spawner, limiter: Arc::new(limiter) })
    }
}

impl Backend for JailBackend {
    fn name(&self) -> &'static str {
        "jail"
    }

    fn create(&self, spec: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>> {
        let this = self.clone();
        Box::pin(async move {
            let made =
                tokio::task::spawn_blocking(move || this.make(&spec)).await.map_err(|_| SandboxError::Gone)??;
            Ok(Box::new(Jailed::watch(made)?) as Box<dyn Sandbox>)
        })
    }
}

/// What `make` leaves for the async side.
struct Built {
    id: String,
    spawner: Arc<Spawner>,
    made: jail::Made,
    group: Cgroup,
    layers: Option<Layers>,
    effective: Map<String, Value>,
    policy: Arc<policy::Effective>,
}

impl JailBackend {
    fn make(&self, spec: &SandboxSpec) -> Result<Built, SandboxError> {
        let kept = limits::keep(&spec.policy, &self.limiter)?;
        let create = |step: &str| {
            let step = step.to_owned();
            move |source| SandboxError::Create { step, source }
        };
        let group = self.limiter.create(&kept.group).map_err(create("set the limits"))?;
        let fs = spec.policy.fs();
        let plan = plan(spec, &fs, kept.process)?;
        let since = SystemTime::now();
        let mut made = Jail::make(&self.spawner, &plan, Some(&group)).map_err(refusal::explain)?;
        let lower = plan.workspace.directory().cloned();
        let denials = spec.policy.file_denials();
        let layers = made.upper.take().zip(lower);
        let layers = layers.map(|(upper, lower)| Layers { upper: Arc::new(upper), lower, since, denials });
        let mut effective = kept.effective;
        describe(&mut effective, fs.workspace_mode);
        let (spawner, policy) = (Arc::clone(&self.spawner), Arc::clone(&spec.policy));
        Ok(Built { id: spec.id.clone(), spawner, made, group, layers, effective, policy })
    }
}

fn describe(effective: &mut Map<String, Value>, mode: WorkspaceMode) {
    const WALL: &str = "private root + landlock";
    let (workspace, hiding, keeping) = match mode {
        WorkspaceMode::Overlay => ("overlayfs", Some("whiteout layer"), Some("refused when changes are applied")),
        WorkspaceMode::Readonly => ("read-only mount", Some("whiteout layer"), Some("read-only mount")),
        // Names are written on the host at once: there is no layer to hide or to refuse new ones in.
        WorkspaceMode::Bind => ("bind mount", None, None),
    };
    for (key, by) in [
        ("fs.workspace", Some(workspace)),
        ("fs.read", Some(WALL)),
        ("fs.write", Some(WALL)),
        ("fs.deny_read", hiding),
        ("fs.deny_write", keeping),
        ("net", Some("network namespace + seccomp + egress proxy")),
        ("env.pass", Some("explicit environment")),
        ("models", Some("gateway")),
    ] {
        let row = match by {
            Some(by) => json!({"state": "enforced", "by": by}),
            None => json!({"state": "weaker", "by": "mounts over the files that were there at the start"}),
        };
        effective.insert(key.to_owned(), row);
    }
}

/// One sandbox.
struct Jailed {
    id: String,
    /// When the last handle to it is gone, every sandbox it made ends.
    _spawner: Arc<Spawner>,
    jail: Arc<Jail>,
    group: Arc<Mutex<Option<Cgroup>>>,
    models: Mutex<Option<TcpListener>>,
    egress: Mutex<Option<TcpListener>>,
    files: FilesOnDisk,
    /// Where its terminals are made.
    terminals: Mutex<Option<Arc<OwnedFd>>>,
    layers: Option<Layers>,
    effective: Map<String, Value>,
    commands: Arc<Commands>,
    ended: watch::Receiver<bool>,
}

impl Jailed {
    fn watch(built: Built) -> Result<Self, SandboxError> {
        let exec = |source| SandboxError::Exec { doing: "watch", source };
        let jail = Arc::new(built.made.jail);
        let commands = Arc::new(Commands::default());
        let (tell, ended) = watch::channel(false);
        let control = UnixStream::from_std(jail.control().map_err(exec)?).map_err(exec)?;
        tokio::spawn(hear(control, Arc::clone(&jail), Arc::clone(&commands), tell));
        Ok(Self {
            id: built.id,
            _spawner: built.spawner,
            jail,
            group: Arc::new(Mutex::new(Some(built.group))),
            models: Mutex::new(Some(built.made.models)),
            egress: Mutex::new(Some(built.made.egress)),
            files: FilesOnDisk::new(built.made.workspace, built.policy, Some(HostUser::of_our_sandboxes())),
            terminals: Mutex::new(Some(Arc::new(built.made.terminals))),
            layers: built.layers,
            effective: built.effective,
            commands,
            ended,
        })
    }

    async fn start(&self, spec: ExecSpec) -> Result<Process, SandboxError> {
        if spec.user == User::Root {
            return Err(SandboxError::Unavailable {
                missing: "a jail has one user inside, who is not root and cannot become it".to_owned(),
                fix: "run the command as the ordinary user".to_owned(),
            });
        }
        let program = spec.command.first().cloned().unwrap_or_default();
        let step = |doing| move |source| SandboxError::Exec { doing, source };
        let ends = match spec.terminal {
            Some(size) => self.terminal(size).await?,
            None => Ends::pipes().map_err(step("connect"))?,
        };
        let Awaited { exec, started, exited } = self.commands.expect();
        if self.jail.exec(exec_plan(exec, spec), ends.theirs()).is_err() {
            self.commands.forget(exec);
            return Err(SandboxError::Gone);
        }
        let (stdin, [stdout, stderr], resize) = ends.ours();
        match started.await {
            Ok(Ok(())) => {}
            Ok(Err(errno)) => return Err(not_started(program, errno)),
            Err(_) => return Err(SandboxError::Gone),
        }
        let (jail, group) = (Arc::clone(&self.jail), Arc::clone(&self.group));
        let killed_before = oom_kills(&group);
        Ok(Process {
            stdin: Some(stdin),
            stdout,
            stderr,
            resize,
            kill: Box::new(move || {
                // A sandbox that is gone has no command left to kill.
                let _ = jail.kill_exec(exec);
            }),
            exit: Box::pin(async move {
                let mut exit: Exit = exited.await.map_err(|_| SandboxError::Gone)?;
                // The kernel kills the largest; that it was this one is told by how it ended.
                exit.out_of_memory = exit.signal == Some(SIGKILL) && oom_kills(&group) > killed_before;
                Ok(exit)
            }),
        })
    }

    async fn terminal(&self, size: WindowSize) -> Result<Ends, SandboxError> {
        let terminals = lock(&self.terminals).clone().ok_or(SandboxError::Gone)?;
        let made = as_user(Some(HostUser::of_our_sandboxes()), move || terminal::open(&terminals, size)).await;
        let ends = made.flatten().and_then(|(master, slave)| Ends::terminal(master, slave));
        ends.map_err(|source| SandboxError::Exec { doing: "make a terminal for", source })
    }
}

/// How many processes of the group the kernel killed for want of memory; none when the group is gone.
fn oom_kills(group: &Mutex<Option<Cgroup>>) -> u64 {
    lock(group).as_ref().map_or(0, Cgroup::oom_kills)
}

/// What a command has in its environment when nobody said.
pub fn default_environment() -> BTreeMap<String, String> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    [("PATH", path), ("HOME", HOME), ("LANG", "C.UTF-8"), ("USER", "agent")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn exec_plan(exec: u64, spec: ExecSpec) -> ExecPlan {
    let env = if spec.env.is_empty() { default_environment() } else { spec.env };
    let workdir = spec.workdir.unwrap_or_else(|| WORKSPACE.to_owned());
    ExecPlan { exec, argv: spec.command, env, workdir, terminal: spec.terminal.is_some() }
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

impl Sandbox for Jailed {
    fn id(&self) -> &str {
        &self.id
    }

    fn take_listener(&self, port: Port) -> Option<TcpListener> {
        match port {
            Port::Models => lock(&self.models).take(),
            Port::Egress => lock(&self.egress).take(),
        }
    }

    fn exec(&self, spec: ExecSpec) -> SandboxFuture<'_, Process> {
        Box::pin(self.start(spec))
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn effective(&self) -> Value {
        Value::Object(self.effective.clone())
    }

    fn layers(&self) -> Option<Layers> {
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
            let group = lock(&self.group).take();
            if let Some(group) = group {
                // Removing a group may wait some milliseconds for the kernel.
                let _ = tokio::task::spawn_blocking(move || drop(group)).await;
            }
            Ok(())
        })
    }
}

impl Drop for Jailed {
    fn drop(&mut self) {
        self.jail.kill();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
