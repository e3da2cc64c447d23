//! Streaming output of `viv run`: live and without repetition.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::fixture::viv_fixture;
use crate::server::pid_of;
use crate::terminal::Terminal;
use testkit::{ChatStub, StubBehaviour, StubGate};
use testkit::{VivFixture, wait_for_exit};

const ANSWER: &str = "The first words of it, and then the rest.";
const FIRST: &str = "The first words of i";

/// Returns an environment whose model sends half of [`ANSWER`] and waits at the gate.
fn held_back() -> (VivFixture, ChatStub, &'static StubGate) {
    let gate: &'static StubGate = Box::leak(Box::default());
    let (place, stub) = (viv_fixture(), ChatStub::start(StubBehaviour::HoldsBack(gate), ANSWER));
    let lines = format!("BASE_URL=http://{}/v1\nAPI_KEY=sk-ours\nMODEL_NAME=gpt-4o-mini\n", stub.address);
    std::fs::create_dir_all(place.data_dir()).unwrap();
    std::fs::write(place.data_dir().join("model.env"), lines).unwrap();
    (place, stub, gate)
}

/// Reads from `pipe` until everything read ends with `text`.
#[track_caller]
fn read_until(pipe: &mut impl Read, text: &str) -> String {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !seen.ends_with(text.as_bytes()) {
        assert_eq!(pipe.read(&mut byte).unwrap(), 1, "`{text}` never came: {}", String::from_utf8_lossy(&seen));
        seen.extend(byte);
    }
    String::from_utf8(seen).unwrap()
}

#[track_caller]
fn check_runs(child: &mut Child) {
    assert!(child.try_wait().unwrap().is_none(), "the event arrived only at the end");
}

#[test]
fn text_reaches_a_pipe_before_the_turn_ends() {
    let (place, stub, gate) = held_back();
    let file = place.data_dir().join("model.env");
    let mut command = place.command(&["run", "mock", "hello", "--env-file", file.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    assert_eq!(read_until(&mut stdout, FIRST), FIRST);
    check_runs(&mut child);
    gate.open();
    let (mut rest, mut people) = (String::new(), String::new());
    stdout.read_to_string(&mut rest).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut people).unwrap();
    assert_eq!(wait_for_exit(&mut child).code(), Some(0), "{people}");
    assert_eq!(format!("{FIRST}{rest}"), format!("{ANSWER}\n"));
    assert!(!people.contains("words of it"), "{people}");
    assert!(people.contains("1 model call · "), "{people}");
    assert_eq!(stub.calls().len(), 1);
}

#[test]
fn text_reaches_a_terminal_before_the_turn_ends() {
    let (place, stub, gate) = held_back();
    let file = place.data_dir().join("model.env");
    let mut terminal = Terminal::start(place.command(&["run", "mock", "hello", "--env-file", file.to_str().unwrap()]));
    terminal.until(FIRST);
    assert!(!terminal.shown.contains("model calls"), "{}", terminal.shown);
    gate.open();
    let (status, shown) = terminal.finish();
    assert_eq!(status.code(), Some(0), "{shown}");
    assert_eq!(shown.matches("first words").count(), 1, "{shown}");
    assert!(shown.contains(&format!("\n{ANSWER}\r\n")), "{shown}");
    assert_eq!(stub.calls().len(), 1);
}

/// A script that reasons, runs a command, starts a message and then hangs.
const HANGING: &str = r#"
version: 1
rules:
  - when: {tool_result: {contains: "done-7"}}
    answer: [text: "Half of", hang]
  - answer:
      - thinking: Silently.
      - text: Look.
      - tool: {name: run_command, input: {command: [sh, -c, "printf 'done-%d' 7"]}}
"#;
/// A script with a command that never ends.
const RUNNING: &str = r"
version: 1
rules:
  - answer:
      - tool: {name: run_command, input: {command: [sleep, '1000000']}}
";

/// Starts `viv run` with a scripted model.
fn scripted(script: &str) -> (VivFixture, Child) {
    let place = viv_fixture();
    std::fs::create_dir_all(place.data_dir()).unwrap();
    let file = place.data_dir().join("model.yaml");
    std::fs::write(&file, script).unwrap();
    std::fs::write(place.data_dir().join("viv.toml"), format!("[model]\nscript = '{}'\n", file.display())).unwrap();
    let mut command = place.command(&["run", "mock", "go", "--perms=allow"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    (place, child)
}

/// Returns the lines of stderr up to the first one with `text`.
#[track_caller]
fn told_until(lines: &mut impl Iterator<Item = std::io::Result<String>>, text: &str) -> Vec<String> {
    let mut told = Vec::new();
    while !told.last().is_some_and(|line: &String| line.contains(text)) {
        told.push(lines.next().unwrap_or_else(|| panic!("`{text}` was never told: {told:?}")).unwrap());
    }
    told
}

#[track_caller]
fn check_stopped(mut child: Child) {
    check_runs(&mut child);
    rustix::process::kill_process(pid_of(&child), Signal::INT).unwrap();
    assert_eq!(wait_for_exit(&mut child).code(), Some(130));
}

#[test]
fn tool_calls_are_shown_at_their_start_and_end() {
    let (_place, mut child) = scripted(HANGING);
    let mut stdout = child.stdout.take().unwrap();
    assert_eq!(read_until(&mut stdout, "Half of"), "Look.\nHalf of");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = told_until(&mut lines, "result");
    let once = |text: &str| told.iter().filter(|line| line.contains(text)).count();
    assert_eq!((once("∴ thinking"), once("▶ tool"), once("│ result")), (1, 1, 1), "{told:#?}");
    let place = |text: &str| told.iter().position(|line| line.contains(text));
    assert!(place("∴ thinking") < place("▶ tool") && place("▶ tool") < place("│ result"), "{told:#?}");
    assert!(told.iter().any(|line| line.ends_with("done-7")), "{told:#?}");
    check_stopped(child);
}

#[test]
fn a_command_is_shown_while_it_runs() {
    let (_place, mut child) = scripted(RUNNING);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = told_until(&mut lines, "▶ tool");
    assert!(told.last().unwrap().contains("run_command sleep 1000000"), "{told:#?}");
    check_stopped(child);
}
