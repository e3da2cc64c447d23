//! Container engines for tests, started in their own directories and ended with the test process.
//!
//! They do not touch the machine's network: no bridge, no firewall rule, no forwarding.
#![allow(clippy::expect_used, clippy::panic, reason = "test support: an engine that does not start fails the tests")]

mod image;
mod leftovers;
mod mount_traces;
mod running_container;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::TryStreamExt;
use jail::Spawner;
use sandbox::{ContainerBackend, ContainerSettings, EngineKind, SandboxBackend};

pub use self::mount_traces::MountTraces;
pub use self::running_container::{RunningContainer, running_containers};

/// The name of the test image.
pub const IMAGE: &str = "localhost/viv-test:base";
/// The name of a rootless Podman in tests.
pub const ROOTLESS: &str = "podman-rootless";
/// The engines' name for gVisor.
pub const GVISOR: &str = "runsc";
/// The arguments of gVisor: those of docs/containers.md, and a platform that works on any machine.
const GVISOR_FLAGS: [&str; 3] = ["--host-uds=open", "--network=none", "--platform=ptrace"];
/// How long an engine may take to listen, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running engine. It ends when this is dropped.
pub struct Engine {
    kind: EngineKind,
    child: Child,
    directory: tempfile::TempDir,
}

impl Engine {
    /// Starts every engine that the calling user can run: both as root, Podman as an ordinary user.
    pub fn start_all() -> Vec<Self> {
        if !rustix::process::geteuid().is_root() {
            return vec![Self::start(EngineKind::Podman)];
        }
        [EngineKind::Docker, EngineKind::Podman].map(Self::start).into()
    }

    /// Starts an engine and gives it the image.
    pub fn start(kind: EngineKind) -> Self {
        let engine = Self::launch(kind);
        engine.import();
        engine
    }

    /// Starts a rootless Docker without an image. The caller must not be root.
    pub fn rootless_docker() -> Self {
        assert!(!rustix::process::geteuid().is_root(), "a rootless Docker needs an ordinary user");
        Self::launch(EngineKind::Docker)
    }

    fn launch(kind: EngineKind) -> Self {
        let directory = tempfile::Builder::new().prefix("viv-").tempdir().expect("a directory for the engine");
        let log = std::fs::File::create(directory.path().join("log")).expect("log");
        let mut command = match kind {
            EngineKind::Docker if rustix::process::geteuid().is_root() => dockerd(directory.path()),
            EngineKind::Docker => rootless_dockerd(directory.path()),
            EngineKind::Podman => podman(directory.path()),
        };
        // Engines write a file to their working directory when memory runs out.
        command.current_dir(directory.path());
        // Rootless engines keep their locks there.
        command.env("XDG_RUNTIME_DIR", directory.path());
        // Podman leaves imported images in the temporary directory.
        command.env("TMPDIR", directory.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("log")).stderr(log);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}: cargo xtask test installs it", kind.as_str()));
        let mut engine = Self { kind, child, directory };
        engine.wait_until_listening();
        engine
    }

    /// Returns the socket of the engine.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Returns the kind of engine.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Returns the engine's name in tests.
    pub fn name(&self) -> &'static str {
        if self.is_rootless() { ROOTLESS } else { self.kind.as_str() }
    }

    /// Returns whether the engine is rootless.
    pub fn is_rootless(&self) -> bool {
        !rustix::process::geteuid().is_root()
    }

    /// Returns a backend that uses this engine, with its default runtime or another.
    pub fn backend(&self, spawner: &Arc<Spawner>, runtime: Option<&str>, scratch: &Path) -> Arc<dyn SandboxBackend> {
        let made = ContainerBackend::new(self.settings(runtime), Arc::clone(spawner), scratch.to_owned());
        Arc::new(made.expect("backend"))
    }

    /// Returns the settings of a backend that uses this engine.
    pub fn settings(&self, runtime: Option<&str>) -> ContainerSettings {
        ContainerSettings { runtime: runtime.map(str::to_owned), ..settings(self.kind, self.socket()) }
    }

    fn wait_until_listening(&mut self) {
        let started = Instant::now();
        while UnixStream::connect(self.socket()).is_err() {
            let ended = self.child.try_wait().expect("wait");
            assert!(ended.is_none() && started.elapsed() < START_TIMEOUT, "the engine does not listen: {}", self.log());
            testkit::poll_pause();
        }
    }

    fn import(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let api = connect(&self.socket()).await;
            let options = CreateImageOptionsBuilder::default().from_src("-").repo(IMAGE).build();
            let body = bollard::body_full(image::archive().into());
            let made = api.create_image(Some(options), Some(body), None).try_collect::<Vec<_>>().await;
            made.unwrap_or_else(|error| panic!("import: {error}: {}", self.log()));
        });
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            eprintln!("{} ended unexpectedly with {status}: {}", self.name(), self.log());
        } else {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
        if self.is_rootless() {
            // Files of images belong to users that exist only in the engine's user namespace.
            let mut remove = with_storage_in(Command::new("podman"), self.directory.path());
            remove.env("XDG_RUNTIME_DIR", self.directory.path()).current_dir(self.directory.path());
            let _ = remove.args(["unshare", "rm", "-rf"]).arg(self.directory.path().join("data")).output();
        }
        for pid in processes_naming(self.directory.path()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        // Engines leave mounts when they end.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let ours: Vec<&str> = points.filter(|point| Path::new(point).starts_with(self.directory.path())).collect();
        for point in ours.into_iter().rev() {
            let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
        }
        // Directories of images are read-only; an ordinary user could not remove them.
        let _ = Command::new("chmod").args(["-R", "u+w"]).arg(self.directory.path()).status();
    }
}

