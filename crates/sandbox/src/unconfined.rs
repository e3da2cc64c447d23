//! The unconfined backend: commands run on the host without confinement, for users who ask for it.
//!
//! Nothing is enforced, and `effective` says so for each key. An overlay or read-only workspace is refused, because it
//! would need confinement. Destroying a sandbox still kills its processes: all descendants of commands that still run.

mod path_map;
mod process_group;
mod process_tree;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;

use base::{WORKSPACE, lock};
use policy::WorkspaceMode;
use protocol::{EnforcementState, KeyEnforcement, KeyEnforcements};
use rustix::process::Pid;
use tokio::process::Command;
use tokio::task::JoinSet;

use self::path_map::PathMap;
use self::process_group::ProcessGroup;
use self::process_tree::KilledProcesses;
use crate::beneath;
use crate::files::FilesOnDisk;
use crate::{
    ExecSpec, ExecUser, OverlayLayers, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxPort,
    SandboxProcess, SandboxSpec, WorkspaceFiles,
};

const KEYS: [&str; 7] = ["fs", "net", "proc.cpus", "proc.memory", "proc.pids", "env", "seccomp"];

/// Makes sandboxes without confinement.
#[derive(Debug, Clone)]
pub struct UnconfinedBackend {
    scratch: PathBuf,
    gateway: SocketAddr,
}

impl UnconfinedBackend {
    /// Makes a backend that keeps placed files and unnamed workspaces under `scratch`, in one directory for each sandbox.
    pub fn new(scratch: PathBuf) -> Self {
        Self { scratch, gateway: (Ipv4Addr::LOCALHOST, 0).into() }
    }

    /// Sets the host address on which the gateway listens. The default is a free port on loopback.
    #[must_use]
    pub fn with_gateway(mut self, address: SocketAddr) -> Self {
        self.gateway = address;
        self
    }
}

