//! The record of an agent: a tool that the agent started must not write it.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use sandbox::{ExecSpec, StreamKind};

use crate::attack::{Attack, Group::Review, Place, Verdict, Walls, program, scenario};
use crate::lead::Lead;
use crate::raw;
use crate::stage::{Stage, command};

// A tool redirects its own streams: some shells start a command with the streams already redirected in the shell itself.
const CONTROL: &str = "with pipes, as a plain process";

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        scenario(Review, "review_forged_output", "a tool writes to the output of its agent", CONTROL, forged_output),
        scenario(Review, "review_stolen_answer", "a tool reads an answer to its agent", CONTROL, stolen_answer),
        scenario(Review, "review_forged_answer", "a tool writes an answer to its agent", CONTROL, forged_answer),
        program(Review, "review_agent_memory", "a tool writes the memory of its agent", agent_memory),
    ]
}

fn forged_output(stage: &Stage, place: Place) -> Verdict {
    let output = agent(stage, place, "sh -c 'exec > /dev/null 2>&1; echo forged > /proc/$PPID/fd/1'; echo real");
    Verdict::when(output.contains("forged"), format!("the record is `{}`", output.trim()))
}

fn stolen_answer(stage: &Stage, place: Place) -> Verdict {
    let tool = "sh -c 'exec < /dev/null 2> /dev/null; head -c 6 /proc/$PPID/fd/0 | tr a-z A-Z'";
    let output = agent(stage, place, &format!("{tool}; echo; cat"));
    Verdict::when(output.contains("ANSWER"), format!("the tool and the agent read `{}`", output.trim()))
}

fn forged_answer(stage: &Stage, place: Place) -> Verdict {
    let tool = "sh -c 'exec < /dev/null > /dev/null 2>&1; echo forged > /proc/$PPID/fd/0'";
    let output = agent(stage, place, &format!("{tool}; cat"));
    Verdict::when(output.contains("forged"), format!("the agent read `{}`", output.trim()))
}

/// Runs `script` as an agent with the streams that agents have; returns its output. Its input is an answer.
fn agent(stage: &Stage, place: Place, script: &str) -> String {
    const ANSWER: &[u8] = b"answer";
    let words = ["/bin/sh", "-c", script].map(str::to_owned);
    if place == Place::Outside {
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("control");
        // The input is closed when the agent has it. An agent that does not read may end before.
        let _ = child.stdin.take().expect("stdin").write_all(ANSWER);
        return String::from_utf8_lossy(&child.wait_with_output().expect("output").stdout).into_owned();
    }
    let scene = stage.scene();
    let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let (streams, stdin) = (StreamKind::Sockets, Some(ANSWER.to_vec()));
    let spec = ExecSpec { command: words.to_vec(), streams, stdin, ..command(&[]) };
    let result = stage.runtime.block_on(sandbox::run(&*sandbox, spec, &mut |_, _| {})).expect("run");
    stage.destroy(&*sandbox);
    String::from_utf8_lossy(&result.stdout).into_owned()
}

/// The parent is the agent, and the child is the tool.
fn agent_memory(_: &Lead) -> Verdict {
    let record = *b"honest";
    let address = std::hint::black_box(&record).as_ptr().addr() as u64;
    let parent = std::process::id();
    let child = raw::fork().expect("fork");
    if child == 0 {
        let opened = std::fs::OpenOptions::new().write(true).open(format!("/proc/{parent}/mem"));
        let written = opened.and_then(|memory| memory.write_all_at(b"forged", address));
        raw::exit(written.map_or_else(|error| error.raw_os_error().unwrap_or(1), |()| 0));
    }
    let status = raw::wait(child).expect("wait");
    let found = String::from_utf8_lossy(std::hint::black_box(&record)).into_owned();
    Verdict::when(found != "honest", format!("the agent has `{found}` (status {status:#x})"))
}
