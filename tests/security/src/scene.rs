//! A disposable host: files, sockets and a process as targets for attacks.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{FileType, Mode};

use crate::attack::Place;
use crate::lead::Lead;
use crate::raw;

/// Owner of a planted setuid program: an unused id.
const OTHER_UID: u32 = 54_321;
/// Content of the file that the sandbox must not change.
const UNTOUCHED: &str = "host\n";

/// The setuid program that scenes share, below their root.
const PLANTED: &str = "setuid";

/// Creates the setuid program that all scenes below `root` share. Only root can.
pub(crate) fn plant(root: &Path, program: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let planted = root.join(PLANTED);
    std::fs::copy(program, &planted)?;
    chown(&planted, Some(OTHER_UID), Some(OTHER_UID))?;
    std::fs::set_permissions(&planted, PermissionsExt::from_mode(0o4755))
}

/// All targets of an attack. Dropping it removes them.
pub(crate) struct Scene {
    directory: tempfile::TempDir,
    pub(crate) victim: Victim,
    pub(crate) datagrams: UdpSocket,
    listeners: [TcpListener; 3],
    _sockets: [UnixListener; 3],
    abstract_name: String,
    segment: i32,
}

impl Scene {
    /// Creates a scene below `root`; `program` is the program of the suite.
    pub(crate) fn build(root: &Path, program: &Path, secret: &str) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("scene-").tempdir_in(root)?;
        let outside = directory.path().join("outside");
        let workspace = directory.path().join("workspace");
        fill_outside(&outside, secret)?;
        fill_workspace(&workspace, &outside, secret, &root.join(PLANTED))?;
        let name = directory.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let abstract_name = format!("viv-{}-{name}", std::process::id());
        let datagrams = UdpSocket::bind("127.0.0.1:0")?;
        datagrams.set_nonblocking(true)?;
        Ok(Self {
            victim: Victim::start(program, &outside, secret)?,
            datagrams,
            listeners: [
                TcpListener::bind("127.0.0.1:0")?,
                TcpListener::bind("[::1]:0")?,
                TcpListener::bind((own_address(), 0))?,
            ],
            _sockets: [
                UnixListener::bind(outside.join("host.sock"))?,
                UnixListener::bind(workspace.join("host.sock"))?,
                UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?,
            ],
            abstract_name,
            segment: raw::make_segment(secret.as_bytes())?,
            directory,
        })
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    /// Returns the attacker's knowledge of the scene.
    pub(crate) fn lead(&self, place: Place) -> Lead {
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port()).unwrap_or_default();
        let [four, six, own] = &self.listeners;
        Lead {
            inside: place == Place::Inside,
            workspace: if place == Place::Inside { "/workspace".into() } else { self.workspace() },
            outside: self.outside(),
            victim: self.victim.pid(),
            victim_memory: self.victim.memory,
            ports: [port(four), port(six), self.datagrams.local_addr().map(|at| at.port()).unwrap_or_default()],
            address: own.local_addr().map(|address| address.to_string()).unwrap_or_default(),
            abstract_name: self.abstract_name.clone(),
            segment: self.segment,
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid_namespace: std::fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino()).unwrap_or_default(),
        }
    }

    /// Returns the harm to the host, independent of the attack's own result; `None` if there is none.
    pub(crate) fn harm(&self) -> Option<String> {
        let mut datagram = [0; 16];
        if std::fs::read_to_string(self.outside().join("target")).ok().as_deref() != Some(UNTOUCHED) {
            return Some("a host file was changed".into());
        }
        if self.datagrams.recv(&mut datagram).is_ok() {
            return Some("a datagram arrived".into());
        }
        (!self.victim.is_alive()).then(|| "a host process is dead".into())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        raw::remove_segment(self.segment);
    }
}

fn fill_outside(outside: &Path, secret: &str) -> io::Result<()> {
    std::fs::create_dir_all(outside.join("home/.ssh"))?;
    std::fs::write(outside.join("home/.ssh/id_ed25519"), secret)?;
    std::fs::write(outside.join("target"), UNTOUCHED)?;
    std::fs::write(outside.join(".env"), secret)
}

/// Creates a repository with secrets, a hard link to the outside, and files that only root can create.
fn fill_workspace(workspace: &Path, outside: &Path, secret: &str, planted: &Path) -> io::Result<()> {
    for directory in ["conf", "other", ".git"] {
        std::fs::create_dir_all(workspace.join(directory))?;
    }
    for masked in [".env", "conf/.env"] {
        std::fs::write(workspace.join(masked), secret)?;
    }
    for plain in ["README.md", "conf/plain", "other/plain"] {
        std::fs::write(workspace.join(plain), UNTOUCHED)?;
    }
    std::fs::hard_link(outside.join("target"), workspace.join("shared"))?;
    symlink(outside, workspace.join("way-out"))?;
    if rustix::process::geteuid().is_root() {
        let zero = rustix::fs::makedev(1, 5);
        let (device, mode) = (workspace.join("device"), Mode::from_raw_mode(0o666));
        rustix::fs::mknodat(rustix::fs::CWD, &device, FileType::CharacterDevice, mode, zero)?;
        std::fs::set_permissions(&device, PermissionsExt::from_mode(0o666))?;
        std::fs::hard_link(planted, workspace.join("setuid"))?;
    }
    Ok(())
}

/// Returns an address of this machine that other machines can reach, else a second loopback address.
fn own_address() -> String {
    let asked = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    asked.map_or_else(|_| "127.0.0.2".to_owned(), |address| address.ip().to_string())
}

/// A host process with the secret in its arguments, environment, memory and descriptors.
pub(crate) struct Victim {
    process: Child,
    memory: (u64, usize),
}

impl Victim {
    fn start(program: &Path, outside: &Path, secret: &str) -> io::Result<Self> {
        let mut process = Command::new(program)
            .args(["__victim".as_ref(), secret.as_ref(), outside.join("home/.ssh/id_ed25519").as_os_str()])
            .env("VICTIM_SECRET", secret)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().map_err(io::Error::other)?;
        Ok(Self { process, memory: (address, secret.len()) })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// Returns whether the process is neither dead nor a zombie.
    fn is_alive(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Some attacks try to kill it, so it may be dead.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program of the victim: keeps the secret until its input closes.
pub(crate) fn live_as_victim(mut arguments: impl Iterator<Item = String>) {
    raw::invite_tracers();
    let secret = arguments.next().unwrap_or_default();
    let file = arguments.next().and_then(|path| std::fs::File::open(path).ok());
    let length = file.as_ref().map_or(0, AsRawFd::as_raw_fd);
    println!("{}", secret.as_ptr() as u64);
    let _ = io::stdin().read(&mut [0; 1]);
    // Keep both alive until here.
    drop((secret, length, file));
}
