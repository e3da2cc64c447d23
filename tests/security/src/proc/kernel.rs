//! Large, old or shared parts of the kernel that were used for escapes before.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};
use rustix::pty::OpenptFlags;

use crate::attack::{Attack, Control, Group::Proc, Verdict, program};
use crate::lead::Lead;
use crate::raw::{self, Arg};

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Proc, "proc_io_uring", "make system calls that no filter sees: io_uring", io_uring),
        program(Proc, "proc_int_80", "make them by the 32-bit gate", int_80),
        program(Proc, "proc_int_80_socket", "open a forbidden socket family by it", int_80_socket),
        program(Proc, "proc_x32", "make them by the x32 numbers", x32)
            .shown(Control::Probe(x32_probe, "few kernels have x32; the same call without its bit works")),
        program(Proc, "proc_tiocsti", "type into a terminal: TIOCSTI", tiocsti).shown(Control::Probe(
            terminal_probe,
            "kernels since 6.2 may refuse it to all but root; the terminal it needs is there",
        )),
        program(Proc, "proc_tiocsti_high_bits", "the same behind high bits of the request", tiocsti_high_bits).shown(
            Control::Probe(terminal_probe, "kernels since 6.2 may refuse it to all but root; the terminal is there"),
        ),
        program(Proc, "proc_tioclinux", "paste into a console: TIOCLINUX", tioclinux)
            .shown(Control::Probe(terminal_probe, "it takes a real console; the terminal it is tried on is there")),
        program(Proc, "proc_aio", "take the asynchronous requests of the whole machine: io_setup", aio),
        program(Proc, "proc_huge_pages", "take huge pages, which no memory limit counts", huge_pages),
        program(Proc, "proc_inotify", "take the inotify instances of who started the sandbox", inotify),
        program(Proc, "proc_mount_lists", "ask for mounts past the table: listmount, statmount", mount_lists)
            .shown(Control::Probe(table_probe, "kernels before 6.8 have neither; the table itself can be read")),
        program(Proc, "proc_keyctl", "reach keys of the session", keyctl),
        program(Proc, "proc_add_key", "leave a key with the user", add_key),
        program(Proc, "proc_bpf", "load a program into the kernel: bpf", bpf).shown(Control::Root),
        program(Proc, "proc_perf", "watch the kernel: perf_event_open", perf),
        program(Proc, "proc_userfaultfd", "hold the kernel up at will: userfaultfd", userfaultfd),
        program(Proc, "proc_personality", "switch off address randomisation", personality),
        program(Proc, "proc_core_dump", "have the host handle a core dump", core_dump),
        program(
            Proc,
            "proc_core_handler",
            "choose the limit at which a host's handler is given the dump",
            core_handler,
        ),
        program(Proc, "proc_fanotify", "watch or hold up file accesses: fanotify", fanotify).shown(Control::Root),
        program(Proc, "proc_ldt", "change the descriptor table of the processor", ldt)
            .shown(Control::Probe(ldt_probe, "a kernel may have no modify_ldt; a neighbour of it answers")),
        program(Proc, "proc_ports", "talk to hardware: ioperm and iopl", ports)
            .shown(Control::RootWhere("the kernel has port access")),
    ]
}

fn io_uring(_: &Lead) -> Verdict {
    let mut parameters = [0; 120];
    let mut arguments = [Arg::Number(4), Arg::Buffer(&mut parameters)];
    Verdict::of("io_uring_setup", raw::call(libc::SYS_io_uring_setup, &mut arguments).map(raw::own))
}

fn aio(_: &Lead) -> Verdict {
    let mut context = [0; 8];
    Verdict::of("io_setup", raw::call(libc::SYS_io_setup, &mut [Arg::Number(64), Arg::Buffer(&mut context)]))
}

/// Without a reservation no huge page needs to be free; access is enough.
fn huge_pages(_: &Lead) -> Verdict {
    const HUGE_FILE: i64 = 4;
    const HUGE_SEGMENT: i64 = 0o4000;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_NORESERVE;
    let mut mapped = [0, 2 << 20, i64::from(libc::PROT_NONE), flags.into(), -1, 0].map(Arg::Number);
    let name = raw::text("huge");
    let segment = [0, 2 << 20, HUGE_SEGMENT | i64::from(libc::IPC_CREAT) | 0o600].map(Arg::Number);
    Verdict::any([
        Verdict::of("mmap", raw::call(libc::SYS_mmap, &mut mapped)),
        Verdict::of(
            "memfd_create",
            raw::call(libc::SYS_memfd_create, &mut [Arg::Text(&name), Arg::Number(HUGE_FILE)]).map(raw::own),
        ),
        Verdict::of("shmget", raw::call(libc::SYS_shmget, &mut { segment })),
    ])
}

