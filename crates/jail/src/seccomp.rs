//! The system call filters of a sandbox.
//!
//! The filters are a deny-list in addition to the namespaces. They refuse calls that reach outside of a namespace (socket
//! families), make namespaces, inspect other processes, or are large and rarely needed (io_uring, bpf). A call of another
//! architecture kills the caller, because its number would bypass every rule.

use std::io;

use crate::bpf::{ArgumentCondition, BpfInstruction, FilterAction, SyscallRule, SyscallRules, assemble};
use crate::process_tag::ProcessTag;
use crate::sys;

/// Recent system calls have the same number on every architecture.
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;
const OPEN_TREE_ATTR: i64 = 467;

#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: i64 = 333;
#[cfg(not(target_arch = "x86_64"))]
const IO_PGETEVENTS: i64 = 292;

/// Asynchronous I/O from before io_uring. Its limit is machine-wide, so one sandbox could use all of it. These calls fail
/// with ENOSYS, and programs fall back.
const MACHINE_WIDE: &[i64] = &[
    libc::SYS_io_setup,
    libc::SYS_io_destroy,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
];

/// System calls that always fail with EPERM.
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
    OPEN_TREE_ATTR,
    // These reveal host paths that the visible mount table does not.
    STATMOUNT,
    LISTMOUNT,
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
    // File handles bypass mounts.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Large interfaces; programs fall back without them.
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

/// Refused calls that only exist on x86-64.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_uselib, libc::SYS__sysctl, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// Terminal requests that insert input into a terminal.
const TERMINAL_INJECTION: [u32; 2] = [0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */];
/// The allowed socket families. AF_VSOCK and AF_ALG are not confined by a network namespace; the others are not needed.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The allowed internet protocols: the default of the socket type, TCP and UDP. Others are large and rarely needed.
const PROTOCOLS: [i32; 3] = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];
/// Refused socket types: SOCK_SEQPACKET, which means SCTP when no protocol is named, and SOCK_DCCP.
const REFUSED_TYPES: [u32; 2] = [5, 6];
/// The bits of a socket type that are not flags.
const TYPE_MASK: u32 = 0xf;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

const REFUSE: FilterAction = FilterAction::Errno(libc::EPERM);
const MISSING: FilterAction = FilterAction::Errno(libc::ENOSYS);
const NO_FAMILY: FilterAction = FilterAction::Errno(libc::EAFNOSUPPORT);
const NO_PROTOCOL: FilterAction = FilterAction::Errno(libc::EPROTONOSUPPORT);
const PRETEND: FilterAction = FilterAction::Errno(0);

/// The compiled filters.
#[derive(Debug)]
pub(crate) struct Filters {
    /// The filter of every process inside.
    all: Vec<BpfInstruction>,
    /// The additional filter of commands: calls that init still needs to prepare a command.
    commands: Vec<BpfInstruction>,
}

impl Filters {
    /// Compiles the filters, once for each spawner. Commands have the tag `tag`.
    pub(crate) fn compile(tag: ProcessTag) -> Self {
        let compile = |rules: &SyscallRules| assemble(ARCHITECTURE, rules, MISSING);
        let mut all = rules();
        if tag == ProcessTag::ResidentLimit {
            // gVisor does not support this flag. Programs fall back to other calls.
            add(&mut all, libc::SYS_statx, MISSING, [ArgumentCondition::has(2, libc::AT_NO_AUTOMOUNT.cast_unsigned())]);
        }
        Self { all: compile(&all), commands: compile(&tag_rules(tag)) }
    }

    /// Installs the filter for this process and everything it starts. It cannot be removed.
    pub(crate) fn install(&self) -> io::Result<()> {
        sys::install_filter(&self.all)
    }

    /// Installs the additional filter in a process that is about to execute a command.
    pub(crate) fn install_for_command(&self) -> io::Result<()> {
        sys::install_filter(&self.commands)
    }
}

/// Returns the filter of every process inside, in the kernel's format. The bench runs another sandbox with it.
pub fn filter_bytes() -> Vec<u8> {
    Filters::compile(ProcessTag::RealtimeLimit).all.into_iter().flat_map(BpfInstruction::bytes).collect()
}

/// Returns the rules of every process inside.
pub(crate) fn rules() -> SyscallRules {
    let mut rules = SyscallRules::new();
    for call in REFUSED.iter().chain(REFUSED_HERE) {
        add(&mut rules, *call, REFUSE, []);
    }
    for request in TERMINAL_INJECTION {
        add(&mut rules, libc::SYS_ioctl, REFUSE, [ArgumentCondition::is(1, request)]);
    }
    namespace_flags(&mut rules);
    // A personality can switch off address randomisation or change the meaning of calls. Only the default is allowed.
    let not_default = [ArgumentCondition::is_not(0, 0), ArgumentCondition::is_not(0, u32::MAX)];
    add(&mut rules, libc::SYS_personality, REFUSE, not_default);
    // A filter cannot read arguments behind a pointer, so these calls fail with ENOSYS and programs fall back. clone3 can
    // make namespaces, and openat2 can make set-id files.
    for call in [libc::SYS_clone3, libc::SYS_openat2].iter().chain(MACHINE_WIDE) {
        add(&mut rules, *call, MISSING, []);
    }
    // Setting the core dump limit reports success and does nothing. Some programs insist on setting it to zero, and with
    // any value but ours the host would handle their dumps.
    limit_changes(&mut rules, libc::RLIMIT_CORE, PRETEND);
    set_id_modes(&mut rules);
    other_socket_families(&mut rules);
    huge_pages(&mut rules);
    rules
}

