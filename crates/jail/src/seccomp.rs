//! Which system calls exist inside.
//!
//! A deny-list on top of namespaces: what reaches outside a namespace (socket families), makes new ones,
//! looks into other processes, or is large and rarely needed (io_uring, bpf). Another architecture's calls
//! kill the caller: their numbers would walk around every rule here.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Refused with EPERM whatever the arguments.
const REFUSED: &[i64] = &[
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Files by handle walk around mounts.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Large, and programs fall back without them.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    // Keys are not confined by a namespace.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The machine itself.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
];

/// Refused on x86-64, where they still exist.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_uselib, libc::SYS__sysctl, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// Terminal requests that put words into the caller's mouth.
const TERMINAL_INJECTION: [u64; 2] = [0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */];
/// AF_VSOCK and AF_ALG are not confined by a network namespace; nobody needs the other forty.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// The compiled filters.
pub(crate) struct Filters {
    /// For everything inside, in the order they are installed.
    all: Vec<BpfProgram>,
    /// For commands: what init still does before it becomes one.
    commands: BpfProgram,
}

impl Filters {
    /// Compiles them; once a process.
    pub(crate) fn compile() -> io::Result<Self> {
        let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let filter = |rules, on_match| -> Result<BpfProgram, seccompiler::BackendError> {
            SeccompFilter::new(rules, SeccompAction::Allow, on_match, arch)?.try_into()
        };
        let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
        let pretended = SeccompAction::Errno(0);
        let no_family = SeccompAction::Errno(libc::EAFNOSUPPORT.cast_unsigned());
        let compile = || -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
            Ok(vec![
                filter(refused_calls()?, refused)?,
                filter(hidden_arguments(), missing)?,
                filter(core_limits()?, pretended)?,
                filter(BTreeMap::from([(libc::SYS_socket, foreign_families()?)]), no_family)?,
            ])
        };
        let mut programs = compile().map_err(io::Error::other)?;
        programs.extend(foreign_numbers());
        let commands = mark_limits().and_then(|rules| filter(rules, SeccompAction::Errno(libc::EPERM.cast_unsigned())));
        Ok(Self { all: programs, commands: commands.map_err(io::Error::other)? })
    }

    /// Installs them for this process and everything it starts. There is no way back.
    pub(crate) fn install(&self) -> io::Result<()> {
        self.all.iter().try_for_each(install)
    }

    /// Takes from a process that is about to become a command what only init may.
    pub(crate) fn install_for_command(&self) -> io::Result<()> {
        install(&self.commands)
    }
}

fn install(program: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(program).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
        other => io::Error::other(other),
    })
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn refused_calls() -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    let injections = TERMINAL_INJECTION
        .iter()
        .map(|request| SeccompRule::new(vec![SeccompCondition::new(1, Len::Dword, Op::Eq, *request)?]))
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, injections);
    rules.insert(libc::SYS_clone, namespace_flags()?);
    // A personality can switch off address randomisation or change what calls mean; the default stays.
    rules.insert(
        libc::SYS_personality,
        vec![SeccompRule::new(vec![
            SeccompCondition::new(0, Len::Dword, Op::Ne, 0)?,
            SeccompCondition::new(0, Len::Dword, Op::Ne, 0xffff_ffff)?,
        ])?],
    );
    rules.extend(limits_of_others()?);
    rules.extend(set_id_modes()?);
    Ok(rules)
}

/// Calls whose arguments lie behind a pointer that no filter can read: as if the kernel had none, so that
/// programs fall back. clone3 makes namespaces, openat2 files that change who runs them.
fn hidden_arguments() -> Rules {
    BTreeMap::from([(libc::SYS_clone3, Vec::new()), (libc::SYS_openat2, Vec::new())])
}

/// Limits of other processes, init's among them.
fn limits_of_others() -> Result<Rules, seccompiler::BackendError> {
    let other = SeccompRule::new(vec![SeccompCondition::new(0, Len::Dword, Op::Ne, 0)?])?;
    Ok(BTreeMap::from([(libc::SYS_prlimit64, vec![other])]))
}

/// The limit that says which command a process is of.
fn mark_limits() -> Result<Rules, seccompiler::BackendError> {
    changes_of_limit(u64::from(libc::RLIMIT_RTTIME))
}

/// Changing the limit of core dumps is told to have worked and does nothing: programs that forbid theirs
/// insist on it, and any other value than ours would hand their dumps to the host.
fn core_limits() -> Result<Rules, seccompiler::BackendError> {
    changes_of_limit(u64::from(libc::RLIMIT_CORE))
}

