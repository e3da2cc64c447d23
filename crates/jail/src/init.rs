//! Init, the first process inside a sandbox: starts commands, reaps processes and reports to the host.
//!
//! Init holds no capability and runs under the same filters as the commands. It exits when its control socket closes, and
//! the kernel then ends every process of its PID namespace.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{DumpableBehavior, Pid, Resource, Signal};
use serde::{Deserialize, Serialize};

use crate::console::{Console, ConsoleEnd};
use crate::inside_port;
use crate::plan::{ExecPlan, ProcessLimits};
use crate::process_tag::ProcessTag;
use crate::reap::{ReapResult, RemainingChildren};
use crate::seccomp::Filters;
use crate::sys::{self, StringList};
use crate::wire;

/// A request of the host to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitRequest {
    /// Start a command; its three standard streams are sent with this.
    Exec(ExecPlan),
    /// Kill a command and all its descendants.
    Kill {
        /// The number of the command.
        exec: u64,
    },
    /// Resize the terminal of a command.
    Resize {
        /// The number of the command.
        exec: u64,
        /// Rows and columns.
        window: (u16, u16),
    },
    /// Connect to a port on the loopback inside, and pass the socket out.
    Connect {
        /// The number of the request.
        request: u64,
        /// The port.
        port: u16,
    },
}

/// A report of init to the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitReport {
    /// The set-up is done; the listeners, the workspace and its upper layer are sent with this.
    Ready,
    /// A step of the set-up failed.
    Failed(crate::error::SetupFailure),
    /// A command runs.
    Started { exec: u64 },
    /// A command could not be started.
    NotStarted { exec: u64, errno: i32 },
    /// A command ended.
    Exited { exec: u64, code: Option<i32>, signal: Option<i32>, cpu_micros: u64, peak_rss_bytes: u64 },
    /// A connection was begun; its socket is sent with this.
    Connecting { request: u64 },
    /// A connection could not be begun.
    NotConnected { request: u64, errno: i32 },
}

/// How long an init runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitLifetime {
    /// Until the host closes the control socket.
    UntilDisconnected,
    /// Until its one command and all processes of it have ended.
    OneCommand,
}

/// The restrictions of every command.
pub(crate) struct CommandRules<'a> {
    /// When init exits.
    pub(crate) lifetime: InitLifetime,
    /// The limits of each process.
    pub(crate) limits: ProcessLimits,
    /// The filters of commands, in addition to those of init.
    pub(crate) filters: &'a Filters,
    /// The tag that marks the processes of a command.
    pub(crate) tag: ProcessTag,
}

/// The most queued signals and POSIX timers of a sandbox. The kernel also counts them for the user who started it, whose
/// own limit is usually over 30,000.
const MAX_QUEUED_SIGNALS: u64 = 4096;

/// The commands that run.
#[derive(Default)]
struct RunningCommands {
    /// Command numbers by process id.
    commands: HashMap<i32, u64>,
    /// Init's ends of terminals, by command number.
    consoles: HashMap<u64, ConsoleEnd>,
}

