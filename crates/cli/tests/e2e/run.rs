//! Tests of `viv run` and `viv sessions stop`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fixture::viv_fixture;
use crate::journal;
use crate::processes;
use crate::server::{Server, pid_of};
use crate::terminal::Terminal;
use testkit::{ProgramOutput, VivFixture, wait_for_exit};

/// Starts a `viv run` whose turn never ends; returns it with its session.
fn running(place: &VivFixture, prompt: &str) -> (Child, String) {
    let mut command = place.command(&["--json", "run", "mock", prompt]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let session = loop {
        let line = lines.next().unwrap().unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["type"] == "turn.started" {
            break event["session_id"].as_str().unwrap().to_owned();
        }
    };
    // Keep reading, or the pipe fills up.
    std::thread::spawn(move || lines.for_each(drop));
    (child, session)
}

#[track_caller]
fn check_ended(place: &VivFixture, session: &str) {
    journal::check_terminated(&place.data_dir(), session);
    let listed = place.run(&["sessions", "show", session]).stdout;
    assert!(listed.contains("state       ended"), "{listed}");
}

#[test]
fn a_signal_ends_the_session_and_is_recorded() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 143)] {
        for prompt in ["/hang", "/slow 10000", "/flood 100000000"] {
            let place = viv_fixture();
            let (mut child, session) = running(&place, prompt);
            let family = processes::family(child.id());
            rustix::process::kill_process(pid_of(&child), signal).unwrap();
            println!("{prompt} {signal:?}");
            assert_eq!(wait_for_exit(&mut child).code(), Some(code), "{prompt}");
            processes::check_gone(child.id(), &family);
            check_ended(&place, &session);
        }
    }
}

