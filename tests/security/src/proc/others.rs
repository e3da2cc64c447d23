//! Inspecting and disturbing other processes.

use std::fs;

use crate::attack::{Attack, Control, Group::Proc, Verdict, program};
use crate::lead::Lead;
use crate::raw::{self, Arg};

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Proc, "proc_ptrace", "trace another process", ptrace),
        program(Proc, "proc_ptrace_me", "be traced, to see system calls before they are filtered", ptrace_me),
        program(Proc, "proc_vm_read", "read another process's memory", vm_read),
        program(Proc, "proc_vm_write", "write it", vm_write),
        program(Proc, "proc_pidfd_getfd", "take a descriptor from another process", pidfd_getfd),
        program(Proc, "proc_kcmp", "compare kernel objects of other processes", kcmp),
        program(Proc, "proc_oom_score", "have others killed first when memory is short", oom_score),
        program(Proc, "proc_oom_score_own", "never be killed when memory is short", oom_score_own).shown(
            Control::Probe(
                oom_raise,
                "it takes CAP_SYS_RESOURCE, which even root may lack; the other direction is free",
            ),
        ),
        program(Proc, "proc_nice", "run before everybody else", nice).shown(Control::Root),
        program(Proc, "proc_affinity", "bind a host process to one processor", affinity),
        program(Proc, "proc_limits_of_others", "change limits of another process", limits_of_others),
    ]
}

fn each(lead: &Lead, attempt: impl Fn(i32) -> Verdict) -> Verdict {
    Verdict::any(lead.processes().into_iter().map(attempt))
}

fn ptrace(lead: &Lead) -> Verdict {
    each(lead, |pid| Verdict::of("attach", raw::ptrace_attach(pid)))
}

fn ptrace_me(_: &Lead) -> Verdict {
    let child = raw::fork().expect("fork");
    if child == 0 {
        let traced = raw::call(libc::SYS_ptrace, &mut [Arg::Number(0)]);
        raw::exit(traced.map_or_else(|error| error.raw_os_error().unwrap_or(1), |_| 0));
    }
    let status = raw::wait(child).expect("wait");
    Verdict::when(status == 0, format!("status {status}"))
}

fn vm_read(lead: &Lead) -> Verdict {
    let (address, length) = lead.victim_memory;
    each(lead, |pid| {
        let mut bytes = vec![0; length];
        let read = raw::process_vm_read(pid, address, &mut bytes);
        Verdict::of(&String::from_utf8_lossy(&bytes), read)
    })
}

fn vm_write(lead: &Lead) -> Verdict {
    each(lead, |pid| Verdict::of("write", raw::process_vm_write(pid, lead.victim_memory.0, b"x")))
}

fn pidfd_getfd(lead: &Lead) -> Verdict {
    each(lead, |pid| {
        let taken = super::shape::pidfd(pid)
            .and_then(|fd| raw::call(libc::SYS_pidfd_getfd, &mut [Arg::Number(fd), Arg::Number(0), Arg::Number(0)]));
        Verdict::of("pidfd_getfd", taken)
    })
}

fn kcmp(lead: &Lead) -> Verdict {
    let own = i64::from(std::process::id());
    each(lead, |pid| {
        let arguments = [own, pid.into(), 0, 0, 0].map(Arg::Number);
        Verdict::of("kcmp", raw::call(libc::SYS_kcmp, &mut { arguments }))
    })
}

fn oom_score(lead: &Lead) -> Verdict {
    let pid = if lead.inside { 1 } else { lead.victim };
    Verdict::of("write", fs::write(format!("/proc/{pid}/oom_score_adj"), "1000"))
}

fn oom_score_own(_: &Lead) -> Verdict {
    Verdict::of("write", fs::write("/proc/self/oom_score_adj", "-1000"))
}

fn oom_raise(_: &Lead) -> Verdict {
    Verdict::of("write", fs::write("/proc/self/oom_score_adj", "900"))
}

fn nice(_: &Lead) -> Verdict {
    let own = [libc::PRIO_PROCESS.into(), 0, -10].map(Arg::Number);
    Verdict::of("setpriority", raw::call(libc::SYS_setpriority, &mut { own }))
}

/// Targets a host process; the sandbox's own init does not count.
fn affinity(lead: &Lead) -> Verdict {
    let pid = lead.victim;
    let first = 1_u64.to_ne_bytes();
    let mut arguments = [Arg::Number(pid.into()), Arg::Number(8), Arg::Bytes(&first)];
    Verdict::of("sched_setaffinity", raw::call(libc::SYS_sched_setaffinity, &mut arguments))
}

fn limits_of_others(lead: &Lead) -> Verdict {
    let pid = if lead.inside { 1 } else { lead.victim };
    let limit: Vec<u8> = [64_u64, 64].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let nofile = i64::from(libc::RLIMIT_NOFILE);
    let mut arguments = [Arg::Number(pid.into()), Arg::Number(nofile), Arg::Bytes(&limit), Arg::Number(0)];
    Verdict::of("prlimit", raw::call(libc::SYS_prlimit64, &mut arguments))
}
