//! Container engines for tests: started here, on directories of their own, and ended with whoever started them.
//!
//! Nothing of them touches the machine's network: no bridge, no rule of a firewall, no forwarding.
#![allow(clippy::expect_used, clippy::panic, reason = "a part of tests: what does not start fails them")]

mod image;
mod running;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::TryStreamExt;
use jail::Spawner;
use sandbox::{Backend, ContainerBackend, ContainerSettings, EngineKind};

pub use self::running::{Running, running};

/// What the image of the tests is called.
pub const IMAGE: &str = "localhost/viv-test:base";
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
    /// Every engine there is. Those that keep limits are root's; an ordinary user has none to test.
    pub fn start_all() -> Vec<Self> {
        if !rustix::process::geteuid().is_root() {
            return Vec::new();
        }
        [EngineKind::Docker, EngineKind::Podman].map(Self::start).into()
    }

    /// One of the ordinary user who runs the tests; root has none.
    pub fn start_rootless() -> Option<Self> {
        (!rustix::process::geteuid().is_root()).then(|| Self::start(EngineKind::Podman))
    }

    /// Starts an engine and gives it the image. Only root can start one that keeps limits.
    pub fn start(kind: EngineKind) -> Self {
        let directory = tempfile::Builder::new().prefix("viv-").tempdir().expect("a directory for the engine");
        let log = std::fs::File::create(directory.path().join("log")).expect("log");
        let mut command = match kind {
            EngineKind::Docker => dockerd(directory.path()),
            EngineKind::Podman => podman(directory.path()),
        };
        // Where one runs, it leaves a note when memory ran out.
        command.current_dir(directory.path());
        // One of an ordinary user keeps its locks there.
        command.env("XDG_RUNTIME_DIR", directory.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("log")).stderr(log);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}: cargo xtask test installs it", kind.as_str()));
        let mut engine = Self { kind, child, directory };
        engine.wait_until_it_listens();
        engine.import();
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
        self.kind.as_str()
    }

    /// A backend that uses it, with the runtime it uses by itself or another.
    pub fn backend(&self, spawner: &Arc<Spawner>, runtime: Option<&str>, scratch: &Path) -> Arc<dyn Backend> {
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
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
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
    command.args(["--config-file", &at("daemon.json")]);
    command.args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")]);
    command.args(["--host", &format!("unix://{}", at("s"))]);
    command.args(["--iptables=false", "--bridge=none", "--ip-forward=false", "--ip-masq=false"]);
    command
}

fn podman(directory: &Path) -> Command {
    let at = |name: &str| directory.join(name).display().to_string();
    let mut command = bound_to_us("podman");
    // runc: the other usual runtime refuses a machine with both versions of cgroups.
    command.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]);
    command.args(["--root", &at("data"), "--runroot", &at("exec"), "--tmpdir", &at("tmp")]);
    command.args(["system", "service", "--time", "0", &format!("unix://{}", at("s"))]);
    command
}
