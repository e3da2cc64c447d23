//! The system call filters of a sandbox.
//!
//! The filter is an allow-list in addition to the namespaces: a call that `system_calls` does not list fails with ENOSYS.
//! Calls that programs expect to be refused fail with EPERM: they make namespaces, inspect other processes, or change the
//! machine. A call of another architecture kills the caller, because its number would bypass every rule.
//!
//! Not here: the list of allowed calls (`system_calls`).

use std::io;

use crate::bpf::{ArgumentCondition, BpfInstruction, FilterAction, SyscallRule, SyscallRules, assemble};
use crate::process_tag::ProcessTag;
use crate::sys;
use crate::system_calls::{ALLOWED, REFUSED};

/// Refused terminal requests. TIOCSTI and TIOCLINUX insert input into a terminal. TIOCSETD makes the kernel load the
/// driver of a line discipline.
const TERMINAL_REQUESTS: [u32; 3] =
    [0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */, 0x5423 /* TIOCSETD */];
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
    /// The filter of every process inside the sandbox.
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

/// Returns the rules of every process inside the sandbox.
pub(crate) fn rules() -> SyscallRules {
    let mut rules = SyscallRules::new(MISSING);
    for call in ALLOWED.iter().flat_map(|group| group.calls) {
        rules.list(number(call.number));
    }
    for call in REFUSED.iter().flat_map(|group| group.calls) {
        add(&mut rules, call.number, REFUSE, []);
    }
    for request in TERMINAL_REQUESTS {
        add(&mut rules, libc::SYS_ioctl, REFUSE, [ArgumentCondition::is(1, request)]);
    }
    namespace_flags(&mut rules);
    // A personality can switch off address randomisation or change the meaning of calls. Only the default is allowed.
    let not_default = [ArgumentCondition::is_not(0, 0), ArgumentCondition::is_not(0, u32::MAX)];
    add(&mut rules, libc::SYS_personality, REFUSE, not_default);
    // Setting the core dump limit reports success and does nothing. Some programs insist on setting it to zero, and with
    // any value but ours the host would handle their dumps.
    limit_changes(&mut rules, libc::RLIMIT_CORE, PRETEND);
    // `sync` would flush every file system of the host. Programs cannot tell that it did nothing.
    add(&mut rules, libc::SYS_sync, PRETEND, []);
    set_id_modes(&mut rules);
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        other_socket_families(&mut rules, call);
    }
    huge_pages(&mut rules);
    rules
}

fn number(call: i64) -> u32 {
    // System call numbers are small and positive.
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn add<const N: usize>(rules: &mut SyscallRules, call: i64, action: FilterAction, conditions: [ArgumentCondition; N]) {
    rules.list(number(call)).push(SyscallRule { conditions: conditions.into(), action });
}

/// Returns rules that refuse to change the tag of a process, and any limit of another process.
fn tag_rules(tag: ProcessTag) -> SyscallRules {
    let mut rules = SyscallRules::new(FilterAction::Allow);
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
    let set_id = |mode| ArgumentCondition::has_any(mode, libc::S_ISUID | libc::S_ISGID);
    for (call, mode) in changing {
        add(rules, call, REFUSE, [set_id(mode)]);
    }
    // The mode is only meaningful when a file is made; otherwise the register can hold anything.
    let making = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)).cast_unsigned();
    for (call, flags) in opening {
        add(rules, call, REFUSE, [ArgumentCondition::has_any(flags, making), set_id(flags + 1)]);
    }
}

/// Refuses clone(2) with any flag that makes a namespace.
fn namespace_flags(rules: &mut SyscallRules) {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    add(rules, libc::SYS_clone, REFUSE, [ArgumentCondition::has_any(0, flags.cast_unsigned())]);
}

/// Refuses `call`, which makes sockets, with a family, type or protocol that is not allowed. Of netlink, only the route
/// protocol is allowed.
fn other_socket_families(rules: &mut SyscallRules, call: i64) {
    let other = FAMILIES.map(|family| ArgumentCondition::is_not(0, family.cast_unsigned()));
    add(rules, call, NO_FAMILY, other);
    let netlink = ArgumentCondition::is(0, libc::AF_NETLINK.cast_unsigned());
    let not_route = ArgumentCondition::is_not(2, libc::NETLINK_ROUTE.cast_unsigned());
    add(rules, call, NO_FAMILY, [netlink, not_route]);
    for family in [libc::AF_INET, libc::AF_INET6] {
        let of_family = ArgumentCondition::is(0, family.cast_unsigned());
        let [any, tcp, udp] = PROTOCOLS.map(|protocol| ArgumentCondition::is_not(2, protocol.cast_unsigned()));
        add(rules, call, NO_PROTOCOL, [of_family, any, tcp, udp]);
        for kind in REFUSED_TYPES {
            let of_type = ArgumentCondition { mask: TYPE_MASK, ..ArgumentCondition::is(1, kind) };
            add(rules, call, NO_PROTOCOL, [of_family, of_type]);
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
