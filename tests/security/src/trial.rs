//! One attack as a test, and as the process that carries it out.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::attack::{Act, Attack, Control, Place, Verdict};
use crate::lead::Lead;
use crate::raw;
use crate::stage::{Stage, VERDICT};

/// A process that has not come to an end by then is stopped by its alarm.
const LONGEST_SECS: u32 = 15;

/// Every attack as a test.
pub(crate) fn all(stage: &Arc<Stage>, attacks: Vec<Attack>) -> Vec<Trial> {
    let trial = |attack: Attack| {
        let stage = Arc::clone(stage);
        Trial::test(attack.name, move || check(&stage, &attack)).with_kind(attack.group.to_string())
    };
    attacks.into_iter().map(trial).collect()
}

/// The control must succeed, the attack must not.
fn check(stage: &Stage, attack: &Attack) -> Result<(), Failed> {
    let control = stage.carry_out(attack, Place::Outside);
    if let Verdict::Blocked(reason) = &control
        && !excused(attack, reason)
    {
        return Err(format!("the control did not succeed: {reason}").into());
    }
    match stage.carry_out(attack, Place::Inside) {
        Verdict::Blocked(reason) => {
            if std::env::var_os("VIV_SECURITY_SHOW").is_some() {
                println!("{}: {control:?} / blocked: {reason}", attack.name);
            }
            Ok(())
        }
        Verdict::Succeeded(what) => Err(format!("the sandbox did not stop it: {what}").into()),
    }
}

/// Whether a control may be stopped for a reason that is not the sandbox's: without root by the kernel's own check
/// of privileges (the call was well made, and root's run shows the rest), or by a kernel that has no such thing.
fn excused(attack: &Attack, reason: &str) -> bool {
    let Act::Program { control, .. } = attack.act else { return false };
    let refused = reason.contains("(os error 1)") || reason.contains("(os error 13)");
    let absent = reason.contains("(os error 38)");
    match control {
        Control::Root => refused && !rustix::process::geteuid().is_root(),
        Control::RootWhere(_) => absent || (refused && !rustix::process::geteuid().is_root()),
        _ => false,
    }
}

/// The process of an attack: carries it out and says what came of it.
pub(crate) fn attack(arguments: impl Iterator<Item = String>) {
    act(arguments, |run, _| run);
}

/// The process of an attack's probe.
pub(crate) fn probe(arguments: impl Iterator<Item = String>) {
    act(arguments, |run, control| match control {
        Control::Probe(probe, _) | Control::ProbeOnly(probe, _) => probe,
        _ => run,
    });
}

type Run = fn(&Lead) -> Verdict;

fn act(mut arguments: impl Iterator<Item = String>, choose: impl Fn(Run, Control) -> Run) {
    let (name, lead) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    raw::alarm(LONGEST_SECS);
    let lead: Lead = serde_json::from_str(&lead).expect("lead");
    let found = crate::attacks().into_iter().find(|attack| attack.name == name).expect("attack");
    match found.act {
        Act::Program { run, control, .. } => say(&choose(run, control)(&lead)),
        Act::Proxied { run, .. } => say(&run(&lead)),
        Act::Scenario { .. } => panic!("`{name}` is no program"),
    }
}

fn say(verdict: &Verdict) {
    println!("{VERDICT}{}", serde_json::to_string(verdict).expect("verdict"));
}

/// The same in namespaces of its own, as root of them.
pub(crate) fn attack_in_namespaces(arguments: impl Iterator<Item = String>) {
    enter_namespaces().expect("namespaces");
    match raw::fork().expect("fork") {
        0 => attack(arguments),
        child => {
            let status = raw::wait(child).expect("wait");
            // The first process of a PID namespace that was rebooted ends by the signal that says so.
            if libc::WIFSIGNALED(status) && matches!(libc::WTERMSIG(status), libc::SIGHUP | libc::SIGINT) {
                say(&Verdict::Succeeded("rebooted its PID namespace".into()));
            }
        }
    }
}

/// A network of one's own, and the rights to set it up.
pub(crate) fn enter_network() -> std::io::Result<()> {
    enter(libc::CLONE_NEWNET)
}

/// Namespaces of these kinds, as root of them.
fn enter(kinds: i32) -> std::io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    raw::unshare(libc::CLONE_NEWUSER | kinds)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

fn enter_namespaces() -> std::io::Result<()> {
    let own = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWPID | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
    enter(own)?;
    let private = rustix::mount::MountPropagationFlags::REC | rustix::mount::MountPropagationFlags::PRIVATE;
    Ok(rustix::mount::mount_change("/", private)?)
}
