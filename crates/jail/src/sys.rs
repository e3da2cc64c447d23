//! System calls that no safe crate offers. All `unsafe` code of the project is here, with one call in each function.
//!
//! Each function runs in a single-threaded process (the spawner or a process that it cloned), or touches only memory that
//! it owns. No decisions are made here.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::{Pid, Resource};

use crate::bpf::BpfInstruction;
use crate::reap::{ReapResult, ReapedChild, RemainingChildren};

/// The side of a clone on which the caller continues.
pub(crate) enum CloneSide {
    /// The new process.
    Child,
    /// The process that cloned, with handles to the new one.
    Parent {
        /// A descriptor of the new process, which stays valid when its process id is reused.
        pidfd: OwnedFd,
        /// The process id in this PID namespace.
        pid: Pid,
    },
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns a descriptor as a 64-bit field of a kernel structure.
fn descriptor(fd: BorrowedFd<'_>) -> u64 {
    u64::from(fd.as_raw_fd().cast_unsigned())
}

/// `struct clone_args` of clone3(2), first version: 64 bytes.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Clones this single-threaded process into new namespaces, and into `cgroup` if one is given.
pub(crate) fn clone_process(namespaces: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<CloneSide> {
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: namespaces | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= 0x2_0000_0000; // CLONE_INTO_CGROUP
        args.cgroup = descriptor(cgroup);
    }
    // SAFETY: `args` is a valid clone_args of the size passed, and `pidfd` lives until the call returns. Without CLONE_VM
    // the child has its own copy of memory, and the caller has only one thread.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) })?;
    if pid == 0 {
        return Ok(CloneSide::Child);
    }
    // SAFETY: the kernel has just stored a new descriptor in `pidfd`, which nothing else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = c_int::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no pid"))?;
    Ok(CloneSide::Parent { pidfd, pid })
}

/// Starts a process that runs `body` in this process's memory while this process waits. No memory is copied, because
/// `body` ends in execve; it returns only when it failed. Works where clone3 is filtered.
///
/// Memory that `body` owns when it calls execve stays allocated in this process, so it must own none then.
pub(crate) fn start_borrowing_memory(body: &mut dyn FnMut() -> io::Error) -> io::Result<Pid> {
    struct Start<'a> {
        body: &'a mut dyn FnMut() -> io::Error,
        failure: Option<io::Error>,
    }
    extern "C" fn run(start: *mut libc::c_void) -> c_int {
        // SAFETY: `start` points to the variable below, which lives until the parent continues. The parent waits, so
        // nothing else uses it meanwhile.
        let start = unsafe { &mut *start.cast::<Start<'_>>() };
        start.failure = Some((start.body)());
        exit_now(127)
    }
    const STACK: usize = 64 * 1024;
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let mut start = Start { body, failure: None };
    // SAFETY: `top` is one past the end of the memory just allocated and aligned for any frame; the stack grows down into
    // it. The memory lives until the child has left it: CLONE_VFORK lets this process continue only then. This process has
    // no signal handlers that could run in the child.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity());
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(run, top.cast(), flags, (&raw mut start).cast())
    };
    let pid = check(c_long::from(pid))?;
    match start.failure {
        Some(error) => Err(error),
        None => c_int::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no pid")),
    }
}

/// Filters the system calls of this thread and of everything it starts.
pub(crate) fn install_filter(program: &[BpfInstruction]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: `program` points to `length` instructions in the kernel's layout, which the kernel copies during the call.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) }).map(drop)
}

/// Moves only this thread into new namespaces of these `kinds`.
pub(crate) fn unshare(kinds: c_int) -> io::Result<()> {
    // SAFETY: unshare takes one integer, and no namespace affects memory.
    check(c_long::from(unsafe { libc::unshare(kinds) })).map(drop)
}