#[test]
fn an_agent_gets_only_variables_that_the_policy_passes() {
    let place = viv_fixture();
    let mut command = place.command(&["--json", "run", "--perms", "allow", "mock", "/run env"]);
    let ran = ProgramOutput::from(command.envs(crate::exec::HOST_VARIABLES).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for line in ["LANG=de_DE.UTF-8", "LC_ALL=C", "TERM=vt100", "TZ=Europe/Berlin"] {
        assert!(ran.stdout.contains(line), "{line} in {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("VIV_TEST_TOKEN"), "{}", ran.stdout);
}

#[test]
fn a_signal_ends_the_run_during_a_prompt() {
    let place = viv_fixture();
    let mut terminal = Terminal::start(place.command(&["run", "mock", "/permission"]));
    terminal.until("allow? [y]es once");
    terminal.signal(Signal::INT);
    let (status, shown) = terminal.finish();
    assert_eq!(status.code(), Some(130), "{shown}");
}

#[test]
fn an_answer_is_the_typed_text_or_the_chosen_option() {
    for (typed, meant) in [("Deep Blue", "Deep Blue"), ("2", "blue"), ("RED", "red")] {
        let place = viv_fixture();
        let mut terminal = Terminal::start(place.command(&["run", "mock", "/question Which colour?"]));
        terminal.until("answer: ");
        assert!(terminal.shown.contains("1 red · 2 blue"), "{}", terminal.shown);
        terminal.type_line(typed);
        let (status, shown) = terminal.finish();
        assert_eq!(status.code(), Some(0), "{shown}");
        let answers: Vec<serde_json::Value> = journal::of_kind(&place, "question.resolved");
        assert_eq!(answers[0]["answers"], serde_json::json!([[meant]]), "{typed}");
    }
}

#[test]
fn a_long_wait_shows_a_line_on_a_terminal_and_nothing_in_a_pipe() {
    let place = viv_fixture();
    let arguments = ["run", "--workspace", "workspace", "--perms=allow", "mock", "/run sleep 1.5"];
    let mut terminal = Terminal::start(place.command(&arguments));
    terminal.until_screen(|screen| screen.contains(" waiting for mock · 1 s"));
    let (status, screen) = terminal.finish_on_screen();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert!(!screen.contains("waiting for mock"), "the line stayed:\n{screen}");
    let piped = place.run(&arguments);
    assert_eq!(piped.code, 0, "{piped:?}");
    assert!(!piped.stderr.contains("waiting") && !piped.stderr.contains('\r'), "{}", piped.stderr);
}

#[test]
fn an_unsupported_permission_mode_is_rejected() {
    let place = viv_fixture();
    let planned = place.run(&["run", "--workspace", "workspace", "--mode", "plan", "mock", "/echo hello"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let shown = place.run(&["--json", "sessions", "show", "@last"]).stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["permissionMode"], "plan", "{shown}");
    assert_eq!(place.run(&["run", "--mode", "dream", "mock", "/echo hello"]).code, 2);
}

#[test]
fn unparsed_agent_output_is_counted() {
    let place = viv_fixture();
    let listed = |place: &VivFixture| {
        let all: serde_json::Value = serde_json::from_str(&place.run(&["--json", "agents", "ls"]).stdout).unwrap();
        all[0]["drift"].clone()
    };
    assert_eq!(listed(&place), serde_json::json!({}));
    for times in 1..=2 {
        let ran = place.run(&["run", "--workspace", "workspace", "mock", "/garbage"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let counted = serde_json::json!({"built-in": {"unparsed": 5 * times, "unknown": 2 * times}});
        assert_eq!(listed(&place), counted);
    }
    assert!(place.run(&["agents", "ls"]).stdout.contains("; built-in printed 14 unknown messages"));
    // Later runs add to the same count.
    let server = Server::start(&place);
    assert_eq!(place.run(&["run", "--workspace", "workspace", "mock", "/unknown"]).code, 0);
    let told = server.client().get("/v1/agents").json();
    let mock = told["agents"].as_array().unwrap().iter().find(|agent| agent["id"] == "mock").unwrap();
    assert_eq!(mock["drift"]["built-in"], serde_json::json!({"unparsed": 10, "unknown": 5}), "{mock}");
    assert_eq!(listed(&place), mock["drift"]);
}

#[test]
fn the_first_line_names_the_model() {
    let place = viv_fixture();
    let named = |command: &mut std::process::Command| {
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let run = ["run", "--workspace", "workspace", "mock", "/echo hello"];
    let plain = named(&mut place.command(&run));
    assert!(plain.contains("agent mock · model: built-in script, no real model\n"), "{plain}");
    let half = named(place.command(&run).env("BASE_URL", "http://127.0.0.1:9/v1"));
    assert!(half.contains("MODEL_NAME is not set"), "{half}");
    let whole = named(
        place.command(&run).env("BASE_URL", "http://127.0.0.1:9/v1").env("MODEL_NAME", "m").env("API_KEY", "sk-1"),
    );
    assert!(whole.contains("model: m at http://127.0.0.1:9/v1 (environment)") && !whole.contains("sk-1"), "{whole}");
}

#[test]
fn a_session_of_another_process_can_be_stopped() {
    let place = viv_fixture();
    let (mut child, session) = running(&place, "/hang");
    let family = processes::family(child.id());
    let stopped = place.run(&["sessions", "stop", &session]);
    assert_eq!((stopped.code, stopped.stderr.as_str()), (0, ""));
    check_ended(&place, &session);
    assert_eq!(wait_for_exit(&mut child).code(), Some(130));
    processes::check_gone(child.id(), &family);
    let again = place.run(&["sessions", "stop", &session]);
    assert_eq!(again.code, 0);
    assert!(again.stderr.contains("has already ended"), "{}", again.stderr);
}

#[test]
fn a_session_of_a_killed_process_can_be_stopped() {
    // By a new process, and by a server that was running all the time.
    for with_server in [false, true] {
        let place = viv_fixture();
        let (mut child, session) = running(&place, "/hang");
        let server = with_server.then(|| Server::start(&place));
        child.kill().unwrap();
        child.wait().unwrap();
        let stopped = place.run(&["sessions", "stop", &session]);
        assert_eq!((stopped.code, stopped.stderr.as_str()), (0, ""), "with a server: {with_server}");
        check_ended(&place, &session);
        if let Some(server) = server {
            server.stop();
        }
    }
}

#[test]
fn terminate_kills_within_a_second_and_nothing_is_recorded_after() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    for (number, prompt) in ["/flood 100000000", "/hang", "/slow 10000", "/permission"].into_iter().enumerate() {
        let id = format!("t{number}");
        assert_eq!(client.try_create(&id).unwrap().status, 200);
        let before = processes::family(server.pid());
        assert_eq!(client.try_send(&id, prompt).unwrap().status, 204);
        testkit::wait_until("some events of the turn", || {
            client.get(&format!("/v1/sessions/{id}")).json()["eventCount"].as_u64() > Some(5)
        });
        let asked = Instant::now();
        assert_eq!(client.post(&format!("/v1/sessions/{id}/terminate"), "").status, 204);
        assert!(asked.elapsed() < Duration::from_secs(1), "{prompt} took {:?}", asked.elapsed());
        // Server and spawner stay; all processes of the session are dead when the answer arrives.
        let left: Vec<_> = processes::alive(&before);
        assert!(left.len() <= 2, "{prompt} left {left:?}");
        let ended = std::fs::metadata(journal::path(&place.data_dir(), &id)).unwrap().len();
        check_ended(&place, &id);
        assert_eq!(client.try_send(&id, "/echo more").unwrap().status, 409);
        assert_eq!(std::fs::metadata(journal::path(&place.data_dir(), &id)).unwrap().len(), ended, "{prompt}");
    }
    server.stop();
}