/// More than half of a user's limit.
fn inotify(_: &Lead) -> Verdict {
    let number = |path: &str| fs::read_to_string(path).expect(path).trim().parse::<usize>().expect("a number");
    let half = number("/proc/sys/fs/inotify/max_user_instances") / 2;
    if half > crate::stage::NOFILE - 32 {
        // More than one process can hold; the granted number shows the limit.
        let granted = number("/proc/sys/user/max_inotify_instances");
        return Verdict::when(granted > half, format!("{granted} would be granted, of twice {half}"));
    }
    let taken: Vec<_> = (0..=half)
        .map_while(|_| raw::call(libc::SYS_inotify_init1, &mut [Arg::Number(0)]).ok().map(raw::own))
        .collect();
    Verdict::when(taken.len() > half, format!("{} of twice {half}", taken.len()))
}

fn mount_lists(_: &Lead) -> Verdict {
    const STATMOUNT: i64 = 457;
    const LISTMOUNT: i64 = 458;
    // struct mnt_id_req: size, reserved, root mount, requested fields.
    let mut request: Vec<u8> = [24_u32, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    request.extend([u64::MAX, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()));
    let mut found = [0; 512];
    let mut listing = [Arg::Bytes(&request), Arg::Buffer(&mut found), Arg::Number(8), Arg::Number(0)];
    let listed = raw::call(LISTMOUNT, &mut listing);
    let mut asking = [Arg::Bytes(&request), Arg::Buffer(&mut found), Arg::Number(512), Arg::Number(0)];
    Verdict::any([Verdict::of("listmount", listed), Verdict::of("statmount", raw::call(STATMOUNT, &mut asking))])
}

fn table_probe(_: &Lead) -> Verdict {
    Verdict::of("mountinfo", fs::read_to_string("/proc/self/mountinfo"))
}

/// getpid has the number 20 there.
#[cfg(target_arch = "x86_64")]
fn int_80(_: &Lead) -> Verdict {
    let answer = raw::call_32_bit(20, [0; 3]);
    Verdict::when(answer == i64::from(std::process::id()), format!("getpid said {answer}"))
}

/// socket has the number 359 there: AF_VSOCK, else a family that a kernel without it has.
#[cfg(target_arch = "x86_64")]
fn int_80_socket(_: &Lead) -> Verdict {
    let families = [libc::AF_VSOCK, libc::AF_ALG, libc::AF_PACKET, libc::AF_UNIX];
    let opened = families.map(|family| raw::call_32_bit(359, [family.cast_unsigned(), 1, 0]));
    Verdict::when(opened.iter().any(|fd| *fd >= 0), format!("{opened:?}"))
}

/// Marks a number as one of the x32 table.
const X32: i64 = 0x4000_0000;

fn x32(_: &Lead) -> Verdict {
    let tries = [libc::SYS_getpid, libc::SYS_unshare]
        .map(|call| Verdict::of("x32", raw::call(call | X32, &mut [Arg::Number(0)])));
    Verdict::any(tries)
}

fn x32_probe(_: &Lead) -> Verdict {
    Verdict::of("getpid", raw::call(libc::SYS_getpid, &mut [Arg::Number(0)]))
}

/// Creates a terminal and makes it the controlling one.
fn terminal() -> io::Result<std::os::fd::OwnedFd> {
    // A session leader cannot start a session; its child can.
    let controller = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    rustix::pty::grantpt(&controller)?;
    rustix::pty::unlockpt(&controller)?;
    let name = rustix::pty::ptsname(&controller, Vec::new())?;
    let user = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
    let _ = rustix::process::setsid();
    raw::ioctl(&user, libc::TIOCSCTTY, Arg::Number(0))?;
    // The terminal exists as long as its other end is open.
    std::mem::forget(controller);
    Ok(user)
}

/// Creates a terminal and keeps it open.
pub(crate) fn take_terminal() -> io::Result<()> {
    terminal().map(std::mem::forget)
}

fn on_terminal(request: u64) -> Verdict {
    let byte = [b'x'; 8];
    Verdict::of("ioctl", terminal().and_then(|terminal| raw::ioctl(&terminal, request, Arg::Bytes(&byte))))
}

fn tiocsti(_: &Lead) -> Verdict {
    on_terminal(libc::TIOCSTI)
}

fn tiocsti_high_bits(_: &Lead) -> Verdict {
    on_terminal(libc::TIOCSTI | (1 << 32))
}

fn tioclinux(_: &Lead) -> Verdict {
    on_terminal(libc::TIOCLINUX)
}

fn terminal_probe(_: &Lead) -> Verdict {
    Verdict::of("terminal", terminal())
}

fn keyctl(_: &Lead) -> Verdict {
    // KEYCTL_GET_KEYRING_ID of the user's keyring; creates it if missing.
    let mut arguments = [Arg::Number(0), Arg::Number(-4), Arg::Number(1)];
    Verdict::of("keyctl", raw::call(libc::SYS_keyctl, &mut arguments))
}

fn add_key(_: &Lead) -> Verdict {
    // Into the keyring of this process, so that the control leaves nothing.
    let mut arguments =
        [Arg::Text(c"user"), Arg::Text(c"viv:planted"), Arg::Bytes(b"x"), Arg::Number(1), Arg::Number(-2)];
    Verdict::of("add_key", raw::call(libc::SYS_add_key, &mut arguments))
}

fn bpf(_: &Lead) -> Verdict {
    // BPF_MAP_CREATE of an array: type, key, value, entries.
    let attributes: Vec<u8> = [2_u32, 4, 4, 1].iter().flat_map(|word| word.to_ne_bytes()).chain([0; 48]).collect();
    let mut arguments = [Arg::Number(0), Arg::Bytes(&attributes), Arg::Number(64)];
    Verdict::of("bpf", raw::call(libc::SYS_bpf, &mut arguments).map(raw::own))
}

fn perf(_: &Lead) -> Verdict {
    // PERF_TYPE_SOFTWARE, size 128, PERF_COUNT_SW_TASK_CLOCK; of this process, without the kernel's part.
    let mut attributes = vec![0; 128];
    attributes[..4].copy_from_slice(&1_u32.to_ne_bytes());
    attributes[4..8].copy_from_slice(&128_u32.to_ne_bytes());
    attributes[8..16].copy_from_slice(&1_u64.to_ne_bytes());
    attributes[40..48].copy_from_slice(&(1_u64 << 5).to_ne_bytes());
    let mut arguments = [Arg::Bytes(&attributes), Arg::Number(0), Arg::Number(-1), Arg::Number(-1), Arg::Number(0)];
    Verdict::of("perf_event_open", raw::call(libc::SYS_perf_event_open, &mut arguments).map(raw::own))
}

fn userfaultfd(_: &Lead) -> Verdict {
    // UFFD_USER_MODE_ONLY, which needs no privilege.
    Verdict::of("userfaultfd", raw::call(libc::SYS_userfaultfd, &mut [Arg::Number(1)]).map(raw::own))
}

fn personality(_: &Lead) -> Verdict {
    let flags = [libc::ADDR_NO_RANDOMIZE, libc::READ_IMPLIES_EXEC, 0x0008 /* PER_LINUX32 */];
    Verdict::any(
        flags.map(|flag| Verdict::of("personality", raw::call(libc::SYS_personality, &mut [Arg::Number(flag.into())]))),
    )
}

/// Crashes with the highest core limit, then with none: a handler gets both.
fn core_dump(lead: &Lead) -> Verdict {
    let limit = rustix::process::getrlimit(Resource::Core);
    let highest = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let lowest = Rlimit { current: Some(0), maximum: limit.maximum };
    std::env::set_current_dir(lead.scratch("")).expect("directory");
    Verdict::any([highest, lowest].map(|limit| {
        let _ = rustix::process::setrlimit(Resource::Core, limit);
        let child = raw::fork().expect("fork");
        if child == 0 {
            std::process::abort();
        }
        let status = std::process::ExitStatus::from_raw(raw::wait(child).expect("wait"));
        Verdict::when(status.core_dumped(), format!("{status:?}"))
    }))
}

/// A handler gets the dumps of every process except those with a limit of 1.
fn core_handler(_: &Lead) -> Verdict {
    let set = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let limit = rustix::process::getrlimit(Resource::Core).current;
    Verdict::when(limit != Some(1), format!("{set:?}, {limit:?}"))
}

fn fanotify(_: &Lead) -> Verdict {
    // FAN_CLASS_CONTENT: can delay file accesses.
    let mut arguments = [Arg::Number(4), Arg::Number(0)];
    Verdict::of("fanotify_init", raw::call(libc::SYS_fanotify_init, &mut arguments).map(raw::own))
}

fn ldt(_: &Lead) -> Verdict {
    let mut table = [0; 64];
    let mut arguments = [Arg::Number(0), Arg::Buffer(&mut table), Arg::Number(64)];
    Verdict::of("modify_ldt", raw::call(libc::SYS_modify_ldt, &mut arguments))
}

fn ldt_probe(_: &Lead) -> Verdict {
    // ARCH_GET_FS.
    let mut base = [0; 8];
    Verdict::of("arch_prctl", raw::call(libc::SYS_arch_prctl, &mut [Arg::Number(0x1003), Arg::Buffer(&mut base)]))
}

fn ports(_: &Lead) -> Verdict {
    let one = [0x80, 1, 1].map(Arg::Number);
    Verdict::any([
        Verdict::of("ioperm", raw::call(libc::SYS_ioperm, &mut { one })),
        Verdict::of("iopl", raw::call(libc::SYS_iopl, &mut [Arg::Number(3)])),
        Verdict::of("/dev/port", fs::File::open("/dev/port")),
    ])
}