/// A list of strings in the form that execve(2) takes, made before the child exists.
pub(crate) struct StringList {
    /// Points into `_strings`, NULL at the end.
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl StringList {
    /// Fails when a string contains a NUL.
    pub(crate) fn new(strings: impl Iterator<Item = String>) -> io::Result<Self> {
        let strings = strings.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Self { pointers, _strings: strings })
    }
}

/// Executes a program in place of this one. Returns only when it failed.
pub(crate) fn execve(path: &CStr, argv: &StringList, env: &StringList) -> io::Error {
    // SAFETY: both lists end in NULL, and every string in them is NUL-terminated and outlives the call.
    unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Attributes for [`mount_setattr`], with their kernel names.
pub(crate) mod attr {
    pub(crate) const RDONLY: u64 = 0x1;
    pub(crate) const NOSUID: u64 = 0x2;
    pub(crate) const NODEV: u64 = 0x4;
    pub(crate) const NOEXEC: u64 = 0x8;
    pub(crate) const IDMAP: u64 = 0x0010_0000;
}

/// Sets attributes on the mount at `tree` and, if `recursive`, on everything mounted below it.
pub(crate) fn mount_setattr(
    tree: BorrowedFd<'_>,
    set: u64,
    recursive: bool,
    userns: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attr = MountAttr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: userns.map_or(0, descriptor) };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty NUL-terminated string and `attr` is a mount_attr of the size passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}

/// Sets close-on-exec on every descriptor from `first` on.
pub(crate) fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: c_int = 4;
    // SAFETY: close_range takes three integers; setting CLOEXEC closes no descriptor that is owned here.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, c_int::MAX, CLOSE_RANGE_CLOEXEC) }).map(drop)
}

/// Closes every descriptor above the standard streams except `kept`. No other code may own one of them.
pub(crate) fn close_all_but(kept: BorrowedFd<'_>) -> io::Result<()> {
    let kept = kept.as_raw_fd();
    let ranges = [(3, kept - 1), (kept.max(2) + 1, c_int::MAX)];
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        // SAFETY: close_range takes three integers; by the contract above, no owner closes these descriptors again.
        check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
    }
    Ok(())
}

/// Overwrites the arguments of this process, which every user can read in /proc.
pub(crate) fn erase_arguments() -> io::Result<()> {
    let stat = crate::kernel_text::read("/proc/self/stat")?;
    // Fields 48 and 49. The second field, the program's name, may contain anything and is skipped.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(45);
    let mut next = || fields.next().and_then(|field| field.parse::<usize>().ok()).unwrap_or(0);
    let (first, end) = (next(), next());
    if first == 0 || end <= first {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    // SAFETY: by the kernel's account the arguments lie in this range, on this process's own writable stack. Nothing reads
    // them: the spawner has one thread and takes no arguments.
    unsafe { std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(first), 0, end - first) };
    Ok(())
}

/// Brings up the interface `lo` of this network namespace.
pub(crate) fn raise_loopback(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = (*from).cast_signed();
    }
    request.ifr_ifru.ifru_flags = 0x1 | 0x40; // IFF_UP | IFF_RUNNING
    // SAFETY: `request` is an ifreq with a NUL-terminated name and lives until the call returns.
    check(c_long::from(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })).map(drop)
}

/// Makes the terminal on `fd` the controlling terminal of this session leader.
pub(crate) fn set_controlling_terminal(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer.
    check(c_long::from(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSCTTY, 0) })).map(drop)
}

/// The disposition of a signal.
#[derive(Clone, Copy)]
pub(crate) enum SignalDisposition {
    /// The kernel's default action.
    Default,
    /// The signal is ignored.
    Ignore,
}

/// Sets the disposition of a signal.
pub(crate) fn set_signal(signal: c_int, disposition: SignalDisposition) {
    let handler = match disposition {
        SignalDisposition::Default => libc::SIG_DFL,
        SignalDisposition::Ignore => libc::SIG_IGN,
    };
    // SAFETY: SIG_DFL and SIG_IGN install no function, so no handler can interrupt other code.
    unsafe { libc::signal(signal, handler) };
}

