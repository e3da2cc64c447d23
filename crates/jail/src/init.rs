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

use crate::plan::{ExecPlan, ProcessLimits};
use crate::seccomp::Filters;
use crate::sys::{self, Left, Reaped, StringList};
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
}

/// Serves `control` until it closes.
pub(crate) fn serve(control: &OwnedFd, house: &HouseRules<'_>) -> io::Result<()> {
    let children = sys::child_signal_fd()?;
    let mut running: HashMap<i32, u64> = HashMap::new();
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
                    start(control, &plan, &fds, house, &mut running)?;
                }
                Some((InitRequest::Kill { exec }, _)) => {
                    // What an ended command left behind may stay; it is not what is to be ended now.
                    if running.values().any(|id| *id == exec) {
                        end_all(exec);
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
fn report_ended(control: &OwnedFd, running: &mut HashMap<i32, u64>) -> io::Result<Left> {
    loop {
        match sys::reap()? {
            Reaped::One(ended) => {
                if let Some(exec) = running.remove(&ended.pid) {
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
    fds: &[OwnedFd],
    house: &HouseRules<'_>,
    running: &mut HashMap<i32, u64>,
) -> io::Result<()> {
    let started = Program::look_up(plan).and_then(|program| {
        sys::start_borrowing_memory(&mut || match prepare(plan, fds, house) {
            Err(error) => error,
            Ok(()) => program.become_it(),
        })
    });
    match started {
        Err(error) => not_started(control, plan.exec, &error),
        Ok(pid) => {
            running.insert(pid.as_raw_nonzero().get(), plan.exec);
            wire::send(control, &InitReport::Started { exec: plan.exec }, &[])
        }
    }
}

fn not_started(control: &OwnedFd, exec: u64, error: &io::Error) -> io::Result<()> {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    wire::send(control, &InitReport::NotStarted { exec, errno }, &[])
}

/// What the child does before it is the command. It borrows init's memory: nothing is allocated to stay.
fn prepare(plan: &ExecPlan, fds: &[OwnedFd], house: &HouseRules<'_>) -> io::Result<()> {
    let limits = house.limits;
    let [stdin, stdout, stderr] = fds else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
    rustix::process::setsid()?;
    if plan.terminal {
        sys::set_controlling_terminal(stdin.as_fd())?;
    }
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    sys::close_on_exec_from(3)?;
    sys::lower_limit(Resource::Rttime, mark(plan.exec))?;
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
fn end_all(exec: u64) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let (mark, begun) = (mark(exec).to_string(), Instant::now());
    loop {
        let marked: Vec<Pid> = living().filter(|pid| carries(*pid, &mark)).collect();
        if marked.is_empty() || begun.elapsed() > PATIENCE {
            return;
        }
        for pid in marked {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// A hard limit nobody uses, here or in programs: the time a real-time process may run. It goes from parent
/// to child, cannot be raised again, and the filter lets nobody lower it: whose descendant one is.
fn mark(exec: u64) -> u64 {
    const FIRST: u64 = 1 << 40;
    let limit = rustix::process::getrlimit(Resource::Rttime).maximum.unwrap_or(FIRST);
    limit.saturating_sub(exec + 1)
}

/// Processes of this PID namespace that have not ended, this one aside.
fn living() -> impl Iterator<Item = Pid> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).filter(|pid| *pid > 1);
    numbers.filter_map(Pid::from_raw).filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}

fn carries(pid: Pid, mark: &str) -> bool {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"));
    line.is_some_and(|line| line.split_whitespace().nth(1) == Some(mark))
}