impl SandboxBackend for UnconfinedBackend {
    fn name(&self) -> &'static str {
        "unconfined"
    }

    fn create(&self, spec: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>> {
        Box::pin(async move {
            let sandbox = UnconfinedSandbox::new(self, spec)?;
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }
}

/// A sandbox without confinement: a directory, a listener and process groups.
struct UnconfinedSandbox {
    id: String,
    directory: PathBuf,
    paths: PathMap,
    files: FilesOnDisk,
    model: Mutex<Option<TcpListener>>,
    running: Mutex<RunningGroups>,
}

#[derive(Default)]
struct RunningGroups {
    groups: Vec<ProcessGroup>,
    waits: JoinSet<()>,
    destroyed: bool,
}

impl UnconfinedSandbox {
    fn new(backend: &UnconfinedBackend, spec: SandboxSpec) -> Result<Self, SandboxError> {
        if spec.policy.fs().workspace_mode != WorkspaceMode::Bind {
            return Err(SandboxError::Unavailable {
                missing: "the unconfined backend only supports `fs.workspace: bind`".to_owned(),
                fix: "add `fs: {workspace: bind}` to the policy".to_owned(),
            });
        }
        let bind_failed = |source| SandboxError::Bind { address: backend.gateway, source };
        let model = TcpListener::bind(backend.gateway).map_err(bind_failed)?;
        let directory = backend.scratch.join(&spec.id);
        let step = |step: &str| {
            let step = step.to_owned();
            move |source| SandboxError::Create { step, source }
        };
        std::fs::create_dir_all(&directory).map_err(step("make the directory of the sandbox"))?;
        let workspace = spec.workspace.unwrap_or_else(|| directory.join("workspace"));
        std::fs::create_dir_all(&workspace).map_err(step("make the workspace"))?;
        let opened = workspace.canonicalize().and_then(|workspace| beneath::root(&workspace));
        let files = FilesOnDisk::new(opened.map_err(step("open the workspace"))?, WORKSPACE.into(), spec.policy, None);
        let address = model.local_addr().map_err(step("read the gateway's port"))?;
        let mut paths = PathMap { model_url: format!("http://{address}"), paths: Vec::new() };
        paths.add(PathBuf::from(WORKSPACE), workspace);
        for (source, target) in spec.mounts {
            paths.add(target, source);
        }
        for (path, content) in spec.files {
            let placed = directory.join("files").join(path.strip_prefix("/").unwrap_or(&path));
            write_file(&placed, &paths.map_content(content)).map_err(step("place a file"))?;
            paths.add(path, placed);
        }
        Ok(Self { id: spec.id, directory, paths, files, model: Mutex::new(Some(model)), running: Mutex::default() })
    }

    fn start(&self, spec: ExecSpec) -> Result<SandboxProcess, SandboxError> {
        if spec.user == ExecUser::Root && !rustix::process::geteuid().is_root() {
            return Err(SandboxError::Unavailable {
                missing: "unconfined commands run as the user who started viv, who is not root".to_owned(),
                fix: "run the command as that user, or start viv as root".to_owned(),
            });
        }
        if spec.terminal.is_some() {
            return Err(SandboxError::Unavailable {
                missing: "the unconfined backend has no terminal for commands".to_owned(),
                fix: "run the command without a terminal, or with another backend".to_owned(),
            });
        }
        let (program, arguments) = spec.command.split_first().ok_or(SandboxError::NotFound(String::new()))?;
        let workdir = self.paths.map_word(spec.workdir.as_deref().unwrap_or(WORKSPACE));
        let mut command = Command::new(self.paths.map_word(program));
        command.args(arguments.iter().map(|word| self.paths.map_word(word))).current_dir(workdir).env_clear();
        command.envs(spec.env.iter().map(|(name, value)| (name, self.paths.map_word(value))));
        if spec.env.is_empty() {
            command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut running = lock(&self.running);
        if running.destroyed {
            return Err(SandboxError::Gone);
        }
        let mut child = command.spawn().map_err(|source| spawn_error(program, source))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(SandboxError::Gone);
        };
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).ok_or(SandboxError::Gone)?;
        let group = ProcessGroup::watch(&mut running.waits, child, leader);
        running.groups.retain(|group| !group.has_ended());
        running.groups.push(group.clone());
        let exit = Box::pin(group.clone().wait());
        Ok(SandboxProcess {
            stdin: Some(Box::new(stdin)),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            resize: Box::new(|_| {}),
            kill: Box::new(move || drop(group.kill())),
            exit,
        })
    }
}

impl Sandbox for UnconfinedSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn take_listener(&self, port: SandboxPort) -> Option<TcpListener> {
        match port {
            SandboxPort::Models => lock(&self.model).take(),
            SandboxPort::Egress => None,
        }
    }

    fn take_dns_sockets(&self) -> Option<(TcpListener, UdpSocket)> {
        None
    }

    fn exec(&self, spec: ExecSpec) -> SandboxFuture<'_, SandboxProcess> {
        Box::pin(async move { self.start(spec) })
    }

    fn files(&self) -> &dyn WorkspaceFiles {
        &self.files
    }

    fn effective(&self) -> KeyEnforcements {
        let absent = KeyEnforcement::new(EnforcementState::Absent, "unconfined");
        KEYS.into_iter().map(|key| (key.to_owned(), absent.clone())).collect()
    }

    fn layers(&self) -> Option<OverlayLayers> {
        None
    }

    fn destroy(&self) -> SandboxFuture<'_, ()> {
        Box::pin(async move {
            self.files.close();
            let (mut waits, killed) = {
                let mut running = lock(&self.running);
                running.destroyed = true;
                let mut killed = KilledProcesses::default();
                running.groups.drain(..).for_each(|group| killed.extend(group.kill()));
                (std::mem::take(&mut running.waits), killed)
            };
            while waits.join_next().await.is_some() {}
            // This fails only when the runtime shuts down.
            let _ = tokio::task::spawn_blocking(|| killed.wait()).await;
            match std::fs::remove_dir_all(&self.directory) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    Err(SandboxError::Create { step: "remove the directory of the sandbox".to_owned(), source })
                }
                _ => Ok(()),
            }
        })
    }
}

impl Drop for UnconfinedSandbox {
    fn drop(&mut self) {
        lock(&self.running).groups.iter().for_each(|group| drop(group.kill()));
    }
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, content)
}

