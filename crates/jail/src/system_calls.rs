//! The system calls that a process inside may make, by group, with the reason for each group.
//!
//! The list comes from measured runs of agents and build tools (`measured_calls.txt`), and from the needs of the C
//! libraries and language runtimes. Every other call fails with ENOSYS, as on an older kernel, and programs fall back.
//! `docs/SANDBOX.md` shows these tables; a test keeps both equal.
//!
//! Not here: the conditions on arguments (`seccomp`).

use std::fmt::Write as _;

/// A system call of this architecture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemCall {
    /// The name of the constant, which begins with `SYS_`.
    constant: &'static str,
    /// The number.
    pub(crate) number: i64,
}

impl SystemCall {
    /// Returns the name in the manual.
    pub(crate) fn name(&self) -> &'static str {
        self.constant.trim_start_matches("SYS_")
    }
}

/// System calls with one rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallGroup {
    title: &'static str,
    reason: &'static str,
    pub(crate) calls: &'static [SystemCall],
}

/// Recent system calls have the same number on every architecture.
const SYS_STATMOUNT: i64 = 457;
const SYS_LISTMOUNT: i64 = 458;
const SYS_OPEN_TREE_ATTR: i64 = 467;

macro_rules! calls {
    ($($name:ident)*) => { &[$(SystemCall { constant: stringify!($name), number: libc::$name }),*] };
}

/// Calls that are allowed, some of them only with certain arguments.
pub(crate) const ALLOWED: &[CallGroup] = &[
    CallGroup {
        title: "files",
        reason: "Mounts and Landlock decide which files exist and can be opened.",
        calls: calls![
            SYS_read SYS_write SYS_openat SYS_close SYS_close_range SYS_lseek SYS_pread64 SYS_pwrite64 SYS_readv
            SYS_writev SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2 SYS_dup SYS_dup3 SYS_pipe2 SYS_fcntl SYS_ioctl
            SYS_flock SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2
            SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_readlinkat SYS_mkdirat SYS_mknodat SYS_unlinkat
            SYS_renameat2 SYS_linkat SYS_symlinkat SYS_truncate SYS_ftruncate SYS_fallocate SYS_fchmod SYS_fchmodat
            SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_umask SYS_utimensat SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs
            SYS_readahead SYS_fadvise64 SYS_sendfile SYS_copy_file_range SYS_splice SYS_tee
        ],
    },
    CallGroup {
        title: "extended attributes",
        reason: "Package managers and copy tools keep attributes. The kernel checks them like file access.",
        calls: calls![
            SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_listxattr
            SYS_llistxattr SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
        ],
    },
    CallGroup {
        title: "memory",
        reason: "Every program maps memory. The memory limit counts it.",
        calls: calls![
            SYS_brk SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_msync SYS_mincore SYS_mlock SYS_mlock2
            SYS_munlock SYS_mlockall SYS_munlockall SYS_memfd_create SYS_membarrier SYS_pkey_alloc SYS_pkey_free
            SYS_pkey_mprotect SYS_get_mempolicy
        ],
    },
    CallGroup {
        title: "processes and threads",
        reason: "Processes stay in the sandbox: its PID namespace and its limits contain all of them.",
        calls: calls![
            SYS_clone SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_getpid SYS_getppid
            SYS_gettid SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid SYS_set_tid_address SYS_futex SYS_set_robust_list
            SYS_get_robust_list SYS_rseq SYS_prctl SYS_personality SYS_pidfd_open SYS_pidfd_send_signal SYS_getrusage
            SYS_prlimit64 SYS_times
        ],
    },
    CallGroup {
        title: "scheduling",
        reason: "Runtimes read the number of processors, and lower their own priority.",
        calls: calls![
            SYS_sched_yield SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getparam SYS_sched_setparam
            SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min
            SYS_sched_rr_get_interval SYS_sched_getattr SYS_sched_setattr SYS_getpriority SYS_setpriority
            SYS_ioprio_get SYS_ioprio_set SYS_getcpu
        ],
    },
    CallGroup {
        title: "signals",
        reason: "The PID namespace and Landlock confine signals to the sandbox.",
        calls: calls![
            SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait
            SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_rt_sigsuspend SYS_sigaltstack SYS_kill SYS_tkill SYS_tgkill
            SYS_signalfd4 SYS_restart_syscall
        ],
    },
    CallGroup {
        title: "time and timers",
        reason: "Programs read clocks and wait. No call sets a clock.",
        calls: calls![
            SYS_nanosleep SYS_clock_nanosleep SYS_clock_gettime SYS_clock_getres SYS_gettimeofday SYS_getitimer
            SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete
            SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
        ],
    },
    CallGroup {
        title: "events",
        reason: "Event loops of every language.",
        calls: calls![
            SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
            SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch
        ],
    },
    CallGroup {
        title: "sockets",
        reason: "The network namespace has only loopback. Families and protocols are limited.",
        calls: calls![
            SYS_socket SYS_socketpair SYS_connect SYS_accept SYS_accept4 SYS_bind SYS_listen SYS_getsockname
            SYS_getpeername SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_shutdown
            SYS_setsockopt SYS_getsockopt
        ],
    },
    CallGroup {
        title: "System V IPC",
        reason: "Databases and fakeroot need it. The IPC namespace confines it.",
        calls: calls![
            SYS_shmget SYS_shmat SYS_shmdt SYS_shmctl SYS_semget SYS_semop SYS_semtimedop SYS_semctl SYS_msgget
            SYS_msgsnd SYS_msgrcv SYS_msgctl
        ],
    },
    CallGroup {
        title: "users and capabilities",
        reason: "Only one user exists inside, and no process has a capability, so setting an id fails in the kernel.",
        calls: calls![
            SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_setuid
            SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid
            SYS_capget SYS_capset
        ],
    },
    CallGroup {
        title: "the machine",
        reason: "Harmless facts: the kernel's name, the load, random bytes.",
        calls: calls![SYS_uname SYS_sysinfo SYS_getrandom],
    },
    CallGroup {
        title: "own restrictions",
        reason: "A program can restrict itself further, as browsers do. No call removes a restriction.",
        calls: calls![
            SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
        ],
    },
    OLDER_NAMES,
];