/// Both calls that set `resource`; prlimit(2) without a new value only asks.
fn changes_of_limit(resource: u64) -> Result<Rules, seccompiler::BackendError> {
    let asks_for = |argument| SeccompCondition::new(argument, Len::Dword, Op::Eq, resource);
    let with_value = SeccompCondition::new(2, Len::Qword, Op::Ne, 0)?;
    Ok(BTreeMap::from([
        (libc::SYS_prlimit64, vec![SeccompRule::new(vec![asks_for(1)?, with_value])?]),
        (libc::SYS_setrlimit, vec![SeccompRule::new(vec![asks_for(0)?])?]),
    ]))
}

/// Modes that change who runs a program. In a bound workspace it would lie on the host, owned by whoever
/// started the sandbox, for everybody there to run.
fn set_id_modes() -> Result<Rules, seccompiler::BackendError> {
    let bits = [u64::from(libc::S_ISUID), u64::from(libc::S_ISGID)];
    let has = |argument, bit| SeccompCondition::new(argument, Len::Dword, Op::MaskedEq(bit), bit);
    let modes = |argument: u8| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        bits.iter().map(|bit| SeccompRule::new(vec![has(argument, *bit)?])).collect()
    };
    // The mode counts only when a file is made: without one it is whatever the register held.
    let making = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY].map(|flag| u64::from(flag.cast_unsigned()));
    let modes_of_new = |flags: u8| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        let pairs = making.iter().flat_map(|flag| bits.iter().map(move |bit| (*flag, *bit)));
        pairs.map(|(flag, bit)| SeccompRule::new(vec![has(flags, flag)?, has(flags + 1, bit)?])).collect()
    };
    let mut rules = Rules::from([
        (libc::SYS_fchmod, modes(1)?),
        (libc::SYS_fchmodat, modes(2)?),
        (libc::SYS_fchmodat2, modes(2)?),
        (libc::SYS_mknodat, modes(2)?),
        (libc::SYS_openat, modes_of_new(2)?),
    ]);
    #[cfg(target_arch = "x86_64")]
    rules.extend([
        (libc::SYS_chmod, modes(1)?),
        (libc::SYS_creat, modes(1)?),
        (libc::SYS_mknod, modes(1)?),
        (libc::SYS_open, modes_of_new(1)?),
    ]);
    Ok(rules)
}

/// The x32 table has the architecture's name and numbers of its own, which no rule here knows: as if the
/// kernel had none.
#[cfg(target_arch = "x86_64")]
fn foreign_numbers() -> Vec<BpfProgram> {
    const X32: u32 = 0x4000_0000;
    let instruction = |code, jt, jf, k| seccompiler::sock_filter { code, jt, jf, k };
    vec![vec![
        // Load the number; if it is one of x32's, refuse with ENOSYS, else allow.
        instruction(0x20, 0, 0, 0),
        instruction(0x35, 0, 1, X32),
        instruction(0x06, 0, 0, SeccompAction::Errno(libc::ENOSYS.cast_unsigned()).into()),
        instruction(0x06, 0, 0, SeccompAction::Allow.into()),
    ]]
}
#[cfg(not(target_arch = "x86_64"))]
fn foreign_numbers() -> Vec<BpfProgram> {
    Vec::new()
}

/// clone(2) with any flag that makes a namespace.
fn namespace_flags() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let flags = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    flags
        .iter()
        .map(|flag| {
            let flag = u64::from(flag.cast_unsigned());
            SeccompRule::new(vec![SeccompCondition::new(0, Len::Dword, Op::MaskedEq(flag), flag)?])
        })
        .collect()
}

/// socket(2) with a family that is not on the list, and netlink other than its route protocol.
fn foreign_families() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let other = FAMILIES
        .iter()
        .map(|family| SeccompCondition::new(0, Len::Dword, Op::Ne, u64::from(family.cast_unsigned())))
        .collect::<Result<Vec<_>, _>>()?;
    let netlink = u64::from(libc::AF_NETLINK.cast_unsigned());
    let not_route = vec![
        SeccompCondition::new(0, Len::Dword, Op::Eq, netlink)?,
        SeccompCondition::new(2, Len::Dword, Op::Ne, u64::from(libc::NETLINK_ROUTE.cast_unsigned()))?,
    ];
    Ok(vec![SeccompRule::new(other)?, SeccompRule::new(not_route)?])
}