fn spawn_error(program: &str, source: io::Error) -> SandboxError {
    match source.kind() {
        io::ErrorKind::NotFound => SandboxError::NotFound(program.to_owned()),
        io::ErrorKind::PermissionDenied => SandboxError::NotExecutable(program.to_owned()),
        _ => SandboxError::Exec { doing: "start", source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run;
    use std::sync::Arc;

    fn spec(directory: Option<PathBuf>, mode: WorkspaceMode) -> SandboxSpec {
        SandboxSpec {
            id: "sbx_1".to_owned(),
            workspace: directory,
            workspace_at: WORKSPACE.into(),
            toolchains: crate::Toolchains::default(),
            mounts: vec![(PathBuf::from("/usr/bin"), PathBuf::from("/opt/tools"))],
            files: vec![(PathBuf::from("/etc/agent.conf"), b"placed".to_vec())],
            policy: Arc::new(policy(mode)),
        }
    }

    fn policy(mode: WorkspaceMode) -> policy::EffectivePolicy {
        let text = policy::Preset::Balanced.source().text().replace("overlay", mode.as_str());
        let base = policy::BaseLayer::read(&policy::PolicySource::new("test", text)).unwrap();
        policy::effective(&policy::CeilingLayer::built_in().unwrap(), &base, &[])
    }

    async fn make(scratch: &Path) -> Box<dyn Sandbox> {
        UnconfinedBackend::new(scratch.to_owned()).create(spec(None, WorkspaceMode::Bind)).await.unwrap()
    }

    async fn shell(sandbox: &dyn Sandbox, line: &str) -> crate::ExecResult {
        let command = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        run(sandbox, ExecSpec { command, ..ExecSpec::default() }, &mut |_, _| {}).await.unwrap()
    }

    #[tokio::test]
    async fn command_runs_in_the_workspace_and_returns_its_exit_code() {
        let scratch = tempfile::tempdir().unwrap();
        let sandbox = make(scratch.path()).await;
        let result = shell(&*sandbox, "echo hi > made; cat made; exit 7").await;
        assert_eq!((result.stdout.as_slice(), result.exit.code), (&b"hi\n"[..], Some(7)));
        assert!(scratch.path().join("sbx_1/workspace/made").exists());
    }

    #[tokio::test]
    async fn paths_of_mounts_are_mapped_to_host_paths() {
        let scratch = tempfile::tempdir().unwrap();
        let sandbox = make(scratch.path()).await;
        let command = ["/opt/tools/cat", "/etc/agent.conf"].map(str::to_owned).to_vec();
        let result = run(&*sandbox, ExecSpec { command, ..ExecSpec::default() }, &mut |_, _| {}).await.unwrap();
        assert_eq!(result.stdout, b"placed");
    }

    #[tokio::test]
    async fn model_url_is_mapped_to_the_gateways_address() {
        let scratch = tempfile::tempdir().unwrap();
        let sandbox = make(scratch.path()).await;
        let bound = sandbox.take_listener(SandboxPort::Models).unwrap().local_addr().unwrap();
        let result = shell(&*sandbox, &format!("echo {}", crate::MODEL_URL)).await;
        assert_eq!(String::from_utf8(result.stdout).unwrap(), format!("http://{bound}\n"));
        assert!(sandbox.take_listener(SandboxPort::Models).is_none());
    }

    #[tokio::test]
    async fn address_in_use_is_an_error_and_leaves_no_files() {
        let (scratch, taken) = (tempfile::tempdir().unwrap(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let backend = UnconfinedBackend::new(scratch.path().to_owned()).with_gateway(taken.local_addr().unwrap());
        let refused = backend.create(spec(None, WorkspaceMode::Bind)).await.err().unwrap();
        assert!(matches!(refused, SandboxError::Bind { .. }), "{refused}");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn missing_and_non_executable_programs_fail_differently() {
        let scratch = tempfile::tempdir().unwrap();
        let sandbox = make(scratch.path()).await;
        let start = async |program: &str| {
            sandbox.exec(ExecSpec { command: vec![program.to_owned()], ..ExecSpec::default() }).await.unwrap_err()
        };
        assert!(matches!(start("/nowhere/at/all").await, SandboxError::NotFound(_)));
        assert!(matches!(start("/etc/agent.conf").await, SandboxError::NotExecutable(_)));
    }

    #[tokio::test]
    async fn destroy_kills_grandchildren_and_removes_the_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let sandbox = make(scratch.path()).await;
        // With job control each job has its own process group.
        let line = "set -m; sh -c 'sleep 1000 & echo $!; wait' & wait";
        let command = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        let mut process = sandbox.exec(ExecSpec { command, ..ExecSpec::default() }).await.unwrap();
        let mut first = String::new();
        let mut stdout = tokio::io::BufReader::new(&mut process.stdout);
        tokio::io::AsyncBufReadExt::read_line(&mut stdout, &mut first).await.unwrap();
        let grandchild = first.trim().to_owned();
        sandbox.destroy().await.unwrap();
        sandbox.destroy().await.unwrap();
        assert_eq!(process.exit.await.unwrap().signal, Some(9));
        let status = std::fs::read_to_string(format!("/proc/{grandchild}/status")).unwrap_or_default();
        assert!(status.is_empty() || status.contains("State:\tZ"), "the grandchild lives: {status}");
        assert!(!scratch.path().join("sbx_1").exists());
        let late = sandbox.exec(ExecSpec { command: vec!["/bin/true".to_owned()], ..ExecSpec::default() }).await;
        assert!(matches!(late, Err(SandboxError::Gone)));
    }

    #[tokio::test]
    async fn overlay_and_readonly_workspaces_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        for mode in [WorkspaceMode::Overlay, WorkspaceMode::Readonly] {
            let made = UnconfinedBackend::new(scratch.path().to_owned()).create(spec(None, mode)).await;
            assert!(matches!(made, Err(SandboxError::Unavailable { .. })));
        }
    }

    #[tokio::test]
    async fn effective_policy_says_that_nothing_is_enforced() {
        let scratch = tempfile::tempdir().unwrap();
        let effective = make(scratch.path()).await.effective();
        assert!(!effective.is_empty());
        assert!(effective.iter().all(|(_, key)| key.state == EnforcementState::Absent), "{effective:?}");
    }
}