/// Blocks or unblocks every signal of this thread.
pub(crate) fn block_signals(block: bool) {
    // SAFETY: a zeroed sigset is valid memory for sigfillset, which then initialises it.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(
            if block { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK },
            &raw const all,
            std::ptr::null_mut(),
        );
    }
}

/// Returns a descriptor that becomes readable when a child ends. Blocks SIGCHLD.
pub(crate) fn child_signal_fd() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before it is used, and lives until the calls return.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    let fd = check(c_long::from(fd))?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(c_int::try_from(fd).map_err(io::Error::other)?) })
}

/// Reaps one ended child, if there is one.
pub(crate) fn reap() -> io::Result<ReapResult> {
    let mut status: c_int = 0;
    // SAFETY: an all-zero rusage is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both out pointers live until the call returns.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    if pid == 0 {
        return Ok(ReapResult::NoneEnded(RemainingChildren::Running));
    }
    if pid < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) {
        return Ok(ReapResult::NoneEnded(RemainingChildren::None));
    }
    check(c_long::from(pid))?;
    let micros = |time: libc::timeval| (time.tv_sec * 1_000_000 + time.tv_usec).cast_unsigned();
    Ok(ReapResult::Child(ReapedChild {
        pid,
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
        peak_rss_bytes: usage.ru_maxrss.cast_unsigned() * 1024,
    }))
}

/// Returns the version of Landlock that this kernel supports.
pub(crate) fn landlock_version() -> io::Result<c_long> {
    const LANDLOCK_CREATE_RULESET_VERSION: c_int = 1;
    let no_attributes = std::ptr::null::<u8>();
    // SAFETY: with this flag the kernel reads no attributes; the pointer is NULL and the size is zero.
    check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, no_attributes, 0_usize, LANDLOCK_CREATE_RULESET_VERSION)
    })
}

/// Returns freed memory of the allocator to the kernel.
pub(crate) fn trim_allocator() {
    // SAFETY: malloc_trim touches only memory that the allocator holds as free.
    unsafe { libc::malloc_trim(0) };
}

/// Limits the number of arenas that the allocator makes from now on.
pub(crate) fn limit_arenas(most: c_int) {
    // SAFETY: mallopt only chooses the source of later allocations.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, most) };
}

/// Removes the pages of `range` from this process. The range must be one mapping of a file that is never written through.
pub(crate) fn unmap_code_pages(range: std::ops::Range<usize>) -> io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: the pages are unmodified copies of the file, so the kernel reads the same bytes when they are used again.
    check(c_long::from(unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) })).map(drop)
}

/// Ends this process at once, without destructors and without exit handlers of the program it was cloned from.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: _exit accesses no memory of this process.
    unsafe { libc::_exit(code) }
}

/// Takes over a descriptor that the parent passed by number.
pub(crate) fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only reads a flag, and fails for a descriptor that is not open.
    check(c_long::from(unsafe { libc::fcntl(fd, libc::F_GETFD) }))?;
    // SAFETY: the descriptor is open, and by the contract of `Spawner::exec` nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets the soft and hard limit of a resource, never above the current hard limit.
pub(crate) fn lower_limit(resource: Resource, limit: u64) -> io::Result<()> {
    let current = rustix::process::getrlimit(resource);
    let limit = current.maximum.map_or(limit, |hard| hard.min(limit));
    rustix::process::setrlimit(resource, rustix::process::Rlimit { current: Some(limit), maximum: Some(limit) })?;
    Ok(())
}

/// Returns the hard limit of another process; `None` when the process is gone.
pub(crate) fn limit_of(pid: Pid, resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut found = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: without a new value the call only fills `found`, which lives until the call returns.
    let result = unsafe { libc::prlimit(pid.as_raw_pid(), resource, std::ptr::null(), &raw mut found) };
    (result == 0).then_some(found.rlim_max)
}
