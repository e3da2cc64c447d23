//! Attacks on the egress proxy, in the suite's own internet.
//!
//! Each attack runs twice from inside a sandbox: through our proxy, and as a control through a careless proxy that makes
//! the mistake. An attack that bypasses the proxy has its control in the internet itself.

mod careless;
mod disguise;
mod hello;
mod https;
pub(crate) mod internet;
mod names;
mod neighbours;
mod opened;
mod ours;
pub(crate) mod placeholder;
mod say;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use sandbox::{Sandbox, SandboxPort};

use crate::attack::{Act, Attack, Careless, Group, Place, Verdict, Walls};
use crate::lead::Lead;
use crate::stage::{Stage, to_json};

use internet::{ARRIVED, READY};

/// The word that an attack smuggles out in a name or in a datagram.
const LOOT: &str = "loot";

/// The policy. Some allowed names resolve to forbidden addresses.
const POLICY: &str = "version: 1\nnet:\n  enabled: true\n  allowlist:\n    - files.example.com:80\n    - files.example.com:443\n    \
    - \"*.cdn.example.com:443\"\n    - inner.example.com:80\n    - meta.example.com:80\n    - loop.example.com:80\n    \
    - own.example.com:80\n    - mapped.example.com:80\n    - six.example.com:80\n    - rebind.example.com:80\n    \
    - \"*.openai.com:443\"\n    - \"GET paths.example.com:80/public/**\"\n    - \"GET opened.example.com/public/**\"\n    \
    - impostor.example.com\n    - keyed.example.com:80\n    - retry.example.com:443\n    - nat64.example.com:80\n    \
    - nat64-local.example.com:80\n    - 6to4.example.com:80\n    - teredo.example.com:80\n    \
    - compatible.example.com:80\n    - carrier.example.com:80\n    - zero.example.com:80\n    \
    - wire.example.com:80\n    - mixed.example.com:80\n  intercept: [opened.example.com, impostor.example.com]\n  \
    inject: [\"keyed.example.com:80 X-Key={key}\"]\n";

pub(crate) fn attacks() -> Vec<Attack> {
    let all = [say::ATTACKS, disguise::ATTACKS, neighbours::ATTACKS, opened::ATTACKS, names::ATTACKS].concat();
    let controlled = |name: &str| match name {
        // An attack that bypasses the proxy needs no careless proxy.
        _ if say::DIRECT.contains(&name) => Careless::NoProxy,
        _ if names::ATTACKS.iter().any(|(known, ..)| *known == name) => Careless::Names,
        _ => Careless::Proxy,
    };
    let attack = |(name, what, run): (&'static str, &'static str, Run)| Attack {
        group: Group::Proxy,
        name,
        what,
        act: Act::Proxied { run, control: controlled(name) },
    };
    all.into_iter().map(attack).collect()
}

/// Runs one attack, and returns the verdict of the host.
pub(crate) fn carry_out(stage: &Stage, name: &str, control: Careless, place: Place) -> Verdict {
    if control == Careless::Names {
        return names::carry_out(stage, name, place);
    }
    let scene = stage.scene();
    if place == Place::Outside && control == Careless::NoProxy {
        let lead = to_json(&scene.lead(Place::Outside));
        let child = Command::new(&stage.program)
            .args(["__internet", "direct", &stage.secret, "__attack", name, &lead])
            .stdin(Stdio::null())
            .output()
            .expect("control");
        return judge(stage, &String::from_utf8_lossy(&child.stdout), "");
    }
    let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let mode = if place == Place::Inside { "ours" } else { "careless" };
    let lead = to_json(&scene.lead(Place::Inside));
    let run = || stage.exec(&*sandbox, &["__attack", name, &lead]).expect("run");
    let (result, arrived) = before_the_internet(stage, &*sandbox, mode, POLICY, run);
    judge(stage, &String::from_utf8_lossy(&[result.stdout, result.stderr].concat()), &arrived)
}

/// Runs a command in `sandbox` while the internet is behind its proxy, and ends both; returns the output of the command
/// and the arrived data.
fn before_the_internet<T>(
    stage: &Stage,
    sandbox: &dyn Sandbox,
    mode: &str,
    policy: &str,
    work: impl FnOnce() -> T,
) -> (T, String) {
    let listener = sandbox.take_listener(SandboxPort::Egress).expect("listener");
    let mut internet = Command::new(&stage.program)
        .args(["__internet", mode, &stage.secret, policy])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        .stdout(Stdio::piped())
        .spawn()
        .expect("internet");
    let mut told = BufReader::new(internet.stdout.take().expect("stdout"));
    let mut line = String::new();
    told.read_line(&mut line).expect("a word");
    assert_eq!(line.trim(), READY, "the internet did not come up");
    let done = work();
    stage.destroy(sandbox);
    internet.kill().expect("kill");
    internet.wait().expect("wait");
    let mut arrived = String::new();
    told.read_to_string(&mut arrived).expect("what arrived");
    (done, arrived)
}

/// Returns success when the secret came out, the smuggled word arrived, or the attacker observed success itself.
fn judge(stage: &Stage, output: &str, arrived: &str) -> Verdict {
    let lines = arrived.lines().chain(output.lines());
    if let Some(line) = lines.filter_map(|line| line.strip_prefix(ARRIVED)).find(|line| line.contains(LOOT)) {
        return Verdict::Succeeded(format!("arrived: {line}"));
    }
    if output.contains(&stage.secret) {
        return Verdict::Succeeded("the secret came out".into());
    }
    crate::stage::verdict("proxy", output.as_bytes(), None, None)
}

/// The function of an attack.
type Run = fn(&Lead) -> Verdict;
