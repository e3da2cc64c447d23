//! PID 1 inside: starts commands, reaps, reports, and ends when the host lets go.
//!
//! It holds no capability and runs under the same filters as the commands. When its control socket closes
//! it exits, and the kernel ends every process of its PID namespace with it.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{DumpableBehavior, Pid, Resource, Signal};
use serde::{Deserialize, Serialize};

use crate::console::{Console, ConsoleEnd};
use crate::mark::Mark;
use crate::plan::{ExecPlan, ProcessLimits};
use crate::reaped::{Left, Reaped};
use crate::seccomp::Filters;
use crate::sys::{self, StringList};
use crate::wire;

/// What the host asks of a running sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitRequest {
    /// Start a command; its three standard descriptors go with it.
    Exec(ExecPlan),
    /// End a command and everything that descends from it.
    Kill {
        /// The command.
        exec: u64,
    },
    /// The window of a command's terminal has another size.
    Resize {
        /// The command.
        exec: u64,
        /// Rows and columns.
        window: (u16, u16),
    },
}

/// What a sandbox tells the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitReport {
    /// The set-up is done; listeners, the workspace and its upper layer go with it.
    Ready,
    /// A step of the set-up failed.
    Failed(crate::error::Failure),
    /// A command runs.
    Started { exec: u64 },
    /// A command could not be started.
    NotStarted { exec: u64, errno: i32 },
    /// A command ended.
    Exited { exec: u64, code: Option<i32>, signal: Option<i32>, cpu_micros: u64, peak_rss_bytes: u64 },
}

/// How long a sandbox stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    /// As long as the host holds on to it.
    UntilLetGo,
    /// Until its one command has ended, and whatever that left running.
    OneCommand,
}

/// What every command here is held to.
pub(crate) struct HouseRules<'a> {
    /// When init goes by itself.
    pub(crate) stay: Stay,
    /// By the kernel, each process apart.
    pub(crate) limits: ProcessLimits,
    /// Beside those init itself is under.
    pub(crate) filters: &'a Filters,
    /// How the processes of a command are told from others.
    pub(crate) mark: Mark,
}

/// What runs here.
#[derive(Default)]
struct Running {
    /// Commands, by the number of their process.
    commands: HashMap<i32, u64>,
    /// The ends of terminals that stay with us.
    consoles: HashMap<u64, ConsoleEnd>,
}

