//! Which system calls exist inside.
//!
//! A deny-list on top of namespaces: what reaches outside a namespace (socket families), makes new ones,
//! looks into other processes, or is large and rarely needed (io_uring, bpf). Another architecture's calls
//! kill the caller: their numbers would walk around every rule here.

use std::io;

use crate::bpf::{Condition, Instruction, Rule, Rules, Verdict, assemble};
use crate::mark::Mark;
use crate::sys;

/// Calls that came last have one number on every architecture.
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;
const OPEN_TREE_ATTR: i64 = 467;

#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: i64 = 333;
#[cfg(not(target_arch = "x86_64"))]
const IO_PGETEVENTS: i64 = 292;

/// Asynchronous reads and writes of before io_uring: their number is limited for the whole machine, so one sandbox could
/// take all there are. As if the kernel had none, for programs fall back.
const MACHINE_WIDE: &[i64] = &[
    libc::SYS_io_setup,
    libc::SYS_io_destroy,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
];

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
    OPEN_TREE_ATTR,
    // They tell what lies where on the host, past the mount table that is shown.
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
const TERMINAL_INJECTION: [u32; 2] = [0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */];
/// AF_VSOCK and AF_ALG are not confined by a network namespace; nobody needs the other forty.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Of the internet's: whichever belongs to the kind of socket, TCP and UDP. Others are large, and hardly ever needed.
const PROTOCOLS: [i32; 3] = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];
/// Sequenced packets mean SCTP when no protocol is named; the kind of DCCP has a number of its own.
const OTHER_KINDS: [u32; 2] = [5, 6];
/// The bits of a kind of socket that are no flags.
const KIND: u32 = 0xf;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

const REFUSE: Verdict = Verdict::Errno(libc::EPERM);
const MISSING: Verdict = Verdict::Errno(libc::ENOSYS);
const NO_FAMILY: Verdict = Verdict::Errno(libc::EAFNOSUPPORT);
const NO_PROTOCOL: Verdict = Verdict::Errno(libc::EPROTONOSUPPORT);
const PRETEND: Verdict = Verdict::Errno(0);

/// The compiled filters.
#[derive(Debug)]
pub(crate) struct Filters {
    /// For everything inside.
    all: Vec<Instruction>,
    /// For commands: what init still does before it becomes one.
    commands: Vec<Instruction>,
}

impl Filters {
    /// Compiles them; once a process. Commands carry `mark`.
    pub(crate) fn compile(mark: Mark) -> Self {
        let compile = |rules: &Rules| assemble(ARCHITECTURE, rules, MISSING);
        let mut all = rules();
        if mark == Mark::OfAnother {
            // Some kernels that stand in for Linux know no such flag, and fail; programs do without the call.
            add(&mut all, libc::SYS_statx, MISSING, [Condition::has(2, libc::AT_NO_AUTOMOUNT.cast_unsigned())]);
        }
        Self { all: compile(&all), commands: compile(&mark_limits(mark)) }
    }

    /// Installs them for this process and everything it starts. There is no way back.
    pub(crate) fn install(&self) -> io::Result<()> {
        sys::install_filter(&self.all)
    }

    /// Takes from a process that is about to become a command what only init may.
    pub(crate) fn install_for_command(&self) -> io::Result<()> {
        sys::install_filter(&self.commands)
    }
}

/// The filter that everything inside is under, as the kernel takes it; for who wants to put another program under it.
pub fn filter_bytes() -> Vec<u8> {
    Filters::compile(Mark::OfTheHost).all.into_iter().flat_map(Instruction::bytes).collect()
}

/// Everything that is not as the kernel has it.
pub(crate) fn rules() -> Rules {
    let mut rules = Rules::new();
    for call in REFUSED.iter().chain(REFUSED_HERE) {
        add(&mut rules, *call, REFUSE, []);
    }
    for request in TERMINAL_INJECTION {
        add(&mut rules, libc::SYS_ioctl, REFUSE, [Condition::is(1, request)]);
    }
    namespace_flags(&mut rules);
    // A personality can switch off address randomisation or change what calls mean; the default stays.
    let personal = [Condition::is_not(0, 0), Condition::is_not(0, u32::MAX)];
    add(&mut rules, libc::SYS_personality, REFUSE, personal);
    // Calls whose arguments lie behind a pointer that no filter can read: as if the kernel had none, so that
    // programs fall back. clone3 makes namespaces, openat2 files that change who runs them.
    for call in [libc::SYS_clone3, libc::SYS_openat2].iter().chain(MACHINE_WIDE) {
        let call = *call;
        add(&mut rules, call, MISSING, []);
    }
    // Changing the limit of core dumps is told to have worked and does nothing: programs that forbid theirs
    // insist on it, and any other value than ours would hand their dumps to the host.
    changes_of_limit(&mut rules, libc::RLIMIT_CORE, PRETEND);
    set_id_modes(&mut rules);
    foreign_families(&mut rules);
    huge_pages(&mut rules);
    rules
}

