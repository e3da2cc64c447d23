//! Survivors: processes that try to outlive their command or sandbox.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt};

use crate::attack::{Attack, Group::Proc, Place, Verdict, Walls, program, scenario};
use crate::lead::Lead;
use crate::raw;
use crate::stage::{Stage, command};

pub(crate) fn attacks() -> Vec<Attack> {
    const CONTROL: &str = "killing a plain process leaves it";
    vec![
        scenario(Proc, "proc_daemon", "outlive the sandbox as a daemon", CONTROL, |stage, place| {
            outlive(stage, place, "proc_daemonize", End::Sandbox)
        }),
        scenario(
            Proc,
            "proc_daemon_command",
            "outlive the end of one's command as a daemon",
            CONTROL,
            |stage, place| outlive(stage, place, "proc_daemonize", End::Command),
        ),
        scenario(Proc, "proc_group", "outlive it in another process group", CONTROL, |stage, place| {
            outlive(stage, place, "proc_regroup", End::Command)
        }),
        scenario(Proc, "proc_deaf", "outlive it by being deaf to signals", CONTROL, |stage, place| {
            outlive(stage, place, "proc_deafen", End::Sandbox)
        }),
        scenario(Proc, "proc_fork_race", "outlive it by forking faster than one is killed", CONTROL, |stage, place| {
            outlive(stage, place, "proc_flee", End::Command)
        }),
        program(Proc, "proc_kill_init", "kill init", kill_init),
        program(Proc, "proc_stop_init", "stop init, so that it cannot kill processes", stop_init),
    ]
}

/// The process or sandbox that the host ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Sandbox,
    Command,
}

/// The programs of the scenarios. Each prints the id of the surviving process, and ends or waits.
pub(crate) fn survive(name: &str) {
    match name {
        "proc_daemonize" => descend(true, || {}),
        "proc_regroup" => descend(false, || rustix::process::setpgid(None, None).expect("group")),
        "proc_deafen" => descend(true, || (1..32).for_each(raw::ignore)),
        "proc_flee" => flee(),
        other => panic!("unknown survivor `{other}`"),
    }
}

/// Starts a surviving grandchild; with `orphaned`, its parent ends before the host acts.
fn descend(orphaned: bool, prepare: impl Fn()) {
    let child = raw::fork().expect("fork");
    if child == 0 {
        if orphaned {
            rustix::process::setsid().expect("session");
            if raw::fork().expect("fork") != 0 {
                raw::exit(0);
            }
        }
        prepare();
        live_on();
    }
    if orphaned {
        raw::wait(child).expect("wait");
    }
    testkit::hang(Duration::from_secs(60));
}

/// Prints the own id, and waits for a minute with the output open.
fn live_on() -> ! {
    println!("alive {}", std::process::id());
    testkit::hang(Duration::from_secs(60));
    raw::exit(0)
}

/// For half a second, each process starts the next and ends; the last one survives. The command itself stays.
fn flee() {
    if raw::fork().expect("fork") != 0 {
        testkit::hang(Duration::from_secs(60));
        return;
    }
    let over = std::time::Instant::now() + Duration::from_millis(500);
    let mut generation = 0;
    while std::time::Instant::now() < over {
        match raw::fork() {
            Ok(0) => {
                let _ = rustix::process::setsid();
                generation += 1;
                // The chain runs; now the host can end it.
                if generation == 10 {
                    println!("alive {}", std::process::id());
                }
            }
            Ok(_) => raw::exit(0),
            // The process limit is reached: try again.
            Err(_) => {}
        }
    }
    live_on();
}

fn outlive(stage: &Stage, place: Place, program: &str, end: End) -> Verdict {
    match place {
        Place::Outside => outlive_outside(stage, program),
        Place::Inside => stage.runtime.block_on(outlive_inside(stage, program, end)),
    }
}

/// Kills only the started process, as a host without a sandbox would, and returns the survivors.
fn outlive_outside(stage: &Stage, program: &str) -> Verdict {
    let mut process =
        Command::new(&stage.program).args(["__survive", program]).stdout(Stdio::piped()).spawn().expect("spawn");
    let mut output = BufReader::new(process.stdout.take().expect("stdout"));
    let mut line = String::new();
    output.read_line(&mut line).expect("line");
    process.kill().expect("kill");
    process.wait().expect("wait");
    if program == "proc_flee" {
        // The last survivor prints its id.
        line.clear();
        output.read_line(&mut line).expect("line");
    }
    let pid: i32 = line.trim().rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("a number");
    let target = rustix::process::Pid::from_raw(pid).expect("a number");
    let alive = rustix::process::kill_process(target, rustix::process::Signal::KILL).is_ok();
    output.read_to_end(&mut Vec::new()).expect("end");
    Verdict::when(alive, format!("{line:?} after the end"))
}

/// Returns whether the output has ended. A survivor would keep it open.
async fn outlive_inside(stage: &Stage, program: &str, end: End) -> Verdict {
    let scene = stage.scene();
    let sandbox = stage.make(Walls::Usual, &scene.workspace()).await.expect("sandbox");
    let process = sandbox.exec(command(&["__survive", program])).await.expect("exec");
    let mut output = tokio::io::BufReader::new(process.stdout);
    let mut line = String::new();
    output.read_line(&mut line).await.expect("line");
    match end {
        End::Sandbox => sandbox.destroy().await.expect("destroy"),
        End::Command => (process.kill)(),
    }
    let ended = tokio::time::timeout(Duration::from_secs(2), output.read_to_end(&mut Vec::new())).await.is_ok();
    sandbox.destroy().await.expect("destroy");
    Verdict::when(!ended, format!("{line:?} was ended"))
}

/// Returns the target process: inside the init, outside the victim.
fn target(lead: &Lead) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(if lead.inside { 1 } else { lead.victim }).expect("a number")
}

fn kill_init(lead: &Lead) -> Verdict {
    let target = target(lead);
    let killed = rustix::process::kill_process(target, rustix::process::Signal::KILL);
    // The kernel accepts the call and protects init. Otherwise this process would end with init, without a verdict, and
    // the test would fail.
    testkit::pause(Duration::from_millis(50));
    Verdict::when(!lead.inside && killed.is_ok(), format!("{killed:?}, and still here"))
}

fn stop_init(lead: &Lead) -> Verdict {
    let target = target(lead);
    let stopped = rustix::process::kill_process(target, rustix::process::Signal::STOP);
    testkit::pause(Duration::from_millis(50));
    let status = std::fs::read_to_string(format!("/proc/{}/status", target.as_raw_nonzero())).unwrap_or_default();
    let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or_default().to_owned();
    Verdict::when(state.contains("stopped"), format!("{stopped:?}, {state}"))
}
