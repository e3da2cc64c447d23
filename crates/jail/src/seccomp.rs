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

/// The compiled filters, in the order they are installed.
pub(crate) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Compiles them; once a process.
    pub(crate) fn compile() -> io::Result<Self> {
        let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let filter = |rules, on_match| -> Result<BpfProgram, seccompiler::BackendError> {
            SeccompFilter::new(rules, SeccompAction::Allow, on_match, arch)?.try_into()
        };
        let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        // clone3 hides its flags behind a pointer that no filter can read: as if the kernel had none, so
        // that libc falls back to clone.
        let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
        let no_family = SeccompAction::Errno(libc::EAFNOSUPPORT.cast_unsigned());
        let compile = || -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
            Ok(vec![
                filter(refused_calls()?, refused)?,
                filter(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), missing)?,
                filter(BTreeMap::from([(libc::SYS_socket, foreign_families()?)]), no_family)?,
            ])
        };
        compile().map(Self).map_err(io::Error::other)
    }

    /// Installs them for this process and everything it starts. There is no way back.
    pub(crate) fn install(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|program| seccompiler::apply_filter(program)).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
            other => io::Error::other(other),
        })
    }
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
            SeccompCondition::new(0, Len::Dword, Op::Ne, 0x0004_0000)?,
        ])?],
    );
    Ok(rules)
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
