//! One attack as a test, and as the attacking process.

use std::sync::{Arc, OnceLock};

use libtest_mimic::{Failed, Trial};

use crate::attack::{Act, Attack, Control, Place, Verdict};
use crate::findings::{Findings, Outcome};
use crate::lead::Lead;
use crate::otherwise::{self, Otherwise};
use crate::raw;
use crate::stage::{Stage, VERDICT};

/// An attacking process that runs longer is ended by its alarm.
const LONGEST_SECS: u32 = 15;

/// Returns every attack as a test for every backend. A control runs once.
pub(crate) fn all(stages: &[Arc<Stage>], attacks: &[Attack], findings: &Arc<Findings>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for attack in attacks.iter().copied() {
        let control: Arc<OnceLock<Verdict>> = Arc::default();
        // The first backend is the jail, the reference for the others.
        let count = if attack.group.is_of_every_backend() { 1 } else { stages.len() };
        for (number, stage) in stages[..count].iter().enumerate() {
            let (stage, control, findings) = (Arc::clone(stage), Arc::clone(&control), Arc::clone(findings));
            let backend = stage.maker.name();
            let name = if number == 0 { attack.name.to_owned() } else { format!("{backend}::{}", attack.name) };
            let run = move || {
                let control = control.get_or_init(|| stage.carry_out(&attack, Place::Outside));
                let outcome = check(&stage, &attack, control)?;
                findings.add(backend, attack.name, outcome);
                Ok(())
            };
            trials.push(Trial::test(name, run).with_kind(attack.group.to_string()));
        }
    }
    trials
}

/// Fails unless the control succeeds and the attack is stopped, or ends as its exception says.
fn check(stage: &Stage, attack: &Attack, control: &Verdict) -> Result<Outcome, Failed> {
    if let Verdict::Blocked(reason) = control
        && !excused(attack, reason)
    {
        return Err(format!("the control did not succeed: {reason}").into());
    }
    let otherwise = otherwise::of(stage.maker.name(), attack.name);
    if let Some(Otherwise::Meaningless(why)) = otherwise {
        return Ok(Outcome::Meaningless(why));
    }
    let verdict = stage.carry_out(attack, Place::Inside);
    if std::env::var_os("VIV_SECURITY_SHOW").is_some() {
        println!("{} in {}: {control:?} / {verdict:?}", attack.name, stage.maker.name());
    }
    match (verdict, otherwise) {
        (Verdict::Blocked(_), None) => Ok(Outcome::Held),
        (Verdict::Succeeded(_), Some(Otherwise::NotHeld(why))) => Ok(Outcome::NotHeld(why)),
        (Verdict::Succeeded(what), _) => Err(format!("the sandbox did not stop the attack: {what}").into()),
        (Verdict::Blocked(reason), _) => {
            Err(format!("the attack is listed as an exception, but was stopped: {reason}").into())
        }
    }
}

/// Returns whether a control may fail for a reason outside the suite: the kernel's privilege check for ordinary users
/// (root's run shows the effect), or a missing kernel feature.
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

/// The attacking process: runs the attack and prints its verdict.
pub(crate) fn attack(arguments: impl Iterator<Item = String>) {
    act(arguments, |run, _| run);
}

/// The process of a probe.
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
        Act::Scenario { .. } => panic!("`{name}` is not a program"),
    }
}

fn say(verdict: &Verdict) {
    println!("{VERDICT}{}", serde_json::to_string(verdict).expect("verdict"));
}

/// Runs the attack in separate namespaces, as root there.
pub(crate) fn attack_in_namespaces(arguments: impl Iterator<Item = String>) {
    enter_namespaces().expect("namespaces");
    match raw::fork().expect("fork") {
        0 => attack(arguments),
        child => {
            let status = raw::wait(child).expect("wait");
            // A reboot inside a PID namespace ends its first process with a signal.
            if libc::WIFSIGNALED(status) && matches!(libc::WTERMSIG(status), libc::SIGHUP | libc::SIGINT) {
                say(&Verdict::Succeeded("rebooted its PID namespace".into()));
            }
        }
    }
}

/// Creates a network namespace with the privilege to configure it.
pub(crate) fn enter_network() -> std::io::Result<()> {
    enter(libc::CLONE_NEWNET)
}

/// Creates namespaces of these kinds, and becomes root in them.
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