/// Returns the processes that have `directory` in their arguments or environment: those of containers that did not start,
/// and the process that keeps the namespaces of a rootless engine.
fn processes_naming(directory: &Path) -> Vec<rustix::process::Pid> {
    let name = directory.to_string_lossy().into_owned();
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    let naming = numbers.filter(|pid| {
        let texts = ["cmdline", "environ"].map(|file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default());
        String::from_utf8_lossy(&texts.concat()).contains(&name)
    });
    naming.filter_map(rustix::process::Pid::from_raw).collect()
}

/// Connects to the engine behind `socket`.
async fn connect(socket: &Path) -> Docker {
    let api = Docker::connect_with_unix(&socket.to_string_lossy(), 120, bollard::API_DEFAULT_VERSION);
    api.expect("api").negotiate_version().await.expect("version")
}

/// Returns the settings of a backend for the engine behind `socket`, with the test image.
pub fn settings(kind: EngineKind, socket: PathBuf) -> ContainerSettings {
    let (image, entrypoint) = (IMAGE.to_owned(), Vec::new());
    ContainerSettings { kind, sockets: vec![socket], image, entrypoint, runtime: None, pull: false }
}

/// Returns a command that ends with this process, even when it is killed.
fn dies_with_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", program]);
    command
}

/// Returns the path of gVisor.
fn gvisor() -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(GVISOR));
    let found = places.find(|place| place.is_file()).expect("runsc: cargo xtask test installs it");
    found.display().to_string()
}

fn dockerd(directory: &Path) -> Command {
    let at = |name: &str| directory.join(name).display().to_string();
    let runtimes =
        format!(r#"{{"runtimes": {{"{GVISOR}": {{"path": "{}", "runtimeArgs": {GVISOR_FLAGS:?}}}}}}}"#, gvisor());
    std::fs::write(directory.join("daemon.json"), runtimes).expect("configuration");
    let mut command = dies_with_us("dockerd");
    command.args(["--config-file", &at("daemon.json")]).args(dockerd_arguments(directory));
    command
}

fn dockerd_arguments(directory: &Path) -> Vec<String> {
    let at = |name: &str| directory.join(name).display().to_string();
    let host = format!("--host=unix://{}", at("s"));
    let places = [("data-root", "data"), ("exec-root", "exec"), ("pidfile", "pid")];
    let places = places.map(|(option, name)| format!("--{option}={}", at(name)));
    let network = ["--iptables=false", "--bridge=none", "--ip-forward=false", "--ip-masq=false"].map(str::to_owned);
    places.into_iter().chain([host]).chain(network).collect()
}

/// Returns the command of a rootless Docker, as in Docker's own script but without a network.
fn rootless_dockerd(directory: &Path) -> Command {
    let state = format!("--state-dir={}", directory.join("state").display());
    let mut command = dies_with_us("rootlesskit");
    command.args([&state, "--net=host", "--copy-up=/etc", "--copy-up=/run", "sh", "-c"]);
    // The copies are links to the host's files, which belong to root.
    command.args(["rm -f /run/docker /run/containerd /run/xtables.lock; exec dockerd --rootless \"$@\"", "dockerd"]);
    command.args(dockerd_arguments(directory));
    command
}

fn podman(directory: &Path) -> Command {
    let mut command = with_storage_in(dies_with_us("podman"), directory);
    command.args(["system", "service", "--time", "0", &format!("unix://{}", directory.join("s").display())]);
    command
}

/// Makes Podman keep all its files in `directory`.
fn with_storage_in(mut command: Command, directory: &Path) -> Command {
    let at = |name: &str| directory.join(name).display().to_string();
    // runc, because crun refuses a machine with both cgroup versions.
    command.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]);
    command.args(["--root", &at("data"), "--runroot", &at("exec"), "--tmpdir", &at("tmp")]);
    if !rustix::process::geteuid().is_root() {
        // The default driver would copy the whole image for every container.
        command.args(["--storage-driver", "overlay"]);
    }
    command
}