/// Serves `control` until it closes.
pub(crate) fn serve(control: &OwnedFd, rules: &CommandRules<'_>) -> io::Result<()> {
    let children = sys::child_signal_fd()?;
    let mut running = RunningCommands::default();
    loop {
        let mut ready = [PollFd::new(control, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let (has_request, has_ended_child) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        if has_ended_child {
            drain(&children);
            let remaining = report_ended(control, &mut running)?;
            if rules.lifetime == InitLifetime::OneCommand && remaining == RemainingChildren::None {
                return Ok(());
            }
        }
        if has_request {
            match wire::receive::<InitRequest>(control)? {
                None => return Ok(()),
                Some((InitRequest::Exec(plan), fds)) => {
                    hide()?;
                    start(control, &plan, fds, rules, &mut running)?;
                }
                Some((InitRequest::Kill { exec }, _)) => {
                    // Background processes of a command that has ended may stay.
                    if running.commands.values().any(|id| *id == exec) {
                        kill_all(rules.tag, exec);
                    }
                }
                Some((InitRequest::Resize { exec, window }, _)) => {
                    if let Some(console) = running.consoles.get(&exec) {
                        // Resizing fails only when the terminal is gone.
                        let _ = console.resize(window);
                        signal_all(rules.tag, exec, Signal::WINCH);
                    }
                }
                Some((InitRequest::Connect { request, port }, _)) => match inside_port::connect(port) {
                    Ok(socket) => wire::send(control, &InitReport::Connecting { request }, &[socket.as_fd()])?,
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(libc::EIO);
                        wire::send(control, &InitReport::NotConnected { request, errno }, &[])?;
                    }
                },
            }
        }
    }
}

/// Hides this process from commands inside, because its memory is a copy of the spawner's.
fn hide() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

fn drain(signals: &OwnedFd) {
    let mut record = [0; 128];
    while rustix::io::read(signals, &mut record).is_ok_and(|count| count > 0) {}
}

/// Reaps all ended children, including orphans, and reports the commands among them. Returns the remaining children.
fn report_ended(control: &OwnedFd, running: &mut RunningCommands) -> io::Result<RemainingChildren> {
    loop {
        match sys::reap()? {
            ReapResult::Child(child) => {
                if let Some(exec) = running.commands.remove(&child.pid) {
                    running.consoles.remove(&exec);
                    let (code, signal) = (child.code, child.signal);
                    let (cpu_micros, peak_rss_bytes) = (child.cpu_micros, child.peak_rss_bytes);
                    wire::send(control, &InitReport::Exited { exec, code, signal, cpu_micros, peak_rss_bytes }, &[])?;
                }
            }
            ReapResult::NoneEnded(remaining) => return Ok(remaining),
        }
    }
}

fn start(
    control: &OwnedFd,
    plan: &ExecPlan,
    fds: Vec<OwnedFd>,
    rules: &CommandRules<'_>,
    running: &mut RunningCommands,
) -> io::Result<()> {
    let started = streams(plan, fds).and_then(|(streams, console)| {
        let program = Program::look_up(plan)?;
        let pid = sys::start_borrowing_memory(&mut || match prepare(plan, &streams, rules) {
            Err(error) => error,
            Ok(()) => program.exec(),
        })?;
        // Only the command holds its streams now, so its output ends when it ends.
        drop(streams);
        Ok((pid, console.map(|(console, input, output)| console.connect(input, output)).transpose()?))
    });
    match started {
        Err(error) => not_started(control, plan.exec, &error),
        Ok((pid, console)) => {
            running.commands.insert(pid.as_raw_nonzero().get(), plan.exec);
            running.consoles.extend(console.map(|console| (plan.exec, console)));
            wire::send(control, &InitReport::Started { exec: plan.exec }, &[])
        }
    }
}

/// A terminal, and the host's input and output pipes for it.
type ConsolePipes = (Console, OwnedFd, OwnedFd);

/// Returns the standard streams of a command: those that were sent, or a new terminal that is connected to them.
fn streams(plan: &ExecPlan, fds: Vec<OwnedFd>) -> io::Result<([OwnedFd; 3], Option<ConsolePipes>)> {
    let streams = <[OwnedFd; 3]>::try_from(fds).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let Some(window) = plan.window else { return Ok((streams, None)) };
    let console = Console::open(window)?;
    let [input, output, _] = streams;
    Ok((console.streams()?, Some((console, input, output))))
}

fn not_started(control: &OwnedFd, exec: u64, error: &io::Error) -> io::Result<()> {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    wire::send(control, &InitReport::NotStarted { exec, errno }, &[])
}

/// Prepares the child before it executes the command. The child shares init's memory, so it must free what it allocates.
fn prepare(plan: &ExecPlan, streams: &[OwnedFd; 3], rules: &CommandRules<'_>) -> io::Result<()> {
    let limits = rules.limits;
    let [stdin, stdout, stderr] = streams;
    rustix::process::setsid()?;
    if plan.terminal {
        sys::set_controlling_terminal(stdin.as_fd())?;
    }
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    sys::close_on_exec_from(3)?;
    sys::lower_limit(rules.tag.resource(), rules.tag.value(plan.exec))?;
    sys::lower_limit(Resource::Nofile, limits.nofile)?;
    if rules.tag == ProcessTag::RealtimeLimit {
        // A kernel of its own, such as gVisor, has its own queues and refuses this limit.
        sys::lower_limit(Resource::Sigpending, MAX_QUEUED_SIGNALS)?;
    }
    if let Some(bytes) = limits.data_bytes {
        sys::lower_limit(Resource::Data, bytes)?;
    }
    if let Some(processes) = limits.processes {
        sys::lower_limit(Resource::Nproc, processes)?;
    }
    rustix::process::chdir(plan.workdir.as_str())?;
    for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        sys::set_signal(signal, sys::SignalDisposition::Default);
    }
    sys::block_signals(false);
    rules.filters.install_for_command()
}

