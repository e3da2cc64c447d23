//! Runs tools of the host to learn their configuration: in `/`, for a few seconds at most, never from a workspace.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::config;

/// Longest time for one answer of a tool, which may ask its registry.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two looks at a running tool.
const POLL: Duration = Duration::from_millis(5);
/// Longest answer of a tool, and longest configuration file.
const MAX_BYTES: u64 = 1 << 20;

/// The tools and configuration files of this host.
#[derive(Debug)]
pub(super) struct HostTools {
    /// Directories of `PATH` outside the workspace.
    directories: Vec<PathBuf>,
    workspace: Option<PathBuf>,
    /// The home directory of the user.
    pub(super) home: Option<PathBuf>,
}

impl HostTools {
    pub(super) fn of_this_host(workspace: Option<&Path>) -> Self {
        let workspace = workspace.and_then(|path| path.canonicalize().ok());
        // A relative entry of PATH would name a directory of the workspace.
        let directories = config::search_path().into_iter().filter(|path| path.is_absolute()).collect();
        Self { directories, workspace, home: config::home() }
    }

    /// Returns the program `name`, unless it is in the workspace.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        let candidates = self.directories.iter().map(|directory| directory.join(name));
        candidates.filter(|path| path.is_file()).find(|path| self.is_trusted(path))
    }

    fn is_trusted(&self, path: &Path) -> bool {
        let inside = |path: &Path| self.workspace.as_ref().is_some_and(|workspace| path.starts_with(workspace));
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        let real = path.canonicalize().ok();
        real.is_some_and(|real| !inside(&real)) && parent.is_some_and(|parent| !inside(&parent))
    }

    /// Runs a program and returns its standard output. Fails with a sentence if it cannot, or takes too long.
    pub(super) fn ask<S: AsRef<OsStr>>(
        program: &Path,
        arguments: &[S],
        variables: &[(&str, &OsStr)],
    ) -> Result<String, String> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().copied()).current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("`{name}` cannot be run ({error})"))?;
        let reader = child.stdout.take().map(|stdout| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stdout.take(MAX_BYTES).read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        let succeeded = wait(&mut child);
        let text = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
        match succeeded {
            Some(true) => Ok(text),
            Some(false) => Err(format!("`{name}` gave no answer")),
            None => Err(format!("`{name}` gave no answer within {} seconds", TIMEOUT.as_secs())),
        }
    }

    /// Returns a configuration file; `None` if it does not exist or is in the workspace.
    pub(super) fn read(&self, path: &Path) -> Option<String> {
        if !self.is_trusted(path) || !path.is_file() {
            return None;
        }
        let mut text = String::new();
        std::fs::File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Returns a path with `~` for the home directory, for messages.
    pub(super) fn shown(&self, path: &Path) -> String {
        match self.home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
            Some(below) => format!("~/{}", below.display()),
            None => path.display().to_string(),
        }
    }
}

/// Waits for a tool and returns whether it succeeded; kills the tool, with its children, at the deadline.
fn wait(child: &mut Child) -> Option<bool> {
    let deadline = Instant::now() + TIMEOUT;
    let outcome = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status.success()),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
            _ => break None,
        }
    };
    // A child of the tool may still hold the pipe.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    outcome
}

/// A directory that only this user can read, deleted at the end.
#[derive(Debug)]
pub(super) struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    pub(super) fn new() -> Option<Self> {
        let path = config::temporary_directory().join(format!("viv-packages-{}", uuid::Uuid::new_v4()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).ok()?;
        Some(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
