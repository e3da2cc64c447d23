//! Exit codes of `viv run` and notes of `viv exec`, as docs/exit-codes.md promises.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::fixture::viv_fixture;
use crate::server::pid_of;
use testkit::{ProgramOutput, VivFixture, wait_for_exit};

/// Runs the mock agent with a model server that does not answer.
fn run_with_model(model: &str, arguments: &[&str]) -> ProgramOutput {
    let place = viv_fixture();
    let run = ["run", "--workspace", "workspace", "mock", "hello"];
    let mut command = place.command(&[&run[..], arguments].concat());
    command.env("BASE_URL", "http://127.0.0.1:9/v1").env("MODEL_NAME", model).env("API_KEY", "sk-1");
    ProgramOutput::from(command.output().unwrap())
}

#[track_caller]
fn check(ran: &ProgramOutput, code: i32, name: &str) {
    assert_eq!(ran.code, code, "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("error[{name}]: the turn failed: ")), "{}", ran.stderr);
    assert!(ran.stderr.contains("model call"), "the bill is missing: {}", ran.stderr);
    assert!(ran.stderr.lines().last().unwrap().starts_with("help: viv "), "{}", ran.stderr);
}

#[test]
fn a_run_whose_model_calls_fail_returns_the_code_of_the_failure() {
    check(&run_with_model("gpt-4o-mini", &[]), 7, "upstream_error");
    check(&run_with_model("a-model-without-price", &[]), 7, "upstream_error");
    let denied = ["--narrow", "models.unpriced=deny"];
    check(&run_with_model("a-model-without-price", &denied), 2, "price_unknown");
    let few = ["--narrow", "models.max_tokens=5"];
    check(&run_with_model("a-model-without-price", &few), 8, "budget_exceeded");
    check(&run_with_model("gpt-4o-mini", &["--narrow", "models.budget_usd=0"]), 8, "budget_exceeded");
    check(&run_with_model("gpt-4o-mini", &["--narrow", "models.allow=claude-*"]), 5, "policy_denied");
}

#[test]
fn a_command_that_a_time_limit_kills_says_which() {
    let place = viv_fixture();
    let exec = |options: &[&str]| place.run(&[&["exec"], options, &["--", "sleep", "1000"]].concat());
    let killed = exec(&["--timeout", "200ms"]);
    assert_eq!(
        (killed.code, killed.stderr.as_str()),
        (124, "viv: the command was killed: it ran longer than 0.2 s (--timeout)\n")
    );
    let idle = exec(&["--idle-timeout", "200ms"]);
    let line = "viv: the command was killed: it printed nothing for 0.2 s (--idle-timeout)\n";
    assert_eq!((idle.code, idle.stderr.as_str()), (124, line));
    let policy = exec(&["--narrow", "proc.timeout=1s"]);
    let line = "viv: the command was killed: it ran longer than 1 s (proc.timeout)\n";
    assert_eq!((policy.code, policy.stderr.as_str()), (124, line));
}

#[test]
fn a_process_that_the_memory_limit_kills_is_reported() {
    let place = viv_fixture();
    // The shell survives its child.
    let script = "head -c 200000000 /dev/zero | tail -c 199999999 > /dev/null; echo done";
    let ran = place.run(&["exec", "--narrow", "proc.memory=64MiB", "--", "sh", "-c", script]);
    let line = "a process of the command was killed: the sandbox used more than 64 MiB of memory (proc.memory)";
    assert!(ran.stderr.contains(line), "{}", ran.stderr);
}

/// Starts `viv exec` of an endless command, sends it `signal` when the command runs, and returns its exit code.
fn signalled(place: &VivFixture, signal: rustix::process::Signal) -> i32 {
    let mut command = place.command(&["exec", "--", "sh", "-c", "echo up; sleep 1000"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    rustix::process::kill_process(pid_of(&child), signal).unwrap();
    wait_for_exit(&mut child).code().unwrap()
}

/// Runs a task file and returns the exit code.
fn task(place: &VivFixture, text: &str) -> i32 {
    std::fs::write(place.workspace().join("task.yaml"), text).unwrap();
    place.run(&["task", "workspace/task.yaml"]).code
}

#[test]
fn every_exit_code_of_the_document_is_returned_by_a_command() {
    let place = viv_fixture();
    let run = |arguments: &[&str]| place.run(arguments).code;
    let in_workspace = |prompt: &str| run(&["run", "--workspace", "workspace", "mock", prompt]);
    let data = place.data_dir();
    let failing = "{version: 1, name: t, agent: mock, commands: [{run: [\"false\"]}]}";
    let returned = [
        (0, in_workspace("/echo hi")),
        (1, task(&place, failing)),
        (2, run(&["run", "cluade", "hi"])),
        (3, run(&["sessions", "show", "missing"])),
        (4, run(&["run", "--workspace", data.to_str().unwrap(), "mock", "hi"])),
        (5, run(&["policy", "test", "strict", "net", "example.com:443"])),
        (6, run(&["serve", "--listen", "192.0.2.1:1"])),
        (7, run_with_model("gpt-4o-mini", &[]).code),
        (8, run_with_model("gpt-4o-mini", &["--narrow", "models.budget_usd=0"]).code),
        (9, run(&["policy", "diff", "strict", "open", "--fail-on-wider"])),
        (10, in_workspace("/run true")),
        (124, run(&["exec", "--timeout", "200ms", "--", "sleep", "1000"])),
        (130, signalled(&place, rustix::process::Signal::INT)),
        (143, signalled(&place, rustix::process::Signal::TERM)),
    ];
    let wrong: Vec<_> = returned.iter().filter(|(expected, code)| expected != code).collect();
    assert!(wrong.is_empty(), "expected and returned: {wrong:?}");
    // A new row of the document needs a command above. A closed pipe (141) has its own test.
    let document = include_str!("../../../../docs/exit-codes.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()?.parse::<i32>().ok());
    let missing: Vec<i32> =
        rows.filter(|code| *code != 141 && !returned.iter().any(|(known, _)| known == code)).collect();
    assert!(missing.is_empty(), "no command returns {missing:?}");
}