fn add<const N: usize>(rules: &mut SyscallRules, call: i64, action: FilterAction, conditions: [ArgumentCondition; N]) {
    // System call numbers are small and positive.
    let number = u32::try_from(call).unwrap_or(u32::MAX);
    rules.entry(number).or_default().push(SyscallRule { conditions: conditions.into(), action });
}

/// Returns rules that refuse to change the tag of a process, and any limit of another process.
fn tag_rules(tag: ProcessTag) -> SyscallRules {
    let mut rules = SyscallRules::new();
    limit_changes(&mut rules, tag.number(), REFUSE);
    add(&mut rules, libc::SYS_prlimit64, REFUSE, [ArgumentCondition::is_not(0, 0)]);
    rules
}

/// Adds rules for both calls that set `resource`. prlimit(2) with a null pointer as its new value only reads the limit.
fn limit_changes(rules: &mut SyscallRules, resource: libc::__rlimit_resource_t, action: FilterAction) {
    for has_new_value in [ArgumentCondition::is_not(2, 0), ArgumentCondition::high_is_not(2, 0)] {
        add(rules, libc::SYS_prlimit64, action, [ArgumentCondition::is(1, resource), has_new_value]);
    }
    add(rules, libc::SYS_setrlimit, action, [ArgumentCondition::is(0, resource)]);
}

/// Refuses set-id modes. In a bind workspace a set-id program would lie on the host, owned by the user who started the
/// sandbox, and every user of the host could run it.
fn set_id_modes(rules: &mut SyscallRules) {
    let changing = [(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (libc::SYS_fchmodat2, 2), (libc::SYS_mknodat, 2)];
    let opening = [(libc::SYS_openat, 2)];
    #[cfg(target_arch = "x86_64")]
    let (changing, opening) = (
        changing.into_iter().chain([(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)]),
        opening.into_iter().chain([(libc::SYS_open, 1)]),
    );
    let bits = [libc::S_ISUID, libc::S_ISGID];
    for (call, mode) in changing {
        for bit in bits {
            add(rules, call, REFUSE, [ArgumentCondition::has(mode, bit)]);
        }
    }
    // The mode is only meaningful when a file is made; otherwise the register can hold anything.
    let making = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY].map(libc::c_int::cast_unsigned);
    for (call, flags) in opening {
        for (flag, bit) in making.iter().flat_map(|flag| bits.iter().map(move |bit| (*flag, *bit))) {
            add(rules, call, REFUSE, [ArgumentCondition::has(flags, flag), ArgumentCondition::has(flags + 1, bit)]);
        }
    }
}

/// Refuses clone(2) with any flag that makes a namespace.
fn namespace_flags(rules: &mut SyscallRules) {
    for flag in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ] {
        add(rules, libc::SYS_clone, REFUSE, [ArgumentCondition::has(0, flag.cast_unsigned())]);
    }
}

/// Refuses socket(2) with a family, type or protocol that is not allowed. Of netlink, only the route protocol is allowed.
fn other_socket_families(rules: &mut SyscallRules) {
    let other = FAMILIES.map(|family| ArgumentCondition::is_not(0, family.cast_unsigned()));
    add(rules, libc::SYS_socket, NO_FAMILY, other);
    let netlink = ArgumentCondition::is(0, libc::AF_NETLINK.cast_unsigned());
    let not_route = ArgumentCondition::is_not(2, libc::NETLINK_ROUTE.cast_unsigned());
    add(rules, libc::SYS_socket, NO_FAMILY, [netlink, not_route]);
    for family in [libc::AF_INET, libc::AF_INET6] {
        let of_family = ArgumentCondition::is(0, family.cast_unsigned());
        let [any, tcp, udp] = PROTOCOLS.map(|protocol| ArgumentCondition::is_not(2, protocol.cast_unsigned()));
        add(rules, libc::SYS_socket, NO_PROTOCOL, [of_family, any, tcp, udp]);
        for kind in REFUSED_TYPES {
            let of_type = ArgumentCondition { mask: TYPE_MASK, ..ArgumentCondition::is(1, kind) };
            add(rules, libc::SYS_socket, NO_PROTOCOL, [of_family, of_type]);
        }
    }
}

/// Refuses huge pages: they are reserved for the whole machine, and the memory limit of a cgroup does not count them.
fn huge_pages(rules: &mut SyscallRules) {
    let calls = [
        (libc::SYS_mmap, 3, libc::MAP_HUGETLB.cast_unsigned()),
        (libc::SYS_memfd_create, 1, libc::MFD_HUGETLB),
        (libc::SYS_shmget, 2, libc::SHM_HUGETLB.cast_unsigned()),
    ];
    for (call, flags, bit) in calls {
        add(rules, call, REFUSE, [ArgumentCondition::has(flags, bit)]);
    }
}
