//! Container engines for tests: started here, on directories of their own, and ended with whoever started them.
//!
//! Nothing of them touches the machine's network: no bridge, no rule of a firewall, no forwarding.
#![allow(clippy::expect_used, clippy::panic, reason = "a part of tests: what does not start fails them")]

mod image;
mod left;
mod running;
mod traces;

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

pub use self::running::{RunningContainer, running_containers};
pub use self::traces::MountTraces;

/// What the image of the tests is called.
pub const IMAGE: &str = "localhost/viv-test:base";
/// How a Podman of an ordinary user is called.
pub const ROOTLESS: &str = "podman-rootless";
/// By which name the engines know gVisor.
pub const GVISOR: &str = "runsc";
/// What it is started with, as docs/containers.md tells people to; and with a platform that works on any machine.
const GVISOR_FLAGS: [&str; 3] = ["--host-uds=open", "--network=none", "--platform=ptrace"];
/// How long an engine may take to listen, on a machine that has much else to do.
const START: Duration = Duration::from_secs(120);

/// An engine that runs for as long as this is held.
pub struct Engine {
    kind: EngineKind,
    child: Child,
    directory: tempfile::TempDir,
}

impl Engine {
    /// Every engine that whoever runs the tests can have: both as root, Podman as an ordinary user.
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

    /// A Docker of the ordinary user who runs the tests, with no image.
    pub fn rootless_docker() -> Self {
        assert!(!rustix::process::geteuid().is_root(), "root has none");
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
        // Where one runs, it leaves a note when memory ran out.
        command.current_dir(directory.path());
        // One of an ordinary user keeps its locks there.
        command.env("XDG_RUNTIME_DIR", directory.path());
        // Podman leaves what it imports where temporary files are.
        command.env("TMPDIR", directory.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("log")).stderr(log);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}: cargo xtask test installs it", kind.as_str()));
        let mut engine = Self { kind, child, directory };
        engine.wait_until_it_listens();
        engine
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Whose API it is.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Which it is.
    pub fn name(&self) -> &'static str {
        if self.is_rootless() { ROOTLESS } else { self.kind.as_str() }
    }

    /// Whether it is an ordinary user's.
    pub fn is_rootless(&self) -> bool {
        !rustix::process::geteuid().is_root()
    }

    /// A backend that uses it, with the runtime it uses by itself or another.
    pub fn backend(&self, spawner: &Arc<Spawner>, runtime: Option<&str>, scratch: &Path) -> Arc<dyn SandboxBackend> {
        let made = ContainerBackend::new(self.settings(runtime), Arc::clone(spawner), scratch.to_owned());
        Arc::new(made.expect("backend"))
    }

    /// What a backend that uses it is told.
    pub fn settings(&self, runtime: Option<&str>) -> ContainerSettings {
        ContainerSettings { runtime: runtime.map(str::to_owned), ..settings(self.kind, self.socket()) }
    }

    fn wait_until_it_listens(&mut self) {
        let begun = Instant::now();
        while UnixStream::connect(self.socket()).is_err() {
            let ended = self.child.try_wait().expect("wait");
            assert!(ended.is_none() && begun.elapsed() < START, "the engine does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
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
            eprintln!("{} ended before it was told to, with {status}: {}", self.name(), self.log());
        } else {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
        if self.is_rootless() {
            // Files of images are those of users that exist in its namespace alone.
            let mut remove = keeping(Command::new("podman"), self.directory.path());
            remove.env("XDG_RUNTIME_DIR", self.directory.path()).current_dir(self.directory.path());
            let _ = remove.args(["unshare", "rm", "-rf"]).arg(self.directory.path().join("data")).output();
        }
        for pid in told_of(self.directory.path()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        // What an engine leaves mounted when it ends.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let ours: Vec<&str> = points.filter(|point| Path::new(point).starts_with(self.directory.path())).collect();
        for point in ours.into_iter().rev() {
            let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
        }
        // Directories of images cannot be written, which only root does not mind when they are removed.
        let _ = Command::new("chmod").args(["-R", "u+w"]).arg(self.directory.path()).status();
    }
}

/// Processes that were told of `directory`, which nobody else has: what a container that never came up leaves running,
/// and what holds the namespaces of an ordinary user's engine.
fn told_of(directory: &Path) -> Vec<rustix::process::Pid> {
    let name = directory.to_string_lossy().into_owned();
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    let told = numbers.filter(|pid| {
        let told = ["cmdline", "environ"].map(|file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default());
        String::from_utf8_lossy(&told.concat()).contains(&name)
    });
    told.filter_map(rustix::process::Pid::from_raw).collect()
}

/// The API of the engine behind `socket`.
async fn connect(socket: &Path) -> Docker {
    let api = Docker::connect_with_unix(&socket.to_string_lossy(), 120, bollard::API_DEFAULT_VERSION);
    api.expect("api").negotiate_version().await.expect("version")
}

/// What a backend is told that uses the engine behind `socket`, which has the image of the tests.
pub fn settings(kind: EngineKind, socket: PathBuf) -> ContainerSettings {
    let (image, entrypoint) = (IMAGE.to_owned(), Vec::new());
    ContainerSettings { kind, sockets: vec![socket], image, entrypoint, runtime: None, pull: false }
}

/// Ends with us, also when we are killed.
fn bound_to_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", program]);
    command
}

/// Where gVisor is installed.
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
    let mut command = bound_to_us("dockerd");
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

/// As Docker's own script does it, without a network.
fn rootless_dockerd(directory: &Path) -> Command {
    let state = format!("--state-dir={}", directory.join("state").display());
    let mut command = bound_to_us("rootlesskit");
    command.args([&state, "--net=host", "--copy-up=/etc", "--copy-up=/run", "sh", "-c"]);
    // What is copied are links to the host's, which are root's.
    command.args(["rm -f /run/docker /run/containerd /run/xtables.lock; exec dockerd --rootless \"$@\"", "dockerd"]);
    command.args(dockerd_arguments(directory));
    command
}

fn podman(directory: &Path) -> Command {
    let mut command = keeping(bound_to_us("podman"), directory);
    command.args(["system", "service", "--time", "0", &format!("unix://{}", directory.join("s").display())]);
    command
}

/// Podman with all that it keeps in `directory`.
fn keeping(mut command: Command, directory: &Path) -> Command {
    let at = |name: &str| directory.join(name).display().to_string();
    // runc: the other usual runtime refuses a machine with both versions of cgroups.
    command.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]);
    command.args(["--root", &at("data"), "--runroot", &at("exec"), "--tmpdir", &at("tmp")]);
    if !rustix::process::geteuid().is_root() {
        // By itself it would copy the whole image for every container.
        command.args(["--storage-driver", "overlay"]);
    }
    command
}