/// Calls of the first kernels for x86-64. Later architectures have only their successors.
#[cfg(target_arch = "x86_64")]
const OLDER_NAMES: CallGroup = CallGroup {
    title: "older names",
    reason: "Older forms of calls above, which C libraries and Go still use on x86-64.",
    calls: calls![
        SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_dup2 SYS_pipe SYS_poll SYS_select SYS_getdents SYS_rename
        SYS_renameat SYS_mkdir SYS_rmdir SYS_link SYS_unlink SYS_symlink SYS_readlink SYS_chmod SYS_chown SYS_lchown
        SYS_mknod SYS_utime SYS_utimes SYS_futimesat SYS_fork SYS_vfork SYS_getpgrp SYS_getrlimit SYS_setrlimit SYS_sync_file_range SYS_arch_prctl SYS_time SYS_alarm
        SYS_pause SYS_signalfd SYS_eventfd SYS_epoll_create SYS_epoll_wait SYS_inotify_init
    ],
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER_NAMES: CallGroup = CallGroup { title: "older names", reason: "None here.", calls: &[] };

/// Calls that fail with EPERM. Programs know this error for them: they report a missing right, or continue without.
pub(crate) const REFUSED: &[CallGroup] = &[
    CallGroup {
        title: "mounts and roots",
        reason: "The root of the sandbox is final.",
        calls: calls![
            SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick
            SYS_move_mount SYS_open_tree SYS_mount_setattr SYS_swapon SYS_swapoff SYS_quotactl SYS_quotactl_fd
        ],
    },
    CallGroup {
        title: "the mount table",
        reason: "These calls reveal host paths that `/proc` does not show.",
        calls: &[
            SystemCall { constant: "SYS_statmount", number: SYS_STATMOUNT },
            SystemCall { constant: "SYS_listmount", number: SYS_LISTMOUNT },
            SystemCall { constant: "SYS_open_tree_attr", number: SYS_OPEN_TREE_ATTR },
        ],
    },
    CallGroup {
        title: "namespaces",
        reason: "A new namespace gives access to large parts of the kernel.",
        calls: calls![SYS_unshare SYS_setns],
    },
    CallGroup {
        title: "other processes",
        reason: "A tool must not read or change the agent's memory and descriptors.",
        calls: calls![
            SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_pidfd_getfd SYS_kcmp
        ],
    },
    CallGroup {
        title: "file handles",
        reason: "A handle opens a file without its path, past mounts.",
        calls: calls![SYS_open_by_handle_at SYS_name_to_handle_at],
    },
    CallGroup {
        title: "large interfaces",
        reason: "Each had many vulnerabilities. Programs work without them.",
        calls: calls![
            SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_bpf SYS_perf_event_open SYS_userfaultfd
            SYS_fanotify_init
        ],
    },
    CallGroup {
        title: "keys",
        reason: "No namespace confines the kernel's keyrings.",
        calls: calls![SYS_keyctl SYS_add_key SYS_request_key],
    },
    CallGroup {
        title: "the machine",
        reason: "They change the machine itself: its clock, name, modules, memory placement.",
        calls: calls![
            SYS_reboot SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module SYS_delete_module
            SYS_syslog SYS_acct SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_sethostname
            SYS_setdomainname SYS_vhangup SYS_lookup_dcookie SYS_nfsservctl SYS_migrate_pages SYS_move_pages SYS_mbind
            SYS_set_mempolicy
        ],
    },
    REFUSED_OLDER,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_OLDER: CallGroup = CallGroup {
    title: "ports and segments",
    reason: "Relics of x86 with direct access to the processor.",
    calls: calls![SYS_iopl SYS_ioperm SYS_uselib SYS__sysctl SYS_modify_ldt],
};
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OLDER: CallGroup = CallGroup { title: "ports and segments", reason: "None here.", calls: &[] };

/// Calls that programs are measured to try, and that stay absent: they fail with ENOSYS, and the programs fall back.
pub(crate) const ABSENT: &[CallGroup] = &[
    CallGroup {
        title: "arguments behind a pointer",
        reason: "A filter cannot read them: clone3 can make namespaces, and openat2 can make set-id files.",
        calls: calls![SYS_clone3 SYS_openat2],
    },
    CallGroup {
        title: "machine-wide limits",
        reason: "Asynchronous I/O from before io_uring has one limit for the whole machine.",
        calls: calls![SYS_io_setup SYS_io_destroy SYS_io_submit SYS_io_cancel SYS_io_getevents],
    },
];

/// Rules for the arguments of allowed calls, for the document.
const CONDITIONS: &[(&str, &str)] = &[
    ("clone", "EPERM with a flag that makes a namespace."),
    (
        "socket, socketpair",
        "Only unix, IPv4 and IPv6 sockets, and route netlink; of the internet protocols TCP and UDP.",
    ),
    (
        "ioctl",
        "EPERM for TIOCSTI and TIOCLINUX, which insert input into a terminal, and for TIOCSETD, which loads a line discipline.",
    ),
    ("chmod, creat, mknod, open and their successors", "EPERM with a set-id mode."),
    ("mmap, memfd_create, shmget", "EPERM with huge pages, which no memory limit counts."),
    ("personality", "EPERM for anything but the default."),
    (
        "prlimit64, setrlimit",
        "Setting the core dump limit does nothing. The limit that marks the processes of a command, and limits of other processes, cannot be changed.",
    ),
    ("sync", "Does nothing: it would write every file system of the host. fsync and syncfs work."),
];

/// Returns the tables for `docs/SANDBOX.md`.
pub fn system_call_tables() -> String {
    let mut text = String::from("\n| allowed | calls | why |\n| --- | --- | --- |\n");
    add_rows(&mut text, ALLOWED);
    text.push_str("\n| allowed call | rule for its arguments |\n| --- | --- |\n");
    for (calls, rule) in CONDITIONS {
        let _ = writeln!(text, "| {calls} | {rule} |");
    }
    text.push_str("\n| refused with EPERM | calls | why |\n| --- | --- | --- |\n");
    add_rows(&mut text, REFUSED);
    text.push_str("\n| absent (ENOSYS), but measured | calls | why |\n| --- | --- | --- |\n");
    add_rows(&mut text, ABSENT);
    text.push('\n');
    text
}

fn add_rows(text: &mut String, groups: &[CallGroup]) {
    for group in groups {
        let names: Vec<&str> = group.calls.iter().map(SystemCall::name).collect();
        let _ = writeln!(text, "| {} | {} | {} |", group.title, names.join(", "), group.reason);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// One line for each measured program: its name, a colon and the calls it made.
    const MEASURED: &str = include_str!("measured_calls.txt");
    const DOCUMENT: &str = include_str!("../../../docs/SANDBOX.md");

    fn names(groups: &'static [CallGroup]) -> impl Iterator<Item = &'static str> {
        groups.iter().flat_map(|group| group.calls).map(SystemCall::name)
    }

    #[test]
    fn each_call_has_one_rule() {
        let mut seen = BTreeSet::new();
        for name in names(ALLOWED).chain(names(REFUSED)).chain(names(ABSENT)) {
            assert!(seen.insert(name), "`{name}` is listed twice");
        }
    }

    #[test]
    fn every_measured_call_has_a_rule() {
        let known: BTreeSet<&str> = names(ALLOWED).chain(names(REFUSED)).chain(names(ABSENT)).collect();
        let programs = MEASURED.lines().filter_map(|line| line.split_once(": "));
        let unknown: Vec<String> = programs
            .flat_map(|(program, calls)| calls.split(' ').map(move |call| (program, call)))
            .filter(|(_, call)| !known.contains(call))
            .map(|(program, call)| format!("{call} of {program}"))
            .collect();
        assert!(unknown.is_empty(), "no rule for: {}", unknown.join(", "));
        assert!(MEASURED.lines().count() >= 10, "too few programs are measured");
    }

    #[test]
    fn document_shows_the_tables() {
        let section = DOCUMENT.split_once("<!-- system calls: begin -->\n");
        let written = section.and_then(|(_, rest)| rest.split_once("<!-- system calls: end -->"));
        let tables = system_call_tables();
        assert_eq!(
            written.map(|(text, _)| text),
            Some(tables.as_str()),
            "replace the text between the markers of docs/SANDBOX.md by the output of `cargo run -p jail --example \
             system_calls`"
        );
    }
}
