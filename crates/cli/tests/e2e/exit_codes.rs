//! Exit codes of `viv run` and notes of `viv exec`, as docs/exit-codes.md promises.

use crate::fixture::viv_fixture;
use testkit::ProgramOutput;

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
    check(&run_with_model("a-model-without-price", &[]), 2, "price_unknown");
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
