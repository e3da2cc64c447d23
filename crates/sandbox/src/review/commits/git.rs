//! Runs git on the host, bounded in time, memory, file size and output.
//!
//! Git runs in two places. In a repository that we wrote ourselves, it reads no configuration of the host. In the host's
//! repository, it obeys the host's configuration, without hooks. No file of the sandbox configures either.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};

use super::CommitsError;
use crate::review::visible;

/// The longest run of one command.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The most address space of a git process. An object that is larger than memory ends git, not the host.
const MAX_MEMORY: u64 = 4 << 30;
/// The largest file that git may write.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// The most bytes of an error message.
const MAX_MESSAGE: usize = 2000;

/// Settings for every command: no program of a configuration runs, and objects are read in small windows.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=",
    "core.pager=cat",
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=256m",
    "core.bigFileThreshold=16m",
    "pack.threads=1",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "protocol.allow=never",
    "log.showSignature=false",
];

/// Variables that would make git use another repository, another configuration or another program.
const REMOVED: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_PAGER",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_ASKPASS",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_PROXY_COMMAND",
    "GIT_ATTR_SOURCE",
    "GIT_PROTOCOL",
    "GIT_PROTOCOL_FROM_USER",
    "GIT_ALLOW_PROTOCOL",
    "GIT_DEFAULT_HASH",
    "GIT_DEFAULT_REF_FORMAT",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_REF_PARANOIA",
    "GIT_REFLOG_ACTION",
    "GIT_MERGE_AUTOEDIT",
    "GIT_TRACE",
];

/// The repository that a command uses.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GitPlace<'a> {
    /// The host's repository in this workspace. Git finds it and checks its owner.
    Host(&'a Path),
    /// A repository that we wrote.
    Own(&'a Path),
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct GitOutput {
    pub(crate) succeeded: bool,
    /// At most the requested number of bytes.
    pub(crate) stdout: Vec<u8>,
    /// Whether the output was longer.
    pub(crate) cut: bool,
    /// The error output, safe to print.
    pub(crate) message: String,
}

impl GitOutput {
    /// Returns the output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the output; fails with git's own message when the command failed.
    pub(crate) fn checked(self) -> Result<Self, CommitsError> {
        if self.succeeded { Ok(self) } else { Err(CommitsError::Refused(self.message)) }
    }
}

/// One git command.
pub(crate) struct GitCommand<'a> {
    place: GitPlace<'a>,
    arguments: Vec<OsString>,
    settings: Vec<String>,
    input: Vec<u8>,
    limit: usize,
}

impl<'a> GitCommand<'a> {
    pub(crate) fn new<W: Into<OsString>>(place: GitPlace<'a>, arguments: impl IntoIterator<Item = W>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { place, arguments, settings: Vec::new(), input: Vec::new(), limit: 16 << 20 }
    }

    /// Adds settings of this command alone.
    pub(crate) fn with(mut self, settings: &[&str]) -> Self {
        self.settings.extend(settings.iter().map(|setting| (*setting).to_owned()));
        self
    }

    /// Sets the standard input.
    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Sets the most bytes of output that are kept.
    pub(crate) fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Runs the command to its end.
    pub(crate) fn run(self) -> Result<GitOutput, CommitsError> {
        let mut command = self.command();
        let mut child = command.spawn().map_err(CommitsError::NoGit)?;
        restrict(&child);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (input, limit) = (self.input, self.limit);
        let (done, ended) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // Git may end before it has read everything.
                let _ = stdin.map_or(Ok(()), |mut stdin| stdin.write_all(&input));
            });
            let errors = scope.spawn(move || stderr.map_or(Ok((Vec::new(), false)), |from| keep(from, MAX_MESSAGE)));
            let output = scope.spawn(move || {
                let read = stdout.map_or(Ok((Vec::new(), false)), |from| keep(from, limit));
                let _ = done.send(());
                read
            });
            let in_time = wait(&mut child, &ended);
            let (output, errors) = (output.join(), errors.join());
            let status = child.wait()?;
            if !in_time {
                return Err(CommitsError::TimedOut(TIMEOUT));
            }
            let (Ok(output), Ok(errors)) = (output, errors) else {
                return Err(io::Error::other("a reader failed").into());
            };
            let ((stdout, cut), (errors, _)) = (output?, errors?);
            let message = visible(String::from_utf8_lossy(&errors).trim()).replace('\n', "; ");
            let message = if message.is_empty() { format!("git ended with {status}") } else { message };
            Ok(GitOutput { succeeded: status.success(), stdout, cut, message })
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        for name in REMOVED {
            command.env_remove(name);
        }
        match self.place {
            GitPlace::Host(workspace) => {
                let parent = workspace.parent().unwrap_or(Path::new("/"));
                command.current_dir(workspace).env("GIT_CEILING_DIRECTORIES", parent);
            }
            GitPlace::Own(directory) => {
                command.current_dir(directory).env("GIT_DIR", directory);
                command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
                command.env("GIT_ATTR_NOSYSTEM", "1").args(["-c", "core.attributesFile=/dev/null"]);
            }
        }
        for (name, value) in [
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("LC_ALL", "C"),
        ] {
            command.env(name, value);
        }
        for setting in SETTINGS.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.args(&self.arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command
    }
}

/// Limits memory and file size of a new child, and of everything that it starts.
fn restrict(child: &Child) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    for (resource, most) in [(Resource::As, MAX_MEMORY), (Resource::Fsize, MAX_FILE_BYTES), (Resource::Core, 0)] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        // Fails only for a child that has ended, or where the limit is lower already.
        let _ = prlimit(Some(pid), resource, limit);
    }
}

/// Waits until the output ends; kills the child and its children and returns false after the time limit.
fn wait(child: &mut Child, ended: &mpsc::Receiver<()>) -> bool {
    if ended.recv_timeout(TIMEOUT).is_ok() {
        return true;
    }
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The group may have ended meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
    false
}

/// Reads to the end, keeps at most `limit` bytes, and says whether there were more.
fn keep(mut from: impl Read, limit: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut kept = Vec::new();
    (&mut from).take(limit as u64).read_to_end(&mut kept)?;
    let more = io::copy(&mut from, &mut io::sink())?;
    Ok((kept, more > 0))
}

/// Returns one setting of the host's git; `None` when it is not set or git is not installed.
pub(crate) fn host_setting(place: GitPlace<'_>, key: &str) -> Option<String> {
    let mut command = GitCommand::new(place, ["config", "--get", key]).command();
    // No reader thread, because a sandbox may be cloned from this process afterwards.
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim_end_matches('\n').to_owned()).filter(|text| output.status.success() && !text.is_empty())
}