/// A program in the form that execve(2) takes.
struct Program {
    /// Candidate paths, in the order in which they are tried.
    paths: Vec<CString>,
    argv: StringList,
    env: StringList,
}

impl Program {
    /// Returns the paths that a shell would try: along PATH, unless the name contains a slash.
    fn look_up(plan: &ExecPlan) -> io::Result<Self> {
        let Some(name) = plan.argv.first() else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
        let search = plan.env.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
        let paths = if name.contains('/') {
            vec![CString::new(name.as_str())?]
        } else {
            let directories = search.split(':').filter(|directory| !directory.is_empty());
            directories.map(|directory| CString::new(format!("{directory}/{name}"))).collect::<Result<_, _>>()?
        };
        let env = StringList::new(plan.env.iter().map(|(key, value)| format!("{key}={value}")))?;
        Ok(Self { paths, argv: StringList::new(plan.argv.iter().cloned())?, env })
    }

    /// Executes the program. Returns only when no candidate exists or may be executed.
    fn exec(&self) -> io::Error {
        let mut failure = io::Error::from_raw_os_error(libc::ENOENT);
        for path in &self.paths {
            let error = sys::execve(path, &self.argv, &self.env);
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                // The file may not be executed. A later directory may have one that may.
                Some(libc::EACCES) => failure = error,
                _ => return error,
            }
        }
        failure
    }
}

/// Kills all descendants of a command, including daemons.
///
/// A daemon has left the command's process group and session, but still has the command's tag. A command that forks
/// faster than this loop kills reaches the process limit, because nothing is reaped meanwhile.
fn kill_all(tag: ProcessTag, exec: u64) {
    const TIME_LIMIT: Duration = Duration::from_secs(2);
    let (value, started) = (tag.value(exec), Instant::now());
    loop {
        let before: Vec<Pid> = listed().collect();
        let signalled = signal_all(tag, exec, Signal::KILL);
        // A new process may be the child of one that had ended when it was looked at, unless its tag is another command's.
        let mut new_processes = listed().filter(|pid| !before.contains(pid));
        let none_is_new = new_processes.all(|pid| tag.of(pid).is_some_and(|found| found != value));
        if (signalled == 0 && none_is_new) || started.elapsed() >= TIME_LIMIT {
            return;
        }
    }
}

/// Sends a signal to every process of a command; returns how many there were.
fn signal_all(tag: ProcessTag, exec: u64, signal: Signal) -> usize {
    let value = tag.value(exec);
    let marked: Vec<Pid> = living().filter(|pid| tag.of(*pid) == Some(value)).collect();
    for pid in &marked {
        let _ = rustix::process::kill_process(*pid, signal);
    }
    marked.len()
}

/// Returns the processes of this PID namespace except init, including those that have ended and are not yet reaped.
fn listed() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|pid| *pid > 1).filter_map(Pid::from_raw)
}

/// Returns the listed processes that have not ended.
fn living() -> impl Iterator<Item = Pid> {
    listed().filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}