fn add<const N: usize>(rules: &mut Rules, call: i64, verdict: Verdict, conditions: [Condition; N]) {
    // Numbers of calls are small and positive.
    let number = u32::try_from(call).unwrap_or(u32::MAX);
    rules.entry(number).or_default().push(Rule { conditions: conditions.into(), verdict });
}

/// The limit that says which command a process is of, and those of other processes, init's among them.
fn mark_limits(mark: Mark) -> Rules {
    let mut rules = Rules::new();
    changes_of_limit(&mut rules, mark.number(), REFUSE);
    add(&mut rules, libc::SYS_prlimit64, REFUSE, [Condition::is_not(0, 0)]);
    rules
}

/// Both calls that set `resource`; prlimit(2) without a new value only asks.
fn changes_of_limit(rules: &mut Rules, resource: libc::__rlimit_resource_t, verdict: Verdict) {
    for given in [Condition::is_not(2, 0), Condition::high_is_not(2, 0)] {
        add(rules, libc::SYS_prlimit64, verdict, [Condition::is(1, resource), given]);
    }
    add(rules, libc::SYS_setrlimit, verdict, [Condition::is(0, resource)]);
}

/// Modes that change who runs a program. In a bound workspace it would lie on the host, owned by whoever
/// started the sandbox, for everybody there to run.
fn set_id_modes(rules: &mut Rules) {
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
            add(rules, call, REFUSE, [Condition::has(mode, bit)]);
        }
    }
    // The mode counts only when a file is made: without one it is whatever the register held.
    let making = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY].map(libc::c_int::cast_unsigned);
    for (call, flags) in opening {
        for (flag, bit) in making.iter().flat_map(|flag| bits.iter().map(move |bit| (*flag, *bit))) {
            add(rules, call, REFUSE, [Condition::has(flags, flag), Condition::has(flags + 1, bit)]);
        }
    }
}

/// clone(2) with any flag that makes a namespace.
fn namespace_flags(rules: &mut Rules) {
    for flag in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ] {
        add(rules, libc::SYS_clone, REFUSE, [Condition::has(0, flag.cast_unsigned())]);
    }
}

/// socket(2) with a family that is not on the list, and netlink other than its route protocol.
fn foreign_families(rules: &mut Rules) {
    let other = FAMILIES.map(|family| Condition::is_not(0, family.cast_unsigned()));
    add(rules, libc::SYS_socket, NO_FAMILY, other);
    let netlink = Condition::is(0, libc::AF_NETLINK.cast_unsigned());
    let not_route = Condition::is_not(2, libc::NETLINK_ROUTE.cast_unsigned());
    add(rules, libc::SYS_socket, NO_FAMILY, [netlink, not_route]);
    for family in [libc::AF_INET, libc::AF_INET6] {
        let of = Condition::is(0, family.cast_unsigned());
        let [any, tcp, udp] = PROTOCOLS.map(|protocol| Condition::is_not(2, protocol.cast_unsigned()));
        add(rules, libc::SYS_socket, NO_PROTOCOL, [of, any, tcp, udp]);
        for kind in OTHER_KINDS {
            add(rules, libc::SYS_socket, NO_PROTOCOL, [of, Condition { mask: KIND, ..Condition::is(1, kind) }]);
        }
    }
}

/// Huge pages are set aside for the whole machine, and the memory limit of a group does not count them.
fn huge_pages(rules: &mut Rules) {
    let asking = [
        (libc::SYS_mmap, 3, libc::MAP_HUGETLB.cast_unsigned()),
        (libc::SYS_memfd_create, 1, libc::MFD_HUGETLB),
        (libc::SYS_shmget, 2, libc::SHM_HUGETLB.cast_unsigned()),
    ];
    for (call, flags, bit) in asking {
        add(rules, call, REFUSE, [Condition::has(flags, bit)]);
    }
}