/// Serves `control` until it closes.
pub(crate) fn serve(control: &OwnedFd, house: &HouseRules<'_>) -> io::Result<()> {
    let children = sys::child_signal_fd()?;
    let mut running = Running::default();
    loop {
        let mut ready = [PollFd::new(control, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let (asked, ended) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        if ended {
            drain(&children);
            let left = report_ended(control, &mut running)?;
            if house.stay == Stay::OneCommand && left == Left::Nothing {
                return Ok(());
            }
        }
        if asked {
            match wire::receive::<InitRequest>(control)? {
                None => return Ok(()),
                Some((InitRequest::Exec(plan), fds)) => {
                    hide()?;
                    start(control, &plan, fds, house, &mut running)?;
                }
                Some((InitRequest::Kill { exec }, _)) => {
                    // What an ended command left behind may stay; it is not what is to be ended now.
                    if running.commands.values().any(|id| *id == exec) {
                        end_all(house.mark, exec);
                    }
                }
                Some((InitRequest::Resize { exec, window }, _)) => {
                    if let Some(console) = running.consoles.get(&exec) {
                        // A terminal that is gone has no size.
                        let _ = console.resize(window);
                        signal_all(house.mark, exec, Signal::WINCH);
                    }
                }
            }
        }
    }
}

/// Nothing inside may look at this process: its memory is the spawner's.
fn hide() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

fn drain(signals: &OwnedFd) {
    let mut record = [0; 128];
    while rustix::io::read(signals, &mut record).is_ok_and(|count| count > 0) {}
}

/// Reaps everything that ended, orphans too, and reports the commands among it; says what is left to reap.
fn report_ended(control: &OwnedFd, running: &mut Running) -> io::Result<Left> {
    loop {
        match sys::reap()? {
            Reaped::One(ended) => {
                if let Some(exec) = running.commands.remove(&ended.pid) {
                    running.consoles.remove(&exec);
                    let (code, signal) = (ended.code, ended.signal);
                    let (cpu_micros, peak_rss_bytes) = (ended.cpu_micros, ended.peak_rss_bytes);
                    wire::send(control, &InitReport::Exited { exec, code, signal, cpu_micros, peak_rss_bytes }, &[])?;
                }
            }
            Reaped::None(left) => return Ok(left),
        }
    }
}

fn start(
    control: &OwnedFd,
    plan: &ExecPlan,
    fds: Vec<OwnedFd>,
    house: &HouseRules<'_>,
    running: &mut Running,
) -> io::Result<()> {
    let started = streams(plan, fds).and_then(|(streams, console)| {
        let program = Program::look_up(plan)?;
        let pid = sys::start_borrowing_memory(&mut || match prepare(plan, &streams, house) {
            Err(error) => error,
            Ok(()) => program.become_it(),
        })?;
        // Now the command alone has what it was given: its end is the end of its output.
        drop(streams);
        Ok((pid, console.map(|(console, typed, shown)| console.connect(typed, shown)).transpose()?))
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

/// A terminal, and the pipes behind it.
type Wired = (Console, OwnedFd, OwnedFd);

/// What a command is given: what came with it, or a terminal made here with that behind it.
fn streams(plan: &ExecPlan, fds: Vec<OwnedFd>) -> io::Result<([OwnedFd; 3], Option<Wired>)> {
    let given = <[OwnedFd; 3]>::try_from(fds).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let Some(window) = plan.window else { return Ok((given, None)) };
    let console = Console::open(window)?;
    let [typed, shown, _] = given;
    Ok((console.streams()?, Some((console, typed, shown))))
}

fn not_started(control: &OwnedFd, exec: u64, error: &io::Error) -> io::Result<()> {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    wire::send(control, &InitReport::NotStarted { exec, errno }, &[])
}

/// What the child does before it is the command. It borrows init's memory: nothing is allocated to stay.
fn prepare(plan: &ExecPlan, streams: &[OwnedFd; 3], house: &HouseRules<'_>) -> io::Result<()> {
    let limits = house.limits;
    let [stdin, stdout, stderr] = streams;
    rustix::process::setsid()?;
    if plan.terminal {
        sys::set_controlling_terminal(stdin.as_fd())?;
    }
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    sys::close_on_exec_from(3)?;
    sys::lower_limit(house.mark.resource(), house.mark.value(plan.exec))?;
    sys::lower_limit(Resource::Nofile, limits.nofile)?;
    if let Some(bytes) = limits.data_bytes {
        sys::lower_limit(Resource::Data, bytes)?;
    }
    if let Some(processes) = limits.processes {
        sys::lower_limit(Resource::Nproc, processes)?;
    }
    rustix::process::chdir(plan.workdir.as_str())?;
    for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        sys::set_signal(signal, sys::Disposition::Default);
    }
    sys::block_signals(false);
    house.filters.install_for_command()
}

/// A program to run, as the kernel takes it.
struct Program {
    /// Where it may lie, in the order they are tried.
    paths: Vec<CString>,
    argv: StringList,
    env: StringList,
}

impl Program {
    /// Finds the places a shell would look at: along PATH unless the name has a slash.
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

    /// Returns only when there is no such program, or none that may be run.
    fn become_it(&self) -> io::Error {
        let mut worst = io::Error::from_raw_os_error(libc::ENOENT);
        for path in &self.paths {
            let error = sys::execve(path, &self.argv, &self.env);
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                // Found, but not ours to run: remembered, while a later directory may still have one.
                Some(libc::EACCES) => worst = error,
                _ => return error,
            }
        }
        worst
    }
}

/// Ends everything that descends from a command, whatever it made of itself since.
///
/// A daemon has no parent of the command, no group and no session, but it carries the command's mark. Who
/// forks faster than this kills runs into the limit of processes: nobody reaps them meanwhile.
fn end_all(mark: Mark, exec: u64) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let (value, begun) = (mark.value(exec), Instant::now());
    loop {
        let before: Vec<Pid> = listed().collect();
        let signalled = signal_all(mark, exec, Signal::KILL);
        // Who came since may be the child of one that was gone when it was looked at, unless another command's.
        let mut newcomers = listed().filter(|pid| !before.contains(pid));
        let nobody_came = newcomers.all(|pid| mark.of(pid).is_some_and(|found| found != value));
        if (signalled == 0 && nobody_came) || begun.elapsed() >= PATIENCE {
            return;
        }
    }
}

/// Sends a signal to every process of a command; how many there were.
fn signal_all(mark: Mark, exec: u64, signal: Signal) -> usize {
    let value = mark.value(exec);
    let marked: Vec<Pid> = living().filter(|pid| mark.of(*pid) == Some(value)).collect();
    for pid in &marked {
        let _ = rustix::process::kill_process(*pid, signal);
    }
    marked.len()
}

/// Processes of this PID namespace, this one aside; also those that have ended and wait to be reaped.
fn listed() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|pid| *pid > 1).filter_map(Pid::from_raw)
}

/// Those of them that have not ended.
fn living() -> impl Iterator<Item = Pid> {
    listed().filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}
